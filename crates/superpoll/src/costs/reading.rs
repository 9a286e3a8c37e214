//! Whether io_uring pays for an engine that reads from its sockets by itself.
//!
//! [`Comparison::of`] leaves the read out, because a caller that reads by itself reads in the same
//! way on each back-end. An engine of the runtime does not: on a ring it reads from many sockets
//! with one call, and on `poll` and epoll with a call for each. So the same loads are estimated
//! here with their reads. Each read is answered by a write, with a call in either case: without it
//! the estimate would show a saving in a tenth of a request as if it were one in the whole request.
//! Sockets only count, because the costs of pipes say nothing about a server.

use crate::costs::comparison::{Load, adaptive, uring};
use crate::costs::{Comparison, Costs, Estimate, Kind, RingCosts};

/// Fewer reads than this are cheaper by a call each, on a ring as well. With a batch of four, a
/// read takes 640 ns of the kernel's time by a ring and 680 by a call of its own, with eight 530
/// and 675 (100 bytes over the loopback device, AMD EPYC, Linux 6.18). What the runtime does for a
/// batched read comes on top.
pub const MIN_BATCH: usize = 8;

/// The most reads of a batch.
const MAX_BATCH: f32 = 64.0;

/// The time that an engine takes to begin a batched read, to note its bytes, and to copy them to
/// the reader, in nanoseconds.
const BOOKKEEPING: f32 = 100.0;

/// The costs of a read from a socket that has something, and of its answer, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct ReadCosts {
    /// By a call of its own.
    pub call: f32,
    /// By an entry of a ring, submitted together with more.
    pub together: f32,
    /// The write of an answer.
    pub answer: f32,
}

impl Comparison {
    /// Estimates the costs of events with the read and the answer that follow them, from calibrated
    /// costs alone.
    pub(crate) fn of_reads(
        costs: &Costs,
        ring: &RingCosts,
        reads: impl Fn(Kind) -> ReadCosts,
    ) -> Comparison {
        let each = |kind| {
            let of = reads(kind);
            Load::ALL.map(|load| {
                let shape = load.shape();
                let (by_call, batched) = (of.call, batched(&of, ring.enter, shape.ready));
                Estimate {
                    kind,
                    load,
                    adaptive: adaptive(costs, kind, &shape) + by_call + of.answer,
                    uring: uring(ring, kind, &shape) + batched + of.answer,
                }
            })
        };
        Comparison { estimates: [Kind::Unix, Kind::Tcp].map(each).into_iter().flatten().collect() }
    }
}

/// A read by a ring, one of this many that are due.
fn batched(of: &ReadCosts, enter: f32, ready: f32) -> f32 {
    if ready < MIN_BATCH as f32 {
        return of.call;
    }
    // The first call of a batch is that of the next wait.
    of.together + BOOKKEEPING + enter * (ready / MAX_BATCH).ceil() / ready
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::costs::RingKindCosts;

    fn ring(event: f32, wake: f32) -> RingCosts {
        let of = RingKindCosts { arm: 220.0, event, wake, cancel: 210.0 };
        RingCosts { pipe: of, unix: of, tcp: of, enter: 150.0 }
    }

    fn compare(ring: &RingCosts, [call, together, answer]: [f32; 3]) -> Comparison {
        Comparison::of_reads(&Costs::ASSUMED, ring, |_| ReadCosts { call, together, answer })
    }

    fn at(comparison: &Comparison, load: Load) -> (f32, f32) {
        let is_it = |one: &&Estimate| (one.kind, one.load) == (Kind::Tcp, load);
        let found = comparison.estimates.iter().find(is_it).unwrap();
        (found.adaptive, found.uring)
    }

    #[test]
    fn few_are_read_by_calls_and_many_together() {
        let ring = ring(50.0, 200.0);
        let with = compare(&ring, [650.0, 400.0, 3_000.0]);
        let without = Comparison::of(&Costs::ASSUMED, &ring);
        assert_eq!(with.estimates.len(), 12);
        assert!(with.estimates.iter().all(|one| one.kind != Kind::Pipe));
        for load in Load::ALL {
            let ((adaptive, uring), (watched, ring)) = (at(&with, load), at(&without, load));
            assert_eq!(adaptive, watched + 650.0 + 3_000.0, "{load:?}");
            let ready = load.shape().ready;
            let read = match load {
                Load::Woken | Load::One => 650.0,
                Load::All => 500.0 + 150.0 * 16.0 / 1000.0,
                _ => 500.0 + 150.0 * 2.0 / ready,
            };
            assert!((uring - ring - read - 3_000.0).abs() < 0.01, "{load:?}: {uring} {ring}");
        }
        let of = ReadCosts { call: 9.0, together: 1.0, answer: 0.0 };
        assert_eq!((batched(&of, 80.0, 7.0), batched(&of, 80.0, 8.0)), (9.0, 111.0));
    }

    #[test]
    fn it_pays_where_reads_are_cheaper_together_and_answers_are_not_all_there_is() {
        let pays = |ring: &RingCosts, costs| compare(ring, costs).uring_pays();
        let cheap = ring(55.0, 100.0);
        assert!(pays(&cheap, [650.0, 430.0, 1_000.0]));
        assert!(!pays(&cheap, [650.0, 430.0, 10_000.0]), "a percent of a request");
        assert!(!pays(&cheap, [650.0, 900.0, 1_000.0]), "the kernel reads no faster together");
        assert!(!pays(&ring(400.0, 600.0), [650.0, 430.0, 1_000.0]), "a wake-up costs too much");
        assert!(!pays(&cheap, [f32::NAN, 430.0, 1_000.0]));
    }

    #[test]
    fn the_judgement_of_pipes_does_not_decide() {
        // Busy pipes are cheaper in an array, by far, which decides for a caller that reads by
        // itself.
        let ring = ring(55.0, 100.0);
        assert!(!Comparison::of(&Costs::ASSUMED, &ring).uring_pays());
        assert!(compare(&ring, [650.0, 430.0, 1_000.0]).uring_pays());
    }
}
