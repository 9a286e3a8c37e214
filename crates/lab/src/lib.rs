//! The laboratory: experiments that compare ways to watch descriptors, on the reader's machine.
//!
//! Every experiment does the same work with every subject, in turns, checks that the work was done,
//! and reports ratios within one run. An experiment is a folder that implements
//! `experiment::Experiment`: options in, rows out, and the presentation of the rows (tables, plots,
//! targets, figures to compare). `experiments` lists all of them; the drivers know that list and
//! the trait only:
//!
//! - `output` runs one, prints it and writes its files; `all` runs everything into one `report`;
//! - `claims` states the claims of the texts that the experiments come from, and judges which of
//!   them hold here; `targets` measures the project's goals;
//! - `comparison` sets two reports side by side, `citation` takes the documentation's numbers from
//!   one, and `verify` compares one with the promises in `docs/promises.md`.
//!
//! Three harnesses are shared: `measure` lets pollers (`subject`) take turns on the same
//! descriptors, `server` lets servers take turns that a load generator on another processor asks,
//! and `waking` wakes loops that sleep. Apart from all that, `gate` counts instructions and system
//! calls and compares them with stored figures, and [`simulator`] judges placement policies without
//! a kernel; `replay` plays it what a program has done.
//!
//! The failures are the same everywhere, and [`Error`] names them: options that make no sense, a
//! system call that failed, a subject that did not do its work, a poller that refused. Functions
//! name their errors only where there is more to say.

pub use command::main;
pub use error::{Error, Result};
pub use http::BUILT_IN;
pub use sys::memory::Counting;

mod all;
mod atr;
mod budget;
mod by_name;
mod channel;
mod citation;
mod claims;
mod cluster;
mod cold;
mod command;
mod comparison;
mod document;
mod echo;
mod environment;
mod error;
mod experiment;
mod experiments;
mod fanout;
mod files;
mod findings;
mod gate;
mod gather;
mod go;
mod herd;
mod http;
mod idle;
mod keep;
mod load;
mod lookup;
mod loops;
mod measure;
mod million;
mod mix;
mod models;
mod options;
mod output;
mod plot;
mod png;
mod random;
mod record;
mod registrations;
mod relay;
mod replay;
mod report;
mod ring;
mod rivals;
mod run;
mod say;
mod second_thread;
mod server;
pub mod simulator;
mod statistics;
mod subject;
mod sweep;
mod sys;
mod table;
mod targets;
mod threads;
mod timers;
mod verify;
mod wake;
mod waking;
mod zombies;
