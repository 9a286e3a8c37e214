//! Sleeping, time limits and intervals.
//!
//! Time is `std::time::Instant`'s. Each engine has its timers in a hierarchical wheel with a
//! resolution of 8.2 microseconds, and the poller waits with nanoseconds, so that a sleep of a
//! hundred microseconds takes about that long. Nothing ends early. How late it ends depends on the
//! kernel's timer slack (50 microseconds unless set otherwise), and on the tasks that run before
//! it.
//!
//! After a pause of the thread (`SIGSTOP`, a virtual machine that was suspended, a task that
//! computes for long) bytes and events that have arrived go before timers: timers that are more
//! than 10 milliseconds late fire when the loop has asked about all descriptors and has run the
//! tasks that were due then.
//!
//! A timer belongs to no engine until it is polled and has to wait; then it belongs to the engine
//! of the task that polls it, until a task of another engine does. A timer that is not needed when
//! it is first polled never touches the wheel, for example when a request is answered before its
//! time limit is polled. You can therefore create a timer anywhere, outside of a runtime too.
//!
//! A time that lies too far ahead for the clock to count, such as `Duration::MAX` from now, means
//! never.

mod interval;
mod sleep;
mod timeout;
pub(crate) mod wheel;

use std::sync::OnceLock;
use std::time::{Duration, Instant};

pub use interval::{Interval, MissedTickBehavior, ZeroPeriod, interval, interval_at};
pub use sleep::{Sleep, sleep, sleep_until};
pub use timeout::{Elapsed, Timeout, timeout, timeout_at};

use crate::sys::clock;

/// More than the coarse clock lags behind, with ticks of 10 milliseconds at most.
const FAR: Duration = Duration::from_millis(50);

/// Returns whether a time is certainly far ahead, at a fifth of the price of the precise clock. A
/// machine that was stopped for a moment may err, and call a time far that has just passed.
#[inline]
pub(crate) fn is_far(time: Instant) -> bool {
    static START: OnceLock<(Instant, Duration)> = OnceLock::new();
    let (start, coarse) = START.get_or_init(|| (Instant::now(), clock::coarse()));
    let now = *start + clock::coarse().saturating_sub(*coarse);
    time.saturating_duration_since(now) > FAR
}

/// Returns the time a duration after another, or a time that will not come if the clock cannot
/// count that far.
#[inline]
fn after(start: Instant, duration: Duration) -> Instant {
    start.checked_add(duration).unwrap_or_else(|| never(start, duration))
}

/// Returns a time so far ahead that the wheel does not wait for it: some fraction of a duration
/// that is too long.
#[cold]
fn never(start: Instant, mut duration: Duration) -> Instant {
    loop {
        duration /= 2;
        if let Some(end) = start.checked_add(duration) {
            return end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_passed_is_not_far_and_what_is_hours_ahead_is() {
        let now = Instant::now();
        assert!(!is_far(now));
        assert!(is_far(now + Duration::from_secs(3600)));
        assert!(is_far(after(now, Duration::MAX)));
    }

    #[test]
    fn what_the_clock_cannot_count_never_comes() {
        let now = Instant::now();
        assert_eq!(after(now, Duration::from_nanos(1)), now + Duration::from_nanos(1));
        let million_years = Duration::from_secs(31_557_600_000_000);
        for duration in [Duration::MAX, Duration::MAX / 2, Duration::from_secs(1 << 63)] {
            assert!(after(now, duration) > now + million_years);
        }
    }
}
