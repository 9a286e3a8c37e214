//! The relays in turn, round by round; then their calls.

use serde_json::json;

use crate::budget::Budget;
use crate::error::{Error, Result};
use crate::record::Record;
use crate::relay::load::{Kind, Load, Point};
use crate::relay::peers::{self, ALL, Setting, Software, Task, without_speculation};
use crate::relay::{Options, Row, strace};
use crate::server::subject::{self, Subject, names};
use crate::server::tls::Certificate;
use crate::server::trial::{self, Figures, Plan, Runner, Trial};
use crate::server::web::check_connections;
use crate::server::{ProcessOptions, Server, caddy, program};
use crate::{channel, options};

/// Connections in bulk: enough to keep both processors at work.
const BULK_CONNECTIONS: usize = 4;

/// The most requests that are counted or traced in bulk, because such a process is slow.
const COUNTED_IN_BULK: u64 = 16;

fn points(options: &Options, servers: usize) -> Result<Vec<Point>> {
    let kinds = options::named(&options.load, &Kind::ALL, |kind| kind.name(), |_| true, "no load")?;
    options::within("--bytes", options.bytes, 1..=1 << 20)?;
    options::within("--mebibytes", options.mebibytes, 1..=1 << 20)?;
    if options.forwarded == 0 {
        return Err(Error::usage("--forwarded 0 counts nothing: give 1 or more"));
    }
    kinds
        .into_iter()
        .map(|kind| {
            let (connections, bytes) = match kind {
                Kind::OneByOne => (1, options.bytes),
                _ if kind.is_by_connection() => (options.connections, options.bytes),
                Kind::Bulk => (BULK_CONNECTIONS, options.mebibytes << 20),
                _ => (options.keep_alive.div_ceil(kind.streams()), options.bytes),
            };
            // Each connection has a client and an origin.
            check_connections(connections, 2 * servers)?;
            Ok(Point { kind, connections, bytes })
        })
        .collect()
}

/// The time that a point takes with the fewest rounds, in comparison with the others: loads whose
/// requests take longer are verified and counted for longer.
fn size(point: &Point) -> usize {
    match point.kind {
        Kind::OneByOne => 10,
        Kind::Connection | Kind::HttpsFull => 5,
        Kind::Bulk | Kind::HttpConnection | Kind::HttpsResumed => 4,
        Kind::KeepAlive | Kind::HttpKeepAlive | Kind::HttpsKeepAlive | Kind::H2 => 2,
    }
}

pub(super) fn run(options: &Options) -> Result<Record<Row>> {
    let (subjects, mut notes) = subject::chosen(ALL, options.subjects.as_deref(), "no relay")?;
    notes.extend(channel::plain_network());
    let points = points(options, subjects.len())?;
    for Subject { name, start, .. } in &subjects {
        let lacking = points.iter().filter_map(|p| Some((p.kind.name(), start.lacks(p.kind)?)));
        notes.extend(lacking.map(|(load, why)| format!("{name} {why}: left out of {load}")));
    }
    let seconds = 25.0 * points.len() as f64;
    let mut plan = Plan::new("relay", &options.output, &subjects, points.len(), 0.0);
    let sizes = points.iter().map(size).collect();
    plan.budget = Budget::of_sizes(&options.output, sizes, 10.0, seconds);
    (plan.all, plan.notes) = (names(ALL), notes);
    let own = [("congestion_control", json!(channel::default_congestion()))];
    plan.run(&points, own, |trial, point| measure(options, &subjects, trial, *point))
}

fn measure(
    options: &Options,
    subjects: &[Subject<Software>],
    trial: &mut Trial<'_>,
    point: Point,
) -> Result<Vec<Row>> {
    let keys = program::folder("certificate")?;
    let certificate = Certificate::make(keys.path())?;
    let fit = subjects.iter().copied().filter(|one| one.start.lacks(point.kind).is_none());
    let mut rows = trial.take_turns(
        fit,
        point.kind.name(),
        |subject, process| {
            let folder = program::folder(subject.name)?;
            let port = program::free_port()?;
            let load = Load::new(subject.name, point, port, &certificate)?;
            let ports = [port, load.origin()?];
            let server = start(subject, point, process, folder.path(), ports, &certificate)?;
            let runner = Runner::new(server, load)?;
            let accepted = runner.load().accepted();
            Ok((runner, (accepted, folder)))
        },
        |runner, (accepted, _), figures| {
            let to_origin = runner.load().accepted() - *accepted;
            let all = figures.requests * figures.rounds as u64;
            Ok(Row {
                origin_connections_per_request: to_origin as f64 / all.max(1) as f64,
                ..row(runner, point, figures, options)?
            })
        },
    )?;
    trial::relate(
        &mut rows,
        |row| (&row.subject, &row.figures),
        |row, to| {
            row.haproxy_ratio = to("haproxy");
            row.nginx_ratio = to("nginx");
            row.caddy_ratio = to("caddy");
            row.waits_ratio = to(&without_speculation(&row.subject));
        },
    );
    Ok(rows)
}

/// Starts a relay between clients and an origin.
fn start(
    Subject { name, start, .. }: Subject<Software>,
    point: Point,
    process: ProcessOptions,
    folder: &std::path::Path,
    ports: [u16; 2],
    certificate: &Certificate,
) -> Result<Server> {
    let Point { kind, connections, .. } = point;
    let certificate = kind.offer().and(Some(certificate));
    let task = match kind.is_http() {
        // nginx keeps as many as are in use at a time, which it has to be told.
        true => Task::Http { pool: connections * kind.streams(), certificate },
        false => Task::Bytes { splices: kind == Kind::Bulk },
    };
    match start {
        Software::Ours(backend, speculative) => {
            let setting = Setting { backend, speculative, ports, task };
            Server::start(name, true, process, Vec::new(), |control| peers::serve(setting, control))
        }
        Software::Haproxy => peers::haproxy(name, process, folder, ports, task),
        Software::Nginx => peers::nginx(name, process, folder, ports, task),
        Software::Caddy => {
            let [port, origin] = ports;
            caddy::start(name, process, folder, port, certificate, &caddy::proxy(origin))
        }
    }
}

/// Builds the row: the cost of a request, and its calls.
fn row(
    runner: &mut Runner<Load>,
    point: Point,
    figures: Figures,
    options: &Options,
) -> Result<Row> {
    let mut row = Row {
        subject: runner.name().to_owned(),
        load: point.kind.name().to_owned(),
        connections: point.connections,
        bytes: point.bytes,
        figures,
        ..Row::default()
    };
    let counted = match point.kind {
        Kind::Bulk => options.forwarded.min(COUNTED_IN_BULK),
        _ => options.forwarded,
    };
    if runner.is_counting() {
        let calls = runner.count(counted)?.map(|counts| counts.calls);
        (row.calls, row.calls_per_request) = strace::by_request(calls, counted);
    }
    let traced = counted.min(strace::most(options.output.quick));
    if let Some((calls, own)) = strace::count(runner.pid(), || runner.count(traced))? {
        row.calls_per_traced_request = strace::by_request(own.map(|counts| counts.calls), traced).1;
        (row.strace_calls, row.strace_calls_per_request) = strace::by_request(Some(calls), traced);
    }
    Ok(row)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_the_loads_that_were_asked_for() {
        let of = |load: &str, change: fn(&mut Options)| {
            let mut options = Options { load: load.to_owned(), ..Options::default() };
            change(&mut options);
            points(&options, 8)
        };
        let all = of("all", |_| {}).unwrap();
        assert_eq!(
            all.iter().map(|p| p.connections).collect::<Vec<_>>(),
            [128, 1, 64, 4, 128, 64, 128, 128, 64, 8]
        );
        assert_eq!(all[3].bytes, 64 << 20);
        assert_eq!(of("bulk,bulk", |_| {}).unwrap().len(), 1);
        let refused = |load, change| of(load, change).unwrap_err().to_string();
        assert!(refused("udp", |_| {}).contains("\"udp\""));
        assert!(refused("all", |o| o.connections = 0).contains("--connections 0"));
        assert!(refused("all", |o| o.bytes = 0).contains("--bytes 0"));
        assert!(refused("all", |o| o.mebibytes = 0).contains("--mebibytes 0"));
        assert!(refused("all", |o| o.forwarded = 0).contains("--forwarded 0"));
    }
}
