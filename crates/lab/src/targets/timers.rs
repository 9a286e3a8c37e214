//! The targets of `superpoll-lab timers`.

use crate::targets::{Target, worst};
use crate::timers::Row;

/// The targets that `superpoll-lab timers` measures, with a million of them.
pub fn of_timers(rows: &[Row]) -> Vec<Target> {
    let ours = rows
        .iter()
        .filter(|row| (row.subject.as_str(), row.timers) == ("superpoll-rt", 1_000_000))
        .filter(|row| row.insert_ns_median.is_some())
        .filter_map(|row| Some((row.tokio_ratio?, row.load.clone())));
    worst("a million timers inserted and cancelled: CPU / tokio", 1.0, ours).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_are_judged_by_the_million() {
        let row = |load: &str, timers, tokio_ratio, insert_ns_median| Row {
            subject: "superpoll-rt".to_owned(),
            load: load.to_owned(),
            timers,
            tokio_ratio,
            insert_ns_median,
            ..Row::default()
        };
        let rows = [
            row("in order", 1_000_000, Some(0.7), Some(1.0)),
            row("shuffled", 1_000_000, Some(0.9), Some(1.0)),
            row("shuffled", 1000, Some(2.0), Some(1.0)),
            row("one by one", 1_000_000, Some(3.0), None),
        ];
        let targets = of_timers(&rows);
        assert_eq!((targets.len(), targets[0].measured), (1, 0.9));
        assert!(targets[0].is_kept() && targets[0].at == "shuffled");
        assert!(of_timers(&rows[2..]).is_empty());
    }
}
