//! The experiment `http`, for the command line and the report.

use crate::experiment::{Experiment, Figure, Run};
use crate::http::{Options, Row, plot, table};
use crate::part::Part;
use crate::target::{Target, Targets};

/// Web servers.
#[derive(Debug)]
pub(crate) struct Http;

impl Experiment for Http {
    type Options = Options;
    type Row = Row;
    const NAME: &'static str = "http";
    const TITLE: &'static str = "cost of a request to a web server";
    const METHOD: &'static str = "hyper answers thirteen bytes over HTTP/1 on connections that stay open, each with one \
             request in flight; only the runtime below it differs. Measured is the processor time of the \
             server's process, which has a processor to itself. “raw-epoll” answers canned bytes and is \
             the lower bound. Requests per second depend on the load generator too.";
    const QUICK: &'static str = "http --quick --seconds 8";
    const FULL: &'static str = "http --connections 1,64,1000 --seconds 90";
    const MEASURED: &'static str = "processor time of a web server for one request";
    #[cfg(feature = "http")]
    const RUN: Run<Self> = crate::http::trial::run;
    #[cfg(not(feature = "http"))]
    const RUN: Run<Self> = |_| {
        let text = "superpoll-lab http is not built in: build with --features http";
        Err(crate::error::Error::usage(text))
    };

    fn parts(rows: &[Row]) -> Vec<Part> {
        let plot = Part::plot("http.svg", plot::over_connections(rows));
        vec![plot, Part::Table(table::servers(rows))]
    }

    /// Returns the targets that `superpoll-lab http` measures, at 64 connections.
    fn targets(rows: &[Row]) -> Vec<Target> {
        let mut targets = Targets::new(rows, |row| row.subject.clone());
        let ours = ["superpoll-rt-epoll", "superpoll-rt-adaptive"];
        let applies = |row: &Row| row.connections == 64 && ours.contains(&&*row.subject);
        targets.add("http: CPU / tokio", 0.95, applies, |row| row.to_tokio.headline());
        targets.all
    }

    fn figure(row: &Row) -> Option<Figure> {
        Some(row.figures.compared(format!("{} connections, {}", row.connections, row.subject)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::ToTokio;

    #[test]
    fn web_servers_are_judged_at_64_connections() {
        let row = |subject: &str, connections, tokio_ratio| Row {
            subject: subject.to_owned(),
            connections,
            to_tokio: ToTokio { tokio_ratio, ..ToTokio::default() },
            ..Row::default()
        };
        let rows = [
            row("raw-epoll", 64, Some(0.2)),
            row("superpoll-rt-epoll", 64, Some(0.94)),
            row("superpoll-rt-adaptive", 64, Some(0.96)),
            row("superpoll-rt-poll", 64, Some(2.0)),
            row("superpoll-rt-adaptive", 1, Some(3.0)),
        ];
        let targets = Http::targets(&rows);
        assert_eq!((targets.len(), targets[0].measured), (1, 0.96));
        assert!(!targets[0].is_kept() && Http::targets(&rows[..2])[0].is_kept());
        assert!(Http::targets(&[row("superpoll-rt-epoll", 64, None)]).is_empty());
    }
}
