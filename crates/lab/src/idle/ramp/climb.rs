//! Step by step towards a limit.

use std::time::Instant;

use crate::error::{Error, Result};
use crate::headroom::Headroom;
use crate::idle::ramp::Row;
use crate::idle::ramp::hosts::{self, Hosts};
use crate::idle::subject::{Kind, Subject};
use crate::idle::trial::{PARKING_NS, SETTLING_NS};
use crate::server::trial::Trial;
use crate::server::{clients, memory};

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
    let (capacity, limit) = hosts::capacity(kind);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_that_comes_first_is_named() {
        let bounds = Bounds { first: 1, steps: 1, servers: 2 };
        let (capacity, _) = hosts::capacity(Kind::KeepAlive);
        // With one byte for each, and no floor.
        assert_eq!(possible(Kind::KeepAlive, 0, bounds, 1, 0), (2 * capacity, "descriptors"));
        assert_eq!(possible(Kind::KeepAlive, 7, bounds, 1 << 10, u64::MAX), (7, "memory"));
    }
}
