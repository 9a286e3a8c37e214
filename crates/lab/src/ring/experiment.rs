//! The experiment `ring`, for the command line and the report.

use crate::experiment::{Experiment, Figure, Run};
use crate::part::Part;
use crate::ring::{Options, Row, plot, table, trial};
use crate::target::{Target, Targets};

/// Pipes in a ring.
#[derive(Debug)]
pub(crate) struct Ring;

impl Experiment for Ring {
    type Options = Options;
    type Row = Row;
    const NAME: &'static str = "ring";
    const TITLE: &'static str = "pipes in a ring";
    const METHOD: &'static str = "A task between each two pipes passes on what it reads, up to 64 bytes at a time; the bytes \
             in flight go round for some laps. A hop is one byte through one pipe. Each subject has a \
             process of its own, and all take turns. “read+write” knows where the bytes are and never \
             waits.";
    const QUICK: &'static str = "ring --quick --seconds 20";
    const FULL: &'static str = "ring --sweep --seconds 180";
    const MEASURED: &'static str = "time for one byte to pass one pipe of a ring";
    const RUN: Run<Self> = trial::run;

    fn parts(rows: &[Row]) -> Vec<Part> {
        let pictures = [
            Part::Picture("ring.svg", plot::bars(rows)),
            Part::plot("ring-pipes.svg", plot::over_total(rows)),
            Part::plot("ring-in-flight.svg", plot::over_share(rows)),
        ];
        let points = table::points(rows).into_iter().flat_map(|((total, in_flight), rows)| {
            [Part::Heading(table::name(total, in_flight)), Part::Table(table::point(&rows))]
        });
        pictures.into_iter().chain(points).collect()
    }

    /// The targets that `superpoll-lab ring` measures, at a thousand pipes and one byte in flight.
    fn targets(rows: &[Row]) -> Vec<Target> {
        let mut targets = Targets::new(rows, |row| row.subject.clone());
        let one = |row: &Row| (row.total, row.in_flight) == (1000, 1);
        let peers = |row: &Row| one(row) && row.subject == "superpoll-rt-peers";
        let generic = |row: &Row| {
            one(row) && ["superpoll-rt-epoll", "superpoll-rt-adaptive"].contains(&&*row.subject)
        };
        targets.add("ring: time / tokio", 0.72, generic, |row| row.to_tokio.headline());
        targets.add("ring: time / raw epoll", 1.0, generic, Row::to_raw_epoll);
        targets
            .add("ring of known peers: time / tokio", 0.55, peers, |row| row.to_tokio.headline());
        // A read and a write, and from time to time the poller asks about all the remaining
        // descriptors.
        let name = "ring of known peers: syscalls per hop";
        targets.add(name, 2.02, peers, |row| row.syscalls_per_hop);
        let name = "ring: reads per hop, those that find nothing included";
        targets.add(name, 1.01, |row| generic(row) || peers(row), |row| row.reads_per_hop);
        targets.all
    }

    fn figure(row: &Row) -> Option<Figure> {
        Some(Figure::of_cost(
            format!("{} pipes, {} in flight, {}", row.total, row.in_flight, row.subject),
            "ns per hop",
            row.ns_per_hop_min,
            row.ns_per_hop_median,
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::ToTokio;

    #[test]
    fn rings_are_judged_at_a_thousand_pipes() {
        let row = |subject: &str, total, tokio_ratio| Row {
            subject: subject.to_owned(),
            total,
            in_flight: 1,
            to_tokio: ToTokio { tokio_ratio: Some(tokio_ratio), ..ToTokio::default() },
            ..Row::default()
        };
        let targets = Ring::targets(&[
            row("superpoll-rt-epoll", 1000, 0.7),
            row("superpoll-rt-adaptive", 1000, 0.8),
            row("superpoll-rt-poll", 1000, 30.0),
            row("superpoll-rt-peers", 1000, 0.5),
            row("superpoll-rt-peers", 10, 5.0),
        ]);
        let kept: Vec<(f64, bool)> = targets.iter().map(|t| (t.measured, t.is_kept())).collect();
        assert_eq!(kept, [(0.8, false), (0.5, true)]);
        assert_eq!(targets[0].at, "superpoll-rt-adaptive");
    }
}
