//! Signals: the kernel queues one for each event, with the descriptor's number in it.
//!
//! `F_SETSIG` chooses a real-time signal, because real-time signals are queued and not merged. The
//! owner is this thread (`F_SETOWN_EX`), so that the signals reach no other thread. They are
//! blocked and then fetched: one at a time with `sigtimedwait`, or many at a time from a
//! `signalfd`.
//!
//! The queue has a limit (`RLIMIT_SIGPENDING`, for all processes of a user together). When it is
//! full, the kernel sends a plain SIGIO instead, without a descriptor; from then on the state of
//! every descriptor is unknown. So on SIGIO the loop first empties the queue, which makes room, and
//! then polls everything: an event that the poll does not find came after the queue had room again.
//! The poll also finds the descriptors whose signals were thrown out of the queue.
//!
//! Signals as they were before `F_SETSIG` are in `loops.rs`.

use std::os::fd::{OwnedFd, RawFd};

use crate::channel::Pairs;
use crate::error::{Doing, Error, Result};
use crate::subject::{ReadLog, Subject};
use crate::sys::poll;
use crate::sys::signal::{self, Batch, BlockedSignals, Signal};

/// Signals for the readers of all pairs. They end when this value is dropped, before
/// [`BlockedSignals`] empties the queue.
pub(super) struct Asked<'a> {
    pub(super) readers: &'a [RawFd],
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        for &fd in self.readers {
            signal::ask_no_more(fd);
        }
    }
}

/// The common part of both ways to fetch signals. The order of the fields is the order in which
/// they end.
struct Signals<'a> {
    asked: Asked<'a>,
    blocked: BlockedSignals,
    /// Pairs by the numbers of their readers.
    pairs: Vec<u32>,
    /// Used when the queue was full.
    all: Vec<libc::pollfd>,
    calls: u64,
    overflows: u64,
}

impl<'a> Signals<'a> {
    fn new(pairs: &'a Pairs) -> Result<Signals<'a>> {
        let readers = pairs.readers();
        let blocked = BlockedSignals::new().doing("holding signals back")?;
        let asked = Asked { readers };
        let largest = readers.iter().copied().max().unwrap_or(0);
        let mut numbers = vec![0; usize::try_from(largest).unwrap_or(0) + 1];
        for (pair, &fd) in readers.iter().enumerate() {
            signal::ask(fd).doing(format_args!("asking for signals of descriptor {fd}"))?;
            numbers[fd as usize] = pair as u32;
        }
        let entry = |&fd: &i32| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let all = readers.iter().map(entry).collect();
        Ok(Signals { asked, blocked, pairs: numbers, all, calls: 0, overflows: 0 })
    }

    #[inline(always)]
    fn read(&self, fd: RawFd, log: &mut ReadLog) {
        // A number that is not ours belongs to a signal of the same kind from another source.
        if let Some(&pair) = usize::try_from(fd).ok().and_then(|fd| self.pairs.get(fd)) {
            log.read(pair as usize, self.asked.readers[pair as usize]);
        }
    }

    /// Finds out with `poll` which events the lost signals would have reported.
    fn recover(&mut self, log: &mut ReadLog) -> Result<()> {
        self.overflows += 1;
        self.calls += self.blocked.discard() + 1;
        if poll::look(&mut self.all) < 0 {
            return Err(Error::last("poll"));
        }
        for (pair, entry) in self.all.iter().enumerate().filter(|(_, entry)| entry.revents != 0) {
            log.read(pair, entry.fd);
        }
        Ok(())
    }
}

struct OneByOne<'a>(Signals<'a>);

pub(super) fn build_wait(pairs: &Pairs) -> Result<Box<dyn Subject + '_>> {
    Ok(Box::new(OneByOne(Signals::new(pairs)?)))
}

impl Subject for OneByOne<'_> {
    #[inline(always)]
    fn turn(&mut self, _active: &[u32], log: &mut ReadLog) -> Result<()> {
        let signals = &mut self.0;
        signals.calls += 1;
        match signals.blocked.wait().doing("sigtimedwait")? {
            Signal::Ready(fd) => signals.read(fd, log),
            Signal::Overflow => signals.recover(log)?,
        }
        Ok(())
    }

    fn calls(&self) -> Option<u64> {
        Some(self.0.calls)
    }

    fn overflows(&self) -> Option<u64> {
        Some(self.0.overflows)
    }
}

struct Batched<'a> {
    signals: Signals<'a>,
    descriptor: OwnedFd,
    batch: Batch,
}

pub(super) fn build_descriptor(pairs: &Pairs) -> Result<Box<dyn Subject + '_>> {
    let signals = Signals::new(pairs)?;
    let descriptor = signals.blocked.descriptor().doing("opening a signalfd")?;
    Ok(Box::new(Batched { signals, descriptor, batch: Batch::new(pairs.len()) }))
}

impl Subject for Batched<'_> {
    #[inline(always)]
    fn turn(&mut self, _active: &[u32], log: &mut ReadLog) -> Result<()> {
        self.signals.calls += 1;
        self.batch.wait(&self.descriptor).doing("reading from a signalfd")?;
        // The poll finds all other descriptors of the batch as well, so those need not be read
        // twice.
        if self.batch.signals().any(|signal| signal == Signal::Overflow) {
            self.signals.recover(log)?;
            return Ok(());
        }
        for signal in self.batch.signals() {
            if let Signal::Ready(fd) = signal {
                self.signals.read(fd, log);
            }
        }
        Ok(())
    }

    fn calls(&self) -> Option<u64> {
        Some(self.signals.calls)
    }

    fn overflows(&self) -> Option<u64> {
        Some(self.signals.overflows)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::{Mutex, MutexGuard, PoisonError};

    use super::*;
    use crate::channel::Kind;
    use crate::subject::tests::do_round;

    static QUEUE: Mutex<()> = Mutex::new(());

    /// Used by tests that rely on room in the queue, or on the lack of it: the limit belongs to the
    /// whole process.
    pub(crate) fn the_queue() -> MutexGuard<'static, ()> {
        QUEUE.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The limit of queued signals for this process, restored when dropped.
    struct Room(u64);

    impl Drop for Room {
        fn drop(&mut self) {
            signal::limit_queue(self.0);
        }
    }

    #[test]
    fn with_a_full_queue_every_byte_is_read_all_the_same() {
        let _queue = the_queue();
        let _room = Room(signal::queue_limit());
        signal::limit_queue(3);
        for kind in Kind::ALL {
            let pairs = Pairs::open(kind, 20).unwrap();
            for build in [build_wait, build_descriptor] {
                let mut subject = build(&pairs).unwrap();
                let mut log = ReadLog::new(pairs.len());
                for round in 0..30u8 {
                    let active: Vec<u32> =
                        (0..20).filter(|pair| round % 2 == 0 || pair % 3 == 0).collect();
                    do_round(&mut *subject, &pairs, &active, round, &mut log);
                }
                // Seven or twenty signals do not fit into three places, unless the network is late.
                if kind != Kind::Tcp {
                    assert!(subject.overflows().unwrap() >= 30, "{:?}", subject.overflows());
                }
            }
        }
    }
}
