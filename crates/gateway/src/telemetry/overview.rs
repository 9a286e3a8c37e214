//! The activity of all engines at one moment.
//!
//! A task on each engine reads that engine's counters, so that no other thread reads the values
//! that the engine writes. An overview costs each engine one task, and no thread takes a lock.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Instant;

use serde::{Deserialize, Serialize};
use superpoll_http::certificates::CertificateStatus;
use superpoll_http::connection_limits::ConnectionLimits;
use superpoll_http::log::lost_lines;
use superpoll_http::telemetry::counters::EngineCounters;
use superpoll_http::telemetry::durations::{BOUNDS, RequestCounts, RouteDurations};
use superpoll_http::telemetry::process::ProcessState;
use superpoll_http::telemetry::ratio::ActiveRatio;
use superpoll_http::telemetry::snapshot::{Engine, Snapshot};
use superpoll_http::telemetry::traffic::{ChannelName, Traffic};
use superpoll_http::unix_time::seconds_now;
use superpoll_http::upstream::Group;
use superpoll_hub::channel::{Registry, RouteState};
use superpoll_rt::{Handle, Stats, blocking, time};

use super::broker::BrokerState;
use super::relays::RelayState;
use super::reload::ReloadState;
use super::upstreams::{ReplacedRequests, ReplacedServers, UpstreamStates};
use crate::acme::RenewalCounters;
use crate::config::Config;
use crate::processes::{self, SupervisorLink};
use crate::relay::RelayTotals;
use crate::telemetry::channel_traffic::ChannelSurvey;

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
    replaced: Mutex<ReplacedServers>,
    /// By the addresses of their listeners.
    relays: Mutex<Vec<(String, RelayTotals)>>,
    requests: Mutex<RequestCounts>,
    reload: Mutex<ReloadState>,
    certificates: Arc<CertificateStatus>,
    started: Instant,
    started_seconds: u64,
    ending: AtomicBool,
    /// The connection to the supervisor, if this process is one of several.
    link: OnceLock<Weak<SupervisorLink>>,
}

/// The status of a process at one moment, as far as it differs among the workers of a server.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Counts {
    /// The figures, without those of engines and traffic.
    pub(super) snapshot: Snapshot,
    /// With the place of their process among the workers, if there are several.
    pub(super) engines: Vec<(Option<u32>, Engine)>,
    /// Attempts to get a certificate, by outcome.
    pub(super) renewals: [(Cow<'static, str>, u64); 2],
    /// Lines that logs have lost, by log.
    pub(super) lost_lines: [(Cow<'static, str>, u64); 2],
    pub(super) channels: Vec<RouteState>,
    pub(super) upstreams: UpstreamStates,
    pub(super) relays: Vec<RelayState>,
    pub(super) requests: Vec<RouteDurations>,
    pub(super) broker: Option<BrokerState>,
    pub(super) processes: Vec<ProcessState>,
    pub(super) reload: ReloadState,
    /// The end of each certificate in seconds since 1970, by name.
    pub(super) certificate_ends: BTreeMap<String, u64>,
    pub(super) certificate_failures: u64,
}

impl Counts {
    /// Adds the counts of another process of the server.
    fn add(&mut self, other: Counts) {
        self.snapshot.add(other.snapshot);
        self.engines.extend(other.engines);
        for ((_, count), (_, more)) in self.renewals.iter_mut().zip(other.renewals) {
            *count += more;
        }
        for ((_, count), (_, more)) in self.lost_lines.iter_mut().zip(other.lost_lines) {
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

impl Overview {
    pub(crate) fn new(
        handle: Handle,
        backend: &'static str,
        engines: Vec<Arc<EngineCounters>>,
        connection_limits: Arc<ConnectionLimits>,
        renewals: Arc<RenewalCounters>,
    ) -> Overview {
        let (started, started_seconds) = (time::now(), seconds_now());
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
            replaced: Mutex::default(),
            relays,
            requests,
            reload,
            certificates,
            started,
            started_seconds,
            ending,
            link: OnceLock::new(),
        }
    }

    /// Replaces what is described: channels, upstreams, the requests of routes, and relays by the
    /// addresses of their listeners.
    pub(crate) fn describe(
        &self,
        channels: Registry,
        upstreams: Vec<Arc<Group>>,
        requests: RequestCounts,
        relays: Vec<(String, RelayTotals)>,
    ) {
        *lock(&self.channels) = channels;
        let before = std::mem::replace(&mut *lock(&self.upstreams), upstreams.clone());
        lock(&self.replaced).replace(&before, &upstreams);
        *lock(&self.requests) = requests;
        *lock(&self.relays) = relays;
    }

    /// Returns the requests that are under way on servers of earlier configurations.
    pub(crate) fn replaced_requests(&self) -> ReplacedRequests {
        lock(&self.replaced).active()
    }

    /// Returns the channels.
    pub(crate) fn channels(&self) -> Registry {
        lock(&self.channels).clone()
    }

    /// Returns the counts of requests for the routes of now.
    pub(crate) fn requests(&self) -> RequestCounts {
        lock(&self.requests).clone()
    }

    /// Returns the counts of requests for the routes of another configuration, on this many
    /// engines; those `before` continue.
    pub(crate) fn requests_of(
        config: &Config,
        engines: usize,
        before: &RequestCounts,
    ) -> RequestCounts {
        let routes = config.hosts.iter().flat_map(|host| {
            let mut names = host.names.clone();
            names.sort_unstable();
            let names = names.join(",");
            host.routes.iter().map(move |route| (names.clone(), route.path.as_str()))
        });
        RequestCounts::collect(routes, engines, before)
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
    pub(crate) fn join(&self, link: &Arc<SupervisorLink>) {
        // A server joins one supervisor, once.
        let _ = self.link.set(Arc::downgrade(link));
    }

    /// Asks all engines of all processes.
    pub(super) async fn collect(&self) -> Counts {
        let Some(link) = self.link() else {
            return self.count().await;
        };
        let (all, _) = link.collect(processes::Question::Overview).await.unwrap_or_default();
        let mut all = all.iter().filter_map(|bytes| postcard::from_bytes::<Counts>(bytes).ok());
        let Some(mut counts) = all.next() else { return self.count().await };
        all.for_each(|other| counts.add(other));
        counts
    }

    /// Returns the counts of this process for the other ones, in bytes.
    pub(crate) async fn encoded(&self) -> Option<Vec<u8>> {
        postcard::to_allocvec(&self.count().await).ok()
    }

    /// Returns the traffic of this process, with the figures of some channels. Call it on an
    /// engine.
    pub(crate) async fn traffic(&self, wanted: &[ChannelName]) -> Traffic {
        let routes = self.of_routes(RequestCounts::traffic).await;
        let channels = lock(&self.channels).clone();
        let upstreams = lock(&self.upstreams).clone();
        let mut traffic = Traffic {
            bounds_ns: BOUNDS.to_vec(),
            routes,
            servers: UpstreamStates::traffic(&upstreams, &self.replaced_requests()),
            channels: self.channel_survey.take_with(&channels, wanted),
            ..Traffic::default()
        };
        let Traffic { total, routes, .. } = &mut traffic;
        routes.iter().for_each(|route| total.add(&route.requests));
        traffic
    }

    /// Looks at the requests of all routes, on another thread: thousands of routes take
    /// milliseconds, in which an engine would answer no request.
    async fn of_routes<T: Send + 'static>(
        &self,
        look: impl Fn(&RequestCounts) -> T + Clone + Send + 'static,
    ) -> T {
        let (requests, looks) = (self.requests(), look.clone());
        let looked = blocking::unblock(move || looks(&requests)).await;
        // Late is better than wrong, where there is no thread.
        looked.unwrap_or_else(|_| look(&self.requests()))
    }

    /// Reads the figures of this process, without its traffic.
    pub(super) async fn snapshot(&self) -> Snapshot {
        let engines = self.read_engines().await;
        let uptime = time::now() - self.started;
        Snapshot {
            connections: self.connection_limits.in_use().into(),
            active_ratio: ActiveRatio::read(self.engines.iter().map(|engine| &engine.ratio)),
            engines,
            ..Snapshot::new("serve", self.backend, self.started_seconds, uptime)
        }
    }

    /// Asks all engines of this process.
    async fn read_engines(&self) -> Vec<Engine> {
        let mut asked = Vec::new();
        for engine in 0..self.engines.len() {
            asked.push(self.handle.spawn_on(engine, async { Stats::current() }));
        }
        let mut engines = Vec::new();
        for (number, (counters, asked)) in self.engines.iter().zip(asked).enumerate() {
            // An engine that has ended gives no answer.
            let Ok(task) = asked else { continue };
            let Ok(Ok(stats)) = task.await else { continue };
            engines.push(Engine::new(number, time::now() - self.started, &stats, Some(counters)));
        }
        engines
    }

    /// Counts everything in this process: its engines, and each of its channels.
    async fn count(&self) -> Counts {
        let mut snapshot = self.snapshot().await;
        let engines = std::mem::take(&mut snapshot.engines);
        let channels = lock(&self.channels).clone();
        let link = self.link();
        let process = link.as_ref().map(|link| link.slot());
        let requests = self.of_routes(move |requests| requests.states(process)).await;
        Counts {
            snapshot,
            engines: engines.into_iter().map(|engine| (process, engine)).collect(),
            renewals: self.renewals.by_result().map(|(name, count)| (name.into(), count)),
            lost_lines: lost_lines().map(|(log, count)| (log.into(), count)),
            channels: channels.states(process),
            upstreams: UpstreamStates::all(
                &lock(&self.upstreams),
                &self.replaced_requests(),
                process,
            ),
            relays: RelayState::all(&lock(&self.relays), process),
            requests,
            broker: BrokerState::read(channels.brokers()),
            processes: vec![ProcessState::of_this(process, self.started_seconds)],
            // The supervisor knows of files that it has refused.
            reload: link.and_then(|link| link.reload()).unwrap_or(*lock(&self.reload)),
            certificate_ends: self.certificates.ends(),
            certificate_failures: self.certificates.failures(),
        }
    }

    /// Returns the moment at which the server was started, and the same in seconds since 1970.
    pub(crate) const fn began(&self) -> (Instant, u64) {
        (self.started, self.started_seconds)
    }

    /// Whether a look at many channels is under way.
    #[cfg(test)]
    pub(super) fn is_looking(&self) -> bool {
        self.channel_survey.is_under_way()
    }

    /// Returns the connection to the supervisor, if this process is one of several.
    pub(super) fn link(&self) -> Option<Arc<SupervisorLink>> {
        self.link.get().and_then(Weak::upgrade)
    }
}
