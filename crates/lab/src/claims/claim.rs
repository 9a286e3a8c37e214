//! A claim: its text, its judge, and the verdict.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::experiments::Records;

/// What became of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// As it was claimed.
    Holds,
    /// In direction or for a part of the loads, not as it was claimed.
    Partly,
    /// Not on this machine.
    DoesNotHold,
    /// The experiment was not run, or not at the points that it takes.
    NotMeasured,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verdict::Holds => "holds",
            Verdict::Partly => "holds partly",
            Verdict::DoesNotHold => "does not hold here",
            Verdict::NotMeasured => "not measured",
        })
    }
}

/// A text.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    /// Its short name in records.
    pub text: &'static str,
    /// Who and what.
    pub title: &'static str,
    /// What it is about, in our words.
    pub about: &'static str,
}

/// What a judge finds: nothing where there is nothing to judge by.
pub type Found = Option<(Verdict, String)>;

/// A claim.
pub struct Claim {
    /// Its name, which stays the same from report to report.
    pub id: &'static str,
    /// What is claimed, in our words.
    pub says: &'static str,
    /// The experiment that tests it.
    pub experiment: &'static str,
    pub judge: fn(&Records) -> Found,
    /// What it means for a server if it holds, and if it does not.
    pub means: Option<Means>,
}

/// Advice that hangs on a verdict.
pub struct Means {
    pub holds: &'static str,
    pub fails: &'static str,
}

/// The verdict on a figure of which less is claimed: it holds up to the first bound, and partly up to the second.
pub fn at_most(value: f64, holds: f64, partly: f64) -> Verdict {
    if value <= holds {
        Verdict::Holds
    } else if value <= partly {
        Verdict::Partly
    } else {
        Verdict::DoesNotHold
    }
}

/// The verdict on a figure of which more is claimed: it holds from the first bound, and partly from the second.
pub fn at_least(value: f64, holds: f64, partly: f64) -> Verdict {
    at_most(-value, -holds, -partly)
}
