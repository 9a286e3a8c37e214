//! `superpoll-lab models`: four ways to learn which descriptors are ready, over the ratio of active
//! to all.
//!
//! A program that must not block on one descriptor has four ways to find out which are ready. It
//! can *try* all of them without blocking, make the kernel send *signals*, *ask* which are ready,
//! or *register* its requests and receive reports. Each way is here as the shortest loop that a C
//! programmer would write, one file each. The loops that ask with `poll` and `epoll` (either
//! trigger) are the raw loops of `superpoll-lab atr`. Everything else is as there: the same
//! harness, the same rounds in turn, each byte checked, the loop's own time and the additional cost
//! for the writers.
//!
//! Next to the times, the tables show three more figures: the system calls for an event; how often
//! the kernel had no room for one (the queue of signals, the queue of completions); and the share
//! of a processor that a loop takes while nothing happens, since in the timed rounds something is
//! always ready.
//!
//! Models that this kernel refuses, or that the limits of this process forbid, are left out, and
//! the record says why.

use crate::atr::{self, per_event, spread};
use crate::experiment::{Experiment, Figure, Run};
use crate::plot::{self, Plot};
use crate::record::{Account, Figures};
use crate::statistics;
use crate::sweep::{Row, sweeps};
use crate::table::{self, Part, Table};

mod aio;
mod loops;
mod sigio;
mod trial;

crate::options::options! {
    /// Options of `superpoll-lab models`.
    pub(crate) struct Options;

    /// Descriptors: numbers with commas
    total: String = N "1000",
    /// How many of them are active: numbers with commas (default: from one to all)
    active: Option<String> = LIST,
    /// Where the active descriptors lie among all: end, spread, front or all
    placement: String = LIST "end",
    /// Kinds of descriptors: pipe, unix, tcp or all
    kind: String = LIST "pipe",
    /// Loops to measure, with commas, or all
    subjects: String = LIST "all",
}

crate::by_name::named! {
    /// How a program learns that a descriptor is ready.
    pub(crate) enum Model {
        /// It reads, and the result tells.
        Try = "try",
        /// The kernel sends it signals.
        Signals = "signals",
        /// It asks the kernel.
        Ask = "ask",
        /// It registers its request with the kernel, and the kernel reports when data arrives.
        Register = "register",
    }
}

/// The subject that all are compared with; it knows beforehand which descriptors are ready, which
/// no program can.
const FLOOR: &str = "floor";

// The experiment `models`, for the command line and the report.

/// Four ways to learn which descriptors are ready.
#[derive(Debug)]
pub(crate) struct Models;

impl Experiment for Models {
    type Options = Options;
    type Row = Row;
    const NAME: &'static str = "models";
    const TITLE: &'static str = "try, signals, ask, register";
    const METHOD: &'static str = "Four ways to learn which descriptors are ready, each as the shortest loop, over the ratio of \
             active to all. The loop alone is waiting and reading; “with writers” adds what the writes \
             cost more than to descriptors that are not watched. “Best” is the best of all loops at that \
             ratio, “calls” are system calls, reads included, and “overflows” counts how often the kernel \
             had no room to note an event; every byte was read all the same. “While quiet” is the \
             processor time during a wait in which nothing happens. The floor knows what is ready and \
             only reads.";
    const QUICK: &'static str = "models --quick --seconds 16";
    const FULL: &'static str =
        "models --kind pipe,tcp --placement end,spread --paced --seconds 180";
    const RUN: Run<Self> = trial::run;

    fn parts(rows: &[Row]) -> Vec<Part> {
        let parts = sweeps(rows).into_iter().flat_map(|(name, rows)| {
            let stem = format!("models-{}", name.replace(' ', "-"));
            let plot = |file, with_writers| {
                Part::plot(format!("{stem}{file}.svg"), ratios(&name, &rows, with_writers))
            };
            [
                Part::Heading(name.clone()),
                plot("", false),
                plot("-with-writers", true),
                Part::text("Each loop against the best of all:"),
                Part::Table(subjects(&rows)),
                Part::text("Time per round of the loop alone (median):"),
                Part::Table(sweep(&rows, atr::loop_time)),
                Part::text("The same with the cost to the writers:"),
                Part::Table(sweep(&rows, atr::cost)),
            ]
        });
        parts.collect()
    }

    fn figure(row: &Row) -> Option<Figure> {
        row.figure()
    }
}

// The output of `superpoll-lab models`: for each sweep the times by both accounts, and each loop in
// a line.

/// The subjects of a sweep in the order of their rows.
fn names<'a>(rows: &[&'a Row]) -> Vec<&'a str> {
    table::distinct(rows.iter().map(|row| row.subject.as_str()))
}

/// The time per round of each loop at each ratio, by one of the accounts, and the best loop.
pub(crate) fn sweep(rows: &[&Row], of: Account) -> Table {
    let names = names(rows);
    let mut heading = vec!["active/total"];
    heading.extend(&names);
    heading.push("best");
    let mut table = Table::new(heading);
    for at in table::ascending(rows, |row| row.active).values() {
        let mut cells =
            vec![at.first().map_or_else(String::new, |row| format!("{:.3}", row.atr()))];
        let time = |name: &str| of(&at.iter().find(|row| row.subject == name)?.figures);
        cells.extend(names.iter().map(|name| time(name).map_or_else(String::new, table::time)));
        let best = names
            .iter()
            .filter(|name| **name != FLOOR)
            .filter_map(|name| Some((*name, time(name)?)))
            .min_by(|a, b| a.1.total_cmp(&b.1));
        cells.push(best.map_or_else(String::new, |(name, _)| name.to_owned()));
        table.row(cells);
    }
    table
}

/// Returns the row of a loop with the most active descriptors.
fn most<'a>(own: &[&'a Row]) -> &'a Row {
    own[own.len() - 1]
}

fn ratio(own: &[&Row], of: Account, end: fn(&[f64]) -> f64) -> String {
    let ratios: Vec<f64> = own.iter().filter_map(|row| of(&row.figures)).collect();
    table::ratio((!ratios.is_empty()).then(|| end(&ratios)))
}

/// Each loop in a line: its ratio to the best of the run, its cost per event, and its other costs.
pub(crate) fn subjects(rows: &[&Row]) -> Table {
    table::of(
        &table::subjects(rows, |row| &row.subject, |row| row.active),
        2,
        &[
            ("model", |own| own[0].model.clone().unwrap_or_default()),
            ("loop", |own| own[0].subject.clone()),
            ("loop / best, least", |own| ratio(own, Figures::loop_part, statistics::minimum)),
            ("most", |own| ratio(own, Figures::loop_part, statistics::maximum)),
            ("with writers, least", |own| ratio(own, Figures::cost, statistics::minimum)),
            ("most", |own| ratio(own, Figures::cost, statistics::maximum)),
            ("ns/event, fewest", |own| per_event(own[0].active, &own[0].figures)),
            ("all", |own| per_event(most(own).active, &most(own).figures)),
            ("calls/event, fewest", |own| table::ratio(own[0].figures.calls_per_event)),
            ("all", |own| table::ratio(most(own).figures.calls_per_event)),
            ("empty reads", |own| {
                own.iter().map(|row| row.figures.empty_reads).sum::<u64>().to_string()
            }),
            ("overflows", |own| {
                let overflows: Option<u64> = own.iter().map(|row| row.figures.overflows).sum();
                overflows.map_or_else(|| "-".to_owned(), |count| count.to_string())
            }),
            ("cpu while quiet", |own| {
                let share = own[0].quiet_processor_share;
                share.map_or_else(|| "-".to_owned(), |share| format!("{:.1} %", share * 100.0))
            }),
            ("spread of blocks", |own| spread(own.iter().map(|row| &row.figures))),
        ],
    )
}

// The plots of `superpoll-lab models`: each loop over the ratio of active to all, relative to the
// best of the run.

/// The ratio of each loop's time to the best, for the loop alone or including the writers' share;
/// none if there is only one point.
pub(crate) fn ratios(name: &str, rows: &[&Row], with_writers: bool) -> Option<Plot> {
    let (account, of): (&str, Account) = if with_writers {
        ("with the cost to writers", Figures::cost)
    } else {
        ("the loop alone", Figures::loop_part)
    };
    let curves = plot::curves(rows, |row| {
        let at = (row.subject != FLOOR).then(|| of(&row.figures)).flatten()?;
        Some((row.subject.as_str(), (row.atr(), at)))
    });
    Plot::of(
        format!("four models, {account} ({name})"),
        "active / total",
        "time / that of the best",
        curves,
    )
    .drawn()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Figures;

    fn row(subject: &str, model: &str, active: usize, ns: f64) -> Row {
        Row {
            total: 100,
            active,
            model: Some(model.to_owned()),
            subject: subject.to_owned(),
            quiet_processor_share: (model != "none").then_some(0.125),
            figures: Figures {
                ns_per_round_median: ns,
                cost_ns_per_round: Some(ns * 2.0),
                loop_ratio: Some(ns / 1_000.0),
                calls_per_event: Some(1.5),
                ..Figures::default()
            },
            ..Row::default()
        }
    }

    #[test]
    fn the_floor_is_never_the_best_and_points_ascend() {
        let rows = [
            row("floor", "none", 100, 500.0),
            row("spin", "try", 100, 1_000.0),
            row("raw-poll", "ask", 100, 2_000.0),
            row("floor", "none", 1, 5.0),
            row("spin", "try", 1, 3_000.0),
            row("raw-poll", "ask", 1, 1_000.0),
        ];
        let rows: Vec<&Row> = rows.iter().collect();
        let table = sweep(&rows, crate::atr::cost);
        let best: Vec<&str> =
            table.rows().iter().filter_map(|cells| cells.last()).map(String::as_str).collect();
        assert_eq!(best, ["raw-poll", "spin"]);
        assert_eq!(table.rows()[0][..2], ["0.010", "10 ns"]);
        let table = subjects(&rows);
        let spin = table.rows().iter().find(|cells| cells[1] == "spin").unwrap();
        assert_eq!(spin[..4], ["try", "spin", "1.00", "3.00"]);
        assert_eq!(spin[6..10], ["3000", "10", "1.50", "1.50"]);
        assert_eq!(spin[12], "12.5 %");
        assert_eq!(table.rows()[0][12], "-");
    }

    #[test]
    fn each_loop_has_a_curve_and_the_floor_none() {
        let row = |subject: &str, active, ratio| Row {
            total: 10,
            active,
            subject: subject.to_owned(),
            figures: Figures { cost_ratio: Some(ratio), ..Figures::default() },
            ..Row::default()
        };
        let rows = [row("spin", 10, 1.0), row("floor", 1, 0.1), row("spin", 1, 50.0)];
        let rows: Vec<&Row> = rows.iter().collect();
        let plot = ratios("pipe 10 end", &rows, true).unwrap();
        assert_eq!(plot.curves.len(), 1);
        assert_eq!(plot.curves[0].points, [(0.1, 50.0), (1.0, 1.0)]);
        assert!(plot.svg().unwrap().contains("with the cost to writers"));
        assert!(ratios("pipe 10 end", &rows, false).is_none());
        assert!(ratios("pipe 10 end", &rows[..1], true).is_none());
    }
}
