//! Idle descriptors watched by libkqueue.
//!
//! The library has an epoll set of its own, so this is epoll with a layer over it: a call for each
//! change, a note for each descriptor, and an `ioctl` for each event. While there is a queue, the
//! library has a thread, and with a second thread each look-up of a descriptor costs more.
//!
//! The library knows descriptors by their numbers. When a number is closed while the open file
//! lives on, its epoll set reports a note that the library has freed. So each descriptor that it
//! watches is a duplicate, which is removed before it is closed, and the open file lives as long.
//!
//! It has filters for readable and writable. Urgent bytes and read-closed stay in the epoll set.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

use superpoll::{Interest, Key, Mode};

use super::{Begun, Watcher};
use crate::sys::descriptor;
use crate::sys::libkqueue::{Filter, Queue};

/// The number of events that are fetched with one call: more than the library reports at once.
const BATCH: usize = 512;

struct Note {
    fd: OwnedFd,
    interest: Interest,
}

/// The order of the fields is the order in which they end: the queue before the duplicates.
pub(super) struct Kqueue {
    queue: Queue,
    /// By the index of the key.
    notes: Vec<Option<Note>>,
}

fn filters(interest: Interest) -> impl Iterator<Item = Filter> {
    let all = [(Interest::READABLE, Filter::Read), (Interest::WRITABLE, Filter::Write)];
    all.into_iter().filter_map(move |(of, filter)| interest.contains(of).then_some(filter))
}

impl Kqueue {
    pub(super) fn new() -> io::Result<Kqueue> {
        let mut queue = Queue::with_room(BATCH)?;
        queue.find_set()?;
        Ok(Kqueue { queue, notes: Vec::new() })
    }
}

impl Watcher for Kqueue {
    const LINK: Mode = Mode::Level;
    const SEES_STATES: bool = true;
    const HOLDS_FILES: bool = true;
    const IS_LATE: bool = false;

    fn link(&self) -> BorrowedFd<'_> {
        self.queue.set()
    }

    fn add(&mut self, key: Key, fd: RawFd, interest: Interest) -> io::Result<Option<RawFd>> {
        if !(Interest::READABLE | Interest::WRITABLE).contains(interest) {
            return Ok(None);
        }
        let fd = descriptor::duplicate(fd)?;
        let state = fd.as_raw_fd();
        let data = key.to_bits() as usize;
        for filter in filters(interest) {
            if let Err(error) = self.queue.add(state, filter, data) {
                for added in filters(interest).take_while(|&added| added != filter) {
                    let _ = self.queue.delete(state, added);
                }
                return Err(error);
            }
        }
        let index = key.index() as usize;
        if self.notes.len() <= index {
            self.notes.resize_with(index + 1, || None);
        }
        self.notes[index] = Some(Note { fd, interest });
        Ok(Some(state))
    }

    fn remove(&mut self, key: Key, _fd: RawFd) {
        let note = self.notes.get_mut(key.index() as usize).and_then(Option::take);
        if let Some(Note { fd, interest }) = note {
            for filter in filters(interest) {
                // It cannot fail: the library has it.
                let _ = self.queue.delete(fd.as_raw_fd(), filter);
            }
        }
    }

    fn begin(&mut self, _begun: &mut Begun) -> io::Result<()> {
        Ok(())
    }

    fn collect(&mut self, hints: &mut Vec<Key>) -> io::Result<bool> {
        hints.extend(self.queue.fetch()?.map(|data| Key::from_bits(data as u64)));
        Ok(false)
    }

    fn abandon(self) {
        self.queue.abandon();
    }

    fn memory(&self) -> usize {
        self.notes.capacity() * size_of::<Option<Note>>() + self.queue.memory()
    }
}
