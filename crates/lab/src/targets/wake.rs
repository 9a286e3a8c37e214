//! The targets of `superpoll-lab wake`.

use crate::targets::{Target, worst};
use crate::wake::Row;

/// The targets that `superpoll-lab wake` measures.
pub fn of_wake(rows: &[Row]) -> Vec<Target> {
    [("adaptive", 1.10), ("uring", 1.0), ("adaptive-uring", 1.0)]
        .into_iter()
        .filter_map(|(subject, bound)| {
            let own = rows
                .iter()
                .filter(|row| row.subject == subject)
                .filter_map(|row| Some((row.p50_ratio?, row.kind.clone())));
            worst(format!("blocked loop: p50 wake-up of {subject} / epoll"), bound, own)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocked_loops_are_judged_by_back_end() {
        let row = |subject: &str, p50_ratio| Row {
            kind: "pipe".to_owned(),
            total: 1,
            hot: 1,
            subject: subject.to_owned(),
            samples: 1,
            wake_ns_min: 1.0,
            wake_ns_p50: 1.0,
            wake_ns_p90: 1.0,
            p50_ratio: Some(p50_ratio),
        };
        let rows = [row("adaptive", 1.05), row("uring", 1.05), row("poll", 9.0)];
        let kept: Vec<bool> = of_wake(&rows).iter().map(Target::is_kept).collect();
        assert_eq!(kept, [true, false]);
    }
}
