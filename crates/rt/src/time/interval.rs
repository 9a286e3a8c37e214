//! Ticks at equal distances.

use std::error::Error;
use std::fmt;
use std::future::poll_fn;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use super::sleep::{Sleep, sleep_until};
use crate::current_engine::now;
use crate::deadline::after;
use crate::engine;

/// How late a tick may be taken and still count as on time, the slack of timers aside: more than a
/// scheduler's hiccup, and less than the delays that callers have in mind when they ask for
/// [`MissedTickBehavior::Delay`].
const TOLERANCE: Duration = Duration::from_millis(1);

/// Ticks at once, and then each time the period is over. [`Interval::set_missed_tick_behavior`]
/// decides about ticks that are not taken in time.
///
/// # Errors
///
/// [`ZeroPeriod`] if the period is zero.
///
/// # Examples
///
/// ```
/// use std::time::{Duration, Instant};
/// use superpoll_rt::time::interval;
///
/// let runtime = superpoll_rt::Runtime::new()?;
/// let start = Instant::now();
/// let mut interval = interval(Duration::from_millis(1))?;
/// runtime.block_on(async {
///     for _ in 0..3 {
///         interval.tick().await;
///     }
/// });
/// assert!(start.elapsed() >= Duration::from_millis(2), "the first tick comes at once");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn interval(period: Duration) -> Result<Interval, ZeroPeriod> {
    interval_at(now(), period)
}

/// Like [`interval`], but with the first tick at a point in time.
///
/// # Errors
///
/// [`ZeroPeriod`] if the period is zero.
pub fn interval_at(start: Instant, period: Duration) -> Result<Interval, ZeroPeriod> {
    if period.is_zero() {
        return Err(ZeroPeriod(()));
    }
    let missed = MissedTickBehavior::default();
    Ok(Interval { sleep: sleep_until(start), period, missed })
}

/// An interval with a period of zero was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZeroPeriod(());

impl fmt::Display for ZeroPeriod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an interval with a period of zero would never wait; give it a longer one")
    }
}

impl Error for ZeroPeriod {}

/// The behavior of an [`Interval`] for ticks that were due but not taken in time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum MissedTickBehavior {
    /// They come one after the other without a wait, until the schedule is met again.
    #[default]
    Burst,
    /// They are not made up for, and the schedule starts again: the next tick comes a period after
    /// the late one was taken. A tick counts as late a millisecond after the
    /// [slack](crate::Builder::timer_slack) of its engine's timers, or after a period if that is
    /// shorter.
    Delay,
    /// They are left out: the next tick comes at the next time that the schedule has.
    Skip,
}

impl MissedTickBehavior {
    /// Returns when the next tick is due after a tick that was due at `scheduled` and is taken at
    /// `now`, with timers that have a slack.
    fn next(
        self,
        scheduled: Instant,
        now: Instant,
        period: Duration,
        slack: impl FnOnce() -> Duration,
    ) -> Instant {
        let late = now.saturating_duration_since(scheduled);
        let is_late = || late >= TOLERANCE.saturating_add(slack()).min(period);
        match self {
            MissedTickBehavior::Delay if is_late() => after(now, period),
            MissedTickBehavior::Skip if late >= period => {
                const SECOND: u128 = 1_000_000_000;
                let since_last = late.as_nanos() % period.as_nanos();
                let since_last =
                    Duration::new((since_last / SECOND) as u64, (since_last % SECOND) as u32);
                after(now, period - since_last)
            }
            _ => after(scheduled, period),
        }
    }
}

/// Ticks at equal distances, from [`interval`] and [`interval_at`].
#[derive(Debug)]
pub struct Interval {
    sleep: Sleep,
    period: Duration,
    missed: MissedTickBehavior,
}

impl Interval {
    /// Waits for the next tick, and returns the time for which it was scheduled.
    ///
    /// Cancel safety: dropping the future before its end loses no tick.
    ///
    /// # Panics
    ///
    /// Awaiting it panics, as long as its time has not arrived, where no runtime runs.
    pub async fn tick(&mut self) -> Instant {
        poll_fn(|cx| self.poll_tick(cx)).await
    }

    /// Like [`tick`](Interval::tick), for futures written by hand.
    ///
    /// # Panics
    ///
    /// Panics like [`tick`](Interval::tick).
    pub fn poll_tick(&mut self, cx: &mut Context<'_>) -> Poll<Instant> {
        ready!(self.sleep.poll_end(cx, true));
        let scheduled = self.sleep.deadline();
        let next = self.missed.next(scheduled, now(), self.period, timer_slack);
        self.sleep.reset(next);
        Poll::Ready(scheduled)
    }

    /// Makes the next tick come a period from now.
    pub fn reset(&mut self) {
        self.reset_at(after(now(), self.period));
    }

    /// Makes the next tick come at a point in time, and the later ticks at a period's distance from
    /// it.
    pub fn reset_at(&mut self, deadline: Instant) {
        self.sleep.reset(deadline);
    }

    /// Returns the time between two ticks.
    pub fn period(&self) -> Duration {
        self.period
    }

    /// Returns the behavior for ticks that were missed.
    pub fn missed_tick_behavior(&self) -> MissedTickBehavior {
        self.missed
    }

    /// Sets the behavior for ticks that are missed from now on.
    pub fn set_missed_tick_behavior(&mut self, behavior: MissedTickBehavior) {
        self.missed = behavior;
    }
}

/// Returns the slack of the timers of this thread's engine.
fn timer_slack() -> Duration {
    engine::with(|engine| engine.timers(|wheel| wheel.slack())).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_millis(10);

    /// Returns when the next tick is due, in microseconds after a tick that was due at 0 and taken
    /// after `late`.
    fn next(missed: MissedTickBehavior, late: u64, period: Duration) -> u128 {
        next_with(missed, late, period, Duration::ZERO)
    }

    fn next_with(missed: MissedTickBehavior, late: u64, period: Duration, slack: Duration) -> u128 {
        let scheduled = Instant::now();
        let now = scheduled + Duration::from_micros(late);
        missed.next(scheduled, now, period, || slack).duration_since(scheduled).as_micros()
    }

    #[test]
    fn a_tick_on_time_keeps_the_schedule() {
        for missed in
            [MissedTickBehavior::Burst, MissedTickBehavior::Delay, MissedTickBehavior::Skip]
        {
            for late in [0, 1, 60, 999] {
                assert_eq!(next(missed, late, PERIOD), 10_000, "{missed:?}, {late} us late");
            }
        }
    }

    #[test]
    fn a_late_tick_is_followed_as_its_behavior_says() {
        for (late, burst, delay, skip) in [
            (1_000, 10_000, 11_000, 10_000),
            (9_999, 10_000, 19_999, 10_000),
            (10_000, 10_000, 20_000, 20_000),
            (10_001, 10_000, 20_001, 20_000),
            (57_000, 10_000, 67_000, 60_000),
        ] {
            assert_eq!(next(MissedTickBehavior::Burst, late, PERIOD), burst, "{late} us late");
            assert_eq!(next(MissedTickBehavior::Delay, late, PERIOD), delay, "{late} us late");
            assert_eq!(next(MissedTickBehavior::Skip, late, PERIOD), skip, "{late} us late");
        }
        // A period shorter than the tolerance.
        let period = Duration::from_micros(100);
        assert_eq!(next(MissedTickBehavior::Delay, 99, period), 100);
        assert_eq!(next(MissedTickBehavior::Delay, 250, period), 350);
        assert_eq!(next(MissedTickBehavior::Skip, 250, period), 300);
    }

    #[test]
    fn a_tick_that_the_slack_has_held_up_keeps_the_schedule() {
        let slack = Duration::from_millis(3);
        for (late, delay) in [(999, 10_000), (3_999, 10_000), (4_000, 14_000), (57_000, 67_000)] {
            let found = next_with(MissedTickBehavior::Delay, late, PERIOD, slack);
            assert_eq!(found, delay, "{late} us late");
        }
        // A slack longer than the period: the schedule cannot be kept.
        let found = next_with(MissedTickBehavior::Delay, 10_000, PERIOD, Duration::MAX);
        assert_eq!(found, 20_000);
    }

    #[test]
    fn the_slack_is_that_of_the_engine() {
        assert_eq!(timer_slack(), Duration::ZERO, "no engine");
        let of = |builder: crate::Builder| {
            builder.build().unwrap().block_on(async { timer_slack() }).as_micros()
        };
        let tick = 9;
        let millis = 1_000;
        assert!((millis - tick..=millis).contains(&of(crate::Builder::default())));
        let long = crate::Builder::default().timer_slack(Duration::from_millis(70));
        assert!((70 * millis - tick..=70 * millis).contains(&of(long)));
        assert_eq!(of(crate::Builder::default().timer_slack(Duration::ZERO)), 0);
    }

    #[test]
    fn extreme_periods_neither_overflow_nor_stand_still() {
        let start = Instant::now();
        let century = Duration::from_secs(3_155_760_000);
        for missed in
            [MissedTickBehavior::Burst, MissedTickBehavior::Delay, MissedTickBehavior::Skip]
        {
            for period in [Duration::from_nanos(1), century, Duration::MAX] {
                let next = missed.next(start, start + century, period, || Duration::MAX);
                assert!(next > start, "{missed:?}, {period:?}");
                if missed != MissedTickBehavior::Burst {
                    assert!(next > start + century, "{missed:?}, {period:?}");
                }
            }
        }
    }

    #[test]
    fn a_period_of_zero_is_refused() {
        let error = interval(Duration::ZERO).unwrap_err();
        assert_eq!(
            error.to_string(),
            "an interval with a period of zero would never wait; give it a longer one"
        );
        assert_eq!(interval_at(Instant::now(), Duration::ZERO).unwrap_err(), error);
    }
}
