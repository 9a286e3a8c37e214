//! A claim: its text, its evaluation, and the verdict.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::experiments::Records;

/// The verdict on a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Verdict {
    /// The claim holds as stated.
    Holds,
    /// The claim holds in direction or for a part of the loads, not as stated.
    Partly,
    /// The claim does not hold on this machine.
    DoesNotHold,
    /// The experiment was not run, or not at the points that the claim needs.
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
pub(crate) struct Source {
    /// Its short name in records.
    pub text: &'static str,
    /// The author and the subject.
    pub title: &'static str,
    /// Its topic, in our words.
    pub about: &'static str,
    /// The claims that it makes.
    pub(super) claims: &'static [Claim],
}

/// The result of an evaluation; `None` if the records have no data for it.
pub(super) type Evaluation = Option<(Verdict, String)>;

impl Verdict {
    /// Returns this verdict with its reason.
    pub(super) fn because(self, reason: impl Into<String>) -> Evaluation {
        Some((self, reason.into()))
    }
}

/// A claim; made by [`claim`], and given its text by [`says`](Claim::says).
#[derive(Debug)]
pub(super) struct Claim {
    /// Its name, which stays the same from report to report.
    pub id: &'static str,
    /// The claim, in our words.
    pub says: &'static str,
    /// The experiment that tests it.
    pub experiment: &'static str,
    pub evaluate: Evaluate,
    /// The consequences for a server if the claim holds, and if it does not.
    pub means: Option<Means>,
}

type Evaluate = fn(&Records) -> Evaluation;

/// Returns the claim of this name, which an experiment tests and a function evaluates.
pub(super) const fn claim(id: &'static str, experiment: &'static str, evaluate: Evaluate) -> Claim {
    Claim { id, says: "", experiment, evaluate, means: None }
}

impl Claim {
    /// Sets the claim itself, in our words.
    pub(super) const fn says(self, says: &'static str) -> Claim {
        Claim { says, ..self }
    }

    /// Sets the consequences for a server if the claim holds, and if it does not.
    pub(super) const fn means(self, holds: &'static str, fails: &'static str) -> Claim {
        Claim { means: Some(Means { holds, fails }), ..self }
    }
}

/// Advice that depends on a verdict.
#[derive(Debug)]
pub(super) struct Means {
    pub holds: &'static str,
    pub fails: &'static str,
}

/// Returns the verdict on a figure that is claimed to be small: the claim holds up to the first
/// bound, and partly up to the second.
pub(super) fn at_most(value: f64, holds: f64, partly: f64) -> Verdict {
    if value <= holds {
        Verdict::Holds
    } else if value <= partly {
        Verdict::Partly
    } else {
        Verdict::DoesNotHold
    }
}

/// Returns the verdict on a figure that is claimed to be large: the claim holds from the first
/// bound, and partly from the second.
pub(super) fn at_least(value: f64, holds: f64, partly: f64) -> Verdict {
    at_most(-value, -holds, -partly)
}
