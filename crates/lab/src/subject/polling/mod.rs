//! The crate polling in the mode that costs it least here: level-triggered, so that no descriptor
//! is armed again after each event.

use std::num::NonZeroUsize;
use std::os::fd::RawFd;

use ::polling::{Events, PollMode, Poller};

use crate::channel::Pairs;
use crate::error::{Error, Result};
use crate::subject::{Ledger, Subject};

mod ffi;

struct Polling<'a> {
    poller: Poller,
    events: Events,
    readers: &'a [RawFd],
    pairs: &'a Pairs,
}

pub(super) fn build(pairs: &Pairs) -> Result<Box<dyn Subject + '_>> {
    let failed = |e| Error::system("creating a polling::Poller", e);
    let poller = Poller::new().map_err(failed)?;
    let events = Events::with_capacity(NonZeroUsize::new(pairs.len()).unwrap_or(NonZeroUsize::MIN));
    let mut subject = Polling { poller, events, readers: pairs.readers(), pairs };
    for (pair, &fd) in pairs.readers().iter().enumerate() {
        ffi::add(&mut subject.poller, fd, pair, PollMode::Level)
            .map_err(|e| Error::system(format!("adding descriptor {fd} to polling"), e))?;
    }
    Ok(Box::new(subject))
}

impl Subject for Polling<'_> {
    fn round(&mut self, active: &[u32], ledger: &mut Ledger) -> Result<()> {
        while ledger.bytes() < active.len() {
            self.events.clear();
            let waited = self.poller.wait(&mut self.events, None);
            waited.map_err(|e| Error::system("polling::Poller", e))?;
            for event in self.events.iter() {
                ledger.read(event.key, self.readers[event.key]);
            }
        }
        Ok(())
    }
}

impl Drop for Polling<'_> {
    fn drop(&mut self) {
        for reader in self.pairs.reader_handles() {
            // One that was never added is not there to be deleted.
            let _ = self.poller.delete(reader);
        }
    }
}
