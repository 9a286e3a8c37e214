//! `superpoll-lab herd`: the cost of a connection when many processes wait for it.
//!
//! N processes wait for one listening socket, each perhaps for a thousand duplicates of it as well.
//! A client connects without blocking over the loopback device, so that the kernel does all of the
//! server's part, including the wake-ups, before the call returns: the time of the call is the
//! price of the crowd. The report also gives the number of woken waiters, by the kernel's count of
//! their sleeps, and how evenly the connections were spread (Jain's index). Connections come one
//! after another, each when all waiters are asleep again.
//!
//! The client's work between two connections grows with the herd. It checks whether each process
//! sleeps, which takes tens of milliseconds for thousands; after that its own caches are colder,
//! and the other processor sleeps more deeply, than after microseconds. This has nothing to do with
//! the method of waiting, so there is a control, `epoll-alone`: one process waits for the listener,
//! and as many processes as in the herd sleep elsewhere. `/ alone` is the ratio to it.
//!
//! `method/` has the methods of waiting; `crowd.rs` starts and watches the waiters. For the
//! duplicates, the control is duplicates of an empty pipe: the same number of descriptors, without
//! any that the connection concerns.

use serde::{Deserialize, Serialize};

use crate::experiment::{self, Experiment, Figure, Run, Target, Targets};
use crate::plot::{self, Plot};
use crate::table::{self, Part, Table};

mod crowd;
mod method;
mod trial;

crate::options::options! {
    /// Options of `superpoll-lab herd`.
    pub(crate) struct Options;

    /// Waiting processes (or engines), with commas [default: 1,16,256,1024,4096,16384, or 1,16,64
    /// if quick]
    processes: Option<String> = LIST,
    /// Duplicates of the listener that each waits for as well; with any, a control with as many
    /// duplicates of a pipe is measured too
    dups: usize = N 0,
    /// Connections to each herd [default: as many as fit into the time, at most 500]
    connects: Option<usize> = N,
    /// Ways to wait, with commas, or all
    subjects: Option<String> = LIST,
}

/// The most processes that are started at a time.
pub(crate) const MOST_PROCESSES: usize = 16_384;

/// One method of waiting with one number of waiters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    /// The method.
    pub subject: String,
    /// Waiting processes, or engines of our runtime.
    pub processes: usize,
    /// The requested number of waiters; it is larger than `processes` where a limit did not allow
    /// that many.
    #[serde(default)]
    pub asked: usize,
    /// Descriptors that each waits for besides the listener.
    pub dups: usize,
    /// The object that the duplicates refer to: `listener` or `pipe`.
    pub dups_of: String,
    /// Connections measured.
    pub connects: usize,
    /// The shortest time of a non-blocking `connect(2)`.
    pub connect_ns_min: f64,
    /// The median time.
    pub connect_ns_median: f64,
    /// The 99th percentile of the time.
    pub connect_ns_p99: f64,
    /// The median relative to that of the fewest waiters of the same method.
    pub median_ratio: Option<f64>,
    /// The median relative to that of one waiter among as many processes that sleep elsewhere.
    pub alone_ratio: Option<f64>,
    /// Waiters that were woken by a connection, on average.
    pub woken_per_connect: f64,
    /// Connections of the waiter that got the most.
    pub accepts_max: u64,
    /// Waiters that got any.
    pub accepting: usize,
    /// Jain's fairness index of the connections: 1 if all got the same number, 1/N if one waiter
    /// got everything.
    pub jain: f64,
    /// The best value that Jain's index could have with this few connections.
    pub jain_best: f64,
}

/// Jain's fairness index: the square of the sum, divided by the sum of the squares times the
/// number.
pub(crate) fn jain(counts: &[u64]) -> f64 {
    let sum: f64 = counts.iter().map(|&count| count as f64).sum();
    let squares: f64 = counts.iter().map(|&count| (count as f64).powi(2)).sum();
    if squares == 0.0 { 1.0 } else { sum * sum / (counts.len() as f64 * squares) }
}

// The experiments `herd` and `herd-dups`, for the command line and the report.

/// Many waiters for one connection.
#[derive(Debug)]
pub(crate) struct Herd;

impl Experiment for Herd {
    type Options = Options;
    type Row = Row;
    const NAME: &'static str = "herd";
    const TITLE: &'static str = "many wait for one connection";
    const METHOD: &'static str = "Processes wait for one listening socket (or engines of our runtime, in one process), and a \
             client connects without blocking: the time of that call holds the kernel's work for all who \
             wait. “Woken” counts how often they went back to sleep. Jain's index is 1 if all got the \
             same number of connections; “best” is what it could be with so few.";
    const QUICK: &'static str = "herd --quick --processes 1,64 --seconds 20 --subjects select,poll,epoll,epoll-alone,epoll-exclusive,accept,reuseport,superpoll-rt-exclusive";
    const FULL: &'static str = "herd --processes 1,1024,16384 --seconds 210";
    const MEASURED: &'static str =
        "time of a connect() while others wait, and how many of them it wakes";
    const RUN: Run<Self> = trial::run;

    fn parts(rows: &[Row]) -> Vec<Part> {
        vec![Part::plot("herd.svg", over_processes(rows, "listener")), Part::Table(herds(rows))]
    }

    /// The targets that `superpoll-lab herd` measures, for the methods that promise to spare the
    /// herd.
    fn targets(rows: &[Row]) -> Vec<Target> {
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
        let mut targets = Targets::new(rows, |row| format!("{} of {}", row.subject, row.processes));
        let ours = |row: &Row| sparing.contains(&row.subject.as_str());
        let name = "herd: connect() / that with the fewest waiters";
        targets.add(name, 1.5, ours, |row| row.median_ratio);
        // A single waiter is no herd, and by another method than the control's it may cost more or
        // less.
        let name = "herd: connect() / that with one waiter among as many processes";
        targets.add(name, 1.5, |row| ours(row) && row.processes > 1, |row| row.alone_ratio);
        // A hand-over wakes two: the engine that accepts and the engine that serves.
        let woken = |row: &Row| ours(row) && row.subject != "engines-hand-off";
        let name = "herd: waiters woken by a connection";
        targets.add(name, 1.05, woken, |row| Some(row.woken_per_connect));
        // With few connections per waiter the fairness index says nothing.
        let many = |row: &Row| ours(row) && row.connects >= 10 * row.processes;
        targets.add("herd: 1 - Jain's index", 0.1, many, |row| Some(1.0 - row.jain));
        targets.all
    }

    fn figure(row: &Row) -> Option<Figure> {
        Some(connect(row))
    }
}

/// Many waiters for one connection, each with many duplicates of the listener.
#[derive(Debug)]
pub(crate) struct HerdDups;

impl Experiment for HerdDups {
    type Options = Options;
    type Row = Row;
    const NAME: &'static str = "herd-dups";
    const TITLE: &'static str = "many wait, and each for many duplicates of the listener";
    const METHOD: &'static str = "As herd, but each process waits for many duplicates of the listening socket as well. The control waits for \
             as many duplicates of an empty pipe, which have nothing to do with the connection.";
    const QUICK: &'static str = "herd --quick --dups 200 --processes 64 --seconds 6 --subjects select,epoll,epoll-exclusive";
    const FULL: &'static str = "herd --dups 1019 --processes 256,1024 --seconds 270";
    const MEASURED: &'static str =
        "time of a connect() while others wait, and how many of them it wakes";
    const RUN: Run<Self> = trial::run;

    fn parts(rows: &[Row]) -> Vec<Part> {
        vec![
            Part::plot("herd-dups.svg", over_processes(rows, "listener")),
            Part::plot("herd-dups-control.svg", over_processes(rows, "pipe")),
            Part::Table(herds(rows)),
            Part::Heading("Targets".to_owned()),
            Part::Table(experiment::table(&Herd::targets(rows))),
        ]
    }

    fn figure(row: &Row) -> Option<Figure> {
        Some(connect(row))
    }
}

/// The time of a connection to a herd.
fn connect(row: &Row) -> Figure {
    Figure {
        at: format!(
            "{} wait, {} duplicates of a {}, {}",
            row.processes, row.dups, row.dups_of, row.subject
        ),
        name: "connect(), ns".to_owned(),
        value: row.connect_ns_median,
        low: row.connect_ns_min,
        high: row.connect_ns_p99,
    }
}

// The output of `superpoll-lab herd`: for each size its methods of waiting, one line each.

/// All rows, by the kind of duplicates and the number of waiters.
pub(crate) fn herds(rows: &[Row]) -> Table {
    table::of(
        rows,
        3,
        &[
            ("processes", |row| row.processes.to_string()),
            ("dups", |row| {
                if row.dups == 0 {
                    "-".to_owned()
                } else {
                    format!("{} of {}", row.dups, row.dups_of)
                }
            }),
            ("way to wait", |row| row.subject.clone()),
            ("connect()", |row| table::time(row.connect_ns_median)),
            ("p99", |row| table::time(row.connect_ns_p99)),
            ("least", |row| table::time(row.connect_ns_min)),
            ("/ fewest", |row| table::ratio(row.median_ratio)),
            ("/ alone", |row| table::ratio(row.alone_ratio)),
            ("woken", |row| format!("{:.1}", row.woken_per_connect)),
            ("accepting", |row| row.accepting.to_string()),
            ("most", |row| row.accepts_max.to_string()),
            ("Jain", |row| format!("{:.2}", row.jain)),
            ("best", |row| format!("{:.2}", row.jain_best)),
            ("connects", |row| row.connects.to_string()),
        ],
    )
}

// The plot of `superpoll-lab herd`: the time of a `connect` over the number of waiters.

/// With duplicates of the listener, or with duplicates of a pipe; none if there is only one size.
pub(crate) fn over_processes(rows: &[Row], dups_of: &str) -> Option<Plot> {
    let dups = rows.first()?.dups;
    let title = match dups {
        0 => "connect() while others wait".to_owned(),
        _ => format!("connect() while others wait, each for {dups} duplicates of a {dups_of}"),
    };
    plot::over_powers_of_ten(title, ["waiting processes", "ns"], rows, |row| {
        let point = (row.processes as f64, row.connect_ns_median);
        (row.dups_of == dups_of).then_some((row.subject.as_str(), point))
    })
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
        let targets = Herd::targets(&[
            row("epoll", 100, 4.0, 0.3),
            row("superpoll-rt-exclusive", 100, 1.0, 0.95),
            row("superpoll-rt-reuseport", 5, 1.0, 0.4),
            row("engines-hand-off", 100, 1.9, 0.85),
        ]);
        let kept: Vec<bool> = targets.iter().map(Target::is_kept).collect();
        assert_eq!(kept, [false, true, true, false]);
        assert_eq!(targets[3].at, "engines-hand-off of 4");
    }

    #[test]
    fn a_line_names_the_duplicates() {
        let row = |dups, dups_of: &str| Row {
            subject: "poll".to_owned(),
            processes: 16,
            dups,
            dups_of: dups_of.to_owned(),
            connect_ns_median: 20_500.0,
            woken_per_connect: 15.97,
            ..Row::default()
        };
        let text = herds(&[row(0, "listener"), row(9, "pipe")]).to_string();
        assert!(text.contains("20.5 us") && text.contains("16.0"), "{text}");
        assert!(text.contains("9 of pipe") && !text.contains("0 of"), "{text}");
    }

    #[test]
    fn herds_of_several_sizes_are_drawn() {
        let row = |processes, connect_ns_median| Row {
            subject: "poll".to_owned(),
            processes,
            dups_of: "listener".to_owned(),
            connect_ns_median,
            ..Row::default()
        };
        let rows = [row(1, 20_000.0), row(1000, 4_000_000.0)];
        let plot = over_processes(&rows, "listener").unwrap();
        assert_eq!(plot.curves[0].points, [(0.0, 20_000.0), (3.0, 4_000_000.0)]);
        assert!(plot.svg().unwrap().contains("waiting processes"));
        assert!(over_processes(&rows, "pipe").is_none());
        assert!(over_processes(&rows[..1], "listener").is_none());
    }
}
