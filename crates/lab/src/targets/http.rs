//! The targets of `superpoll-lab http`.

use crate::http::Row;
use crate::targets::{Target, worst};

/// The targets that `superpoll-lab http` measures, at 64 connections.
pub fn of_http(rows: &[Row]) -> Vec<Target> {
    let ours = rows
        .iter()
        .filter(|row| row.connections == 64)
        .filter(|row| {
            ["superpoll-rt-epoll", "superpoll-rt-adaptive"].contains(&row.subject.as_str())
        })
        .filter_map(|row| Some((row.tokio_ratio?, row.subject.clone())));
    worst("http: CPU / tokio", 0.95, ours).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn web_servers_are_judged_at_64_connections() {
        let row = |subject: &str, connections, tokio_ratio| Row {
            subject: subject.to_owned(),
            connections,
            tokio_ratio,
            ..Row::default()
        };
        let rows = [
            row("raw-epoll", 64, Some(0.2)),
            row("superpoll-rt-epoll", 64, Some(0.94)),
            row("superpoll-rt-adaptive", 64, Some(0.96)),
            row("superpoll-rt-poll", 64, Some(2.0)),
            row("superpoll-rt-adaptive", 1, Some(3.0)),
        ];
        let targets = of_http(&rows);
        assert_eq!((targets.len(), targets[0].measured), (1, 0.96));
        assert!(!targets[0].is_kept() && of_http(&rows[..2])[0].is_kept());
        assert!(of_http(&[row("superpoll-rt-epoll", 64, None)]).is_empty());
    }
}
