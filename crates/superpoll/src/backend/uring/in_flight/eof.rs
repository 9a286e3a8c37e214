//! Ends of streams that the kernel does not report to a multishot receive.
//!
//! Such a receive looks at its socket when it is woken, and goes on as long as the socket says that
//! it has more. The end of a stream does not count as more: it is a state, which wakes once. So if
//! a look takes the last bytes when the end is there already, and that wake-up is over or was
//! counted together with the next, the receive waits indefinitely. Linux has three ways to get
//! there:
//!
//! - Bytes and end come before the work of the first wake-up is done; both are answered with one
//!   look. Linux 7.0 looks once more if the peer has hung up (commit a68ed2df7213, "io_uring/poll:
//!   fix multishot recv missing EOF on wakeup race", also in stable kernels from 2026 on).
//! - Bytes and end are there when the receive is armed, after it was submitted or has emptied 32
//!   buffers in a row. The look is then because of the state, not of two wake-ups, so the
//!   correction does not apply (seen on 6.18.44).
//! - The end comes in the moment after a look, when 128 wake-ups or more were under way. From that
//!   number on the kernel does not count them one by one, and drops that wake-up with the rest
//!   (seen on 6.18.44, too).
//!
//! It happens with Unix sockets from Linux 6.17 on; before, they never say whether they have more,
//! and are looked at until they are empty. TCP counts an end as more; for a reset nothing promises
//! that.
//!
//! So a receive that has taken the last bytes there were is checked for the end, before the next
//! wait that has nothing to report: one `poll` for all such receives. Either the end was there
//! already when the bytes were taken, or the kernel will report it, so this check finds each end
//! that is lost. A receive whose stream has ended is cancelled, and the rest is received by single
//! receives, which look before they wait. While there is always something to report the check is
//! put off, but not for long. An echo on the only connection pays about 0.4 microseconds for it; an
//! echo on one of many connections pays 2 % of its other cost.
//!
//! Multishot accepts and polls need none of this: an accept goes on until no client waits, and a
//! poll that was woken several times reports the state.

use std::io;
use std::time::Duration;

use super::InFlight;
use super::entry::End;
use crate::operation::Ticket;
use crate::stats::Calls;
use crate::sys::poll::{self, Slot};
use crate::sys::uring::Ring;

/// This many waits may have something else to report before the check is made.
const PATIENCE: u32 = 16;

/// The receives to check, and when to check them.
#[derive(Default)]
pub(super) struct Ends {
    doubted: Vec<Ticket>,
    /// The array for `poll`, in the same order.
    probe: Vec<Slot>,
    /// How often the check was put off.
    put_off: u32,
}

impl Ends {
    /// Whether there is no receive to check.
    #[inline]
    pub(super) fn is_certain(&self) -> bool {
        self.doubted.is_empty()
    }

    /// Adds a receive to the next check.
    pub(super) fn doubt(&mut self, ticket: Ticket) {
        self.doubted.push(ticket);
    }

    /// Heap in use.
    pub(super) fn memory(&self) -> usize {
        self.doubted.capacity() * size_of::<Ticket>() + self.probe.capacity() * size_of::<Slot>()
    }
}

impl InFlight {
    /// Makes receives find an end that they have missed, if it is time for that.
    pub(super) fn look_for_ends(&mut self, calls: &mut Calls, ring: &mut Ring) -> io::Result<()> {
        // With completions there the wait does not block; the ring's flag for more may be out of
        // date.
        if ring.has_completions() && self.ends.put_off < PATIENCE {
            self.ends.put_off += 1;
            return Ok(());
        }
        self.ends.put_off = 0;
        let mut doubted = std::mem::take(&mut self.ends.doubted);
        let mut probe = std::mem::take(&mut self.ends.probe);
        // A receive that is not with the kernel looks when it is submitted again.
        doubted.retain(|&ticket| {
            self.find(ticket).is_some_and(|entry| {
                let asked = entry.loan.is_due() && !entry.cancelled;
                if !asked {
                    entry.end = End::Ahead;
                }
                asked
            })
        });
        probe.clear();
        for &ticket in &doubted {
            let fd = self.find(ticket).map_or(-1, |entry| entry.fd);
            probe.push(Slot { fd, events: libc::POLLRDHUP, revents: 0 });
        }
        let mut outcome = Ok(());
        if !probe.is_empty() {
            outcome = poll::wait(calls, &mut probe, Some(Duration::ZERO)).map(drop);
        }
        let mut asked = probe.iter();
        doubted.retain(|&ticket| {
            let (Some(slot), Some(entry)) = (asked.next(), self.find(ticket)) else { return false };
            if outcome.is_err() {
                return true;
            }
            // If the number names no descriptor any more, it cannot be received from anew.
            if slot.revents & !libc::POLLNVAL == 0 {
                entry.end = End::Ahead;
                return false;
            }
            entry.end = End::There;
            outcome = ring.cancel(calls, ticket.name());
            if outcome.is_err() {
                entry.end = End::Doubted;
            }
            outcome.is_err()
        });
        self.ends.doubted = doubted;
        self.ends.probe = probe;
        outcome
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;
    use std::time::Instant;

    use super::*;
    use crate::operation::{Gain, Operation, Progress};

    /// After this time an end counts as lost.
    const LIMIT: Duration = Duration::from_secs(60);

    /// Operations in a ring of their own.
    struct Stage {
        ring: Ring,
        in_flight: InFlight,
        calls: Calls,
    }

    impl Stage {
        fn new() -> Option<Stage> {
            let mut calls = Calls::default();
            let mut stage =
                Stage { ring: Ring::new(&mut calls).ok()?, in_flight: InFlight::default(), calls };
            let receive = &Operation::ReceiveMany;
            stage.in_flight.prepare(&mut stage.calls, &mut stage.ring, receive).ok()?;
            Some(stage)
        }

        /// The progress of one round.
        fn look(&mut self) -> Vec<Progress> {
            self.in_flight.submit_waiting(&mut self.calls, &mut self.ring).unwrap();
            self.ring.submit(&mut self.calls).unwrap();
            while let Some(completion) = self.ring.fetch() {
                self.in_flight.complete(completion);
            }
            let mut progress = Vec::new();
            self.in_flight.take_done(&mut progress);
            progress
        }
    }

    impl Drop for Stage {
        fn drop(&mut self) {
            self.in_flight.abort_all(&mut self.calls, &mut self.ring, libc::ECANCELED);
        }
    }

    #[test]
    fn drained_receivers_are_polled_once_and_together() {
        let Some(mut stage) = Stage::new() else { return };
        let mut pairs: Vec<_> = (0..10).map(|_| UnixStream::pair().unwrap()).collect();
        for (number, (receiver, _)) in pairs.iter().enumerate() {
            stage.in_flight.start(0, receiver.as_raw_fd(), Operation::ReceiveMany, number as u64);
        }
        for asked in 1..10 {
            for (_, sender) in &mut pairs {
                sender.write_all(b"x").unwrap();
            }
            assert_eq!(stage.look().len(), pairs.len());
            for _ in 0..3 {
                assert!(stage.look().is_empty());
            }
            assert_eq!(stage.calls.poll, asked);
        }
    }

    #[test]
    fn the_end_is_reported_once_after_all_bytes() {
        let Some(mut stage) = Stage::new() else { return };
        for round in 0..200usize {
            let (mut receiver, mut sender) = UnixStream::pair().unwrap();
            stage.in_flight.start(0, receiver.as_raw_fd(), Operation::ReceiveMany, 0);
            if round % 2 == 0 {
                assert!(stage.look().is_empty());
            }
            let bytes: Vec<u8> = (0..round * 919).map(|n| (n / 3) as u8).collect();
            sender.write_all(&bytes).unwrap();
            drop(sender);
            let mut got = Vec::new();
            let mut is_over = false;
            let begun = Instant::now();
            // The end comes later than all bytes if another test starts a program meanwhile, which
            // has a copy of the sender's descriptor for a moment.
            while !is_over && begun.elapsed() < LIMIT {
                for progress in stage.look() {
                    match progress.outcome.unwrap() {
                        Gain::Bytes(bytes) if !is_over => got.extend_from_slice(&bytes),
                        Gain::Nothing if progress.last && !is_over => is_over = true,
                        gain => panic!("{gain:?}"),
                    }
                }
            }
            assert_eq!((got == bytes, is_over), (true, true), "{round}");
            for _ in 0..20 {
                assert!(stage.look().is_empty());
            }
            assert_eq!(receiver.read(&mut [0]).unwrap(), 0);
            assert!(stage.in_flight.is_idle() && stage.in_flight.ends.is_certain());
        }
    }

    #[test]
    fn a_receive_can_be_cancelled_while_its_end_is_looked_for() {
        let Some(mut stage) = Stage::new() else { return };
        for _ in 0..100 {
            let (receiver, mut sender) = UnixStream::pair().unwrap();
            let ticket = stage.in_flight.start(0, receiver.as_raw_fd(), Operation::ReceiveMany, 0);
            sender.write_all(&[1; 40 * 4096]).unwrap();
            drop(sender);
            let mut last = 0;
            for round in 0..20 {
                last += stage.look().iter().filter(|progress| progress.last).count();
                if round == 2 {
                    stage.in_flight.cancel(&mut stage.calls, &mut stage.ring, ticket).unwrap();
                }
            }
            assert_eq!(last, 1);
            assert!(stage.in_flight.is_idle());
        }
    }
}
