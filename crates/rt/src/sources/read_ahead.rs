//! A source's knowledge of the reads that its engine makes ahead of a task, and of the operations
//! that rule them out.

use std::io;
use std::mem;
use std::sync::Arc;

use super::{Direction, QUEUED, Source, Sources};
use crate::current_engine::NO_ENGINE;
use crate::read_ahead::ReadAhead;
use crate::wake_list::WakeList;

impl Source {
    /// Notes that the task that waits to read wants `bytes` bytes, and lets this engine read them.
    /// Returns whether this is the first such wait of the registration.
    pub(crate) fn request_read_ahead(
        &mut self,
        bytes: u16,
        read_ahead: &Arc<ReadAhead>,
        engine: u32,
    ) -> bool {
        if self.receiving > 0 {
            return false;
        }
        self.requested = bytes;
        read_ahead.allow(engine);
        let is_first = self.read_ahead.is_none();
        if is_first {
            self.read_ahead = Some(read_ahead.clone());
        }
        is_first
    }

    /// Notes that a read that was begun will not be made.
    pub(crate) fn end_read(&mut self) {
        let reader = mem::take(&mut self.reader);
        if let Some(read_ahead) = &self.read_ahead {
            read_ahead.end_read(reader, false);
        }
    }

    /// Ends a read that was begun and whose outcome is not known: the next read of the stream
    /// fails.
    fn fail_read(&mut self, error: i32) {
        if let (true, Some(read_ahead)) = (self.reader != NO_ENGINE, &self.read_ahead) {
            read_ahead.push(Err(io::Error::from_raw_os_error(error)));
        }
        self.end_read();
    }

    /// Notes that an operation that takes bytes begins: nothing is read ahead any more, because the
    /// bytes would overtake the operation's or be overtaken. Tasks that wait to read are woken to
    /// do so by themselves.
    pub(crate) fn begin_receive(&mut self) {
        // If there are ever too many to count, nothing is read ahead of this stream any more.
        self.receiving = self.receiving.saturating_add(1);
        self.requested = 0;
    }

    /// Notes that the bytes that it has brought were taken, or put down.
    pub(crate) fn end_receive(&mut self) {
        if self.receiving != u8::MAX {
            self.receiving = self.receiving.saturating_sub(1);
        }
    }

    /// Returns how many bytes to read now for the waiter. If another task waits now, or if the
    /// stream has gone to another engine, returns the wakers to call instead.
    #[inline]
    pub(crate) fn begin_read(&mut self, engine: u32) -> Result<u16, WakeList> {
        self.flags &= !QUEUED;
        self.read_len = self.requested;
        let wants = self.requested > 0;
        if wants && self.read_ahead.as_ref().is_some_and(|read_ahead| read_ahead.begin_read(engine))
        {
            self.reader = engine;
            return Ok(self.requested);
        }
        Err(self.cancel_read_ahead())
    }

    /// Returns the waiters that should read by themselves, to wake them.
    pub(crate) fn cancel_read_ahead(&mut self) -> WakeList {
        self.flags &= !QUEUED;
        let mut wakers = WakeList::default();
        self.take_waiters(Direction::Read, &mut wakers);
        wakers
    }

    /// Puts down the outcome of a read for the waiter, and returns the wakers to call. Fewer bytes
    /// than were wanted mean that there were no more then, unless there is `more`.
    pub(crate) fn finish_read(
        &mut self,
        outcome: Result<Vec<u8>, io::Error>,
        more: bool,
    ) -> WakeList {
        let (tick, requested) = (self.tick, self.read_len as usize);
        // Another reader has taken the bytes meanwhile, and the task waits on.
        let goes_on = matches!(&outcome, Err(error) if error.kind() == io::ErrorKind::WouldBlock);
        // A task that waits for the end finds it by itself.
        let is_end = matches!(&outcome, Ok(bytes) if bytes.is_empty());
        if goes_on {
            self.clear(Direction::Read, tick);
        } else if !is_end && !more && outcome.as_ref().is_ok_and(|bytes| bytes.len() < requested) {
            self.mark_drained(Direction::Read, tick);
        }
        if let Some(read_ahead) = &self.read_ahead {
            if !goes_on && !is_end {
                read_ahead.push(outcome);
            }
            read_ahead.end_read(mem::take(&mut self.reader), goes_on);
        }
        if goes_on { WakeList::default() } else { self.cancel_read_ahead() }
    }
}

impl Sources {
    /// Whether reads have begun and not ended.
    pub(crate) fn has_reads(&self) -> bool {
        self.list.iter().flatten().any(|source| source.reader != NO_ENGINE)
    }

    /// Ends all reads that have begun; their outcome is not known.
    pub(crate) fn fail_reads(&mut self, error: i32) {
        self.list.iter_mut().flatten().for_each(|source| source.fail_read(error));
    }
}
