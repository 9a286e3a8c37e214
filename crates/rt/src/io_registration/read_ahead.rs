//! Bytes that an engine has read ahead of its task, as the stream's registration sees them.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::task::{Context, Poll};

use superpoll::Key;

use super::{IoRegistration, OVERTAKEN};
use crate::engine::{self, Engine};
use crate::read_ahead::{READ_AHEAD_BYTES, ReadAhead};
use crate::short_reads::IoState;
use crate::sources::{Direction, Source};
use crate::sys;

impl IoRegistration {
    /// Returns the bytes that come before anything that is read, if there are any.
    #[inline]
    pub(crate) fn read_ahead(&self) -> Option<&ReadAhead> {
        self.read_ahead
            .get()
            .map(|read_ahead| &**read_ahead)
            .filter(|read_ahead| read_ahead.has_outcome())
    }

    /// Like [`poll`](IoRegistration::poll), for a read of a stream socket into `room`: the engine
    /// may read it while it waits. Every other read of the same stream has to check for the bytes
    /// that the engine [has read](IoRegistration::read_ahead).
    #[inline]
    pub(crate) fn poll_read(
        &self,
        cx: &mut Context<'_>,
        fd: BorrowedFd<'_>,
        room: &mut [u8],
        mut read: impl FnMut(&mut [u8]) -> io::Result<(usize, IoState)>,
    ) -> Poll<io::Result<usize>> {
        if let Some(read_ahead) = self.read_ahead() {
            return self.poll_from_read_ahead(cx, read_ahead, room);
        }
        self.requested.set(room.len().min(READ_AHEAD_BYTES) as u16);
        let outcome = self.poll(cx, fd, Direction::Read, || read(room));
        self.requested.set(0);
        outcome
    }

    fn poll_from_read_ahead(
        &self,
        cx: &mut Context<'_>,
        read_ahead: &ReadAhead,
        room: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        if engine::with(Engine::spend_budget) == Some(false) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        match self.copy_read_ahead(read_ahead, room) {
            Some(outcome) => Poll::Ready(outcome),
            // They were taken on another thread meanwhile, which only a bug could do.
            None => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
        }
    }

    /// Gives out the bytes that the engine has read.
    pub(crate) fn copy_read_ahead(
        &self,
        read_ahead: &ReadAhead,
        room: &mut [u8],
    ) -> Option<io::Result<usize>> {
        let (outcome, memory) = read_ahead.copy_to(room)?;
        self.flags.set(self.flags.get() & !OVERTAKEN);
        if let Some(memory) = memory {
            engine::with(|engine| engine.recycle(memory));
        }
        Some(outcome)
    }

    /// Notes in the source how many bytes the wait that has just begun wants.
    #[inline]
    pub(super) fn request_read_ahead(
        &self,
        engine: &Engine,
        key: Key,
        direction: Direction,
        source: &mut Source,
    ) {
        let requested = self.requested.get();
        if requested > 0 && direction == Direction::Read && engine.reads_ahead() {
            let read_ahead = self.read_ahead.get_or_init(Arc::default);
            if source.request_read_ahead(requested, read_ahead, engine.remote.id) {
                sys::assume_open::assume_kept_open(&mut engine.poller(), key);
            }
        }
    }

    /// Puts down bytes that were received and that no task has taken. They come first from now on,
    /// and a task that waits to read is woken to take them.
    pub(crate) fn put_back(&self, outcome: io::Result<Vec<u8>>) {
        self.read_ahead.get_or_init(Arc::default).push(outcome);
        self.wake(Direction::Read);
    }

    /// The same for bytes that come before all that was put back.
    pub(crate) fn put_back_first(&self, bytes: Vec<u8>) {
        self.read_ahead.get_or_init(Arc::default).push_front(bytes);
        self.wake(Direction::Read);
    }

    /// Takes all bytes that were read ahead. The stream is read in another way from now on.
    pub(crate) fn take_read_ahead(&self) -> Vec<u8> {
        self.forbid_read_ahead();
        self.read_ahead().map_or_else(Vec::new, ReadAhead::take_all)
    }

    /// Stops engines from reading ahead from the moment when this returns: the bytes that they have
    /// read are [there](IoRegistration::read_ahead).
    pub(super) fn forbid_read_ahead(&self) {
        let Some(read_ahead) = self.read_ahead.get() else { return };
        read_ahead.forbid();
        // A task that leaves the engine to read has found nothing before, and would not check
        // again. The bytes may have come at any moment since: not only in the read that was waited
        // for.
        if read_ahead.has_outcome() {
            self.set_flag(OVERTAKEN);
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
        self.forbid_read_ahead();
        self.is_overtaken(direction)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_arrive_between_a_check_and_a_move_are_not_overtaken() {
        let registration = IoRegistration::default();
        registration.read_ahead.get_or_init(Arc::default);
        assert!(registration.read_ahead().is_none());
        registration.forbid_read_ahead();
        assert!(!registration.is_overtaken(Direction::Read), "there is nothing");
        registration.put_back(Ok(b"ab".to_vec()));
        registration.forbid_read_ahead();
        assert!(registration.is_overtaken(Direction::Read), "the read has to look again");
        assert!(!registration.is_overtaken(Direction::Read), "once");
        // Bytes that are given out have not been overtaken.
        registration.forbid_read_ahead();
        let mut room = [0; 2];
        assert_eq!(
            registration
                .copy_read_ahead(registration.read_ahead().unwrap(), &mut room)
                .unwrap()
                .unwrap(),
            2
        );
        assert!(!registration.is_overtaken(Direction::Read) && room == *b"ab");
    }
}
