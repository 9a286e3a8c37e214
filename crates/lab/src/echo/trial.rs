//! The servers in turn, round by round.

use std::collections::BTreeSet;
use std::os::fd::AsRawFd;

use serde_json::json;

use crate::channel::{self, Kind};
use crate::echo::load::{Clients, Connections, load};
use crate::echo::subject::{self, Software};
use crate::echo::{Options, Row};
use crate::error::{Error, Result};
use crate::options;
use crate::record::Record;
use crate::server::subject::{Subject, names};
use crate::server::trial::{self, Plan, Runner, Trial};
use crate::server::web::check_connections;
use crate::server::{ProcessOptions, Server};
use crate::table::distinct;

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
    options::within("--bytes", options.bytes, 1..=LONGEST)?;
    let connections = if options.sweep { "1,10,100,1000" } else { options.connections.as_str() };
    let numbers = options::numbers("--connections", connections)?;
    for &connections in &numbers {
        check_connections(connections, servers.min(COMPARED.len() + 1))?;
    }
    let of = |kind| numbers.iter().map(move |&connections| Point { kind, connections });
    Ok(distinct(kinds.into_iter().flat_map(of)))
}

pub(super) fn run(options: &Options) -> Result<Record<Row>> {
    let (subjects, notes) = subject::chosen(options.subjects.as_deref())?;
    let points = points(options, subjects.len())?;
    // A point for each group, so that each has its share of the time.
    let of_point = |&point: &Point| {
        groups(&subjects, point.connections).into_iter().map(move |group| (point, group))
    };
    let groups: Vec<(Point, Vec<Subject<Software>>)> = points.iter().flat_map(of_point).collect();
    let mut plan = Plan::new("echo", &options.output, &subjects, groups.len(), 40.0);
    (plan.all, plan.notes) = (names(subject::ALL), notes);
    let own = [
        ("connections", json!(points.iter().map(|p| p.connections).collect::<Vec<_>>())),
        ("kinds", json!(points.iter().map(|p| p.kind.name()).collect::<Vec<_>>())),
        ("bytes", json!(options.bytes)),
    ];
    let mut record = plan
        .run(&groups, own, |trial, (point, group)| measure(options.bytes, group, trial, *point))?;
    // The subjects that all are compared with are reported as measured in the first group.
    let of = |row: &Row| (row.kind.clone(), row.connections, row.subject.clone());
    let mut seen = BTreeSet::new();
    record.rows.retain(|row| seen.insert(of(row)));
    record.rows.sort_by_key(|row| {
        let is_at = |p: &Point| (p.kind.name(), p.connections) == (&*row.kind, row.connections);
        let place = subjects.iter().position(|subject| subject.name == row.subject);
        (points.iter().position(is_at), place)
    });
    Ok(record)
}

fn measure(
    bytes: usize,
    group: &[Subject<Software>],
    trial: &mut Trial<'_>,
    point: Point,
) -> Result<Vec<Row>> {
    let Point { kind, connections } = point;
    let mut rows = trial.take_turns(
        group.iter().copied(),
        &format!("{kind} {connections} connections"),
        |subject, process| Ok((set_up(subject, point, bytes, process)?, ())),
        |runner, (), figures| {
            let (subject, kind) = (runner.name().to_owned(), kind.name().to_owned());
            Ok(Row { subject, kind, connections, bytes, figures, ..Row::default() })
        },
    )?;
    trial::relate(
        &mut rows,
        |row| (&row.subject, &row.figures),
        |row, to| {
            row.raw_epoll_ratio = to("raw-epoll");
            row.tokio_ratio = to("tokio");
        },
    );
    Ok(rows)
}

/// Returns the servers in groups that fit under the limit of descriptors, each group with the
/// subjects that all are compared with.
fn groups(entries: &[Subject<Software>], connections: usize) -> Vec<Vec<Subject<Software>>> {
    let at_a_time = (2 * channel::most_pairs() / connections.max(1)).saturating_sub(1);
    if entries.len() <= at_a_time {
        return vec![entries.to_vec()];
    }
    let (compared, others): (Vec<_>, Vec<_>) =
        entries.iter().copied().partition(|entry| COMPARED.contains(&entry.name));
    let most = at_a_time.saturating_sub(compared.len()).max(1);
    others.chunks(most).map(|chunk| [&compared[..], chunk].concat()).collect()
}

/// Starts a server with its ends of connections, and measures how long a request takes.
fn set_up(
    subject: Subject<Software>,
    Point { kind, connections }: Point,
    bytes: usize,
    process: ProcessOptions,
) -> Result<Runner<Clients>> {
    let pairs = channel::socket_pairs(kind, connections)?;
    let (sockets, own): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
    let Subject { name, start, .. } = subject;
    let room = (2 * bytes).max(SMALLEST_BUFFER);
    let keeps = sockets.iter().map(AsRawFd::as_raw_fd).collect();
    let server = Server::start(name, start.counts(), process, keeps, |control| {
        start.serve(Connections { sockets, room }, control)
    })?;
    Runner::new(server, load(name, own, bytes)?)
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
        assert_eq!(groups(&all, 1).len(), 1);
        let few = 2 * channel::most_pairs() / 5;
        let found = groups(&all, few);
        assert!(found.len() > 1);
        for group in &found {
            assert!(group.len() <= 4 && group[0].name == "raw-epoll", "{group:?}");
            check_connections(few, group.len()).unwrap();
        }
        assert!(all.iter().all(|one| found.iter().flatten().any(|other| other.name == one.name)));
    }
}
