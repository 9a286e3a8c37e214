//! Rates: so many events in a second or in a minute.

use std::fmt;
use std::num::NonZeroU32;
use std::time::Duration;

use serde::de::Deserializer;

use super::scalar;

/// The most events in a second or in a minute, and at once.
const MOST: u32 = 1_000_000;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// A number of events in a second or in a minute, and of those that may come at once.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Rate {
    events: NonZeroU32,
    period: Duration,
    burst: NonZeroU32,
}

impl Rate {
    /// Returns the time between two events at this rate.
    #[inline]
    #[must_use]
    pub fn interval(self) -> Duration {
        self.period / self.events.get()
    }

    /// Returns the most events at once: by default those of one second, and at least one.
    #[inline]
    pub fn burst(self) -> u32 {
        self.burst.get()
    }

    /// Reads a rate as `20/s`, `300/m` or `20/s burst 40`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Rate> {
        let (rate, burst) = match text.split_once(" burst ") {
            Some((rate, burst)) => (rate, Some(number(burst)?)),
            None => (text, None),
        };
        let (events, period) = rate.split_once('/')?;
        let events = number(events)?;
        let period = match period {
            "s" => SECOND,
            "m" => MINUTE,
            _ => return None,
        };
        let of_a_second = events.get() / u32::try_from(period.as_secs()).unwrap_or(u32::MAX);
        let burst = burst.or(NonZeroU32::new(of_a_second)).unwrap_or(NonZeroU32::MIN);
        Some(Rate { events, period, burst })
    }

    /// As [`parse`](Rate::parse); the error says why the text is wrong.
    pub fn read(text: &str) -> Result<Rate, String> {
        Rate::parse(text).ok_or_else(|| {
            format!(
                "{text:?} is no rate, expected one as \"20/s\", \"300/m\" or \"20/s burst 40\", of at \
                 most {MOST}"
            )
        })
    }

    /// Returns the rate of some things in words, as `20 messages a second`.
    #[must_use]
    pub fn in_words(self, thing: &str) -> String {
        let s = if self.events.get() == 1 { "" } else { "s" };
        let period = if self.period == MINUTE { "minute" } else { "second" };
        format!("{} {thing}{s} a {period}", self.events)
    }
}

/// Writes it as it is read, without a burst.
impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let period = if self.period == MINUTE { 'm' } else { 's' };
        write!(f, "{}/{period}", self.events)
    }
}

/// Reads a positive number of events.
fn number(text: &str) -> Option<NonZeroU32> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok().filter(|number| is_number && *number <= MOST)?;
    NonZeroU32::new(number)
}

/// Reads a rate that is given.
pub(super) fn some<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Rate>, D::Error> {
    scalar::text(deserializer, "a rate as \"20/s\" or \"300/m\"", Rate::read).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read() {
        for (text, interval, burst, words) in [
            ("20/s", 50_000_000, 20, "20 messages a second"),
            ("1/s", 1_000_000_000, 1, "1 message a second"),
            ("1000000/s", 1_000, 1_000_000, "1000000 messages a second"),
            ("300/m", 200_000_000, 5, "300 messages a minute"),
            ("90/m", 666_666_666, 1, "90 messages a minute"),
            ("1/m", 60_000_000_000, 1, "1 message a minute"),
            ("20/s burst 40", 50_000_000, 40, "20 messages a second"),
            ("20/s burst 1", 50_000_000, 1, "20 messages a second"),
            ("1/m burst 1000000", 60_000_000_000, 1_000_000, "1 message a minute"),
        ] {
            let rate = Rate::parse(text).unwrap();
            let found = (rate.interval().as_nanos(), rate.burst());
            assert_eq!(
                (found, rate.in_words("message")),
                ((interval, burst), words.to_owned()),
                "{text}"
            );
        }
        for text in [
            "",
            "20",
            "/s",
            "0/s",
            "-1/s",
            "+1/s",
            "1.5/s",
            "20/h",
            "20/s ",
            " 20/s",
            "1000001/s",
            "20/s burst",
            "20/s burst 0",
            "20/s burst +1",
            "20/s burst 1000001",
            "20/s  burst 40",
            "20/s burst 40 burst 40",
        ] {
            assert_eq!(Rate::parse(text), None, "{text:?}");
        }
    }
}
