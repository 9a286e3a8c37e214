//! The connections of one engine to the servers of a group.
//!
//! Idle connections are used last in, first out, so that no more of them are kept warm than are
//! needed. A task checks them now and then, and closes those that were not used for too long and
//! those that servers have closed. It lives only as long as there are idle connections.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use superpoll_rt::time::sleep;

use super::dial::ClientAddresses;
use super::fault::{Fault, Outcome};
use super::group::Group;
use super::http1::Http1Connection;
use super::http2::Http2Connection;
use super::lane::RawConnection;

/// For how long an idle connection is kept: less than servers commonly do.
const KEEP_ALIVE: Duration = Duration::from_secs(50);

/// The time between two checks of the idle connections.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// A connection that no request has.
pub(super) enum Idle {
    Hyper(Box<Http1Connection>),
    Raw(Box<RawConnection>),
}

impl Idle {
    fn is_reusable(&mut self) -> bool {
        match self {
            Idle::Hyper(connection) => connection.is_reusable(),
            Idle::Raw(connection) => {
                connection.is_reusable(&mut Context::from_waker(Waker::noop()))
            }
        }
    }

    /// Whether it can be kept. Whether its server has closed it is seen when it is taken out.
    fn can_be_kept(&mut self) -> bool {
        match self {
            Idle::Hyper(connection) => connection.is_reusable(),
            Idle::Raw(connection) => connection.is_at_rest(),
        }
    }

    /// Whether nothing is lost without hyper, as far as is known.
    fn may_lose_hyper(&self) -> bool {
        match self {
            Idle::Hyper(connection) => connection.is_flushed(),
            Idle::Raw(_) => true,
        }
    }

    /// Returns it with hyper on it; `None` if it cannot be used.
    pub(super) async fn with_hyper(self) -> Option<Box<Http1Connection>> {
        match self {
            Idle::Hyper(connection) => Some(connection),
            Idle::Raw(raw) => {
                let (stream, read, unsent) = raw.into_parts();
                let is_at_rest = read.is_empty() && unsent.is_none();
                let connection = Http1Connection::open(stream).await.ok();
                connection.filter(|_| is_at_rest).map(Box::new)
            }
        }
    }

    /// Returns it without hyper; `None` if it cannot be used.
    fn without_hyper(self, cx: &mut Context<'_>) -> Option<Box<RawConnection>> {
        let mut raw = match self {
            Idle::Raw(raw) => raw,
            Idle::Hyper(mut connection) => {
                let is_usable = connection.is_reusable() && connection.is_flushed();
                let parts = is_usable.then(|| connection.into_stream())??;
                let (stream, read) = parts;
                read.is_empty().then(|| Box::new(RawConnection::new(stream)))?
            }
        };
        raw.is_reusable(cx).then_some(raw)
    }
}

struct IdleConnection {
    connection: Idle,
    addresses: ClientAddresses,
    since: Instant,
    _counted: IdleCount,
}

/// Counts an idle connection as long as it is one.
struct IdleCount {
    group: Arc<Group>,
    index: usize,
}

impl IdleCount {
    fn new(group: &Arc<Group>, index: usize) -> IdleCount {
        group.members()[index].idle.fetch_add(1, Ordering::Relaxed);
        IdleCount { group: group.clone(), index }
    }
}

impl Drop for IdleCount {
    fn drop(&mut self) {
        self.group.members()[self.index].idle.fetch_sub(1, Ordering::Relaxed);
    }
}

struct SharedConnection {
    connection: Http2Connection,
    addresses: ClientAddresses,
    used: Instant,
    _counted: IdleCount,
}

#[derive(Default)]
struct ServerConnections {
    /// The connections that have been idle for the longest time come first.
    idle: VecDeque<IdleConnection>,
    shared: Vec<SharedConnection>,
}

/// The connections of one engine to the servers of a group, and the turns of the servers there.
pub(super) struct Pool {
    pub group: Arc<Group>,
    credit: RefCell<Vec<i64>>,
    servers: Vec<RefCell<ServerConnections>>,
    is_watched: Cell<bool>,
}

thread_local! {
    static POOLS: RefCell<Vec<Weak<Pool>>> = const { RefCell::new(Vec::new()) };
}

impl Pool {
    /// Returns the pool of this engine for a group: all routes have the same.
    pub(super) fn of(group: &Arc<Group>) -> Rc<Pool> {
        POOLS.with(|pools| {
            let mut pools = pools.borrow_mut();
            pools.retain(|pool| pool.strong_count() > 0);
            let mut known = pools.iter().filter_map(Weak::upgrade);
            if let Some(pool) = known.find(|pool| Arc::ptr_eq(&pool.group, group)) {
                return pool;
            }
            let count = group.members().len();
            let pool = Rc::new(Pool {
                group: group.clone(),
                credit: RefCell::new(vec![0; count]),
                servers: (0..count).map(|_| RefCell::default()).collect(),
                is_watched: Cell::new(false),
            });
            pools.push(Rc::downgrade(&pool));
            pool
        })
    }

    /// Chooses a server for a client, but none among `tried`.
    pub(super) fn choose(&self, client: Option<IpAddr>, tried: &[usize]) -> Option<usize> {
        self.group.choose(&mut self.credit.borrow_mut(), client, tried)
    }

    /// Whether there is an idle connection to a server, as far as is known.
    pub(super) fn has_idle(&self, index: usize) -> bool {
        let server = self.servers[index].borrow();
        !server.idle.is_empty() || !server.shared.is_empty()
    }

    /// Takes out the idle connection that was used last.
    pub(super) fn take(&self, index: usize, addresses: ClientAddresses) -> Option<Idle> {
        let idle = &mut self.servers[index].borrow_mut().idle;
        let last = idle.back()?;
        if last.addresses == addresses {
            return idle.pop_back().map(|idle| idle.connection);
        }
        let found = idle.iter().rposition(|idle| idle.addresses == addresses)?;
        idle.remove(found).map(|idle| idle.connection)
    }

    /// Takes out the idle connection that was used last and tells no addresses of clients, without
    /// hyper. Those that turn out to be unusable are closed.
    pub(super) fn take_raw(
        &self,
        index: usize,
        cx: &mut Context<'_>,
    ) -> Option<Box<RawConnection>> {
        loop {
            let taken = {
                let idle = &mut self.servers[index].borrow_mut().idle;
                let fits = |idle: &IdleConnection| {
                    idle.addresses.is_none() && idle.connection.may_lose_hyper()
                };
                let found = idle.iter().rposition(fits)?;
                idle.remove(found)?.connection
            };
            let usable = taken.without_hyper(cx);
            if usable.is_some() {
                return usable;
            }
        }
    }

    /// Keeps a connection for another request, if it can have one.
    pub(super) fn keep(
        self: &Rc<Pool>,
        index: usize,
        addresses: ClientAddresses,
        mut connection: Idle,
    ) {
        let most = self.group.config().keep_alive;
        if most == 0 || !connection.can_be_kept() {
            return;
        }
        let oldest;
        {
            let idle = &mut self.servers[index].borrow_mut().idle;
            oldest = (idle.len() >= most).then(|| idle.pop_front());
            let counted = IdleCount::new(&self.group, index);
            let since = Instant::now();
            idle.push_back(IdleConnection { connection, addresses, since, _counted: counted });
        }
        drop(oldest);
        self.watch();
    }

    /// Returns a connection that requests share.
    pub(super) fn shared(
        &self,
        index: usize,
        addresses: ClientAddresses,
    ) -> Option<Http2Connection> {
        let shared = &mut self.servers[index].borrow_mut().shared;
        shared.retain(|shared| shared.connection.is_usable());
        let found = shared.iter_mut().find(|shared| shared.addresses == addresses)?;
        found.used = Instant::now();
        Some(found.connection.clone())
    }

    /// Makes requests share a connection, if there is no other for them.
    pub(super) fn share(
        self: &Rc<Pool>,
        index: usize,
        addresses: ClientAddresses,
        connection: &Http2Connection,
    ) {
        if self.group.config().keep_alive == 0 || self.shared(index, addresses).is_some() {
            return;
        }
        let shared = SharedConnection {
            connection: connection.clone(),
            addresses,
            used: Instant::now(),
            _counted: IdleCount::new(&self.group, index),
        };
        self.servers[index].borrow_mut().shared.push(shared);
        self.watch();
    }

    fn watch(self: &Rc<Pool>) {
        if self.is_watched.replace(true) {
            return;
        }
        let pool = Rc::downgrade(self);
        let watch = async move {
            loop {
                sleep(CHECK_INTERVAL).await;
                let Some(pool) = pool.upgrade() else { return };
                if !pool.drop_expired(Instant::now()) {
                    return pool.is_watched.set(false);
                }
            }
        };
        superpoll_rt::spawn(watch).detach();
    }

    /// Closes connections that were idle for too long or are closed at the other end; returns
    /// whether any connection is left.
    fn drop_expired(&self, now: Instant) -> bool {
        let mut is_left = false;
        for server in &self.servers {
            let server = &mut server.borrow_mut();
            server.idle.retain_mut(|idle| {
                now.saturating_duration_since(idle.since) < KEEP_ALIVE
                    && idle.connection.is_reusable()
            });
            server.shared.retain(|shared| {
                now.saturating_duration_since(shared.used) < KEEP_ALIVE
                    && shared.connection.is_usable()
            });
            is_left |= !server.idle.is_empty() || !server.shared.is_empty();
        }
        is_left
    }
}

/// A request's hold on a server.
pub(super) struct Lease {
    pub pool: Rc<Pool>,
    pub index: usize,
    pub addresses: ClientAddresses,
    /// The route that forwarded the request.
    pub route: Rc<str>,
    /// The request's connection, if the request has it alone.
    pub connection: Option<Box<Http1Connection>>,
    /// The connection of a request that passes hyper.
    pub raw: Option<Box<RawConnection>>,
    since: Instant,
}

impl Lease {
    pub(super) fn new(
        pool: Rc<Pool>,
        index: usize,
        addresses: ClientAddresses,
        route: Rc<str>,
    ) -> Lease {
        let member = &pool.group.members()[index];
        member.requests.fetch_add(1, Ordering::Relaxed);
        member.active.fetch_add(1, Ordering::Relaxed);
        let since = Instant::now();
        Lease { pool, index, addresses, route, connection: None, raw: None, since }
    }

    /// Notes that a connection was opened for the request.
    pub(super) fn dialled(&self) {
        self.pool.group.members()[self.index].dials.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that the server has answered with the head of a response.
    pub(super) fn answered(&self) {
        let group = &self.pool.group;
        group.members()[self.index].durations.count(self.since.elapsed());
        group.worked(self.index);
    }

    /// Ends the hold: the response has broken off.
    pub(super) fn cut_off(self, error: io::Error) {
        let group = &self.pool.group;
        group.failed(self.index);
        group.report_failure(self.index, &self.route, &Fault::Body(error), Outcome::CutOff);
    }

    /// Ends the hold: the response has come to its end.
    pub(super) fn end(mut self) {
        let connection = self.connection.take().map(Idle::Hyper);
        if let Some(connection) = connection.or(self.raw.take().map(Idle::Raw)) {
            self.pool.keep(self.index, self.addresses, connection);
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.pool.group.members()[self.index].active.fetch_sub(1, Ordering::Relaxed);
    }
}
