//! What we promise, held against what was measured in the same run.
//!
//! Each target is judged at its worst point, and that point is named. "Cost" is waiting, reading,
//! upkeep and what the writes cost more than to unwatched descriptors; "pure" the best of poll and
//! both triggers of epoll, raw or ours.

use serde::{Deserialize, Serialize};
use serde_json::{Map, json};
use superpoll::BackendKind;

use crate::environment::Environment;
use crate::error::Result;
use crate::options::Output;
use crate::record::{self, Figures, Record};
use crate::table::Table;
use crate::{atr, echo, herd, http, mix, registrations, ring, timers, wake};

/// Options of `lab targets`.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Where results go.
    #[command(flatten)]
    pub output: Output,
}

/// What the targets of a sweep need.
const SWEPT: &str = "floor,raw-poll,raw-epoll-lt,raw-epoll-et,poll,epoll-lt,epoll-et,adaptive";

/// Measures everything that a target is about: all kinds, totals and placements, mixed loads,
/// wake-ups, registrations, echo servers, and sweeps and mixes once more with a second thread in the process. Takes about
/// an hour; a quick run keeps to pipes and one placement. `between` is told what begins.
///
/// # Errors
///
/// As [`atr::run`].
pub fn run(options: &Options, mut between: impl FnMut(&str)) -> Result<Record<Target>> {
    options.output.check()?;
    let quick = options.output.quick;
    let (kind, total, placement) =
        if quick { ("pipe", "1000", "spread") } else { ("all", "1000,10000", "all") };
    let mio = if cfg!(feature = "rival-mio") { ",mio" } else { "" };
    let ring = if BackendKind::Uring.is_available() { ",uring" } else { "" };
    // The report has room for one record of each experiment: the one without a second thread.
    let output = |second_thread: bool, quick_seconds: f64, seconds: f64| Output {
        json: None,
        second_thread: second_thread || options.output.second_thread,
        seconds: Some(options.output.budget(quick_seconds, seconds)),
        paced: true,
        ..options.output.clone()
    };
    let mut targets = Vec::new();
    for second_thread in [false, true] {
        let noted = |all: Vec<Target>| {
            all.into_iter().map(move |target| Target {
                at: target.at + if second_thread { ", second thread" } else { "" },
                ..target
            })
        };
        between(if second_thread { "sweeps, second thread" } else { "sweeps" });
        let record = atr::run(&atr::Options {
            total: total.to_owned(),
            placement: placement.to_owned(),
            kind: kind.to_owned(),
            subjects: Some(format!("{SWEPT}{ring}{mio}")),
            output: output(second_thread, 6.0, 600.0),
            ..atr::Options::default()
        })?;
        targets.extend(noted(of_atr(&record.rows)));
        if !second_thread && !options.output.no_report {
            crate::output::write(&record, &Output { json: None, ..options.output.clone() })?;
        }
        between(if second_thread { "mixed loads, second thread" } else { "mixed loads" });
        let record = mix::run(&mix::Options {
            kind: kind.to_owned(),
            shift: if quick { "10,30,100" } else { "10,15,20,30,50,100,300,1000" }.to_owned(),
            output: output(second_thread, 8.0, 240.0),
            ..mix::Options::default()
        })?;
        targets.extend(noted(of_mix(&record.rows)));
        if !second_thread && !options.output.no_report {
            crate::output::write(&record, &Output { json: None, ..options.output.clone() })?;
        }
    }
    between("wake-ups");
    let record = wake::run(&wake::Options {
        kind: kind.to_owned(),
        output: output(false, 1.0, 1.0),
        ..wake::Options::default()
    })?;
    targets.extend(of_wake(&record.rows));
    if !options.output.no_report {
        crate::output::write(&record, &Output { json: None, ..options.output.clone() })?;
    }
    between("registrations");
    let record = registrations::run(&registrations::Options {
        kind: kind.to_owned(),
        output: output(false, 2.0, 40.0),
        ..registrations::Options::default()
    })?;
    targets.extend(of_registrations(&record.rows));
    if !options.output.no_report {
        crate::output::write(&record, &Output { json: None, ..options.output.clone() })?;
    }
    between("echo servers");
    let record =
        echo::run(&echo::Options { output: output(false, 8.0, 60.0), ..echo::Options::default() })?;
    targets.extend(of_echo(&record.rows));
    if !options.output.no_report {
        crate::output::write(&record, &Output { json: None, ..options.output.clone() })?;
    }
    let mut parameters = Map::new();
    parameters.insert("quick".to_owned(), json!(quick));
    parameters.insert("seed".to_owned(), json!(options.output.seed));
    Ok(Record {
        schema: record::SCHEMA,
        experiment: "targets".to_owned(),
        environment: Environment::here(),
        parameters,
        rows: targets,
    })
}

/// A promise and what became of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Target {
    /// What is promised.
    pub name: String,
    /// Not more than this.
    pub bound: f64,
    /// The worst that was measured.
    pub measured: f64,
    /// Where that was.
    pub at: String,
}

impl Target {
    /// Whether it is kept.
    pub fn is_kept(&self) -> bool {
        self.measured <= self.bound
    }
}

/// The worst of some measurements; no target where nothing was measured.
fn worst(
    name: impl Into<String>,
    bound: f64,
    measured: impl Iterator<Item = (f64, String)>,
) -> Option<Target> {
    let (measured, at) = measured.max_by(|a, b| a.0.total_cmp(&b.0))?;
    Some(Target { name: name.into(), bound, measured, at })
}

/// Subjects on io_uring, with targets of their own.
const RINGS: [&str; 2] = ["uring", "adaptive-uring"];

/// The targets that `lab atr` measures.
pub fn of_atr(rows: &[atr::Row]) -> Vec<Target> {
    let at =
        |row: &atr::Row| format!("{} {} of {} {}", row.kind, row.active, row.total, row.placement);
    let adaptive = |of: fn(&Figures) -> Option<f64>| {
        rows.iter()
            .filter(|row| row.subject == "adaptive")
            .filter_map(move |row| Some((of(&row.figures)?, at(row))))
    };
    // Sweeps are compared where one in a hundred and where all are active.
    let against = |ours: &'static str, theirs: &'static str| {
        rows.iter()
            .filter(move |row| row.subject == ours)
            .filter(|row| row.active == row.total || row.active == row.total.div_ceil(100))
            .filter_map(move |row| {
                let other = rows.iter().find(|other| {
                    other.subject == theirs
                        && (&other.kind, &other.placement, other.total, other.active)
                            == (&row.kind, &row.placement, row.total, row.active)
                })?;
                let ratio = row.figures.ns_per_round_median / other.figures.ns_per_round_median;
                Some((ratio, format!("{}, {ours} / {theirs}", at(row))))
            })
    };
    let steady = |of: fn(&Figures) -> Option<f64>| {
        rows.iter()
            .filter(|row| {
                ["poll", "epoll-lt", "epoll-et", "adaptive", "adaptive-lt"]
                    .contains(&row.subject.as_str())
            })
            .filter_map(move |row| {
                Some((of(&row.figures)?, format!("{} {}", at(row), row.subject)))
            })
    };
    // One active descriptor, and from one in a hundred on.
    let rings = RINGS.into_iter().flat_map(|subject| {
        let costs = move |kinds: &'static [&'static str], one: bool| {
            rows.iter()
                .filter(move |row| row.subject == subject && kinds.contains(&row.kind.as_str()))
                .filter(move |row| {
                    if one {
                        row.active == 1
                    } else {
                        row.active * 100 >= row.total && row.active > 1
                    }
                })
                .filter_map(move |row| Some((row.figures.cost_ratio?, at(row))))
        };
        let name = |what| format!("uniform sweep, {what}: cost of {subject} / pure");
        [
            worst(name("one active"), 1.0, costs(&["pipe", "unix", "tcp"], true)),
            worst(name("pipes from 0.01"), 0.95, costs(&["pipe"], false)),
            worst(name("sockets from 0.01"), 0.90, costs(&["unix", "tcp"], false)),
        ]
    });
    let memory = rows.iter().filter_map(|row| {
        let bytes = row.figures.memory_bytes? as f64 / row.total.max(1) as f64;
        Some((bytes, format!("{} of {}", row.subject, row.total)))
    });
    [
        worst("uniform sweep: cost of adaptive / pure", 1.06, adaptive(|f| f.cost_ratio)),
        worst("uniform sweep: loop of adaptive / pure", 1.05, adaptive(|f| f.loop_ratio)),
        worst(
            "our epoll / raw epoll at 0.01 and 1.0",
            1.03,
            against("epoll-lt", "raw-epoll-lt").chain(against("epoll-et", "raw-epoll-et")),
        ),
        worst("our epoll / mio at 0.01 and 1.0", 1.0, against("epoll-et", "mio")),
        worst("steady state: waits per round", 1.0, steady(|f| f.waits_per_round)),
        worst("steady state: epoll_ctl per round", 0.0, steady(|f| f.epoll_ctl_per_round)),
        worst("steady state: wakes per round", 0.0, steady(|f| f.wakes_per_round)),
        worst("steady state: allocations per round", 0.0, steady(|f| f.allocations_per_round)),
        worst("own bytes per registered descriptor", 64.0, memory),
    ]
    .into_iter()
    .chain(rings)
    .flatten()
    .collect()
}

/// The targets that `lab mix` measures.
pub fn of_mix(rows: &[mix::Row]) -> Vec<Target> {
    let costs_of = |subject: &'static str,
                    family: &'static str,
                    kind: Option<&'static str>,
                    shifts: std::ops::Range<usize>| {
        rows.iter()
            .filter(move |row| row.subject == subject && row.family == family)
            .filter(move |row| kind.is_none_or(|kind| row.kind == kind))
            .filter(move |row| family != "shift" || shifts.contains(&row.shift_every))
            .filter_map(|row| Some((row.figures.cost_ratio?, format!("{} {}", row.kind, row.load))))
    };
    let costs = |family, kind, shifts| costs_of("adaptive", family, kind, shifts);
    let mut targets = Vec::new();
    for (kind, bound, slow_bound) in [("pipe", 0.80, 0.92), ("unix", 0.90, 1.0), ("tcp", 0.88, 1.0)]
    {
        let name = format!("mixed loads, {kind}: cost of adaptive / pure");
        targets.extend(worst(name, bound, costs("mixed", Some(kind), 0..1)));
        let name = format!("busy set moves every 100 or slower, {kind}: cost / pure");
        targets.extend(worst(name, slow_bound, costs("shift", Some(kind), 100..usize::MAX)));
    }
    let name = "busy set moves every 10 to 50: cost / pure";
    targets.extend(worst(name, 1.06, costs("shift", None, 0..100)));
    let name = "active at random, 0.1 to 0.75: cost / pure";
    targets.extend(worst(name, 1.08, costs("random", None, 0..1)));
    for subject in RINGS {
        for (kind, bound) in [("pipe", 0.68), ("unix", 0.66), ("tcp", 0.58)] {
            let name = format!("mixed loads, {kind}: cost of {subject} / pure");
            targets.extend(worst(name, bound, costs_of(subject, "mixed", Some(kind), 0..1)));
        }
        let name = format!("busy set moves every 10 to 1000: cost of {subject} / pure");
        targets.extend(worst(name, 0.88, costs_of(subject, "shift", None, 10..1001)));
    }
    targets
}

/// The targets that `lab wake` measures.
pub fn of_wake(rows: &[wake::Row]) -> Vec<Target> {
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

/// The targets that `lab registrations` measures, where enough are told together for the call not to count.
pub fn of_registrations(rows: &[registrations::Row]) -> Vec<Target> {
    let ours = rows
        .iter()
        .filter(|row| row.subject == "uring" && row.batch >= 16)
        .filter_map(|row| Some((row.ratio?, format!("{} in batches of {}", row.kind, row.batch))));
    let name = "register and deregister with uring, 16 or more at a time / epoll_ctl";
    worst(name, 0.50, ours).into_iter().collect()
}

/// The targets that `lab ring` measures, at a thousand pipes and one byte in flight.
pub fn of_ring(rows: &[ring::Row]) -> Vec<Target> {
    let of = |subjects: &'static [&'static str], value: fn(&ring::Row) -> Option<f64>| {
        rows.iter()
            .filter(|row| (row.total, row.in_flight) == (1000, 1))
            .filter(move |row| subjects.contains(&row.subject.as_str()))
            .filter_map(move |row| Some((value(row)?, row.subject.clone())))
    };
    let generic = &["superpoll-rt-epoll", "superpoll-rt-adaptive"];
    let peers = &["superpoll-rt-peers"];
    [
        worst("ring: time / tokio", 0.72, of(generic, |row| row.tokio_ratio)),
        worst("ring: time / raw epoll", 1.0, of(generic, |row| row.raw_epoll_ratio)),
        worst("ring of known peers: time / tokio", 0.55, of(peers, |row| row.tokio_ratio)),
        // A read and a write, and now and then the poller is asked about all other descriptors.
        worst("ring of known peers: syscalls per hop", 2.02, of(peers, |r| r.syscalls_per_hop)),
        worst(
            "ring: reads per hop, those that find nothing included",
            1.01,
            of(&["superpoll-rt-epoll", "superpoll-rt-adaptive", "superpoll-rt-peers"], |row| {
                row.reads_per_hop
            }),
        ),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The targets that `lab herd` measures, of the ways that are to spare the herd.
pub fn of_herd(rows: &[herd::Row]) -> Vec<Target> {
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
    let at = |row: &herd::Row| format!("{} of {}", row.subject, row.processes);
    let ours = || rows.iter().filter(|row| sparing.contains(&row.subject.as_str()));
    // Who hands over wakes the one that accepts and the one that serves.
    let woken = ours().filter(|row| row.subject != "engines-hand-off");
    // With few connections for each nothing can be said of fairness.
    let many = ours().filter(|row| row.connects >= 10 * row.processes);
    [
        worst(
            "herd: connect() / that with the fewest waiters",
            1.5,
            ours().filter_map(|row| Some((row.median_ratio?, at(row)))),
        ),
        worst(
            "herd: connect() / that with one waiter among as many processes",
            1.5,
            // One alone is no herd, and in another way than the control it may cost more or less.
            ours()
                .filter(|row| row.processes > 1)
                .filter_map(|row| Some((row.alone_ratio?, at(row)))),
        ),
        worst(
            "herd: waiters woken by a connection",
            1.05,
            woken.map(|row| (row.woken_per_connect, at(row))),
        ),
        worst("herd: 1 - Jain's index", 0.1, many.map(|row| (1.0 - row.jain, at(row)))),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The targets that `lab http` measures, at 64 connections.
pub fn of_http(rows: &[http::Row]) -> Vec<Target> {
    let ours = rows
        .iter()
        .filter(|row| row.connections == 64)
        .filter(|row| {
            ["superpoll-rt-epoll", "superpoll-rt-adaptive"].contains(&row.subject.as_str())
        })
        .filter_map(|row| Some((row.tokio_ratio?, row.subject.clone())));
    worst("http: CPU / tokio", 0.95, ours).into_iter().collect()
}

/// The targets that `lab echo` measures, with a thousand TCP connections.
pub fn of_echo(rows: &[echo::Row]) -> Vec<Target> {
    let of = |subject: &'static str, value: fn(&echo::Row) -> Option<echo::Ratio>| {
        rows.iter()
            .filter(move |row| row.subject == subject)
            .filter(|row| (row.kind.as_str(), row.connections) == ("tcp", 1000))
            .filter_map(move |row| Some((value(row)?.median, format!("{} bytes", row.bytes))))
    };
    ["superpoll-rt-uring", "superpoll-reader-uring"]
        .into_iter()
        .flat_map(|subject| {
            let name = |other| format!("echo, 1000 TCP connections: CPU of {subject} / {other}");
            [
                worst(name("raw epoll"), 0.95, of(subject, |row| row.raw_epoll_ratio)),
                worst(name("tokio"), 0.92, of(subject, |row| row.tokio_ratio)),
            ]
        })
        .flatten()
        .collect()
}

/// The targets that `lab timers` measures, with a million of them.
pub fn of_timers(rows: &[timers::Row]) -> Vec<Target> {
    let ours = rows
        .iter()
        .filter(|row| (row.subject.as_str(), row.timers) == ("superpoll-rt", 1_000_000))
        .filter(|row| row.insert_ns_median.is_some())
        .filter_map(|row| Some((row.tokio_ratio?, row.load.clone())));
    worst("a million timers inserted and cancelled: CPU / tokio", 1.0, ours).into_iter().collect()
}

/// The targets of a run, each with what was measured.
pub fn table(targets: &[Target]) -> Table {
    let mut table = Table::new(["target", "worst at", "at most", "measured", "kept"]).names(2);
    for target in targets {
        let digits = |value: f64| format!("{value:.2}");
        table.row([
            target.name.clone(),
            target.at.clone(),
            digits(target.bound),
            if target.measured > target.bound && digits(target.measured) == digits(target.bound) {
                format!("{:.4}", target.measured)
            } else {
                digits(target.measured)
            },
            if target.is_kept() { "ok" } else { "missed" }.to_owned(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(subject: &str, active: usize, loop_ns: f64, cost_ratio: f64) -> atr::Row {
        atr::Row {
            kind: "pipe".to_owned(),
            placement: "end".to_owned(),
            total: 1000,
            active,
            subject: subject.to_owned(),
            figures: Figures {
                ns_per_round_median: loop_ns,
                cost_ratio: Some(cost_ratio),
                loop_ratio: Some(cost_ratio),
                memory_bytes: (subject == "adaptive").then_some(65_000),
                ..Figures::default()
            },
        }
    }

    #[test]
    fn each_target_is_judged_at_its_worst_point() {
        let rows = [
            row("adaptive", 1, 1.0, 1.01),
            row("adaptive", 1000, 1.0, 1.07),
            row("raw-epoll-lt", 10, 100.0, 1.0),
            row("epoll-lt", 10, 102.0, 1.0),
            row("raw-epoll-lt", 500, 100.0, 1.0),
            row("epoll-lt", 500, 200.0, 1.0),
        ];
        let targets = of_atr(&rows);
        let find = |name: &str| targets.iter().find(|t| t.name.contains(name)).unwrap();
        assert!(!find("cost of adaptive").is_kept());
        assert_eq!(find("cost of adaptive").at, "pipe 1000 of 1000 end");
        assert_eq!(find("raw epoll").measured, 1.02);
        assert!(find("raw epoll").is_kept());
        assert_eq!(find("own bytes").measured, 65.0);
        assert!(targets.iter().all(|target| !target.name.contains("mio")));
        let text = table(&targets).to_string();
        assert!(text.contains("missed") && text.contains("ok"));
    }

    #[test]
    fn rings_are_judged_at_a_thousand_pipes() {
        let row = |subject: &str, total, tokio_ratio| ring::Row {
            subject: subject.to_owned(),
            total,
            in_flight: 1,
            tokio_ratio: Some(tokio_ratio),
            ..ring::Row::default()
        };
        let targets = of_ring(&[
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
    fn herds_are_judged_where_they_are_to_be_spared() {
        let row = |subject: &str, connects, woken_per_connect, jain| herd::Row {
            subject: subject.to_owned(),
            processes: 4,
            connects,
            median_ratio: Some(1.6),
            alone_ratio: Some(1.2),
            woken_per_connect,
            jain,
            ..herd::Row::default()
        };
        let targets = of_herd(&[
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
    fn web_servers_are_judged_at_64_connections() {
        let row = |subject: &str, connections, tokio_ratio| http::Row {
            subject: subject.to_owned(),
            connections,
            tokio_ratio,
            ..http::Row::default()
        };
        let rows = [
            row("raw-epoll", 64, Some(0.2)),
            row("superpoll-rt-epoll", 64, Some(0.94)),
            row("superpoll-rt-adaptive", 64, Some(0.96)),
            row("superpoll-rt-poll", 64, Some(2.0)),
            row("superpoll-rt-adaptive", 1, Some(3.0)),
        ];
        let targets = of_http(&rows);
        assert_eq!((targets.len(), targets[0].measured), (1, 0.96));
        assert!(!targets[0].is_kept() && of_http(&rows[..2])[0].is_kept());
        assert!(of_http(&[row("superpoll-rt-epoll", 64, None)]).is_empty());
    }

    #[test]
    fn echo_servers_are_judged_at_a_thousand_tcp_connections() {
        let row = |subject: &str, kind: &str, connections, raw, tokio: Option<f64>| {
            let ratio = |median| echo::Ratio { median, ..echo::Ratio::default() };
            echo::Row {
                subject: subject.to_owned(),
                kind: kind.to_owned(),
                connections,
                raw_epoll_ratio: Some(ratio(raw)),
                tokio_ratio: tokio.map(ratio),
                ..echo::Row::default()
            }
        };
        let rows = [
            row("superpoll-rt-uring", "tcp", 1000, 0.96, Some(0.91)),
            row("superpoll-rt-uring", "tcp", 10, 3.0, Some(3.0)),
            row("superpoll-rt-uring", "unix", 1000, 3.0, Some(3.0)),
            row("superpoll-rt-epoll", "tcp", 1000, 3.0, Some(3.0)),
            row("superpoll-reader-uring", "tcp", 1000, 0.9, None),
        ];
        let kept: Vec<(f64, bool)> =
            of_echo(&rows).iter().map(|t| (t.measured, t.is_kept())).collect();
        assert_eq!(kept, [(0.96, false), (0.91, true), (0.9, true)]);
    }

    #[test]
    fn timers_are_judged_by_the_million() {
        let row = |load: &str, timers, tokio_ratio, insert_ns_median| timers::Row {
            subject: "superpoll-rt".to_owned(),
            load: load.to_owned(),
            timers,
            tokio_ratio,
            insert_ns_median,
            ..timers::Row::default()
        };
        let rows = [
            row("in order", 1_000_000, Some(0.7), Some(1.0)),
            row("shuffled", 1_000_000, Some(0.9), Some(1.0)),
            row("shuffled", 1000, Some(2.0), Some(1.0)),
            row("one by one", 1_000_000, Some(3.0), None),
        ];
        let targets = of_timers(&rows);
        assert_eq!((targets.len(), targets[0].measured), (1, 0.9));
        assert!(targets[0].is_kept() && targets[0].at == "shuffled");
        assert!(of_timers(&rows[2..]).is_empty());
    }

    #[test]
    fn mixes_are_judged_by_family_kind_and_period() {
        let row = |kind: &str, family: &str, shift_every, ratio| mix::Row {
            kind: kind.to_owned(),
            hot: 1,
            cold: 1,
            shift_every,
            subject: "adaptive".to_owned(),
            load: String::new(),
            family: family.to_owned(),
            mean_active: 1.0,
            figures: Figures { cost_ratio: Some(ratio), ..Figures::default() },
        };
        let targets = of_mix(&[
            row("pipe", "mixed", 0, 0.79),
            row("tcp", "mixed", 0, 0.95),
            row("pipe", "shift", 10, 1.05),
            row("pipe", "shift", 300, 0.91),
            row("pipe", "worst", 0, 9.0),
        ]);
        let kept: Vec<(f64, bool)> = targets.iter().map(|t| (t.measured, t.is_kept())).collect();
        assert_eq!(kept, [(0.79, true), (0.91, true), (0.95, false), (1.05, true)]);
        let ring = |kind: &str, family: &str, shift_every, ratio| mix::Row {
            subject: "adaptive-uring".to_owned(),
            ..row(kind, family, shift_every, ratio)
        };
        let targets = of_mix(&[
            ring("pipe", "mixed", 0, 0.67),
            ring("tcp", "mixed", 0, 0.59),
            ring("pipe", "shift", 10, 0.89),
            ring("pipe", "shift", 5, 2.0),
            ring("pipe", "random", 0, 2.0),
        ]);
        let kept: Vec<(f64, bool)> = targets.iter().map(|t| (t.measured, t.is_kept())).collect();
        assert_eq!(kept, [(0.67, true), (0.59, false), (0.89, false)]);
    }

    #[test]
    fn rings_have_targets_of_their_own_by_kind_and_share() {
        let row = |subject: &str, kind: &str, active, ratio| atr::Row {
            kind: kind.to_owned(),
            ..row(subject, active, 1.0, ratio)
        };
        let targets = of_atr(&[
            row("uring", "pipe", 1, 1.02),
            row("uring", "pipe", 5, 3.0),
            row("uring", "pipe", 10, 0.94),
            row("uring", "unix", 1000, 0.91),
        ]);
        let kept: Vec<(f64, bool)> = targets.iter().map(|t| (t.measured, t.is_kept())).collect();
        assert_eq!(kept, [(1.02, false), (0.94, true), (0.91, false)]);
        assert!(targets.iter().all(|target| target.name.contains("cost of uring / pure")));
    }

    #[test]
    fn blocked_loops_are_judged_by_back_end() {
        let row = |subject: &str, p50_ratio| wake::Row {
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

    #[test]
    fn registrations_are_judged_where_many_are_told_together() {
        let row = |subject: &str, batch, ratio| registrations::Row {
            subject: subject.to_owned(),
            kind: "tcp".to_owned(),
            batch,
            ratio: Some(ratio),
            ..registrations::Row::default()
        };
        let rows = [row("uring", 1, 0.8), row("uring", 16, 0.45), row("ring-poll", 64, 0.7)];
        let targets = of_registrations(&rows);
        assert_eq!((targets.len(), targets[0].measured), (1, 0.45));
        assert!(targets[0].is_kept() && targets[0].at == "tcp in batches of 16");
        assert!(of_registrations(&rows[2..]).is_empty());
    }
}
