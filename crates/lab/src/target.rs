//! Targets: bounds that a figure has to keep, and the results.

use serde::{Deserialize, Serialize};

use crate::table::Table;

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
