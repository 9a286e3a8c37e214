//! The servers in turn, round by round.

use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;

use serde_json::json;

use crate::error::Result;
use crate::http::load::{Connection, load};
use crate::http::subject::{self, Entry};
use crate::http::{Options, Row};
use crate::record::Record;
use crate::rivals::Lost;
use crate::server::generator::check_connections;
use crate::server::trial::{Plan, Trial};
use crate::server::turns::{self, Runner};
use crate::server::{ProcessOptions, Server};
use crate::{channel, options, statistics};

fn connections(options: &Options, servers: usize) -> Result<Vec<usize>> {
    let numbers = options::numbers("--connections", &options.connections)?;
    numbers.iter().try_for_each(|&number| check_connections(number, servers))?;
    Ok(crate::grouping::distinct(numbers))
}

pub(super) fn run(options: &Options) -> Result<Record<Row>> {
    options.output.check()?;
    let entries = subject::chosen(options.subjects.as_deref())?;
    let points = connections(options, entries.len())?;
    let output = &options.output;
    let plan = Plan { name: "http", output, seconds: 30.0, servers: entries.len() };
    let done = plan.run(Lost::default(), &points, |trial, connections| {
        let (about, process) = (format!("{connections} connections"), trial.process);
        let mut runners = trial.set_up(
            entries.iter().copied(),
            |entry| entry.name,
            &about,
            |entry| set_up(entry, connections, process),
        )?;
        let Trial { budget, lost, progress, .. } = trial;
        let requests = turns::take_turns(&mut runners, budget, lost, |server| {
            progress.step(format!("{server}: {about}"));
        })?;
        let (mut point, _runners) =
            turns::rows(runners, lost, |_, runner| row(runner, connections, requests))?;
        relate(&mut point);
        Ok(point)
    })?;
    let servers = entries.iter().map(|entry| (entry.name, entry.about));
    // hyper is under all of them but the lower bound.
    let all = subject::ALL.iter().map(|entry| entry.name).chain(["hyper-tokio"]);
    Ok(done.record(servers, all, Vec::new(), [("connections", json!(points))]))
}

/// Starts a server, connects to it, and measures how long a request takes.
fn set_up(entry: Entry, connections: usize, process: ProcessOptions) -> Result<Runner<Connection>> {
    let (server, port) =
        Server::accepting(entry.name, entry.counts, process, |listener, control| {
            let listener = OwnedFd::from(listener);
            // Accepted connections inherit this.
            channel::plain_congestion(&listener);
            (entry.serve)(listener.into(), control)
        })?;
    Runner::new(server, load(entry.name, Ipv4Addr::LOCALHOST, &[port], connections)?)
}

fn row(runner: &mut Runner<Connection>, connections: usize, requests: u64) -> Result<Row> {
    Ok(Row {
        subject: runner.name().to_owned(),
        connections,
        figures: runner.figures(requests)?,
        ..Row::default()
    })
}

/// Fills in the ratios within a point.
fn relate(point: &mut [Row]) {
    let Some(tokio) = point.iter().find(|row| row.subject == "tokio").cloned() else { return };
    let ratio = |own: f64, other: f64| (other > 0.0).then(|| own / other);
    for row in point {
        let (own, tokio) = (&row.figures, &tokio.figures);
        row.tokio_ratio = ratio(own.cpu_ns_per_request_median, tokio.cpu_ns_per_request_median);
        row.tokio_ratio_min = ratio(own.cpu_ns_per_request_min, tokio.cpu_ns_per_request_min);
        row.tokio_decile = statistics::ratio(&own.cpu_ns, &tokio.cpu_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::turns::Figures;

    #[test]
    fn connections_are_limited_by_descriptors() {
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
            figures: Figures {
                cpu_ns_per_request_median,
                cpu_ns_per_request_min: cpu_ns_per_request_median / 2.0,
                ..Figures::default()
            },
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
