//! The servers in turn: their subscribers connect group by group, then messages are delivered round
//! by round.

use std::collections::VecDeque;

use serde_json::json;

use crate::budget::Budget;
use crate::error::Result;
use crate::fanout::load::Load;
use crate::fanout::service::{self, Publisher, Service, Software, Subject};
use crate::fanout::{BYTES, Options, Row};
use crate::record::Record;
use crate::rivals::Lost;
use crate::server::crowd::{Crowd, Settings};
use crate::server::subject::names;
use crate::server::trial::{self, Figures, Plan, Runner, Trial};
use crate::server::wire::{Opening, Transport};
use crate::server::{ProcessOptions, Server, clients, memory};
use crate::statistics::{self, Ratio};
use crate::{channel, options};

/// Subscribers that connect at a time. pushpin refuses more than its queue of a hundred between two
/// of its processes holds.
const GROUP: usize = 50;

/// Descriptors that a server needs in addition to its connections.
const RESERVE: usize = 128;

/// How long it takes until a server that parks silent connections has parked them and given their
/// memory back. See `idle/trial.rs`.
const PARKING_NS: u64 = 4_000_000_000;

/// The same in a quick run, whose figures of memory are only for a look.
const QUICK_PARKING_NS: u64 = 1_500_000_000;

/// How long other servers take.
const SETTLING_NS: u64 = 200_000_000;

/// A kind of subscribers, and how many of them.
#[derive(Clone, Copy, Debug)]
struct Point {
    transport: Transport,
    subscribers: usize,
}

fn points(options: &Options) -> Result<Vec<Point>> {
    let nothing = "no kind of subscribers";
    let transports =
        options::named(&options.transport, &Transport::ALL, |one| one.name(), |_| true, nothing)?;
    let numbers = options::numbers("--subscribers", &options.subscribers)?;
    let most = (2 * channel::most_pairs()).saturating_sub(RESERVE);
    numbers.iter().try_for_each(|&number| channel::fits("--subscribers", number, 2..=most))?;
    options::within("--bytes", options.bytes, BYTES)?;
    let numbers = crate::table::distinct(numbers);
    let of = |&transport: &Transport| {
        numbers.iter().map(move |&subscribers| Point { transport, subscribers })
    };
    Ok(transports.iter().flat_map(of).collect())
}

pub(super) fn run(options: &Options) -> Result<Record<Row>> {
    let points = points(options)?;
    let (subjects, mut notes) = service::chosen(options.subjects.as_deref())?;
    notes.extend(channel::plain_network());
    for Subject { name, start, .. } in &subjects {
        let transports = crate::table::distinct(points.iter().map(|point| point.transport));
        let lacking = transports.into_iter().filter_map(|one| Some((one, start.lacks(one)?)));
        notes.extend(lacking.map(|(one, why)| format!("{name} {why}: left out of {one}")));
    }
    let mut plan = Plan::new("fanout", &options.output, &subjects, points.len(), 0.0);
    // Connecting and parking take most of the time of a short run.
    let sizes = points.iter().map(|point| 4 + point.subscribers / 500).collect();
    let seconds = 80.0 * points.len() as f64;
    plan.budget = Budget::of_sizes(&options.output, sizes, 10.0, seconds);
    (plan.all, plan.notes) = (names(service::ALL), notes);
    let own = [
        ("bytes", json!(options.bytes)),
        ("congestion_control", json!(channel::default_congestion())),
    ];
    plan.run(&points, own, |trial, point| measure(options, &subjects, trial, *point))
}

/// A server with the subscribers that have connected so far.
struct Standing {
    /// Its place among all.
    place: usize,
    name: &'static str,
    parks: bool,
    // Before the servers, so that its connections are reset and not closed by the other side.
    load: Load,
    servers: Vec<Server>,
    found: Found,
    folder: tempfile::TempDir,
}

/// The figures of a server before the first message.
#[derive(Debug, Default)]
struct Found {
    /// Processor time of a connect, for each group.
    connects: Vec<f64>,
    /// Its memory at the start, with half of the subscribers, and with all.
    memory: Vec<u64>,
}

fn measure(
    options: &Options,
    subjects: &[Subject],
    trial: &mut Trial<'_>,
    point: Point,
) -> Result<Vec<Row>> {
    let about = format!("{} {}", point.subscribers, point.transport);
    let mut place = 0;
    let fit = subjects.iter().copied().filter(|one| one.start.lacks(point.transport).is_none());
    let started = trial.start_each(fit, &about, |subject, process| {
        place += 1;
        start(place, subject, options.bytes, process, point)
    })?;
    let mut standing = VecDeque::from(started);
    let (lost, parking) =
        (&mut trial.run.lost, if options.output.quick { QUICK_PARKING_NS } else { PARKING_NS });
    remember_memory(&mut standing, lost, 0)?;
    let halves = groups(point.subscribers, clients::most());
    for half in &halves {
        for &(crowd, count) in half {
            each(&mut standing, lost, |one| one.connect(crowd, count))?;
            // Each group begins with another server.
            standing.rotate_left(1.min(standing.len()));
        }
        let parks = standing.iter().any(|one| one.parks);
        remember_memory(&mut standing, lost, if parks { parking } else { SETTLING_NS })?;
    }
    let mut standing: Vec<Standing> = standing.into();
    standing.sort_by_key(|one| one.place);
    let (mut runners, mut found) = (Vec::new(), Vec::new());
    for Standing { name, load, servers, found: own, folder, .. } in standing {
        trial.run.progress.step(format!("{name}, the first messages: {about}"));
        if let Some(runner) = trial.run.lost.keep(name, Runner::of_workers(name, servers, load))? {
            runners.push(runner);
            found.push((own, folder));
        }
    }
    let rows = trial.figures(&mut runners, &mut found, &about, |runner, (own, _), figures| {
        let times = runner.load().times(figures.rounds);
        let connects = own.connects.clone();
        Ok((row(runner.name(), point, options.bytes, figures, &times, own), connects))
    })?;
    Ok(related(rows))
}

/// Starts a server and the processes of its subscribers, which connect later.
fn start(
    place: usize,
    subject: Subject,
    bytes: usize,
    process: ProcessOptions,
    Point { transport, subscribers }: Point,
) -> Result<Standing> {
    let Service { servers, port, subscription, publishing, folder } =
        service::start(subject, transport, process)?;
    let processes = subscribers.div_ceil(clients::most());
    let crowds = (0..processes)
        .map(|number| {
            Crowd::start(Settings {
                subject: subject.name,
                from: clients::address(number),
                port,
                opening: Opening::Subscribe(subscription),
                bytes,
                tls: None,
            })
        })
        .collect::<Result<Vec<_>>>()?;
    let pids = servers.iter().map(Server::pid).collect();
    let load = Load::new(Publisher::new(subject.name, publishing), crowds, pids, bytes);
    let parks = matches!(subject.start, Software::Superpoll(_));
    let (name, found) = (subject.name, Found::default());
    Ok(Standing { place, name, parks, load, servers, found, folder })
}

impl Standing {
    /// Connects a group of subscribers, and notes the processor time of each connect.
    fn connect(&mut self, crowd: usize, count: usize) -> Result<()> {
        let slice = trial::round(&self.servers, || self.load.connect(crowd, count).map(|()| 0))?;
        self.found.connects.push(slice.cpu_ns as f64 / count as f64);
        Ok(())
    }
}

/// Does a part of the work with each server; a rival that fails is lost.
fn each(
    standing: &mut VecDeque<Standing>,
    lost: &mut Lost,
    mut work: impl FnMut(&mut Standing) -> Result<()>,
) -> Result<()> {
    for _ in 0..standing.len() {
        let Some(mut one) = standing.pop_front() else { break };
        let done = work(&mut one);
        if lost.keep(one.name, done)?.is_some() {
            standing.push_back(one);
        }
    }
    Ok(())
}

/// Notes the memory of each server, when that no longer changes.
fn remember_memory(
    standing: &mut VecDeque<Standing>,
    lost: &mut Lost,
    least_ns: u64,
) -> Result<()> {
    let pids = |one: &Standing| one.servers.iter().map(Server::pid).collect();
    let groups: Vec<Vec<i32>> = standing.iter().map(pids).collect();
    let mut shares = memory::shares_at_rest(&groups, least_ns).into_iter();
    each(standing, lost, |one| {
        one.found.memory.extend(shares.next().transpose()?);
        Ok(())
    })
}

/// Returns the groups in which each half of the subscribers connects: the process of subscribers,
/// of at most `most` each, and how many connect.
fn groups(subscribers: usize, most: usize) -> [Vec<(usize, usize)>; 2] {
    let half = subscribers / 2;
    [(0, half), (half, subscribers)].map(|(mut first, end)| {
        let mut groups = Vec::new();
        while first < end {
            let crowd = first / most;
            let count = GROUP.min(end - first).min((crowd + 1) * most - first);
            groups.push((crowd, count));
            first += count;
        }
        groups
    })
}

fn row(
    subject: &str,
    Point { transport, subscribers }: Point,
    bytes: usize,
    figures: Figures,
    times: &[f64],
    found: &Found,
) -> Row {
    let of = |place: usize| found.memory.get(place).map_or(0.0, |bytes| *bytes as f64);
    let (half, all) = (subscribers / 2, subscribers as f64);
    let second = subscribers - half;
    Row {
        subject: subject.to_owned(),
        transport: transport.name().to_owned(),
        subscribers,
        bytes,
        cpu_ns_per_delivery_min: figures.cpu_ns_per_request_min / all,
        cpu_ns_per_delivery_median: figures.cpu_ns_per_request_median / all,
        nchan_ratio: None,
        all_ns_p50: statistics::median(times),
        all_ns_p99: statistics::quantile(times, 0.99),
        pss_bytes_per_subscriber: (of(2) - of(1)) / second as f64,
        first_half_pss_bytes_per_subscriber: (of(1) - of(0)) / half as f64,
        connect_cpu_ns_low: statistics::lowest_decile(&found.connects),
        connect_cpu_ns_median: statistics::median(&found.connects),
        connect_nchan_ratio: None,
        figures,
    }
}

/// Fills in the ratios within a point. The rows come with the times of their connects.
fn related(rows: Vec<(Row, Vec<f64>)>) -> Vec<Row> {
    let nchan = rows.iter().find(|(row, _)| row.subject == "nchan").cloned();
    let fill = |(mut row, connects): (Row, Vec<f64>)| {
        if let Some((other, others)) = &nchan {
            row.nchan_ratio = row.figures.ratio(&other.figures);
            row.connect_nchan_ratio = Ratio::of(&connects, others);
        }
        row
    };
    rows.into_iter().map(fill).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_checked() {
        let of = |subscribers: &str, transport: &str, bytes| {
            let (subscribers, transport) = (subscribers.to_owned(), transport.to_owned());
            points(&Options { subscribers, transport, bytes, ..Options::default() })
        };
        assert_eq!(of("2, 50,2", "all", 100).unwrap().len(), 6);
        assert_eq!(of("2", "sse,sse", 16).unwrap().len(), 1);
        for (subscribers, transport, bytes, part) in [
            ("1", "all", 100, "--subscribers 1 "),
            ("100000000", "all", 100, "--subscribers 100000000"),
            ("x", "all", 100, "--subscribers"),
            ("2", "mqtt", 100, "\"mqtt\""),
            ("2", "all", 15, "--bytes 15"),
        ] {
            let error = of(subscribers, transport, bytes).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn groups_keep_to_halves_and_to_processes() {
        assert_eq!(groups(130, 70), [vec![(0, 50), (0, 15)], vec![(0, 5), (1, 50), (1, 10)]]);
        assert_eq!(groups(3, 400), [vec![(0, 1)], vec![(0, 2)]]);
        let all = groups(9000, 5000).concat();
        assert_eq!(all.iter().map(|(_, count)| count).sum::<usize>(), 9000);
        assert_eq!(
            all.iter().filter(|(crowd, _)| *crowd == 1).map(|(_, n)| n).sum::<usize>(),
            4000
        );
    }

    #[test]
    fn memory_at_the_start_does_not_count_and_costs_are_per_subscriber() {
        let point = Point { transport: Transport::Events, subscribers: 10 };
        let found = Found { connects: vec![3.0, 2.0, 9.0], memory: vec![1000, 6000, 6500] };
        let figures = Figures { cpu_ns_per_request_min: 50.0, rounds: 2, ..Figures::default() };
        let row = row("ours", point, 100, figures, &[1.0, 2.0, 30.0], &found);
        assert_eq!(
            (row.pss_bytes_per_subscriber, row.first_half_pss_bytes_per_subscriber),
            (100.0, 1000.0)
        );
        assert_eq!((row.cpu_ns_per_delivery_min, row.all_ns_p50, row.all_ns_p99), (5.0, 2.0, 30.0));
        assert_eq!((row.connect_cpu_ns_low, row.connect_cpu_ns_median), (2.0, 3.0));
    }
}
