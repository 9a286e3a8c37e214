//! Points in time that lie ahead: how far, and beyond what the clock can count.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

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
pub(crate) fn after(start: Instant, duration: Duration) -> Instant {
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
    fn a_past_time_is_not_far_and_one_hours_ahead_is() {
        let now = Instant::now();
        assert!(!is_far(now));
        assert!(is_far(now + Duration::from_secs(3600)));
        assert!(is_far(after(now, Duration::MAX)));
    }

    #[test]
    fn a_time_beyond_the_clock_never_comes() {
        let now = Instant::now();
        assert_eq!(after(now, Duration::from_nanos(1)), now + Duration::from_nanos(1));
        let million_years = Duration::from_secs(31_557_600_000_000);
        for duration in [Duration::MAX, Duration::MAX / 2, Duration::from_secs(1 << 63)] {
            assert!(after(now, duration) > now + million_years);
        }
    }
}
