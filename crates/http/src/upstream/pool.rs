//! The connections of one engine to the servers of a group.
//!
//! Idle connections are used last in, first out, so that no more of them are kept warm than are
//! needed. A task checks them now and then, and closes those that were not used for too long and
//! those that servers have closed. It lives only as long as there are idle connections.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::net::IpAddr;
use std::ops::Deref;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use http::StatusCode;
use superpoll_rt::next_turn;
use superpoll_rt::time::{self, sleep};

use super::dial::ClientAddresses;
use super::fault::{Fault, Outcome};
use super::group::{Group, ServerList};
use super::http1::Http1Connection;
use super::http2::Http2Connection;
use super::idle_life::IdleLife;
use super::local_shortage::LocalShortage;
use super::server::GroupServer;
use crate::log::{BrokenBy, Entry, UpstreamEnd};
use crate::trace::RequestTrace;

/// The longest time between two looks at the idle connections.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);

/// The most connections that are looked at in one turn: a fraction of a millisecond.
const MOST_LOOKS: usize = 64;

/// The age up to which a connection to a FastCGI server is kept although there are more than
/// `keep_alive`, and the time for which it is then idle at most. So requests of other programs wait
/// no longer for its process, and those that come together make several of one connection.
const TURN: Duration = Duration::from_millis(2);

/// The most idle connections to a FastCGI server that there may be for so long.
const MOST_SURPLUS: usize = 64;

struct IdleConnection {
    connection: Box<Http1Connection>,
    addresses: ClientAddresses,
    since: Instant,
    /// The last time at which it was known to be open.
    seen: Instant,
    _counted: IdleCount,
}

impl IdleConnection {
    /// Returns for how long it had been idle at a time.
    fn age(&self, at: Instant) -> Duration {
        at.saturating_duration_since(self.since)
    }
}

/// The outcome of a look at the idle connections of a pool.
enum Looked {
    /// There are more to be looked at.
    More,
    All,
    /// There is none.
    None,
}

/// The idle connections of this process, whose descriptors all servers and engines share.
static IDLE: AtomicUsize = AtomicUsize::new(0);

/// The most that there may be, give or take one for each engine.
static MOST_IDLE: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Limits the idle connections of this process to all servers.
pub fn limit_idle_connections(most: usize) {
    MOST_IDLE.store(most, Ordering::Relaxed);
}

/// Counts an idle connection as long as it is one.
struct IdleCount(Arc<GroupServer>);

impl IdleCount {
    fn new(server: &Arc<GroupServer>) -> IdleCount {
        IDLE.fetch_add(1, Ordering::Relaxed);
        server.idle.fetch_add(1, Ordering::Relaxed);
        IdleCount(server.clone())
    }

    /// Whether there are as many as the process may have.
    fn is_at_limit() -> bool {
        IDLE.load(Ordering::Relaxed) >= MOST_IDLE.load(Ordering::Relaxed)
    }
}

impl Drop for IdleCount {
    fn drop(&mut self) {
        IDLE.fetch_sub(1, Ordering::Relaxed);
        self.0.idle.fetch_sub(1, Ordering::Relaxed);
    }
}

struct SharedConnection {
    connection: Http2Connection,
    addresses: ClientAddresses,
    since: Instant,
    used: Instant,
    _counted: IdleCount,
}

#[derive(Default)]
struct ServerConnections {
    /// The connections that have been idle for the longest time come first.
    idle: VecDeque<IdleConnection>,
    shared: Vec<SharedConnection>,
}

/// A server, and the connections of one engine to it.
pub struct PooledServer {
    server: Arc<GroupServer>,
    connections: RefCell<ServerConnections>,
    idle_life: IdleLife,
}

impl Deref for PooledServer {
    type Target = GroupServer;

    fn deref(&self) -> &GroupServer {
        &self.server
    }
}

impl PooledServer {
    /// Whether there is an idle connection to the server, as far as is known.
    pub(super) fn has_idle(&self) -> bool {
        let connections = self.connections.borrow();
        !connections.idle.is_empty() || !connections.shared.is_empty()
    }

    /// Takes out the idle connection that was used last.
    fn take(&self, addresses: ClientAddresses) -> Option<IdleConnection> {
        let idle = &mut self.connections.borrow_mut().idle;
        let last = idle.back()?;
        if last.addresses == addresses {
            return idle.pop_back();
        }
        let found = idle.iter().rposition(|idle| idle.addresses == addresses)?;
        idle.remove(found)
    }

    /// Takes out the connection that was used last and can be used again, as far as is known. Those
    /// that turn out to be unusable are closed.
    pub(super) async fn take_usable(
        &self,
        addresses: ClientAddresses,
        lifetime: Option<Duration>,
    ) -> Option<Box<Http1Connection>> {
        loop {
            let mut taken = self.take(addresses)?;
            if lifetime.is_some_and(|age| taken.connection.is_older_than(age)) {
                continue;
            }
            let usable = poll_fn(|cx| {
                // Without a budget it would look as if nothing had come.
                if !superpoll_rt::has_budget_remaining() {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Poll::Ready(taken.connection.is_reusable(cx))
            });
            if !usable.await {
                self.note_closed(&taken, time::now());
                continue;
            }
            // Its server may be about to close it. Looks close those of the usual age in time.
            let limit = self.idle_life.known();
            if limit.is_none_or(|limit| taken.age(time::now()) < limit) {
                return Some(taken.connection);
            }
        }
    }

    /// Whether all engines have more idle connections than this.
    fn has_surplus(&self, most: usize) -> bool {
        self.idle.load(Ordering::Relaxed) > most as u64
    }

    /// Closes idle connections whose turn is over while there are more than `most`. Returns whether
    /// there are more still, some of which this engine has.
    fn close_surplus(&self, most: usize) -> bool {
        let (idle, now) = (&mut self.connections.borrow_mut().idle, time::now());
        while self.has_surplus(most) && idle.front().is_some_and(|idle| idle.age(now) >= TURN) {
            idle.pop_front();
        }
        self.has_surplus(most) && !idle.is_empty()
    }

    /// Notes that the server has closed an idle connection.
    fn note_closed(&self, idle: &IdleConnection, now: Instant) {
        self.idle_life.was_closed((idle.since, idle.seen, now));
    }

    /// Looks at some of the idle connections that were not looked at since a time, those that have
    /// been idle for longest first, and closes those that were idle for too long or are closed at
    /// the other end. Returns whether there are more.
    fn look_at(&self, begun: Instant, left: &mut usize) -> bool {
        // What a server sends is seen when the connection is taken out, or here next time.
        let mut cx = Context::from_waker(Waker::noop());
        let (now, mut more) = (time::now(), false);
        let limit = self.idle_life.at(now);
        let connections = &mut *self.connections.borrow_mut();
        connections.idle.retain_mut(|idle| {
            if idle.seen >= begun || idle.age(now) >= limit {
                return idle.age(now) < limit;
            }
            // Without a budget it would look as if nothing had come.
            if *left == 0 || !superpoll_rt::has_budget_remaining() {
                more = true;
                return true;
            }
            *left -= 1;
            if !idle.connection.is_reusable(&mut cx) {
                self.note_closed(idle, now);
                return false;
            }
            idle.seen = now;
            true
        });
        connections.shared.retain(|shared| {
            now.saturating_duration_since(shared.used) < limit && shared.connection.is_usable()
        });
        more
    }

    /// Returns a connection that requests share.
    pub(super) fn shared(
        &self,
        addresses: ClientAddresses,
        lifetime: Option<Duration>,
    ) -> Option<Http2Connection> {
        let (shared, now) = (&mut self.connections.borrow_mut().shared, time::now());
        shared.retain(|shared| {
            let age = now.saturating_duration_since(shared.since);
            shared.connection.is_usable() && lifetime.is_none_or(|lifetime| age < lifetime)
        });
        let found = shared.iter_mut().find(|shared| shared.addresses == addresses)?;
        found.used = time::now();
        Some(found.connection.clone())
    }
}

/// The list of servers as an engine knows it, and the turns of the servers there.
struct LocalServers {
    list: Arc<ServerList>,
    servers: Vec<Rc<PooledServer>>,
    credit: Vec<i64>,
}

impl LocalServers {
    /// Takes on a list. Servers that were in the list before keep their connections and their
    /// credit; those that are not in it lose their idle connections.
    fn new(list: Arc<ServerList>, idle: Duration, before: Option<LocalServers>) -> LocalServers {
        let (known, credits) =
            before.map_or_else(Default::default, |before| (before.servers, before.credit));
        let (mut servers, mut credit) = (Vec::new(), Vec::new());
        for server in list.iter() {
            let place = known.iter().position(|known| Arc::ptr_eq(&known.server, server));
            servers.push(match place {
                Some(place) => known[place].clone(),
                None => {
                    let (connections, idle_life) = (RefCell::default(), IdleLife::new(idle));
                    Rc::new(PooledServer { server: server.clone(), connections, idle_life })
                }
            });
            credit.push(place.map_or(0, |place| credits[place]));
        }
        for gone in known.iter().filter(|known| known.server.is_gone()) {
            drop(gone.connections.take());
        }
        LocalServers { list, servers, credit }
    }
}

/// The connections of one engine to the servers of a group, and the turns of the servers there.
pub struct Pool {
    /// The group whose servers these are.
    pub group: Arc<Group>,
    local: RefCell<LocalServers>,
    is_watched: Cell<bool>,
    /// Idle connections above `keep_alive` are to be closed after their turn.
    has_surplus: Cell<bool>,
}

thread_local! {
    static POOLS: RefCell<Vec<Weak<Pool>>> = const { RefCell::new(Vec::new()) };
}

impl Pool {
    /// Returns the pool of this engine for a group: all routes have the same.
    pub fn for_group(group: &Arc<Group>) -> Rc<Pool> {
        POOLS.with(|pools| {
            let mut pools = pools.borrow_mut();
            pools.retain(|pool| pool.strong_count() > 0);
            let mut known = pools.iter().filter_map(Weak::upgrade);
            if let Some(pool) = known.find(|pool| Arc::ptr_eq(&pool.group, group)) {
                return pool;
            }
            let pool = Rc::new(Pool {
                group: group.clone(),
                local: RefCell::new(LocalServers::new(group.members(), group.config().idle, None)),
                is_watched: Cell::new(false),
                has_surplus: Cell::new(false),
            });
            pools.push(Rc::downgrade(&pool));
            pool
        })
    }

    /// Fetches the list of servers if there is another one.
    fn refresh(&self) {
        let mut local = self.local.borrow_mut();
        if local.list.version != self.group.version() {
            let none = LocalServers {
                list: self.group.members(),
                servers: Vec::new(),
                credit: Vec::new(),
            };
            let before = std::mem::replace(&mut *local, none);
            let idle = self.group.config().idle;
            *local = LocalServers::new(local.list.clone(), idle, Some(before));
        }
    }

    /// Chooses a server for a client, but none of those whose numbers are in `tried`.
    pub fn choose(&self, client: Option<IpAddr>, tried: &[u64]) -> Option<Rc<PooledServer>> {
        self.refresh();
        let LocalServers { list, servers, credit } = &mut *self.local.borrow_mut();
        let index = self.group.choose(list, credit, client, tried)?;
        servers.get(index).cloned()
    }

    /// Whether a relay can connect to each of the servers by its address: by TCP, and without TLS.
    pub fn is_direct(&self) -> bool {
        self.refresh();
        self.group.tls.is_none() && self.local.borrow().list.have_addresses
    }

    /// Chooses the server whose cookie a client has, if it is up, or else another one.
    pub(super) fn choose_for(
        &self,
        cookie: Option<&str>,
        client: Option<IpAddr>,
        tried: &[u64],
    ) -> Option<Rc<PooledServer>> {
        if let Some(cookie) = cookie {
            self.refresh();
            let local = self.local.borrow();
            let mut servers = local.servers.iter();
            let own = servers.find(|server| server.token.as_deref() == Some(cookie));
            let is_up = |server: &&Rc<PooledServer>| {
                !tried.contains(&server.id) && self.group.takes_bound(server)
            };
            if let Some(own) = own.filter(is_up) {
                return Some(own.clone());
            }
        }
        self.choose(client, tried)
    }

    /// Notes that an attempt at a server has failed, in the list of those that are not tried again.
    /// If the gateway can make no new connection, neither are servers without a connection that is
    /// kept.
    pub(super) fn note_tried(&self, server: &PooledServer, fault: &Fault, tried: &mut Vec<u64>) {
        tried.push(server.id);
        if fault.local_shortage() == Some(LocalShortage::Everywhere) {
            let local = self.local.borrow();
            let unconnected = local.servers.iter().filter(|server| !server.has_idle());
            tried.extend(unconnected.map(|server| server.id));
        }
    }

    /// Returns the age from which a connection gets no further request.
    fn lifetime(&self) -> Option<Duration> {
        self.group.config().lifetime
    }

    /// Keeps a connection for another request, if it can have one.
    pub(super) fn keep(
        self: &Rc<Pool>,
        server: &PooledServer,
        addresses: ClientAddresses,
        connection: Box<Http1Connection>,
    ) {
        let most = self.group.config().keep_alive;
        let is_old = self.lifetime().is_some_and(|age| connection.is_older_than(age));
        if most == 0 || server.is_gone() || is_old || !connection.is_at_rest() {
            return;
        }
        if self.group.config().fastcgi {
            // Each connection has a process of the server, whether it is idle or not, and requests
            // without a connection wait for one. This one is still active.
            let idle = server.idle.load(Ordering::Relaxed);
            let is_many = idle + server.active.load(Ordering::Relaxed) > most as u64;
            if is_many && connection.is_older_than(TURN) {
                return;
            }
        }
        let (oldest, surplus);
        {
            let bound = if self.group.config().fastcgi { MOST_SURPLUS.max(most) } else { most };
            let idle = &mut server.connections.borrow_mut().idle;
            // Another engine may have them all, and this one needs some.
            let is_full = server.idle.load(Ordering::Relaxed) >= bound as u64
                && idle.len() >= (most / 8).max(1)
                || IdleCount::is_at_limit();
            oldest = is_full.then(|| idle.pop_front()).flatten();
            if is_full && oldest.is_none() {
                return;
            }
            let counted = IdleCount::new(&server.server);
            let since = time::now();
            let (seen, _counted) = (since, counted);
            idle.push_back(IdleConnection { connection, addresses, since, seen, _counted });
            surplus = self.group.config().fastcgi && server.has_surplus(most);
        }
        drop(oldest);
        self.watch();
        if surplus {
            self.watch_surplus();
        }
    }

    /// Closes idle connections above `keep_alive` after their turn.
    fn watch_surplus(self: &Rc<Pool>) {
        if self.has_surplus.replace(true) {
            return;
        }
        let pool = Rc::downgrade(self);
        let watch = async move {
            loop {
                sleep(TURN).await;
                let Some(pool) = pool.upgrade() else { return };
                let most = pool.group.config().keep_alive;
                let local = pool.local.borrow();
                let left = local.servers.iter().filter(|server| server.close_surplus(most));
                pool.has_surplus.set(left.count() > 0);
                if !pool.has_surplus.get() {
                    return;
                }
            }
        };
        superpoll_rt::spawn(watch).detach();
    }

    /// Makes requests share a connection, if there is no other for them.
    pub(super) fn share(
        self: &Rc<Pool>,
        server: &PooledServer,
        addresses: ClientAddresses,
        connection: &Http2Connection,
    ) {
        let is_kept = self.group.config().keep_alive > 0 && !server.is_gone();
        if !is_kept || server.shared(addresses, self.lifetime()).is_some() {
            return;
        }
        let shared = SharedConnection {
            connection: connection.clone(),
            addresses,
            since: time::now(),
            used: time::now(),
            _counted: IdleCount::new(&server.server),
        };
        server.connections.borrow_mut().shared.push(shared);
        self.watch();
    }

    fn watch(self: &Rc<Pool>) {
        if self.is_watched.replace(true) {
            return;
        }
        let pool = Rc::downgrade(self);
        let watch = async move {
            loop {
                let Some(interval) = pool.upgrade().map(|pool| pool.look_interval()) else {
                    return;
                };
                sleep(interval).await;
                let begun = time::now();
                loop {
                    let Some(pool) = pool.upgrade() else { return };
                    match pool.look(begun) {
                        Looked::More => {}
                        Looked::All => break,
                        Looked::None => return pool.is_watched.set(false),
                    }
                    drop(pool);
                    next_turn().await;
                }
            }
        };
        superpoll_rt::spawn(watch).detach();
    }

    /// Returns the time to the next look.
    fn look_interval(&self) -> Duration {
        let local = self.local.borrow();
        let halves = local.servers.iter().map(|server| server.idle_life.limit() / 2);
        halves.fold(LOOK_INTERVAL, Duration::min)
    }

    /// Looks at some of the idle connections that were not looked at since a time.
    fn look(&self, begun: Instant) -> Looked {
        self.refresh();
        let (local, mut left) = (self.local.borrow(), MOST_LOOKS);
        let looked_at = local.servers.iter().map(|server| server.look_at(begun, &mut left));
        match (looked_at.filter(|more| *more).count(), &local.servers) {
            (1.., _) => Looked::More,
            (0, servers) if servers.iter().any(|server| server.has_idle()) => Looked::All,
            (0, _) => Looked::None,
        }
    }
}

/// A request's hold on a server.
pub(super) struct Lease {
    pub pool: Rc<Pool>,
    pub server: Rc<PooledServer>,
    pub addresses: ClientAddresses,
    /// The route that forwarded the request.
    pub route: Rc<str>,
    /// The request's connection, if the request has it alone.
    pub connection: Option<Box<Http1Connection>>,
    /// The id of the request and its trace.
    pub trace: Option<Rc<RequestTrace>>,
    /// The request's line of the access log, if there is a log.
    pub entry: Option<Rc<Entry>>,
    since: Instant,
    /// The status of the answer, once it was counted.
    answered: Cell<Option<StatusCode>>,
}

impl Lease {
    pub(super) fn new(
        pool: Rc<Pool>,
        server: Rc<PooledServer>,
        addresses: ClientAddresses,
        route: Rc<str>,
        entry: Option<Rc<Entry>>,
    ) -> Lease {
        server.requests.fetch_add(1, Ordering::Relaxed);
        server.active.fetch_add(1, Ordering::Relaxed);
        if let Some(entry) = &entry {
            let name = pool.group.shared_name();
            entry.note(|record| record.upstream(name).tries(server.id, &server.label));
        }
        let (since, answered) = (time::now(), Cell::new(None));
        let (connection, trace) = (None, None);
        Lease { pool, server, addresses, route, connection, trace, entry, since, answered }
    }

    /// Notes something about the way to the server, if there is an access log.
    fn note(&self, change: impl FnOnce(&mut UpstreamEnd, Instant)) {
        if let Some(entry) = &self.entry {
            let name = self.pool.group.shared_name();
            entry.note(|record| change(record.upstream(name), self.since));
        }
    }

    /// Notes that a connection was opened for the request.
    pub(super) fn dialled(&self) {
        self.server.dials.fetch_add(1, Ordering::Relaxed);
        self.note(|end, since| {
            (end.is_reused, end.connect) = (false, Some(time::now() - since));
        });
    }

    /// Notes that the server has answered with the head of a response.
    pub(super) fn answered(&self, status: StatusCode) {
        let took = time::now() - self.since;
        self.server.durations.count(took);
        self.note(|end, _| {
            (end.status, end.first_byte) = (Some(status.as_u16()), Some(took));
        });
        self.pool.group.answered(&self.server, status);
        self.answered.set(Some(status));
    }

    /// Notes that the request has failed, perhaps after the head of its response.
    pub(super) fn failed(&self) {
        match self.answered.take() {
            Some(status) => self.pool.group.failed_behind(&self.server, status),
            None => self.pool.group.failed(&self.server),
        }
    }

    /// Ends the hold: the response has broken off.
    pub(super) fn cut_off(self, error: io::Error) {
        let group = &self.pool.group;
        let fault = Fault::Body(error);
        if fault.local_shortage().is_none() {
            self.failed();
        }
        if let Some(entry) = &self.entry {
            entry.note(|record| record.broken_by(BrokenBy::Upstream));
        }
        let trace = self.trace.as_ref();
        group.report_failure(&self.server, &self.route, &fault, Outcome::CutOff, trace);
    }

    /// Reports what a script has written for the log.
    fn report_errors(&mut self) {
        let errors = self.connection.as_mut().and_then(|connection| connection.take_errors());
        if let Some((script, text)) = errors {
            let (group, trace) = (&self.pool.group, self.trace.as_ref());
            group.script_errors(&self.server, (&self.route, &script), &text, trace);
        }
    }

    /// Ends the hold: the response has come to its end.
    pub(super) fn end(mut self) {
        self.report_errors();
        if let Some(connection) = self.connection.take() {
            self.pool.keep(&self.server, self.addresses, connection);
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.report_errors();
        self.server.active.fetch_sub(1, Ordering::Relaxed);
        self.note(|end, since| end.total = Some(time::now() - since));
    }
}
