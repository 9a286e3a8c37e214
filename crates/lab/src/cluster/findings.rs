//! The figures of all rounds, up to the rows of the record.

use crate::cluster::Row;
use crate::statistics;

/// A figure of each round.
#[derive(Debug)]
struct Series {
    part: &'static str,
    subject: &'static str,
    subscribers: usize,
    figure: &'static str,
    unit: &'static str,
    rounds: Vec<f64>,
}

/// A figure: its name, its unit, and its value.
pub(super) type Named = (&'static str, &'static str, f64);

/// All figures.
#[derive(Debug, Default)]
pub(super) struct Findings(Vec<Series>);

impl Findings {
    /// Adds the figures of a round: of a part, a subject, and so many subscribers.
    pub(super) fn note(&mut self, of: (&'static str, &'static str, usize), figures: &[Named]) {
        let (part, subject, subscribers) = of;
        for &(figure, unit, value) in figures {
            let known = self.0.iter_mut().find(|one| {
                (one.part, one.subject, one.subscribers, one.figure)
                    == (part, subject, subscribers, figure)
            });
            match known {
                Some(series) => series.rounds.push(value),
                None => {
                    let rounds = vec![value];
                    self.0.push(Series { part, subject, subscribers, figure, unit, rounds });
                }
            }
        }
    }

    /// Returns a row for each figure.
    pub(super) fn rows(self) -> Vec<Row> {
        let row = |one: Series| Row {
            part: one.part.to_owned(),
            subject: one.subject.to_owned(),
            subscribers: one.subscribers,
            figure: one.figure.to_owned(),
            unit: one.unit.to_owned(),
            median: statistics::median(&one.rounds),
            least: statistics::minimum(&one.rounds),
            most: statistics::maximum(&one.rounds),
            rounds: one.rounds.len(),
        };
        self.0.into_iter().map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_those_of_the_middle_round() {
        let mut findings = Findings::default();
        for value in [3.0, 1.0, 8.0] {
            findings.note(("fault", "none", 9), &[("lost", "count", value)]);
        }
        findings.note(("fault", "flush", 9), &[("lost", "count", 4.0)]);
        let rows = findings.rows();
        let all: Vec<_> =
            rows.iter().map(|row| (row.median, row.least, row.most, row.rounds)).collect();
        assert_eq!(all, [(3.0, 1.0, 8.0, 3), (4.0, 4.0, 4.0, 1)]);
    }
}
