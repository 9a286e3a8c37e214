//! The parts that all pairs of a relay have in common: its settings, its counters, and the receiver
//! of its failures.
//!
//! Settings can be exchanged while pairs continue with those that they began with. Each engine
//! keeps the settings that it uses in a [`Local`] of its own, and makes a new [`Local`] when it
//! finds that the settings have changed.

use std::cell::{Cell, RefCell};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_rustls::rustls::ServerConfig;
use serde::{Deserialize, Serialize};
use superpoll_http::connection_limits::{ConnectionLimits, ConnectionPermit};
use superpoll_http::log::{AccessLogSink, AccessLogWriter, BrokenBy, RelayEntry, RelayRecord};
use superpoll_http::telemetry::counters::EngineCounters;
use superpoll_http::upstream::{Group, GroupServer, Pool};
use superpoll_rt::time;

use super::concurrency_limit::Permit;
use super::deferred::DeferredPairs;
use super::destination::{Destination, NameLookup, Routes, Target, resolve};
use super::failure::{Failure, ReportLimiter};
use super::flow::Moved;
use crate::config::{AccessLog, Address, ProxyVersion};

/// How a relay treats its connections.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long an upstream may take to accept a connection, for each of its addresses.
    pub connect_timeout: Duration,
    /// How long a pair may be without a byte in either direction before it is closed; `None`: no
    /// limit.
    pub idle_timeout: Option<Duration>,
    /// The most pairs at a time. Further clients wait in the kernel's queue. `None`: the number
    /// that the process's descriptors allow.
    pub max_connections: Option<usize>,
    /// The most pairs of one client address at a time, or of one network of IPv6 (`/64`). Further
    /// clients are closed. `None`: no limit.
    pub connections_per_client: Option<NonZeroU32>,
    /// Whether an operation is tried before its descriptor is watched, which is the right setting
    /// for a relay. If not, each direction of each socket is watched first, as in an event loop
    /// that knows only its poller. That setting is for comparison.
    pub speculative: bool,
    /// The log that has a line for each connection; `None`: no log.
    pub access_log: Option<AccessLog>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            connect_timeout: Duration::from_secs(5),
            idle_timeout: None,
            max_connections: None,
            connections_per_client: None,
            speculative: true,
            access_log: None,
        }
    }
}

/// The counters of a relay since its start.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Counters {
    /// Clients accepted.
    pub accepted: u64,
    /// Pairs that there are now.
    pub active: u64,
    /// Bytes from clients, as written to upstreams.
    pub bytes_up: u64,
    /// Bytes from upstreams, as written to clients.
    pub bytes_down: u64,
    /// Of the bytes in both directions, the number that was spliced.
    pub bytes_spliced: u64,
    /// Clients closed because the upstream could not be reached.
    pub connect_failures: u64,
    /// Pairs with one side that broke; the other side was reset.
    pub broken: u64,
    /// Pairs closed because they were idle for too long.
    pub timed_out: u64,
    /// Clients closed for a shortage of descriptors.
    pub shed: u64,
    /// Clients closed because there were too many connections, of all clients or of the same
    /// client.
    pub refused: u64,
}

/// The counters while they change.
#[derive(Debug, Default)]
pub(super) struct Totals {
    pub accepted: AtomicU64,
    pub active: AtomicU64,
    pub bytes_up: AtomicU64,
    pub bytes_down: AtomicU64,
    pub bytes_spliced: AtomicU64,
    pub connect_failures: AtomicU64,
    pub broken: AtomicU64,
    pub timed_out: AtomicU64,
    pub shed: AtomicU64,
    pub refused: AtomicU64,
}

impl Totals {
    /// Adds the bytes that a pair has moved.
    pub(super) fn moved(&self, up: &Moved, down: &Moved) {
        for (total, moved) in [
            (&self.bytes_up, up.written),
            (&self.bytes_down, down.written),
            (&self.bytes_spliced, up.spliced + down.spliced),
        ] {
            if moved > 0 {
                total.fetch_add(moved, Ordering::Relaxed);
            }
        }
    }

    pub(super) fn read(&self) -> Counters {
        let of = |total: &AtomicU64| total.load(Ordering::Relaxed);
        Counters {
            accepted: of(&self.accepted),
            active: of(&self.active),
            bytes_up: of(&self.bytes_up),
            bytes_down: of(&self.bytes_down),
            bytes_spliced: of(&self.bytes_spliced),
            connect_failures: of(&self.connect_failures),
            broken: of(&self.broken),
            timed_out: of(&self.timed_out),
            shed: of(&self.shed),
            refused: of(&self.refused),
        }
    }
}

/// The duties of a relay in addition to relaying.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rules {
    /// The limits on connections, of all clients and of one client. A connection above a limit is
    /// closed.
    pub connection_limits: Arc<ConnectionLimits>,
    /// Connections begin with a header of the PROXY protocol, which has this long to arrive.
    pub header: Option<Duration>,
    /// The upstream is sent such a header.
    pub announces: Option<ProxyVersion>,
    /// The encryption of connections with clients.
    pub tls: Option<Arc<ServerConfig>>,
    /// The destinations of clients by the server name that they ask for.
    pub routes: Arc<Routes>,
    /// How long the first bytes of a client may take, if the relay looks at them.
    pub greeting: Duration,
    /// The access log, and the relay's name in its lines.
    pub access_log: Option<(Arc<AccessLogSink>, Arc<str>)>,
}

impl Rules {
    /// Whether the relay looks at the bytes of a client before it passes any on.
    pub(super) fn reads_greetings(&self) -> bool {
        self.tls.is_some() || !self.routes.is_empty()
    }
}

/// Where clients are relayed to, and how.
pub(crate) struct Settings {
    pub(super) options: Options,
    pub(super) rules: Rules,
    /// `None`: only clients with a known server name are relayed.
    pub(super) to: Option<Destination>,
    pub(super) target: Target,
    pub(super) name: Option<NameLookup>,
    /// A pair needs nothing but a connection to one of the addresses or servers.
    pub(super) is_simple: bool,
}

impl Settings {
    /// Returns the settings for relaying to a destination, or only to those of the rules.
    ///
    /// # Errors
    ///
    /// If the destination is one that no program can connect to.
    pub(crate) fn new(
        to: Option<Destination>,
        options: Options,
        rules: Rules,
    ) -> io::Result<Settings> {
        let (target, name) = resolve(to.as_ref())?;
        let has_headers = rules.header.is_some() || rules.announces.is_some();
        let is_plain = match &to {
            Some(Destination::Group(group)) => group.config().proxy_protocol.is_none(),
            _ => matches!(target, Target::Tcp(_)),
        };
        let is_simple = is_plain && !has_headers && !rules.reads_greetings();
        Ok(Settings { options, rules, to, target, name, is_simple })
    }

    /// Makes an access log have a line for each connection, if there is one. The address is that of
    /// the relay.
    pub(crate) fn logged_in(
        mut self,
        log: Option<&Arc<AccessLogSink>>,
        address: &Address,
    ) -> Settings {
        self.rules.access_log = log.map(|log| (log.clone(), address.to_string().into()));
        self
    }

    /// Returns the same settings with other addresses of the name, which were found just now.
    pub(super) fn with_addresses(&self, addresses: Vec<SocketAddr>) -> Settings {
        Settings {
            options: self.options.clone(),
            rules: self.rules.clone(),
            to: self.to.clone(),
            target: Target::Tcp(addresses),
            name: self.name.as_ref().map(NameLookup::renewed),
            is_simple: self.is_simple,
        }
    }
}

/// The state that pairs share.
pub(super) struct Shared {
    /// The settings for new connections; the number tells whether the settings are still the same.
    settings: Mutex<(u64, Arc<Settings>)>,
    version: AtomicU64,
    pub totals: Totals,
    report: Box<dyn Fn(&Failure) + Send + Sync>,
    reports: ReportLimiter,
}

impl Shared {
    pub(super) fn new(settings: Settings, report: Box<dyn Fn(&Failure) + Send + Sync>) -> Shared {
        let settings = Mutex::new((0, Arc::new(settings)));
        let (totals, reports) = (Totals::default(), ReportLimiter::default());
        Shared { settings, version: AtomicU64::new(0), totals, report, reports }
    }

    /// Applies these settings to new connections; existing pairs keep their settings.
    /// The addresses of the same name are known until it is looked up again.
    pub(super) fn change(&self, mut settings: Settings) {
        let mut current = self.settings.lock().unwrap_or_else(PoisonError::into_inner);
        let name = |of: &Settings| of.name.as_ref().map(|name| (name.host.clone(), name.port));
        if name(&settings).is_some() && name(&settings) == name(&current.1) {
            settings.target = current.1.target.clone();
        }
        *current = (current.0 + 1, Arc::new(settings));
        self.version.store(current.0, Ordering::Release);
    }

    /// As [`change`](Shared::change), unless the settings have changed since `version`. Returns the
    /// version of the settings.
    fn change_since(&self, version: u64, settings: &Arc<Settings>) -> Option<u64> {
        let mut current = self.settings.lock().unwrap_or_else(PoisonError::into_inner);
        if current.0 != version {
            return None;
        }
        *current = (current.0 + 1, settings.clone());
        self.version.store(current.0, Ordering::Release);
        Some(current.0)
    }

    fn current(&self) -> (u64, Arc<Settings>) {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the destination of clients now.
    pub(super) fn destination(&self) -> Option<Destination> {
        self.current().1.to.clone()
    }

    /// Reports an upstream that could not be reached.
    #[cold]
    pub(super) fn not_connected(&self, to: &Address, error: io::Error) {
        self.totals.connect_failures.fetch_add(1, Ordering::Relaxed);
        let kind = (0, error.raw_os_error(), 0);
        if let Some(left_out) = self.reports.admit(kind, time::now()) {
            (self.report)(&Failure::Connect { to: to.clone(), error, left_out });
        }
    }

    /// Reports a server of an upstream that could not be reached.
    #[cold]
    pub(super) fn server_not_connected(
        &self,
        group: &Group,
        server: &GroupServer,
        error: io::Error,
        is_retried: bool,
    ) {
        if !is_retried {
            self.totals.connect_failures.fetch_add(1, Ordering::Relaxed);
        }
        let kind = (3, error.raw_os_error(), number_of(group, server.id));
        if let Some(left_out) = self.reports.admit(kind, time::now()) {
            let upstream = group.name().to_owned();
            let server = server.address.clone();
            let failure = Failure::Server { upstream, server, error, is_retried, left_out };
            (self.report)(&failure);
        }
    }

    /// Reports an upstream without a server that is up.
    #[cold]
    pub(super) fn none_up(&self, group: &Group) {
        self.totals.connect_failures.fetch_add(1, Ordering::Relaxed);
        let kind = (4, None, number_of(group, u64::MAX));
        if let Some(left_out) = self.reports.admit(kind, time::now()) {
            (self.report)(&Failure::NoneUp { upstream: group.name().to_owned(), left_out });
        }
    }

    /// Reports a name whose addresses could not be looked up.
    #[cold]
    pub(super) fn not_looked_up(&self, to: &Address, error: io::Error) {
        let kind = (5, error.raw_os_error(), 0);
        if let Some(left_out) = self.reports.admit(kind, time::now()) {
            (self.report)(&Failure::LookUp { to: to.clone(), error, left_out });
        }
    }

    /// Reports clients that were closed for a shortage of descriptors.
    #[cold]
    pub(super) fn shed(&self, on: &str, clients: u64) {
        self.totals.shed.fetch_add(clients, Ordering::Relaxed);
        for _ in 0..clients {
            if let Some(left_out) = self.reports.admit((1, None, 0), time::now()) {
                (self.report)(&Failure::Shed { on: on.to_owned(), left_out });
            }
        }
    }

    /// Reports a listener that failed to accept.
    #[cold]
    pub(super) fn not_accepted(&self, on: &str, error: io::Error) {
        let kind = (2, error.raw_os_error(), 0);
        if let Some(left_out) = self.reports.admit(kind, time::now()) {
            (self.report)(&Failure::Accept { on: on.to_owned(), error, left_out });
        }
    }
}

/// Returns a number that tells servers apart.
fn number_of(group: &Group, server: u64) -> u64 {
    let mut hasher = DefaultHasher::new();
    (group.name(), server).hash(&mut hasher);
    hasher.finish()
}

/// The state that an engine's pairs share if they began with the same settings.
pub(super) struct Local {
    pub shared: Arc<Shared>,
    version: u64,
    settings: Arc<Settings>,
    /// The pairs of all settings.
    deferred: Rc<DeferredPairs>,
    /// The counters of this engine.
    counters: Arc<EngineCounters>,
    watching_costs: bool,
    /// The pools of the settings' groups on this engine, which have the turns of their servers.
    pools: RefCell<Vec<Rc<Pool>>>,
    /// This engine's part of the access log, if there is one.
    access_log: Option<Rc<AccessLogWriter>>,
}

impl Local {
    /// `watching_costs` says that a system call is needed to watch a descriptor.
    pub(super) fn new(
        shared: Arc<Shared>,
        counters: Arc<EngineCounters>,
        watching_costs: bool,
    ) -> Local {
        let (version, settings) = shared.current();
        let deferred = Rc::<DeferredPairs>::default();
        let pools = RefCell::default();
        let access_log = settings.rules.access_log.as_ref();
        let access_log = access_log.map(|(log, _)| AccessLogWriter::new(log.clone()));
        Local { shared, version, settings, deferred, counters, watching_costs, pools, access_log }
    }

    /// Returns one with these settings, which are those of other engines from now on as well unless
    /// the settings have changed meanwhile.
    fn with(&self, settings: Settings) -> Local {
        let settings = Arc::new(settings);
        let version = self.shared.change_since(self.version, &settings);
        Local {
            shared: self.shared.clone(),
            version: version.unwrap_or(self.version),
            settings,
            deferred: self.deferred.clone(),
            counters: self.counters.clone(),
            watching_costs: self.watching_costs,
            pools: self.pools.clone(),
            access_log: self.access_log.clone(),
        }
    }

    /// Returns a new [`Local`] with the current settings, if this one's settings are outdated.
    pub(super) fn renewed(&self) -> Option<Local> {
        let is_current = self.version == self.shared.version.load(Ordering::Acquire);
        (!is_current).then(|| {
            let deferred = self.deferred.clone();
            let local = Local::new(self.shared.clone(), self.counters.clone(), self.watching_costs);
            let access_log = match (&self.access_log, &local.access_log) {
                // For the lines of pairs that have begun before, too.
                (Some(before), Some(next)) => {
                    before.change(next.log());
                    Some(before.clone())
                }
                _ => local.access_log,
            };
            Local { deferred, access_log, ..local }
        })
    }

    pub(super) fn settings(&self) -> &Arc<Settings> {
        &self.settings
    }

    /// Returns the pool of a group of the settings.
    pub(super) fn pool(&self, group: &Arc<Group>) -> Rc<Pool> {
        let mut pools = self.pools.borrow_mut();
        if let Some(pool) = pools.iter().find(|pool| Arc::ptr_eq(&pool.group, group)) {
            return pool.clone();
        }
        let pool = Pool::for_group(group);
        pools.push(pool.clone());
        pool
    }
}

/// One of the pairs that exist now.
pub(super) struct ActivePair {
    local: Rc<Local>,
    connection_permit: ConnectionPermit,
    /// Its line of the access log, if there is a log.
    entry: Option<Box<RelayEntry>>,
    /// The number of the second in which the pair was last counted as active; zero: never.
    active_in: Cell<u32>,
    _permit: Permit,
}

impl ActivePair {
    /// Returns `None` if there are too many connections of this client, as far as it is known, or
    /// of all clients.
    pub(super) fn new(
        local: Rc<Local>,
        permit: Permit,
        client: Option<IpAddr>,
    ) -> Option<ActivePair> {
        let connection_permit = local.settings.rules.connection_limits.acquire(client).ok()?;
        local.shared.totals.active.fetch_add(1, Ordering::Relaxed);
        let active_in = Cell::default();
        Some(ActivePair { local, connection_permit, entry: None, active_in, _permit: permit })
    }

    /// Begins its line of the access log, if there is a log. `otherwise` has ended the connection
    /// if nothing else is noted.
    pub(super) fn begin_entry(&mut self, client: Option<SocketAddr>, otherwise: BrokenBy) {
        let Some(access_log) = &self.local.access_log else { return };
        if let Some((_, relay)) = &self.local.settings.rules.access_log {
            let record = RelayRecord::new(client, relay.clone(), otherwise);
            self.entry = Some(Box::new(RelayEntry::new(access_log.clone(), record)));
        }
    }

    /// Whether there is an access log.
    pub(super) fn is_logged(&self) -> bool {
        self.entry.is_some()
    }

    /// Whether lines of the access log have the server names that clients ask for.
    pub(super) fn logs_server_names(&self) -> bool {
        self.is_logged()
            && self.local.access_log.as_ref().is_some_and(|log| log.log().has_server_names())
    }

    /// Notes something in its line of the access log, if there is a log.
    pub(super) fn note(&self, change: impl FnOnce(&mut RelayRecord)) {
        if let Some(entry) = &self.entry {
            entry.note(change);
        }
    }

    /// Notes the cause of the connection's end.
    pub(super) fn broken_by(&self, who: BrokenBy) {
        self.note(|record| record.broken_by = Some(who));
    }

    /// Leaves the connection out of the access log, as a limit has refused it.
    pub(super) fn refused(&mut self) {
        self.entry.take().into_iter().for_each(|entry| entry.void());
    }

    /// Notes that the server is connected.
    pub(super) fn connected(&self) {
        self.note(|record| record.is_connected = true);
    }

    /// Notes how long a connection to the server took that has succeeded.
    pub(super) fn note_connect(&self, began: Option<Instant>) {
        self.note(|record| {
            if let Some(upstream) = &mut record.upstream {
                upstream.connect = began.map(|began| time::now() - began);
            }
        });
    }

    /// Counts the bytes that it has moved.
    pub(super) fn moved(&self, up: &Moved, down: &Moved) {
        if (up.read | up.written | down.read | down.written) > 0 {
            self.local.counters.ratio.note(&self.active_in);
        }
        self.totals().moved(up, down);
        self.note(|record| {
            record.up += up.written;
            record.down += down.written;
        });
    }

    /// Counts the pair as a connection of a client. Returns whether the client may have this many.
    pub(super) fn count(&mut self, client: Option<IpAddr>) -> bool {
        self.connection_permit.count(client).is_ok()
    }

    pub(super) fn totals(&self) -> &Totals {
        &self.local.shared.totals
    }

    pub(super) fn settings(&self) -> &Arc<Settings> {
        &self.local.settings
    }

    pub(super) fn local(&self) -> &Rc<Local> {
        &self.local
    }

    /// Makes the pair continue with these settings, and other pairs begin with them.
    pub(super) fn adopt(&mut self, settings: Settings) {
        self.local = Rc::new(self.local.with(settings));
    }

    /// Makes the pair continue with the current settings, if they have addresses of the same name.
    /// Returns whether they have.
    pub(super) fn renew(&mut self) -> bool {
        let Some(renewed) = self.local.renewed() else { return false };
        let of = |settings: &Settings| {
            let name = settings.name.as_ref();
            name.map(|name| (name.host.clone(), name.port))
        };
        let settings = renewed.settings();
        let has_some = matches!(&settings.target, Target::Tcp(addresses) if !addresses.is_empty());
        let is_known = has_some && of(settings) == of(&self.local.settings);
        if is_known {
            self.local = Rc::new(renewed);
        }
        is_known
    }

    pub(super) fn options(&self) -> &Options {
        &self.local.settings.options
    }

    /// Reports an upstream, the address of the settings, that could not be reached.
    #[cold]
    pub(super) fn not_connected(&self, error: io::Error) {
        self.broken_by(BrokenBy::Upstream);
        let settings = &self.local.settings;
        let has_some = matches!(&settings.target, Target::Tcp(addresses) if !addresses.is_empty());
        if let Some(name) = settings.name.as_ref().filter(|_| has_some) {
            name.forget();
        }
        if let Some(Destination::Address(to)) = &settings.to {
            self.local.shared.not_connected(to, error);
        }
    }

    /// The pairs of this engine that are not watched yet.
    pub(super) fn deferred(&self) -> &Rc<DeferredPairs> {
        &self.local.deferred
    }

    /// Whether the relay may put off watching a descriptor.
    pub(super) fn defers(&self) -> bool {
        self.local.watching_costs && self.options().speculative
    }
}

impl Drop for ActivePair {
    fn drop(&mut self) {
        self.local.shared.totals.active.fetch_sub(1, Ordering::Relaxed);
    }
}
