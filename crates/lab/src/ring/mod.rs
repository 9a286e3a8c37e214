//! `superpoll-lab ring`: N pipes in a ring, with a task between neighbouring pipes that passes on
//! the bytes it reads.
//!
//! One byte, or K of them, goes round for M laps: the work of a chat server or of a pipeline of
//! coroutines, reduced to passing bytes on. With one byte in flight only one task can ever run.
//! Then the figure is the way from a write to the task that waits for it: the runtime's queue, its
//! poller and its system calls. With more bytes in flight a poller can return more than one event
//! at a time.
//!
//! `course.rs` is the work and its proof. `subject.rs` has the runtimes and pollers, the runtimes
//! each in a file of its own; tasks are the same for all runtimes (`tasks.rs`), and the loops over
//! pollers do the same with a ready pipe (`passing.rs`). `stage.rs` measures one subject, in a
//! process of its own. All subjects are set up once per point and then run some laps in turn, round
//! by round, so that drift hits all alike.

use serde::{Deserialize, Serialize};

use crate::experiment::{Experiment, Figure, Run, Target, Targets};
use crate::plot::{self, Plot};
use crate::statistics::{self, Estimate, ToTokio};
use crate::table::{self, Part, Table};

#[cfg(feature = "rivals-rt")]
pub(crate) mod compio;
mod course;
#[cfg(feature = "rivals-rt")]
mod monoio;
mod passing;
mod renewed;
#[cfg(feature = "rivals-rt")]
mod smol;
mod stage;
pub(crate) mod subject;
mod tasks;
#[cfg(feature = "rivals-rt")]
mod tokio;
mod trial;

crate::options::options! {
    /// Options of `superpoll-lab ring`.
    pub(crate) struct Options;

    /// Pipes in the ring, with commas
    total: String = LIST "1000",
    /// Bytes in flight: numbers, or shares of the pipes if written with a point (0.1)
    in_flight: String = LIST "1",
    /// In addition to the first of both, other numbers of pipes (2 to 4900) and other shares (0.01
    /// to 1.0)
    #[arg(conflicts_with_all = ["total", "in_flight"])]
    sweep: bool,
    /// Runtimes to measure, with commas, or all
    subjects: Option<String> = LIST,
}

/// One subject at one point.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    /// The runtime.
    pub subject: String,
    /// Pipes.
    pub total: usize,
    /// Bytes that went round at a time.
    pub in_flight: usize,
    /// Laps of each byte in a round.
    pub laps: u64,
    /// Time for one byte to pass one pipe, in the quickest round.
    pub ns_per_hop_min: f64,
    /// The same in the median round.
    pub ns_per_hop_median: f64,
    /// The slowest round less the quickest.
    pub ns_per_hop_spread: f64,
    /// Processor time of all threads, in the cheapest round.
    pub cpu_ns_per_hop_min: f64,
    /// All system calls. None where only reads and writes can be counted.
    pub syscalls_per_hop: Option<f64>,
    /// Reads, including those that found nothing, as the kernel counts them; without reads that a
    /// ring (`io_uring`) carries.
    pub reads_per_hop: Option<f64>,
    /// The number of bytes that a read returned: more than one where bytes have met.
    pub bytes_per_read: f64,
    /// Hops in a second, from the median.
    pub hops_per_second: f64,
    /// Rounds measured.
    pub rounds: usize,
    /// The cost relative to tokio's `current_thread` runtime.
    #[serde(flatten)]
    pub to_tokio: ToTokio,
    /// The median relative to that of the raw epoll loop.
    pub raw_epoll_ratio: Option<f64>,
    /// The ratio of the lowest deciles to that of the raw epoll loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw_epoll_decile: Option<Estimate>,
    /// The time of a hop in each round, while the point is measured.
    #[serde(skip)]
    pub ns_per_hop: Vec<f64>,
}

impl Row {
    /// Returns the headline of the time relative to the raw epoll loop's: from lowest deciles, or
    /// from medians in older records.
    pub(crate) fn to_raw_epoll(&self) -> Option<f64> {
        self.raw_epoll_decile.map(|ratio| ratio.value).or(self.raw_epoll_ratio)
    }
}

// The experiment `ring`, for the command line and the report.

/// Pipes in a ring.
#[derive(Debug)]
pub(crate) struct Ring;

impl Experiment for Ring {
    type Options = Options;
    type Row = Row;
    const NAME: &'static str = "ring";
    const TITLE: &'static str = "pipes in a ring";
    const METHOD: &'static str = "A task between each two pipes passes on what it reads, up to 64 bytes at a time; the bytes \
             in flight go round for some laps. A hop is one byte through one pipe. Each subject has a \
             process of its own, and all take turns of equal time: a slow one does fewer laps. \
             “read+write” knows where the bytes are and never waits. Those called “renewed” close a \
             pipe after each hop and open another one, with and without an end of its registration.";
    const QUICK: &'static str = "ring --quick --seconds 20";
    const FULL: &'static str = "ring --sweep --seconds 180";
    const MEASURED: &'static str = "time for one byte to pass one pipe of a ring";
    const RUN: Run<Self> = trial::run;

    fn parts(rows: &[Row]) -> Vec<Part> {
        let pictures = [
            Part::Picture("ring.svg", bars(rows)),
            Part::plot("ring-pipes.svg", over_total(rows)),
            Part::plot("ring-in-flight.svg", over_share(rows)),
        ];
        let points = points(rows).into_iter().flat_map(|((total, in_flight), rows)| {
            let saved = "Pipes that are closed and made new after each hop:";
            [
                Part::Heading(name(total, in_flight)),
                Part::Table(point(&rows)),
                Part::List(saved, deregister_on_close(&rows)),
            ]
        });
        pictures.into_iter().chain(points).collect()
    }

    /// The targets that `superpoll-lab ring` measures, at a thousand pipes and one byte in flight.
    fn targets(rows: &[Row]) -> Vec<Target> {
        let mut targets = Targets::new(rows, |row| row.subject.clone());
        let one = |row: &Row| (row.total, row.in_flight) == (1000, 1);
        let peers = |row: &Row| one(row) && row.subject == "superpoll-rt-peers";
        let generic = |row: &Row| {
            one(row) && ["superpoll-rt-epoll", "superpoll-rt-adaptive"].contains(&&*row.subject)
        };
        targets.add("ring: time / tokio", 0.72, generic, |row| row.to_tokio.headline());
        targets.add("ring: time / raw epoll", 1.0, generic, Row::to_raw_epoll);
        targets
            .add("ring of known peers: time / tokio", 0.55, peers, |row| row.to_tokio.headline());
        // A read and a write, and from time to time the poller asks about all the remaining
        // descriptors.
        let name = "ring of known peers: syscalls per hop";
        targets.add(name, 2.02, peers, |row| row.syscalls_per_hop);
        let name = "ring: reads per hop, those that find nothing included";
        targets.add(name, 1.01, |row| generic(row) || peers(row), |row| row.reads_per_hop);
        targets.all
    }

    fn figure(row: &Row) -> Option<Figure> {
        Some(Figure::of_cost(
            format!("{} pipes, {} in flight, {}", row.total, row.in_flight, row.subject),
            "ns per hop",
            row.ns_per_hop_min,
            row.ns_per_hop_median,
        ))
    }
}

// The output of `superpoll-lab ring`: for each point its subjects, one line each.

/// The points of a record, each with its rows, in the order in which they were measured.
pub(crate) fn points(rows: &[Row]) -> Vec<((usize, usize), Vec<&Row>)> {
    table::groups(rows, |row| (row.total, row.in_flight))
}

/// Formats a number of bytes in flight in words.
fn in_flight_text(in_flight: usize) -> String {
    format!("{in_flight} byte{} in flight", if in_flight == 1 { "" } else { "s" })
}

/// A point in words.
pub(crate) fn name(total: usize, in_flight: usize) -> String {
    format!("{total} pipes, {}", in_flight_text(in_flight))
}

/// The subjects of one point.
pub(crate) fn point(rows: &[&Row]) -> Table {
    table::of(
        rows,
        1,
        &[
            ("subject", |row| row.subject.clone()),
            ("ns/hop", |row| format!("{:.0}", row.ns_per_hop_median)),
            ("least", |row| format!("{:.0}", row.ns_per_hop_min)),
            ("spread", |row| format!("{:.0}", row.ns_per_hop_spread)),
            ("cpu/hop", |row| format!("{:.0}", row.cpu_ns_per_hop_min)),
            ("syscalls/hop", |row| table::number(row.syscalls_per_hop, 2)),
            ("reads/hop", |row| table::number(row.reads_per_hop, 2)),
            ("bytes/read", |row| format!("{:.2}", row.bytes_per_read)),
            ("hops/s", |row| format!("{:.0}", row.hops_per_second)),
            ("/ tokio", |row| table::ratio(row.to_tokio.headline())),
            ("90 %", |row| row.to_tokio.tokio_decile.map_or_else(String::new, table::span)),
            ("median", |row| table::ratio(row.to_tokio.tokio_ratio)),
            ("/ raw epoll", |row| table::ratio(row.to_raw_epoll())),
            ("90 %", |row| row.raw_epoll_decile.map_or_else(String::new, table::span)),
            ("median", |row| table::ratio(row.raw_epoll_ratio)),
        ],
    )
}

/// Describes in words what it saves to close a descriptor without a call that deregisters it.
fn deregister_on_close(rows: &[&Row]) -> Vec<String> {
    let of = |name: &str| rows.iter().find(|row| row.subject == name);
    let saved = |watcher: &&str| {
        let deregisters = of(&format!("{watcher}-renewed-deregister"))?;
        let closes = of(&format!("{watcher}-renewed-close"))?;
        let share = closes.ns_per_hop_min / deregisters.ns_per_hop_min;
        let calls = deregisters.syscalls_per_hop? - closes.syscalls_per_hop?;
        Some(format!(
            "with {watcher}, deregister-on-close saves {calls:.2} system calls and {:.0} ns of {:.0} ns \
             a hop: {:+.1} %",
            deregisters.ns_per_hop_min * (1.0 - share),
            deregisters.ns_per_hop_min,
            (share - 1.0) * 100.0
        ))
    };
    ["raw-epoll", "superpoll-epoll"].iter().filter_map(saved).collect()
}

// The plots of `superpoll-lab ring`: time per hop over the number of pipes, and over the share of
// them that has a byte; bars where there is only one point.

/// Time per hop over the number of pipes, for the first measured number of bytes in flight.
pub(crate) fn over_total(rows: &[Row]) -> Option<Plot> {
    let bytes = rows.first()?.in_flight;
    plot::over_powers_of_ten(in_flight_text(bytes), ["pipes", "ns per hop"], rows, |row| {
        let point = (row.total as f64, row.ns_per_hop_median);
        (row.in_flight == bytes).then_some((row.subject.as_str(), point))
    })
}

/// Time per hop over the share of pipes with a byte, for the first measured number of pipes.
pub(crate) fn over_share(rows: &[Row]) -> Option<Plot> {
    let total = rows.first()?.total;
    let curves = plot::curves(rows, |row| {
        let point = (row.in_flight as f64 / total as f64, row.ns_per_hop_median);
        (row.total == total).then_some((row.subject.as_str(), point))
    });
    Plot::of(format!("{total} pipes"), "bytes in flight / pipes", "ns per hop", curves).drawn()
}

/// The first point as bars.
pub(crate) fn bars(rows: &[Row]) -> String {
    let all = points(rows);
    let Some(((total, in_flight), rows)) = all.first() else { return String::new() };
    let times: Vec<f64> = rows.iter().map(|row| row.ns_per_hop_median).collect();
    // The bar of a back-end that checks every pipe again and again would dwarf the rest.
    let most = statistics::maximum(&times).min(statistics::median(&times) * 4.0).max(1.0);
    let bars = rows.iter().map(|row| {
        let time = row.ns_per_hop_median;
        (row.subject.clone(), time / most, time)
    });
    plot::bars(&format!("ns per hop, {}", name(*total, *in_flight)), 240.0, bars)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_deregister_on_close_saves_is_said_in_a_line() {
        let row = |subject: &str, ns, calls| Row {
            subject: subject.to_owned(),
            ns_per_hop_min: ns,
            syscalls_per_hop: Some(calls),
            ..Row::default()
        };
        let rows = [
            row("raw-epoll-renewed-deregister", 2000.0, 8.0),
            row("raw-epoll-renewed-close", 1500.0, 7.0),
            row("superpoll-epoll-renewed-close", 1.0, 1.0),
        ];
        let lines = deregister_on_close(&rows.iter().collect::<Vec<_>>());
        assert_eq!(
            lines,
            [
                "with raw-epoll, deregister-on-close saves 1.00 system calls and 500 ns of 2000 ns a \
              hop: -25.0 %"
            ]
        );
    }

    #[test]
    fn rings_are_judged_at_a_thousand_pipes() {
        let row = |subject: &str, total, tokio_ratio| Row {
            subject: subject.to_owned(),
            total,
            in_flight: 1,
            to_tokio: ToTokio { tokio_ratio: Some(tokio_ratio), ..ToTokio::default() },
            ..Row::default()
        };
        let targets = Ring::targets(&[
            row("superpoll-rt-epoll", 1000, 0.7),
            row("superpoll-rt-adaptive", 1000, 0.8),
            row("superpoll-rt-poll", 1000, 30.0),
            row("superpoll-rt-peers", 1000, 0.5),
            row("superpoll-rt-peers", 10, 5.0),
        ]);
        let kept: Vec<(f64, bool)> = targets.iter().map(|t| (t.measured, t.is_kept())).collect();
        assert_eq!(kept, [(0.8, false), (0.5, true)]);
        assert_eq!(targets[0].at, "superpoll-rt-adaptive");
    }

    #[test]
    fn each_point_has_its_table() {
        let row = |total, in_flight, subject: &str| Row {
            subject: subject.to_owned(),
            total,
            in_flight,
            ns_per_hop_median: 1234.0,
            ..Row::default()
        };
        let rows = [row(10, 1, "one"), row(20, 2, "one"), row(10, 1, "two")];
        let [(first, both), (second, _)] = &points(&rows)[..] else { panic!("two points") };
        assert_eq!(name(first.0, first.1), "10 pipes, 1 byte in flight");
        assert_eq!(name(second.0, second.1), "20 pipes, 2 bytes in flight");
        let text = point(both).to_string();
        assert!(text.contains("two") && text.contains("1234"), "{text}");
    }

    fn row(subject: &str, total: usize, in_flight: usize, ns_per_hop_median: f64) -> Row {
        Row { subject: subject.to_owned(), total, in_flight, ns_per_hop_median, ..Row::default() }
    }

    #[test]
    fn curves_need_several_points_and_bars_only_one() {
        let one = [row("tokio", 100, 1, 2000.0), row("superpoll-rt-poll", 100, 1, 90_000.0)];
        assert!(over_total(&one).is_none() && over_share(&one).is_none());
        let svg = bars(&one);
        assert!(svg.starts_with("<svg") && svg.contains("90000") && svg.contains("tokio"));
        assert_eq!(bars(&[]), "");
        let mut more = one.to_vec();
        more.push(row("tokio", 1000, 1, 2100.0));
        more.push(row("tokio", 100, 50, 1500.0));
        let total = over_total(&more).unwrap();
        assert_eq!(total.curves[0].points, [(2.0, 2000.0), (3.0, 2100.0)]);
        assert_eq!(total.x_range, 2.0..3.0);
        let share = over_share(&more).unwrap();
        assert_eq!(share.curves[0].points, [(0.01, 2000.0), (0.5, 1500.0)]);
        assert!(
            total.svg().unwrap().contains("pipes") && share.svg().unwrap().contains("in flight")
        );
    }
}
