//! The crate polling with readers that it watches level-triggered: its cheapest mode here, because
//! no descriptor is armed again after each event.

use std::num::NonZeroUsize;
use std::os::fd::{BorrowedFd, RawFd};

use ::polling::{Event, Events, PollMode, Poller};

use crate::error::{Doing, Result};
use crate::loops::{Loop, Ready, Watch};

/// Readers that are watched, each under its place as the key.
pub(crate) struct Polling {
    poller: Poller,
    events: Events,
    readers: Vec<RawFd>,
}

impl Polling {
    fn stop(poller: &Poller, fd: RawFd) -> std::io::Result<()> {
        // SAFETY: whoever watches readers keeps them open for as long as this value lives.
        poller.delete(unsafe { BorrowedFd::borrow_raw(fd) })
    }
}

impl<T: Ready> Loop<T> for Polling {
    #[inline(always)]
    fn turn(&mut self, receiver: &mut T) -> Result<bool> {
        self.events.clear();
        self.poller.wait(&mut self.events, None).doing("polling::Poller")?;
        let mut goes_on = true;
        for event in self.events.iter() {
            let fd = self.readers[event.key];
            if !receiver.ready(event.key, fd) {
                goes_on = false;
                Polling::stop(&self.poller, fd).doing("deleting a descriptor from polling")?;
            }
        }
        Ok(goes_on)
    }
}

impl<T: Ready> Watch<T> for Polling {
    fn watch(readers: &[RawFd], room: usize) -> Result<Polling> {
        let events = Events::with_capacity(NonZeroUsize::new(room).unwrap_or(NonZeroUsize::MIN));
        let poller = Poller::new().doing("creating a polling::Poller")?;
        let watched = Polling { poller, events, readers: readers.to_vec() };
        for (place, &fd) in readers.iter().enumerate() {
            // SAFETY: a source must be deleted before it is closed. All are deleted when this value
            // is dropped, and stay open until then.
            unsafe { watched.poller.add_with_mode(fd, Event::readable(place), PollMode::Level) }
                .doing("adding a descriptor to polling")?;
        }
        Ok(watched)
    }
}

impl Drop for Polling {
    fn drop(&mut self) {
        for &fd in &self.readers {
            // One that was never added, or not any more, is not there to be deleted.
            let _ = Polling::stop(&self.poller, fd);
        }
    }
}
