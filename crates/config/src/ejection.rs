//! The rule by which a server that answers with errors is left out for a while.

use std::num::NonZeroU32;
use std::time::Duration;

use serde::Deserialize;
use serde::de::{Deserializer, Error};

use super::scalar;
use crate::table::table;

/// The most errors that a rule counts: as many are remembered of each server.
const MOST_ERRORS: u32 = 1000;

table! {
    /// When a server that answers with errors is left out, and for how long.
    ///
    /// An error is a response with a status of 5xx, or a request that has failed.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct Ejection {
        /// How many errors have to come `within` a time. Default: 5.
        pub errors: NonZeroU32 as "errors" = NonZeroU32::MIN.saturating_add(4),
        /// That time. Default: 10 s.
        pub within: Duration as "scalar::duration" = Duration::from_secs(10),
        /// The least share of these errors among the answers of that time. Default: 50 %.
        pub share: Percentage = Percentage(50),
        /// How long the server is left out; twice, three times and up to ten times as long if it is
        /// left out again soon. Default: 30 s.
        #[serde(rename = "for")]
        pub duration: Duration as "scalar::duration" = Duration::from_secs(30),
        /// The largest share of the servers that are left out at once; one server may always be,
        /// unless no other one is up. Default: 50 %.
        pub most: Percentage = Percentage(50),
    }
}

fn errors<'de, D: Deserializer<'de>>(deserializer: D) -> Result<NonZeroU32, D::Error> {
    let errors = NonZeroU32::deserialize(deserializer)?;
    match errors.get() <= MOST_ERRORS {
        true => Ok(errors),
        false => Err(D::Error::custom(format!("{errors} errors, expected 1 to {MOST_ERRORS}"))),
    }
}

/// A share as `50%`: from 1 to 100 hundredths.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Percentage(u8);

impl Percentage {
    /// Returns a share; `None` unless it is 1 to 100 hundredths.
    #[must_use]
    pub fn new(hundredths: u8) -> Option<Percentage> {
        (1..=100).contains(&hundredths).then_some(Percentage(hundredths))
    }

    /// The whole.
    pub const WHOLE: Percentage = Percentage(100);

    /// Returns the share in hundredths.
    #[must_use]
    pub fn hundredths(self) -> u8 {
        self.0
    }
}

impl<'de> Deserialize<'de> for Percentage {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Percentage, D::Error> {
        scalar::text(deserializer, "a share as \"50%\"", |text| {
            let digits = text.strip_suffix('%').map(str::trim_end);
            let is_number = |digits: &&str| digits.bytes().all(|byte| byte.is_ascii_digit());
            let share = digits.filter(is_number).and_then(|digits| digits.parse().ok());
            share
                .and_then(Percentage::new)
                .ok_or_else(|| format!("{text:?} is no share, expected \"1%\" to \"100%\""))
        })
    }
}
