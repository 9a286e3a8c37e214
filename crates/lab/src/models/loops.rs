//! Trying: every descriptor is read in turn, again and again, and most reads find nothing.
//!
//! A loop that tries does not know which descriptors have data, or how many, so a pass always goes
//! over all of them, even when the last of the round's bytes was among the first.

use std::os::fd::RawFd;

use crate::channel::Pairs;
use crate::error::{Doing, Error, Result};
use crate::models::sigio::Asked;
use crate::subject::{ReadLog, Subject};
use crate::sys::poll::Set;
use crate::sys::signal::{self, BlockedSignals};
use crate::sys::uring::reads::Reads;
use crate::sys::uring::{Event, Polls};

struct Spin<'a> {
    readers: &'a [RawFd],
}

pub(super) fn build_spin(pairs: &Pairs) -> Result<Box<dyn Subject + '_>> {
    Ok(Box::new(Spin { readers: pairs.readers() }))
}

impl Subject for Spin<'_> {
    #[inline(always)]
    fn turn(&mut self, _active: &[u32], log: &mut ReadLog) -> Result<()> {
        for (pair, &fd) in self.readers.iter().enumerate() {
            log.read(pair, fd);
        }
        Ok(())
    }

    /// Nothing but reads.
    fn calls(&self) -> Option<u64> {
        Some(0)
    }
}

// Asking with `select(2)` as its manual page shows it: a bit for each descriptor, a copy for the
// kernel to change, and a scan over the numbers. There are 1024 of them and no more.

struct RawSelect<'a> {
    readers: &'a [RawFd],
    all: Set,
    ready: Set,
    waits: u64,
}

/// The message for a descriptor that does not fit.
pub(super) fn beyond(fd: RawFd) -> String {
    format!(
        "descriptor {fd} is beyond {}, the last that select can name: ask for a smaller --total",
        libc::FD_SETSIZE - 1
    )
}

pub(super) fn build_select(pairs: &Pairs) -> Result<Box<dyn Subject + '_>> {
    let mut all = Set::new();
    for &fd in pairs.readers() {
        if !all.add(fd) {
            return Err(Error::usage(beyond(fd)));
        }
    }
    Ok(Box::new(RawSelect { readers: pairs.readers(), all, ready: Set::new(), waits: 0 }))
}

impl Subject for RawSelect<'_> {
    #[inline(always)]
    fn turn(&mut self, _active: &[u32], log: &mut ReadLog) -> Result<()> {
        self.waits += 1;
        let mut ready = self.all.wait_into(&mut self.ready);
        if ready < 0 {
            return Err(Error::last("select"));
        }
        for (pair, &fd) in self.readers.iter().enumerate() {
            if self.ready.contains(fd) {
                log.read(pair, fd);
                ready -= 1;
                if ready == 0 {
                    break;
                }
            }
        }
        Ok(())
    }

    fn calls(&self) -> Option<u64> {
        Some(self.waits)
    }
}

// Registered with io_uring: a multishot poll for each descriptor, which reports again and again.
//
// A poll reports when data arrives and is silent about data that is there already, like an edge.
// Each round's bytes are read to the last, so nothing more is needed. Where the kernel ends a poll
// (when the queue of completions is full), its last report says so, and the loop arms it again.
// Arming checks the present state, so events in between are not lost. In each call the kernel does
// the deferred work of about twenty completions unless the caller waits for more; a loop that
// cannot know how many will come waits for one, and so does this one.

/// The operation that fails where the kernel is too old.
const SETTING_UP: &str = "setting up an io_uring with deferred work (Linux 6.1)";

struct Uring<'a> {
    polls: Polls,
    readers: &'a [RawFd],
    events: Vec<Event>,
}

pub(super) fn build_uring(pairs: &Pairs) -> Result<Box<dyn Subject + '_>> {
    Ok(Box::new(with_room(pairs, pairs.len())?))
}

/// Creates a queue for `completions` completions.
fn with_room(pairs: &Pairs, completions: usize) -> Result<Uring<'_>> {
    let completions = u32::try_from(completions).unwrap_or(u32::MAX >> 1);
    let mut polls = Polls::new(pairs.len(), completions).doing(SETTING_UP)?;
    for (pair, &fd) in pairs.readers().iter().enumerate() {
        polls.arm(pair, fd).doing("arming a multishot poll")?;
    }
    polls.ring.submit().doing("arming multishot polls")?;
    let events = Vec::with_capacity(pairs.len() * 2);
    Ok(Uring { polls, readers: pairs.readers(), events })
}

impl Subject for Uring<'_> {
    #[inline(always)]
    fn turn(&mut self, _active: &[u32], log: &mut ReadLog) -> Result<()> {
        self.events.clear();
        self.polls.wait(&mut self.events).doing("waiting in an io_uring")?;
        for event in &self.events {
            if let Some(code) = event.error {
                return Err(Error::system(
                    format!("polling descriptor {} in an io_uring", self.readers[event.number]),
                    std::io::Error::from_raw_os_error(code),
                ));
            }
            log.read(event.number, self.readers[event.number]);
            if !event.more {
                self.polls
                    .arm(event.number, self.readers[event.number])
                    .doing("arming a multishot poll again")?;
            }
        }
        Ok(())
    }

    fn calls(&self) -> Option<u64> {
        Some(self.polls.ring.calls)
    }

    fn overflows(&self) -> Option<u64> {
        Some(self.polls.ring.overflows)
    }
}

// Registered with io_uring: a read of each descriptor, submitted before there is anything to read.
//
// This is the completion model. The kernel does not report that a descriptor is readable; it
// reports that data has been read, into memory that it was given beforehand. The loop takes bytes
// from there and submits the next reads with the call that waits for more, the last reads of a
// round with a call of their own. When the loop goes back to wait for the next round, the kernel
// has a read of every descriptor. The kernel processes about twenty completions per call
// (`sys/uring.rs`), so one call covers as many events, and there are no other reads. The price is
// memory for every descriptor, for data that may come.

struct UringRead(Reads);

pub(super) fn build_uring_read(pairs: &Pairs) -> Result<Box<dyn Subject + '_>> {
    let mut reads = Reads::new(pairs.len()).doing(SETTING_UP)?;
    for (pair, &fd) in pairs.readers().iter().enumerate() {
        reads.start(pair, fd).doing("starting a read in an io_uring")?;
    }
    reads.ring.submit().doing("starting reads in an io_uring")?;
    // A kernel that does not wait on non-blocking descriptors returns the error at once.
    reads.refusal().map_or(Ok(()), Err).doing("waiting for a read in an io_uring")?;
    Ok(Box::new(UringRead(reads)))
}

impl Subject for UringRead {
    fn turn(&mut self, _active: &[u32], log: &mut ReadLog) -> Result<()> {
        self.0.wait(|pair, bytes| log.note(pair, bytes)).doing("reading in an io_uring")
    }

    fn round(&mut self, active: &[u32], log: &mut ReadLog) -> Result<()> {
        while log.bytes() < active.len() {
            self.turn(active, log)?;
        }
        self.0.ring.submit().doing("starting reads in an io_uring again")
    }

    fn calls(&self) -> Option<u64> {
        Some(self.0.ring.calls)
    }

    fn calls_read(&self) -> bool {
        true
    }

    fn overflows(&self) -> Option<u64> {
        Some(self.0.ring.overflows)
    }
}

// Plain SIGIO: one signal, which says that some descriptor is readable.
//
// Without `F_SETSIG` the kernel sends SIGIO, which is not queued: however many descriptors become
// ready, one signal is pending, and it does not name them. So the loop tries all of them on each
// signal. A signal that arrives during the reads stays pending, also if its byte was among those
// read. Then the next wait ends at once, and every read finds nothing. No event is lost, because
// the signal is fetched before the descriptors are read.

/// The order of the fields is the order in which they end.
struct Plain<'a> {
    asked: Asked<'a>,
    blocked: BlockedSignals,
    calls: u64,
}

pub(super) fn build_sigio_plain(pairs: &Pairs) -> Result<Box<dyn Subject + '_>> {
    let blocked = BlockedSignals::new().doing("holding signals back")?;
    let asked = Asked { readers: pairs.readers() };
    for &fd in asked.readers {
        signal::ask_plainly(fd).doing(format_args!("asking for SIGIO of descriptor {fd}"))?;
    }
    Ok(Box::new(Plain { asked, blocked, calls: 0 }))
}

impl Subject for Plain<'_> {
    #[inline(always)]
    fn turn(&mut self, _active: &[u32], log: &mut ReadLog) -> Result<()> {
        self.calls += 1;
        self.blocked.wait().doing("sigtimedwait")?;
        for (pair, &fd) in self.asked.readers.iter().enumerate() {
            log.read(pair, fd);
        }
        Ok(())
    }

    fn calls(&self) -> Option<u64> {
        Some(self.calls)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::Kind;
    use crate::models::trial::refused;
    use crate::subject::tests::do_round;

    #[test]
    fn with_a_full_queue_every_byte_is_read_all_the_same() {
        for kind in Kind::ALL {
            let pairs = Pairs::open(kind, 40).unwrap();
            let mut subject = match with_room(&pairs, 2) {
                Ok(subject) => subject,
                Err(error) if refused(&error) => return,
                Err(error) => panic!("{error}"),
            };
            let mut log = ReadLog::new(pairs.len());
            for round in 0..30u8 {
                let active: Vec<u32> =
                    (0..40).filter(|pair| round % 2 == 0 || pair % 3 == 0).collect();
                do_round(&mut subject, &pairs, &active, round, &mut log);
            }
            // The network may be late, and then the completions come one at a time.
            assert!(kind == Kind::Tcp || subject.overflows().unwrap() > 0);
        }
    }

    #[test]
    fn many_events_are_one_signal() {
        let pairs = Pairs::open(Kind::Pipe, 50).unwrap();
        let mut subject = build_sigio_plain(&pairs).unwrap();
        let mut log = ReadLog::new(pairs.len());
        let all: Vec<u32> = (0..50).collect();
        for round in 0..20u8 {
            do_round(&mut *subject, &pairs, &all, round, &mut log);
        }
        assert_eq!(subject.calls(), Some(20));
        assert_eq!(log.empty(), 0);
    }
}
