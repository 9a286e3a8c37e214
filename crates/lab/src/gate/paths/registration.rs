//! A registration begins and ends, and the kernel is told of both.

use std::os::fd::OwnedFd;

use superpoll::diagnostics::Costs;
use superpoll::{BackendKind, Interest, Poller};

use crate::error::{Error, Result};
use crate::gate::counted::{self, Counted};
use crate::gate::paths::work::{Work, wrong};
use crate::sys::descriptor;

struct Registration {
    poller: Poller,
    reader: OwnedFd,
    _writer: OwnedFd,
}

pub(super) fn set_up(kind: BackendKind) -> Result<Box<dyn Work>> {
    let poller = Poller::builder().backend(kind).costs(Costs::ASSUMED).build()?;
    let (reader, writer) = descriptor::pipe().map_err(|e| Error::system("opening a pipe", e))?;
    Ok(Box::new(Registration { poller, reader, _writer: writer }))
}

impl Work for Registration {
    fn operate(&mut self, count: u64) -> Result<()> {
        let before = self.poller.stats().calls;
        for _ in 0..count {
            let key = self.poller.register(&self.reader, Interest::READABLE)?;
            self.poller.flush();
            self.poller.deregister(key)?;
            self.poller.flush();
        }
        let calls = self.poller.stats().calls.since(&before);
        if !self.poller.is_empty() || calls.epoll_ctl() != 2 * count {
            return wrong("register", format!("{calls} for {count} registrations"));
        }
        Ok(())
    }

    fn counted(&self) -> Counted {
        counted::of_poller(&self.poller)
    }
}
