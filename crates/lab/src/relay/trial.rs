//! The relays in turn, round by round; then their calls.

use std::collections::BTreeMap;
use std::os::fd::AsRawFd;

use serde_json::json;

use crate::error::{Error, Result};
use crate::record::Record;
use crate::relay::load::{Kind, Load, Point};
use crate::relay::ours::{self, Calls, Counted, Setting};
use crate::relay::peers::{self, Folder};
use crate::relay::strace::{self, Trace};
use crate::relay::subject::{self, Entry};
use crate::relay::{Options, Row};
use crate::rivals::Lost;
use crate::server::generator::check_connections;
use crate::server::rounds::{self, Slice, ratio};
use crate::server::trial::{Plan, Trial};
use crate::server::turns::{self, Figures};
use crate::server::{ProcessOptions, Server, program};
use crate::{channel, options, say};

/// Connections in bulk: enough to keep both processors at work.
const BULK_CONNECTIONS: usize = 4;

/// How long a relay runs in the pilot before its pace is believed.
const PILOT_NS: u64 = 50_000_000;

/// The most requests that are counted or traced in bulk, because such a process is slow.
const COUNTED_IN_BULK: u64 = 16;

fn points(options: &Options, servers: usize) -> Result<Vec<Point>> {
    let kinds = options::named(&options.load, &Kind::ALL, |kind| kind.name(), |_| true, "no load")?;
    for (option, value) in [("--bytes", options.bytes), ("--mebibytes", options.mebibytes)] {
        if value == 0 || value > 1 << 20 {
            let text = format!("{option} {value} is not possible: give 1 to {}", 1 << 20);
            return Err(Error::usage(text));
        }
    }
    if options.forwarded == 0 {
        return Err(Error::usage("--forwarded 0 counts nothing: give 1 or more"));
    }
    kinds
        .into_iter()
        .map(|kind| {
            let (connections, bytes) = match kind {
                Kind::Connection | Kind::HttpConnection => (options.connections, options.bytes),
                Kind::OneByOne => (1, options.bytes),
                Kind::KeepAlive | Kind::HttpKeepAlive => (options.keep_alive, options.bytes),
                Kind::Bulk => (BULK_CONNECTIONS, options.mebibytes << 20),
            };
            // Each connection has a client and an origin.
            check_connections(connections, 2 * servers)?;
            Ok(Point { kind, connections, bytes })
        })
        .collect()
}

/// A relay, its clients and its origin, and the measurements.
struct Runner {
    // Declared before the relay, so that its connections end first.
    load: Load,
    counted: Option<Counted>,
    server: Server,
    folder: Folder,
    request_ns: f64,
    /// Connections that the origin had before the first round.
    accepted: u64,
    slices: Vec<Slice>,
    busy: Vec<f64>,
}

impl Runner {
    fn round(&mut self, requests: u64) -> Result<()> {
        let slice = rounds::round(std::slice::from_ref(&self.server), || self.load.go(requests))?;
        self.busy.push(self.load.busy_ns() as f64 / slice.ns.max(1) as f64);
        self.slices.push(slice);
        Ok(())
    }

    /// Sends `requests` requests and returns the calls for them, if the relay counts.
    fn count(&mut self, requests: u64) -> Result<Option<Calls>> {
        let before = self.counted.as_mut().map(Counted::calls).transpose()?;
        self.load.go(requests)?;
        let after = self.counted.as_mut().map(Counted::calls).transpose()?;
        let since = |name: &String, count: u64, before: &Calls| {
            count - before.get(name).copied().unwrap_or_default()
        };
        Ok(after.zip(before).map(|(after, before)| {
            let counts = after.into_iter().map(|(name, count)| {
                let since = since(&name, count, &before);
                (name, since)
            });
            counts.filter(|(_, count)| *count > 0).collect()
        }))
    }
}

pub(super) fn run(options: &Options) -> Result<Record<Row>> {
    options.output.check()?;
    let (entries, mut notes) = subject::chosen(options.subjects.as_deref())?;
    notes.extend(channel::plain_network());
    let points = points(options, entries.len())?;
    for entry in &entries {
        let lacking = points.iter().filter_map(|p| Some((p.kind.name(), entry.lacks(p.kind)?)));
        notes
            .extend(lacking.map(|(load, why)| format!("{} {why}: left out of {load}", entry.name)));
    }
    for note in &notes {
        say::note(note);
    }
    let output = &options.output;
    let plan = Plan { name: "relay", output, seconds: 25.0, servers: entries.len() };
    let done = plan
        .run(Lost::default(), &points, |trial, point| measure(options, &entries, trial, point))?;
    let more = [("congestion_control", json!(channel::default_congestion()))];
    let servers = entries.iter().map(|entry| (entry.name, entry.about));
    Ok(done.record(servers, subject::ALL.iter().map(|entry| entry.name), notes, more))
}

fn measure(
    options: &Options,
    entries: &[Entry],
    trial: &mut Trial,
    point: Point,
) -> Result<Vec<Row>> {
    let (name, process) = (point.kind.name(), trial.process);
    let fit = entries.iter().copied().filter(|entry| entry.lacks(point.kind).is_none());
    let mut runners =
        trial.set_up(fit, |entry| entry.name, name, |entry| set_up(entry, point, process))?;
    let Trial { budget, lost, progress, .. } = trial;
    let request_ns: Vec<f64> = runners.iter().map(|runner| runner.request_ns).collect();
    let requests = rounds::share(&request_ns, budget.rounds(turns::ROUNDS), budget.left() * 1e9)
        .max(point.connections as u64);
    while budget.round() {
        for place in budget.turns(runners.len()) {
            let runner = &mut runners[place];
            let relay = runner.server.name();
            if lost.has(relay) {
                continue;
            }
            progress.step(format!("{relay} {name}"));
            let done = runner.round(requests);
            lost.keep(relay, done)?;
        }
    }
    let (mut together, mut kept) = (Vec::new(), Vec::new());
    for mut runner in runners {
        let relay = runner.server.name();
        if lost.has(relay) || runner.slices.is_empty() {
            continue;
        }
        progress.step(format!("{relay} {name}: calls"));
        if let Some(row) = lost.keep(relay, row(&mut runner, point, requests, options))? {
            together.push(row);
            kept.push(runner);
        }
    }
    relate(&mut together, &kept);
    Ok(together)
}

/// Starts a relay between clients and an origin, and measures how long a request takes.
fn set_up(entry: Entry, point: Point, process: ProcessOptions) -> Result<Runner> {
    let folder = Folder::new(entry.name)?;
    let port = program::free_port()?;
    let mut load = Load::new(entry.name, point, port)?;
    let ports = [port, load.origin()?];
    let path = folder.path().to_owned();
    let start = |keeps, serve: &mut dyn FnMut(&mut crate::server::Control) -> Result<()>| {
        Server::start(entry.name, false, process, keeps, serve)
    };
    // As many as are in use at a time, the same for all subjects.
    let pool = point.kind.is_http().then_some(point.connections);
    let task = match pool {
        Some(pool) => peers::Task::Http { pool },
        None => peers::Task::Bytes { splices: point.kind == Kind::Bulk },
    };
    let (server, counted) = match entry.kind {
        subject::Kind::Ours(backend, speculative) => {
            let setting = Setting { backend, speculative, ports, pool };
            let (counted, line) = Counted::new()?;
            let keeps = vec![line.as_raw_fd()];
            let mut line = Some(line);
            let server = start(keeps, &mut |control| match line.take() {
                Some(line) => ours::serve(setting, line, control),
                None => Ok(()),
            })?;
            (server, Some(counted))
        }
        subject::Kind::Haproxy => {
            let server = start(Vec::new(), &mut |control| {
                control.ready()?;
                Err(peers::become_haproxy(&path, ports, task))
            })?;
            (server, None)
        }
        subject::Kind::Nginx => {
            let server = start(Vec::new(), &mut |control| {
                control.ready()?;
                Err(peers::become_nginx(&path, ports, task))
            })?;
            (server, None)
        }
    };
    load.meet(|| folder.complaint())?;
    let mut requests = match point.kind {
        Kind::Bulk => point.connections as u64,
        _ => 10 * point.connections as u64,
    };
    let mut ns = load.go(requests)?;
    while ns < PILOT_NS {
        requests *= 2;
        ns = load.go(requests)?;
    }
    let request_ns = ns as f64 / requests as f64;
    let accepted = load.accepted();
    let (slices, busy) = (Vec::new(), Vec::new());
    Ok(Runner { load, counted, server, folder, request_ns, accepted, slices, busy })
}

/// Builds the row: the cost of a request, and its calls.
fn row(runner: &mut Runner, point: Point, requests: u64, options: &Options) -> Result<Row> {
    let mut row = Row {
        subject: runner.server.name().to_owned(),
        load: point.kind.name().to_owned(),
        connections: point.connections,
        bytes: point.bytes,
        figures: Figures::of(&runner.slices, &runner.busy, requests),
        origin_connections_per_request: (runner.load.accepted() - runner.accepted) as f64
            / (requests * runner.slices.len() as u64).max(1) as f64,
        ..Row::default()
    };
    let counted = match point.kind {
        Kind::Bulk => options.forwarded.min(COUNTED_IN_BULK),
        _ => options.forwarded,
    };
    if runner.counted.is_some() {
        let calls = runner.count(counted)?;
        row.counted = counted;
        (row.calls, row.calls_per_request) = by_request(calls, counted);
    }
    if let Some(trace) = Trace::begin(runner.server.pid(), &runner.folder) {
        let traced = counted.min(strace::most(options.output.quick));
        let own = runner.count(traced)?;
        if let Some(calls) = trace.end() {
            row.traced = traced;
            row.calls_per_traced_request = by_request(own, traced).1;
            (row.strace_calls, row.strace_calls_per_request) = by_request(Some(calls), traced);
        }
    }
    Ok(row)
}

fn by_request(calls: Option<Calls>, requests: u64) -> (BTreeMap<String, f64>, Option<f64>) {
    let Some(calls) = calls else { return (BTreeMap::new(), None) };
    let all: u64 = calls.values().sum();
    let each = |count: u64| count as f64 / requests as f64;
    (calls.into_iter().map(|(name, count)| (name, each(count))).collect(), Some(each(all)))
}

/// Fills in the ratios within a point.
fn relate(rows: &mut [Row], runners: &[Runner]) {
    let of = |name: &str| -> Option<&[Slice]> {
        runners.iter().find(|runner| runner.server.name() == name).map(|runner| &runner.slices[..])
    };
    for (row, runner) in rows.iter_mut().zip(runners) {
        let against = |name: &str| of(name).and_then(|other| ratio(&runner.slices, other));
        row.haproxy_ratio = against("haproxy");
        row.nginx_ratio = against("nginx");
        row.waits_ratio = against(&subject::without_speculation(runner.server.name()));
    }
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
        assert_eq!(all.iter().map(|p| p.connections).collect::<Vec<_>>(), [128, 1, 64, 4, 128, 64]);
        assert_eq!(all[3].bytes, 64 << 20);
        assert_eq!(of("bulk,bulk", |_| {}).unwrap().len(), 1);
        let refused = |load, change| of(load, change).unwrap_err().to_string();
        assert!(refused("udp", |_| {}).contains("\"udp\""));
        assert!(refused("all", |o| o.connections = 0).contains("--connections 0"));
        assert!(refused("all", |o| o.bytes = 0).contains("--bytes 0"));
        assert!(refused("all", |o| o.mebibytes = 0).contains("--mebibytes 0"));
        assert!(refused("all", |o| o.forwarded = 0).contains("--forwarded 0"));
    }

    #[test]
    fn calls_are_divided_by_requests() {
        let calls = Calls::from([("read".to_owned(), 40), ("close".to_owned(), 20)]);
        let (calls, all) = by_request(Some(calls), 10);
        assert_eq!((calls["read"], all), (4.0, Some(6.0)));
        assert_eq!(by_request(None, 10), (BTreeMap::new(), None));
    }
}
