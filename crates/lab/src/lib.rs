//! The laboratory: experiments that compare ways to watch descriptors, on the reader's machine.
//!
//! Every experiment does the same work with every subject, in turns, checks that the work was
//! done, and reports ratios within one run. [`measure`] is the harness they stand on and says how;
//! [`subject`] are the pollers, ours and others, each with its whole loop; [`atr`] is an
//! experiment, options in, rows out; [`latency`] is the same loads seen by who waits. [`ring`], [`echo`], [`http`], [`timers`] and [`herd`] compare
//! runtimes and ways to share a listener (and [`echo`] pollers in a server); [`files`] servers of static files,
//! [`relay`] proxies with and without speculation; [`models`] the four ways to learn what is ready, [`threads`] a thread
//! for each descriptor against loops over events, [`zombies`] what
//! idle connections cost the busy ones and [`idle`] what memory they take, [`registrations`] what it costs to begin and
//! end watching, [`sit`] what a babysitter costs and keeps. [`gate`] counts instructions
//! and system calls and holds them against what is stored. What becomes of the rows (table, CSV, plots, report) is apart from how they are measured:
//! [`experiments`] is the table of all of them, [`claims`] what the texts they come from say and what holds, [`all`] runs
//! everything into one [`report`], [`comparison`] sets two reports side by side, and [`verify`] holds one against the promises.
//! [`simulator`] judges placement policies without a kernel.

pub mod all;
pub mod atr;
mod atr_plot;
pub mod atr_table;
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
mod mix_plot;
pub mod mix_table;
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
mod second_thread;
mod server;
pub mod simulator;
pub mod sit;
pub mod statistics;
pub mod subject;
mod sweep;
mod sys;
pub mod table;
pub mod targets;
pub mod threads;
pub mod timers;
pub mod verify;
pub mod wake;
mod waking;
pub mod zombies;

pub use error::{Error, Result};
pub use sys::memory::Counting;
