//! Step by step towards a limit.

use std::time::Instant;

use serde_json::json;
use tempfile::TempDir;

use crate::budget::Budget;
use crate::channel;
use crate::environment::{self, Headroom};
use crate::error::{Error, Result};
use crate::idle::Options;
use crate::idle::clients::{Order, start};
use crate::idle::ramp::Row;
use crate::idle::service::{self, Certificate, Kind, Service, Subject};
use crate::idle::trial::{Arrival, PARKING_NS, RESERVE, SETTLING_NS, arrivals};
use crate::options::within;
use crate::record::Record;
use crate::server::clients::{self, Clients};
use crate::server::trial::{Plan, Trial};
use crate::server::{ProcessOptions, memory, program};

/// The assumed memory of a connection in bytes until it has been measured; a relayed connection
/// counts twice.
const BYTES: u64 = 32 << 10;

/// The least memory that a connection is assumed to take, because other work on the machine may
/// distort the measurement.
const LEAST_BYTES: u64 = 8 << 10;

/// A step is expected to take this many times as long as the step before.
const LONGER: f64 = 2.2;

/// How far a ramp may go.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Connections of the first step.
    pub first: usize,
    /// Steps at most.
    pub steps: usize,
    /// Server processes at most.
    pub servers: usize,
}

/// Returns how many connections a step may have, and the limit that forbids more. `bytes` is the
/// memory of one connection.
fn possible(
    kind: Kind,
    connections: usize,
    bounds: Bounds,
    bytes: u64,
    floor: u64,
) -> (usize, &'static str) {
    let (capacity, limit) = capacity(kind);
    let here = Headroom::here();
    let by_memory = here.memory.saturating_sub(floor) / bytes.max(1);
    let by_memory = usize::try_from(by_memory).unwrap_or(usize::MAX);
    // The limits of files and processes; memory has its own floor.
    let (more, other) = here.connections(1, capacity, clients::most());
    let more = if kind == Kind::Relay { more / 2 } else { more };
    let all = [
        (bounds.servers.saturating_mul(capacity), limit),
        (connections.saturating_add(by_memory), "memory"),
        (connections.saturating_add(more), other.name()),
    ];
    all.into_iter().min_by_key(|(count, _)| *count).unwrap_or(all[0])
}

/// Returns the steps of one kind.
pub(super) fn climb(
    Subject { name, start, .. }: Subject,
    mut hosts: Hosts<'_>,
    bounds: Bounds,
    trial: &mut Trial<'_>,
) -> Result<Vec<Row>> {
    let begun = Instant::now();
    let available = || Headroom::here().memory;
    let at_start = memory::of_machine()?;
    let available_at_start = available();
    let floor = available_at_start / 4;
    let settling = if start.parks() { PARKING_NS } else { SETTLING_NS };
    let mut bytes = if start.kind == Kind::Relay { 2 * BYTES } else { BYTES };
    let mut rows: Vec<Row> = Vec::new();
    let mut target = bounds.first;
    let mut longest = 0.0f64;
    let ended = loop {
        let step = rows.len() + 1;
        let elapsed = begun.elapsed().as_secs_f64();
        if step > bounds.steps {
            break "steps";
        }
        if !trial.run.budget.round() || (step > 1 && LONGER * longest > trial.run.budget.left()) {
            break "time";
        }
        let (most, limit) = possible(start.kind, hosts.connections(), bounds, bytes, floor);
        let is_last = target >= most;
        let connections = target.min(most);
        if connections <= hosts.connections() {
            if rows.is_empty() {
                let text = format!("{name}: there is no room for a connection: {limit}");
                return Err(Error::usage(text));
            }
            break limit;
        }
        trial.run.progress.step(format!("{name}, {connections} connections"));
        hosts.prepare(connections)?;
        let coming = Instant::now();
        match hosts.grow(connections, || available() > floor) {
            Ok(()) => {}
            Err(error) if rows.is_empty() => return Err(error),
            Err(error) => {
                let had = hosts.connections();
                trial.run.note(format!("{name} beyond {had} connections: {error}"));
                break "refused";
            }
        }
        let seconds = coming.elapsed().as_secs_f64();
        let now = memory::at_rest(&hosts.pids(), settling)?;
        let count = hosts.connections().max(1) as f64;
        let each = |now: u64, before: u64| (now as f64 - before as f64) / count;
        let left = available();
        rows.push(Row {
            subject: name.to_owned(),
            kind: start.kind.name().to_owned(),
            step,
            connections: hosts.connections(),
            servers: hosts.servers(),
            user_bytes_per_connection: each(now.user, hosts.start),
            slab_bytes_per_connection: each(now.slab, at_start.slab),
            socket_bytes_per_connection: each(now.sockets, at_start.sockets),
            machine_bytes_per_connection: each(available_at_start, left),
            available_bytes: left,
            seconds,
            limit: None,
        });
        if hosts.connections() < connections {
            break "memory";
        }
        if is_last {
            break limit;
        }
        // Twice the memory of the servers and the kernel: the clients' memory comes on top. The
        // decrease of the machine's available memory is not used, because other processes would
        // then end a ramp.
        let all = |of: memory::Memory| of.user + of.slab + of.sockets;
        let taken = each(all(now), all(at_start) + hosts.start).max(0.0);
        bytes = LEAST_BYTES.max(2 * taken as u64);
        longest = longest.max(begun.elapsed().as_secs_f64() - elapsed);
        target = target.saturating_mul(2);
    };
    if ended != "refused" {
        hosts.close()?;
    }
    if let Some(last) = rows.last_mut() {
        last.limit = Some(ended.to_owned());
    }
    Ok(rows)
}

// The processes of a ramp: servers, each filled before the next, and their clients.

/// Returns how many connections a server process may have, and the limit that forbids more.
pub(super) fn capacity(kind: Kind) -> (usize, &'static str) {
    let descriptors = (2 * channel::most_pairs()).saturating_sub(RESERVE) / 8 * 7;
    match kind {
        // A relay has two descriptors for each, and all its connections to the origin come from one
        // address.
        Kind::Relay if environment::ports() < descriptors / 2 => {
            (environment::ports().max(1), "ports")
        }
        Kind::Relay => ((descriptors / 2).max(1), "descriptors"),
        _ => (descriptors.max(1), "descriptors"),
    }
}

struct Host {
    // Declared before the server, so that the clients reset their connections before the server
    // closes them.
    clients: Vec<Clients>,
    service: Service,
    connections: usize,
}

/// All processes.
pub(super) struct Hosts<'a> {
    subject: Subject,
    arrival: Arrival,
    process: ProcessOptions,
    certificate: &'a Certificate,
    hosts: Vec<Host>,
    // The files that servers have written live as long as the servers.
    folders: Vec<TempDir>,
    /// The servers' own memory before they had connections, in bytes.
    pub start: u64,
}

impl<'a> Hosts<'a> {
    /// Creates no process yet.
    pub(super) fn new(
        subject: Subject,
        arrival: Arrival,
        process: ProcessOptions,
        certificate: &'a Certificate,
    ) -> Hosts<'a> {
        let (hosts, folders) = (Vec::new(), Vec::new());
        Hosts { subject, arrival, process, certificate, hosts, folders, start: 0 }
    }

    /// Returns how many connections there are.
    pub(super) fn connections(&self) -> usize {
        self.hosts.iter().map(|host| host.connections).sum()
    }

    /// Returns how many processes the server has.
    pub(super) fn servers(&self) -> usize {
        self.hosts.len()
    }

    /// Returns the process numbers of the server.
    pub(super) fn pids(&self) -> Vec<i32> {
        self.hosts.iter().map(|host| host.service.server.pid()).collect()
    }

    /// Starts enough servers for `connections` connections, and notes their memory without any.
    pub(super) fn prepare(&mut self, connections: usize) -> Result<()> {
        let (capacity, _) = capacity(self.subject.start.kind);
        let before = self.hosts.len();
        while self.hosts.len() * capacity < connections {
            let own = program::folder(self.subject.name)?;
            let service = service::start(self.subject, self.process, own.path(), self.certificate)?;
            self.folders.push(own);
            self.hosts.push(Host { clients: Vec::new(), service, connections: 0 });
        }
        if self.hosts.len() > before {
            self.start += memory::at_rest(&self.pids()[before..], 0)?.user;
        }
        Ok(())
    }

    /// Adds connections, up to `connections` in total, as long as `goes_on` returns true; it is
    /// called before every few thousand. The servers must be there.
    pub(super) fn grow(&mut self, connections: usize, goes_on: impl Fn() -> bool) -> Result<()> {
        let (capacity, _) = capacity(self.subject.start.kind);
        let most = clients::most();
        let mut left = connections.saturating_sub(self.connections());
        for host in &mut self.hosts {
            let mut own = left.min(capacity - host.connections);
            left -= own;
            while own > 0 {
                if !goes_on() {
                    return Ok(());
                }
                let count = own.min(most);
                let from = clients::address(host.clients.len());
                let mut clients = start(self.subject, from, host.service.port, self.certificate)?;
                clients.send(&self.arrival.order(count))?;
                host.clients.push(clients);
                host.connections += count;
                own -= count;
            }
        }
        Ok(())
    }

    /// Checks that all connections are there, and silent, and then closes them.
    pub(super) fn close(&mut self) -> Result<()> {
        for order in [Order::Check, Order::Close] {
            let mut clients = self.hosts.iter_mut().flat_map(|host| &mut host.clients);
            clients.try_for_each(|clients| clients.send(&order))?;
        }
        Ok(())
    }
}

// The kinds of connections, one after the other.

/// The kinds that are measured unless the options name some.
const DEFAULTS: &str =
    "superpoll-keep-alive,superpoll-long-poll,superpoll-websocket,superpoll-relay";

/// Runs the experiment.
pub(super) fn run(options: &Options) -> Result<Record<Row>> {
    let names = options.subjects.as_deref().unwrap_or(DEFAULTS);
    let (subjects, notes) = service::chosen(Some(names))?;
    // The first arrival of the two unless the options name one.
    let arrival = arrivals(&options.arrival)?[0];
    let first = options.connections.unwrap_or(if options.output.quick { 250 } else { 1000 });
    let steps = options.steps.unwrap_or(if options.output.quick { 3 } else { 12 });
    within("--connections", first, 1..=1 << 20)?;
    within("--steps", steps, 1..=24)?;
    within("--servers", options.servers, 1..=64)?;
    let folder = program::folder("idle")?;
    let certificate = Certificate::make(folder.path())?;
    let mut plan = Plan::new("idle-ramp", &options.output, &subjects, subjects.len(), 0.0);
    plan.budget = Budget::new(&options.output, subjects.len(), 30.0, 300.0);
    plan.budget.needs(1);
    (plan.notes, plan.steps) = (notes, subjects.len() * steps);
    let own = [
        ("arrival", json!(arrival.name())),
        ("first", json!(first)),
        ("steps", json!(steps)),
        ("servers", json!(options.servers)),
    ];
    let bounds = Bounds { first, steps, servers: options.servers };
    plan.run(&subjects, own, |trial, &subject| {
        let hosts = Hosts::new(subject, arrival, trial.process, &certificate);
        climb(subject, hosts, bounds, trial)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_that_comes_first_is_named() {
        let bounds = Bounds { first: 1, steps: 1, servers: 2 };
        let (capacity, _) = capacity(Kind::KeepAlive);
        // With one byte for each, and no floor.
        assert_eq!(possible(Kind::KeepAlive, 0, bounds, 1, 0), (2 * capacity, "descriptors"));
        assert_eq!(possible(Kind::KeepAlive, 7, bounds, 1 << 10, u64::MAX), (7, "memory"));
    }

    #[test]
    fn a_relay_has_two_descriptors_for_each() {
        let (plain, limit) = capacity(Kind::KeepAlive);
        assert_eq!(limit, "descriptors");
        assert!(capacity(Kind::Relay).0 <= plain / 2 && plain > 1 && clients::most() <= plain);
    }
}
