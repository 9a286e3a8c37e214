//! One line in a while about a frequent event, so that a flood does not fill the disk.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Lets one event through in each period, whichever engine it is on, and counts the events that it
/// holds back.
#[derive(Debug)]
pub struct RateLimited {
    period: Duration,
    /// The earliest time of the next event, in ms since the first check of the process.
    next: AtomicU64,
    left_out: AtomicU64,
}

fn now() -> u64 {
    static BEGAN: OnceLock<Instant> = OnceLock::new();
    let since = BEGAN.get_or_init(Instant::now).elapsed();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

impl RateLimited {
    /// Creates a limit of one report per `period`.
    pub const fn new(period: Duration) -> RateLimited {
        RateLimited { period, next: AtomicU64::new(0), left_out: AtomicU64::new(0) }
    }

    /// Returns how many events were held back since the last one that passed, if this one passes.
    pub fn admit(&self) -> Option<u64> {
        self.admit_at(now())
    }

    fn admit_at(&self, now: u64) -> Option<u64> {
        let due = self.next.load(Ordering::Relaxed);
        let period = u64::try_from(self.period.as_millis()).unwrap_or(u64::MAX);
        let then = now.saturating_add(period);
        let is_first = |due| {
            let swapped =
                self.next.compare_exchange(due, then, Ordering::Relaxed, Ordering::Relaxed);
            swapped.is_ok()
        };
        if now >= due && is_first(due) {
            return Some(self.left_out.swap(0, Ordering::Relaxed));
        }
        self.left_out.fetch_add(1, Ordering::Relaxed);
        None
    }
}

/// Returns the addition to a line that stands for further events as well.
pub fn others(left_out: u64) -> String {
    match left_out {
        0 => String::new(),
        1 => "; 1 more like it since the last line".to_owned(),
        many => format!("; {many} more like it since the last line"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_event_per_period_passes_and_the_rest_are_counted() {
        let rate_limited = RateLimited::new(Duration::from_secs(1));
        assert_eq!(rate_limited.admit_at(5), Some(0));
        for at in [5, 6, 1004] {
            assert_eq!(rate_limited.admit_at(at), None);
        }
        assert_eq!(rate_limited.admit_at(1005), Some(3));
        assert_eq!(rate_limited.admit_at(1006), None);
        assert_eq!(rate_limited.admit_at(9000), Some(1));
        assert_eq!(others(0), "");
        assert!(others(1).contains("1 more") && others(2).contains("2 more"));
    }
}
