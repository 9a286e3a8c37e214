//! Pipes that are closed and made new: a station that has emptied its pipe replaces it, and the new
//! reader has to be registered.
//!
//! Each watcher comes in two variants. One deregisters the old reader before it closes it, as the
//! interface of `epoll` suggests; the other only closes it, and relies on the kernel, which ends
//! the watch when the last descriptor of a file is closed. The difference between the two is what a
//! runtime saves that has an operation "deregister and close" in its interface.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use superpoll::{BackendKind, Events, Interest, Key, Mode, Poller, Watch};

use crate::error::{Doing, Result};
use crate::ring::course::{Course, MOST, Pipes, Trip};
use crate::ring::passing::Passing;
use crate::ring::tasks::{Ring, numbers};
use crate::sys::{descriptor, epoll};

/// System calls that replace a pipe: two to close, one to open.
const CALLS: u64 = 3;

/// The most events that are taken from a wait.
const EVENTS: usize = 1024;

/// A watcher over readers by place.
trait Watcher: Sized {
    fn new() -> Result<Self>;

    fn add(&mut self, place: usize, reader: RawFd) -> io::Result<()>;

    /// Ends the watch over a reader that is closed right after. Deregisters it unless `closes`.
    fn remove(&mut self, place: usize, reader: RawFd, closes: bool) -> io::Result<()>;

    /// Waits once, and writes the places of the ready readers.
    fn wait(&mut self, ready: &mut Vec<usize>) -> io::Result<()>;

    /// Its system calls so far.
    fn calls(&self) -> u64;
}

/// A plain epoll set.
struct Plain {
    set: OwnedFd,
    events: Vec<epoll::Raw>,
    calls: u64,
}

impl Watcher for Plain {
    fn new() -> Result<Plain> {
        let set = epoll::create().doing("creating an epoll set")?;
        Ok(Plain { set, events: vec![epoll::Raw { events: 0, u64: 0 }; EVENTS], calls: 0 })
    }

    fn add(&mut self, place: usize, reader: RawFd) -> io::Result<()> {
        self.calls += 1;
        epoll::add(&self.set, reader, libc::EPOLLIN as u32, place as u64)
    }

    fn remove(&mut self, _place: usize, reader: RawFd, closes: bool) -> io::Result<()> {
        if closes {
            return Ok(());
        }
        self.calls += 1;
        epoll::change(self.set.as_raw_fd(), epoll::Change::Delete, reader, 0, 0)
    }

    fn wait(&mut self, ready: &mut Vec<usize>) -> io::Result<()> {
        self.calls += 1;
        let count = epoll::wait(self.set.as_raw_fd(), &mut self.events);
        let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
        ready.extend(self.events[..count].iter().map(|event| event.u64 as usize));
        Ok(())
    }

    fn calls(&self) -> u64 {
        self.calls
    }
}

/// Our poller on epoll.
struct Ours {
    poller: Poller,
    events: Events,
    keys: Vec<Option<Key>>,
    /// Places by the index of the key.
    places: Vec<usize>,
}

impl Watcher for Ours {
    fn new() -> Result<Ours> {
        let poller = Poller::builder().backend(BackendKind::Epoll).build()?;
        let events = Events::with_limit(EVENTS);
        Ok(Ours { poller, events, keys: Vec::new(), places: Vec::new() })
    }

    fn add(&mut self, place: usize, reader: RawFd) -> io::Result<()> {
        let watch = Watch::new(Interest::READABLE).mode(Mode::Level);
        let key = self.poller.register_raw(reader, watch)?;
        let index = key.index() as usize;
        self.places.resize(self.places.len().max(index + 1), 0);
        self.places[index] = place;
        self.keys.resize(self.keys.len().max(place + 1), None);
        self.keys[place] = Some(key);
        Ok(())
    }

    fn remove(&mut self, place: usize, _reader: RawFd, closes: bool) -> io::Result<()> {
        let Some(key) = self.keys[place].take() else { return Ok(()) };
        if closes {
            self.poller.deregister_for_close(key)?
        } else {
            self.poller.deregister(key)?
        }
        Ok(())
    }

    fn wait(&mut self, ready: &mut Vec<usize>) -> io::Result<()> {
        self.poller.wait(&mut self.events, None)?;
        ready.extend(self.events.iter().map(|event| self.places[event.key().index() as usize]));
        Ok(())
    }

    fn calls(&self) -> u64 {
        let calls = self.poller.stats().calls;
        calls.waits() + calls.epoll_ctl()
    }
}

/// A ring whose stations replace their pipes.
struct Renewed<W> {
    // Declared before the pipes that it watches.
    watcher: W,
    passing: Passing,
    pipes: Pipes,
    closes: bool,
    ready: Vec<usize>,
    renewals: u64,
}

fn build<W: Watcher + 'static>(
    course: &Course,
    pipes: Pipes,
    closes: bool,
) -> Result<Box<dyn Ring>> {
    let mut watcher = W::new()?;
    for (place, (reader, _)) in pipes.iter().enumerate() {
        watcher.add(place, reader.as_raw_fd()).doing(format_args!("watching pipe {place}"))?;
    }
    let passing = Passing::new(course, &pipes);
    Ok(Box::new(Renewed { watcher, passing, pipes, closes, ready: Vec::new(), renewals: 0 }))
}

pub(super) fn plain_deregisters(course: &Course, pipes: Pipes) -> Result<Box<dyn Ring>> {
    build::<Plain>(course, pipes, false)
}

pub(super) fn plain_closes(course: &Course, pipes: Pipes) -> Result<Box<dyn Ring>> {
    build::<Plain>(course, pipes, true)
}

pub(super) fn ours_deregisters(course: &Course, pipes: Pipes) -> Result<Box<dyn Ring>> {
    build::<Ours>(course, pipes, false)
}

pub(super) fn ours_closes(course: &Course, pipes: Pipes) -> Result<Box<dyn Ring>> {
    build::<Ours>(course, pipes, true)
}

impl<W: Watcher> Renewed<W> {
    fn renew(&mut self, place: usize) -> io::Result<()> {
        self.watcher.remove(place, self.pipes[place].0.as_raw_fd(), self.closes)?;
        let (reader, writer) = self.replace(place)?;
        self.passing.renewed(place, reader, writer);
        self.renewals += 1;
        self.watcher.add(place, reader)
    }

    /// Closes a pipe before it opens the next, which therefore mostly gets the same numbers.
    fn replace(&mut self, place: usize) -> io::Result<(RawFd, RawFd)> {
        drop(self.pipes.swap_remove(place));
        let new = descriptor::pipe()?;
        let ends = (new.0.as_raw_fd(), new.1.as_raw_fd());
        self.pipes.push(new);
        let last = self.pipes.len() - 1;
        self.pipes.swap(place, last);
        Ok(ends)
    }
}

impl<W: Watcher> Ring for Renewed<W> {
    fn go(&mut self, trip: Trip) -> io::Result<()> {
        self.passing.begin(trip);
        while self.passing.goes_on()? {
            self.watcher.wait(&mut self.ready)?;
            let mut ready = std::mem::take(&mut self.ready);
            for place in ready.drain(..) {
                // A read that leaves room in the buffer has emptied the pipe.
                if self.passing.pass(place)?.0 < MOST {
                    self.renew(place)?;
                }
            }
            self.ready = ready;
        }
        Ok(())
    }

    fn calls(&self) -> Option<u64> {
        Some(self.watcher.calls() + CALLS * self.renewals)
    }

    fn renewed(&self) -> Option<(Vec<RawFd>, Vec<RawFd>)> {
        Some(numbers(&self.pipes))
    }
}
