//! The work: the bytes and their way, and the proof that they took it.
//!
//! Station `i` reads pipe `i` and writes pipe `i + 1`; the last station, the driver, closes the
//! ring. A trip puts one byte into each of K pipes at equal distances. It is over when each byte
//! has come to the driver as often as there are laps; after the last lap the byte stays there. So
//! the number of bytes that each station passes on is known beforehand, to the byte, and after a
//! trip no pipe may hold one. Bytes that meet in a pipe are read together: a station that is late
//! moves more at a time. The rows show how many bytes a read returned on average.

use std::os::fd::{OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::{Doing, Error, Result};
use crate::sys::descriptor;

/// The most bytes that a station reads at a time.
pub(super) const MOST: usize = 64;

/// Pipes, each with the end to read and the end to write.
pub(super) type Pipes = Vec<(OwnedFd, OwnedFd)>;

/// The bytes that a station has passed on. Written by one thread at a time.
#[derive(Debug, Default)]
struct Count {
    reads: AtomicU64,
    bytes: AtomicU64,
}

/// How far the driver lets the bytes go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Trip {
    /// The number of bytes that come to the driver in total.
    pub arrivals: u64,
    /// The number of these bytes, counted from the first, that the driver passes on.
    pub onward: u64,
}

/// A ring with a number of pipes and a number of bytes in flight.
#[derive(Clone, Debug)]
pub(crate) struct Course {
    /// Pipes.
    pub total: usize,
    /// Bytes that travel round at a time.
    pub in_flight: usize,
    counts: Arc<[Count]>,
    failure: Arc<Mutex<Option<String>>>,
}

/// One of the places where bytes are passed on, from its own point of view.
#[derive(Clone, Debug)]
pub(crate) struct Station {
    counts: Arc<[Count]>,
    number: usize,
    failure: Arc<Mutex<Option<String>>>,
}

impl Station {
    /// Notes that one read returned `bytes` bytes.
    #[inline(always)]
    pub(crate) fn passed(&self, bytes: usize) {
        self.counted(1, bytes as u64);
    }

    /// Notes that `reads` reads returned `bytes` bytes.
    #[inline(always)]
    pub(crate) fn counted(&self, reads: u64, bytes: u64) {
        let count = &self.counts[self.number];
        // No other thread writes these counts, so a load and a store suffice.
        count.reads.store(count.reads.load(Ordering::Relaxed) + reads, Ordering::Relaxed);
        count.bytes.store(count.bytes.load(Ordering::Relaxed) + bytes, Ordering::Relaxed);
    }

    /// Notes that the station cannot go on; the first cause counts.
    pub(crate) fn failed(&self, cause: &std::io::Error) {
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure.get_or_insert_with(|| cause.to_string());
    }
}

impl Course {
    /// Creates a ring of `total` pipes, at least two, with 1 to `total` bytes in flight.
    pub(crate) fn new(total: usize, in_flight: usize) -> Course {
        let counts = (0..total).map(|_| Count::default()).collect();
        Course { total, in_flight, counts, failure: Arc::default() }
    }

    /// A station by number; the last is the driver.
    pub(crate) fn station(&self, number: usize) -> Station {
        Station { counts: self.counts.clone(), number, failure: self.failure.clone() }
    }

    /// All stations, in order.
    pub(super) fn stations(&self) -> Vec<Station> {
        (0..self.total).map(|number| self.station(number)).collect()
    }

    /// The driver.
    pub(crate) fn driver(&self) -> Station {
        self.station(self.total - 1)
    }

    /// Opens the pipes, neither end blocking.
    pub(super) fn pipes(&self) -> Result<Pipes> {
        (0..self.total).map(|_| descriptor::pipe().doing("opening a pipe")).collect()
    }

    /// The driver's part for a number of laps.
    pub(crate) fn trip(&self, laps: u64) -> Trip {
        let bytes = self.in_flight as u64;
        Trip { arrivals: bytes * laps, onward: bytes * laps.saturating_sub(1) }
    }

    /// The pipes in which a byte starts, ascending.
    pub(crate) fn starts(&self) -> impl Iterator<Item = usize> {
        let (total, bytes) = (self.total, self.in_flight);
        (0..bytes).map(move |byte| byte * total / bytes)
    }

    /// How many times a byte goes through a pipe in a number of laps.
    pub(crate) fn hops(&self, laps: u64) -> u64 {
        let whole = (self.total * self.in_flight) as u64 * laps;
        whole - self.starts().sum::<usize>() as u64
    }

    /// Puts the bytes where they start.
    pub(crate) fn place(&self, writers: &[RawFd]) -> Result<()> {
        for pipe in self.starts() {
            if !descriptor::write_byte(writers[pipe], b'o') {
                return Err(Error::last(format!("writing to pipe {pipe}")));
            }
        }
        Ok(())
    }

    /// Returns why a station could not go on, if any could not.
    pub(crate) fn failure(&self) -> Option<String> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Ends a trip: each station must have passed on its number of bytes, and no pipe may hold a
    /// byte. Returns the number of reads.
    pub(crate) fn close(&self, subject: &'static str, laps: u64, readers: &[RawFd]) -> Result<u64> {
        let wrong = |found: String| Err(Error::Work { subject, found });
        let mut not_passed: Vec<u64> = vec![0; self.total];
        for start in self.starts().filter(|&start| start > 0) {
            // In its first lap a byte does not pass the stations before its start.
            not_passed[start - 1] += 1;
        }
        let mut missing = 0;
        let mut reads = 0;
        for (number, count) in self.counts.iter().enumerate().rev() {
            missing += not_passed[number];
            let due = self.in_flight as u64 * laps - missing;
            let passed = count.bytes.swap(0, Ordering::Relaxed);
            reads += count.reads.swap(0, Ordering::Relaxed);
            if passed != due {
                return wrong(format!("station {number} passed {passed} bytes on, not {due}"));
            }
        }
        for (number, &reader) in readers.iter().enumerate() {
            let left = descriptor::readable_bytes(reader)
                .doing(format_args!("looking into pipe {number}"))?;
            if left != 0 {
                return wrong(format!("{left} bytes were left in pipe {number}"));
            }
        }
        Ok(reads)
    }
}

/// Sets whether reads and writes of pipes block.
#[cfg(feature = "rivals-rt")]
pub(super) fn set_blocking(pipes: &Pipes, blocking: bool) -> std::io::Result<()> {
    use std::os::fd::AsRawFd;

    pipes.iter().try_for_each(|(reader, writer)| {
        descriptor::set_blocking(reader.as_raw_fd(), blocking)?;
        descriptor::set_blocking(writer.as_raw_fd(), blocking)
    })
}

/// Gives each station its ends: the reader of its pipe and the writer of the next one.
pub(super) fn ends<R, W>(pipes: Vec<(R, W)>) -> Vec<(R, W)> {
    let (readers, mut writers): (Vec<R>, Vec<W>) = pipes.into_iter().unzip();
    if !writers.is_empty() {
        writers.rotate_left(1);
    }
    readers.into_iter().zip(writers).collect()
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn bytes_start_at_equal_distances_and_hops_are_counted_from_there() {
        let course = Course::new(10, 3);
        assert_eq!(course.starts().collect::<Vec<_>>(), [0, 3, 6]);
        assert_eq!(course.hops(2), 60 - 9);
        assert_eq!(Course::new(1000, 1).hops(4), 4000);
        assert_eq!(course.trip(2), Trip { arrivals: 6, onward: 3 });
        assert_eq!(course.trip(1).onward, 0);
    }

    #[test]
    fn each_station_writes_to_the_next_and_the_last_to_the_first() {
        assert_eq!(ends(vec![(0, 0), (1, 1), (2, 2)]), [(0, 1), (1, 2), (2, 0)]);
        assert!(ends(Vec::<(u8, u8)>::new()).is_empty());
    }

    #[test]
    fn wrong_work_is_found() {
        let course = Course::new(3, 2);
        let pipes = course.pipes().unwrap();
        let readers: Vec<RawFd> = pipes.iter().map(|(reader, _)| reader.as_raw_fd()).collect();
        let due = [1, 2, 2];
        let pass = |passed: [usize; 3]| {
            for (number, bytes) in passed.into_iter().enumerate() {
                course.station(number).passed(bytes);
            }
            let outcome = course.close("test", 1, &readers);
            course.counts.iter().for_each(|count| count.bytes.store(0, Ordering::Relaxed));
            outcome
        };
        assert_eq!(pass(due).unwrap(), 3);
        let error = pass([1, 1, 2]).unwrap_err().to_string();
        assert!(error.contains("station 1 passed 1 bytes on, not 2"), "{error}");
        assert!(descriptor::write_byte(pipes[1].1.as_raw_fd(), 0));
        let error = pass(due).unwrap_err().to_string();
        assert!(error.contains("left in pipe 1"), "{error}");
    }
}
