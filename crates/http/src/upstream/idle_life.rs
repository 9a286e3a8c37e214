//! How long a server keeps an idle connection, as far as it shows.
//!
//! A request that meets the end of its connection fails, and not every one can be sent again. So a
//! connection is closed here before its server would do it: Node.js does after 5 s, others after a
//! minute or more, and few say so. Each idle connection is looked at now and then. If its server
//! has closed one, the server's limit lies between the age of the look before and that of now.
//!
//! ```text
//!   50 s --> one was closed --> another was, and their limits agree --> a little less than that
//!    ^                            no: it is the first one                      |
//!    +------------------------------- after ten minutes -----------------------+
//! ```
//!
//! One closed connection proves nothing: a server that restarts closes connections of all ages.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// For how long an idle connection is kept: less than most servers do.
const USUAL: Duration = Duration::from_secs(50);

/// The shortest time.
const LEAST: Duration = Duration::from_secs(1);

/// The time after which a limit is found out anew.
const MEMORY: Duration = Duration::from_secs(600);

/// What an engine knows about a server.
#[derive(Default, Debug)]
pub(super) struct IdleLife {
    /// The limit lies between these ages, by the connections that were closed last.
    between: Cell<Option<(Duration, Duration)>>,
    /// The limit that is believed, and since when.
    known: Cell<Option<(Duration, Instant)>>,
}

impl IdleLife {
    /// Returns for how long an idle connection is kept, unless that is the usual time.
    #[inline]
    pub(super) fn known(&self) -> Option<Duration> {
        self.known.get().map(|(limit, _)| limit)
    }

    /// The same at a time, at which it may be forgotten.
    pub(super) fn at(&self, now: Instant) -> Duration {
        let known = self.known.get();
        self.known.set(known.filter(|(_, since)| now.saturating_duration_since(*since) < MEMORY));
        self.known().unwrap_or(USUAL)
    }

    /// Notes that a server has closed a connection after it was open at the first of these ages,
    /// and before the second.
    pub(super) fn was_closed(&self, open: Duration, closed: Duration, now: Instant) {
        let agreed = self.between.get().map(|(low, high)| (low.max(open), high.min(closed)));
        let agreed = agreed.filter(|(low, high)| low < high);
        self.between.set(Some(agreed.unwrap_or((open, closed))));
        if let Some((low, _)) = agreed {
            let limit = (low - low / 8).clamp(LEAST, USUAL);
            self.known.set(Some((limit, now)));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn two_findings_that_agree_are_believed_for_a_while() {
        let (life, start) = (IdleLife::default(), Instant::now());
        assert_eq!(life.at(start), USUAL);
        life.was_closed(seconds(3), seconds(8), start);
        assert_eq!((life.at(start), life.known()), (USUAL, None));
        // A restart.
        life.was_closed(seconds(20), seconds(25), start);
        assert_eq!(life.at(start), USUAL);
        life.was_closed(seconds(2), seconds(7), start);
        life.was_closed(seconds(4), seconds(9), start);
        assert_eq!(life.at(start), Duration::from_millis(3500));
        assert_eq!(life.at(start + MEMORY), USUAL);
        life.was_closed(seconds(0), seconds(6), start + MEMORY);
        assert_eq!(life.at(start + MEMORY), Duration::from_millis(3500));
    }

    proptest! {
        /// A server with a limit is never given time for it, once two connections have shown it.
        #[test]
        fn connections_end_before_the_server_ends_them(
            limit in 1_500..49_000_u64,
            looks in prop::collection::vec((0..5_000_u64, 1..5_000_u64), 2..9),
        ) {
            let (life, now) = (IdleLife::default(), Instant::now());
            let limit = Duration::from_millis(limit);
            for (before, behind) in looks {
                let open = limit.saturating_sub(Duration::from_millis(before));
                life.was_closed(open, limit + Duration::from_millis(behind), now);
            }
            prop_assert!(life.at(now) < limit, "{:?}", life);
        }
    }
}
