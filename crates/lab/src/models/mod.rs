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

use serde::{Deserialize, Serialize};

use crate::atr::{self, cost, loop_time, per_event, spread};
use crate::experiment::{Experiment, Figure, Run};
use crate::plot::{self, Plot};
use crate::record::{Account, Figures};
use crate::statistics;
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

/// One loop at one point.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    /// Kind of the descriptors.
    pub kind: String,
    /// Where the active descriptors lie.
    pub placement: String,
    /// Descriptors watched.
    pub total: usize,
    /// How many of them were active in each round.
    pub active: usize,
    /// `try`, `signals`, `ask` or `register`; `none` for the floor.
    pub model: String,
    /// The loop.
    pub subject: String,
    /// The share of a processor that it takes while nothing happens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quiet_processor_share: Option<f64>,
    /// The measured figures. Ratios are to the best of all loops at this point except the floor.
    #[serde(flatten)]
    pub figures: Figures,
}

impl Row {
    /// Ratio of active to all descriptors.
    pub(crate) fn atr(&self) -> f64 {
        self.active as f64 / self.total.max(1) as f64
    }
}

/// The sweeps in a record: all rows of one kind, total and placement.
pub(crate) fn sweeps(rows: &[Row]) -> Vec<(String, Vec<&Row>)> {
    table::groups(rows, |row| format!("{} {} {}", row.kind, row.total, row.placement))
}

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
                Part::List(FROM_TO, verdicts(&rows)),
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
        let at = {
            format!("{} {} {}/{}, {}", row.kind, row.placement, row.active, row.total, row.subject)
        };
        Figure::of_rounds(at, &row.figures)
    }
}

// The output of `superpoll-lab models`: for each sweep the times by both accounts, each loop in a
// line, and the claims about each model next to the measurements.

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
            ("model", |own| own[0].model.clone()),
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

/// The heading above the claims.
pub(crate) const FROM_TO: &str = "What is said of each model, and what was measured, from the fewest active \
                           descriptors to the most:";

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

// The claims about the four models, and the verdict of a sweep on them.
//
// The claims are those of a well-known comparison of 2017. Trying keeps a processor busy and is
// not practical. Signals exist, but as Linux sends them they are next to useless. Asking is simple
// but expensive by its nature, because each call goes through all descriptors, joins their wait
// queues and leaves them again; epoll only lessens this. So the future is to tell the kernel
// beforehand which operations the program wants.

/// The rows of a sweep.
struct Sweep<'a>(&'a [&'a Row]);

impl Sweep<'_> {
    fn at(&self, subject: &str, active: usize) -> Option<&Figures> {
        let row = self.0.iter().find(|row| row.subject == subject && row.active == active)?;
        Some(&row.figures)
    }

    /// The numbers of active descriptors, ascending.
    fn points(&self) -> Vec<usize> {
        table::ascending(self.0, |row| row.active).into_keys().collect()
    }

    /// The ratio of one subject's cost to another's, at each point at which both were measured.
    fn ratios(&self, subject: &str, to: &str, of: Account) -> Vec<f64> {
        let ratio = |active| Some(of(self.at(subject, active)?)? / of(self.at(to, active)?)?);
        self.points().into_iter().filter_map(ratio).collect()
    }

    /// Describes these ratios at the ends of the sweep, by both accounts if both are known.
    fn against(&self, subject: &str, to: &str) -> Option<String> {
        if subject == to {
            return None;
        }
        let ends = |of: Account| {
            let ratios = self.ratios(subject, to, of);
            let (first, last) = (*ratios.first()?, *ratios.last()?);
            Some(match ratios.len() {
                1 => format!("{first:.2}"),
                _ => format!("{first:.2} to {last:.2}"),
            })
        };
        let alone = ends(loop_time)?;
        let writers = ends(cost).map_or_else(String::new, |cost| format!(", {cost} with writers"));
        Some(format!("{subject} takes {alone} times as long as {to}{writers}"))
    }

    /// Describes at how many points a subject was the cheapest including the writers' share, if
    /// that is known.
    fn won(&self, subject: &str) -> Option<String> {
        let won = self.0.iter().filter(|row| {
            let figures = &row.figures;
            row.subject == subject && figures.cost().or(figures.loop_part()) == Some(1.0)
        });
        let of = self.points().len();
        self.has(subject)
            .then(|| format!("{subject} is the cheapest at {} of {of} ratios", won.count()))
    }

    fn quiet(&self, subject: &str) -> Option<String> {
        let share = self.0.iter().find(|row| row.subject == subject)?.quiet_processor_share?;
        Some(format!("{subject} takes {:.1} % of a processor while nothing happens", share * 100.0))
    }

    /// Describes how many reads of a round found nothing, at the point where they were most, if
    /// there were any.
    fn empty_reads(&self, subject: &str) -> Option<String> {
        let own = self.0.iter().filter(|row| row.subject == subject);
        let each = own.map(|row| {
            let figures = &row.figures;
            let rounds = (figures.rounds + figures.preempted).max(1);
            figures.empty_reads as f64 / rounds as f64
        });
        let most = each.max_by(f64::total_cmp).filter(|most| *most > 0.0)?;
        Some(format!("{subject} reads up to {most:.0} descriptors of a round in vain"))
    }

    fn has(&self, subject: &str) -> bool {
        self.0.iter().any(|row| row.subject == subject)
    }

    fn overflows(&self, subject: &str) -> Option<String> {
        let own = self.0.iter().filter(|row| row.subject == subject);
        let counts: Option<u64> = own.map(|row| row.figures.overflows).sum();
        Some(match counts.filter(|_| self.has(subject))? {
            0 => format!("the queue of {subject} was never full"),
            1 => format!("the queue of {subject} was full once, and everything was polled"),
            count => {
                format!("the queue of {subject} was full {count} times, and everything was polled")
            }
        })
    }
}

/// The well-known epoll loop, with which all models are compared.
const KNOWN: &str = "raw-epoll-lt";

/// A line for each measured model. Times are given from the fewest active descriptors to the most.
fn verdicts(rows: &[&Row]) -> Vec<String> {
    let sweep = Sweep(rows);
    let against = |subject: &str| sweep.against(subject, KNOWN);
    let trying = ["spin", KNOWN]
        .into_iter()
        .filter(|_| sweep.has("spin"))
        .map(|subject| sweep.quiet(subject))
        .chain([against("spin"), sweep.won("spin")]);
    let signals = ["sigio-plain", "sigio-wait", "sigio-fd"].into_iter().flat_map(|subject| {
        [against(subject), sweep.empty_reads(subject), sweep.overflows(subject)]
    });
    let asking = ["raw-select", "raw-poll", KNOWN, "raw-epoll-et"]
        .into_iter()
        .flat_map(|subject| [against(subject), sweep.won(subject)]);
    let registering = ["uring-poll", "uring-read", "aio-poll"]
        .into_iter()
        .flat_map(|subject| [against(subject), sweep.won(subject)]);
    let lines: [(&str, Vec<Option<String>>); 4] = [
        ("Trying is said to keep a processor busy and not to be practical", trying.collect()),
        ("Signals, as Linux sends them, are said to be of next to no use", signals.collect()),
        (
            "Asking is said to be heavy by nature, as each call joins and leaves all it waits for, and \
             less so with epoll",
            asking.collect(),
        ),
        ("Registering is said to be the way out", registering.collect()),
    ];
    lines
        .into_iter()
        .filter_map(|(claim, found)| {
            let found: Vec<String> = found.into_iter().flatten().collect();
            (!found.is_empty()).then(|| format!("{claim}. Measured: {}.", found.join("; ")))
        })
        .collect()
}

#[cfg(test)]
mod claims_tests {
    use super::*;

    fn row(subject: &str, active: usize, ns: f64, best: f64, overflows: Option<u64>) -> Row {
        Row {
            total: 100,
            active,
            subject: subject.to_owned(),
            quiet_processor_share: Some(if subject == "spin" { 1.0 } else { 0.002 }),
            figures: Figures {
                ns_per_round_median: ns,
                cost_ns_per_round: Some(ns + 100.0),
                cost_ratio: Some((ns + 100.0) / (best + 100.0)),
                overflows,
                rounds: 8,
                preempted: 2,
                empty_reads: if subject == "sigio-plain" { 990 } else { 0 },
                ..Figures::default()
            },
            ..Row::default()
        }
    }

    #[test]
    fn each_model_that_was_measured_has_a_line_with_its_figures() {
        let rows = [
            row("spin", 1, 10_000.0, 1_000.0, None),
            row("sigio-wait", 1, 2_000.0, 1_000.0, Some(3)),
            row("sigio-plain", 1, 9_000.0, 1_000.0, None),
            row("raw-epoll-lt", 1, 1_000.0, 1_000.0, None),
            row("raw-epoll-et", 1, 900.0, 900.0, None),
            row("uring-read", 1, 500.0, 1_000.0, None),
            row("spin", 100, 40_000.0, 40_000.0, None),
            row("sigio-wait", 100, 100_000.0, 40_000.0, Some(4)),
            row("raw-epoll-lt", 100, 50_000.0, 40_000.0, None),
        ];
        let rows: Vec<&Row> = rows.iter().collect();
        let lines = verdicts(&rows);
        assert_eq!(lines.len(), 4, "{lines:?}");
        for part in [
            "spin takes 100.0 % of a processor",
            "raw-epoll-lt takes 0.2 %",
            "spin takes 10.00 to 0.80 times as long as raw-epoll-lt, 9.18 to 0.80 with writers",
            "the cheapest at 1 of 2 ratios",
        ] {
            assert!(lines[0].contains(part), "{part:?} in {}", lines[0]);
        }
        assert!(lines[1].contains("full 7 times"), "{}", lines[1]);
        assert!(lines[1].contains("takes 2.00 to 2.00 times"), "{}", lines[1]);
        assert!(lines[1].contains("sigio-plain reads up to 99 descriptors"), "{}", lines[1]);
        assert!(!lines[1].contains("queue of sigio-plain"), "{}", lines[1]);
        assert!(lines[2].contains("raw-epoll-et takes 0.90 times as long"), "{}", lines[2]);
        assert!(lines[2].contains("raw-epoll-et is the cheapest at 1 of 2 ratios"), "{}", lines[2]);
        assert!(lines[3].contains("uring-read takes 0.50 times as long"), "{}", lines[3]);
    }

    #[test]
    fn without_epoll_there_is_nothing_to_hold_against() {
        let rows = [row("raw-poll", 5, 1_000.0, 1_000.0, None)];
        let rows: Vec<&Row> = rows.iter().collect();
        let lines = verdicts(&rows);
        assert_eq!(lines.len(), 1);
        assert!(lines[0].ends_with("Measured: raw-poll is the cheapest at 1 of 1 ratios."));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Figures;

    fn row(subject: &str, model: &str, active: usize, ns: f64) -> Row {
        Row {
            total: 100,
            active,
            model: model.to_owned(),
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
