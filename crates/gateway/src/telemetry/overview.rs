//! The activity of all engines at one moment.
//!
//! A task on each engine reads that engine's counters, so that no other thread reads the values
//! that the engine writes. An overview costs each engine one task, and no thread takes a lock.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Instant, SystemTime};

use serde::{Deserialize, Serialize};
use superpoll::diagnostics::{Costs, Kind};
use superpoll_rt::{Handle, Stats};

use super::broker::BrokerState;
use super::counters::EngineCounters;
use super::durations::{BOUNDS, RequestCounts, RouteDurations};
use super::process::ProcessState;
use super::relays::RelayState;
use super::reload::ReloadState;
use super::traffic::{ChannelSurvey, Processes, Traffic};
use super::upstreams::UpstreamStates;
use crate::acme::RenewalCounters;
use crate::certificates::CertificateStatus;
use crate::channel::{Registry, RouteState};
use crate::config::Config;
use crate::connection_limits::ConnectionLimits;
use crate::processes::{self, Link};
use crate::relay::RelayTotals;
use crate::upstream::Group;

/// Where the page is.
pub(crate) const PAGE: &str = "/_superpoll/";

/// The sources of the status.
pub(crate) struct Overview {
    handle: Handle,
    backend: &'static str,
    engines: Vec<Arc<EngineCounters>>,
    connection_limits: Arc<ConnectionLimits>,
    renewals: Arc<RenewalCounters>,
    pub(super) channels: Mutex<Registry>,
    channel_survey: Arc<ChannelSurvey>,
    upstreams: Mutex<Vec<Arc<Group>>>,
    /// By the addresses of their listeners.
    relays: Mutex<Vec<(String, RelayTotals)>>,
    requests: Mutex<RequestCounts>,
    reload: Mutex<ReloadState>,
    certificates: Arc<CertificateStatus>,
    started: Instant,
    since: SystemTime,
    ending: AtomicBool,
    /// The connection to the supervisor, if this process is one of several.
    link: OnceLock<Weak<Link>>,
}

/// The work of everything that watches descriptors on one engine.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct EngineState {
    /// The place of its process among the workers, if there are several.
    pub(super) process: Option<u32>,
    pub(super) accepted: u64,
    pub(super) refused: u64,
    pub(super) active: u64,
    pub(super) parked: u64,
    pub(super) away: u64,
    pub(super) leavings: u64,
    pub(super) returns: u64,
    pub(super) parkings: u64,
    pub(super) responses: [u64; 5],
    pub(super) lane: u64,
    pub(super) running: u64,
    pub(super) body_bytes: u64,
    pub(super) timed_out: u64,
    pub(super) broken: u64,
    pub(super) tasks: usize,
    pub(super) polls: u64,
    pub(super) turns: u64,
    pub(super) longest_turn_seconds: f64,
    pub(super) sources: usize,
    pub(super) timers: usize,
    pub(super) fetched: u64,
    pub(super) waits: u64,
    pub(super) events: u64,
    pub(super) unwanted: u64,
    pub(super) slots_scanned: u64,
    pub(super) changes_saved: u64,
    pub(super) moves_to_hot: u64,
    pub(super) moves_to_cold: u64,
    pub(super) handoffs: u64,
    pub(super) hot: SetState,
    pub(super) cold: SetState,
    /// System calls of the poller, by name.
    pub(super) calls: Vec<(Cow<'static, str>, u64)>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SetState {
    pub(super) len: usize,
    pub(super) watched: u64,
    pub(super) active: u64,
}

/// The costs of watching a kind of descriptor, in nanoseconds, and the ratio at which poll and
/// epoll cost the same.
#[derive(Debug, Serialize)]
pub(super) struct Price {
    pub(super) kind: &'static str,
    pub(super) scan: f32,
    pub(super) ready: f32,
    pub(super) block: f32,
    pub(super) event: f32,
    pub(super) wake: f32,
    pub(super) add: f32,
    pub(super) modify: f32,
    pub(super) delete: f32,
    pub(super) break_even: f32,
    pub(super) break_even_with_writers: f32,
}

/// The status of a process at one moment, as far as it differs among the workers of a server.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Counts {
    pub(super) started_seconds: u64,
    pub(super) uptime_seconds: f64,
    pub(super) connections: u32,
    pub(super) engines: Vec<EngineState>,
    /// Attempts to get a certificate, by outcome.
    pub(super) renewals: [(Cow<'static, str>, u64); 2],
    pub(super) channels: Vec<RouteState>,
    pub(super) upstreams: UpstreamStates,
    pub(super) relays: Vec<RelayState>,
    pub(super) requests: Vec<RouteDurations>,
    pub(super) broker: Option<BrokerState>,
    pub(super) processes: Vec<ProcessState>,
    pub(super) reload: ReloadState,
    pub(super) backend: String,
    /// The end of each certificate in seconds since 1970, by name.
    pub(super) certificate_ends: BTreeMap<String, u64>,
    pub(super) certificate_failures: u64,
}

/// The status at one moment, as the live page gets it.
#[derive(Debug, Serialize)]
pub(super) struct Snapshot<'a> {
    version: &'static str,
    backend: &'static str,
    started_seconds: u64,
    uptime_seconds: f64,
    connections: u32,
    engines: &'a [EngineState],
    /// `None` if the back-end does not know costs.
    prices: Option<Vec<Price>>,
    measured: bool,
    traffic: &'a Traffic,
}

impl Counts {
    /// Adds the counts of another process of the server.
    fn add(&mut self, other: Counts) {
        self.started_seconds = self.started_seconds.min(other.started_seconds);
        self.uptime_seconds = self.uptime_seconds.max(other.uptime_seconds);
        self.connections += other.connections;
        self.engines.extend(other.engines);
        for ((_, count), (_, more)) in self.renewals.iter_mut().zip(other.renewals) {
            *count += more;
        }
        self.channels.extend(other.channels);
        self.upstreams.add(other.upstreams);
        self.relays.extend(other.relays);
        self.requests.extend(other.requests);
        self.processes.extend(other.processes);
        self.reload.add(other.reload);
        match (&mut self.broker, &other.broker) {
            (Some(broker), Some(other)) => broker.add(other),
            (broker, _) => *broker = broker.take().or(other.broker),
        }
        for (name, end) in other.certificate_ends {
            let known = self.certificate_ends.entry(name).or_insert(end);
            *known = (*known).min(end);
        }
        self.certificate_failures += other.certificate_failures;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code that can panic runs under these locks.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn prices(costs: &Costs) -> Vec<Price> {
    let price = |kind: Kind| {
        let of = costs.of(kind);
        let even = costs.break_even(kind);
        Price {
            kind: kind.name(),
            scan: of.scan,
            ready: of.ready,
            block: of.block,
            event: of.event,
            wake: of.wake,
            add: of.add,
            modify: of.modify,
            delete: of.delete,
            break_even: even.own,
            break_even_with_writers: even.with_writers,
        }
    };
    Kind::MEASURED.into_iter().map(price).collect()
}

impl EngineState {
    fn new(engine: &EngineCounters, stats: &Stats) -> EngineState {
        let poller = &stats.poller;
        let set = |set: &superpoll::diagnostics::SetStats| SetState {
            len: set.len,
            watched: set.watched,
            active: set.active,
        };
        EngineState {
            process: None,
            accepted: engine.accepted.get(),
            refused: engine.refused.get(),
            active: engine.active.get(),
            parked: engine.parked.get(),
            away: engine.away.get(),
            leavings: engine.leavings.get(),
            returns: engine.returns.get(),
            parkings: engine.parkings.get(),
            responses: std::array::from_fn(|class| engine.responses[class].get()),
            lane: engine.lane.get(),
            running: engine.running.get(),
            body_bytes: engine.body_bytes.get(),
            timed_out: engine.timed_out.get(),
            broken: engine.broken.get(),
            tasks: stats.tasks,
            polls: stats.polls,
            turns: stats.turns,
            longest_turn_seconds: stats.longest_turn.as_secs_f64(),
            sources: stats.sources,
            timers: stats.timers,
            fetched: stats.reads_ahead,
            waits: poller.waits,
            events: poller.events,
            unwanted: poller.unwanted,
            slots_scanned: poller.slots_scanned,
            changes_saved: poller.changes_saved,
            moves_to_hot: poller.moves_to_hot,
            moves_to_cold: poller.moves_to_cold,
            handoffs: poller.handoffs,
            hot: set(&poller.hot),
            cold: set(&poller.cold),
            calls: poller
                .calls
                .by_name()
                .filter(|(_, count)| *count > 0)
                .map(|(name, count)| (name.into(), count))
                .collect(),
        }
    }
}

impl Overview {
    pub(crate) fn new(
        handle: Handle,
        backend: &'static str,
        engines: Vec<Arc<EngineCounters>>,
        connection_limits: Arc<ConnectionLimits>,
        renewals: Arc<RenewalCounters>,
    ) -> Overview {
        let (started, since) = (Instant::now(), SystemTime::now());
        let ending = AtomicBool::new(false);
        let (channels, certificates) = (Mutex::default(), Arc::default());
        let (upstreams, requests, relays) = (Mutex::default(), Mutex::default(), Mutex::default());
        let reload = Mutex::new(ReloadState::successful());
        Overview {
            handle,
            backend,
            engines,
            connection_limits,
            renewals,
            channels,
            channel_survey: Arc::default(),
            upstreams,
            relays,
            requests,
            reload,
            certificates,
            started,
            since,
            ending,
            link: OnceLock::new(),
        }
    }

    /// Replaces the channels, the upstreams and the routes that are described.
    pub(crate) fn describe(
        &self,
        channels: Registry,
        upstreams: Vec<Arc<Group>>,
        requests: RequestCounts,
    ) {
        *lock(&self.channels) = channels;
        *lock(&self.upstreams) = upstreams;
        *lock(&self.requests) = requests;
    }

    /// Replaces the relays that are described, by the addresses of their listeners.
    pub(crate) fn describe_relays(&self, relays: Vec<(String, RelayTotals)>) {
        *lock(&self.relays) = relays;
    }

    /// Returns the channels.
    pub(crate) fn channels(&self) -> Registry {
        lock(&self.channels).clone()
    }

    /// Returns the counts of requests for the routes of another configuration.
    pub(crate) fn requests_of(&self, config: &Config) -> RequestCounts {
        let routes = config.hosts.iter().flat_map(|host| {
            let mut names = host.names.clone();
            names.sort_unstable();
            let names = names.join(",");
            host.routes.iter().map(move |route| (names.clone(), route.path.as_str()))
        });
        RequestCounts::of(routes, self.engines.len(), &lock(&self.requests))
    }

    /// Notes the outcome of an attempt to take on another configuration.
    pub(crate) fn note_reload(&self, is_successful: bool) {
        let mut reload = lock(&self.reload);
        *reload = reload.after(is_successful);
    }

    /// Returns the state of the certificates.
    pub(crate) fn certificates(&self) -> &Arc<CertificateStatus> {
        &self.certificates
    }

    /// Tells pages that the server is about to end.
    pub(crate) fn end(&self) {
        self.ending.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_ending(&self) -> bool {
        self.ending.load(Ordering::Relaxed)
    }

    /// Lets other processes of the server be asked, too.
    pub(crate) fn join(&self, link: &Arc<Link>) {
        // A server joins one supervisor, once.
        let _ = self.link.set(Arc::downgrade(link));
    }

    /// Asks all engines of all processes.
    pub(super) async fn collect(&self) -> Counts {
        let Some(link) = self.link.get().and_then(Weak::upgrade) else {
            return self.count().await.0;
        };
        let all = link.collect(processes::Kind::Overview).await.unwrap_or_default();
        let mut all = all.iter().filter_map(|bytes| postcard::from_bytes::<Counts>(bytes).ok());
        let Some(mut counts) = all.next() else { return self.count().await.0 };
        all.for_each(|other| counts.add(other));
        counts
    }

    /// Returns the counts of this process for the other ones, in bytes.
    pub(crate) async fn encoded(&self) -> Option<Vec<u8>> {
        let (mut counts, _) = self.count().await;
        let slot = self.link.get().and_then(Weak::upgrade).map(|link| link.slot());
        counts.engines.iter_mut().for_each(|engine| engine.process = slot);
        postcard::to_allocvec(&counts).ok()
    }

    /// Returns the traffic of this process. Call it on an engine.
    pub(super) fn traffic(&self) -> Traffic {
        let channels = lock(&self.channels).clone();
        let upstreams = lock(&self.upstreams).clone();
        let mut traffic = Traffic {
            bounds_ns: BOUNDS.to_vec(),
            routes: lock(&self.requests).traffic(),
            servers: UpstreamStates::traffic(&upstreams),
            channels: self.channel_survey.take(&channels),
            ..Traffic::default()
        };
        let Traffic { total, routes, .. } = &mut traffic;
        routes.iter().for_each(|route| total.add(&route.requests));
        traffic
    }

    /// Returns the traffic of this process for the other ones, in bytes.
    pub(crate) fn encoded_traffic(&self) -> Option<Vec<u8>> {
        postcard::to_allocvec(&(std::process::id(), self.traffic())).ok()
    }

    /// Returns the traffic of all processes of the server.
    async fn traffic_of_all(&self, processes: &mut Processes) -> Traffic {
        let mut traffic = match self.link.get().and_then(Weak::upgrade) {
            None => self.traffic(),
            Some(link) => {
                let all = link.collect(processes::Kind::Traffic).await.unwrap_or_default();
                processes.sum(all.iter().filter_map(|bytes| postcard::from_bytes(bytes).ok()))
            }
        };
        traffic.limit();
        traffic
    }

    /// Returns the status for the live page, in JSON.
    pub(super) async fn page_text(&self, processes: &mut Processes) -> Option<String> {
        let (own, costs) = self.count().await;
        let counts = match self.link.get() {
            Some(_) => self.collect().await,
            None => own,
        };
        let snapshot = Snapshot {
            version: env!("CARGO_PKG_VERSION"),
            backend: self.backend,
            started_seconds: counts.started_seconds,
            uptime_seconds: counts.uptime_seconds,
            connections: counts.connections,
            engines: &counts.engines,
            prices: costs.as_ref().map(prices),
            measured: costs.is_some_and(|costs| costs.measured),
            traffic: &self.traffic_of_all(processes).await,
        };
        serde_json::to_string(&snapshot).ok()
    }

    /// Asks all engines of this process.
    async fn count(&self) -> (Counts, Option<Costs>) {
        let mut asked = Vec::new();
        for engine in 0..self.engines.len() {
            asked.push(self.handle.spawn_on(engine, async { Stats::current() }));
        }
        let mut engines = Vec::new();
        let mut costs = None;
        for (engine, asked) in self.engines.iter().zip(asked) {
            // An engine that has ended gives no answer.
            let Ok(task) = asked else { continue };
            let Ok(Ok(stats)) = task.await else { continue };
            engines.push(EngineState::new(engine, &stats));
            costs = costs.or(stats.costs);
        }
        let channels = lock(&self.channels).clone();
        let link = self.link.get().and_then(Weak::upgrade);
        let epoch = self.since.duration_since(SystemTime::UNIX_EPOCH);
        let started_seconds = epoch.map_or(0, |epoch| epoch.as_secs());
        let process = link.as_ref().map(|link| link.slot());
        let counts = Counts {
            started_seconds,
            uptime_seconds: self.started.elapsed().as_secs_f64(),
            connections: self.connection_limits.in_use(),
            engines,
            renewals: self.renewals.by_result().map(|(name, count)| (name.into(), count)),
            channels: channels.states(process),
            upstreams: UpstreamStates::all(&lock(&self.upstreams), process),
            relays: RelayState::all(&lock(&self.relays), process),
            requests: lock(&self.requests).states(process),
            broker: BrokerState::of(channels.brokers()),
            processes: vec![ProcessState::of_this(process, started_seconds)],
            // The supervisor knows of files that it has refused.
            reload: link.and_then(|link| link.reload()).unwrap_or(*lock(&self.reload)),
            backend: self.backend.to_owned(),
            certificate_ends: self.certificates.ends(),
            certificate_failures: self.certificates.failures(),
        };
        (counts, costs)
    }
}
