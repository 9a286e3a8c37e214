//! The targets of `superpoll-lab zombies`.

use crate::targets::{Target, worst};
use crate::zombies::Row;

/// The targets that `superpoll-lab zombies` measures, of what is to be as quick with zombies as without. They are those of one
/// process with as many zombies as were measured.
pub fn of_zombies(rows: &[Row]) -> Vec<Target> {
    let sparing = [
        "gateway-epoll",
        "gateway-adaptive",
        "gateway-uring",
        "superpoll-rt-epoll",
        "superpoll-rt-adaptive",
        "superpoll-rt-uring",
    ];
    let alone = || rows.iter().filter(|row| row.workers <= 1);
    let ours = alone().filter(|row| sparing.contains(&row.subject.as_str()));
    let most = alone().map(|row| row.zombies).max().unwrap_or(0);
    let at_most = ours.filter(|row| row.zombies == most && most > 0);
    ["echo", "web"]
        .into_iter()
        .filter_map(|family| {
            let name = format!("zombies, {family}: CPU of a request / that without any");
            let own = at_most.clone().filter(|row| row.family == family);
            let at = |row: &Row| format!("{} with {}", row.subject, row.zombies);
            worst(name, 1.03, own.filter_map(|row| Some((row.none_ratio?.median, at(row)))))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::echo::Ratio;

    #[test]
    fn servers_are_judged_with_most_zombies() {
        let row = |subject: &str, family: &str, zombies, median| Row {
            subject: subject.to_owned(),
            family: family.to_owned(),
            zombies,
            none_ratio: Some(Ratio { median, ..Ratio::default() }),
            ..Row::default()
        };
        let rows = [
            row("superpoll-rt-poll", "echo", 9900, 50.0),
            row("superpoll-rt-epoll", "echo", 9900, 1.02),
            row("superpoll-rt-adaptive", "echo", 100, 1.5),
            row("gateway-adaptive", "web", 9900, 1.05),
        ];
        let shared = Row { workers: 6, ..row("superpoll-rt-epoll", "echo", 102_400, 2.0) };
        let rows = [&rows[..], &[shared]].concat();
        let kept: Vec<(f64, bool)> =
            of_zombies(&rows).iter().map(|t| (t.measured, t.is_kept())).collect();
        assert_eq!(kept, [(1.02, true), (1.05, false)]);
        assert!(of_zombies(&[row("gateway-epoll", "web", 0, 1.0)]).is_empty());
    }
}
