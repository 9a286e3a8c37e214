//! The web server: listeners, connections and routes on the engines of a runtime.
//!
//! Every engine accepts and serves on its own: it has its routes, its parking lot and its counters,
//! and shares nothing that a request needs with another engine. The thread that starts the server
//! or changes it opens and checks everything that a configuration names, so that either all of it
//! takes effect or nothing does. The engines then get the parts that they need.
//!
//! A new configuration is prepared on a thread that serves no requests (`opening`): the files are
//! read and the tables are made there. The routes of an engine are its own; it builds them some at
//! a time, between its requests (`engine_change`), and frees those before in the same way.
//!
//! A listener is a socket bound once and a task on each engine. A new configuration keeps the
//! sockets of addresses that it has as well, so that no connection is refused meanwhile.
//! Connections continue whatever happens to their listener, and ask for the routes again with each
//! request.

mod accepting;
mod admin;
mod adoption;
mod answer;
mod arriving;
mod broker;
mod clock;
mod connection;
mod engine_change;
mod extended_connect;
mod frame_filter;
mod frames;
mod handshake;
mod http1;
mod http2;
mod https;
mod linger;
mod listener_context;
mod local;
mod observed;
mod opening;
mod operations;
mod requests;
mod respond;
mod route_table;
mod router;
mod streams;
mod watched;
mod worker;

pub use adoption::HandedOver;
use adoption::Predecessor;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::num::NonZeroU32;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures_channel::oneshot;
use superpoll_http::admin_connections::AdminConnections;
use superpoll_http::certificates::{KnownCertificates, TicketSecrets, Watch};
use superpoll_http::connection_limits::ConnectionLimits;
use superpoll_http::descriptors;
use superpoll_http::log::{AccessLogSink, Event, FormerLogs, Level, Report};
use superpoll_http::rules::HostRules;
use superpoll_http::telemetry::counters::EngineCounters;
use superpoll_http::upstream::{self, Group};
use superpoll_hub::broker::Brokers;
use superpoll_hub::channel::{Hub, Registry, SharedRights};
use superpoll_hub::succession::{PredecessorState, Succession};
use superpoll_rt::{Handle, JoinHandle, Runtime, blocking, spawn, time};

use crate::acme::Automatic;
use crate::config::{Address, Config};
use crate::inherited::Inherited;
use crate::processes::SupervisorLink;
use crate::telemetry::overview::Overview;
use engine_change::EngineChange;
use local::SERVERS;
pub(crate) use observed::front_of;
use opening::{Frontend, Kind, Opened, Relayed};
pub use opening::{Preparation, PreparedConfig};
use operations::AdminOperations;
pub(crate) use operations::ServerOperations;
use router::Blueprint;
use worker::ServerSource;

/// The reason for which a server did not start, or did not take on another configuration.
#[derive(Debug)]
pub struct Error {
    what: String,
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for Error {}

pub(crate) fn failed(what: impl Into<String>) -> Error {
    Error { what: what.into() }
}

/// A running server. Dropping it stops listening; connections continue as long as the runtime does.
pub struct Server {
    number: u64,
    handle: Handle,
    backend: &'static str,
    on_epoll: bool,
    fronts: Vec<Frontend>,
    channels: Registry,
    groups: Arc<BTreeMap<String, Arc<Group>>>,
    rules: Arc<[HostRules]>,
    access_log: Option<Arc<AccessLogSink>>,
    /// The threads of earlier logs, which engines may still use. They are waited for here.
    former_logs: FormerLogs,
    /// The connection to the keeper process, if there is one: the state that is left there, and
    /// the wish of another server to continue with it.
    succession: Option<Arc<Succession>>,
    /// The secrets of the tickets of all listeners.
    tickets: Arc<TicketSecrets>,
    /// Engines still have connections of another server to continue with.
    adopting: Arc<AtomicBool>,
    has_yielded: bool,
    connection_limits: Arc<ConnectionLimits>,
    /// The connections of the admin listener, apart from those of clients.
    admin_connections: Arc<AdminConnections>,
    operations: Arc<ServerOperations>,
    admin_operations: Arc<AdminOperations>,
    engines: Vec<Arc<EngineCounters>>,
    overview: Arc<Overview>,
    /// The sockets that were passed on and are not used yet.
    inherited: RefCell<Inherited>,
    /// The configuration, once the server serves one.
    config: Option<Arc<Config>>,
    /// How many configurations there have been.
    configurations: u64,
    /// The watch over the files of certificates.
    watch: Option<Watch>,
    /// The certificates that were read, for the next configuration.
    certificates: Arc<KnownCertificates>,
    automatic: Automatic,
    /// The engines that keep the messages of channels that other processes have as well.
    brokers: Brokers,
    /// The connection to the supervisor, if this process is one of several.
    worker: Option<Arc<SupervisorLink>>,
    report: Report,
}

impl Server {
    /// Starts to serve a configuration, on all engines of a runtime and as long as it runs.
    /// `report` receives later events, on the thread where they happen, and must not block; a
    /// [`ErrorLog`](superpoll_http::log::ErrorLog) logs them.
    ///
    /// # Errors
    ///
    /// If something that the configuration names cannot be opened or listened on, or if the runtime
    /// has ended.
    pub fn start(
        runtime: &Runtime,
        config: &Config,
        report: impl Fn(&Event) + Send + Sync + 'static,
    ) -> Result<Server, Error> {
        Server::start_with(runtime, config, Inherited::default(), report)
    }

    /// As [`start`](Server::start), on sockets that listen already where the configuration has
    /// their address. If the configuration has a keeper process, the server also continues with
    /// the connections that other servers have left there.
    ///
    /// # Errors
    ///
    /// As [`start`](Server::start); if a socket was passed on whose address no listener has; if the
    /// keeper refuses. It refuses while another server is at work, unless this one [takes
    /// over](Inherited::by_upgrade) from it.
    pub fn start_with(
        runtime: &Runtime,
        config: &Config,
        mut inherited: Inherited,
        report: impl Fn(&Event) + Send + Sync + 'static,
    ) -> Result<Server, Error> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let handle = runtime.handle();
        let connection_limits: Arc<ConnectionLimits> = Arc::default();
        let counters = || Arc::new(EngineCounters::new(connection_limits.clone()));
        let engines: Vec<Arc<EngineCounters>> =
            std::iter::repeat_with(counters).take(handle.engines()).collect();
        let automatic = Automatic::default();
        let overview = Overview::new(
            handle.clone(),
            runtime.backend(),
            engines.clone(),
            connection_limits.clone(),
            automatic.counters.clone(),
        );
        let overview = Arc::new(overview);
        let report: Report = Arc::new(report);
        let succession =
            Succession::from_config(config, &report).map_err(|error| failed(error.to_string()))?;
        let lost = |error: superpoll_keeper::Error| failed(error.to_string());
        if let Some(succession) = &succession {
            inherited.add(succession.listeners().map_err(lost)?);
        }
        let upgrades = inherited.upgrades();
        let worker = inherited.worker().cloned();
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let operations =
            ServerOperations::new(number, handle.clone(), overview.clone(), report.clone());
        if let Some(worker) = &worker {
            operations.set(worker.settings());
        }
        let mut server = Server {
            number,
            handle,
            backend: runtime.backend(),
            on_epoll: matches!(runtime.backend(), "epoll" | "adaptive" | "uring"),
            fronts: Vec::new(),
            channels: Registry::default(),
            groups: Arc::default(),
            access_log: None,
            former_logs: FormerLogs::default(),
            rules: Arc::default(),
            succession,
            tickets: Arc::default(),
            adopting: Arc::default(),
            has_yielded: false,
            connection_limits,
            admin_connections: Arc::default(),
            operations: Arc::new(operations),
            admin_operations: Arc::default(),
            engines,
            overview,
            inherited: RefCell::new(inherited),
            config: None,
            configurations: 0,
            watch: None,
            certificates: Arc::default(),
            automatic,
            brokers: Brokers::default(),
            worker: worker.clone(),
            report,
        };
        // Another server may be about to end for this one, which then has to be able to continue.
        let brokers = server.open_brokers(config)?;
        let prepared = server.preparation().prepare(config.clone())?;
        let opened = server.open(runtime, &prepared)?;
        server.inherited.borrow().all_used().map_err(failed)?;
        let predecessor = match &server.succession {
            Some(succession) => {
                Server::check(config)?;
                let mut predecessor = succession.inherit(upgrades).map_err(lost)?;
                server.tickets.adopt(&predecessor.tickets);
                // A supervisor has those of its workers.
                if server.worker.is_none() {
                    server.operations.set(std::mem::take(&mut predecessor.settings));
                    server.operations.keep_in(succession.clone());
                }
                let restored = std::mem::take(&mut predecessor.channels);
                server.channels = Registry::restore(restored, succession);
                let PredecessorState { connections, lost, is_orderly, .. } = predecessor;
                Predecessor { connections, lost, is_orderly }
            }
            None => Predecessor { connections: Vec::new(), lost: 0, is_orderly: true },
        };
        match server.apply_configuration(prepared, opened, brokers) {
            Ok(applied) => applied.detach(),
            Err(error) => {
                // The connections that the server was given wait for the next server.
                server.has_yielded = true;
                return Err(error);
            }
        }
        server.adopt(predecessor);
        server.admin_operations.serve(server.subject());
        if let Some(worker) = &server.worker {
            server.overview.join(worker);
            server.admin_operations.join(worker);
            let (overview, tickets) = (server.overview.clone(), server.tickets.clone());
            let (statistics, operations) = (Arc::new(server.subject()), server.operations.clone());
            let source = ServerSource { overview, tickets, statistics, operations };
            worker.answer_by(Arc::new(source));
        }
        Ok(server)
    }

    /// Takes the listeners of a supervisor for the next [`change`](Server::change).
    pub(crate) fn give(&self, sockets: Vec<(Address, OwnedFd)>) -> io::Result<()> {
        self.inherited.borrow_mut().give(sockets)
    }

    /// Takes on another configuration without closing a connection. If the configuration has any
    /// mistake, all stays as it is. This reads files, so that an engine which calls it serves no
    /// request meanwhile; see [`take_on`](Server::take_on).
    ///
    /// # Errors
    ///
    /// As [`start`](Server::start).
    pub fn change(&mut self, runtime: &Runtime, config: &Config) -> Result<(), Error> {
        let prepared = self.preparation().prepare(config.clone())?;
        self.begin_change(runtime, prepared)?.detach();
        Ok(())
    }

    /// As [`change`](Server::change), with a configuration that was
    /// [prepared](Preparation::prepare) on another thread. Waits until all engines serve it; they
    /// answer requests meanwhile. Await it in a task of an engine.
    ///
    /// # Errors
    ///
    /// As [`start`](Server::start).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped after it was polled, the engines take the configuration on in any
    /// case.
    pub async fn take_on(
        &mut self,
        runtime: &Runtime,
        mut prepared: PreparedConfig,
    ) -> Result<(), Error> {
        // Logs were moved away after this one was opened, and it would write to a moved file.
        while let Some(log) = &prepared.log
            && prepared.reopenings != self.operations.reopenings()
        {
            prepared.reopenings = self.operations.reopenings();
            self.operations.reopen_prepared(log).await;
        }
        let (done, is_done) = oneshot::channel();
        let applied = self.begin_change(runtime, prepared)?;
        let tell = async move {
            let _ = applied.await;
            let _ = done.send(());
        };
        spawn(tell).detach();
        // Without an answer the runtime ends.
        let _ = is_done.await;
        Ok(())
    }

    fn begin_change(
        &mut self,
        runtime: &Runtime,
        prepared: PreparedConfig,
    ) -> Result<JoinHandle<()>, Error> {
        let brokers = self.open_brokers(&prepared.config)?;
        let opened = self.open(runtime, &prepared)?;
        self.apply_configuration(prepared, opened, brokers)
    }

    /// Makes the engines apply a configuration. The task that is returned is done when all of them
    /// serve it, and then frees the parts of the configuration before, on another thread.
    fn apply_configuration(
        &mut self,
        prepared: PreparedConfig,
        opened: Opened,
        brokers: Brokers,
    ) -> Result<JoinHandle<()>, Error> {
        let Opened { parts, engines, fronts, relayed } = opened;
        let PreparedConfig { config: shared, groups, rights, rules, requests, plans, log, .. } =
            prepared;
        let (tables, mut watch, encryptions) =
            (prepared.engines, prepared.watch, prepared.encryptions);
        let config = &*shared;
        let channels = self.channels.next_with(config, brokers.clone());
        let encrypted: Vec<_> = fronts.iter().filter_map(Frontend::encrypted_port).collect();
        self.take_on_brokers(brokers)?;
        channels.apply(config);
        if let Some(succession) = &self.succession {
            channels.record_in(&self.channels, succession);
            let keeps = config.keeper.as_ref().is_some_and(|keeper| keeper.tls);
            succession.keep_tickets(&self.tickets, keeps);
        }
        self.operations.change(config, &groups, log.as_ref());
        let upstreams = groups.values().cloned().collect();
        let former_requests = self.overview.describe(channels.clone(), upstreams, requests);
        self.channels = channels;
        let former_rules = std::mem::replace(&mut self.rules, rules);
        self.limit(config);
        // Behind the settings of operators and the limits, which count for their clients as well.
        for relayed in relayed {
            match relayed {
                Relayed::Change(relay, settings) => relay.change(*settings),
                Relayed::Open(relay, listeners) => relay
                    .open(&engines, listeners)
                    .map_err(|error| failed(format!("starting a relay: {error}")))?,
            }
        }
        log.iter().for_each(AccessLogSink::begin);
        if let Some(former) = std::mem::replace(&mut self.access_log, log.clone()) {
            self.former_logs.add(former.thread());
        }
        self.configurations += 1;
        let mut served = Vec::new();
        for (index, (part, tables)) in parts.into_iter().zip(tables).enumerate() {
            let blueprint = Blueprint {
                config: shared.clone(),
                overview: self.overview.clone(),
                admin_operations: self.admin_operations.clone(),
                folders: tables.folders,
                channels: self.channels.clone(),
                rights: rights.clone(),
                rules: self.rules.clone(),
                groups: groups.clone(),
                encrypted: encrypted.clone(),
                challenges: self.automatic.challenges.clone(),
                durations: tables.durations,
            };
            let (serves, is_served) = oneshot::channel();
            served.push(is_served);
            let change = EngineChange {
                server: self.number,
                configuration: self.configurations,
                log: log.clone(),
                timeouts: config.timeouts,
                limits: config.limits,
                counters: self.engines[index].clone(),
                connection_limits: self.connection_limits.clone(),
                admin_connections: self.admin_connections.clone(),
                report: self.report.clone(),
                part,
                serves,
            };
            self.handle
                .call_on(index, move || change.begin(blueprint))
                .map_err(|error| failed(format!("starting the server: {error}")))?;
        }
        for front in &fronts {
            front.kind.bound().into_iter().for_each(|bound| bound.own(true));
        }
        for channels in self.channels.routes() {
            // An engine that has ended has no channels.
            let _ = self.handle.call_on(0, move || spawn(channels.sweep()).detach());
        }
        let status = self.overview.certificates();
        let of_fronts = fronts.iter().filter_map(|front| front.certificates.clone());
        let of_groups = groups.values().filter_map(|group| group.identity());
        let of_groups = of_groups.map(|(_, store)| store.clone());
        status.describe(of_fronts.chain(of_groups).collect());
        if let Some(task) = watch.task(self.report.clone(), status.clone()) {
            // As for the channels.
            let _ = self.handle.call_on(0, move || spawn(task).detach());
        }
        self.certificates = Arc::new(prepared.certificates);
        self.watch = Some(watch);
        let started = self.automatic.start(plans, &self.handle, &self.report);
        started.map_err(|error| failed(format!("starting to get certificates: {error}")))?;
        self.hold(&fronts);
        let relays = fronts.iter().filter_map(|front| match &front.kind {
            Kind::Relay(_, relay) => Some((front.listening.to_string(), relay.totals())),
            _ => None,
        });
        self.overview.describe_relays(relays.collect());
        let former_fronts = std::mem::replace(&mut self.fronts, fronts);
        self.inherited.borrow_mut().close_given();
        let before = std::mem::replace(&mut self.groups, groups);
        for (name, group) in &*before {
            // Relayed connections keep a group for as long as they last, and its checks end now.
            if !self.groups.get(name).is_some_and(|known| Arc::ptr_eq(known, group)) {
                group.end();
            }
        }
        for (name, group) in &*self.groups {
            if !before.get(name).is_some_and(|known| Arc::ptr_eq(known, group)) {
                upstream::watch(group, &self.handle)
                    .map_err(|error| failed(format!("watching the upstream {name}: {error}")))?;
            }
        }
        let former_config = self.config.replace(shared);
        // An engine that has these last frees them while its requests wait.
        let former = (former_config, former_rules, former_requests, encryptions);
        let free = async move {
            for is_served in served {
                // An engine that has ended serves nothing.
                let _ = is_served.await;
            }
            // The next configuration may have their addresses again.
            for front in former_fronts {
                if let Kind::Relay(_, relay) = front.kind
                    && let Some(unused) = Arc::into_inner(relay)
                {
                    unused.close().await;
                }
            }
            blocking::unblock(move || drop(former)).detach();
        };
        Ok(self.handle.spawn(free))
    }

    /// Limits connections to the number that the configuration and the process's descriptors allow.
    fn limit(&self, config: &Config) {
        let (descriptors, _) = superpoll::limits::nofile();
        if let Some(excess) = descriptors::excess(config, descriptors) {
            (self.report)(&Event::new(Level::Warning, "connections-limited", excess));
        }
        let connections = descriptors::connections(config, descriptors);
        upstream::limit_idle_connections(descriptors::idle_upstream_connections(descriptors));
        let limits = &config.limits;
        self.connection_limits.limit(NonZeroU32::new(connections), limits.connections_per_client);
    }

    /// Returns the setting of a configuration that the process cannot satisfy with this many
    /// descriptors, in words.
    #[must_use]
    pub fn excess(config: &Config, descriptors: u64) -> Option<String> {
        descriptors::excess(config, descriptors)
    }

    /// Checks that everything that a configuration names can be opened, without listening.
    ///
    /// # Errors
    ///
    /// As [`start`](Server::start), except for the listeners.
    pub fn check(config: &Config) -> Result<(), Error> {
        router::open(config).map_err(failed)?;
        HostRules::all(config, &[]).map_err(failed)?;
        let report: Report = Arc::new(|_: &Event| {});
        SharedRights::all(config, &report).map_err(failed)?;
        for (name, upstream) in &config.upstreams {
            Group::new(name, upstream, None, report.clone()).map_err(failed)?;
        }
        for listener in &config.listeners {
            let Some(tls) = &listener.tls else { continue };
            match &tls.automatic {
                Some(automatic) => {
                    let hosts = listener.certified(&config.hosts);
                    Automatic::check(automatic, &hosts, &listener.address).map_err(failed)?
                }
                None => {
                    let is_relay = listener.relay.is_some();
                    let watch = &mut Watch::after(Arc::default());
                    drop(opening::tls_of(tls, is_relay, None, watch, &Arc::default())?);
                }
            }
        }
        Ok(())
    }

    /// Returns the addresses that the server listens on, in the order of the configuration, with
    /// the ports that the kernel has chosen.
    pub fn listening(&self) -> impl Iterator<Item = &Address> {
        self.fronts.iter().map(|front| &front.listening)
    }

    /// Returns the same addresses as users write them: as URLs, for listeners of HTTP.
    pub fn fronts(&self) -> impl Iterator<Item = String> {
        self.fronts.iter().map(|front| front_of(&front.asked, &front.listening))
    }

    /// Returns the files of certificates that clients are to trust: those of the server's own
    /// authority, where a listener has its certificates from it.
    pub fn roots(&self) -> impl Iterator<Item = &std::path::Path> {
        self.fronts.iter().filter_map(|front| front.certificates.as_ref()?.root())
    }

    /// Returns the channel that a host has at a path; the empty name is that of a host without
    /// names. A channel of a path with parameters is there once it has had a publisher or a
    /// subscriber.
    #[must_use]
    pub fn channel(&self, host: &str, path: &str) -> Option<Arc<Hub>> {
        self.channels.find(host, path)
    }

    /// Stops listening, closes idle connections, and closes busy connections as soon as they have
    /// answered.
    pub fn stop(&mut self) {
        self.watch = None;
        self.groups.values().for_each(|group| group.end());
        self.overview.end();
        self.automatic.end();
        if let Some(succession) = self.succession.take_if(|_| !self.has_yielded) {
            succession.end();
        }
        for front in &mut self.fronts {
            // New clients are refused rather than left waiting until all connections have ended.
            if let Kind::Relay(_, relay) = std::mem::replace(&mut front.kind, Kind::Closed) {
                relay.stop();
            }
        }
        for engine in 0..self.engines.len() {
            let number = self.number;
            let stop = move || {
                // From here on the server's state lives as long as its connections.
                let removed = SERVERS.with(|servers| servers.borrow_mut().remove(&number));
                if let Some(local) = removed {
                    local.closed.borrow().set(true);
                    local.worker.drain();
                }
            };
            // An engine that has ended serves no client.
            let _ = self.handle.call_on(engine, stop);
        }
    }

    /// Waits until there are no connections left, for at most this long; returns how many there
    /// are.
    pub async fn drained(&self, patience: Duration) -> u64 {
        let end = time::now() + patience;
        let mut nap = Duration::from_millis(1);
        loop {
            let left = self.connections() + self.admin_connections.in_use() as u64;
            let now = time::now();
            if left == 0 || now >= end {
                return left;
            }
            time::sleep(nap.min(end - now)).await;
            nap = (nap * 2).min(Duration::from_millis(20));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
        // Until here messages that were under way could still be published.
        self.brokers.all().for_each(|broker| broker.end());
    }
}

superpoll::debug_fields!(Server, it =>
    listening: it.listening().collect::<Vec<_>>(), connections: it.connections());
