//! Bytes that an engine has read for a task before the task runs.
//!
//! Where the poller carries out reads together ([`superpoll::operation`]), an engine that finds
//! many connections readable does not wake their tasks to read one after the other. Instead it
//! reads for the tasks that wait in a read, and then wakes them. The call that looks for the next
//! events also makes some dozens of these reads, and each reads at most as much as its task has
//! asked for. The bytes lie here until the task polls its read again. The engine does not make more
//! reads at a time: by the time that the last task runs, its bytes and its socket in the kernel
//! would be out of the processor's caches.
//!
//! A read that was given up meanwhile has taken nothing from the stream. The bytes go to the next
//! read, of whatever kind and on whatever thread, because this buffer belongs to the stream and not
//! to the engine. So everything that reads a stream looks here first. Memory comes from the
//! engine's pool and is held only as long as there are bytes in it.
//!
//! An engine may read ahead only while nothing else takes bytes from the stream. Tasks of the
//! engine run between its reads, never during one. An operation that the kernel carries out for a
//! task, and a stream that goes to another thread, end the permission first: [`ReadAhead`] holds
//! the engine that has it, and leaving an engine waits for a read that this engine has begun. The
//! wait that makes the read ends it, whether the wait succeeds or fails.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::current_engine::{self, NO_ENGINE};

/// The most bytes that are read for a task at a time, and the size of the memory for them.
pub(crate) const READ_AHEAD_BYTES: usize = 4096;
const _: () = assert!(READ_AHEAD_BYTES <= u16::MAX as usize);

/// Bytes that were read for a stream, if any.
#[derive(Debug, Default)]
pub(crate) struct ReadAhead {
    has_outcome: AtomicBool,
    /// The engine that may read ahead, by its number; [`NO_ENGINE`] for none. With [`READING`] set,
    /// a read of that engine is under way.
    reader: AtomicU32,
    first: Mutex<Option<Box<ReadOutcome>>>,
}

/// Set in `reader`: a read has begun, and its bytes are not here yet. Engine numbers never get that
/// large.
const READING: u32 = 1 << 31;

/// The outcome of one read.
#[derive(Debug)]
struct ReadOutcome {
    buffer: Vec<u8>,
    /// The number of bytes that have been given out.
    consumed: usize,
    /// The failure, returned when the bytes have been given out.
    error: Option<io::Error>,
    /// Further outcomes; as a rule there are none.
    next: Option<Box<ReadOutcome>>,
}

impl ReadAhead {
    /// Returns whether there is anything; then nothing may be read from the descriptor.
    #[inline]
    pub(crate) fn has_outcome(&self) -> bool {
        self.has_outcome.load(Ordering::Acquire)
    }

    /// Allows an engine to read ahead, at the request of the thread that has the stream.
    #[inline]
    pub(crate) fn allow(&self, engine: u32) {
        self.reader.store(engine, Ordering::Release);
    }

    /// Begins a read of an engine, if it may.
    #[inline]
    pub(crate) fn begin_read(&self, engine: u32) -> bool {
        let reads = engine | READING;
        let (taken, not) = (Ordering::Acquire, Ordering::Relaxed);
        self.reader.compare_exchange(engine, reads, taken, not).is_ok()
    }

    /// Ends the read that this engine has begun, if any, and whose outcome, if any, was put down.
    /// Another read needs another permission, unless the same wait goes on and no call has
    /// forbidden it meanwhile.
    #[inline]
    pub(crate) fn end_read(&self, engine: u32, goes_on: bool) {
        if engine != NO_ENGINE {
            let next = if goes_on { engine } else { NO_ENGINE };
            let (done, failed) = (Ordering::Release, Ordering::Relaxed);
            // The stream may have left this engine, and another one reads.
            let _ = self.reader.compare_exchange(engine | READING, next, done, failed);
        }
    }

    /// Takes the permission back, and waits for a read that has begun on another thread, which is
    /// one system call. The bytes that it has taken are here then. An engine whose wait fails ends
    /// its reads as well.
    pub(crate) fn forbid(&self) {
        loop {
            let reader = self.reader.load(Ordering::Acquire);
            if reader & READING != 0 && !current_engine::has_id(reader & !READING) {
                thread::yield_now();
                continue;
            }
            let (both, failed) = (Ordering::AcqRel, Ordering::Relaxed);
            if self.reader.compare_exchange(reader, NO_ENGINE, both, failed).is_ok() {
                return;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Box<ReadOutcome>>> {
        // No code panics while it is locked.
        self.first.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts down the outcome of a read: bytes, or a failure.
    pub(crate) fn push(&self, outcome: Result<Vec<u8>, io::Error>) {
        let (buffer, error) = match outcome {
            Ok(buffer) => (buffer, None),
            Err(error) => (Vec::new(), Some(error)),
        };
        let mut first = self.lock();
        let mut end = &mut *first;
        while let Some(taken) = end {
            end = &mut taken.next;
        }
        *end = Some(Box::new(ReadOutcome { buffer, consumed: 0, error, next: None }));
        self.has_outcome.store(true, Ordering::Release);
    }

    /// Puts down bytes that come before all other bytes.
    pub(crate) fn push_front(&self, buffer: Vec<u8>) {
        let mut first = self.lock();
        let next = first.take();
        *first = Some(Box::new(ReadOutcome { buffer, consumed: 0, error: None, next }));
        self.has_outcome.store(true, Ordering::Release);
    }

    /// Gives out the first bytes, as a read into `room` would; `None` if there are none. Returns
    /// memory along with them that is not needed any more.
    pub(crate) fn copy_to(&self, room: &mut [u8]) -> Option<(io::Result<usize>, Option<Vec<u8>>)> {
        self.consume_with(|left| {
            let count = left.len().min(room.len());
            room[..count].copy_from_slice(&left[..count]);
            Ok(count)
        })
    }

    /// The same, for a taker that takes as much as it can.
    pub(crate) fn consume_with(
        &self,
        take: impl FnOnce(&[u8]) -> io::Result<usize>,
    ) -> Option<(io::Result<usize>, Option<Vec<u8>>)> {
        let mut first = self.lock();
        let taken = first.as_mut()?;
        let outcome = match taken.error.take() {
            Some(error) => Err(error),
            None => take(&taken.buffer[taken.consumed..]).inspect(|count| taken.consumed += count),
        };
        if taken.consumed < taken.buffer.len() {
            return Some((outcome, None));
        }
        // The entry of a failure is empty from the start.
        let ReadOutcome { buffer, next, .. } = *first.take()?;
        *first = next;
        self.has_outcome.store(first.is_some(), Ordering::Release);
        Some((outcome, Some(buffer)))
    }

    /// Copies the first bytes and leaves them; `None` if the first entry holds no bytes.
    pub(crate) fn peek(&self, room: &mut [u8]) -> Option<usize> {
        let first = self.lock();
        let taken = first.as_ref().filter(|taken| taken.error.is_none())?;
        let left = &taken.buffer[taken.consumed..];
        let count = left.len().min(room.len());
        room[..count].copy_from_slice(&left[..count]);
        Some(count)
    }

    /// Takes the whole first entry; `None` if there is none.
    pub(crate) fn pop_front(&self) -> Option<io::Result<Vec<u8>>> {
        let mut first = self.lock();
        let ReadOutcome { mut buffer, consumed, error, next } = *first.take()?;
        *first = next;
        self.has_outcome.store(first.is_some(), Ordering::Release);
        buffer.drain(..consumed);
        Some(error.map_or(Ok(buffer), Err))
    }

    /// Takes all bytes that are left.
    pub(crate) fn take_all(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut first = self.lock();
        while let Some(taken) = first.take() {
            bytes.extend_from_slice(&taken.buffer[taken.consumed..]);
            *first = taken.next;
        }
        self.has_outcome.store(false, Ordering::Release);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_allowed_engine_reads_ahead_and_forbid_waits_for_its_read() {
        let read_ahead = ReadAhead::default();
        assert!(!read_ahead.begin_read(1));
        read_ahead.allow(1);
        assert!(!read_ahead.begin_read(2) && read_ahead.begin_read(1) && !read_ahead.begin_read(1));
        thread::scope(|scope| {
            let forbidden = scope.spawn(|| {
                read_ahead.forbid();
                read_ahead.has_outcome()
            });
            thread::yield_now();
            read_ahead.push(Ok(b"a".to_vec()));
            // A wait that goes on is refused as well from then on.
            read_ahead.end_read(1, true);
            assert!(forbidden.join().unwrap(), "the bytes of the read are there");
        });
        assert!(!read_ahead.begin_read(1));
        read_ahead.allow(2);
        assert!(read_ahead.begin_read(2));
        read_ahead.end_read(2, false);
        assert!(!read_ahead.begin_read(2));
    }

    #[test]
    fn an_engine_ends_no_read_of_another_engine() {
        let read_ahead = ReadAhead::default();
        read_ahead.allow(1);
        assert!(read_ahead.begin_read(1));
        // The stream leaves the first engine on its thread before the read is made.
        read_ahead.allow(2);
        assert!(read_ahead.begin_read(2));
        read_ahead.end_read(1, false);
        assert_eq!(read_ahead.reader.load(Ordering::Relaxed), 2 | READING);
        read_ahead.end_read(2, true);
        assert!(read_ahead.begin_read(2), "its wait goes on");
    }

    #[test]
    fn bytes_come_in_order_in_parts_and_before_the_failure_behind_them() {
        let read_ahead = ReadAhead::default();
        let mut room = [0; 3];
        assert!(!read_ahead.has_outcome() && read_ahead.copy_to(&mut room).is_none());
        read_ahead.push(Ok(b"abcd".to_vec()));
        read_ahead.push(Ok(b"e".to_vec()));
        read_ahead.push(Err(io::ErrorKind::ConnectionReset.into()));
        assert_eq!((read_ahead.peek(&mut room), &room), (Some(3), b"abc"));
        let mut got = Vec::new();
        for (expected, memory) in [(3, false), (1, true), (1, true)] {
            assert!(read_ahead.has_outcome());
            let (count, spent) = read_ahead.copy_to(&mut room).unwrap();
            assert_eq!((*count.as_ref().unwrap(), spent.is_some()), (expected, memory));
            got.extend_from_slice(&room[..expected]);
        }
        assert_eq!(got, b"abcde");
        assert_eq!(read_ahead.peek(&mut room), None);
        let (failure, _) = read_ahead.copy_to(&mut room).unwrap();
        assert_eq!(failure.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
        assert!(!read_ahead.has_outcome());
        read_ahead.push(Ok(b"first".to_vec()));
        read_ahead.push(Err(io::ErrorKind::ConnectionReset.into()));
        read_ahead.copy_to(&mut room[..2]).unwrap().0.unwrap();
        read_ahead.push_front(b"a".to_vec());
        assert_eq!(read_ahead.pop_front().unwrap().unwrap(), b"a");
        assert_eq!(read_ahead.pop_front().unwrap().unwrap(), b"rst");
        assert!(read_ahead.pop_front().unwrap().is_err() && read_ahead.pop_front().is_none());
        assert!(!read_ahead.has_outcome());
        read_ahead.push(Ok(b"rest".to_vec()));
        read_ahead.copy_to(&mut room[..1]).unwrap().0.unwrap();
        assert_eq!((read_ahead.take_all(), read_ahead.has_outcome()), (b"est".to_vec(), false));
    }
}
