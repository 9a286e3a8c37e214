//! The output of `superpoll-lab threads`: for each sweep both accounts, each subject in a line, and
//! where threads break even.

use crate::grouping;
use crate::statistics::{self, break_even};
use crate::table::{self, Table};
use crate::threads::Row;
use crate::threads::plot::is_threads;

/// One of the two accounts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Account {
    /// Its name.
    pub name: &'static str,
    /// Its time in nanoseconds.
    pub of: fn(&Row) -> f64,
    /// The headline ratio to the best loop between the ends of its interval.
    pub ratios: fn(&Row) -> [Option<f64>; 3],
}

/// Both accounts.
pub(crate) const ACCOUNTS: [Account; 2] = [
    Account {
        name: "time on the clock for a round",
        of: |row| row.clock_ns_per_round,
        ratios: |row| match row.clock_decile {
            Some(decile) => [decile.low, decile.value, decile.high].map(Some),
            None => [row.clock_ratio_low, row.clock_ratio, row.clock_ratio_high],
        },
    },
    Account {
        name: "processor time for an event, the writer's share included",
        of: |row| row.cost_ns_per_event,
        ratios: |row| match row.cost_decile {
            Some(decile) => [decile.low, decile.value, decile.high].map(Some),
            None => [row.cost_ratio_low, row.cost_ratio, row.cost_ratio_high],
        },
    },
];

impl Account {
    /// The ratio of threads to the best loop, over the ratio of active to all.
    pub(crate) fn curve(&self, rows: &[&Row]) -> Vec<(f64, f64)> {
        self.curve_of(rows, 1)
    }

    fn curve_of(&self, rows: &[&Row], which: usize) -> Vec<(f64, f64)> {
        let threads = rows.iter().filter(is_threads);
        let mut points: Vec<(f64, f64)> =
            threads.filter_map(|row| Some((row.atr(), (self.ratios)(row)[which]?))).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        points
    }
}

/// The outcome of the hypothesis in a sweep, one line for each account; none where either side is
/// missing.
pub(crate) fn verdicts(rows: &[&Row]) -> Vec<String> {
    ACCOUNTS
        .iter()
        .filter_map(|account| Some(format!("{}: {}", account.name, verdict(account, rows)?)))
        .collect()
}

fn verdict(account: &Account, rows: &[&Row]) -> Option<String> {
    let curve = account.curve(rows);
    let (&(first, at_first), &(last, at_last)) = (curve.first()?, curve.last()?);
    let text = match break_even(&curve) {
        Some(at) => {
            let ends = [0, 2].map(|which| break_even(&account.curve_of(rows, which)));
            let end =
                |end: Option<f64>| end.map_or_else(|| "none".to_owned(), |at| format!("{at:.2}"));
            format!(
                "threads take less from active/total {at:.2} on (by the lowest turns {}, by the highest {})",
                end(ends[0]),
                end(ends[1])
            )
        }
        None if at_last <= 1.0 => {
            let worst = statistics::maximum(&curve.iter().map(|point| point.1).collect::<Vec<_>>());
            format!("threads take no more than the best loop anywhere, {worst:.2} at most")
        }
        None => {
            let less = curve.iter().filter(|(_, ratio)| *ratio < 1.0);
            let less: Vec<String> =
                less.map(|(at, ratio)| format!("{ratio:.2} at {at:.3}")).collect();
            let before = match less.as_slice() {
                [] => format!("threads nowhere take less: {at_first:.2} at {first:.3}"),
                less => format!("threads take less only where few are active: {}", less.join(", ")),
            };
            format!("{before}, {at_last:.2} at {last:.3}")
        }
    };
    Some(text)
}

/// The figure of each subject at each ratio, the best loop, and threads against it.
pub(crate) fn sweep(rows: &[&Row], account: &Account) -> Table {
    let names = grouping::distinct(rows.iter().map(|row| row.subject.as_str()));
    let mut heading = vec!["active/total"];
    heading.extend(&names);
    heading.extend(["best loop", "threads / best", "low-high"]);
    let mut table = Table::new(heading);
    for at in grouping::ascending(rows, |row| row.active).values() {
        let of =
            |name: &str| at.iter().find(|row| row.subject == name).map(|row| (account.of)(row));
        let mut cells =
            vec![at.first().map_or_else(String::new, |row| format!("{:.3}", row.atr()))];
        cells.extend(names.iter().map(|name| of(name).map_or_else(String::new, table::time)));
        let loops = at.iter().filter(|row| row.family == "events");
        let best = loops.min_by(|a, b| (account.of)(a).total_cmp(&(account.of)(b)));
        cells.push(best.map_or_else(|| "-".to_owned(), |row| row.subject.clone()));
        let [low, ratio, high] =
            at.iter().find(is_threads).map_or([None; 3], |row| (account.ratios)(row));
        cells.push(table::ratio(ratio));
        cells.push(low.zip(high).map_or_else(|| "-".to_owned(), |(l, h)| format!("{l:.2}-{h:.2}")));
        table.row(cells);
    }
    table
}

/// Formats the median over the rows of a subject.
fn middle(own: &[&Row], of: fn(&Row) -> f64, unit: f64, digits: usize) -> String {
    let all: Vec<f64> = own.iter().map(|row| of(row)).collect();
    format!("{:.digits$}", statistics::median(&all) / unit)
}

/// Formats a figure with the most active descriptors.
fn most(own: &[&Row], of: fn(&Row) -> f64, digits: usize) -> String {
    middle(&own[own.len() - 1..], of, 1.0, digits)
}

/// Formats a figure with the fewest.
fn fewest(own: &[&Row], of: fn(&Row) -> f64, digits: usize) -> String {
    middle(&own[..1], of, 1.0, digits)
}

/// Each subject in a line: the cost of an event with the fewest and with all descriptors active,
/// and the memory.
pub(crate) fn subjects(rows: &[&Row]) -> Table {
    table::of(
        &grouping::subjects(rows, |row| &row.subject, |row| row.active),
        1,
        &[
            ("subject", |own| own[0].subject.clone()),
            ("threads", |own| own[0].threads.to_string()),
            ("cpu ns/event, fewest", |own| fewest(own, |row| row.cpu_ns_per_event, 0)),
            ("most", |own| most(own, |row| row.cpu_ns_per_event, 0)),
            ("writer's, fewest", |own| fewest(own, |row| row.write_ns_per_event, 0)),
            ("most", |own| most(own, |row| row.write_ns_per_event, 0)),
            ("sleeps/event, fewest", |own| fewest(own, |row| row.voluntary_switches_per_event, 3)),
            ("most", |own| most(own, |row| row.voluntary_switches_per_event, 3)),
            ("preempted/event, fewest", |own| {
                fewest(own, |row| row.involuntary_switches_per_event, 3)
            }),
            ("most", |own| most(own, |row| row.involuntary_switches_per_event, 3)),
            ("KiB/descriptor", |own| middle(own, |row| row.memory_per_descriptor, 1024.0, 2)),
            ("kernel stack", |own| middle(own, |row| row.kernel_stack_per_descriptor, 1024.0, 2)),
            ("us to set up", |own| middle(own, |row| row.set_up_ns_per_descriptor, 1000.0, 1)),
        ],
    )
}

/// The question that a sweep answers.
pub(crate) const QUESTION: &str = "Where a thread for each descriptor takes less than the best loop over events (the \
                            hypothesis: from about 0.6 on):";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::threads::subject::THREADS;

    fn row(subject: &str, active: usize, clock: f64, ratio: [f64; 3]) -> Row {
        let [low, median, high] = ratio.map(Some);
        Row {
            kind: "pipe".to_owned(),
            processors: "all".to_owned(),
            total: 10,
            active,
            subject: subject.to_owned(),
            family: if subject == THREADS { "threads" } else { "events" }.to_owned(),
            clock_ns_per_round: clock,
            cost_ns_per_event: clock * 10.0,
            clock_ratio_low: low,
            clock_ratio: median,
            clock_ratio_high: high,
            ..Row::default()
        }
    }

    #[test]
    fn threads_are_never_the_best_loop_and_points_ascend() {
        let rows = [
            row(THREADS, 10, 500.0, [0.4, 0.5, 0.6]),
            row("raw-poll", 10, 1_000.0, [1.0; 3]),
            row("raw-epoll-lt", 10, 2_000.0, [2.0; 3]),
            row(THREADS, 1, 5_000.0, [9.0, 10.0, 11.0]),
            row("raw-epoll-lt", 1, 500.0, [1.0; 3]),
        ];
        let refs: Vec<&Row> = rows.iter().collect();
        let table = sweep(&refs, &ACCOUNTS[0]);
        let first = &table.rows()[0];
        assert_eq!(first[0], "0.100");
        assert_eq!(first[4..], ["raw-epoll-lt", "10.00", "9.00-11.00"]);
        assert_eq!(table.rows()[1][4..], ["raw-poll", "0.50", "0.40-0.60"]);
        assert_eq!(subjects(&refs).rows().len(), 3);
    }

    #[test]
    fn a_hypothesis_holds_from_somewhere_everywhere_or_nowhere() {
        let of = |ratios: [[f64; 3]; 3]| {
            let rows = [1, 6, 10].map(|active| {
                row(
                    THREADS,
                    active,
                    1.0,
                    ratios[[1, 6, 10].iter().position(|a| *a == active).unwrap()],
                )
            });
            verdicts(&rows.iter().collect::<Vec<_>>())
        };
        let crossing = of([[2.0, 2.0, 2.0], [0.5, 1.5, 1.5], [0.4, 0.5, 1.2]]);
        // Without ratios of the other account there is no line.
        assert_eq!(crossing.len(), 1);
        assert!(
            crossing[0].contains(
                "from active/total 0.80 on (by the lowest turns 0.43, by the highest none)"
            ),
            "{crossing:?}"
        );
        assert!(of([[0.1, 0.9, 1.0], [0.1; 3], [0.1; 3]])[0].contains("anywhere, 0.90 at most"));
        let never = of([[9.0; 3], [0.5; 3], [2.0; 3]]);
        assert!(never[0].contains("only where few are active: 0.50 at 0.600, 2.00 at 1.000"));
        let never = of([[9.0; 3], [3.0; 3], [2.0; 3]]);
        assert!(never[0].contains("nowhere take less: 9.00 at 0.100, 2.00 at 1.000"), "{never:?}");
    }
}
