//! A registration begins and ends, and the kernel is told of both.

use superpoll::diagnostics::Costs;
use superpoll::{BackendKind, Interest, Poller};

use crate::error::Result;
use crate::gate::paths::work::{Pipe, Work, on, wrong};

pub(super) fn set_up(kind: BackendKind) -> Result<Box<dyn Work>> {
    let poller = Poller::builder().backend(kind).costs(Costs::ASSUMED).build()?;
    let pipe = Pipe::open()?;
    on(poller, move |poller, count| {
        let before = poller.stats().calls;
        for _ in 0..count {
            let key = poller.register(&pipe.reader, Interest::READABLE)?;
            poller.flush();
            poller.deregister(key)?;
            poller.flush();
        }
        let calls = poller.stats().calls.since(&before);
        if !poller.is_empty() || calls.epoll_ctl() != 2 * count {
            return wrong("register", format!("{calls} for {count} registrations"));
        }
        Ok(())
    })
}
