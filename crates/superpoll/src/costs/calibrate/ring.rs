//! Measures the cost of watching with io_uring here, by the same rules as the rest: sixteen
//! descriptors of a kind, the shortest time of each step, and slopes.
//!
//! Each repetition arms them, writes to them, fetches the events, reads the bytes back, and cancels
//! them, with one ring for all kinds.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::time::{Duration, Instant};

use super::{ABSURD, COUNT, Pairs, REPETITIONS, expect, time, times};
use crate::costs::{Kind, RingCosts, RingKindCosts};
use crate::error::{Error, Result};
use crate::stats::Calls;
use crate::sys::returns;
use crate::sys::uring::Ring;

/// When to stop measuring each kind, in microseconds from the start.
const STOPS: [u64; 3] = [800, 2_000, 4_000];

pub(in crate::costs) fn measure() -> Result<RingCosts> {
    returns::calibrate();
    let failed = |source| Error::system("measuring io_uring", None, source);
    let once = || {
        let mut ring = Ring::new(&mut Calls::default()).map_err(Error::no_io_uring)?;
        // As an engine's does.
        ring.stay(&mut Calls::default());
        measure_until(ring, STOPS.map(Duration::from_micros)).map_err(failed)
    };
    // A signal, or a disturbance in each of a step's repetitions, is not met twice.
    once().or_else(|error| match error {
        Error::System { .. } => once(),
        error => Err(error),
    })
}

fn measure_until(ring: Ring, stops: [Duration; 3]) -> io::Result<RingCosts> {
    let start = Instant::now();
    let mut bench = Bench { ring, calls: Calls::default() };
    let mut times = [Times::NONE; 3];
    for ((kind, stop), times) in Kind::MEASURED.into_iter().zip(stops).zip(&mut times) {
        bench.measure_kind(kind, start + stop, times)?;
    }
    let [pipe, unix, tcp] = times.map(|times| times.per_descriptor());
    let nonsense = || io::Error::other("the times make no sense");
    let (pipe, unix, tcp) =
        pipe.zip(unix).zip(tcp).map(|((a, b), c)| (a, b, c)).ok_or_else(nonsense)?;
    Ok(RingCosts { pipe, unix, tcp, enter: times[0].enter })
}

times! { enter, arm, wait, cancel, write_free, write_watched }

impl Times {
    /// The costs that follow; `None` if they make no sense.
    fn per_descriptor(&self) -> Option<RingKindCosts> {
        let beyond_a_call = |time: f32| (time - self.enter) / COUNT as f32;
        let costs = RingKindCosts {
            arm: beyond_a_call(self.arm),
            event: beyond_a_call(self.wait),
            wake: (self.write_watched - self.write_free) / COUNT as f32,
            cancel: beyond_a_call(self.cancel),
        };
        let all = [costs.arm, costs.event, costs.wake, costs.cancel, self.enter];
        all.iter().all(|&cost| cost > 1.0 && cost < ABSURD).then_some(costs)
    }
}

struct Bench {
    ring: Ring,
    calls: Calls,
}

impl Bench {
    /// Measures until the repetitions are done or the time is up; at least once.
    fn measure_kind(&mut self, kind: Kind, stop: Instant, times: &mut Times) -> io::Result<()> {
        let mut pairs = Pairs::new(kind)?;
        let readers: Vec<RawFd> = pairs.readers.iter().map(|reader| reader.as_raw_fd()).collect();
        for _ in 0..REPETITIONS {
            self.repetition(&mut pairs, &readers, times)?;
            if Instant::now() >= stop {
                break;
            }
        }
        Ok(())
    }

    fn repetition(
        &mut self,
        pairs: &mut Pairs,
        readers: &[RawFd],
        times: &mut Times,
    ) -> io::Result<()> {
        time(&mut times.write_free, || pairs.fill())?;
        pairs.drain()?;

        time(&mut times.arm, || self.arm(readers))?;
        // Twice, because the work before this has filled the caches with other data.
        for _ in 0..2 {
            expect(time(&mut times.enter, || self.ask())?, 0)?;
        }
        time(&mut times.write_watched, || pairs.fill())?;
        expect(time(&mut times.wait, || self.wait())?, COUNT)?;
        pairs.drain()?;
        time(&mut times.cancel, || self.cancel(readers))
    }

    fn arm(&mut self, readers: &[RawFd]) -> io::Result<()> {
        for (data, &fd) in readers.iter().enumerate() {
            self.ring.arm(&mut self.calls, fd, libc::POLLIN as u32, true, data as u64)?;
        }
        expect(self.ask()?, COUNT)
    }

    /// Makes a call, and returns how many changes it has submitted.
    fn ask(&mut self) -> io::Result<usize> {
        self.ring.wait_call(&mut self.calls, 0, 0, Some(Duration::ZERO))?.issue()
    }

    /// Fetches the completions that are there.
    fn wait(&mut self) -> io::Result<usize> {
        self.ask()?;
        let mut events = 0;
        while let Some(completion) = self.ring.fetch() {
            // A poll that failed would have ended.
            events += usize::from(completion.armed);
        }
        Ok(events)
    }

    /// Cancels all of them, and fetches the answers.
    fn cancel(&mut self, readers: &[RawFd]) -> io::Result<()> {
        for data in 0..readers.len() {
            self.ring.remove(&mut self.calls, data as u64)?;
        }
        self.ring.submit(&mut self.calls)?;
        let mut ended = 0;
        while let Some(completion) = self.ring.fetch() {
            ended += usize::from(!completion.armed);
        }
        expect(ended, COUNT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plausible() -> Times {
        Times {
            enter: 150.0,
            arm: 150.0 + 16.0 * 200.0,
            wait: 150.0 + 16.0 * 40.0,
            cancel: 150.0 + 16.0 * 430.0,
            write_free: 16.0 * 370.0,
            write_watched: 16.0 * 480.0,
        }
    }

    #[test]
    fn costs_exclude_the_cost_of_a_call() {
        let expected = RingKindCosts { arm: 200.0, event: 40.0, wake: 110.0, cancel: 430.0 };
        assert_eq!(plausible().per_descriptor(), Some(expected));
    }

    #[test]
    fn nonsense_is_no_cost() {
        assert_eq!(Times::NONE.per_descriptor(), None);
        let nonsense = [
            Times { arm: 150.0, ..plausible() },
            Times { wait: 1e7, ..plausible() },
            Times { cancel: 100.0, ..plausible() },
            Times { write_watched: 16.0 * 370.0, ..plausible() },
            Times { enter: 0.0, ..plausible() },
        ];
        for times in nonsense {
            assert_eq!(times.per_descriptor(), None, "{times:?}");
        }
    }

    #[test]
    fn each_kind_goes_through_all_steps_even_without_time() {
        let ring = match Ring::new(&mut Calls::default()) {
            Ok(ring) => ring,
            Err(error) => {
                eprintln!("skipped: no io_uring here: {error}");
                return;
            }
        };
        let mut bench = Bench { ring, calls: Calls::default() };
        for kind in Kind::MEASURED {
            let mut times = Times::NONE;
            bench.measure_kind(kind, Instant::now(), &mut times).unwrap();
            let steps = [times.enter, times.arm, times.wait, times.cancel];
            for time in steps.into_iter().chain([times.write_free, times.write_watched]) {
                assert!(time.is_finite() && time > 0.0, "{kind:?}: {times:?}");
            }
        }
    }

    #[test]
    fn ring_costs_are_measured_once_or_the_error_is_kept() {
        match (RingCosts::calibrated(), RingCosts::calibrated()) {
            (Ok(one), Ok(other)) => assert!(std::ptr::eq(one, other) && one.enter > 1.0),
            (Err(one), Err(other)) => assert!(std::ptr::eq(one, other)),
            other => panic!("{other:?}"),
        }
    }
}
