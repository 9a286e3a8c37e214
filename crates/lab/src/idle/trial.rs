//! The servers in turn, round by round, each from its start to the end of its last connection.

use std::path::Path;

use serde_json::json;

use crate::budget::Budget;
use crate::error::Result;
use crate::idle::service::{self, Kind, Subject};
use crate::idle::{Options, Row, Spread};
use crate::record::Record;
use crate::server::crowd::Order;
use crate::server::memory::{self, Memory};
use crate::server::subject::names;
use crate::server::tls::Certificate;
use crate::server::trial::Plan;
use crate::server::{ProcessOptions, program};
use crate::sys::process;
use crate::{channel, statistics};

/// Descriptors that a server needs in addition to its connections.
const RESERVE: usize = 64;

/// How long it takes until a server that parks silent connections has parked them and given their
/// memory back. Our server parks after a second, checks its memory once a second, and waits for
/// another second if there is little to give back. With less time than this, the memory of the
/// first half may be read before it is given back, which shows as a negative size.
const PARKING_NS: u64 = 4_000_000_000;

/// How long it takes until other servers have done their work on a connection that fell silent.
const SETTLING_NS: u64 = 200_000_000;

crate::by_name::named! {
    /// How connections come.
    enum Arrival {
        /// Each does its part before the next one connects.
        OneByOne = "one-by-one",
        /// All connect, then all ask, then all are answered.
        Burst = "burst",
    }
}

impl Arrival {
    /// The command for the clients.
    const fn order(self, count: usize) -> Order {
        let at_once = match self {
            Arrival::OneByOne => 1,
            Arrival::Burst => count,
        };
        Order::Open { count, at_once }
    }
}

/// Returns the requested arrivals, each once.
fn arrivals(text: &str) -> Result<Vec<Arrival>> {
    crate::options::named(text, &Arrival::ALL, |one| one.name(), |_| true, "no arrival")
}

fn connections(options: &Options, subjects: &[Subject]) -> Result<usize> {
    // A relay has two descriptors for each.
    let each = 1 + usize::from(subjects.iter().any(|one| one.start.kind == Kind::Relay));
    let most = (2 * channel::most_pairs()).saturating_sub(RESERVE) / each;
    // Of few, what an allocator keeps for later is the larger part.
    let usual = if options.output.quick { 1000 } else { 9000 };
    let asked = options.connections.unwrap_or(usual.min(most));
    channel::fits("--connections", asked, 2..=most)?;
    Ok(asked / 2 * 2)
}

/// The most rounds of a server, unless the options give a number: memory hardly varies.
const ROUNDS: usize = 3;

/// The findings of one round, in bytes.
#[derive(Clone, Copy, Debug, Default)]
struct RoundMemory {
    start: Memory,
    half: Memory,
    full: Memory,
    closed: Memory,
}

pub(super) fn run(options: &Options) -> Result<Record<Row>> {
    let (subjects, notes) = service::chosen(options.subjects.as_deref())?;
    let arrivals = arrivals(&options.arrival)?;
    let connections = connections(options, &subjects)?;
    let folder = program::folder("idle")?;
    let certificate = Certificate::make(folder.path())?;
    let of = |&subject: &Subject| arrivals.iter().map(move |&arrival| (subject, arrival));
    let points: Vec<(Subject, Arrival)> = subjects.iter().flat_map(of).collect();
    // Waiting until connections are parked takes most of the time.
    let size = |(subject, _): &(Subject, Arrival)| if subject.start.parks() { 10 } else { 3 };
    let sizes = points.iter().map(size).collect();
    let mut plan = Plan::new("idle", &options.output, &subjects, points.len(), 0.0);
    plan.budget = Budget::of_sizes(&options.output, sizes, 30.0, 600.0);
    plan.budget.needs(1);
    (plan.all, plan.notes, plan.steps) = (names(service::ALL), notes, points.len() * ROUNDS);
    let own = [
        ("arrivals", json!(arrivals.iter().map(|one| one.name()).collect::<Vec<_>>())),
        ("connections", json!(connections)),
    ];
    plan.run(&points, own, |trial, &(subject, arrival)| {
        let (name, process) = (subject.name, trial.process);
        let mut found = Vec::new();
        while trial.run.budget.round()
            && trial.run.budget.number() < trial.run.budget.rounds(ROUNDS)
            && !trial.run.lost.has(name)
        {
            trial.run.progress.step(format!("{name} {arrival}"));
            let own = program::folder(name)?;
            let round = round(subject, arrival, connections, process, own.path(), &certificate);
            let round = trial.run.budget.keep(trial.run.lost.keep(name, round))?;
            found.extend(round.flatten());
        }
        let row = (!found.is_empty()).then(|| row(subject, arrival, connections, &found));
        Ok(row.into_iter().collect())
    })
}

/// Starts a server with a folder, adds connections and closes them.
fn round(
    subject: Subject,
    arrival: Arrival,
    connections: usize,
    process: ProcessOptions,
    own: &Path,
    certificate: &Certificate,
) -> Result<RoundMemory> {
    let service = service::start(subject, process, own, certificate)?;
    let pid = service.server.pid();
    let mut clients = service::clients(subject, service.port, certificate)?;
    let settling = if subject.start.parks() { PARKING_NS } else { SETTLING_NS };
    let start = memory::at_rest(&[pid], 0)?;
    clients.ask(&arrival.order(connections / 2))?;
    let half = memory::at_rest(&[pid], settling)?;
    clients.ask(&arrival.order(connections / 2))?;
    let full = memory::at_rest(&[pid], settling)?;
    clients.ask(&Order::Check)?;
    clients.ask(&Order::Close)?;
    process::sleep(SETTLING_NS);
    let closed = memory::at_rest(&[pid], 0)?;
    Ok(RoundMemory { start, half, full, closed })
}

fn row(subject: Subject, arrival: Arrival, connections: usize, found: &[RoundMemory]) -> Row {
    let half = (connections / 2) as f64;
    let spread = |of: &dyn Fn(&RoundMemory) -> f64| {
        let all: Vec<f64> = found.iter().map(of).collect();
        Spread {
            median: statistics::median(&all),
            least: statistics::minimum(&all),
            most: statistics::maximum(&all),
        }
    };
    let less = |more: u64, less: u64| more as f64 - less as f64;
    Row {
        subject: subject.name.to_owned(),
        kind: subject.start.kind.name().to_owned(),
        arrival: arrival.name().to_owned(),
        connections,
        user_bytes_per_connection: spread(&|f| less(f.full.user, f.half.user) / half),
        first_half_bytes_per_connection: spread(&|f| less(f.half.user, f.start.user) / half),
        left_bytes: spread(&|f| less(f.closed.user, f.start.user)).median,
        slab_bytes_per_connection: spread(&|f| less(f.full.slab, f.half.slab) / half),
        socket_bytes_per_connection: spread(&|f| less(f.full.sockets, f.half.sockets) / half),
        rounds: found.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_and_connections_are_checked() {
        assert_eq!(arrivals("all").unwrap(), [Arrival::OneByOne, Arrival::Burst]);
        assert_eq!(arrivals("burst,burst").unwrap(), [Arrival::Burst]);
        let error = arrivals("flood").unwrap_err().to_string();
        assert!(error.contains("\"flood\"") && error.contains("one-by-one, burst"), "{error}");
        let of = |connections| {
            let options = Options { connections: Some(connections), ..Options::default() };
            super::connections(&options, &service::chosen(None).unwrap().0)
        };
        assert_eq!((of(2).unwrap(), of(5).unwrap()), (2, 4));
        for bad in [0, 1, 10_000_000] {
            let error = of(bad).unwrap_err().to_string();
            assert!(error.contains(&format!("--connections {bad}")), "{error}");
        }
    }

    #[test]
    fn memory_at_the_start_does_not_count() {
        let memory = |user| Memory { user, slab: 2 * user, sockets: 0 };
        let found = |full| RoundMemory {
            start: memory(1000),
            half: memory(5000),
            full: memory(full),
            closed: memory(1500),
        };
        let all = [found(6000), found(7000), found(9000)];
        let ours = service::chosen(Some("superpoll-silent")).unwrap().0[0];
        let row = row(ours, Arrival::Burst, 20, &all);
        let user = row.user_bytes_per_connection;
        assert_eq!((user.least, user.median, user.most), (100.0, 200.0, 400.0));
        assert_eq!(row.first_half_bytes_per_connection.median, 400.0);
        assert_eq!(row.slab_bytes_per_connection.median, 400.0);
        assert_eq!((row.left_bytes, row.rounds), (500.0, 3));
    }
}
