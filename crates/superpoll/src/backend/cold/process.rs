//! A babysitter in another process, which is given the open files.

use superpoll_sit::Line;

use super::babysat::{Babysat, Sitter};
use super::tuning::Tuning;
use crate::error::Result;

/// A babysitter that another program starts and ends.
#[derive(Debug)]
pub(crate) struct Process;

impl Sitter for Process {
    const TAKES_FILES: bool = true;

    fn end(&mut self) {}

    fn abandon(&mut self) {}
}

/// A cold set with a babysitter at the other end of a line.
pub(crate) fn process(line: Line, tuning: Tuning) -> Result<Babysat<Process>> {
    Babysat::new(Process, line, tuning)
}
