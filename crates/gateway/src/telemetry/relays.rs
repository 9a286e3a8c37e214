//! Relays: their connections, their bytes, and how connections ended.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;
use serde::{Deserialize, Serialize};

use crate::relay::{Counters, RelayTotals};
use superpoll_http::families;
use superpoll_http::telemetry::families;

/// A relay at one moment.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct RelayState {
    /// The place of the process that says so among the workers, if there are several.
    process: Option<u32>,
    listener: String,
    counters: Counters,
}

impl RelayState {
    /// Returns the states of all relays.
    pub(super) fn all(relays: &[(String, RelayTotals)], process: Option<u32>) -> Vec<RelayState> {
        let state = |(listener, totals): &(String, RelayTotals)| RelayState {
            process,
            listener: listener.clone(),
            counters: totals.read(),
        };
        relays.iter().map(state).collect()
    }
}

families! {
    const FAMILIES: Counters = [
        Counter relay_connections "Clients that a relay has accepted", |relay| relay.accepted;
        Counter relay_connections_refused
            "Clients closed because of a limit, or because no route is for their server name",
            |relay| relay.refused + relay.shed;
        Counter relay_connections_unreachable "Clients closed because no server could be reached",
            |relay| relay.connect_failures;
        Counter relay_connections_broken
            "Connections that broke at one end or ended without notice, handshakes included",
            |relay| relay.broken;
        Counter relay_connections_timed_out "Connections that were idle or took too long to begin",
            |relay| relay.timed_out;
        Counter relay_bytes_to_servers "Bytes from clients that servers were sent",
            |relay| relay.bytes_up;
        Counter relay_bytes_to_clients "Bytes from servers that clients were sent",
            |relay| relay.bytes_down;
        Gauge relay_connections_active "Connections that a relay has now", |relay| relay.active;
    ];
}

/// Writes the families, if there are relays.
pub(super) fn write(relays: &[RelayState], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let labels =
        |relay: &RelayState| families::labels([("listener", &*relay.listener)], relay.process);
    let relays: Vec<_> = relays.iter().map(|relay| (labels(relay), &relay.counters)).collect();
    if relays.is_empty() {
        return Ok(());
    }
    families::write(FAMILIES, &relays, encoder)
}
