//! Bytes that an engine has read ahead of its task, as the stream's link sees them.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::task::{Context, Poll};

use superpoll::Key;

use super::{After, Link, OVERTAKEN};
use crate::engine::{self, Engine};
use crate::fetch::{AT_MOST, Fetched};
use crate::sources::{Direction, Source};
use crate::sys;

impl Link {
    /// Returns the bytes that come before anything that is read, if there are any.
    #[inline]
    pub fn fetched(&self) -> Option<&Fetched> {
        self.fetched.get().map(|fetched| &**fetched).filter(|fetched| fetched.is_full())
    }

    /// Like [`poll`](Link::poll), for a read of a stream socket into `room`: the engine may read it
    /// while it waits. Every other read of the same stream has to check for the bytes that the
    /// engine [has read](Link::fetched).
    #[inline]
    pub fn poll_read(
        &self,
        cx: &mut Context<'_>,
        fd: BorrowedFd<'_>,
        room: &mut [u8],
        mut read: impl FnMut(&mut [u8]) -> io::Result<(usize, After)>,
    ) -> Poll<io::Result<usize>> {
        if let Some(fetched) = self.fetched() {
            return self.poll_fetched(cx, fetched, room);
        }
        self.wanted.set(room.len().min(AT_MOST) as u16);
        let outcome = self.poll(cx, fd, Direction::Read, || read(room));
        self.wanted.set(0);
        outcome
    }

    fn poll_fetched(
        &self,
        cx: &mut Context<'_>,
        fetched: &Fetched,
        room: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        if engine::with(Engine::spend) == Some(false) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        match self.give(fetched, room) {
            Some(outcome) => Poll::Ready(outcome),
            // They were taken on another thread meanwhile, which only a bug could do.
            None => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
        }
    }

    /// Gives out the bytes that the engine has read.
    pub fn give(&self, fetched: &Fetched, room: &mut [u8]) -> Option<io::Result<usize>> {
        let (outcome, memory) = fetched.give(room)?;
        self.flags.set(self.flags.get() & !OVERTAKEN);
        if let Some(memory) = memory {
            engine::with(|engine| engine.recycle(memory));
        }
        Some(outcome)
    }

    /// Notes in the source how many bytes the wait that has just begun wants.
    #[inline]
    pub(super) fn want(
        &self,
        engine: &Engine,
        key: Key,
        direction: Direction,
        source: &mut Source,
    ) {
        let wanted = self.wanted.get();
        if wanted > 0 && direction == Direction::Read && engine.fetches() {
            let fetched = self.fetched.get_or_init(Arc::default);
            if source.want(wanted, fetched, engine.remote.id) {
                sys::open::keeps_open(&mut engine.poller(), key);
            }
        }
    }

    /// Puts down bytes that were received and that no task has taken. They come first from now on,
    /// and a task that waits to read is woken to take them.
    pub fn put_back(&self, outcome: io::Result<Vec<u8>>) {
        self.fetched.get_or_init(Arc::default).put(outcome);
        self.wake(Direction::Read);
    }

    /// The same for bytes that come before all that was put back.
    pub fn put_back_first(&self, bytes: Vec<u8>) {
        self.fetched.get_or_init(Arc::default).put_first(bytes);
        self.wake(Direction::Read);
    }

    /// Takes all bytes that were read ahead. The stream is read in another way from now on.
    pub fn take_fetched(&self) -> Vec<u8> {
        self.forbid_reads();
        self.fetched().map_or_else(Vec::new, Fetched::take_all)
    }

    /// Stops engines from reading ahead from the moment when this returns: the bytes that they have
    /// read are [there](Link::fetched).
    pub(super) fn forbid_reads(&self) {
        let Some(fetched) = self.fetched.get() else { return };
        fetched.forbid();
        // A task that leaves the engine to read has found nothing before, and would not check
        // again. The bytes may have come at any moment since: not only in the read that was waited
        // for.
        if fetched.is_full() {
            self.set(OVERTAKEN);
        }
    }

    /// Returns whether an engine that was left just now has read bytes ahead. Returned once, as not
    /// every kind of read checks for them.
    #[inline]
    pub(super) fn is_overtaken(&self, direction: Direction) -> bool {
        let is_overtaken = direction == Direction::Read && self.flags.get() & OVERTAKEN != 0;
        if is_overtaken {
            self.flags.set(self.flags.get() & !OVERTAKEN);
        }
        is_overtaken
    }

    /// The same on a thread without an engine, where the stream's engine is left as well.
    #[cold]
    pub(super) fn is_overtaken_elsewhere(&self, direction: Direction) -> bool {
        self.forbid_reads();
        self.is_overtaken(direction)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_come_after_a_look_and_before_the_engine_is_left_are_not_overtaken() {
        let link = Link::default();
        link.fetched.get_or_init(Arc::default);
        assert!(link.fetched().is_none());
        link.forbid_reads();
        assert!(!link.is_overtaken(Direction::Read), "there is nothing");
        link.put_back(Ok(b"ab".to_vec()));
        link.forbid_reads();
        assert!(link.is_overtaken(Direction::Read), "the read has to look again");
        assert!(!link.is_overtaken(Direction::Read), "once");
        // Bytes that are given out have not been overtaken.
        link.forbid_reads();
        let mut room = [0; 2];
        assert_eq!(link.give(link.fetched().unwrap(), &mut room).unwrap().unwrap(), 2);
        assert!(!link.is_overtaken(Direction::Read) && room == *b"ab");
    }
}
