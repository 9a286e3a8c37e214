//! A sweep over the ratio of active to all descriptors: its points, and the parameters that
//! distinguish them.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::channel::{self, Kind, Pairs};
use crate::error::{Error, Result};
use crate::experiment::Figure;
use crate::load::{Load, Placement};
use crate::measure::{self, Rounds, Sample};
use crate::options;
use crate::record::Figures;
use crate::run::Run;
use crate::subject::Entry;
use crate::table;

/// One subject at one point.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    /// Kind of the descriptors.
    pub kind: String,
    /// The placement of the active descriptors.
    pub placement: String,
    /// Descriptors watched.
    pub total: usize,
    /// How many descriptors were active in each round.
    pub active: usize,
    /// Of `superpoll-lab models` only: `try`, `signals`, `ask` or `register`; `none` for the floor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The poller.
    pub subject: String,
    /// Of `superpoll-lab models` only: the share of a processor that the subject takes while
    /// nothing happens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quiet_processor_share: Option<f64>,
    /// The measured figures.
    #[serde(flatten)]
    pub figures: Figures,
}

impl Row {
    /// Returns the ratio of active to all descriptors.
    pub(crate) fn atr(&self) -> f64 {
        self.active as f64 / self.total.max(1) as f64
    }

    /// Returns the figure that is worth comparing with that of another report.
    pub(crate) fn figure(&self) -> Option<Figure> {
        let Row { kind, placement, active, total, subject, .. } = self;
        let at = format!("{kind} {placement} {active}/{total}, {subject}");
        Figure::of_rounds(at, &self.figures)
    }
}

/// Returns the sweeps in a record: all rows of one kind, total and placement.
pub(crate) fn sweeps(rows: &[Row]) -> Vec<(String, Vec<&Row>)> {
    table::groups(rows, |row| format!("{} {} {}", row.kind, row.total, row.placement))
}

/// A point of a sweep.
pub(crate) struct Point<'a> {
    /// Kind of the descriptors.
    pub kind: Kind,
    /// Where the active descriptors lie.
    pub placement: Placement,
    /// Descriptors.
    pub total: usize,
    /// How many of them are active in each round.
    pub active: usize,
    /// The descriptors.
    pub pairs: &'a Pairs,
    /// The active ones.
    pub load: Load,
}

impl Point<'_> {
    /// Measures subjects in turn, with these numbers of rounds to warm up: of those that adapt, and
    /// of the others. Returns the row of each, with the ratios that `relate` fills in.
    pub(crate) fn rows(
        &self,
        run: &mut Run<'_>,
        entries: &[Entry],
        (warm_up_adaptive, warm_up): (usize, usize),
        relate: impl FnOnce(&mut [(&str, &mut Figures)]),
    ) -> Result<Vec<Row>> {
        let Point { kind, placement, total, active, pairs, ref load } = *self;
        let Run { budget, lost, progress, .. } = &mut *run;
        let slot = budget.slot(entries.len(), ROUNDS);
        let measured = measure::rounds_in(pairs, load, slot)?;
        let rounds = Rounds { warm_up_adaptive, warm_up, measured };
        let told = |entry: &Entry| {
            progress.step(format!("{kind} {active}/{total} {placement} {}", entry.name));
        };
        let outcomes = measure::interleave(pairs, entries, load, rounds, budget, lost, told)?;
        let figures = measure::figures(&outcomes, Sample::Round, relate);
        if let Some(reason) = figures.first().and_then(|(_, figures)| figures.no_ratio.as_ref()) {
            run.note(format!("{kind} {active}/{total} {placement}: no ratio: {reason}"));
        }
        let row = |(entry, figures): (Entry, Figures)| Row {
            kind: kind.name().to_owned(),
            placement: placement.name().to_owned(),
            total,
            active,
            subject: entry.name.to_owned(),
            figures,
            ..Row::default()
        };
        Ok(figures.into_iter().map(row).collect())
    }
}

/// The number of rounds that blocks are long for, unless the options give one.
const ROUNDS: usize = 5;

/// The ranges of a sweep, checked against the limits of this process.
#[derive(Debug)]
pub(crate) struct Sweep {
    /// Kinds of descriptors.
    pub kinds: Vec<Kind>,
    /// The placements of the active descriptors.
    pub placements: Vec<Placement>,
    /// Descriptors watched.
    pub totals: Vec<usize>,
    /// How many are active, if the options set that.
    active: Option<Vec<usize>>,
    /// The ratios that are visited otherwise, in addition to a single active descriptor.
    shares: &'static [f64],
    /// The differences between the measurement and the request, and why.
    pub notes: Vec<String>,
}

impl Sweep {
    /// Reads the options `--kind`, `--placement`, `--total` (read before) and `--active`.
    pub(crate) fn new(
        kind: &str,
        placement: &str,
        mut totals: Vec<usize>,
        active: Option<&str>,
        shares: &'static [f64],
    ) -> Result<Sweep> {
        let most = channel::most_pairs();
        let mut notes = Vec::new();
        for total in &mut totals {
            if *total == 0 {
                return Err(Error::usage("--total 0 watches nothing: give 1 or more"));
            }
            if *total > most {
                notes.push(format!(
                    "--total {total} needs {} descriptors and this process may open {}: measuring \
                     {most} (raise the hard limit with ulimit -Hn to measure all)",
                    *total * 2,
                    superpoll::limits::nofile().1,
                ));
                *total = most;
            }
        }
        totals.dedup();
        let active = active.map(|text| options::numbers("--active", text)).transpose()?;
        for &count in active.iter().flatten() {
            if count == 0 {
                return Err(Error::usage("--active 0 has nothing to wait for: give 1 or more"));
            }
            if let Some(total) = totals.iter().find(|&&total| count > total) {
                return Err(Error::usage(format!(
                    "--active {count} is more than the {total} descriptors there are: give at most \
                     {total}, or a larger --total"
                )));
            }
        }
        let (kinds, placements) = (options::kinds(kind)?, options::placements(placement)?);
        Ok(Sweep { kinds, placements, totals, active, shares, notes })
    }

    /// Lowers a total; no more descriptors than that can be active.
    pub(crate) fn lower(&mut self, total: usize, to: usize) {
        for one in self.totals.iter_mut().filter(|one| **one == total) {
            *one = to;
        }
        self.totals.dedup();
    }

    /// Returns how many are active at each point over `total`.
    pub(crate) fn points(&self, total: usize) -> Vec<usize> {
        if let Some(active) = &self.active {
            let mut active: Vec<usize> = active.iter().map(|&count| count.min(total)).collect();
            active.dedup();
            return active;
        }
        let of_all = |share: &f64| ((total as f64 * share).round() as usize).max(1);
        let mut points = vec![1];
        points.extend(self.shares.iter().map(of_all));
        points.dedup();
        points
    }

    /// Visits all points. `prepare` returns what all points over the same descriptors share, none
    /// if there is nothing to measure there; `measure` measures one of them, in the rounds of the
    /// run's budget.
    pub(crate) fn visit<T>(
        &self,
        run: &mut Run<'_>,
        mut prepare: impl FnMut(&mut Run<'_>, &Pairs) -> Result<Option<T>>,
        mut measure: impl FnMut(&mut Run<'_>, &Point<'_>, &T) -> Result<()>,
    ) -> Result<()> {
        for &kind in &self.kinds {
            for &total in &self.totals {
                let pairs = Pairs::open(kind, total)?;
                let Some(shared) = prepare(run, &pairs)? else { continue };
                for &placement in &self.placements {
                    for active in self.points(total) {
                        if run.budget.point() {
                            let load = Load::constant(placement.choose(total, active));
                            let point =
                                Point { kind, placement, total, active, pairs: &pairs, load };
                            let measured = measure(run, &point, &shared);
                            run.budget.keep(measured)?;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns what a record says of the ranges.
    pub(crate) fn parameters(&self) -> [(&'static str, Value); 3] {
        [
            ("kinds", json!(self.kinds.iter().map(|kind| kind.name()).collect::<Vec<_>>())),
            ("placements", json!(self.placements.iter().map(|one| one.name()).collect::<Vec<_>>())),
            ("totals", json!(self.totals)),
        ]
    }

    /// Returns the sizes of all points, for a budget.
    pub(crate) fn sizes(&self) -> Vec<usize> {
        let of_total = |&total: &usize| -> Vec<usize> {
            // The rest is the same at each point: starting subjects, and their first rounds.
            let size = |active: usize| active + total / 10 + 150;
            let own: Vec<usize> = self.points(total).into_iter().map(size).collect();
            own.repeat(self.placements.len())
        };
        self.totals.iter().flat_map(of_total).collect::<Vec<_>>().repeat(self.kinds.len())
    }

    /// Returns the number of points of all kinds, totals and placements.
    pub(crate) fn len(&self) -> usize {
        let points: usize = self.totals.iter().map(|&total| self.points(total).len()).sum();
        points * self.kinds.len() * self.placements.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sweep(totals: &[usize], active: Option<&str>) -> Result<Sweep> {
        Sweep::new("pipe,tcp", "end", totals.to_vec(), active, &[0.01, 0.5, 1.0])
    }

    #[test]
    fn one_is_active_at_the_first_point_and_then_a_share() {
        let found = sweep(&[20, 100], None).unwrap();
        assert_eq!(found.points(20), [1, 10, 20]);
        assert_eq!(found.points(100), [1, 50, 100]);
        assert_eq!((found.len(), found.notes.len()), (2 * (3 + 3), 0));
        assert_eq!(found.sizes()[..5], [153, 162, 172, 161, 210]);
        assert_eq!(found.sizes().len(), found.len());
        let asked = sweep(&[20, 100], Some("7,3")).unwrap();
        assert_eq!((asked.points(20), asked.len()), (vec![7, 3], 2 * (2 + 2)));
    }

    #[test]
    fn invalid_totals_are_refused_and_large_totals_are_lowered() {
        for (totals, active, part) in [
            (&[10, 0][..], None, "--total 0"),
            (&[10], Some("0"), "--active 0"),
            (&[10, 20], Some("1,11"), "--active 11 is more than the 10"),
        ] {
            let error = sweep(totals, active).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
        let most = channel::most_pairs();
        let found = sweep(&[usize::MAX / 4, most], None).unwrap();
        assert_eq!((found.totals, found.notes.len()), (vec![most], 1));
    }
}
