//! The servers of upstreams: whether requests are forwarded to them, and how many.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use serde::{Deserialize, Serialize};

use super::durations::{HistogramState, write_histograms};
use super::process::process_label;
use super::traffic::{ServerCondition, ServerTraffic};
use crate::upstream::{Group, GroupServer};

/// A server of an upstream at one moment.
#[derive(Debug, Serialize, Deserialize)]
struct ServerState {
    /// The place of the process that says so among the workers, if there are several.
    process: Option<u32>,
    upstream: String,
    server: String,
    /// The address with the name that the server was found by.
    name: Option<String>,
    is_up: bool,
    condition: ServerCondition,
    requests: u64,
    failures: u64,
    active: u64,
    retries: u64,
    unchecked: u64,
    dials: u64,
    ejections: u64,
    idle: u64,
    durations: HistogramState,
}

/// The servers of upstreams that another configuration has replaced, as long as anything is under
/// way on them: they are none of the next configuration's, and have its addresses.
#[derive(Debug, Default)]
pub(crate) struct ReplacedServers(Vec<(String, Weak<GroupServer>)>);

/// How many requests are under way on replaced servers, by their upstream and address.
pub(crate) type ReplacedRequests = HashMap<(String, String), u64>;

impl ReplacedServers {
    /// Notes the servers of the groups `before` that are not among the groups of `now`.
    pub(super) fn replace(&mut self, before: &[Arc<Group>], now: &[Arc<Group>]) {
        self.0.retain(|(_, server)| server.strong_count() > 0);
        let gone = before.iter().filter(|group| !now.iter().any(|other| Arc::ptr_eq(other, group)));
        for group in gone {
            let servers = group.members();
            let named = servers.iter().map(|one| (group.name().to_owned(), Arc::downgrade(one)));
            self.0.extend(named);
        }
    }

    /// Returns the requests that are under way on them.
    pub(super) fn active(&self) -> ReplacedRequests {
        let mut all = ReplacedRequests::new();
        for (upstream, server) in &self.0 {
            let Some(server) = server.upgrade() else { continue };
            let active = server.active.load(Ordering::Relaxed);
            if active > 0 {
                *all.entry((upstream.clone(), server.address.to_string())).or_default() += active;
            }
        }
        all
    }
}

/// A name of servers at one moment.
#[derive(Debug, Serialize, Deserialize)]
struct NameState {
    process: Option<u32>,
    upstream: String,
    name: String,
    lookups: u64,
    failures: u64,
    addresses: u64,
}

/// The upstreams at one moment.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct UpstreamStates {
    servers: Vec<ServerState>,
    names: Vec<NameState>,
}

impl UpstreamStates {
    /// Returns the states of all servers and their names.
    pub(super) fn all(
        groups: &[Arc<Group>],
        replaced: &ReplacedRequests,
        process: Option<u32>,
    ) -> UpstreamStates {
        let names = |group: &Arc<Group>| {
            let states = group.names().iter().map(|named| NameState {
                process,
                upstream: group.name().to_owned(),
                name: named.text.clone(),
                lookups: named.lookups.load(Ordering::Relaxed),
                failures: named.failures.load(Ordering::Relaxed),
                addresses: named.servers.load(Ordering::Relaxed),
            });
            states.collect::<Vec<_>>()
        };
        let names = groups.iter().flat_map(names).collect();
        UpstreamStates { servers: ServerState::all(groups, replaced, process), names }
    }

    /// Adds the upstreams of another process of the server.
    pub(super) fn add(&mut self, other: UpstreamStates) {
        self.servers.extend(other.servers);
        self.names.extend(other.names);
    }

    /// Returns the requests of all servers so far.
    pub(super) fn traffic(
        groups: &[Arc<Group>],
        replaced: &ReplacedRequests,
    ) -> Vec<ServerTraffic> {
        let of = |state: ServerState| {
            let (durations, nanoseconds) = state.durations.into_parts();
            ServerTraffic {
                upstream: state.upstream,
                server: state.server,
                processes: 1,
                processes_up: u32::from(state.is_up),
                condition: state.condition,
                requests: state.requests,
                failures: state.failures,
                retries: state.retries,
                active: state.active,
                idle: state.idle,
                dials: state.dials,
                durations,
                nanoseconds,
            }
        };
        ServerState::all(groups, replaced, None).into_iter().map(of).collect()
    }
}

impl ServerState {
    /// Returns the states of all servers, with the requests on those that they have replaced.
    fn all(
        groups: &[Arc<Group>],
        replaced: &ReplacedRequests,
        process: Option<u32>,
    ) -> Vec<ServerState> {
        let before = |group: &Group, server: &GroupServer| match replaced.is_empty() {
            true => 0,
            false => {
                let place = (group.name().to_owned(), server.address.to_string());
                replaced.get(&place).copied().unwrap_or(0)
            }
        };
        let of = |group: &Arc<Group>| {
            let servers = group.members();
            let states = servers.iter().map(|server| ServerState {
                process,
                upstream: group.name().to_owned(),
                server: server.address.to_string(),
                name: server.origin.as_ref().map(ToString::to_string),
                is_up: group.is_up(server),
                condition: group.condition(server),
                requests: server.requests.load(Ordering::Relaxed),
                failures: server.failures.load(Ordering::Relaxed),
                active: server.active.load(Ordering::Relaxed) + before(group, server),
                retries: server.retries.load(Ordering::Relaxed),
                unchecked: server.unchecked.load(Ordering::Relaxed),
                dials: server.dials.load(Ordering::Relaxed),
                ejections: server.ejections.load(Ordering::Relaxed),
                idle: server.idle.load(Ordering::Relaxed),
                durations: server.durations.state(),
            });
            states.collect::<Vec<_>>()
        };
        groups.iter().flat_map(of).collect()
    }

    fn labels(&self) -> Vec<(&'static str, String)> {
        let own = [("upstream", self.upstream.clone()), ("server", self.server.clone())];
        let name = self.name.clone().map(|name| ("name", name));
        own.into_iter().chain(name).chain(process_label(self.process)).collect()
    }
}

/// A counter of a server, which only grows.
type Counter = (&'static str, &'static str, fn(&ServerState) -> u64);

const COUNTERS: [Counter; 6] = [
    (
        "upstream_requests",
        "Requests that were forwarded to a server, those that failed included",
        |server| server.requests,
    ),
    (
        "upstream_failures",
        "Requests that failed on a server, those that were sent again included",
        |server| server.failures,
    ),
    (
        "upstream_retries",
        "Requests that failed on a server and were sent to another one",
        |server| server.retries,
    ),
    (
        "upstream_checks_prevented",
        "Checks of a server that a shortage of this machine has prevented",
        |server| server.unchecked,
    ),
    (
        "upstream_connections_opened",
        "Connections to a server that were opened for requests",
        |server| server.dials,
    ),
    (
        "upstream_ejections",
        "Times for which a server was left out because of its errors",
        |server| server.ejections,
    ),
];

/// A gauge of a server, which goes up and down.
type Gauge = (&'static str, &'static str, fn(&ServerState) -> i64);

const GAUGES: [Gauge; 3] = [
    ("upstream_up", "Whether requests are forwarded to a server", |server| i64::from(server.is_up)),
    ("upstream_requests_active", "Requests under way on a server", |server| server.active as i64),
    ("upstream_connections_idle", "Connections to a server that are kept for requests", |server| {
        server.idle as i64
    }),
];

/// A family of names: a counter or a gauge.
type OfName = (&'static str, &'static str, MetricType, fn(&NameState) -> u64);

const OF_NAMES: [OfName; 3] = [
    ("upstream_lookups", "Look-ups of a name of servers", MetricType::Counter, |name| name.lookups),
    (
        "upstream_lookup_failures",
        "Look-ups of a name of servers that no resolver has answered",
        MetricType::Counter,
        |name| name.failures,
    ),
    ("upstream_addresses", "Servers that are known by a name", MetricType::Gauge, |name| {
        name.addresses
    }),
];

fn write_names(names: &[NameState], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    if names.is_empty() {
        return Ok(());
    }
    for (family, help, kind, of) in OF_NAMES {
        let mut family = encoder.encode_descriptor(family, help, None, kind)?;
        for state in names {
            let own = [("upstream", state.upstream.clone()), ("name", state.name.clone())];
            let labels: Vec<_> = own.into_iter().chain(process_label(state.process)).collect();
            let mut family = family.encode_family(&labels)?;
            match kind {
                MetricType::Counter => {
                    family.encode_counter::<NoLabelSet, _, u64>(&of(state), None)?
                }
                _ => family.encode_gauge(&(of(state) as i64))?,
            }
        }
    }
    Ok(())
}

/// Writes the families, if there are upstreams.
pub(super) fn write(states: &UpstreamStates, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    write_names(&states.names, encoder)?;
    let servers = &states.servers;
    if servers.is_empty() {
        return Ok(());
    }
    for (name, help, of) in COUNTERS {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for server in servers {
            let labels = server.labels();
            let mut family = family.encode_family(&labels)?;
            family.encode_counter::<NoLabelSet, _, u64>(&of(server), None)?;
        }
    }
    for (name, help, of) in GAUGES {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for server in servers {
            family.encode_family(&server.labels())?.encode_gauge(&of(server))?;
        }
    }
    let help = "Time from a request to a server to the head of its response, connecting included";
    let all = servers.iter().map(|server| (server.labels(), &server.durations));
    write_histograms(("upstream_response_duration", help), all, encoder)
}
