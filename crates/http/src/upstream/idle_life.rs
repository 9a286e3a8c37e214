//! How long a server keeps an idle connection, as far as it shows.
//!
//! A request that meets the end of its connection fails, and not every one can be sent again. So a
//! connection is closed here before its server would do it: Node.js does after 5 s, others after a
//! minute or more, and few say so. Each idle connection is looked at now and then. If its server
//! has closed one, the server's limit lies between the age of the look before and that of now.
//!
//! ```text
//!   idle --> one was closed --> another was, and their limits agree --> a little less than that
//!    ^                            no: it is the first one                      |
//!    +------------------------------- after ten minutes -----------------------+
//! ```
//!
//! One closed connection proves nothing: a server that restarts closes connections of all ages. So
//! the second one has to have been idle from a later time on than the first was found closed.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// The shortest time.
const LEAST: Duration = Duration::from_secs(1);

/// The time after which a limit is found out anew.
const MEMORY: Duration = Duration::from_secs(600);

/// What an engine knows about a server.
#[derive(Debug)]
pub(super) struct IdleLife {
    /// The time of the configuration.
    usual: Duration,
    /// The limit lies between these ages, by the connections that were closed last; when that was
    /// found last.
    between: Cell<Option<(Duration, Duration, Instant)>>,
    /// The limit that is believed, and since when.
    known: Cell<Option<(Duration, Instant)>>,
}

impl IdleLife {
    /// Nothing is known yet, and idle connections are kept for the usual time.
    pub(super) fn new(usual: Duration) -> IdleLife {
        IdleLife { usual, between: Cell::default(), known: Cell::default() }
    }

    /// Returns for how long an idle connection is kept, unless that is the usual time.
    #[inline]
    pub(super) fn known(&self) -> Option<Duration> {
        self.known.get().map(|(limit, _)| limit)
    }

    /// Returns for how long an idle connection is kept.
    pub(super) fn limit(&self) -> Duration {
        self.known().unwrap_or(self.usual)
    }

    /// The same at a time, at which it may be forgotten.
    pub(super) fn at(&self, now: Instant) -> Duration {
        let known = self.known.get();
        self.known.set(known.filter(|(_, since)| now.saturating_duration_since(*since) < MEMORY));
        self.limit()
    }

    /// Notes that a server has closed a connection that was idle since the first of these times,
    /// was seen open at the second, and is found closed now.
    pub(super) fn was_closed(&self, (since, seen, now): (Instant, Instant, Instant)) {
        let age = |at: Instant| at.saturating_duration_since(since);
        let (open, closed) = (age(seen), age(now));
        if open.is_zero() {
            // Nobody has looked at it before.
            return;
        }
        let last = self.between.get();
        if last.is_some_and(|(_, _, found)| found >= since) {
            return;
        }
        let agreed = last.map(|(low, high, _)| (low.max(open), high.min(closed)));
        let agreed = agreed.filter(|(low, high)| low < high);
        let (low, high) = agreed.unwrap_or((open, closed));
        self.between.set(Some((low, high, now)));
        if agreed.is_some() {
            let limit = (low - low / 8).clamp(LEAST.min(self.usual), self.usual);
            self.known.set(Some((limit, now)));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const USUAL: Duration = seconds(50);

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// Connections that servers close one after another, by the ages at which they were open and
    /// closed.
    struct Closing {
        life: IdleLife,
        now: Instant,
    }

    impl Closing {
        fn new() -> Closing {
            Closing { life: IdleLife::new(USUAL), now: Instant::now() }
        }

        fn close(&mut self, open: Duration, closed: Duration) -> Duration {
            let since = self.now + seconds(1);
            self.now = since + closed;
            self.life.was_closed((since, since + open, self.now));
            self.life.at(self.now)
        }
    }

    #[test]
    fn two_findings_that_agree_are_believed_for_a_while() {
        let mut server = Closing::new();
        assert_eq!(server.close(seconds(3), seconds(8)), USUAL);
        // A restart ends connections of all ages.
        assert_eq!(server.close(seconds(20), seconds(25)), USUAL);
        let (at, restart) = (server.now, server.now - seconds(30));
        for age in [9, 8, 7] {
            server.life.was_closed((at - seconds(age), restart, at));
            server.life.was_closed((at - seconds(age), at - seconds(1), at));
        }
        assert_eq!(server.life.at(server.now), USUAL);
        assert_eq!(server.close(seconds(2), seconds(7)), USUAL);
        // Nobody has looked at it before.
        assert_eq!(server.close(seconds(0), seconds(5)), USUAL);
        assert_eq!(server.close(seconds(4), seconds(9)), Duration::from_millis(3500));
        server.now += MEMORY;
        assert_eq!(server.life.at(server.now), USUAL);
        assert_eq!(server.close(seconds(1), seconds(6)), Duration::from_millis(3500));
    }

    proptest! {
        /// A server with a limit is never given time for it, once two connections have shown it.
        #[test]
        fn connections_end_before_the_server_ends_them(
            limit in 1_500..49_000_u64,
            looks in prop::collection::vec((0..5_000_u64, 1..5_000_u64), 2..9),
        ) {
            let (mut server, limit) = (Closing::new(), Duration::from_millis(limit));
            for (before, behind) in looks {
                let open = limit.saturating_sub(Duration::from_millis(before));
                let kept = server.close(open.max(seconds(1)), limit + Duration::from_millis(behind));
                prop_assert!(kept == USUAL || kept < limit, "{:?}", server.life);
            }
            prop_assert!(server.life.at(server.now) < limit, "{:?}", server.life);
        }
    }
}
