//! Spinning: polling repeatedly for a short while before sleeping.
//!
//! A thread that sleeps takes tens of microseconds to run again. If the event that it waits for
//! tends to come within that time, spinning is faster, and not much more expensive; if not, it is
//! pure waste. Which of the two holds is not known beforehand, so the time spent spinning follows
//! the recent past: a sleep that turned out shorter than the longest allowed spin doubles the next
//! spin, a longer sleep halves it and soon ends it. Linux tunes the polling of an idle virtual
//! processor in the same way (`halt_poll_ns`).
//!
//! The cost is bounded twice: a single spin by the limit that the user sets, and all spins together
//! because an engine whose sleeps are long does not spin at all.

use std::time::Duration;

/// The shortest spin that is worth taking.
const SHORTEST: Duration = Duration::from_micros(4);

/// How long to spin before the next sleep.
#[derive(Debug)]
pub(crate) struct Spin {
    limit: Duration,
    duration: Duration,
}

impl Spin {
    /// Spins for at most `limit`; with zero, not at all.
    pub(crate) fn new(limit: Duration) -> Spin {
        Spin { limit, duration: Duration::ZERO }
    }

    /// Returns whether it may ever spin, so that sleeps have to be measured.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        !self.limit.is_zero()
    }

    /// Returns how long to spin before this sleep.
    pub(crate) fn duration(&self) -> Duration {
        self.duration
    }

    /// Notes that nothing came during the spin, and how long the sleep then took. A sleep without a
    /// spin is noted in the same way.
    pub(crate) fn record_sleep(&mut self, took: Duration) {
        self.duration = if took > self.limit {
            let half = self.duration / 2;
            if half < SHORTEST { Duration::ZERO } else { half }
        } else {
            (self.duration * 2).max(SHORTEST).min(self.limit)
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_micros(50);
    const LONG: Duration = Duration::from_millis(1);

    #[test]
    fn without_a_limit_it_never_spins() {
        let mut spin = Spin::new(Duration::ZERO);
        assert!(!spin.is_on());
        for took in [Duration::ZERO, SHORTEST, LONG] {
            spin.record_sleep(took);
            assert_eq!(spin.duration(), Duration::ZERO);
        }
    }

    #[test]
    fn short_sleeps_widen_it_up_to_the_limit() {
        let mut spin = Spin::new(LIMIT);
        assert_eq!(spin.duration(), Duration::ZERO, "it has to be earned");
        let windows: Vec<_> = (0..6)
            .map(|_| {
                spin.record_sleep(LIMIT);
                spin.duration().as_micros()
            })
            .collect();
        assert_eq!(windows, [4, 8, 16, 32, 50, 50]);
    }

    #[test]
    fn long_sleeps_narrow_it_to_nothing() {
        let mut spin = Spin::new(LIMIT);
        for _ in 0..5 {
            spin.record_sleep(SHORTEST);
        }
        let windows: Vec<_> = (0..5)
            .map(|_| {
                spin.record_sleep(LONG);
                spin.duration().as_micros()
            })
            .collect();
        assert_eq!(windows, [25, 12, 6, 0, 0]);
    }

    #[test]
    fn a_limit_below_the_shortest_spin_is_kept() {
        let limit = Duration::from_micros(1);
        let mut spin = Spin::new(limit);
        spin.record_sleep(Duration::ZERO);
        assert_eq!(spin.duration(), limit);
    }
}
