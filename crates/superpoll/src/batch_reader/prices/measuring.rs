//! Measures the prices of reads, together and by a call each.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use super::{ASSUMED, OfKind, Prices, Reads};
use crate::backend::ReadCall;
use crate::backend::uring::Batch;
use crate::costs::calibrate::{ABSURD, COUNT, Pairs, REPETITIONS, expect, time, times};
use crate::costs::{Kind, RingCosts};
use crate::key::Key;
use crate::stats::Calls;
use crate::sys::call;
use crate::sys::descriptor::set_nonblocking;
use crate::sys::uring::{Completion, Ring};

/// When to stop measuring each kind, from the start.
pub(super) const STOPS: [Duration; 3] =
    [Duration::from_micros(800), Duration::from_micros(2_000), Duration::from_micros(3_500)];

pub(super) fn measure(costs: &RingCosts, stops: [Duration; 3]) -> io::Result<Prices> {
    let start = Instant::now();
    let calls = &mut Calls::default();
    let mut bench = Bench { ring: Ring::new(calls)?, batch: Batch::default() };
    bench.ring.stay(calls);
    let mut prices = ASSUMED;
    for (kind, stop) in Kind::MEASURED.into_iter().zip(stops) {
        let times = bench.measure_kind(calls, kind, start + stop)?;
        let Some(reads) = times.per_read() else { continue };
        let of_kind = OfKind { reads, ring: *costs.of(kind), enter: costs.enter };
        match kind {
            Kind::Unix => prices.unix = of_kind,
            Kind::Tcp => prices.tcp = of_kind,
            Kind::Unknown | Kind::Pipe => prices.pipe = of_kind,
        }
    }
    Ok(prices)
}

times! { enter, call, call_in_vain, together, together_in_vain }

impl Times {
    /// The price of a read that follows from the times; `None` if it makes no sense.
    fn per_read(&self) -> Option<Reads> {
        let reads = Reads {
            call: self.call / COUNT as f32,
            call_in_vain: self.call_in_vain / COUNT as f32,
            together: (self.together - self.enter) / COUNT as f32,
            together_in_vain: (self.together_in_vain - self.enter) / COUNT as f32,
        };
        let Reads { call, call_in_vain, together, together_in_vain } = reads;
        let all = [call, call_in_vain, together, together_in_vain];
        all.iter().all(|&price| price > 1.0 && price < ABSURD).then_some(reads)
    }
}

struct Bench {
    ring: Ring,
    batch: Batch,
}

impl Bench {
    /// Measures until the repetitions are done or the time is up; at least once.
    fn measure_kind(&mut self, calls: &mut Calls, kind: Kind, stop: Instant) -> io::Result<Times> {
        let mut pairs = Pairs::new(kind)?;
        if kind == Kind::Pipe {
            pairs.readers.iter().try_for_each(|reader| set_nonblocking(reader.as_fd()))?;
        }
        let mut times = Times::NONE;
        let mut pool: Vec<Vec<u8>> = (0..COUNT).map(|_| Vec::with_capacity(64)).collect();
        for _ in 0..REPETITIONS {
            // Twice, because the work before this has filled the caches with other data.
            for _ in 0..2 {
                time(&mut times.enter, || self.ask(calls))?;
            }
            // An answer, without which a read from a TCP connection sends an acknowledgement.
            if kind == Kind::Tcp {
                pairs.converse()?;
            }
            time(&mut times.together_in_vain, || self.together(calls, &pairs, kind, &mut pool, 0))?;
            pairs.fill()?;
            time(&mut times.together, || self.together(calls, &pairs, kind, &mut pool, COUNT))?;
            if kind == Kind::Tcp {
                pairs.converse()?;
            }
            time(&mut times.call_in_vain, || by_call(&pairs, kind, &mut pool, 0))?;
            pairs.fill()?;
            time(&mut times.call, || by_call(&pairs, kind, &mut pool, COUNT))?;
            if Instant::now() >= stop {
                break;
            }
        }
        Ok(times)
    }

    fn ask(&mut self, calls: &mut Calls) -> io::Result<usize> {
        self.ring.wait_call(calls, 0, 0, Some(Duration::ZERO))?.issue()
    }

    /// Reads from all pairs together; `expected` of them have something.
    fn together(
        &mut self,
        calls: &mut Calls,
        pairs: &Pairs,
        kind: Kind,
        pool: &mut Vec<Vec<u8>>,
        expected: usize,
    ) -> io::Result<()> {
        for (index, reader) in (0..).zip(&pairs.readers) {
            let room = pool.pop().unwrap_or_default();
            let call = match kind {
                Kind::Pipe => ReadCall::Read,
                _ => ReadCall::Receive,
            };
            self.batch.start(Key::new(index, 0), reader.as_raw_fd(), call, room);
        }
        self.batch.submit_queued(&mut self.ring)?;
        expect(self.ask(calls)?, COUNT)?;
        let mut some = [Completion::NONE; COUNT];
        let fetched = self.ring.fetch_some(&mut some);
        let mut found = 0;
        for completion in &some[..fetched] {
            self.batch.complete(calls, *completion, |read| {
                found += usize::from(matches!(read.outcome, Ok(1..)));
                pool.push(read.room);
            });
        }
        expect(found, expected)
    }
}

/// The same by a call each.
fn by_call(pairs: &Pairs, kind: Kind, pool: &mut [Vec<u8>], expected: usize) -> io::Result<()> {
    let mut found = 0;
    for (reader, buffer) in pairs.readers.iter().zip(pool) {
        let outcome = match kind {
            Kind::Pipe => call::read_to_vec(reader, buffer),
            _ => call::receive_to_vec(reader, buffer),
        };
        found += match outcome {
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            Err(error) => return Err(error),
        };
    }
    expect(found, expected)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_exclude_the_cost_of_entering_the_kernel() {
        let count = COUNT as f32;
        let times = Times {
            enter: 200.0,
            call: 300.0 * count,
            call_in_vain: 200.0 * count,
            together: 200.0 + 250.0 * count,
            together_in_vain: 200.0 + 100.0 * count,
        };
        let reads =
            Reads { call: 300.0, call_in_vain: 200.0, together: 250.0, together_in_vain: 100.0 };
        assert_eq!(times.per_read(), Some(reads));
        assert_eq!(Times::NONE.per_read(), None);
        for nonsense in [
            Times { together: 200.0, ..times },
            Times { call_in_vain: 0.0, ..times },
            Times { call: 1e9, ..times },
        ] {
            assert_eq!(nonsense.per_read(), None, "{nonsense:?}");
        }
    }

    #[test]
    fn each_kind_is_measured_even_without_time() {
        let ring = match RingCosts::calibrated() {
            Ok(ring) => ring,
            Err(error) => {
                eprintln!("skipped: no io_uring here: {error}");
                return;
            }
        };
        let prices = measure(ring, [Duration::ZERO; 3]).unwrap();
        for kind in Kind::MEASURED {
            let reads = prices.of(kind).reads;
            assert!(reads.call > 1.0 && reads.together > 1.0, "{kind:?}: {reads:?}");
        }
        assert!(std::ptr::eq(Prices::calibrated(), Prices::calibrated()));
    }
}
