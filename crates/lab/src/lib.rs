//! The laboratory: experiments that compare ways to watch descriptors, on the reader's machine.
//!
//! Every experiment does the same work with every subject, in turns, checks that the work was done, and reports ratios
//! within one run. An experiment is a folder that implements [`experiment::Experiment`]: options in, rows out, and what
//! becomes of the rows (tables, plots, targets, figures to compare). [`experiments`] lists all of them; the drivers know
//! that list and the trait only:
//!
//! - [`output`] runs one, prints it and writes its files; [`all`] runs everything into one [`report`];
//! - [`claims`] says what the texts claim that the experiments come from, and what holds here; [`targets`] measures what
//!   we aim at;
//! - [`comparison`] sets two reports side by side, [`citation`] takes the documentation's numbers from one, and
//!   [`verify`] holds one against the README's promises.
//!
//! Three harnesses are shared: [`measure`] lets pollers ([`subject`]) take turns on the same descriptors, `server` lets
//! servers take turns that a load generator on another processor asks, and `waking` wakes loops that sleep. Apart from
//! all that, [`gate`] counts instructions and system calls and compares them with what is stored, and [`simulator`] judges
//! placement policies without a kernel.
//!
//! What can go wrong is the same everywhere, and [`Error`] says it: options that make no sense, a system call that failed,
//! a subject that did not do its work, a poller that refused. Functions name their errors only where there is more to say.

pub mod all;
pub mod atr;
mod by_name;
mod cgroup;
pub mod channel;
pub mod citation;
pub mod claims;
pub mod comparison;
pub mod document;
pub mod echo;
pub mod environment;
mod error;
pub mod experiment;
pub mod experiments;
pub mod files;
pub mod gate;
mod go;
mod grouping;
mod headroom;
pub mod herd;
pub mod http;
pub mod idle;
pub mod journal;
pub mod latency;
mod limits;
pub mod load;
pub mod measure;
pub mod mix;
pub mod models;
pub mod options;
pub mod output;
mod pace;
pub mod page;
pub mod placement;
pub mod plot;
pub mod png;
mod probe;
mod programs;
mod progress;
mod random;
pub mod record;
pub mod registrations;
pub mod relay;
pub mod report;
pub mod ring;
pub mod rivals;
#[cfg(test)]
mod rivals_table;
pub mod say;
mod second_thread;
mod server;
pub mod simulator;
pub mod sit;
pub mod statistics;
pub mod subject;
mod sweep;
mod sys;
pub mod table;
pub mod target;
pub mod targets;
pub mod threads;
pub mod timers;
pub mod verify;
pub mod wake;
mod waking;
pub mod zombies;

pub use error::{Error, Result};
pub use sys::memory::Counting;
