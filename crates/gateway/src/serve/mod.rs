//! The web server: listeners, connections and routes on the engines of a runtime.
//!
//! Every engine accepts and serves on its own: it has its routes, its parking lot and its counters,
//! and shares nothing that a request needs with another engine. The thread that starts the server
//! or changes it opens and checks everything that a configuration names, so that either all of it
//! takes effect or nothing does. The engines then get the parts that they need.
//!
//! What a configuration makes is one value that never changes, a `Generation`: it is prepared on a
//! thread that serves no requests, and then takes the place of the one before on each engine. The
//! routes of an engine are its own; it builds them some at a time, between its requests
//! (`engine_change`), and frees those before in the same way.
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
mod client_stream;
mod clock;
mod connection;
mod connections;
mod engine_change;
mod error;
pub mod explain;
mod generation;
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
mod router;
mod shared;
mod worker;

pub use adoption::HandedOver;

use std::cell::RefCell;
use std::io;
use std::num::NonZeroU32;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use futures_channel::oneshot;
use superpoll_http::certificates::Watch;
use superpoll_http::descriptors;
use superpoll_http::log::{AccessLogSink, Event, FormerLogs, Level, Report};
use superpoll_http::upstream;
use superpoll_hub::broker::{Broker, Brokers};
use superpoll_hub::channel::Hub;
use superpoll_hub::succession::Succession;
use superpoll_rt::{JoinHandle, Runtime, blocking, spawn, time};

use crate::acme::{Automatic, Plan};
use crate::config::{Address, Config};
use crate::inherited::Inherited;
use engine_change::EngineChange;
pub use error::Error;
use generation::{EngineTables, Generation};
pub use generation::{Preparation, PreparedConfig};
use local::SERVERS;
use opening::{Frontend, Kind, Opened, Part};
use shared::Shared;
use worker::ServerSource;

/// A running server. Dropping it stops listening; connections continue as long as the runtime does.
pub struct Server {
    /// The parts that all configurations have in common.
    shared: Arc<Shared>,
    /// The generation in use.
    current: Arc<Generation>,
    /// The addresses that are served.
    fronts: Vec<Frontend>,
    /// The sockets that were passed on and are not used yet.
    inherited: RefCell<Inherited>,
    /// The connection to the keeper process, if there is one: the state that is left there, and
    /// the wish of another server to continue with it.
    succession: Option<Arc<Succession>>,
    /// Engines still have connections of another server to continue with.
    adopting: Arc<AtomicBool>,
    has_yielded: bool,
    automatic: Automatic,
    /// The engines that keep the messages of channels that other processes have as well.
    brokers: Brokers,
    /// The watch over the files of certificates.
    watch: Option<Watch>,
    /// The threads of earlier logs, which engines may still use. They are waited for here.
    former_logs: FormerLogs,
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
        let report: Report = Arc::new(report);
        let succession = Succession::from_config(config, &report)?;
        if let Some(succession) = &succession {
            inherited.add(succession.listeners()?);
        }
        let upgrades = inherited.upgrades();
        let automatic = Automatic::default();
        let worker = inherited.worker().cloned();
        let mut server = Server {
            shared: Arc::new(Shared::new(
                runtime,
                &automatic,
                worker,
                report,
                connections::operate,
            )),
            current: Arc::default(),
            fronts: Vec::new(),
            inherited: RefCell::new(inherited),
            succession,
            adopting: Arc::default(),
            has_yielded: false,
            automatic,
            brokers: Brokers::default(),
            watch: None,
            former_logs: FormerLogs::default(),
        };
        // Another server may be about to end for this one, which then has to be able to continue.
        let prepared = server.preparation().prepare(config.clone())?;
        let opened = server.open(runtime, &prepared.generation)?;
        server.inherited.borrow().all_used().map_err(Error::Inherited)?;
        let predecessor = server.inherit(config, upgrades)?;
        match server.begin(prepared, opened) {
            Ok(begun) => begun.detach(),
            Err(error) => {
                // The connections that the server was given wait for the next server.
                server.has_yielded = true;
                return Err(error);
            }
        }
        server.adopt(predecessor);
        let shared = &server.shared;
        shared.admin_operations.serve(server.subject());
        if let Some(worker) = &shared.worker {
            shared.overview.join(worker);
            shared.admin_operations.join(worker);
            let (overview, tickets) = (shared.overview.clone(), shared.tickets.clone());
            let (statistics, operations) = (Arc::new(server.subject()), shared.operations.clone());
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
        let opened = self.open(runtime, &prepared.generation)?;
        self.begin(prepared, opened)?.detach();
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
        while let Some(log) = &prepared.generation.log
            && prepared.reopenings != self.shared.operations.reopenings()
        {
            prepared.reopenings = self.shared.operations.reopenings();
            self.shared.operations.reopen_prepared(log).await;
        }
        let (done, is_done) = oneshot::channel();
        let opened = match self.open(runtime, &prepared.generation) {
            Ok(opened) => opened,
            Err(error) => {
                // This engine would take long to free thousands of routes.
                blocking::unblock(move || drop(prepared)).detach();
                return Err(error);
            }
        };
        let begun = self.begin(prepared, opened)?;
        let tell = async move {
            let _ = begun.await;
            let _ = done.send(());
        };
        spawn(tell).detach();
        // Without an answer the runtime ends.
        let _ = is_done.await;
        Ok(())
    }

    /// Returns the state of the server that the preparation of another configuration begins with.
    /// Prepare one at a time, each from the state after the one before: a configuration that was
    /// prepared earlier does not continue with what another one has brought since.
    #[must_use]
    pub fn preparation(&self) -> Preparation {
        let (shared, former) = (self.shared.clone(), self.current.clone());
        Preparation { shared, former, brokers: self.brokers.clone() }
    }

    /// Makes a configuration the one that is served. The task that is returned is done when all
    /// engines serve it, and then frees the one before.
    fn begin(&mut self, prepared: PreparedConfig, opened: Opened) -> Result<JoinHandle<()>, Error> {
        let Opened { parts, engines, fronts, relayed } = opened;
        let PreparedConfig { generation, tables, plans, watch, brokers, .. } = prepared;
        let encrypted = fronts.iter().filter_map(Frontend::encrypted_port).collect();
        let generation = Arc::new(generation.after(&self.current, encrypted, brokers.clone()));
        // This may fail, and then all stays as it is. The rest fails only if the runtime has ended.
        self.take_on_brokers(brokers)?;
        let former = std::mem::replace(&mut self.current, generation);
        self.change_channels(&former);
        self.describe(&fronts);
        self.limit();
        // After the settings of operators and the limits, which count for their clients as well.
        for relayed in relayed {
            relayed.begin(&engines)?;
        }
        self.change_logs(&former);
        let served = self.change_engines(parts, tables)?;
        self.begin_tasks(&fronts, plans, watch)?;
        self.hold(&fronts);
        self.change_groups(&former)?;
        let former_fronts = std::mem::replace(&mut self.fronts, fronts);
        self.inherited.borrow_mut().close_given();
        let retire = async move {
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
            generation::free(former);
        };
        Ok(self.shared.handle.spawn(retire))
    }

    /// Begins to work with the engines of a configuration, and ends those before.
    fn take_on_brokers(&mut self, brokers: Brokers) -> Result<(), Error> {
        let has = |all: &Brokers, one: &Arc<Broker>| all.all().any(|it| Arc::ptr_eq(it, one));
        for broker in brokers.all().filter(|broker| !has(&self.brokers, broker)) {
            broker.open(&self.shared.handle).map_err(Error::Broker)?;
        }
        let before = std::mem::replace(&mut self.brokers, brokers);
        before.all().filter(|broker| !has(&self.brokers, broker)).for_each(|broker| broker.end());
        Ok(())
    }

    /// Continues with the channels of the configuration, and keeps them for a successor.
    fn change_channels(&self, former: &Generation) {
        let Generation { config, channels, .. } = &*self.current;
        channels.apply(config);
        if let Some(succession) = &self.succession {
            channels.record_in(&former.channels, succession);
            let keeps = config.keeper.as_ref().is_some_and(|keeper| keeper.tls);
            succession.keep_tickets(&self.shared.tickets, keeps);
        }
    }

    /// Makes the configuration the one that operators change and that telemetry tells of.
    fn describe(&self, fronts: &[Frontend]) {
        let Generation { config, groups, channels, requests, log, .. } = &*self.current;
        self.shared.operations.change(config, groups, log.as_ref());
        let relays = fronts.iter().filter_map(|front| match &front.kind {
            Kind::Relay(_, relay) => Some((front.listening.to_string(), relay.totals())),
            _ => None,
        });
        let upstreams = groups.values().cloned().collect();
        let overview = &self.shared.overview;
        overview.describe(channels.clone(), upstreams, requests.clone(), relays.collect());
        let of_fronts = fronts.iter().filter_map(|front| front.certificates.clone());
        let of_groups = groups.values().filter_map(|group| group.identity());
        let of_groups = of_groups.map(|(_, store)| store.clone());
        overview.certificates().describe(of_fronts.chain(of_groups).collect());
    }

    /// Limits connections to the number that the configuration and the process's descriptors allow.
    fn limit(&self) {
        let config = &self.current.config;
        let (descriptors, _) = superpoll::limits::nofile();
        if let Some(excess) = descriptors::excess(config, descriptors) {
            (self.shared.report)(&Event::new(Level::Warning, "connections-limited", excess));
        }
        let connections = NonZeroU32::new(descriptors::connections(config, descriptors));
        upstream::limit_idle_connections(descriptors::idle_upstream_connections(descriptors));
        upstream::limit_spooled_bytes(config.limits.spool_bytes);
        let per_client = config.limits.connections_per_client;
        self.shared.connection_limits.limit(connections, per_client);
    }

    /// Begins to write the access log, and remembers the one before until it is written.
    fn change_logs(&mut self, former: &Generation) {
        self.current.log.iter().for_each(AccessLogSink::begin);
        if let Some(log) = &former.log {
            self.former_logs.add(log.thread());
        }
    }

    /// Makes the engines serve the configuration. Each tells when it does.
    fn change_engines(
        &self,
        parts: Vec<Part>,
        tables: Vec<EngineTables>,
    ) -> Result<Vec<oneshot::Receiver<()>>, Error> {
        let mut served = Vec::new();
        for (engine, (part, tables)) in parts.into_iter().zip(tables).enumerate() {
            let (serves, is_served) = oneshot::channel();
            served.push(is_served);
            let (shared, generation) = (self.shared.clone(), self.current.clone());
            let change = EngineChange { shared, generation, engine, tables, part, serves };
            self.shared.handle.call_on(engine, move || change.begin())?;
        }
        Ok(served)
    }

    /// Begins the tasks beside the engines' own: of channels and of certificates.
    fn begin_tasks(
        &mut self,
        fronts: &[Frontend],
        plans: Vec<Plan>,
        mut watch: Watch,
    ) -> Result<(), Error> {
        let Shared { handle, report, overview, .. } = &*self.shared;
        for front in fronts {
            front.kind.bound().into_iter().for_each(|bound| bound.own(true));
        }
        for channels in self.current.channels.routes() {
            // An engine that has ended has no channels.
            let _ = handle.call_on(0, move || spawn(channels.sweep()).detach());
        }
        if let Some(task) = watch.task(report.clone(), overview.certificates().clone()) {
            // As for the channels.
            let _ = handle.call_on(0, move || spawn(task).detach());
        }
        self.watch = Some(watch);
        Ok(self.automatic.start(plans, handle, report)?)
    }

    /// Begins to watch the groups of servers that are new, and ends the others.
    fn change_groups(&self, former: &Generation) -> Result<(), Error> {
        let (before, now) = (&former.groups, &self.current.groups);
        for (name, group) in before {
            // Relayed connections keep a group for as long as they last, and its checks end now.
            if !now.get(name).is_some_and(|known| Arc::ptr_eq(known, group)) {
                group.end();
            }
        }
        for (name, group) in now {
            if !before.get(name).is_some_and(|known| Arc::ptr_eq(known, group)) {
                upstream::watch(group, &self.shared.handle)?;
            }
        }
        Ok(())
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
        generation::check(config)
    }

    /// Returns the addresses that the server listens on, in the order of the configuration, with
    /// the ports that the kernel has chosen.
    pub fn listening(&self) -> impl Iterator<Item = &Address> {
        self.fronts.iter().map(|front| &front.listening)
    }

    /// Returns the same addresses as users write them: as URLs, for listeners of HTTP.
    pub fn fronts(&self) -> impl Iterator<Item = String> {
        self.fronts.iter().map(|front| front.asked.front(&front.listening))
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
        self.current.channels.find(host, path)
    }

    /// Stops listening, closes idle connections, and closes busy connections as soon as they have
    /// answered.
    pub fn stop(&mut self) {
        self.watch = None;
        self.current.groups.values().for_each(|group| group.end());
        self.shared.overview.end();
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
        for engine in 0..self.shared.engines.len() {
            let number = self.shared.number;
            let stop = move || {
                // From here on the server's state lives as long as its connections.
                let removed = SERVERS.with(|servers| servers.borrow_mut().remove(&number));
                if let Some(local) = removed {
                    local.closed.borrow().set(true);
                    local.worker.drain();
                }
            };
            // An engine that has ended serves no client.
            let _ = self.shared.handle.call_on(engine, stop);
        }
    }

    /// Waits until there are no connections left, for at most this long; returns how many there
    /// are.
    pub async fn drained(&self, patience: Duration) -> u64 {
        let end = time::now() + patience;
        let mut nap = Duration::from_millis(1);
        loop {
            let left = self.connections() + self.shared.admin_connections.in_use() as u64;
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
