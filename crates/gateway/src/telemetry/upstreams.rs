//! The servers of upstreams: whether requests are forwarded to them, and how many.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use prometheus_client::encoding::DescriptorEncoder;
use serde::{Deserialize, Serialize};
use superpoll_http::families;
use superpoll_http::telemetry::durations::{HistogramState, write_histograms};
use superpoll_http::telemetry::families::{self, Labels};
use superpoll_http::telemetry::traffic::ServerTraffic;
use superpoll_http::upstream::{Group, GroupServer};

/// A server of an upstream at one moment.
#[derive(Debug, Serialize, Deserialize)]
struct ServerFigures {
    /// The place of the process that says so among the workers, if there are several.
    process: Option<u32>,
    /// The address with the name that the server was found by.
    name: Option<String>,
    unchecked: u64,
    ejections: u64,
    durations: HistogramState,
    /// All other figures; `durations` has its histogram.
    traffic: ServerTraffic,
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
    servers: Vec<ServerFigures>,
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
        UpstreamStates { servers: ServerFigures::all(groups, replaced, process), names }
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
        let of = |ServerFigures { durations, traffic, .. }: ServerFigures| {
            let (durations, nanoseconds) = durations.into_parts();
            ServerTraffic { durations, nanoseconds, ..traffic }
        };
        ServerFigures::all(groups, replaced, None).into_iter().map(of).collect()
    }
}

impl ServerFigures {
    /// Returns the states of all servers, with the requests on those that they have replaced.
    fn all(
        groups: &[Arc<Group>],
        replaced: &ReplacedRequests,
        process: Option<u32>,
    ) -> Vec<ServerFigures> {
        let before = |group: &Group, server: &GroupServer| match replaced.is_empty() {
            true => 0,
            false => {
                let place = (group.name().to_owned(), server.address.to_string());
                replaced.get(&place).copied().unwrap_or(0)
            }
        };
        let of = |group: &Arc<Group>| {
            let servers = group.members();
            let states = servers.iter().map(|server| ServerFigures {
                process,
                name: server.origin.as_ref().map(ToString::to_string),
                unchecked: server.unchecked.load(Ordering::Relaxed),
                ejections: server.ejections.load(Ordering::Relaxed),
                durations: server.durations.state(),
                traffic: ServerTraffic {
                    upstream: group.name().to_owned(),
                    server: server.address.to_string(),
                    processes: 1,
                    processes_up: group.is_up(server).into(),
                    condition: group.condition(server),
                    requests: server.requests.load(Ordering::Relaxed),
                    failures: server.failures.load(Ordering::Relaxed),
                    retries: server.retries.load(Ordering::Relaxed),
                    active: server.active.load(Ordering::Relaxed) + before(group, server),
                    idle: server.idle.load(Ordering::Relaxed),
                    dials: server.dials.load(Ordering::Relaxed),
                    ..ServerTraffic::default()
                },
            });
            states.collect::<Vec<_>>()
        };
        groups.iter().flat_map(of).collect()
    }

    fn labels(&self) -> Labels {
        let own = [("upstream", &*self.traffic.upstream), ("server", &*self.traffic.server)];
        let mut labels = families::labels(own, self.process);
        let name = self.name.clone().map(|name| ("name", name));
        labels.splice(own.len()..own.len(), name);
        labels
    }
}

families! {
    const OF_SERVERS: ServerFigures = [
        Counter upstream_requests
            "Requests that were forwarded to a server, those that failed included",
            |server| server.traffic.requests;
        Counter upstream_failures
            "Requests that failed on a server, those that were sent again included",
            |server| server.traffic.failures;
        Counter upstream_retries "Requests that failed on a server and were sent to another one",
            |server| server.traffic.retries;
        Counter upstream_checks_prevented
            "Checks of a server that a shortage of this machine has prevented",
            |server| server.unchecked;
        Counter upstream_connections_opened "Connections to a server that were opened for requests",
            |server| server.traffic.dials;
        Counter upstream_ejections "Times for which a server was left out because of its errors",
            |server| server.ejections;
        Gauge upstream_up "Whether requests are forwarded to a server",
            |server| server.traffic.processes_up.into();
        Gauge upstream_requests_active "Requests under way on a server",
            |server| server.traffic.active;
        Gauge upstream_connections_idle "Connections to a server that are kept for requests",
            |server| server.traffic.idle;
    ];

    const OF_NAMES: NameState = [
        Counter upstream_lookups "Look-ups of a name of servers", |name| name.lookups;
        Counter upstream_lookup_failures
            "Look-ups of a name of servers that no resolver has answered", |name| name.failures;
        Gauge upstream_addresses "Servers that are known by a name", |name| name.addresses;
    ];
}

/// Writes the families, if there are upstreams.
pub(super) fn write(states: &UpstreamStates, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let labels = |state: &NameState| {
        families::labels([("upstream", &*state.upstream), ("name", &*state.name)], state.process)
    };
    let names: Vec<_> = states.names.iter().map(|name| (labels(name), name)).collect();
    if !names.is_empty() {
        families::write(OF_NAMES, &names, encoder)?;
    }
    let servers: Vec<_> = states.servers.iter().map(|server| (server.labels(), server)).collect();
    if servers.is_empty() {
        return Ok(());
    }
    families::write(OF_SERVERS, &servers, encoder)?;
    let help = "Time from a request to a server to the head of its response, connecting included";
    let all = servers.into_iter().map(|(labels, server)| (labels, &server.durations));
    write_histograms(("upstream_response_duration", help), all, encoder)
}
