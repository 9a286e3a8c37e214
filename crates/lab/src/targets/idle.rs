//! The targets of `superpoll-lab idle`.

use crate::idle::Row;
use crate::targets::{Target, worst};

/// The targets that `superpoll-lab idle` measures, in KiB of user memory.
pub fn of_idle(rows: &[Row]) -> Vec<Target> {
    [
        ("superpoll-keep-alive", "keep-alive connection", 1.0),
        ("superpoll-long-poll", "long-poll", 2.0),
        ("superpoll-websocket", "WebSocket", 2.0),
        ("superpoll-relay", "relayed pair", 1.0),
    ]
    .into_iter()
    .filter_map(|(subject, name, bound)| {
        let own = rows.iter().filter(|row| row.subject == subject);
        worst(
            format!("idle: KiB of user memory of a {name}"),
            bound,
            own.map(|row| (row.user_bytes_per_connection.median / 1024.0, row.arrival.clone())),
        )
    })
    .collect()
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
        let targets = of_idle(&[
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
