//! How the engines watch connections.

use std::fmt;
use std::time::Duration;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use superpoll::backend::policy::{PolicyKind, Thresholds};

use crate::scalar;
use crate::table::table;

/// The longest time that events are gathered.
const LONGEST: Duration = Duration::from_secs(1);

table! {
    /// How the engines watch connections.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct Engine {
        /// Where the back-end `adaptive` watches connections. Default: the value of
        /// `SUPERPOLL_POLICY`, else by costs.
        pub policy: Option<PolicyKind> as "policy" = None,
        /// The least time between two wake-ups of an engine for events; at most a second. Default:
        /// none.
        pub gather: Duration as "gather" = Duration::ZERO,
    }

    /// The thresholds of a policy.
    struct Ratios {
        hot_atr: f64 = 0.6,
        cold_atr: f64 = 0.6,
        hold: u32 = 32,
    }
}

struct PolicyVisitor;

impl<'de> Visitor<'de> for PolicyVisitor {
    type Value = PolicyKind;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a policy as \"idle-server\", or { hot_atr, cold_atr, hold }")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<PolicyKind, E> {
        match text.parse() {
            Ok(kind) if !text.contains('=') => Ok(kind),
            _ => Err(E::custom(format!(
                "{text:?} is no policy, expected \"adaptive\", \"idle-server\", \"media-server\" or \
                 {{ hot_atr, cold_atr, hold }}"
            ))),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<PolicyKind, A::Error> {
        let ratios = Ratios::deserialize(MapAccessDeserializer::new(map))?;
        let thresholds = Thresholds::new(ratios.hot_atr, ratios.cold_atr, ratios.hold);
        thresholds.map(PolicyKind::Ratio).map_err(A::Error::custom)
    }
}

fn policy<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<PolicyKind>, D::Error> {
    deserializer.deserialize_any(PolicyVisitor).map(Some)
}

fn gather<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let time = scalar::duration(deserializer)?;
    if time > LONGEST {
        return Err(D::Error::custom(format!("{time:?} is too long, expected at most 1s")));
    }
    Ok(time)
}
