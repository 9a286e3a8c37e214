//! The memory that the writer and a subject share: the work that is due, and the proof that it was
//! done.
//!
//! A subject is another process, perhaps with a thousand threads, so its counters lie in shared
//! memory. Each pair has a word there, with the number of bytes read and their sum. A common
//! counter shows when the last byte of a round was read; the reader of that byte notes the time and
//! wakes the writer. This costs an atomic addition for each event and, with threads, a cache line
//! that moves between processors, the same for all subjects.

use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::error::{Error, Result};
use crate::sys::memory::SharedNumbers;
use crate::sys::ready::Ready;
use crate::sys::{descriptor, process};

/// Bytes that will have been read in total when the round is over, and whether the last reader
/// reports.
const DUE: usize = 0;
const ASKED: usize = 1;
/// Bytes read so far, on another cache line than the words that are only read.
const READ: usize = 8;
/// The time that the reader of the last byte notes.
const FINISHED: usize = 16;
const VOLUNTARY: usize = 17;
const INVOLUNTARY: usize = 18;
/// The subject's report of its set-up.
const STARTED: usize = 19;
const MEMORY: usize = 20;
const SET_UP: usize = 21;
const FAILURE: usize = 22;
/// Threads that are about to wait for the first time.
const ARRIVED: usize = 23;
/// The words of the pairs.
const FIRST: usize = 24;

/// One byte read, as an addend to a pair's word: a count of one in the upper half, its value in the
/// lower.
const ONE_READ: u64 = 1 << 32;

/// A read has room for more bytes than arrive, so that no reader needs a second call to learn that
/// nothing is left.
pub(super) const ROOM: usize = 16;

/// The difference between the byte that a socket sends back and the byte that came.
pub(super) const ANSWER: u8 = 1;

/// The outcome of a read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    /// The bytes read were noted and, if the writer wants answers, answered.
    Took,
    /// There was nothing.
    Nothing,
    /// The writer is gone.
    Ended,
}

/// A subject's report of its set-up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct SetUpReport {
    /// Threads it has.
    pub threads: u64,
    /// Memory that the set-up has touched, in bytes.
    pub memory: u64,
    /// How long the set-up took, in nanoseconds.
    pub ns: u64,
}

/// The counters of the writer and the subject. Each process has its own copy of this struct and
/// shares its numbers.
#[derive(Clone, Debug)]
pub(super) struct SharedCounters {
    shared: Arc<SharedNumbers>,
    done: RawFd,
    answers: bool,
}

/// The pipe by which the writer is woken.
#[derive(Debug)]
pub(super) struct WakePipe {
    /// Where the writer waits.
    pub wait: OwnedFd,
    /// The end that the subject writes to. The writer closes its copy, so that the pipe ends when
    /// the subject does.
    pub wake: OwnedFd,
}

impl SharedCounters {
    /// Creates counters for `pairs` pairs, and the pipe that wakes the writer when a round is done.
    /// The pipe's writing end must be open in the subject's process. With `answers`, each byte is
    /// sent back as well.
    pub(super) fn new(pairs: usize, answers: bool) -> Result<(SharedCounters, WakePipe)> {
        let failed = |source| Error::system("creating the counters of a subject", source);
        let (wait, wake) = descriptor::pipe().map_err(failed)?;
        for end in [&wait, &wake] {
            descriptor::set_blocking(end.as_raw_fd(), true).map_err(failed)?;
        }
        let shared = SharedNumbers::new(FIRST + pairs).map_err(failed)?;
        let counters = SharedCounters { shared: Arc::new(shared), done: wake.as_raw_fd(), answers };
        Ok((counters, WakePipe { wait, wake }))
    }

    /// Reads the bytes that a pair has.
    #[inline(always)]
    pub(super) fn read(&self, pair: usize, fd: RawFd) -> Outcome {
        let mut buffer = [0; ROOM];
        match usize::try_from(descriptor::read(fd, &mut buffer)) {
            Ok(0) => Outcome::Ended,
            Ok(count) => self.took(pair, &buffer[..count], fd),
            Err(_) => self.nothing(),
        }
    }

    #[cold]
    fn nothing(&self) -> Outcome {
        let error = io::Error::last_os_error();
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::Interrupted => Outcome::Nothing,
            _ => self.broken(&error),
        }
    }

    /// Handles a read that has failed for good: a writer that closes resets its connection, which
    /// is an end like any other.
    pub(super) fn broken(&self, error: &io::Error) -> Outcome {
        if error.kind() != ErrorKind::ConnectionReset {
            self.failed(error);
        }
        Outcome::Ended
    }

    /// Notes bytes that were read from a pair, and answers them on `fd` if the writer wants
    /// answers.
    #[inline(always)]
    pub(super) fn took(&self, pair: usize, bytes: &[u8], fd: RawFd) -> Outcome {
        for &byte in bytes {
            if self.answers && !descriptor::write_byte(fd, byte.wrapping_add(ANSWER)) {
                self.failed(&io::Error::last_os_error());
                return Outcome::Ended;
            }
            self.shared[FIRST + pair].fetch_add(ONE_READ + u64::from(byte), Ordering::Relaxed);
            let read = self.shared[READ].fetch_add(1, Ordering::AcqRel) + 1;
            if read == self.shared[DUE].load(Ordering::Relaxed) {
                self.finish();
            }
        }
        Outcome::Took
    }

    #[cold]
    fn finish(&self) {
        self.shared[FINISHED].store(process::now(), Ordering::Relaxed);
        if self.shared[ASKED].load(Ordering::Relaxed) != 0 {
            let (voluntary, involuntary) = process::switches();
            self.shared[VOLUNTARY].store(voluntary, Ordering::Relaxed);
            self.shared[INVOLUNTARY].store(involuntary, Ordering::Relaxed);
        }
        self.wake_writer();
    }

    fn wake_writer(&self) {
        // If the writer is gone, there is no one left to wake.
        let _ = descriptor::write_byte(self.done, b'.');
    }

    /// Notes that a thread of the subject is about to wait for the first time.
    pub(super) fn arrive(&self) {
        self.shared[ARRIVED].fetch_add(1, Ordering::Release);
    }

    /// Threads that have arrived.
    pub(super) fn arrived(&self) -> u64 {
        self.shared[ARRIVED].load(Ordering::Acquire)
    }

    /// Notes that the subject is set up; wakes the writer.
    pub(super) fn set_up(&self, set: SetUpReport) {
        self.shared[STARTED].store(set.threads, Ordering::Relaxed);
        self.shared[MEMORY].store(set.memory, Ordering::Relaxed);
        self.shared[SET_UP].store(set.ns, Ordering::Relaxed);
        self.wake_writer();
    }

    /// Notes that the subject could have only `threads` threads.
    pub(super) fn limited_to(&self, threads: u64) {
        self.shared[STARTED].store(threads, Ordering::Relaxed);
    }

    /// Notes that the subject cannot go on; wakes the writer. The first cause counts.
    pub(super) fn failed(&self, error: &io::Error) {
        let number = error.raw_os_error().unwrap_or(libc::EIO) as u64;
        let order = Ordering::Relaxed;
        let _ = self.shared[FAILURE].compare_exchange(0, number, order, order);
        self.wake_writer();
    }

    /// Returns why the subject cannot go on, if so.
    pub(super) fn failure(&self) -> Option<io::Error> {
        match self.shared[FAILURE].load(Ordering::Relaxed) {
            0 => None,
            number => Some(io::Error::from_raw_os_error(number as i32)),
        }
    }

    /// Returns the subject's report of its set-up.
    pub(super) fn report(&self) -> SetUpReport {
        let of = |place| self.shared[place].load(Ordering::Relaxed);
        SetUpReport { threads: of(STARTED), memory: of(MEMORY), ns: of(SET_UP) }
    }

    /// For the writer: `bytes` more bytes make a round, and with `report` the last reader reports
    /// its process's switches. The writer calls this before it writes any of them.
    pub(super) fn expect(&self, bytes: usize, report: bool) {
        self.shared[ASKED].store(u64::from(report), Ordering::Relaxed);
        self.shared[DUE].fetch_add(bytes as u64, Ordering::Release);
    }

    /// Returns when the last byte of the round was read, by the monotonic clock.
    pub(super) fn finished(&self) -> u64 {
        self.shared[FINISHED].load(Ordering::Relaxed)
    }

    /// Switches of all threads, voluntary and not, as reported last.
    pub(super) fn switches(&self) -> (u64, u64) {
        let of = |place| self.shared[place].load(Ordering::Relaxed);
        (of(VOLUNTARY), of(INVOLUNTARY))
    }

    /// Ends a round: the byte of each active pair must have been read once, and no other byte.
    pub(super) fn close(&self, subject: &'static str, active: &[u32], byte: u8) -> Result<()> {
        let wrong = |found: String| Err(Error::Work { subject, found });
        let (read, due) = (&self.shared[READ], &self.shared[DUE]);
        let (read, due) = (read.load(Ordering::Acquire), due.load(Ordering::Relaxed));
        if read != due {
            return wrong(format!("{due} bytes were written since the beginning, {read} read"));
        }
        for &pair in active {
            let word = self.shared[FIRST + pair as usize].swap(0, Ordering::Relaxed);
            if word != ONE_READ + u64::from(byte) {
                let (count, sum) = (word / ONE_READ, word % ONE_READ);
                return wrong(format!(
                    "the reader of pair {pair} was read {count} times and gave {sum}, not {byte}"
                ));
            }
        }
        Ok(())
    }
}

impl Ready for SharedCounters {
    #[inline(always)]
    fn ready(&mut self, place: usize, fd: RawFd) -> bool {
        self.read(place, fd) != Outcome::Ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::{Kind, Pairs};

    #[test]
    fn the_last_byte_of_a_round_wakes_the_writer_and_wrong_work_is_found() {
        let pairs = Pairs::open(Kind::Pipe, 3).unwrap();
        let (counters, pipe) = SharedCounters::new(3, false).unwrap();
        let wait = &pipe.wait;
        descriptor::set_blocking(wait.as_raw_fd(), false).unwrap();
        let write =
            |pair: usize, byte| assert!(descriptor::write_byte(pairs.writers()[pair], byte));
        let read = |pair: usize| counters.read(pair, pairs.readers()[pair]);

        counters.expect(2, false);
        write(0, 7);
        write(2, 7);
        assert_eq!((read(1), read(0)), (Outcome::Nothing, Outcome::Took));
        assert_eq!(descriptor::read_byte(wait.as_raw_fd()), None);
        let error = counters.close("test", &[0, 2], 7).unwrap_err().to_string();
        assert!(error.contains("2 bytes were written since the beginning, 1 read"), "{error}");
        assert_eq!(read(2), Outcome::Took);
        assert_eq!(descriptor::read_byte(wait.as_raw_fd()), Some(b'.'));
        assert!(counters.finished() > 0);
        counters.close("test", &[0, 2], 7).unwrap();

        // A byte that was not written, and a byte read twice in place of another.
        counters.expect(1, true);
        write(1, 8);
        assert_eq!(read(1), Outcome::Took);
        let error = counters.close("test", &[1], 9).unwrap_err().to_string();
        assert!(error.contains("pair 1 was read 1 times and gave 8, not 9"), "{error}");
        counters.expect(2, false);
        write(0, 1);
        write(0, 1);
        assert_eq!(read(0), Outcome::Took);
        let error = counters.close("test", &[0, 1], 1).unwrap_err().to_string();
        assert!(error.contains("pair 0 was read 2 times"), "{error}");
    }

    #[test]
    fn a_socket_answers_and_the_end_of_a_pair_is_no_failure() {
        let pairs = Pairs::open(Kind::Unix, 1).unwrap();
        let (counters, _pipe) = SharedCounters::new(1, true).unwrap();
        let (reader, writer) = (pairs.readers()[0], pairs.writers()[0]);
        counters.expect(1, false);
        assert!(descriptor::write_byte(writer, 255));
        assert_eq!(counters.read(0, reader), Outcome::Took);
        assert_eq!(descriptor::read_byte(writer), Some(255u8.wrapping_add(ANSWER)));
        assert_eq!(counters.read(0, -1), Outcome::Ended);
        assert_eq!(counters.failure().unwrap().raw_os_error(), Some(libc::EBADF));
    }
}
