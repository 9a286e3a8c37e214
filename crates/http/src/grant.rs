//! The uses that a client makes of a channel; the rights of a subscriber, and their end.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::unix_time::unix_time;

superpoll::named! {
    /// The use that a client makes of a channel.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Use {
        /// It publishes messages.
        Publish = "publish",
        /// It gets messages.
        Subscribe = "subscribe",
    }
}

impl Use {
    /// Returns the word for a reason.
    pub fn doing(self) -> &'static str {
        match self {
            Use::Publish => "publishing",
            Use::Subscribe => "subscribing",
        }
    }
}

/// A number of 24 bits that differs where the rights of routes differ, as a rule.
pub type RightsMark = [u8; 3];

/// The rights of one client, as they were when it came. It takes eight bytes of each subscriber.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Grant {
    /// The second since 1970 after which it is void; zero: never.
    until: u32,
    /// Whether the client's WebSocket may publish.
    pub may_publish: bool,
    /// The mark of the rights that it was given by.
    pub mark: RightsMark,
}

impl Grant {
    /// Returns a grant without an end.
    pub const fn unlimited(may_publish: bool) -> Grant {
        Grant { until: 0, may_publish, mark: [0; 3] }
    }

    /// Returns a grant that ends after a second since 1970.
    pub fn until(second: Option<u64>, may_publish: bool) -> Grant {
        // Zero would be a grant without an end, and 1970 is as long over as the second after it.
        let until = second.map_or(0, |at| u32::try_from(at).unwrap_or(u32::MAX).max(1));
        Grant { until, may_publish, mark: [0; 3] }
    }

    /// Returns this grant of a subscriber together with its grant as a publisher: it ends with the
    /// first of them.
    pub fn and(self, publishes: Grant) -> Grant {
        let until = match (self.until, publishes.until) {
            (0, other) | (other, 0) => other,
            (one, other) => one.min(other),
        };
        Grant { until, may_publish: publishes.may_publish, ..self }
    }

    /// Returns it as one that was given by rights with this mark.
    pub fn by(self, mark: RightsMark) -> Grant {
        Grant { mark, ..self }
    }

    /// Returns the time that is left, zero if it is over; `None` if the grant has no end.
    pub fn left(self) -> Option<Duration> {
        let end = Duration::from_secs(u64::from(self.until) + 1);
        (self.until != 0).then(|| end.saturating_sub(unix_time()))
    }

    /// Returns the time until the grant ends, at most this long.
    #[inline]
    pub fn limit(self, longest: Duration) -> Duration {
        self.left().map_or(longest, |left| left.min(longest))
    }

    /// Whether the grant is void.
    #[inline]
    pub fn is_over(self) -> bool {
        self.left().is_some_and(|left| left.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_ends_after_its_second() {
        let now = unix_time().as_secs();
        let year = Duration::from_secs(365 * 24 * 60 * 60);
        let unlimited = Grant::until(None, false);
        assert_eq!(unlimited, Grant::unlimited(false));
        assert_eq!((unlimited.left(), unlimited.limit(year)), (None, year));
        for (until, is_over) in [(0, true), (now - 2, true), (now + 600, false), (u64::MAX, false)]
        {
            let grant = Grant::until(Some(until), true);
            assert_eq!(grant.is_over(), is_over, "{until}");
            assert!(grant.limit(year) <= year);
        }
        let grant = Grant::until(Some(now + 600), true);
        assert!(grant.left().is_some_and(|left| left > Duration::from_secs(500)));
        assert!(grant.limit(Duration::from_secs(1)) == Duration::from_secs(1));
    }

    #[test]
    fn the_first_of_two_ends_counts() {
        let grant = |until| Grant::until(until, false);
        let publishes = |until| Grant::until(until, true);
        for (one, two, both) in [
            (None, None, None),
            (Some(5), None, Some(5)),
            (None, Some(5), Some(5)),
            (Some(4), Some(5), Some(4)),
            (Some(6), Some(5), Some(5)),
        ] {
            assert_eq!(grant(one).and(publishes(two)), publishes(both));
        }
    }
}
