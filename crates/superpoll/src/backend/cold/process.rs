//! A keeper in another process, which is given the open files.

use superpoll_keeper::KeeperLink;

use super::kept::{KeeperHandle, Kept};
use super::tuning::Tuning;
use crate::error::Result;

/// A keeper that another program starts and ends.
#[derive(Debug)]
pub(crate) struct Process;

impl KeeperHandle for Process {
    const TAKES_FILES: bool = true;

    fn join(&mut self) {}

    fn detach(&mut self) {}
}

/// A cold set with a keeper at the other end of a link.
pub(crate) fn process(link: KeeperLink, tuning: Tuning) -> Result<Kept<Process>> {
    Kept::new(Process, link, tuning)
}
