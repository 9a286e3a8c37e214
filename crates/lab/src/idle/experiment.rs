//! The experiment `idle`, for the command line and the report.

use crate::experiment::{Experiment, Figure, Run};
use crate::idle::{Options, Row, plot, table, trial};
use crate::part::Part;
use crate::target::{Target, Targets};

/// Memory of connections that do nothing.
#[derive(Debug)]
pub(crate) struct Idle;

impl Experiment for Idle {
    type Options = Options;
    type Row = Row;
    const NAME: &'static str = "idle";
    const TITLE: &'static str = "connections that do nothing";
    const METHOD: &'static str = "Bytes by connection, of the second half of the connections. User memory is what the server's \
             process has to itself; “left” what it has more than at its start after all connections were \
             closed. In a burst all clients of a half connect, then all ask, then all are answered. The \
             kernel's memory is that of both ends, and of whatever else the machine does.";
    const QUICK: &'static str = "idle --quick --arrival one-by-one --subjects superpoll-keep-alive,superpoll-websocket,superpoll-events,superpoll-relay,nginx-keep-alive,hyper-keep-alive";
    const FULL: &'static str = "idle";
    const MEASURED: &'static str =
        "memory of a connection that does nothing; the kernel's is that of both ends";
    const RUN: Run<Self> = trial::run;

    fn parts(rows: &[Row]) -> Vec<Part> {
        vec![Part::Picture("idle.svg", plot::bars(rows)), Part::Table(table::connections(rows))]
    }

    /// The targets that `superpoll-lab idle` measures, in KiB of user memory.
    fn targets(rows: &[Row]) -> Vec<Target> {
        let mut targets = Targets::new(rows, |row| row.arrival.clone());
        for (subject, name, bound) in [
            ("superpoll-keep-alive", "keep-alive connection", 1.0),
            ("superpoll-long-poll", "long-poll", 2.0),
            ("superpoll-websocket", "WebSocket", 2.0),
            ("superpoll-events", "stream of server-sent events", 0.5),
            ("superpoll-relay", "relayed pair", 1.0),
        ] {
            let name = format!("idle: KiB of user memory of a {name}");
            let value = |row: &Row| Some(row.user_bytes_per_connection.median / 1024.0);
            targets.add(name, bound, |row| row.subject == subject, value);
        }
        targets.all
    }

    fn figure(row: &Row) -> Option<Figure> {
        Some(Figure {
            at: format!("{} {} {}, {}", row.connections, row.kind, row.arrival, row.subject),
            name: "user memory by connection, bytes".to_owned(),
            value: row.user_bytes_per_connection.median,
            low: row.user_bytes_per_connection.least,
            high: row.user_bytes_per_connection.most,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::idle::Spread;

    #[test]
    fn each_kind_is_judged_where_it_takes_most() {
        let row = |subject: &str, arrival: &str, median| Row {
            subject: subject.to_owned(),
            arrival: arrival.to_owned(),
            user_bytes_per_connection: Spread { median, ..Spread::default() },
            ..Row::default()
        };
        let targets = Idle::targets(&[
            row("superpoll-keep-alive", "one-by-one", 512.0),
            row("superpoll-keep-alive", "burst", 2048.0),
            row("superpoll-websocket", "burst", 1024.0),
            row("hyper-keep-alive", "burst", 10_240.0),
        ]);
        let kept: Vec<(f64, &str, bool)> =
            targets.iter().map(|t| (t.measured, t.at.as_str(), t.is_kept())).collect();
        assert_eq!(kept, [(2.0, "burst", false), (1.0, "burst", true)]);
    }
}
