//! An experiment: options in, rows out, and the presentation of the rows.
//!
//! Everything about an experiment is in its folder: `mod.rs` has the options, the row, and the
//! implementation of [`Experiment`] with tables and plots, `trial.rs` the measurement. The code
//! that runs, prints, draws and compares experiments knows this trait only; `experiments.rs` lists
//! all of them.

use std::fmt::Debug;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::options::Output;
use crate::record::{Figures, Record};
use crate::statistics::Ratio;
use crate::table::{Part, Table};

/// Measures an experiment with its options.
pub(crate) type Run<E> = fn(&<E as Experiment>::Options) -> Result<Record<<E as Experiment>::Row>>;

/// An experiment.
pub(crate) trait Experiment: Sized {
    /// The options of its command, with the place where results go.
    type Options: AsRef<Output>;
    /// A line of its record.
    type Row: Clone + Debug + Serialize + DeserializeOwned;
    /// The name of its command and of its record, and the stem of the record's file.
    const NAME: &'static str;
    /// Its subject, in a few words.
    const TITLE: &'static str;
    /// The procedure and the measured quantity, in a paragraph.
    const METHOD: &'static str;
    /// The words after `superpoll-lab` of a short run.
    const QUICK: &'static str;
    /// The words after `superpoll-lab` of a run that takes its time.
    const FULL: &'static str;
    /// Whether `superpoll-lab all` runs it: not if it needs a program that few machines have, or
    /// the whole machine.
    const IS_IN_ALL: bool = true;
    /// Whether a missed target of zero ends a run with an error, after its results. `verify` judges
    /// the records of the others, after two runs.
    const IS_STRICT: bool = false;
    /// The measured quantity, in a line above the printed tables; empty where the tables name it.
    const MEASURED: &'static str = "";
    /// Measures. The options that all experiments share are checked before.
    ///
    /// # Errors
    ///
    /// [`Error::Usage`](crate::error::Error::Usage) for options that make no sense,
    /// [`Error::Work`](crate::error::Error::Work) if a subject did not do its work, otherwise the
    /// error of the kernel, a server or a load generator.
    const RUN: Run<Self>;

    /// Returns the plots and tables, in order.
    fn parts(rows: &[Self::Row]) -> Vec<Part>;

    /// Returns the bounds that the rows have to keep.
    fn targets(_rows: &[Self::Row]) -> Vec<Target> {
        Vec::new()
    }

    /// Returns the figure of a row that is worth comparing with that of another report.
    fn figure(row: &Self::Row) -> Option<Figure>;
}

/// A measured figure, with the values of its rounds. Less is better.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Figure {
    /// The point and the subject.
    pub at: String,
    /// Its name, with the unit.
    pub name: String,
    /// The figure.
    pub value: f64,
    /// The lower end of its band.
    pub low: f64,
    /// The upper end of its band.
    pub high: f64,
}

impl Figure {
    /// Returns the figures of a subject whose rounds were timed: the loop's own time.
    pub(crate) fn of_rounds(at: String, figures: &Figures) -> Option<Figure> {
        let least = figures.block_ns_per_round_low;
        Some(Figure::of_cost(at, "loop, ns per round", least, figures.ns_per_round_median))
    }

    /// Returns the figure of a cost: interference only adds to it, so the least round counts, and
    /// its distance from the median is the spread.
    pub(crate) fn of_cost(at: String, name: &str, least: f64, median: f64) -> Figure {
        Figure { at, name: name.to_owned(), value: least, low: least, high: median }
    }

    /// Returns the figure of a ratio with its rounds, if there is one.
    pub(crate) fn of_ratios(at: String, name: &str, ratio: Option<Ratio>) -> Option<Figure> {
        let Ratio { median: value, low, high, .. } = ratio?;
        Some(Figure { at, name: name.to_owned(), value, low, high })
    }

    /// Returns the band; it always includes the figure itself.
    pub(crate) fn band(&self) -> (f64, f64) {
        (self.low.min(self.value), self.high.max(self.value))
    }
}

// Targets: bounds that a figure has to keep, and the results.

/// Subjects on io_uring, with targets of their own.
pub(crate) const RINGS: [&str; 2] = ["uring", "adaptive-uring"];

/// A promise and its result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Target {
    /// The promise.
    pub name: String,
    /// Not more than this.
    pub bound: f64,
    /// The worst measured value.
    pub measured: f64,
    /// Where that was.
    pub at: String,
}

impl Target {
    /// Returns whether the target is kept.
    pub(crate) fn is_kept(&self) -> bool {
        self.measured <= self.bound
    }
}

/// Returns the target with the worst of some measurements; `None` without measurements.
pub(crate) fn worst(
    name: impl Into<String>,
    bound: f64,
    measured: impl Iterator<Item = (f64, String)>,
) -> Option<Target> {
    let (measured, at) = measured.max_by(|a, b| a.0.total_cmp(&b.0))?;
    Some(Target { name: name.into(), bound, measured, at })
}

/// The targets of a record: a name, a bound, the rows to which it applies, and the value of each.
pub(crate) struct Targets<'a, Row> {
    rows: &'a [Row],
    /// Names the point of a row, for the targets that follow.
    pub at: fn(&Row) -> String,
    /// The targets that have a measurement.
    pub all: Vec<Target>,
}

impl<'a, Row> Targets<'a, Row> {
    /// Creates targets over these rows; `at` names the point of a row.
    pub(crate) fn new(rows: &'a [Row], at: fn(&Row) -> String) -> Targets<'a, Row> {
        Targets { rows, at, all: Vec::new() }
    }

    /// Adds a target with the worst value of the rows to which it applies.
    pub(crate) fn add(
        &mut self,
        name: impl Into<String>,
        bound: f64,
        applies: impl Fn(&Row) -> bool,
        value: impl Fn(&Row) -> Option<f64>,
    ) {
        let rows = self.rows.iter().filter(|row| applies(row));
        let measured = rows.filter_map(|row| Some((value(row)?, (self.at)(row))));
        self.all.extend(worst(name, bound, measured));
    }
}

/// Returns the targets of a run, each with the measured value.
pub(crate) fn table(targets: &[Target]) -> Table {
    let mut table = Table::new(["target", "worst at", "at most", "measured", "kept"]).names(2);
    for target in targets {
        let digits = |value: f64| format!("{value:.2}");
        table.row([
            target.name.clone(),
            target.at.clone(),
            digits(target.bound),
            if target.measured > target.bound && digits(target.measured) == digits(target.bound) {
                format!("{:.4}", target.measured)
            } else {
                digits(target.measured)
            },
            if target.is_kept() { "ok" } else { "missed" }.to_owned(),
        ]);
    }
    table
}
