//! What a source knows of the reads that its engine makes ahead of a task, and of the operations that rule them out.

use std::io;
use std::mem;
use std::sync::Arc;

use super::{Direction, Source, Woken};
use crate::fetch::Fetched;

impl Source {
    /// Who waits to read wants so many bytes, and has them read by this engine. Returns whether it is the first of
    /// the registration.
    pub fn want(&mut self, bytes: u16, fetched: &Arc<Fetched>, engine: u32) -> bool {
        if self.receiving > 0 {
            return false;
        }
        self.wanted = bytes;
        fetched.allow(engine);
        let is_first = self.fetched.is_none();
        if is_first {
            self.fetched = Some(fetched.clone());
        }
        is_first
    }

    /// A read that was begun will not be made.
    pub fn end_read(&mut self) {
        if let (true, Some(fetched)) = (mem::take(&mut self.reads), &self.fetched) {
            fetched.end(false);
        }
    }

    /// An operation that takes bytes begins: nothing is read ahead any more, which would overtake it or be overtaken.
    /// Who waits to read is woken to do so by itself.
    pub fn begin_receive(&mut self) {
        // If they are ever too many to count, nothing is read ahead of this stream any more.
        self.receiving = self.receiving.saturating_add(1);
        self.wanted = 0;
    }

    /// What it has brought was taken, or put down.
    pub fn end_receive(&mut self) {
        if self.receiving != u16::MAX {
            self.receiving = self.receiving.saturating_sub(1);
        }
    }

    /// How many bytes to read now for who waits; or whom to wake, if it is somebody else now, or if the stream has
    /// gone to another engine.
    #[inline]
    pub fn fetch(&mut self, engine: u32) -> Result<u16, Woken> {
        self.is_fetchable = false;
        self.asked = self.wanted;
        let wants = self.wanted > 0;
        if wants && self.fetched.as_ref().is_some_and(|fetched| fetched.begin(engine)) {
            self.reads = true;
            return Ok(self.wanted);
        }
        Err(self.leave_read())
    }

    /// Who waits had better read: whom to wake.
    pub fn leave_read(&mut self) -> Woken {
        self.is_fetchable = false;
        let mut woken = Woken::default();
        self.take_waiters(Direction::Read, &mut woken);
        woken
    }

    /// What was read for who waits, and whom to wake. An outcome of less than was wanted says that there was no
    /// more then, unless there is `more`.
    pub fn put(&mut self, outcome: Result<Vec<u8>, io::Error>, more: bool) -> Woken {
        let (tick, wanted) = (self.tick, self.asked as usize);
        // Somebody has read it meanwhile, and waits on.
        let goes_on = matches!(&outcome, Err(error) if error.kind() == io::ErrorKind::WouldBlock);
        // What waits for the end finds it by itself.
        let is_end = matches!(&outcome, Ok(bytes) if bytes.is_empty());
        if goes_on {
            self.clear(Direction::Read, tick);
        } else if !is_end && !more && outcome.as_ref().is_ok_and(|bytes| bytes.len() < wanted) {
            self.drained(Direction::Read, tick);
        }
        if let Some(fetched) = &self.fetched {
            if !goes_on && !is_end {
                fetched.put(outcome);
            }
            if mem::take(&mut self.reads) {
                fetched.end(goes_on);
            }
        }
        if goes_on { Woken::default() } else { self.leave_read() }
    }
}
