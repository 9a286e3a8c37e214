//! The servers in turn, round by round.

use serde_json::{Map, Value, json};

use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::http::load::Load;
use crate::http::server::{Counts, Server};
use crate::http::subject::{self, Entry};
use crate::http::{Options, Row};
use crate::options;
use crate::output;
use crate::pace::{self, Pace};
use crate::progress::Progress;
use crate::record::{self, Record};
use crate::statistics;
use crate::sys::process;

/// What one round took.
#[derive(Clone, Copy, Debug)]
struct Slice {
    ns: u64,
    cpu_ns: u64,
}

/// A server, who asks it, and what it did.
struct Runner {
    // Before the server, so that its connections are reset and not closed by the other side.
    load: Load,
    server: Server,
    /// A request in nanoseconds, from the pilot.
    request_ns: f64,
    before: Option<Counts>,
    slices: Vec<Slice>,
}

/// Requests on each connection before anything else is asked.
const WARM_UP: u64 = 20;

/// How long a server is asked before its pace is believed: the first requests are slow.
const PILOT_NS: u64 = 20_000_000;

/// A round takes no longer than this, whatever the time.
const LONGEST_ROUND_NS: f64 = 5e9;

/// How long a server has to go to sleep after the last request of a round.
const SETTLING_NS: u64 = 2_000_000;

fn connections(options: &Options, servers: usize) -> Result<Vec<usize>> {
    let numbers = options::numbers("--connections", &options.connections)?;
    // One process holds a client for each connection to each server.
    let most = 2 * crate::channel::most_pairs() / (servers + 1);
    for &number in &numbers {
        if number == 0 || number > most {
            return Err(Error::usage(format!(
                "--connections {number} is not possible: give 1 to {most}, which is what the limit of {} \
                 descriptors leaves with {servers} servers",
                superpoll::limits::descriptors().1
            )));
        }
    }
    let mut different = Vec::new();
    for number in numbers {
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
    let processors = process::processors();
    let (client, server) = (processors.first().copied(), processors.get(1).copied());
    if server.is_none() {
        output::note("there is one processor: servers and load generator take turns on it");
    }
    let pinned = client.is_some_and(|client| process::pin(&[client]).is_ok());
    let outcome = measure(options, environment, &entries, &points, (client, server.or(client)));
    if pinned {
        // Where it cannot be undone, what follows runs on one processor.
        let _ = process::pin(&processors);
    }
    outcome
}

fn measure(
    options: &Options,
    environment: Environment,
    entries: &[Entry],
    points: &[usize],
    (client, server): (Option<usize>, Option<usize>),
) -> Result<Record<Row>> {
    let rounds = options.output.repetitions.unwrap_or(if options.output.quick { 5 } else { 15 });
    let budget = options.output.budget(10.0, 30.0 * points.len() as f64);
    let progress = Progress::new("http", points.len() * entries.len() * (rounds + 1));
    let promised = options.output.seconds.is_none();
    let mut pace = Pace::new(points.len(), budget, promised, options.output.quick);
    let (mut rows, mut left_out) = (Vec::new(), 0);
    for &connections in points {
        let Some(rounds) = pace.next(rounds) else {
            left_out += 1;
            continue;
        };
        let mut runners = Vec::new();
        for &entry in entries {
            progress.step(format!("{} accepts {connections} connections", entry.name));
            runners.push(set_up(entry, connections, server, options.output.second_thread)?);
        }
        let budget_ns = budget * 1e9 / points.len() as f64;
        let request_ns: Vec<f64> = runners.iter().map(|runner| runner.request_ns).collect();
        let requests = share(&request_ns, rounds, budget_ns).max(connections as u64);
        for runner in &mut runners {
            runner.before = runner.server.counts()?;
        }
        for round in 0..rounds {
            for turn in 0..runners.len() {
                // Each round starts elsewhere, so that nobody goes first every time.
                let place = (turn + round) % runners.len();
                let runner = &mut runners[place];
                progress.step(format!("{} {connections} connections", runner.server.entry().name));
                let slice = runner.round(requests)?;
                runner.slices.push(slice);
            }
        }
        let mut point = Vec::new();
        for runner in &mut runners {
            point.push(row(runner, connections, requests)?);
        }
        relate(&mut point);
        rows.extend(point);
    }
    drop(progress);
    pace::say_left_out(left_out);
    let parameters: Map<String, Value> = [
        ("subjects", json!(entries.iter().map(|e| e.name).collect::<Vec<_>>())),
        ("about", entries.iter().map(|e| (e.name.to_owned(), json!(e.about))).collect()),
        ("connections", json!(points)),
        ("rounds", json!(rounds)),
        ("client_processor", json!(client)),
        ("server_processor", json!(server)),
        ("seconds", json!(budget)),
        ("quick", json!(options.output.quick)),
        ("second_thread", json!(options.output.second_thread)),
        ("bytes_verified", json!(true)),
        ("points_left_out", json!(left_out)),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into_iter()
    .collect();
    let experiment = "http".to_owned();
    Ok(Record { schema: record::SCHEMA, experiment, environment, parameters, rows })
}

/// Starts a server, connects to it, and sees how long a request takes.
fn set_up(
    entry: Entry,
    connections: usize,
    processor: Option<usize>,
    second_thread: bool,
) -> Result<Runner> {
    let server = Server::start(entry, processor, second_thread)?;
    let mut load = Load::connect(entry.name, server.port(), connections)?;
    let mut pilot = WARM_UP * connections as u64;
    let mut ns = load.go(pilot)?;
    while ns < PILOT_NS {
        pilot *= 2;
        ns = load.go(pilot)?;
    }
    let request_ns = ns as f64 / pilot as f64;
    Ok(Runner { load, server, request_ns, before: None, slices: Vec::new() })
}

/// How many requests each server gets in a round, the same for all, so that all rounds fit into the time.
fn share(request_ns: &[f64], rounds: usize, budget_ns: f64) -> u64 {
    let sum: f64 = request_ns.iter().sum();
    let slowest = statistics::maximum(request_ns).max(1.0);
    let requests = budget_ns / (rounds as f64 * sum.max(1.0));
    requests.min(LONGEST_ROUND_NS / slowest).max(1.0) as u64
}

impl Runner {
    fn round(&mut self, requests: u64) -> Result<Slice> {
        let before = self.server.processor_time()?;
        let ns = self.load.go(requests)?;
        // Of a process that runs, the kernel tells what it had used by the last tick of the clock, which
        // may be milliseconds ago; of one that sleeps, everything.
        process::sleep(SETTLING_NS);
        Ok(Slice { ns, cpu_ns: self.server.processor_time()? - before })
    }
}

fn row(runner: &mut Runner, connections: usize, requests: u64) -> Result<Row> {
    let counted = runner.server.counts()?.zip(runner.before);
    let rounds = runner.slices.len();
    let each = |of: fn(&Slice) -> u64| -> Vec<f64> {
        runner.slices.iter().map(|slice| of(slice) as f64 / requests as f64).collect()
    };
    let (times, cpu) = (each(|slice| slice.ns), each(|slice| slice.cpu_ns));
    let per_request = |count: u64| count as f64 / (requests * rounds as u64) as f64;
    Ok(Row {
        subject: runner.server.entry().name.to_owned(),
        connections,
        requests,
        cpu_ns_per_request_min: statistics::minimum(&cpu),
        cpu_ns_per_request_median: statistics::median(&cpu),
        cpu_spread: statistics::maximum(&cpu) - statistics::minimum(&cpu),
        requests_per_second: 1e9 / statistics::median(&times).max(1.0),
        waits_per_request: counted.map(|(now, before)| per_request(now.waits - before.waits)),
        epoll_ctl_per_request: counted
            .map(|(now, before)| per_request(now.epoll_ctl - before.epoll_ctl)),
        rounds,
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
    fn rounds_fit_into_the_time() {
        assert_eq!(share(&[1000.0, 3000.0], 10, 4e6), 100);
        assert_eq!(share(&[1e6], 1, 1e12), 5000);
        assert_eq!(share(&[1e9], 5, 1.0), 1);
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
