//! The servers in turn, round by round.

use std::collections::BTreeSet;
use std::os::fd::{AsRawFd, OwnedFd};

use serde_json::json;

use crate::channel::{self, Kind};
use crate::echo::connections::Connections;
use crate::echo::load::{Connection, load};
use crate::echo::subject::{self, Entry};
use crate::echo::{Options, Row};
use crate::error::{Error, Result};
use crate::record::Record;
use crate::rivals::Lost;
use crate::server::generator::check_connections;
use crate::server::rounds::{Slice, ratio};
use crate::server::trial::{Plan, Trial};
use crate::server::turns::{self, Runner};
use crate::server::{ProcessOptions, Server};
use crate::{options, say};

/// The longest request: every socket takes one this long at once.
const LONGEST: usize = 4096;

/// The smallest size of a buffer.
const SMALLEST_BUFFER: usize = 512;

/// The subjects that all are compared with.
const COMPARED: [&str; 2] = ["raw-epoll", "tokio"];

/// The kind of channel and the number of connections of one measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Point {
    kind: Kind,
    connections: usize,
}

fn points(options: &Options, servers: usize) -> Result<Vec<Point>> {
    let kinds = match options.kind.trim() {
        "all" => vec![Kind::Tcp, Kind::Unix],
        text => options::kinds(text)?,
    };
    if kinds.contains(&Kind::Pipe) {
        return Err(Error::usage("--kind pipe has one direction only: choose tcp, unix or all"));
    }
    if options.bytes == 0 || options.bytes > LONGEST {
        let bytes = options.bytes;
        return Err(Error::usage(format!("--bytes {bytes} is not possible: give 1 to {LONGEST}")));
    }
    let connections = if options.sweep { "1,10,100,1000" } else { options.connections.as_str() };
    let numbers = options::numbers("--connections", connections)?;
    let mut points = Vec::new();
    for kind in kinds {
        for &connections in &numbers {
            check_connections(connections, servers.min(COMPARED.len() + 1))?;
            let point = Point { kind, connections };
            if !points.contains(&point) {
                points.push(point);
            }
        }
    }
    Ok(points)
}

pub(super) fn run(options: &Options) -> Result<Record<Row>> {
    options.output.check()?;
    let (entries, notes) = subject::chosen(options.subjects.as_deref())?;
    let points = points(options, entries.len())?;
    notes.iter().for_each(|note| say::note(note));
    let mut lost = Lost::default();
    for entry in &entries {
        lost.keep(entry.name, entry.prepare())?;
    }
    // A point for each group, so that each has its share of the time.
    let of_point = |&point: &Point| {
        groups(&entries, point.connections).into_iter().map(move |group| (point, group))
    };
    let groups: Vec<(Point, Vec<Entry>)> = points.iter().flat_map(of_point).collect();
    let output = &options.output;
    let plan = Plan { name: "echo", output, seconds: 40.0, servers: entries.len() };
    let places: Vec<usize> = (0..groups.len()).collect();
    let mut done = plan.run(lost, &places, |trial, place| {
        let (point, group) = &groups[place];
        measure(options, group, trial, *point)
    })?;
    // The subjects that all are compared with are reported as measured in the first group.
    let of = |row: &Row| (row.kind.clone(), row.connections, row.subject.clone());
    let mut seen = BTreeSet::new();
    done.rows.retain(|row| seen.insert(of(row)));
    done.rows.sort_by_key(|row| {
        (
            points
                .iter()
                .position(|p| (p.kind.name(), p.connections) == (&*row.kind, row.connections)),
            entries.iter().position(|entry| entry.name == row.subject),
        )
    });
    let more = [
        ("connections", json!(points.iter().map(|p| p.connections).collect::<Vec<_>>())),
        ("kinds", json!(points.iter().map(|p| p.kind.name()).collect::<Vec<_>>())),
        ("bytes", json!(options.bytes)),
    ];
    let servers = entries.iter().map(|entry| (entry.name, entry.about));
    Ok(done.record(servers, subject::ALL.iter().map(|entry| entry.name), notes, more))
}

fn measure(
    options: &Options,
    group: &[Entry],
    trial: &mut Trial,
    point: Point,
) -> Result<Vec<Row>> {
    let about = format!("{} {} connections", point.kind, point.connections);
    let process = trial.process;
    let mut runners = trial.set_up(
        group.iter().copied(),
        |entry| entry.name,
        &about,
        |entry| {
            let pairs = channel::socket_pairs(point.kind, point.connections)?;
            set_up(entry, point.kind, pairs, options.bytes, process)
        },
    )?;
    let Trial { budget, lost, progress, .. } = trial;
    let requests = turns::take_turns(&mut runners, budget, lost, |server| {
        progress.step(format!("{server}: {about}"));
    })?;
    let (mut rows, runners) =
        turns::rows(runners, lost, |_, runner| row(runner, point, options.bytes, requests))?;
    relate(&mut rows, &runners);
    Ok(rows)
}

/// Returns the servers in groups that fit under the limit of descriptors, each group with the
/// subjects that all are compared with.
fn groups(entries: &[Entry], connections: usize) -> Vec<Vec<Entry>> {
    let at_a_time = (2 * channel::most_pairs() / connections.max(1)).saturating_sub(1);
    if entries.len() <= at_a_time {
        return vec![entries.to_vec()];
    }
    let (compared, others): (Vec<Entry>, Vec<Entry>) =
        entries.iter().copied().partition(|entry| COMPARED.contains(&entry.name));
    let most = at_a_time.saturating_sub(compared.len()).max(1);
    others.chunks(most).map(|chunk| [&compared[..], chunk].concat()).collect()
}

/// Starts a server with its ends of connections, and measures how long a request takes.
fn set_up(
    entry: Entry,
    kind: Kind,
    pairs: Vec<(OwnedFd, OwnedFd)>,
    bytes: usize,
    process: ProcessOptions,
) -> Result<Runner<Connection>> {
    let (sockets, own): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
    let serve = entry.serve()?;
    let room = (2 * bytes).max(SMALLEST_BUFFER);
    let keeps = sockets.iter().map(AsRawFd::as_raw_fd).collect();
    let server = Server::start(entry.name, entry.counts, process, keeps, |control| {
        serve(Connections { kind, sockets, room }, control)
    })?;
    Runner::new(server, load(entry.name, own, bytes)?)
}

fn row(runner: &mut Runner<Connection>, point: Point, bytes: usize, requests: u64) -> Result<Row> {
    Ok(Row {
        subject: runner.name().to_owned(),
        kind: point.kind.name().to_owned(),
        connections: point.connections,
        bytes,
        figures: runner.figures(requests)?,
        raw_epoll_ratio: None,
        tokio_ratio: None,
    })
}

/// Fills in the ratios within a point.
fn relate(rows: &mut [Row], runners: &[Runner<Connection>]) {
    let cpu = |name: &str| -> Option<&[Slice]> {
        runners.iter().find(|runner| runner.name() == name).map(Runner::slices)
    };
    for (row, runner) in rows.iter_mut().zip(runners) {
        row.raw_epoll_ratio = cpu("raw-epoll").and_then(|other| ratio(runner.slices(), other));
        row.tokio_ratio = cpu("tokio").and_then(|other| ratio(runner.slices(), other));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_limited_by_sockets_and_descriptors() {
        let of = |connections: &str, kind: &str, bytes| {
            let (connections, kind) = (connections.to_owned(), kind.to_owned());
            let options = Options { connections, kind, bytes, ..Options::default() };
            let points = super::points(&options, 5)?;
            Ok(points.into_iter().map(|p| (p.kind, p.connections)).collect::<Vec<_>>())
        };
        assert_eq!(of("1, 64,1", "tcp", 64).unwrap(), [(Kind::Tcp, 1), (Kind::Tcp, 64)]);
        assert_eq!(of("2", "all", 1).unwrap(), [(Kind::Tcp, 2), (Kind::Unix, 2)]);
        let sweep = Options { sweep: true, ..Options::default() };
        assert_eq!(super::points(&sweep, 5).unwrap().len(), 4);
        for (connections, kind, bytes, about) in [
            ("0", "tcp", 64, "--connections 0"),
            ("10000000", "tcp", 64, "--connections 10000000"),
            ("x", "tcp", 64, "--connections"),
            ("1", "pipe", 64, "--kind pipe"),
            ("1", "udp", 64, "\"udp\""),
            ("1", "tcp", 0, "--bytes 0"),
            ("1", "tcp", 100_000, "--bytes 100000"),
        ] {
            let outcome: Result<Vec<(Kind, usize)>> = of(connections, kind, bytes);
            let error = outcome.unwrap_err().to_string();
            assert!(error.contains(about), "{error}");
        }
    }

    #[test]
    fn groups_fit_into_the_descriptors_with_the_compared_subjects() {
        let all = subject::chosen(None).unwrap().0;
        assert_eq!(groups(&all, 1), std::slice::from_ref(&all));
        let few = 2 * channel::most_pairs() / 5;
        let found = groups(&all, few);
        assert!(found.len() > 1);
        for group in &found {
            assert!(group.len() <= 4 && group[0].name == "raw-epoll", "{group:?}");
            check_connections(few, group.len()).unwrap();
        }
        let met = |entry: &Entry| found.iter().flatten().any(|other| other == entry);
        assert!(all.iter().all(met));
    }
}
