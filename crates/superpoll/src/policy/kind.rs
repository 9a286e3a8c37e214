//! The placement policy as users choose it: in a builder, a configuration or the environment.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};
use crate::policy::Thresholds;

/// The environment variable that chooses a placement policy where the program did not.
pub const POLICY_VARIABLE: &str = "SUPERPOLL_POLICY";

/// A placement policy, by a name or by thresholds.
///
/// Only the adaptive back-end has one. It is read and shown as `adaptive`, `idle-server`,
/// `media-server`, or as thresholds such as `hot_atr=0.6,cold_atr=0.6,hold=32`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PolicyKind {
    /// By each descriptor's activity and the measured costs, [`CostBased`](super::CostBased).
    #[default]
    Adaptive,
    /// By the ratio of each set, at these thresholds: [`RatioPolicy`](super::RatioPolicy).
    Ratio(Thresholds),
}

/// The names of the policies that have one.
const NAMES: [(&str, PolicyKind); 3] = [
    ("adaptive", PolicyKind::Adaptive),
    ("idle-server", PolicyKind::Ratio(Thresholds::IDLE_SERVER)),
    ("media-server", PolicyKind::Ratio(Thresholds::MEDIA_SERVER)),
];

impl PolicyKind {
    /// Returns the policy that [`POLICY_VARIABLE`] names, or the default.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownPolicy`] if the variable names none.
    pub fn from_environment() -> Result<PolicyKind> {
        match std::env::var_os(POLICY_VARIABLE) {
            Some(text) if !text.is_empty() => text.to_string_lossy().parse(),
            _ => Ok(PolicyKind::default()),
        }
    }
}

impl fmt::Display for PolicyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (NAMES.iter().find(|(_, kind)| kind == self), self) {
            (Some((name, _)), _) => f.write_str(name),
            (None, PolicyKind::Ratio(thresholds)) => thresholds.fmt(f),
            (None, PolicyKind::Adaptive) => unreachable!("it has a name"),
        }
    }
}

impl FromStr for PolicyKind {
    type Err = Error;

    fn from_str(text: &str) -> Result<PolicyKind> {
        if let Some((_, kind)) = NAMES.iter().find(|(name, _)| *name == text) {
            return Ok(*kind);
        }
        let reason = if text.contains('=') {
            match text.parse() {
                Ok(thresholds) => return Ok(PolicyKind::Ratio(thresholds)),
                Err(reason) => reason,
            }
        } else {
            "it is no name".to_owned()
        };
        Err(Error::UnknownPolicy { text: text.to_owned(), reason })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_read_as_they_are_shown() {
        for (text, kind) in NAMES {
            assert_eq!(
                (text.parse::<PolicyKind>().unwrap(), kind.to_string()),
                (kind, text.into())
            );
        }
        let kind = PolicyKind::Ratio(Thresholds::new(0.25, 0.75, 3).unwrap());
        assert_eq!(kind.to_string(), "hot_atr=0.25,cold_atr=0.75,hold=3");
        assert_eq!(kind.to_string().parse::<PolicyKind>().unwrap(), kind);
        assert_eq!(PolicyKind::default().to_string(), "adaptive");
    }

    #[test]
    fn what_is_no_policy_is_named_with_the_reason() {
        for (text, expected) in [
            ("media", "no placement policy is \"media\": it is no name; "),
            ("hot_atr=2", "setting hot_atr to 2: a ratio is a number from 0 to 1"),
            ("hot_atr=0.9,cold_atr=0.1", "hot_atr is at most cold_atr"),
            ("hot_atr=0.1,cold_atr=0.7, hot_atr=0.2", "hot_atr is given twice"),
            ("heat=2", "is none of hot_atr, cold_atr and hold"),
        ] {
            let error = text.parse::<PolicyKind>().unwrap_err().to_string();
            assert!(error.contains(expected) && error.contains(POLICY_VARIABLE), "{error}");
        }
    }
}
