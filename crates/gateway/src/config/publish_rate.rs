//! The rate at which one client may publish.

use std::fmt;
use std::num::NonZeroU32;
use std::time::Duration;

use serde::de::{Deserializer, Error, Visitor};

/// The most messages in a second or in a minute.
const MOST: u32 = 1_000_000;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// A number of messages in a second or in a minute.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PublishRate {
    messages: NonZeroU32,
    period: Duration,
}

impl PublishRate {
    /// Returns the time between two messages at this rate.
    pub(crate) fn interval(self) -> Duration {
        self.period / self.messages.get()
    }

    /// Returns the most messages at once: those of one second, and at least one.
    pub(crate) fn burst(self) -> u32 {
        let seconds = u32::try_from(self.period.as_secs()).unwrap_or(u32::MAX);
        (self.messages.get() / seconds).max(1)
    }

    /// Reads a rate as `20/s`.
    pub(crate) fn parse(text: &str) -> Option<PublishRate> {
        let (messages, period) = text.split_once('/')?;
        let is_number = messages.bytes().all(|byte| byte.is_ascii_digit());
        let messages = messages.parse().ok().filter(|messages| is_number && *messages <= MOST)?;
        let period = match period {
            "s" => SECOND,
            "m" => MINUTE,
            _ => return None,
        };
        Some(PublishRate { messages: NonZeroU32::new(messages)?, period })
    }
}

/// Writes it for people, as `20 messages a second`.
impl fmt::Display for PublishRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let messages = if self.messages.get() == 1 { "message" } else { "messages" };
        let period = if self.period == MINUTE { "minute" } else { "second" };
        write!(f, "{} {messages} a {period}", self.messages)
    }
}

struct RateText;

impl Visitor<'_> for RateText {
    type Value = PublishRate;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a rate as \"20/s\" or \"300/m\"")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<PublishRate, E> {
        PublishRate::parse(text).ok_or_else(|| {
            E::custom(format!(
                "{text:?} is no rate, expected one as \"20/s\" or \"300/m\", of at most {MOST}"
            ))
        })
    }
}

/// Reads a rate that is given.
pub(super) fn some<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<PublishRate>, D::Error> {
    deserializer.deserialize_any(RateText).map(Some)
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
        ] {
            let rate = PublishRate::parse(text).unwrap();
            let found = (rate.interval().as_nanos(), rate.burst());
            assert_eq!((found, rate.to_string()), ((interval, burst), words.to_owned()), "{text}");
        }
        for text in
            ["", "20", "/s", "0/s", "-1/s", "+1/s", "1.5/s", "20/h", "20/s ", " 20/s", "1000001/s"]
        {
            assert_eq!(PublishRate::parse(text), None, "{text:?}");
        }
    }
}
