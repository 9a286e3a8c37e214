//! The loops over descriptors that C programmers write, and those of the rivals, each described
//! once: `atr` reads through them, `echo` answers and `ring` passes on.
//!
//! A loop is compiled for each type of receiver, so that a callback costs no more than in C.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use crate::error::{Doing, Error, Result};
use crate::sys::libkqueue::Queue;
use crate::sys::{epoll, poll};

#[cfg(feature = "rival-mio")]
pub(crate) use self::rival_mio::Mio;

/// The action for a ready descriptor.
pub(crate) trait Ready {
    /// Handles a ready descriptor, given by its place among the watched ones. Returns whether the
    /// loop shall continue to watch it.
    fn ready(&mut self, place: usize, fd: RawFd) -> bool;
}

/// A loop that waits for its readers, and hands over those that are ready.
pub(crate) trait Loop<T: Ready> {
    /// Waits once, and hands over what is ready. Returns false once the receiver has had enough of
    /// a descriptor: it is not watched any more, or the loop is not to be used again.
    fn turn(&mut self, receiver: &mut T) -> Result<bool>;

    /// The system calls that it has waited with, if it counts them.
    fn waits(&self) -> Option<u64> {
        None
    }
}

/// A loop that needs nothing but the readers.
pub(crate) trait Watch<T: Ready>: Loop<T> + Sized {
    /// Whether a reader has to be drained, because its bytes are reported only once.
    const EDGE: bool = false;

    /// Watches readers, with room for this many events at a time. The caller keeps the readers open
    /// for as long as the loop lives.
    fn watch(readers: &[RawFd], room: usize) -> Result<Self>;
}

/// Readability, level-triggered.
pub(crate) const LEVEL: i32 = libc::EPOLLIN;
/// Readability, edge-triggered.
pub(crate) const EDGE: i32 = libc::EPOLLIN | libc::EPOLLET;

/// `epoll(7)` as its manual page shows it: the loop that our epoll back-end is compared with.
pub(crate) struct RawEpoll<const EVENTS: i32> {
    set: OwnedFd,
    readers: Vec<RawFd>,
    events: Vec<epoll::Raw>,
    waits: u64,
}

impl<const EVENTS: i32> RawEpoll<EVENTS> {
    /// Creates a set of the readers for whose place `has` returns true.
    pub(crate) fn over(
        readers: &[RawFd],
        room: usize,
        has: impl Fn(usize) -> bool,
    ) -> Result<RawEpoll<EVENTS>> {
        let set = epoll::create().doing("creating an epoll set")?;
        for (place, &fd) in readers.iter().enumerate().filter(|(place, _)| has(*place)) {
            epoll::add(&set, fd, EVENTS as u32, place as u64)
                .doing(format_args!("watching descriptor {fd} with epoll"))?;
        }
        let events = vec![epoll::Raw { events: 0, u64: 0 }; room.max(1)];
        Ok(RawEpoll { set, readers: readers.to_vec(), events, waits: 0 })
    }
}

impl<T: Ready, const EVENTS: i32> Loop<T> for RawEpoll<EVENTS> {
    #[inline(always)]
    fn turn(&mut self, receiver: &mut T) -> Result<bool> {
        self.waits += 1;
        let count = epoll::wait(self.set.as_raw_fd(), &mut self.events);
        let Ok(count) = usize::try_from(count) else { return Err(Error::last("epoll_wait")) };
        let mut goes_on = true;
        for event in &self.events[..count] {
            let place = event.u64 as usize;
            if !receiver.ready(place, self.readers[place]) {
                goes_on = false;
                let (set, fd) = (self.set.as_raw_fd(), self.readers[place]);
                epoll::change(set, epoll::Change::Delete, fd, 0, 0)
                    .doing("removing a descriptor from an epoll set")?;
            }
        }
        Ok(goes_on)
    }

    fn waits(&self) -> Option<u64> {
        Some(self.waits)
    }
}

impl<T: Ready, const EVENTS: i32> Watch<T> for RawEpoll<EVENTS> {
    // A read that leaves room in the buffer has drained a socket or pipe: the receivers need no
    // second read after an edge.
    fn watch(readers: &[RawFd], room: usize) -> Result<RawEpoll<EVENTS>> {
        RawEpoll::over(readers, room, |_| true)
    }
}

/// `poll(2)` as its manual page shows it: one array, a blocking call, a walk that stops after the
/// last ready entry.
pub(crate) struct RawPoll {
    set: Vec<libc::pollfd>,
    waits: u64,
}

impl<T: Ready> Loop<T> for RawPoll {
    #[inline(always)]
    fn turn(&mut self, receiver: &mut T) -> Result<bool> {
        self.waits += 1;
        let mut ready = poll::wait(&mut self.set);
        if ready < 0 {
            return Err(Error::last("poll"));
        }
        for (place, entry) in self.set.iter().enumerate() {
            if entry.revents != 0 {
                if !receiver.ready(place, entry.fd) {
                    return Ok(false);
                }
                ready -= 1;
                if ready == 0 {
                    break;
                }
            }
        }
        Ok(true)
    }

    fn waits(&self) -> Option<u64> {
        Some(self.waits)
    }
}

impl<T: Ready> Watch<T> for RawPoll {
    fn watch(readers: &[RawFd], _room: usize) -> Result<RawPoll> {
        let entry = |&fd: &RawFd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        Ok(RawPoll { set: readers.iter().map(entry).collect(), waits: 0 })
    }
}

/// The C library libkqueue, level-triggered: its reads and writes are kevents on Linux.
pub(crate) struct Kqueue {
    queue: Queue,
    readers: Vec<RawFd>,
}

impl<T: Ready> Loop<T> for Kqueue {
    fn turn(&mut self, receiver: &mut T) -> Result<bool> {
        let mut ready = self.queue.wait().doing("kevent of libkqueue")?;
        Ok(ready.all(|place| receiver.ready(place, self.readers[place])))
    }
}

impl<T: Ready> Watch<T> for Kqueue {
    fn watch(readers: &[RawFd], _room: usize) -> Result<Kqueue> {
        let queue = Queue::new(readers).doing("adding descriptors to libkqueue")?;
        Ok(Kqueue { queue, readers: readers.to_vec() })
    }
}

#[cfg(feature = "rival-mio")]
mod rival_mio {
    use std::io::ErrorKind;
    use std::os::fd::RawFd;

    use mio::unix::SourceFd;
    use mio::{Events, Interest, Poll, Token};

    use super::{Loop, Ready, Watch};
    use crate::error::{Doing, Result};

    /// The crate mio, which is edge-triggered.
    pub(crate) struct Mio {
        poll: Poll,
        events: Events,
        readers: Vec<RawFd>,
    }

    impl<T: Ready> Loop<T> for Mio {
        #[inline(always)]
        fn turn(&mut self, receiver: &mut T) -> Result<bool> {
            match self.poll.poll(&mut self.events, None) {
                Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(true),
                outcome => outcome.doing("mio::Poll")?,
            }
            let mut goes_on = true;
            for event in &self.events {
                let place = event.token().0;
                if !receiver.ready(place, self.readers[place]) {
                    goes_on = false;
                    let mut source = SourceFd(&self.readers[place]);
                    self.poll.registry().deregister(&mut source).doing("deregistering with mio")?;
                }
            }
            Ok(goes_on)
        }
    }

    impl<T: Ready> Watch<T> for Mio {
        const EDGE: bool = true;

        fn watch(readers: &[RawFd], room: usize) -> Result<Mio> {
            let poll = Poll::new().doing("creating a mio::Poll")?;
            for (place, fd) in readers.iter().enumerate() {
                poll.registry()
                    .register(&mut SourceFd(fd), Token(place), Interest::READABLE)
                    .doing(format_args!("registering descriptor {fd} with mio"))?;
            }
            Ok(Mio { poll, events: Events::with_capacity(room), readers: readers.to_vec() })
        }
    }
}
