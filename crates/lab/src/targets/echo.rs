//! The targets of `superpoll-lab echo`.

use crate::echo::{Ratio, Row};
use crate::targets::{Target, worst};

/// The targets that `superpoll-lab echo` measures, with a thousand TCP connections.
pub fn of_echo(rows: &[Row]) -> Vec<Target> {
    let of = |subject: &'static str, value: fn(&Row) -> Option<Ratio>| {
        rows.iter()
            .filter(move |row| row.subject == subject)
            .filter(|row| (row.kind.as_str(), row.connections) == ("tcp", 1000))
            .filter_map(move |row| Some((value(row)?.median, format!("{} bytes", row.bytes))))
    };
    ["superpoll-rt-uring", "superpoll-reader-uring"]
        .into_iter()
        .flat_map(|subject| {
            let name = |other| format!("echo, 1000 TCP connections: CPU of {subject} / {other}");
            [
                worst(name("raw epoll"), 0.95, of(subject, |row| row.raw_epoll_ratio)),
                worst(name("tokio"), 0.92, of(subject, |row| row.tokio_ratio)),
            ]
        })
        .flatten()
        .collect()
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
            of_echo(&rows).iter().map(|t| (t.measured, t.is_kept())).collect();
        assert_eq!(kept, [(0.96, false), (0.91, true), (0.9, true)]);
    }
}
