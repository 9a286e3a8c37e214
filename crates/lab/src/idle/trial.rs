//! The servers in turn, round by round, each from its start to the end of its last connection.

use std::net::Ipv4Addr;
use std::path::Path;

use serde_json::json;

use crate::budget::Budget;
use crate::channel;
use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::idle::clients::{self, Order};
use crate::idle::subject::{self, Entry, Kind};
use crate::idle::tls::Certificate;
use crate::idle::{Options, Row, Spread, service};
use crate::progress::Progress;
use crate::record::Record;
use crate::rivals::{self, Lost};
use crate::say;
use crate::server::ProcessOptions;
use crate::server::memory::{self, Memory};
use crate::server::processors::Processors;
use crate::statistics;
use crate::sys::process;

/// Descriptors that a server needs in addition to its connections.
pub(super) const RESERVE: usize = 64;

/// How long it takes until a server that parks silent connections has parked them and given their
/// memory back. Our server parks after a second, checks its memory once a second, and waits for
/// another second if there is little to give back. With less time than this, the memory of the
/// first half may be read before it is given back, which shows as a negative size.
pub(super) const PARKING_NS: u64 = 4_000_000_000;

/// How long it takes until other servers have done their work on a connection that fell silent.
pub(super) const SETTLING_NS: u64 = 200_000_000;

crate::by_name::named! {
    /// How connections come.
    pub(super) enum Arrival {
        /// Each does its part before the next one connects.
        OneByOne = "one-by-one",
        /// All connect, then all ask, then all are answered.
        Burst = "burst",
    }
}

impl Arrival {
    /// The command for the clients.
    pub(super) const fn order(self, count: usize) -> Order {
        match self {
            Arrival::OneByOne => Order::OneByOne(count),
            Arrival::Burst => Order::Burst(count),
        }
    }
}

/// Returns the requested arrivals, each once.
pub(super) fn arrivals(text: &str) -> Result<Vec<Arrival>> {
    let all = [Arrival::OneByOne, Arrival::Burst];
    crate::options::named(text, &all, |one| one.name(), |_| true, "no arrival")
}

fn connections(options: &Options, entries: &[Entry]) -> Result<usize> {
    let asked = options.connections.unwrap_or(if options.output.quick { 1000 } else { 4000 });
    // A relay has two descriptors for each.
    let each = 1 + usize::from(entries.iter().any(|entry| entry.kind == Kind::Relay));
    let most = (2 * channel::most_pairs()).saturating_sub(RESERVE) / each;
    if !(2..=most).contains(&asked) {
        let limit = superpoll::limits::nofile().1;
        return Err(Error::usage(format!(
            "--connections {asked} is not possible: give 2 to {most}, as the limit of {limit} \
             descriptors leaves"
        )));
    }
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
    options.output.check()?;
    let (entries, mut notes) = subject::chosen(options.subjects.as_deref())?;
    let arrivals = arrivals(&options.arrival)?;
    let connections = connections(options, &entries)?;
    for note in &notes {
        say::note(note);
    }
    // Taken before this thread binds itself to one processor.
    let environment = Environment::here();
    let processors = Processors::here();
    let mut lost = Lost::default();
    let measured = processors.apart(|processor| {
        let process = ProcessOptions { processor, second_thread: options.output.second_thread };
        measure(options, &entries, &arrivals, connections, process, &mut lost)
    });
    let (rows, budget) = measured?;
    notes.extend(lost.notes());
    let own = [
        ("subjects", json!(entries.iter().map(|e| e.name).collect::<Vec<_>>())),
        ("about", entries.iter().map(|e| (e.name.to_owned(), json!(e.about))).collect()),
        ("arrivals", json!(arrivals.iter().map(|one| one.name()).collect::<Vec<_>>())),
        ("connections", json!(connections)),
        ("client_processor", json!(processors.client())),
        ("server_processor", json!(processors.server())),
        ("bytes_verified", json!(true)),
        ("rivals", rivals::versions(subject::ALL.iter().map(|entry| entry.name))),
        ("notes", json!(notes)),
    ];
    let parameters = options.output.parameters().into_iter().chain(own).chain(budget.end());
    Ok(Record::new("idle", environment, parameters, rows))
}

/// Returns the rows, and the time that is over.
fn measure(
    options: &Options,
    entries: &[Entry],
    arrivals: &[Arrival],
    connections: usize,
    process: ProcessOptions,
    lost: &mut Lost,
) -> Result<(Vec<Row>, Budget)> {
    let making = |e| Error::system("making a folder for servers", e);
    let folder = tempfile::tempdir().map_err(making)?;
    let certificate = Certificate::make(folder.path())?;
    let points: Vec<(Entry, Arrival)> =
        entries.iter().flat_map(|&entry| arrivals.iter().map(move |&one| (entry, one))).collect();
    let progress = Progress::new("idle", points.len() * ROUNDS);
    // Waiting until connections are parked takes most of the time.
    let size = |(entry, _): &(Entry, Arrival)| if entry.parks() { 10 } else { 3 };
    let sizes = points.iter().map(size).collect();
    let mut budget = Budget::of_sizes(&options.output, sizes, 30.0, 600.0);
    budget.needs(1);
    let mut found: Vec<Vec<RoundMemory>> = vec![Vec::new(); points.len()];
    for (&(entry, arrival), found) in points.iter().zip(&mut found) {
        if !budget.point() {
            continue;
        }
        while budget.round() && budget.number() < budget.rounds(ROUNDS) && !lost.has(entry.name) {
            progress.step(format!("{} {}", entry.name, arrival.name()));
            let own = tempfile::tempdir_in(folder.path()).map_err(making)?;
            let round = round(entry, arrival, connections, process, own.path(), &certificate);
            let round = budget.keep(lost.keep(entry.name, round))?;
            found.extend(round.flatten());
        }
    }
    drop(progress);
    let rows = points
        .iter()
        .zip(&found)
        .filter(|(_, found)| !found.is_empty())
        .map(|(&(entry, arrival), found)| row(entry, arrival, connections, found))
        .collect();
    Ok((rows, budget))
}

/// Starts a server with a folder, adds connections and closes them.
fn round(
    entry: Entry,
    arrival: Arrival,
    connections: usize,
    process: ProcessOptions,
    own: &Path,
    certificate: &Certificate,
) -> Result<RoundMemory> {
    let service = service::start(entry, process, own, certificate)?;
    let pid = service.server.pid();
    let mut clients = clients::start(entry, Ipv4Addr::LOCALHOST, service.port, certificate)?;
    let settling = if entry.parks() { PARKING_NS } else { SETTLING_NS };
    let start = memory::at_rest(&[pid], 0)?;
    clients.send(&arrival.order(connections / 2))?;
    let half = memory::at_rest(&[pid], settling)?;
    clients.send(&arrival.order(connections / 2))?;
    let full = memory::at_rest(&[pid], settling)?;
    clients.send(&Order::Check)?;
    clients.send(&Order::Close)?;
    process::sleep(SETTLING_NS);
    let closed = memory::at_rest(&[pid], 0)?;
    Ok(RoundMemory { start, half, full, closed })
}

fn row(entry: Entry, arrival: Arrival, connections: usize, found: &[RoundMemory]) -> Row {
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
        subject: entry.name.to_owned(),
        kind: entry.kind.name().to_owned(),
        arrival: arrival.name().to_owned(),
        connections,
        user_bytes_per_connection: spread(&|f| less(f.full.user, f.half.user) / half),
        first_half_bytes_per_connection: spread(&|f| less(f.half.user, f.start.user) / half),
        start_bytes: spread(&|f| f.start.user as f64).median,
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
            super::connections(&options, subject::ALL)
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
        let row = row(subject::ALL[0], Arrival::Burst, 20, &all);
        let user = row.user_bytes_per_connection;
        assert_eq!((user.least, user.median, user.most), (100.0, 200.0, 400.0));
        assert_eq!(row.first_half_bytes_per_connection.median, 400.0);
        assert_eq!(row.slab_bytes_per_connection.median, 400.0);
        assert_eq!((row.start_bytes, row.left_bytes, row.rounds), (1000.0, 500.0, 3));
    }
}
