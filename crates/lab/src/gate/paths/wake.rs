//! A handle wakes a poller.
//!
//! A poller that does not sleep needs no system call to be woken. For a poller that sleeps, the
//! wake-up usually comes from another thread, and then the result depends on timing. A poller that
//! is nested in another event loop also sleeps, in the protocol's terms, between its waits.

use std::os::fd::AsFd;
use std::time::Duration;

use superpoll::{BackendKind, Events, Interest, Poller, Waker};

use crate::error::Result;
use crate::gate::counted::{self, Counted};
use crate::gate::paths::work::{Work, wrong};

struct Wake {
    poller: Poller,
    waker: Waker,
    events: Events,
    /// The outer loop that the poller is nested in.
    outer: Option<(Poller, Events)>,
}

pub(super) fn set_up() -> Result<Box<dyn Work>> {
    let mut poller = Poller::builder().backend(BackendKind::Epoll).build()?;
    let waker = poller.waker()?;
    Ok(Box::new(Wake { poller, waker, events: Events::with_limit(1), outer: None }))
}

pub(super) fn set_up_asleep() -> Result<Box<dyn Work>> {
    let mut poller = Poller::builder().backend(BackendKind::Epoll).build()?;
    let waker = poller.waker()?;
    let mut outer = Poller::builder().backend(BackendKind::Epoll).build()?;
    outer.register(poller.nest()?.as_fd(), Interest::READABLE)?;
    let outer = Some((outer, Events::with_limit(1)));
    Ok(Box::new(Wake { poller, waker, events: Events::with_limit(1), outer }))
}

impl Work for Wake {
    fn operate(&mut self, count: u64) -> Result<()> {
        for _ in 0..count {
            self.waker.wake()?;
            let timeout = match &mut self.outer {
                Some((outer, events)) => {
                    if outer.wait(events, None)? != 1 {
                        return wrong("wake-asleep", "the outer loop heard nothing");
                    }
                    Some(Duration::ZERO)
                }
                None => None,
            };
            self.poller.wait(&mut self.events, timeout)?;
            if !self.events.woken() {
                return wrong("wake", "a wake was lost");
            }
        }
        Ok(())
    }

    fn counted(&self) -> Counted {
        let mut calls = counted::of_poller(&self.poller);
        if let Some((outer, _)) = &self.outer {
            for (name, count) in counted::of_poller(outer) {
                *calls.entry(name).or_default() += count;
            }
        }
        calls
    }
}
