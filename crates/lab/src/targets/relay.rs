//! The targets of `superpoll-lab relay`.

use crate::relay::Row;
use crate::targets::{Target, worst};

/// The relays that are to be used, of ours.
const OURS: [&str; 2] = ["superpoll-epoll", "superpoll-adaptive"];

/// For each load, with so many connections, at most so much of haproxy's processor time.
const AGAINST_HAPROXY: [(&str, usize, f64); 4] = [
    ("connection", 128, 0.85),
    ("keep-alive", 64, 0.92),
    ("bulk", 4, 0.65),
    ("http-keep-alive", 64, 1.0),
];

/// System calls for a connection of its own for each request.
const CALLS: f64 = 12.0;

/// The targets that `superpoll-lab relay` measures.
pub fn of_relay(rows: &[Row]) -> Vec<Target> {
    let ours = |load: &'static str, connections: usize| {
        rows.iter().filter(move |row| {
            row.load == load
                && row.connections == connections
                && OURS.contains(&row.subject.as_str())
        })
    };
    let against = AGAINST_HAPROXY.iter().filter_map(|&(load, connections, bound)| {
        let measured = ours(load, connections)
            .filter_map(|row| Some((row.haproxy_ratio?.median, row.subject.clone())));
        worst(format!("relay, {load}: CPU / haproxy"), bound, measured)
    });
    let calls = ours("connection", 128)
        .filter_map(|row| Some((row.calls_per_request?, row.subject.clone())));
    let calls = worst("relay, connection: system calls", CALLS, calls);
    against.chain(calls).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relay::Ratio;

    #[test]
    fn each_load_is_judged_at_its_connections() {
        let row = |subject: &str, load: &str, connections, median| Row {
            subject: subject.to_owned(),
            load: load.to_owned(),
            connections,
            haproxy_ratio: Some(Ratio { median, low: median, high: median }),
            calls_per_request: Some(20.0 * median),
            ..Row::default()
        };
        let rows = [
            row("superpoll-epoll", "connection", 128, 0.8),
            row("superpoll-adaptive", "connection", 128, 0.7),
            row("superpoll-poll", "connection", 128, 3.0),
            row("superpoll-epoll", "connection", 1, 3.0),
            row("superpoll-epoll", "bulk", 4, 0.7),
            row("superpoll-epoll", "http-keep-alive", 64, 0.99),
            row("superpoll-adaptive", "http-keep-alive", 64, 1.01),
            row("superpoll-epoll", "http-connection", 128, 0.99),
        ];
        let targets = of_relay(&rows);
        let kept: Vec<_> = targets.iter().map(|t| (t.measured, t.is_kept())).collect();
        assert_eq!(kept, [(0.8, true), (0.7, false), (1.01, false), (16.0, false)]);
        assert!(of_relay(&[]).is_empty());
    }
}
