//! Idle descriptors watched by polls of Linux AIO.
//!
//! A poll reports once. The next wait arms it again, all of them with one call, and the kernel
//! looks at the state as it does so. A descriptor that the caller has not drained therefore
//! completes again, and none is lost between two polls.
//!
//! A change of state that comes without its bits (a hang-up, a shutdown) is looked at by a thread
//! of the kernel, so its report may come after a wait that does not block.
//!
//! A context has room for a fixed number of polls, which counts against `fs.aio-max-nr`, for all
//! processes together. Descriptors beyond that stay in the epoll set, and so does a file with two
//! queues of waiters (a FIFO opened to read and write), which the kernel refuses.
//!
//! A poll that is under way holds the open file. The kernel gives a cancelled poll's file back in a
//! thread of its own, so a peer may learn of a close some milliseconds late.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use nix::sys::eventfd::{EfdFlags, EventFd};
use superpoll::{Interest, Key, Mode};

use super::{Begun, Watcher};
use crate::sys::aio::{Event, Polls};

/// No place.
const NOWHERE: u32 = u32::MAX;

/// The number of events that are fetched with one call.
const BATCH: usize = 256;

/// A poll of a descriptor. Its events carry the number of its place and of its stay there, so that
/// an event of an earlier stay is known.
#[derive(Clone, Copy, Debug)]
struct Place {
    key: Key,
    stay: u32,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Free,
    /// To be armed before the next wait.
    Idle,
    /// The kernel has it, or gets it with the next call.
    Armed,
}

pub(super) struct Aio {
    polls: Polls,
    counter: OwnedFd,
    places: Vec<Place>,
    free: Vec<u32>,
    /// Places by the index of a key.
    by_index: Vec<u32>,
    idle: Vec<u32>,
    events: Vec<Event>,
}

impl Aio {
    pub(super) fn new(room: usize) -> io::Result<Aio> {
        let polls = Polls::with_room(room)?;
        let counter = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?.into();
        Ok(Aio {
            polls,
            counter,
            places: Vec::new(),
            free: Vec::new(),
            by_index: Vec::new(),
            idle: Vec::new(),
            events: vec![Event::default(); BATCH],
        })
    }

    /// Arms the idle polls, and submits.
    fn submit(&mut self, begun: &mut Begun) -> io::Result<()> {
        for number in std::mem::take(&mut self.idle) {
            let place = &mut self.places[number as usize];
            if place.state == State::Idle {
                place.state = State::Armed;
                self.polls.arm(number as usize);
            }
        }
        while self.polls.has_due() {
            match self.polls.submit_some() {
                Ok(()) => {}
                Err((_, Some(number))) => {
                    let place = &mut self.places[number];
                    // Nothing is under way that would have to be cancelled.
                    place.state = State::Idle;
                    begun.refused.push(place.key);
                }
                Err((error, None)) => return Err(error),
            }
        }
        Ok(())
    }
}

impl Watcher for Aio {
    /// With an edge the counter never needs to be read: each event is an arrival.
    const LINK: Mode = Mode::Edge;
    const SEES_STATES: bool = true;
    const HOLDS_FILES: bool = true;
    /// The kernel leaves some reports (a hang-up among them) to a thread of its own.
    const IS_LATE: bool = true;

    fn link(&self) -> BorrowedFd<'_> {
        self.counter.as_fd()
    }

    fn add(&mut self, key: Key, fd: RawFd, interest: Interest) -> io::Result<Option<RawFd>> {
        let number = match self.free.pop() {
            Some(number) => number,
            None if self.places.len() < self.polls.room() => {
                self.places.push(Place { key, stay: 0, state: State::Free });
                self.places.len() as u32 - 1
            }
            None => return Ok(None),
        };
        let place = &mut self.places[number as usize];
        let stay = place.stay.wrapping_add(1);
        *place = Place { key, stay, state: State::Idle };
        let data = u64::from(stay) << 32 | u64::from(number);
        let counter = self.counter.as_raw_fd();
        self.polls.set(number as usize, (data, fd, interest.poll_bits()), Some(counter));
        self.idle.push(number);
        let index = key.index() as usize;
        if self.by_index.len() <= index {
            self.by_index.resize(index + 1, NOWHERE);
        }
        self.by_index[index] = number;
        Ok(Some(fd))
    }

    fn remove(&mut self, key: Key, _fd: RawFd) {
        let Some(own) = self.by_index.get_mut(key.index() as usize) else { return };
        let number = std::mem::replace(own, NOWHERE);
        let Some(place) = self.places.get_mut(number as usize) else { return };
        let state = std::mem::replace(&mut place.state, State::Free);
        if state == State::Armed && !self.polls.disarm(number as usize) {
            self.polls.cancel(number as usize);
        }
        self.free.push(number);
    }

    fn begin(&mut self, begun: &mut Begun) -> io::Result<()> {
        self.submit(begun)
    }

    fn is_due(&self) -> bool {
        !self.idle.is_empty() || self.polls.has_due()
    }

    fn collect(&mut self, hints: &mut Vec<Key>) -> io::Result<bool> {
        loop {
            let count = self.polls.fetch(&mut self.events)?;
            for event in &self.events[..count] {
                let (number, stay) = (event.data as u32, (event.data >> 32) as u32);
                let place = &mut self.places[number as usize];
                if place.state != State::Armed || place.stay != stay {
                    continue;
                }
                place.state = State::Idle;
                self.idle.push(number);
                hints.push(place.key);
            }
            if count < self.events.len() {
                return Ok(false);
            }
        }
    }

    /// The context belongs to the memory of the parent, and is not there in the child.
    fn abandon(self) {}

    fn memory(&self) -> usize {
        self.polls.memory()
            + self.places.capacity() * size_of::<Place>()
            + self.events.capacity() * size_of::<Event>()
            + size_of::<u32>()
                * (self.free.capacity() + self.by_index.capacity() + self.idle.capacity())
    }
}
