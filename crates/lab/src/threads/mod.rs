//! `superpoll-lab threads`: a thread for each descriptor, compared with event loops, over the ratio
//! of active to all.
//!
//! The hypothesis is Zed Shaw's, the last in "poll, epoll, science, and superpoll" (2010): if more
//! than about 0.6 of the descriptors are active, threads win, and below that, events win. A thread
//! that sleeps in a read makes no call to find its work and searches nothing. A loop pays for its
//! wait, but the wait gives everything that is ready to one thread that is awake.
//!
//! There are N pairs, A of them active. In each round each active pair gets a byte, which is read
//! once, and sent back on sockets. Two accounts are kept. *Clock* runs from before the first write
//! until the last byte was read. *Processor time* is that of all the subject's threads, plus the
//! extra time that the subject's waiting adds to the writer's writes: the writer does the work of
//! waking a thread. There are two places to run: *one* processor, which the subject shares with the
//! writer, so that all bytes of a round are there when the subject looks and nothing happens at the
//! same time; and *all* processors, where threads also gain from running in parallel.
//!
//! `subject/` has the subjects and the memory that they share with the writer, and `block.rs`
//! measures one subject in a process of its own: a process of a thousand threads pays more for each
//! descriptor that it looks up, and only threads should pay that price. Blocks of all subjects take
//! turns, and a ratio compares two blocks of the same turn.

use serde::{Deserialize, Serialize};

use crate::experiment::{Experiment, Figure, Run};
use crate::plot::{self, Curve, Plot};
use crate::statistics::{self, Estimate, Ratio, break_even};
use crate::table::{self, Part, Table};
use crate::threads::subject::THREADS;

mod block;
mod subject;
mod trial;

crate::options::options! {
    /// Options of `superpoll-lab threads`.
    pub(crate) struct Options;

    /// Descriptors: numbers with commas
    total: String = N "100,1000",
    /// How many of them are active: numbers with commas (default: from one to all)
    active: Option<String> = LIST,
    /// Where the active descriptors lie among all: end, spread, front or all
    placement: String = LIST "spread",
    /// Kinds of descriptors: pipe, unix, tcp or all
    kind: String = LIST "pipe",
    /// Where subjects run: on one processor (the writer's), on all, or both
    processors: String = LIST "one,all",
    /// The subjects, with commas, or all
    subjects: Option<String> = LIST,
}

/// One subject at one point.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    /// Kind of the descriptors.
    pub kind: String,
    /// Where the active descriptors lie.
    pub placement: String,
    /// Where the subject ran: on `one` processor, the writer's, or on `all`.
    pub processors: String,
    /// Descriptors.
    pub total: usize,
    /// How many of them were active in each round.
    pub active: usize,
    /// The subject.
    pub subject: String,
    /// `threads` or `events`.
    pub family: String,
    /// Threads of the subject's process.
    pub threads: u64,
    /// Blocks measured.
    pub blocks: usize,
    /// Rounds measured, in all blocks.
    pub rounds: usize,
    /// From before the first write until the last byte was read; the median block.
    pub clock_ns_per_round: f64,
    /// The subject's processor time per event; the median block.
    pub cpu_ns_per_event: f64,
    /// The extra cost of a write, compared with a write to a descriptor that no thread waits for;
    /// the median block.
    pub write_ns_per_event: f64,
    /// Both of these together; the median block.
    pub cost_ns_per_event: f64,
    /// The cheapest block.
    pub cost_ns_per_event_low: f64,
    /// Time on the clock, relative to the best event loop of the same turns: the median turn.
    pub clock_ratio: Option<Ratio>,
    /// Processor time including the writer's share, relative to the best event loop: the median
    /// turn.
    pub cost_ratio: Option<Ratio>,
    /// How often a thread went to sleep, per event.
    pub voluntary_switches_per_event: f64,
}

impl Row {
    /// Ratio of active to all descriptors.
    pub(crate) fn atr(&self) -> f64 {
        self.active as f64 / self.total.max(1) as f64
    }

    /// Returns the headline of the time on the clock relative to the best event loop: from lowest
    /// deciles, or from medians in older records.
    pub(crate) fn clock(&self) -> Option<f64> {
        self.clock_ratio.map(|ratio| ratio.headline().value)
    }
}

/// The sweeps in a record: all rows of one kind, total, placement and choice of processors.
pub(crate) fn sweeps(rows: &[Row]) -> Vec<(String, Vec<&Row>)> {
    table::groups(rows, |row| {
        let processors = if row.processors == "one" { "one processor" } else { "all processors" };
        format!("{} {} {}, {processors}", row.kind, row.total, row.placement)
    })
}

// The experiment `threads`, for the command line and the report.

/// A thread for each descriptor, and loops over events.
#[derive(Debug)]
pub(crate) struct Threads;

impl Experiment for Threads {
    type Options = Options;
    type Row = Row;
    const NAME: &'static str = "threads";
    const TITLE: &'static str = "a thread for each descriptor, or a loop";
    const METHOD: &'static str = "In every round each active descriptor gets a byte, which a thread asleep in a read takes, or a loop \
             over events. The clock runs from before the first write until the last byte was read; processor time is \
             that of all threads, and what it takes the writer to wake them. On one processor, the writer's, all \
             bytes are there when a subject first looks; on all, threads run side by side. “Best” is the best loop \
             at that ratio; ratios are those of blocks of the same turn.";
    const QUICK: &'static str =
        "threads --quick --total 1000 --active 1,100,500,700,1000 --seconds 12";
    const FULL: &'static str = "threads --kind pipe,tcp --paced --seconds 180";
    const RUN: Run<Self> = trial::run;

    fn parts(rows: &[Row]) -> Vec<Part> {
        let mut parts = vec![Part::plot("threads.svg", ratios(rows))];
        for (name, rows) in sweeps(rows) {
            let stem = format!("threads-{}", name.replace(", ", "-").replace(' ', "-"));
            parts.extend([
                Part::Heading(name.clone()),
                Part::plot(format!("{stem}-clock.svg"), clocks(&name, &rows)),
                Part::plot(format!("{stem}-processor.svg"), costs(&name, &rows)),
                Part::List(QUESTION, verdicts(&rows)),
            ]);
            for account in &ACCOUNTS {
                let lead = Part::Text(format!("{}:", account.name));
                parts.extend([lead, Part::Table(sweep(&rows, account))]);
            }
            let lead = Part::text("Each subject:");
            parts.extend([lead, Part::Table(subjects(&rows))]);
        }
        parts
    }

    fn figure(row: &Row) -> Option<Figure> {
        Some(Figure::of_cost(
            format!(
                "{} {} {}/{}, {} processors, {}",
                row.kind, row.placement, row.active, row.total, row.processors, row.subject
            ),
            "processor ns per event",
            row.cost_ns_per_event_low,
            row.cost_ns_per_event,
        ))
    }
}

// The output of `superpoll-lab threads`: for each sweep both accounts, each subject in a line, and
// where threads break even.

/// One of the two accounts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Account {
    /// Its name.
    pub name: &'static str,
    /// Its time in nanoseconds.
    pub of: fn(&Row) -> f64,
    /// Its ratio to the best loop.
    pub ratio: fn(&Row) -> Option<Ratio>,
}

/// Both accounts.
pub(crate) const ACCOUNTS: [Account; 2] = [
    Account {
        name: "time on the clock for a round",
        of: |row| row.clock_ns_per_round,
        ratio: |row| row.clock_ratio,
    },
    Account {
        name: "processor time for an event, the writer's share included",
        of: |row| row.cost_ns_per_event,
        ratio: |row| row.cost_ratio,
    },
];

impl Account {
    /// The ratio of threads to the best loop, over the ratio of active to all.
    pub(crate) fn curve(&self, rows: &[&Row]) -> Vec<(f64, f64)> {
        self.curve_of(rows, |ratio| ratio.value)
    }

    fn curve_of(&self, rows: &[&Row], which: fn(Estimate) -> f64) -> Vec<(f64, f64)> {
        let threads = rows.iter().filter(is_threads);
        let mut points: Vec<(f64, f64)> = threads
            .filter_map(|row| Some((row.atr(), which((self.ratio)(row)?.headline()))))
            .collect();
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
            let ends: [fn(Estimate) -> f64; 2] = [|ratio| ratio.low, |ratio| ratio.high];
            let ends = ends.map(|which| break_even(&account.curve_of(rows, which)));
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
    let names = table::distinct(rows.iter().map(|row| row.subject.as_str()));
    let mut heading = vec!["active/total"];
    heading.extend(&names);
    heading.extend(["best loop", "threads / best", "low-high"]);
    let mut table = Table::new(heading);
    for at in table::ascending(rows, |row| row.active).values() {
        let of =
            |name: &str| at.iter().find(|row| row.subject == name).map(|row| (account.of)(row));
        let mut cells =
            vec![at.first().map_or_else(String::new, |row| format!("{:.3}", row.atr()))];
        cells.extend(names.iter().map(|name| of(name).map_or_else(String::new, table::time)));
        let loops = at.iter().filter(|row| row.family == "events");
        let best = loops.min_by(|a, b| (account.of)(a).total_cmp(&(account.of)(b)));
        cells.push(best.map_or_else(|| "-".to_owned(), |row| row.subject.clone()));
        let ratio = at.iter().find(is_threads).and_then(|row| (account.ratio)(row));
        cells.extend([table::headline(ratio), table::interval(ratio)]);
        table.row(cells);
    }
    table
}

/// Formats a figure with the fewest active descriptors, and with the most.
fn from_to(own: &[&Row], digits: usize, of: fn(&Row) -> f64) -> String {
    format!("{:.digits$} to {:.digits$}", of(own[0]), of(own[own.len() - 1]))
}

/// Each subject in a line: the cost of an event with the fewest and with all descriptors active.
pub(crate) fn subjects(rows: &[&Row]) -> Table {
    table::of(
        &table::subjects(rows, |row| &row.subject, |row| row.active),
        1,
        &[
            ("subject", |own| own[0].subject.clone()),
            ("threads", |own| own[0].threads.to_string()),
            ("cpu ns/event, fewest to most", |own| from_to(own, 0, |row| row.cpu_ns_per_event)),
            ("writer's", |own| from_to(own, 0, |row| row.write_ns_per_event)),
            ("sleeps/event", |own| from_to(own, 3, |row| row.voluntary_switches_per_event)),
        ],
    )
}

/// The question that a sweep answers.
pub(crate) const QUESTION: &str = "Where a thread for each descriptor takes less than the best loop over events (the \
                            hypothesis: from about 0.6 on):";

// The plots of `superpoll-lab threads`: threads against the best event loop, over the ratio of
// active to all, and the cost of an event for each subject.

/// Threads against the best loop, by both accounts, for each sweep: where a curve is below one,
/// threads win. None if there is only one point.
pub(crate) fn ratios(rows: &[Row]) -> Option<Plot> {
    let mut curves = Vec::new();
    let mut marks = Vec::new();
    for (name, rows) in sweeps(rows) {
        for (number, account) in ACCOUNTS.iter().enumerate() {
            let points = account.curve(&rows);
            let (colour, thin) = (curves.len(), number > 0);
            let name = format!("{name}: {}", account.name);
            if let Some(at) = break_even(&points) {
                marks.push((at, name.clone()));
            }
            curves.push(Curve { name, points, colour, thin });
        }
    }
    let plot = Plot {
        title: "a thread for each descriptor / the best loop over events".to_owned(),
        y_label: "threads / events (below 1: threads win)".to_owned(),
        curves,
        break_even: true,
        marks,
        upright: Some((0.6, "0.6, the hypothesis")),
        ..Plot::default()
    };
    plot.drawn()
}

/// Processor time for an event, for each subject and including the writer's share; none if there is
/// only one point.
pub(crate) fn costs(name: &str, rows: &[&Row]) -> Option<Plot> {
    let curves =
        plot::curves(rows, |row| Some((row.subject.as_str(), (row.atr(), row.cost_ns_per_event))));
    Plot::of(
        format!("processor time for an event ({name})"),
        "active / total",
        "ns, writer's share included",
        curves,
    )
    .drawn()
}

/// Time on the clock for an event, for each subject; none if there is only one point.
pub(crate) fn clocks(name: &str, rows: &[&Row]) -> Option<Plot> {
    let curves = plot::curves(rows, |row| {
        let event = row.clock_ns_per_round / row.active.max(1) as f64;
        Some((row.subject.as_str(), (row.atr(), event)))
    });
    Plot::of(
        format!("time on the clock for an event ({name})"),
        "active / total",
        "ns per event",
        curves,
    )
    .drawn()
}

/// Whether a row belongs to the subject of the hypothesis, a thread for each descriptor.
fn is_threads(row: &&&Row) -> bool {
    row.subject == THREADS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::threads::subject::THREADS;

    fn row(subject: &str, active: usize, clock: f64, ratio: [f64; 3]) -> Row {
        let [low, median, high] = ratio;
        Row {
            kind: "pipe".to_owned(),
            processors: "all".to_owned(),
            total: 10,
            active,
            subject: subject.to_owned(),
            family: if subject == THREADS { "threads" } else { "events" }.to_owned(),
            clock_ns_per_round: clock,
            cost_ns_per_event: clock * 10.0,
            clock_ratio: Some(Ratio { median, low, high, decile: None }),
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

    #[test]
    fn break_even_is_marked_where_a_curve_comes_down() {
        let row = |subject: &str, active, clock_ratio, cost_ratio| Row {
            kind: "pipe".to_owned(),
            total: 10,
            active,
            subject: subject.to_owned(),
            clock_ns_per_round: 1000.0,
            cost_ns_per_event: 500.0,
            clock_ratio: Some(Ratio { median: clock_ratio, ..Ratio::default() }),
            cost_ratio: Some(Ratio { median: cost_ratio, ..Ratio::default() }),
            ..Row::default()
        };
        let rows = [
            row(THREADS, 1, 2.0, 4.0),
            row(THREADS, 6, 1.5, 3.0),
            row(THREADS, 10, 0.5, 2.0),
            row("raw-poll", 1, 1.0, 1.0),
            row("raw-poll", 10, 1.0, 1.0),
        ];
        let plot = ratios(&rows).unwrap();
        assert_eq!(plot.curves.len(), 2);
        assert_eq!(plot.curves[1].points, [(0.1, 4.0), (0.6, 3.0), (1.0, 2.0)]);
        assert_eq!(plot.marks, [(0.8, plot.curves[0].name.clone())]);
        assert!(plot.svg().unwrap().contains("threads win"));
        assert!(ratios(&rows[..1]).is_none());
        let refs: Vec<&Row> = rows.iter().collect();
        assert_eq!(clocks("x", &refs).unwrap().curves[0].points[2], (1.0, 100.0));
        assert_eq!(costs("x", &refs).unwrap().curves.len(), 2);
    }
}
