//! The servers in turn, round by round.

use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;

use serde_json::json;

use crate::channel;
use crate::environment::Environment;
use crate::error::Result;
use crate::http::load::{Connection, load};
use crate::http::subject::{self, Entry};
use crate::http::{Options, Row};
use crate::options;
use crate::pace::{self, Pace};
use crate::progress::Progress;
use crate::record::Record;
use crate::rivals::{self, Lost};
use crate::server::generator::check_connections;
use crate::server::processors::Processors;
use crate::server::turns::{self, Runner};
use crate::server::{Place, Server};

fn connections(options: &Options, servers: usize) -> Result<Vec<usize>> {
    let numbers = options::numbers("--connections", &options.connections)?;
    let mut different = Vec::new();
    for number in numbers {
        check_connections(number, servers)?;
        if !different.contains(&number) {
            different.push(number);
        }
    }
    Ok(different)
}

pub(super) fn run(options: &Options) -> Result<Record<Row>> {
    options.output.check()?;
    let entries = subject::chosen(options.subjects.as_deref())?;
    let points = connections(options, entries.len())?;
    // Before this thread keeps to one processor.
    let environment = Environment::here();
    let processors = Processors::here();
    processors.apart(|server| measure(options, environment, &entries, &points, &processors, server))
}

fn measure(
    options: &Options,
    environment: Environment,
    entries: &[Entry],
    points: &[usize],
    processors: &Processors,
    server: Option<usize>,
) -> Result<Record<Row>> {
    let repetitions =
        options.output.repetitions.unwrap_or(if options.output.quick { 5 } else { 15 });
    let budget = options.output.budget(10.0, 30.0 * points.len() as f64);
    let progress = Progress::new("http", points.len() * entries.len() * (repetitions + 1));
    let promised = options.output.seconds.is_none();
    let mut pace = Pace::new(points.len(), budget, promised, options.output.quick);
    let (mut rows, mut left_out, mut lost) = (Vec::new(), 0, Lost::default());
    for &connections in points {
        let Some(time) = pace.time() else {
            left_out += 1;
            continue;
        };
        let mut runners = Vec::new();
        for &entry in entries {
            if lost.has(entry.name) {
                continue;
            }
            progress.step(format!("{} accepts {connections} connections", entry.name));
            let second_thread = options.output.second_thread;
            let begun = set_up(entry, connections, Place { processor: server, second_thread });
            runners.extend(lost.keep(entry.name, begun)?);
        }
        let requests = turns::take_turns(&mut runners, repetitions, time, &mut lost, |server| {
            progress.step(format!("{server} {connections} connections"));
        })?;
        let (mut point, _runners) =
            turns::rows(runners, &mut lost, |_, runner| row(runner, connections, requests))?;
        relate(&mut point);
        rows.extend(point);
    }
    drop(progress);
    pace::say_left_out(left_out);
    let parameters = [
        ("subjects", json!(entries.iter().map(|e| e.name).collect::<Vec<_>>())),
        ("about", entries.iter().map(|e| (e.name.to_owned(), json!(e.about))).collect()),
        ("connections", json!(points)),
        ("rounds", json!(repetitions)),
        ("client_processor", json!(processors.client())),
        ("server_processor", json!(server)),
        ("seconds", json!(budget)),
        ("quick", json!(options.output.quick)),
        ("second_thread", json!(options.output.second_thread)),
        ("bytes_verified", json!(true)),
        ("points_left_out", json!(left_out)),
        // hyper is under all of them but the lower bound.
        (
            "rivals",
            rivals::versions(subject::ALL.iter().map(|entry| entry.name).chain(["hyper-tokio"])),
        ),
        ("notes", json!(lost.notes().collect::<Vec<_>>())),
    ];
    Ok(Record::new("http", environment, parameters, rows))
}

/// Starts a server, connects to it, and sees how long a request takes.
fn set_up(entry: Entry, connections: usize, place: Place) -> Result<Runner<Connection>> {
    let (server, port) =
        Server::accepting(entry.name, entry.counts, place, |listener, control| {
            let listener = OwnedFd::from(listener);
            // What it accepts inherits this.
            channel::plain_congestion(&listener);
            (entry.serve)(listener.into(), control)
        })?;
    Runner::new(server, load(entry.name, Ipv4Addr::LOCALHOST, &[port], connections)?)
}

fn row(runner: &mut Runner<Connection>, connections: usize, requests: u64) -> Result<Row> {
    let figures = runner.figures(requests)?;
    Ok(Row {
        subject: runner.name().to_owned(),
        connections,
        requests,
        cpu_ns_per_request_min: figures.cpu_ns_min,
        cpu_ns_per_request_median: figures.cpu_ns_median,
        cpu_spread: figures.cpu_spread,
        requests_per_second: figures.requests_per_second,
        waits_per_request: figures.waits,
        epoll_ctl_per_request: figures.epoll_ctl,
        rounds: figures.rounds,
        tokio_ratio: None,
        tokio_ratio_min: None,
    })
}

/// Fills in the ratios within a point.
fn relate(point: &mut [Row]) {
    let tokio = point.iter().find(|row| row.subject == "tokio");
    let Some((median, least)) =
        tokio.map(|row| (row.cpu_ns_per_request_median, row.cpu_ns_per_request_min))
    else {
        return;
    };
    let ratio = |own: f64, other: f64| (other > 0.0).then(|| own / other);
    for row in point {
        row.tokio_ratio = ratio(row.cpu_ns_per_request_median, median);
        row.tokio_ratio_min = ratio(row.cpu_ns_per_request_min, least);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_what_descriptors_allow() {
        let of = |connections: &str| {
            let connections = connections.to_owned();
            super::connections(&Options { connections, ..Options::default() }, 5)
        };
        assert_eq!(of("1, 64,1").unwrap(), [1, 64]);
        for bad in ["0", "10000000", "x", ""] {
            let error = of(bad).unwrap_err().to_string();
            assert!(error.contains("--connections"), "{error}");
        }
    }

    #[test]
    fn ratios_need_tokio() {
        let row = |subject: &str, cpu_ns_per_request_median| Row {
            subject: subject.to_owned(),
            cpu_ns_per_request_median,
            cpu_ns_per_request_min: cpu_ns_per_request_median / 2.0,
            ..Row::default()
        };
        let mut point = [row("raw-epoll", 1000.0), row("tokio", 4000.0)];
        relate(&mut point);
        assert_eq!((point[0].tokio_ratio, point[0].tokio_ratio_min), (Some(0.25), Some(0.25)));
        let mut alone = [row("superpoll-rt-epoll", 1.0)];
        relate(&mut alone);
        assert_eq!(alone[0].tokio_ratio, None);
    }
}
