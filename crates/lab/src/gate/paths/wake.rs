//! A handle wakes a poller.
//!
//! A poller that does not sleep needs no system call to be woken. For a poller that sleeps, the
//! wake-up usually comes from another thread, and then the result depends on timing. A poller that
//! is nested in another event loop also sleeps, in the protocol's terms, between its waits.

use std::os::fd::AsFd;
use std::time::Duration;

use superpoll::{BackendKind, Events, Interest, Poller};

use crate::error::Result;
use crate::gate::paths::work::{Work, on, wrong};

pub(super) fn set_up() -> Result<Box<dyn Work>> {
    let mut poller = Poller::builder().backend(BackendKind::Epoll).build()?;
    let (waker, mut events) = (poller.waker()?, Events::with_limit(1));
    on(poller, move |poller, count| {
        for _ in 0..count {
            waker.wake()?;
            poller.wait(&mut events, None)?;
            if !events.woken() {
                return wrong("wake", "a wake was lost");
            }
        }
        Ok(())
    })
}

/// Nests the poller in another, its outer loop.
pub(super) fn set_up_asleep() -> Result<Box<dyn Work>> {
    let mut poller = Poller::builder().backend(BackendKind::Epoll).build()?;
    let waker = poller.waker()?;
    let mut outer = Poller::builder().backend(BackendKind::Epoll).build()?;
    outer.register(poller.nest()?.as_fd(), Interest::READABLE)?;
    let mut events = [(); 2].map(|()| Events::with_limit(1));
    on([poller, outer], move |[poller, outer], count| {
        let [events, of_outer] = &mut events;
        for _ in 0..count {
            waker.wake()?;
            if outer.wait(of_outer, None)? != 1 {
                return wrong("wake-asleep", "the outer loop heard nothing");
            }
            poller.wait(events, Some(Duration::ZERO))?;
            if !events.woken() {
                return wrong("wake", "a wake was lost");
            }
        }
        Ok(())
    })
}
