//! The time by the clock of the machine, as other programs and certificates count it.

use std::time::{Duration, SystemTime};

/// Returns the time since 1970; zero if the clock is before.
#[must_use]
pub fn unix_time() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

/// Returns the time, in seconds since 1970.
#[must_use]
#[inline]
pub fn seconds_now() -> u64 {
    unix_time().as_secs()
}
