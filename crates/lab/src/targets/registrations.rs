//! The targets of `superpoll-lab registrations`.

use crate::registrations::Row;
use crate::targets::{Target, worst};

/// The targets that `superpoll-lab registrations` measures, where enough are told together for the call not to count.
pub fn of_registrations(rows: &[Row]) -> Vec<Target> {
    let ours = rows
        .iter()
        .filter(|row| row.subject == "uring" && row.batch >= 16)
        .filter_map(|row| Some((row.ratio?, format!("{} in batches of {}", row.kind, row.batch))));
    let name = "register and deregister with uring, 16 or more at a time / epoll_ctl";
    worst(name, 0.50, ours).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registrations_are_judged_where_many_are_told_together() {
        let row = |subject: &str, batch, ratio| Row {
            subject: subject.to_owned(),
            kind: "tcp".to_owned(),
            batch,
            ratio: Some(ratio),
            ..Row::default()
        };
        let rows = [row("uring", 1, 0.8), row("uring", 16, 0.45), row("ring-poll", 64, 0.7)];
        let targets = of_registrations(&rows);
        assert_eq!((targets.len(), targets[0].measured), (1, 0.45));
        assert!(targets[0].is_kept() && targets[0].at == "tcp in batches of 16");
        assert!(of_registrations(&rows[2..]).is_empty());
    }
}
