//! The claims of the five texts that this laboratory starts from, and the measurements for each.
//!
//! Every claim can be refuted by a measurement. It belongs to a text and to an experiment, is given
//! in our own words, and has an evaluation: a function of the records that returns a verdict with
//! its reason, or nothing where its experiment was not run. Verdicts must be the same in two runs
//! on one machine. So an evaluation compares ratios from one run, at the points of the sweep that
//! the claim is about, with bounds that noise does not reach. A ratio between the bounds "holds
//! partly". Each evaluation states its bounds in the reason or next to the code. The texts measured
//! other machines: where a claim has a number, the same direction with another number holds partly.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::experiments::{self, Records};

mod kernel;
mod majkowski;
mod shaw;

/// The texts, in the order of the page.
pub(crate) static SOURCES: [Source; 5] =
    [shaw::SOURCE, kernel::SOURCE, majkowski::SOURCE, majkowski::HAPROXY, majkowski::GHC];

/// A claim and its verdict.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Finding {
    /// The claim's name.
    pub id: String,
    /// The text that it is from.
    pub text: String,
    /// The claim.
    pub claim: String,
    /// The experiment that tests it.
    pub experiment: String,
    /// The verdict.
    pub verdict: Verdict,
    /// The measured figures, and why they give this verdict.
    pub reason: String,
}

/// Returns all claims, each with its text.
fn all() -> impl Iterator<Item = (&'static Source, &'static Claim)> {
    SOURCES.iter().flat_map(|source| source.claims.iter().map(move |claim| (source, claim)))
}

/// Judges every claim by the records.
pub(crate) fn evaluate(records: &Records) -> Vec<Finding> {
    all()
        .map(|(source, claim)| {
            let (verdict, reason) = (claim.evaluate)(records).unwrap_or_else(|| {
                (
                    Verdict::NotMeasured,
                    format!("superpoll-lab {} measures it", experiments::command(claim.experiment)),
                )
            });
            Finding {
                id: claim.id.to_owned(),
                text: source.text.to_owned(),
                claim: claim.says.to_owned(),
                experiment: claim.experiment.to_owned(),
                verdict,
                reason,
            }
        })
        .collect()
}

/// Returns the number of claims with each verdict, in words.
pub(crate) fn tally(findings: &[Finding]) -> String {
    let count = |verdict| findings.iter().filter(|one| one.verdict == verdict).count();
    format!(
        "Of {} claims {} hold, {} hold partly, {} do not hold here, {} not measured",
        findings.len(),
        count(Verdict::Holds),
        count(Verdict::Partly),
        count(Verdict::DoesNotHold),
        match count(Verdict::NotMeasured) {
            1 => "1 was".to_owned(),
            more => format!("{more} were"),
        },
    )
}

/// Returns the consequences of the verdicts for a server, a line for each claim that has any.
pub(crate) fn advice(findings: &[Finding]) -> Vec<String> {
    findings
        .iter()
        .filter_map(|finding| {
            let (_, claim) = all().find(|(_, claim)| claim.id == finding.id)?;
            let means = claim.means.as_ref()?;
            match finding.verdict {
                Verdict::Holds => Some(means.holds.to_owned()),
                Verdict::DoesNotHold => Some(means.fails.to_owned()),
                Verdict::Partly | Verdict::NotMeasured => None,
            }
        })
        .collect()
}

// A claim: its text, its evaluation, and the verdict.

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
    claims: &'static [Claim],
}

/// The result of an evaluation; `None` if the records have no data for it.
type Evaluation = Option<(Verdict, String)>;

impl Verdict {
    /// Returns this verdict with its reason.
    fn because(self, reason: impl Into<String>) -> Evaluation {
        Some((self, reason.into()))
    }
}

/// A claim; made by [`claim`], and given its text by [`says`](Claim::says).
#[derive(Debug)]
struct Claim {
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
const fn claim(id: &'static str, experiment: &'static str, evaluate: Evaluate) -> Claim {
    Claim { id, says: "", experiment, evaluate, means: None }
}

impl Claim {
    /// Sets the claim itself, in our words.
    const fn says(self, says: &'static str) -> Claim {
        Claim { says, ..self }
    }

    /// Sets the consequences for a server if the claim holds, and if it does not.
    const fn means(self, holds: &'static str, fails: &'static str) -> Claim {
        Claim { means: Some(Means { holds, fails }), ..self }
    }
}

/// Advice that depends on a verdict.
#[derive(Debug)]
struct Means {
    pub holds: &'static str,
    pub fails: &'static str,
}

/// Returns the verdict on a figure that is claimed to be small: the claim holds up to the first
/// bound, and partly up to the second.
fn at_most(value: f64, holds: f64, partly: f64) -> Verdict {
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
fn at_least(value: f64, holds: f64, partly: f64) -> Verdict {
    at_most(-value, -holds, -partly)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments;

    #[test]
    fn every_claim_has_a_name_of_its_own_and_an_experiment() {
        let all: Vec<&Claim> = all().map(|(_, claim)| claim).collect();
        for (place, claim) in all.iter().enumerate() {
            assert!(all[place + 1..].iter().all(|other| other.id != claim.id), "{}", claim.id);
            let is_known = experiments::ALL.iter().any(|one| one.name == claim.experiment);
            assert!(is_known, "{}", claim.experiment);
            assert!(!claim.says.is_empty() && !claim.says.ends_with('.'), "{}", claim.id);
        }
        assert!(all.len() >= 40, "{}", all.len());
    }

    #[test]
    fn of_nothing_nothing_follows() {
        let findings = evaluate(&Records::default());
        assert!(findings.iter().all(|one| one.verdict == Verdict::NotMeasured));
        assert!(advice(&findings).is_empty());
        assert!(tally(&findings).contains(&format!("{} were not measured", findings.len())));
    }

    #[test]
    fn bounds_are_inclusive_and_ordered() {
        let verdicts = [1.0, 1.1, 1.2, 1.3].map(|value| at_most(value, 1.0, 1.2));
        assert_eq!(
            verdicts,
            [Verdict::Holds, Verdict::Partly, Verdict::Partly, Verdict::DoesNotHold]
        );
        let verdicts = [3.0, 2.0, 1.0].map(|value| at_least(value, 3.0, 2.0));
        assert_eq!(verdicts, [Verdict::Holds, Verdict::Partly, Verdict::DoesNotHold]);
    }
}
