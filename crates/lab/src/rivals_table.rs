//! Checks `docs/rivals.md`, which lists the experiments that each rival takes part in and why not
//! in the rest.

use crate::rivals::ALL;

const PAGE: &str = include_str!("../../../docs/rivals.md");

/// Returns the subjects of an experiment, by name; none where it is not built in.
fn subjects(experiment: &str) -> Option<Vec<&'static str>> {
    macro_rules! names {
        ($($list:tt)*) => { Some($($list)*.iter().map(|entry| entry.name).collect()) };
    }
    match experiment {
        "atr" | "mix" | "wake" => names!(crate::subject::ALL),
        "ring" => names!(crate::ring::subject::ALL),
        "echo" => names!(crate::echo::subject::ALL),
        #[cfg(feature = "http")]
        "http" => names!(crate::http::trial::ALL),
        #[cfg(not(feature = "http"))]
        "http" => None,
        "files" => names!(crate::files::trial::ALL),
        "relay" => names!(crate::relay::peers::ALL),
        "zombies" => names!(crate::zombies::fleet::ALL),
        "idle" => names!(crate::idle::service::ALL),
        "fanout" => names!(crate::fanout::service::ALL),
        "timers" => names!(crate::timers::trial::ALL),
        other => panic!("docs/rivals.md has a column for {other:?}"),
    }
}

/// Returns the texts between backticks.
fn code(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

fn cells(line: &str) -> Vec<&str> {
    line.trim().trim_matches('|').split('|').map(str::trim).collect()
}

#[test]
fn the_table_lists_the_rivals_of_each_experiment() {
    let (_, rest) = PAGE.split_once("| rival |").unwrap();
    let mut lines = rest.lines();
    let columns: Vec<Vec<&str>> = cells(lines.next().unwrap()).into_iter().map(code).collect();
    assert_eq!(columns.iter().flatten().count(), 12, "{columns:?}");
    let rows: Vec<Vec<&str>> =
        lines.skip(1).take_while(|line| line.starts_with('|')).map(cells).collect();
    let names: Vec<&str> = rows.iter().map(|row| row[0]).collect();
    assert_eq!(names, ALL.iter().map(|rival| rival.name).collect::<Vec<_>>());
    for (row, rival) in rows.iter().zip(ALL) {
        assert_eq!(row.len(), columns.len() + 1, "{}", rival.name);
        for (cell, experiments) in row[1..].iter().zip(&columns) {
            for experiment in experiments {
                let Some(all) = subjects(experiment) else { continue };
                let own: Vec<&str> =
                    all.into_iter().filter(|name| rival.subjects.contains(name)).collect();
                assert_eq!(code(cell), own, "{} in superpoll-lab {experiment}", rival.name);
            }
            if code(cell).is_empty() {
                let reason = format!("\n* **{cell}**: ");
                assert!(PAGE.contains(&reason), "{}: no reason {cell:?}", rival.name);
            }
        }
    }
}

#[test]
fn every_subject_that_is_not_ours_is_a_rival() {
    let experiments =
        ["atr", "ring", "echo", "http", "files", "relay", "zombies", "idle", "fanout", "timers"];
    for experiment in experiments {
        for name in subjects(experiment).unwrap_or_default() {
            let beginnings = ["superpoll", "raw-", "gateway-", "batch-", "adaptive", "epoll-"];
            let ours = beginnings.iter().any(|beginning| name.starts_with(beginning))
                || ["floor", "read+write", "select", "poll", "uring", "auto"].contains(&name);
            assert_ne!(ours, crate::rivals::is_rival(name), "{name} in superpoll-lab {experiment}");
        }
    }
}
