//! Changes of an interest before the kernel is told: the kernel sees only the last change, or none
//! if the changes cancel out.

use superpoll::{BackendKind, Interest, Poller};

use crate::error::{Error, Result};
use crate::gate::paths::work::{Work, on};
use crate::sys::descriptor;

/// Sets up `each` changes in every operation, from reading to both directions and back.
pub(super) fn set_up(each: usize) -> Result<Box<dyn Work>> {
    let mut poller = Poller::builder().backend(BackendKind::Epoll).build()?;
    let ends = descriptor::unix_pair().map_err(|e| Error::system("opening a socket pair", e))?;
    let key = poller.register(&ends.0, Interest::READABLE)?;
    poller.flush();
    let mut wants_both = false;
    on(poller, move |poller, count| {
        let _ = &ends;
        for _ in 0..count {
            for _ in 0..each {
                wants_both = !wants_both;
                let interest = if wants_both {
                    Interest::READABLE | Interest::WRITABLE
                } else {
                    Interest::READABLE
                };
                poller.modify(key, interest)?;
            }
            poller.flush();
        }
        Ok(())
    })
}
