//! Registered with io_uring: a read of each descriptor, submitted before there is anything to read.
//!
//! This is the completion model. The kernel does not report that a descriptor is readable; it
//! reports that data has been read, into memory that it was given beforehand. The loop takes bytes
//! from there and submits the next reads with the call that waits for more, the last reads of a
//! round with a call of their own. When the loop goes back to wait for the next round, the kernel
//! has a read of every descriptor. The kernel processes about twenty completions per call
//! (`uring.rs`), so one call covers as many events, and there are no other reads. The price is
//! memory for every descriptor, for data that may come.

use crate::channel::Pairs;
use crate::error::{Doing, Error, Result};
use crate::subject::{ReadLog, Subject};
use crate::sys::uring::reads::Reads;

struct UringRead(Reads);

pub(super) fn build(pairs: &Pairs) -> Result<Box<dyn Subject + '_>> {
    let failed = |doing: &str, e| Error::system(doing.to_owned(), e);
    let mut reads = Reads::new(pairs.len())
        .map_err(|e| failed("setting up an io_uring with deferred work (Linux 6.1)", e))?;
    for (pair, &fd) in pairs.readers().iter().enumerate() {
        reads.start(pair, fd).map_err(|e| failed("starting a read in an io_uring", e))?;
    }
    reads.ring.submit().map_err(|e| failed("starting reads in an io_uring", e))?;
    // A kernel that does not wait on non-blocking descriptors returns the error at once.
    reads.refusal().map_or(Ok(()), |e| Err(failed("waiting for a read in an io_uring", e)))?;
    Ok(Box::new(UringRead(reads)))
}

impl Subject for UringRead {
    fn turn(&mut self, _active: &[u32], log: &mut ReadLog) -> Result<()> {
        self.0.wait(|pair, bytes| log.note(pair, bytes)).doing("reading in an io_uring")
    }

    fn round(&mut self, active: &[u32], log: &mut ReadLog) -> Result<()> {
        while log.bytes() < active.len() {
            self.turn(active, log)?;
        }
        self.0.ring.submit().doing("starting reads in an io_uring again")
    }

    fn calls(&self) -> Option<u64> {
        Some(self.0.ring.calls)
    }

    fn calls_read(&self) -> bool {
        true
    }

    fn overflows(&self) -> Option<u64> {
        Some(self.0.ring.overflows)
    }
}
