//! Asking with `select(2)` as its manual page shows it: a bit for each descriptor, a copy for the
//! kernel to change, and a scan over the numbers. There are 1024 of them and no more.

use std::os::fd::RawFd;

use crate::channel::Pairs;
use crate::error::{Error, Result};
use crate::subject::{ReadLog, Subject};
use crate::sys::select::Set;

struct RawSelect<'a> {
    readers: &'a [RawFd],
    all: Set,
    ready: Set,
    waits: u64,
}

/// The message for a descriptor that does not fit.
pub(super) fn beyond(fd: RawFd) -> String {
    format!(
        "descriptor {fd} is beyond {}, the last that select can name: ask for a smaller --total",
        libc::FD_SETSIZE - 1
    )
}

pub(super) fn build(pairs: &Pairs) -> Result<Box<dyn Subject + '_>> {
    let mut all = Set::new();
    for &fd in pairs.readers() {
        if !all.add(fd) {
            return Err(Error::usage(beyond(fd)));
        }
    }
    Ok(Box::new(RawSelect { readers: pairs.readers(), all, ready: Set::new(), waits: 0 }))
}

impl Subject for RawSelect<'_> {
    #[inline(always)]
    fn turn(&mut self, _active: &[u32], log: &mut ReadLog) -> Result<()> {
        self.waits += 1;
        let mut ready = self.all.wait_into(&mut self.ready);
        if ready < 0 {
            return Err(Error::last("select"));
        }
        for (pair, &fd) in self.readers.iter().enumerate() {
            if self.ready.contains(fd) {
                log.read(pair, fd);
                ready -= 1;
                if ready == 0 {
                    break;
                }
            }
        }
        Ok(())
    }

    fn calls(&self) -> Option<u64> {
        Some(self.waits)
    }
}
