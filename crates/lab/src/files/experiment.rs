//! The experiment `files`, for the command line and the report.

use crate::experiment::{Experiment, Figure, Run};
use crate::files::{Options, Row, plot, table, trial};
use crate::part::Part;
use crate::statistics::Ratio;
use crate::target::{Target, Targets};

/// Our own servers that users are meant to run.
const OURS: [&str; 2] = ["superpoll-epoll", "superpoll-adaptive"];

/// The number of connections at which the targets apply.
const CONNECTIONS: usize = 64;

/// The comparison of a server with another.
type Against = fn(&Row) -> Option<Ratio>;

/// For each length: the server to compare with, and the highest ratio of processor time that meets
/// the target.
const AGAINST: [(usize, &str, Against, f64); 3] = [
    (1 << 10, "files, 1 KiB: CPU / nginx", |row| row.nginx_ratio, 0.50),
    (1 << 10, "files, 1 KiB: CPU / hyper on tokio", |row| row.hyper_ratio, 0.70),
    (100 << 10, "files, 100 KiB: CPU / nginx", |row| row.nginx_ratio, 0.90),
];

/// Calls of `epoll_ctl` for a request on a connection that stays open.
const EPOLL_CTL: f64 = 0.05;

/// Servers of static files.
#[derive(Debug)]
pub(crate) struct Files;

impl Experiment for Files {
    type Options = Options;
    type Row = Row;
    const NAME: &'static str = "files";
    const TITLE: &'static str = "cost of sending a file";
    const METHOD: &'static str = "A file is asked for again and again on connections that stay open, each with one request \
             under way; every byte of every answer is checked. Measured is the processor time of the \
             server's process, which has a processor to itself; ratios are those of each round. \
             “Generator” is the share of its own processor that the load generator needs. Calls are those \
             that strace sees in another run, in which the server is slower.";
    const QUICK: &'static str =
        "files --quick --seconds 6 --subjects superpoll-epoll,superpoll-adaptive,nginx,hyper-tokio";
    const FULL: &'static str = "files --paced --seconds 90";
    const MEASURED: &'static str = "processor time of a server for one request for a file";
    const RUN: Run<Self> = trial::run;

    fn parts(rows: &[Row]) -> Vec<Part> {
        let plots = plot::connections(rows).into_iter().map(|connections| {
            Part::plot(format!("files-{connections}.svg"), plot::over_bytes(rows, connections))
        });
        plots.chain([Part::Table(table::servers(rows)), Part::Table(table::calls(rows))]).collect()
    }

    /// Returns the targets that `superpoll-lab files` measures, at 64 connections.
    fn targets(rows: &[Row]) -> Vec<Target> {
        let mut targets = Targets::new(rows, |row| row.subject.clone());
        let ours = |row: &Row, bytes: usize| {
            (row.bytes, row.connections) == (bytes, CONNECTIONS) && OURS.contains(&&*row.subject)
        };
        for (bytes, name, of, bound) in AGAINST {
            let ratio = |row: &Row| Some(of(row)?.headline().value);
            targets.add(name, bound, |row| ours(row, bytes), ratio);
        }
        let name = "files, 1 KiB: epoll_ctl calls by request";
        let changes = |row: &Row| row.figures.epoll_ctl_per_request;
        targets.add(name, EPOLL_CTL, |row| ours(row, 1 << 10), changes);
        targets.all
    }

    fn figure(row: &Row) -> Option<Figure> {
        let Row { subject, bytes, connections, figures, .. } = row;
        Some(figures.compared(format!("{bytes} bytes, {connections} connections, {subject}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::turns::Figures;

    #[test]
    fn each_length_is_judged_at_64_connections() {
        let row = |subject: &str, bytes, connections, nginx: f64, hyper: f64| Row {
            subject: subject.to_owned(),
            bytes,
            connections,
            nginx_ratio: Some(Ratio { median: nginx, ..Ratio::default() }),
            hyper_ratio: Some(Ratio { median: hyper, ..Ratio::default() }),
            figures: Figures { epoll_ctl_per_request: Some(0.1 * nginx), ..Figures::default() },
            ..Row::default()
        };
        let rows = [
            row("superpoll-epoll", 1024, 64, 0.45, 0.69),
            row("superpoll-adaptive", 1024, 64, 0.44, 0.71),
            row("superpoll-poll", 1024, 64, 3.0, 3.0),
            row("superpoll-epoll", 1024, 1, 3.0, 3.0),
            row("superpoll-epoll", 4096, 64, 3.0, 3.0),
            row("superpoll-epoll", 102_400, 64, 0.91, 3.0),
        ];
        let targets = Files::targets(&rows);
        let kept: Vec<_> = targets.iter().map(|t| (t.measured, t.is_kept())).collect();
        assert_eq!(kept, [(0.45, true), (0.71, false), (0.91, false), (0.1 * 0.45, true)]);
        assert!(Files::targets(&[]).is_empty());
        let alone = Row { nginx_ratio: None, hyper_ratio: None, ..rows[0].clone() };
        assert_eq!(Files::targets(&[alone]).len(), 1);
    }
}
