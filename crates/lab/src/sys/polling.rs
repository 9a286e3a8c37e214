//! The crate polling with readers that it watches level-triggered: its cheapest mode here, because
//! no descriptor is armed again after each event.

use std::io;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd};

use ::polling::{Event, Events, PollMode, Poller};

/// Readers that are watched; they are deleted before they can be closed.
pub(crate) struct Readers<R: AsFd> {
    poller: Poller,
    events: Events,
    readers: Vec<R>,
}

impl<R: AsFd> Readers<R> {
    /// Watches all readers, each under its place as the key, with room for this many events at a
    /// time.
    pub(crate) fn watch(readers: Vec<R>, room: usize) -> io::Result<Readers<R>> {
        let events = Events::with_capacity(NonZeroUsize::new(room).unwrap_or(NonZeroUsize::MIN));
        let watched = Readers { poller: Poller::new()?, events, readers };
        for (place, reader) in watched.readers.iter().enumerate() {
            let (fd, what) = (reader.as_fd().as_raw_fd(), Event::readable(place));
            // SAFETY: a source must be deleted before it is closed. The readers, or borrows of
            // them, are owned here, and all are deleted when this is dropped.
            unsafe { watched.poller.add_with_mode(fd, what, PollMode::Level)? };
        }
        Ok(watched)
    }

    /// Waits, and returns the places of the ready readers, at least one.
    pub(crate) fn wait(&mut self) -> io::Result<impl Iterator<Item = usize>> {
        self.events.clear();
        self.poller.wait(&mut self.events, None)?;
        Ok(self.events.iter().map(|event| event.key))
    }

    /// Stops watching a reader.
    pub(crate) fn stop(&self, place: usize) -> io::Result<()> {
        self.poller.delete(&self.readers[place])
    }
}

impl<R: AsFd> Drop for Readers<R> {
    fn drop(&mut self) {
        for reader in &self.readers {
            // One that was never added, or not any more, is not there to be deleted.
            let _ = self.poller.delete(reader);
        }
    }
}
