//! Relays: their connections, their bytes, and how connections ended.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use serde::{Deserialize, Serialize};

use super::process::process_label;
use crate::relay::{Counters, RelayTotals};

/// A relay at one moment.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct RelayState {
    /// The place of the process that says so among the workers, if there are several.
    process: Option<u32>,
    listener: String,
    accepted: u64,
    active: u64,
    refused: u64,
    unreachable: u64,
    broken: u64,
    timed_out: u64,
    bytes_up: u64,
    bytes_down: u64,
}

impl RelayState {
    /// Returns the states of relays by the addresses of their listeners.
    pub(super) fn all(relays: &[(String, RelayTotals)], process: Option<u32>) -> Vec<RelayState> {
        let of = |(listener, totals): &(String, RelayTotals)| {
            let counters: Counters = totals.read();
            RelayState {
                process,
                listener: listener.clone(),
                accepted: counters.accepted,
                active: counters.active,
                refused: counters.refused + counters.shed,
                unreachable: counters.connect_failures,
                broken: counters.broken,
                timed_out: counters.timed_out,
                bytes_up: counters.bytes_up,
                bytes_down: counters.bytes_down,
            }
        };
        relays.iter().map(of).collect()
    }

    fn labels(&self) -> Vec<(&'static str, String)> {
        let own = [("listener", self.listener.clone())];
        own.into_iter().chain(process_label(self.process)).collect()
    }
}

/// A counter of a relay, which only grows.
type Counter = (&'static str, &'static str, fn(&RelayState) -> u64);

const COUNTERS: [Counter; 7] = [
    ("relay_connections", "Clients that a relay has accepted", |relay| relay.accepted),
    (
        "relay_connections_refused",
        "Clients closed because of a limit, or because no route is for their server name",
        |relay| relay.refused,
    ),
    (
        "relay_connections_unreachable",
        "Clients closed because no server could be reached",
        |relay| relay.unreachable,
    ),
    (
        "relay_connections_broken",
        "Connections that broke at one end or ended without notice, handshakes included",
        |relay| relay.broken,
    ),
    (
        "relay_connections_timed_out",
        "Connections that were idle or took too long to begin",
        |relay| relay.timed_out,
    ),
    ("relay_bytes_to_servers", "Bytes from clients that servers were sent", |relay| relay.bytes_up),
    ("relay_bytes_to_clients", "Bytes from servers that clients were sent", |relay| {
        relay.bytes_down
    }),
];

/// Writes the families, if there are relays.
pub(super) fn write(relays: &[RelayState], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    if relays.is_empty() {
        return Ok(());
    }
    for (name, help, of) in COUNTERS {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for relay in relays {
            let labels = relay.labels();
            let mut family = family.encode_family(&labels)?;
            family.encode_counter::<NoLabelSet, _, u64>(&of(relay), None)?;
        }
    }
    let (name, help) = ("relay_connections_active", "Connections that a relay has now");
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for relay in relays {
        let active = i64::try_from(relay.active).unwrap_or(i64::MAX);
        family.encode_family(&relay.labels())?.encode_gauge(&active)?;
    }
    Ok(())
}
