//! `superpoll-lab compare`: two reports side by side, of two machines, kernels or commits.
//!
//! Each experiment names figures that are worth comparing; figures with the same name at the same
//! point in both reports are compared. A figure has a band: of a cost from its least round, which
//! is the figure, to the median round, since interference only adds to a cost; of other figures
//! from the least to the most of their rounds' values. Where the bands of both overlap, or the
//! figures are less than 5 % apart, it is a tie: the difference is below the spread of the rounds
//! themselves. Less is better for every figure.

use std::path::PathBuf;

use serde::Serialize;

use crate::claims::Finding;
use crate::document::Document;
use crate::error::{Error, Result};
use crate::experiment::Figure;
use crate::experiments;
use crate::record;
use crate::say;
use crate::statistics;
use crate::table::{self, Table};

/// Options of `superpoll-lab compare`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// The report.json of a run, or the file that --json wrote for one experiment
    #[arg(value_name = "A.json")]
    pub before: PathBuf,
    /// The report.json of another run, or another such file
    #[arg(value_name = "B.json")]
    pub after: PathBuf,
    /// All figures, including ties
    #[arg(long)]
    pub all: bool,
    /// Writes the comparison to this file, as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// The second report's result compared with the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Difference {
    /// Less: better.
    Less,
    /// More: worse.
    More,
    /// The difference is below the spread of the rounds.
    Tie,
}

/// One figure in both reports.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Pair {
    /// The experiment.
    pub experiment: String,
    /// In the first report.
    pub before: Figure,
    /// In the second report.
    pub after: Figure,
    /// The second against the first.
    pub ratio: f64,
    /// The meaning of the ratio.
    pub difference: Difference,
}

/// Two reports side by side.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Comparison {
    /// Where the first was measured.
    pub before: String,
    /// Where the second was measured.
    pub after: String,
    /// The figures that are in both reports.
    pub pairs: Vec<Pair>,
    /// The claims on which the reports differ: the name, and both verdicts.
    pub verdicts: Vec<(String, String, String)>,
    /// How many figures only one of the reports has.
    pub alone: usize,
}

/// A smaller difference than this is a tie, whatever the bands are.
const NOISE: f64 = 0.05;

fn difference(before: &Figure, after: &Figure) -> Difference {
    let ((low, high), (other_low, other_high)) = (before.band(), after.band());
    let ratio = after.value / before.value;
    if (ratio - 1.0).abs() < NOISE || (other_low <= high && low <= other_high) || ratio.is_nan() {
        Difference::Tie
    } else if after.value < before.value {
        Difference::Less
    } else {
        Difference::More
    }
}

/// Compares two reports.
pub(crate) fn compare(before: &Document, after: &Document) -> Result<Comparison> {
    let (mut pairs, mut alone) = (Vec::new(), 0);
    for experiment in experiments::ALL {
        let mut others = (experiment.figures)(&after.records);
        for figure in (experiment.figures)(&before.records) {
            let same = |other: &Figure| (&other.at, &other.name) == (&figure.at, &figure.name);
            let Some(place) = others.iter().position(same) else {
                alone += 1;
                continue;
            };
            let other = others.swap_remove(place);
            pairs.push(Pair {
                experiment: experiment.name.to_owned(),
                ratio: other.value / figure.value,
                difference: difference(&figure, &other),
                before: figure,
                after: other,
            });
        }
        alone += others.len();
    }
    if pairs.is_empty() {
        return Err(Error::usage(
            "the two reports have no figure in common: measure the same experiments with the same options",
        ));
    }
    let verdict = |findings: &[Finding], id: &str| {
        findings.iter().find(|one| one.id == id).map(|one| one.verdict)
    };
    let verdicts = before.claims.iter().filter_map(|one| {
        let other = verdict(&after.claims, &one.id)?;
        (other != one.verdict).then(|| (one.id.clone(), one.verdict.to_string(), other.to_string()))
    });
    Ok(Comparison {
        before: whence(before),
        after: whence(after),
        verdicts: verdicts.collect(),
        pairs,
        alone,
    })
}

fn whence(document: &Document) -> String {
    let origin = experiments::ALL.iter().find_map(|one| (one.origin)(&document.records));
    origin.map_or_else(String::new, |origin| {
        let here = origin.environment;
        let commit = here.commit.as_deref().unwrap_or("unknown");
        format!("{}, commit {commit}, {}", here.summary(), here.date)
    })
}

/// Returns a summary of each experiment: how many figures are less, more or the same, and their
/// median ratio.
pub(crate) fn summary(pairs: &[Pair]) -> Table {
    let mut table = Table::new(["experiment", "figures", "less", "tie", "more", "B/A, middle one"]);
    for experiment in experiments::ALL {
        let own: Vec<&Pair> =
            pairs.iter().filter(|pair| pair.experiment == experiment.name).collect();
        if own.is_empty() {
            continue;
        }
        let count = |difference| {
            own.iter().filter(|pair| pair.difference == difference).count().to_string()
        };
        let ratios: Vec<f64> = own.iter().map(|pair| pair.ratio).collect();
        table.row([
            experiment.name.to_owned(),
            own.len().to_string(),
            count(Difference::Less),
            count(Difference::Tie),
            count(Difference::More),
            format!("{:.2}", statistics::median(&ratios)),
        ]);
    }
    table
}

/// Returns a line for each figure; ties only if `all` is set.
pub(crate) fn figures(pairs: &[Pair], all: bool) -> Table {
    fn band(figure: &Figure) -> String {
        let (low, high) = figure.band();
        format!("{} to {}", number(low), number(high))
    }
    table::of(
        pairs.iter().filter(|pair| all || pair.difference != Difference::Tie),
        3,
        &[
            ("experiment", |pair| pair.experiment.clone()),
            ("at", |pair| pair.before.at.clone()),
            ("figure", |pair| pair.before.name.clone()),
            ("A", |pair| number(pair.before.value)),
            ("band", |pair| band(&pair.before)),
            ("B", |pair| number(pair.after.value)),
            ("band", |pair| band(&pair.after)),
            ("B/A", |pair| format!("{:.2}", pair.ratio)),
            ("", |pair| format!("{:?}", pair.difference).to_lowercase()),
        ],
    )
}

fn number(value: f64) -> String {
    if value.abs() < 100.0 { format!("{value:.2}") } else { format!("{value:.0}") }
}

/// Reads both reports, prints them side by side and writes the requested JSON.
pub(crate) fn run(options: &Options) -> Result<()> {
    let before = Document::read(&options.before)?;
    let after = Document::read(&options.after)?;
    let comparison = compare(&before, &after)?;
    if let Some(path) = &options.json {
        record::write(path, &record::json(&comparison, "the comparison")?)?;
    }
    crate::say!("A: {}\nB: {}\n", comparison.before, comparison.after)?;
    say::print(summary(&comparison.pairs))?;
    let lines = figures(&comparison.pairs, options.all);
    if lines.rows().is_empty() {
        crate::say!("\nno figure differs by more than its rounds do")?;
    } else {
        crate::say!("\n{lines}")?;
    }
    for (claim, one, other) in &comparison.verdicts {
        crate::say!("{claim}: {one} in A, {other} in B")?;
    }
    if comparison.alone > 0 {
        crate::say!("{} figures are in one of the two only", comparison.alone)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::Environment;
    use crate::experiments::Records;
    use crate::record::{Record, SCHEMA};
    use crate::wake;
    use crate::waking::Times;

    fn document(rows: &[(&str, f64, f64, f64)]) -> Document {
        let rows = rows.iter().map(|&(subject, low, middle, high)| wake::Row {
            subject: subject.to_owned(),
            times: Times {
                wake_ns_min: low,
                wake_ns_p50: middle,
                wake_ns_p90: high,
                ..Times::default()
            },
            ..wake::Row::default()
        });
        let record = Record::new("wake", Environment::here(), [], rows.collect());
        Document {
            schema: SCHEMA,
            run: None,
            claims: Vec::new(),
            records: Records { wake: Some(record), ..Records::default() },
            notes: Vec::new(),
        }
    }

    #[test]
    fn overlapping_bands_are_a_tie_and_others_less_or_more() {
        let before = document(&[
            ("same", 90.0, 100.0, 110.0),
            ("less", 90.0, 100.0, 110.0),
            ("more", 90.0, 100.0, 110.0),
            ("near", 99.9, 100.0, 100.1),
            ("gone", 1.0, 1.0, 1.0),
        ]);
        let after = document(&[
            ("near", 103.9, 104.0, 104.1),
            ("more", 140.0, 150.0, 160.0),
            ("less", 40.0, 50.0, 60.0),
            ("same", 105.0, 120.0, 140.0),
            ("new", 1.0, 1.0, 1.0),
            ("newer", 1.0, 1.0, 1.0),
        ]);
        let comparison = compare(&before, &after).unwrap();
        let found: Vec<(Difference, f64)> =
            comparison.pairs.iter().map(|pair| (pair.difference, pair.ratio)).collect();
        let expected = [
            (Difference::Tie, 1.2),
            (Difference::Less, 0.5),
            (Difference::More, 1.5),
            (Difference::Tie, 1.04),
        ];
        assert_eq!((found.as_slice(), comparison.alone), (&expected[..], 3));
        assert_eq!(figures(&comparison.pairs, false).rows().len(), 2);
        assert_eq!(figures(&comparison.pairs, true).rows().len(), 4);
        assert_eq!(summary(&comparison.pairs).rows()[0][1..5], ["4", "1", "2", "1"]);
    }

    #[test]
    fn reports_without_a_common_figure_are_refused() {
        let error = compare(&document(&[("a", 1.0, 1.0, 1.0)]), &document(&[])).unwrap_err();
        assert!(error.to_string().contains("no figure in common"), "{error}");
    }
}
