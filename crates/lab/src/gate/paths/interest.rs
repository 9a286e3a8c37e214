//! Changes of an interest before the kernel is told: the kernel sees only the last change, or none
//! if the changes cancel out.

use std::os::fd::OwnedFd;

use superpoll::{BackendKind, Interest, Key, Poller};

use crate::error::{Error, Result};
use crate::gate::counted::{self, Counted};
use crate::gate::paths::work::Work;
use crate::sys::descriptor;

struct Changes {
    poller: Poller,
    key: Key,
    each: usize,
    wants_both: bool,
    _ends: (OwnedFd, OwnedFd),
}

/// Sets up `each` changes in every operation, from reading to both directions and back.
pub(super) fn set_up(each: usize) -> Result<Box<dyn Work>> {
    let mut poller = Poller::builder().backend(BackendKind::Epoll).build()?;
    let ends = descriptor::unix_pair().map_err(|e| Error::system("opening a socket pair", e))?;
    let key = poller.register(&ends.0, Interest::READABLE)?;
    poller.flush();
    Ok(Box::new(Changes { poller, key, each, wants_both: false, _ends: ends }))
}

impl Work for Changes {
    fn operate(&mut self, count: u64) -> Result<()> {
        for _ in 0..count {
            for _ in 0..self.each {
                self.wants_both = !self.wants_both;
                let interest = if self.wants_both {
                    Interest::READABLE | Interest::WRITABLE
                } else {
                    Interest::READABLE
                };
                self.poller.modify(self.key, interest)?;
            }
            self.poller.flush();
        }
        Ok(())
    }

    fn counted(&self) -> Counted {
        counted::of_poller(&self.poller)
    }
}
