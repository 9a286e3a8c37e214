//! A keeper in a second thread of this process, which watches the same descriptors by their
//! numbers.

use std::io;
use std::thread::JoinHandle;

use superpoll_keeper::{Keeper, KeeperLink, Options};

use super::kept::{KeeperHandle, Kept};
use super::tuning::Tuning;
use crate::error::{Error, Result};
use crate::sys;

/// The thread that it runs in.
#[derive(Debug)]
pub(crate) struct Thread(Option<JoinHandle<()>>);

impl KeeperHandle for Thread {
    const TAKES_FILES: bool = false;

    fn join(&mut self) {
        if let Some(thread) = self.0.take() {
            // It has nothing to report: a poller that loses it sees the end of the link.
            let _ = thread.join();
        }
    }

    fn detach(&mut self) {
        // A child process does not have this thread, so it has nothing to join.
        std::mem::forget(self.0.take());
    }
}

fn start() -> io::Result<(KeeperLink, Thread)> {
    let (link, theirs) = KeeperLink::pair()?;
    let mut keeper = Keeper::new(Options::default(), |_| {})?;
    keeper.work_for(theirs)?;
    let thread = std::thread::Builder::new().name("superpoll-keep".into()).spawn(move || {
        // Signals are for threads that expect them.
        sys::block_signals();
        // It fails only with its epoll set, and then the link ends.
        let _ = keeper.run();
    })?;
    Ok((link, Thread(Some(thread))))
}

/// A cold set with a keeper in a thread of its own.
pub(crate) fn thread(tuning: Tuning) -> Result<Kept<Thread>> {
    let (link, thread) =
        start().map_err(|source| Error::system("starting a keeper", None, source))?;
    Kept::new(thread, link, tuning)
}
