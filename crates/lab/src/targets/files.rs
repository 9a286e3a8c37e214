//! The targets of `superpoll-lab files`.

use crate::echo::Ratio;
use crate::files::Row;
use crate::targets::{Target, worst};

/// The servers that are to be used, of ours.
const OURS: [&str; 2] = ["superpoll-epoll", "superpoll-adaptive"];

/// What is asked for by so many at a time.
const CONNECTIONS: usize = 64;

/// Whom a server is compared with.
type Against = fn(&Row) -> Option<Ratio>;

/// For each length, at most so much of whose processor time.
const AGAINST: [(usize, &str, Against, f64); 3] = [
    (1 << 10, "files, 1 KiB: CPU / nginx", |row| row.nginx_ratio, 0.70),
    (1 << 10, "files, 1 KiB: CPU / hyper on tokio", |row| row.hyper_ratio, 0.95),
    (100 << 10, "files, 100 KiB: CPU / nginx", |row| row.nginx_ratio, 0.90),
];

/// Calls of `epoll_ctl` for a request on a connection that stays open.
const EPOLL_CTL: f64 = 0.05;

/// The targets that `superpoll-lab files` measures, at 64 connections.
pub fn of_files(rows: &[Row]) -> Vec<Target> {
    let ours = |bytes: usize| {
        rows.iter().filter(move |row| {
            row.bytes == bytes
                && row.connections == CONNECTIONS
                && OURS.contains(&row.subject.as_str())
        })
    };
    let against = AGAINST.iter().filter_map(|&(bytes, name, of, bound)| {
        let measured = ours(bytes).filter_map(|row| Some((of(row)?.median, row.subject.clone())));
        worst(name, bound, measured)
    });
    let changes =
        ours(1 << 10).filter_map(|row| Some((row.epoll_ctl_per_request?, row.subject.clone())));
    let changes = worst("files, 1 KiB: epoll_ctl calls by request", EPOLL_CTL, changes);
    against.chain(changes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_length_is_judged_at_64_connections() {
        let row = |subject: &str, bytes, connections, nginx: f64, hyper: f64| Row {
            subject: subject.to_owned(),
            bytes,
            connections,
            nginx_ratio: Some(Ratio { median: nginx, ..Ratio::default() }),
            hyper_ratio: Some(Ratio { median: hyper, ..Ratio::default() }),
            epoll_ctl_per_request: Some(0.1 * nginx),
            ..Row::default()
        };
        let rows = [
            row("superpoll-epoll", 1024, 64, 0.45, 0.94),
            row("superpoll-adaptive", 1024, 64, 0.44, 0.96),
            row("superpoll-poll", 1024, 64, 3.0, 3.0),
            row("superpoll-epoll", 1024, 1, 3.0, 3.0),
            row("superpoll-epoll", 4096, 64, 3.0, 3.0),
            row("superpoll-epoll", 102_400, 64, 0.91, 3.0),
        ];
        let targets = of_files(&rows);
        let kept: Vec<_> = targets.iter().map(|t| (t.measured, t.is_kept())).collect();
        assert_eq!(kept, [(0.45, true), (0.96, false), (0.91, false), (0.1 * 0.45, true)]);
        assert!(of_files(&[]).is_empty());
        let alone = Row { nginx_ratio: None, hyper_ratio: None, ..rows[0].clone() };
        assert_eq!(of_files(&[alone]).len(), 1);
    }
}
