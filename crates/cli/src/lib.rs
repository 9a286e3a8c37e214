//! The parts of the `superpoll` command that the laboratory (`superpoll-lab`) uses too: the machine's description,
//! tables for the terminal, and one-line refusals.

pub mod environment;
pub mod probe;
pub mod table;

mod refusal;
mod sys;

pub use refusal::refuse;
pub use sys::{block_signals, end_on_closed_output};
