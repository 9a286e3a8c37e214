//! The clock of an engine: the system's monotonic clock, or one that a test has paused.
//!
//! A paused clock stands still until [`advance`](Clock::advance) moves it, or until its engine has
//! nothing to do: then the engine moves it to the next timer. So a test that waits for an hour
//! takes no time, and takes none more on a machine that is busy. A clock that continues again shows
//! the time at which it stood, and from there runs as fast as the system's.
//!
//! ```text
//! System --pause--> Paused --resume--> Resumed --pause--> Paused
//!                   ^    |
//!                   +----+ advance, or idle
//! ```
//!
//! Programs read the time far more often than tests pause a clock. As long as no clock of the
//! process was ever paused, a look at one static says so, and the system's clock is read at once.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Whether a clock of this process was ever paused.
static WAS_PAUSED: AtomicBool = AtomicBool::new(false);

/// Returns whether a clock may show another time than the system's.
#[inline]
pub(crate) fn was_paused() -> bool {
    // A thread that pauses its clock reads it afterwards. The clocks of other threads are their
    // own.
    WAS_PAUSED.load(Ordering::Relaxed)
}

/// The same, for a thread that has changed what an engine looks at once its clock is paused.
pub(crate) fn was_ever_paused() -> bool {
    WAS_PAUSED.load(Ordering::SeqCst)
}

#[derive(Clone, Copy, Debug, Default)]
enum Reading {
    #[default]
    System,
    Paused {
        at: Instant,
    },
    /// It showed `shown` when the system's clock showed `since`.
    Resumed {
        shown: Instant,
        since: Instant,
    },
}

/// The clock of one engine, used on its thread.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    reading: Cell<Reading>,
}

impl Clock {
    /// Returns the time.
    pub(crate) fn now(&self) -> Instant {
        match self.reading.get() {
            Reading::System => Instant::now(),
            Reading::Paused { at } => at,
            Reading::Resumed { shown, since } => shown + since.elapsed(),
        }
    }

    /// Returns the time that the system's clock shows when this clock shows `time`, unless it is
    /// paused until then.
    #[inline]
    pub(crate) fn system_time(&self, time: Instant) -> Instant {
        match self.reading.get() {
            Reading::System | Reading::Paused { .. } => time,
            Reading::Resumed { shown, since } => {
                let ahead = time.saturating_duration_since(shown);
                // Only a clock near its end could overflow; then the time does not come.
                since.checked_add(ahead).unwrap_or(time)
            }
        }
    }

    #[inline]
    pub(crate) fn is_paused(&self) -> bool {
        matches!(self.reading.get(), Reading::Paused { .. })
    }

    /// Stops it.
    pub(crate) fn pause(&self) {
        WAS_PAUSED.store(true, Ordering::SeqCst);
        self.reading.set(Reading::Paused { at: self.now() });
    }

    /// Lets it run on from the time that it shows.
    pub(crate) fn resume(&self) {
        self.reading.set(Reading::Resumed { shown: self.now(), since: Instant::now() });
    }

    /// Moves a paused clock ahead.
    pub(crate) fn advance(&self, duration: Duration) {
        if let Reading::Paused { at } = self.reading.get() {
            let at = at.checked_add(duration).expect("advancing a clock beyond its end");
            self.reading.set(Reading::Paused { at });
        }
    }

    /// Moves a paused clock to a time, unless that has passed.
    pub(crate) fn advance_to(&self, time: Instant) {
        if let Reading::Paused { at } = self.reading.get() {
            self.reading.set(Reading::Paused { at: at.max(time) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn a_paused_clock_moves_when_it_is_moved_and_never_back() {
        let clock = Clock::default();
        assert!(!clock.is_paused());
        clock.pause();
        let start = clock.now();
        assert_eq!((clock.now(), clock.is_paused()), (start, true));
        clock.advance(HOUR);
        clock.advance_to(start + HOUR / 2);
        assert_eq!(clock.now(), start + HOUR);
        clock.advance_to(start + 2 * HOUR);
        assert_eq!(clock.now(), start + 2 * HOUR);
    }

    #[test]
    fn a_clock_that_goes_on_shows_the_time_at_which_it_stood() {
        let clock = Clock::default();
        clock.pause();
        clock.advance(HOUR);
        let stood = clock.now();
        let before = Instant::now();
        clock.resume();
        let shown = clock.now();
        assert!(!clock.is_paused() && shown >= stood);
        assert!(shown <= stood + before.elapsed());
        // A timer of it is waited for by the system's clock.
        let (early, late) = (clock.system_time(stood + HOUR), Instant::now() + HOUR);
        assert!(before + HOUR <= early && early <= late);
        clock.pause();
        assert!(clock.now() >= shown);
    }
}
