//! The claims of the five texts that this laboratory starts from, and the measurements for each.
//!
//! Every claim can be refuted by a measurement. It belongs to a text and to an experiment, is given
//! in our own words, and has an evaluation: a function of the records that returns a verdict with
//! its reason, or nothing where its experiment was not run. Verdicts must be the same in two runs
//! on one machine. So an evaluation compares ratios from one run, at the points of the sweep that
//! the claim is about, with bounds that noise does not reach. A ratio between the bounds "holds
//! partly". Each evaluation states its bounds in the reason or next to the code. The texts measured
//! other machines: where a claim has a number, the same direction with another number holds partly.

use serde::{Deserialize, Serialize};

use crate::experiments::{self, Records};

mod claim;
mod ghc;
mod haproxy;
mod kernel;
mod majkowski;
mod measured;
mod shaw;

use claim::Claim;
pub(crate) use claim::{Source, Verdict};

/// The texts, in the order of the page.
pub(crate) static SOURCES: [Source; 5] =
    [shaw::SOURCE, kernel::SOURCE, majkowski::SOURCE, haproxy::SOURCE, ghc::SOURCE];

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

#[cfg(test)]
mod tests {
    use super::claim::{at_least, at_most};
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
