//! The experiment `echo`, for the command line and the report.

use crate::echo::{Options, Row, plot, table, trial};
use crate::experiment::{Experiment, Figure, Run};
use crate::part::Part;
use crate::statistics::Ratio;
use crate::target::{Target, Targets};

/// The comparison of a server with another.
type Against = fn(&Row) -> Option<Ratio>;

/// The experiment with servers that echo their input.
#[derive(Debug)]
pub(crate) struct Echo;

impl Experiment for Echo {
    type Options = Options;
    type Row = Row;
    const NAME: &'static str = "echo";
    const TITLE: &'static str = "cost of a request to an echo server";
    const METHOD: &'static str = "Each server echoes its input, on connections of which each has one short request \
             under way; every byte of every answer is checked. Measured is the processor time of the \
             server's process, which has a processor to itself; ratios are those of each round. \
             “Generator” is the share of its own processor that the load generator needs: at 100 % the \
             server has to wait for it, finds fewer requests at a time, and sleeps in between.";
    const QUICK: &'static str = "echo --quick --seconds 14";
    const FULL: &'static str = "echo --sweep --kind all --paced --seconds 120";
    const MEASURED: &'static str =
        "processor time of a server that echoes its input, for one request";
    const RUN: Run<Self> = trial::run;

    fn parts(rows: &[Row]) -> Vec<Part> {
        let plots = plot::kinds(rows)
            .into_iter()
            .map(|kind| Part::plot(format!("echo-{kind}.svg"), plot::over_connections(rows, kind)));
        plots.chain([Part::Table(table::servers(rows))]).collect()
    }

    /// Returns the targets that `superpoll-lab echo` measures, with a thousand TCP connections.
    fn targets(rows: &[Row]) -> Vec<Target> {
        let mut targets = Targets::new(rows, |row| format!("{} bytes", row.bytes));
        let against: [(&str, f64, Against); 2] = [
            ("raw epoll", 0.95, |row| row.raw_epoll_ratio),
            ("tokio", 0.92, |row| row.tokio_ratio),
        ];
        for subject in ["superpoll-rt-uring", "superpoll-reader-uring"] {
            let applies =
                |row: &Row| (&*row.subject, &*row.kind, row.connections) == (subject, "tcp", 1000);
            for (other, bound, ratio) in against {
                let name = format!("echo, 1000 TCP connections: CPU of {subject} / {other}");
                targets.add(name, bound, applies, |row| Some(ratio(row)?.headline().value));
            }
        }
        targets.all
    }

    fn figure(row: &Row) -> Option<Figure> {
        let Row { subject, kind, connections, figures, .. } = row;
        Some(figures.compared(format!("{connections} connections by {kind}, {subject}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn echo_servers_are_judged_at_a_thousand_tcp_connections() {
        let row = |subject: &str, kind: &str, connections, raw, tokio: Option<f64>| {
            let ratio = |median| Ratio { median, ..Ratio::default() };
            Row {
                subject: subject.to_owned(),
                kind: kind.to_owned(),
                connections,
                raw_epoll_ratio: Some(ratio(raw)),
                tokio_ratio: tokio.map(ratio),
                ..Row::default()
            }
        };
        let rows = [
            row("superpoll-rt-uring", "tcp", 1000, 0.96, Some(0.91)),
            row("superpoll-rt-uring", "tcp", 10, 3.0, Some(3.0)),
            row("superpoll-rt-uring", "unix", 1000, 3.0, Some(3.0)),
            row("superpoll-rt-epoll", "tcp", 1000, 3.0, Some(3.0)),
            row("superpoll-reader-uring", "tcp", 1000, 0.9, None),
        ];
        let kept: Vec<(f64, bool)> =
            Echo::targets(&rows).iter().map(|t| (t.measured, t.is_kept())).collect();
        assert_eq!(kept, [(0.96, false), (0.91, true), (0.9, true)]);
    }
}
