//! The targets of `superpoll-lab ring`.

use crate::ring::Row;
use crate::targets::{Target, worst};

/// The targets that `superpoll-lab ring` measures, at a thousand pipes and one byte in flight.
pub fn of_ring(rows: &[Row]) -> Vec<Target> {
    let of = |subjects: &'static [&'static str], value: fn(&Row) -> Option<f64>| {
        rows.iter()
            .filter(|row| (row.total, row.in_flight) == (1000, 1))
            .filter(move |row| subjects.contains(&row.subject.as_str()))
            .filter_map(move |row| Some((value(row)?, row.subject.clone())))
    };
    let generic = &["superpoll-rt-epoll", "superpoll-rt-adaptive"];
    let peers = &["superpoll-rt-peers"];
    [
        worst("ring: time / tokio", 0.72, of(generic, |row| row.tokio_ratio)),
        worst("ring: time / raw epoll", 1.0, of(generic, |row| row.raw_epoll_ratio)),
        worst("ring of known peers: time / tokio", 0.55, of(peers, |row| row.tokio_ratio)),
        // A read and a write, and now and then the poller is asked about all other descriptors.
        worst("ring of known peers: syscalls per hop", 2.02, of(peers, |r| r.syscalls_per_hop)),
        worst(
            "ring: reads per hop, those that find nothing included",
            1.01,
            of(&["superpoll-rt-epoll", "superpoll-rt-adaptive", "superpoll-rt-peers"], |row| {
                row.reads_per_hop
            }),
        ),
    ]
    .into_iter()
    .flatten()
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_are_judged_at_a_thousand_pipes() {
        let row = |subject: &str, total, tokio_ratio| Row {
            subject: subject.to_owned(),
            total,
            in_flight: 1,
            tokio_ratio: Some(tokio_ratio),
            ..Row::default()
        };
        let targets = of_ring(&[
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
