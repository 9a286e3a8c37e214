//! The targets of `superpoll-lab herd`.

use crate::herd::Row;
use crate::targets::{Target, worst};

/// The targets that `superpoll-lab herd` measures, of the ways that are to spare the herd.
pub fn of_herd(rows: &[Row]) -> Vec<Target> {
    let sparing = [
        "superpoll-rt-exclusive",
        "superpoll-rt-reuseport",
        "superpoll-uring-exclusive",
        "superpoll-rt-uring-exclusive",
        "engines-exclusive",
        "engines-reuseport",
        "engines-hand-off",
        "engines-uring-exclusive",
    ];
    let at = |row: &Row| format!("{} of {}", row.subject, row.processes);
    let ours = || rows.iter().filter(|row| sparing.contains(&row.subject.as_str()));
    // Who hands over wakes the one that accepts and the one that serves.
    let woken = ours().filter(|row| row.subject != "engines-hand-off");
    // With few connections for each nothing can be said of fairness.
    let many = ours().filter(|row| row.connects >= 10 * row.processes);
    [
        worst(
            "herd: connect() / that with the fewest waiters",
            1.5,
            ours().filter_map(|row| Some((row.median_ratio?, at(row)))),
        ),
        worst(
            "herd: connect() / that with one waiter among as many processes",
            1.5,
            // One alone is no herd, and in another way than the control it may cost more or less.
            ours()
                .filter(|row| row.processes > 1)
                .filter_map(|row| Some((row.alone_ratio?, at(row)))),
        ),
        worst(
            "herd: waiters woken by a connection",
            1.05,
            woken.map(|row| (row.woken_per_connect, at(row))),
        ),
        worst("herd: 1 - Jain's index", 0.1, many.map(|row| (1.0 - row.jain, at(row)))),
    ]
    .into_iter()
    .flatten()
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn herds_are_judged_where_they_are_to_be_spared() {
        let row = |subject: &str, connects, woken_per_connect, jain| Row {
            subject: subject.to_owned(),
            processes: 4,
            connects,
            median_ratio: Some(1.6),
            alone_ratio: Some(1.2),
            woken_per_connect,
            jain,
            ..Row::default()
        };
        let targets = of_herd(&[
            row("epoll", 100, 4.0, 0.3),
            row("superpoll-rt-exclusive", 100, 1.0, 0.95),
            row("superpoll-rt-reuseport", 5, 1.0, 0.4),
            row("engines-hand-off", 100, 1.9, 0.85),
        ]);
        let kept: Vec<bool> = targets.iter().map(Target::is_kept).collect();
        assert_eq!(kept, [false, true, true, false]);
        assert_eq!(targets[3].at, "engines-hand-off of 4");
    }
}
