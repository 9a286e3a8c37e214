//! The command `superpoll` as a library. Its public parts are the command line, from which manual
//! pages are made, and the parts that the laboratory (`superpoll-lab`) uses too: the machine's
//! description, tables for the terminal, and one-line refusals.

pub mod environment;
pub mod probe;
pub mod table;

mod command;
mod control;
mod doctor;
mod explain;
mod import;
mod init;
mod keep;
mod printable;
mod proxy;
mod quantity;
mod refusal;
mod running_program;
mod secrecy;
mod serve;
mod stats;
mod sys;
mod top;
mod watch;

pub use command::{command, main};
pub use refusal::refuse;
pub use sys::{block_signals, end_on_closed_output};
