//! The crate polling in its cheapest mode here: level-triggered.

use std::os::fd::{OwnedFd, RawFd};

use crate::channel::Pairs;
use crate::error::{Error, Result};
use crate::subject::work::{ReadLog, Subject};
use crate::sys::polling::Readers;

struct Polling<'a> {
    watched: Readers<&'a OwnedFd>,
    readers: &'a [RawFd],
}

pub(super) fn build(pairs: &Pairs) -> Result<Box<dyn Subject + '_>> {
    let watched = Readers::watch(pairs.reader_handles().iter().collect(), pairs.len())
        .map_err(|e| Error::system("adding descriptors to polling", e))?;
    Ok(Box::new(Polling { watched, readers: pairs.readers() }))
}

impl Subject for Polling<'_> {
    fn round(&mut self, active: &[u32], log: &mut ReadLog) -> Result<()> {
        while log.bytes() < active.len() {
            let ready = self.watched.wait().map_err(|e| Error::system("polling::Poller", e))?;
            for pair in ready {
                log.read(pair, self.readers[pair]);
            }
        }
        Ok(())
    }
}
