//! A time that takes four bytes, as each channel has one.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use superpoll_rt::time;

/// The first moment of this process.
static START: LazyLock<Instant> = LazyLock::new(time::now);

/// The nanoseconds between two moments: 64 in a second, so that there are enough for two years.
const STEP: u64 = 1_000_000_000 / 64;

/// The first moment that is no earlier than a time. So what is due some time after a moment is
/// never due too early.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment(u32);

impl Moment {
    pub(super) fn now() -> Moment {
        Moment::at(time::now())
    }

    pub(super) fn at(time: Instant) -> Moment {
        let since = time.saturating_duration_since(*START).as_nanos();
        Moment(u32::try_from(since.div_ceil(u128::from(STEP))).unwrap_or(u32::MAX))
    }

    /// Returns the moment as a time.
    pub(super) fn instant(self) -> Instant {
        *START + Duration::from_nanos(u64::from(self.0) * STEP)
    }

    /// Whether so much time has passed since then.
    pub(super) fn is_past(self, time: Duration, now: Instant) -> bool {
        self.left(time, now).is_zero()
    }

    /// Returns how much is left of so much time since then.
    pub(super) fn left(self, time: Duration, now: Instant) -> Duration {
        let since = Duration::from_nanos(u64::from(self.0) * STEP);
        since.saturating_add(time).saturating_sub(now.saturating_duration_since(*START))
    }
}
