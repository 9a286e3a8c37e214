//! A poller at work, and the proof that it did the work.

use std::os::fd::RawFd;

use crate::channel::Pairs;
use crate::error::{Error, Result};
use crate::loops::{Loop, Ready};
use crate::sys::descriptor;

/// A poller at work.
pub(crate) trait Subject {
    /// Waits once, and reads one byte of each descriptor that is reported. Only the floor may look
    /// at which pairs are active.
    fn turn(&mut self, active: &[u32], log: &mut ReadLog) -> Result<()>;

    /// Waits until all of `active` (pairs, ascending) were reported and read.
    fn round(&mut self, active: &[u32], log: &mut ReadLog) -> Result<()> {
        while log.bytes() < active.len() {
            self.turn(active, log)?;
        }
        Ok(())
    }

    /// Its own counters, if it has any.
    fn counters(&self) -> Option<superpoll::diagnostics::Stats> {
        None
    }

    /// Returns the system calls that it has made in rounds in addition to reads, if it counts them.
    fn calls(&self) -> Option<u64> {
        None
    }

    /// Returns whether these calls read, too, so that no other call does.
    fn calls_read(&self) -> bool {
        false
    }

    /// Returns how often the kernel had no room to note an event, and the subject made up for it.
    fn overflows(&self) -> Option<u64> {
        None
    }

    /// Returns the bytes of its own heap for registrations, if it reports them.
    fn memory(&self) -> Option<usize> {
        None
    }
}

/// The bytes that were read: the proof that the work was done.
#[derive(Debug)]
pub(crate) struct ReadLog {
    seen: Vec<u32>,
    bytes: usize,
    sum: u64,
    empty: u64,
}

impl ReadLog {
    /// Creates the log of `total` pairs, with nothing read yet.
    pub(crate) fn new(total: usize) -> ReadLog {
        ReadLog { seen: vec![0; total], bytes: 0, sum: 0, empty: 0 }
    }

    /// Reads one byte of a reader and notes it.
    #[inline(always)]
    pub(crate) fn read(&mut self, pair: usize, fd: RawFd) {
        match descriptor::read_byte(fd) {
            Some(byte) => {
                self.seen[pair] += 1;
                self.bytes += 1;
                self.sum += u64::from(byte);
            }
            None => self.empty += 1,
        }
    }

    /// Notes bytes that a subject has read by itself.
    #[inline(always)]
    pub(crate) fn note(&mut self, pair: usize, bytes: &[u8]) {
        for &byte in bytes {
            self.seen[pair] += 1;
            self.bytes += 1;
            self.sum += u64::from(byte);
        }
    }

    /// Returns how many bytes were read in this round.
    #[inline(always)]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Reads that found nothing, since the beginning: reports of descriptors that were not ready.
    pub(crate) fn empty(&self) -> u64 {
        self.empty
    }

    /// Ends a round: exactly the written bytes must have been read, from each active reader once
    /// and from no other reader.
    pub(crate) fn close(&mut self, subject: &'static str, active: &[u32], byte: u8) -> Result<()> {
        let wrong = |found: String| Err(Error::Work { subject, found });
        if self.bytes != active.len() {
            return wrong(format!("{} bytes written, {} read", active.len(), self.bytes));
        }
        if self.sum != u64::from(byte) * active.len() as u64 {
            return wrong("other bytes were read than written".to_owned());
        }
        for &pair in active {
            let count = std::mem::take(&mut self.seen[pair as usize]);
            if count != 1 {
                return wrong(format!("the reader of pair {pair} was read {count} times"));
            }
        }
        self.bytes = 0;
        self.sum = 0;
        Ok(())
    }
}

impl Ready for ReadLog {
    #[inline(always)]
    fn ready(&mut self, place: usize, fd: RawFd) -> bool {
        self.read(place, fd);
        true
    }
}

/// A loop that reads what it finds ready.
pub(crate) struct Polled<L>(pub L);

impl<L: Loop<ReadLog>> Subject for Polled<L> {
    #[inline(always)]
    fn turn(&mut self, _active: &[u32], log: &mut ReadLog) -> Result<()> {
        self.0.turn(log).map(drop)
    }

    fn calls(&self) -> Option<u64> {
        self.0.waits()
    }
}

// Perfect knowledge: the reads that all other subjects do as well, and no wait at all. Its writes
// go to descriptors without a watcher; the writes of the other subjects are compared with them.

struct Floor<'a> {
    readers: &'a [RawFd],
}

pub(super) fn build_floor(pairs: &Pairs) -> Result<Box<dyn Subject + '_>> {
    Ok(Box::new(Floor { readers: pairs.readers() }))
}

impl Subject for Floor<'_> {
    /// More than one turn only where the network is late.
    fn turn(&mut self, active: &[u32], log: &mut ReadLog) -> Result<()> {
        for &pair in active {
            log.read(pair as usize, self.readers[pair as usize]);
        }
        Ok(())
    }
}
