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
use std::time::{Duration, Instant};

use superpoll_rt::time::sleep;

use super::dial::Told;
use super::fault::{Fault, Outcome};
use super::group::Group;
use super::http1::Channel;
use super::http2::Channel2;

/// For how long an idle connection is kept: less than servers commonly do.
const KEPT: Duration = Duration::from_secs(50);

/// The time between two checks of the idle connections.
const LOOK: Duration = Duration::from_secs(5);

struct Idle {
    channel: Box<Channel>,
    told: Told,
    since: Instant,
}

struct Shared {
    channel: Channel2,
    told: Told,
    used: Instant,
}

#[derive(Default)]
struct Place {
    /// The connections that have been idle for the longest time come first.
    idle: VecDeque<Idle>,
    shared: Vec<Shared>,
}

/// The connections of one engine to the servers of a group, and the turns of the servers there.
pub(super) struct Pool {
    pub group: Arc<Group>,
    credit: RefCell<Vec<i64>>,
    places: Vec<RefCell<Place>>,
    is_watched: Cell<bool>,
}

thread_local! {
    static POOLS: RefCell<Vec<Weak<Pool>>> = const { RefCell::new(Vec::new()) };
}

impl Pool {
    /// Returns the pool of this engine for a group: all routes have the same.
    pub fn of(group: &Arc<Group>) -> Rc<Pool> {
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
                places: (0..count).map(|_| RefCell::default()).collect(),
                is_watched: Cell::new(false),
            });
            pools.push(Rc::downgrade(&pool));
            pool
        })
    }

    /// Chooses a server for a client, but none among `tried`.
    pub fn choose(&self, client: Option<IpAddr>, tried: &[usize]) -> Option<usize> {
        self.group.choose(&mut self.credit.borrow_mut(), client, tried)
    }

    /// Whether there is an idle connection to a server, as far as is known.
    pub fn has_idle(&self, index: usize) -> bool {
        let place = self.places[index].borrow();
        !place.idle.is_empty() || !place.shared.is_empty()
    }

    /// Takes out the idle connection that was used last.
    pub fn take(&self, index: usize, told: Told) -> Option<Box<Channel>> {
        let idle = &mut self.places[index].borrow_mut().idle;
        let last = idle.back()?;
        if last.told == told {
            return idle.pop_back().map(|idle| idle.channel);
        }
        let found = idle.iter().rposition(|idle| idle.told == told)?;
        idle.remove(found).map(|idle| idle.channel)
    }

    /// Keeps a connection for another request, if it can have one.
    pub fn keep(self: &Rc<Pool>, index: usize, told: Told, mut channel: Box<Channel>) {
        let most = self.group.config().keep_alive;
        if most == 0 || !channel.is_reusable() {
            return;
        }
        let oldest;
        {
            let idle = &mut self.places[index].borrow_mut().idle;
            oldest = (idle.len() >= most).then(|| idle.pop_front());
            idle.push_back(Idle { channel, told, since: Instant::now() });
        }
        drop(oldest);
        self.watch();
    }

    /// Returns a connection that requests share.
    pub fn shared(&self, index: usize, told: Told) -> Option<Channel2> {
        let shared = &mut self.places[index].borrow_mut().shared;
        shared.retain(|shared| shared.channel.is_usable());
        let found = shared.iter_mut().find(|shared| shared.told == told)?;
        found.used = Instant::now();
        Some(found.channel.clone())
    }

    /// Makes requests share a connection, if there is no other for them.
    pub fn share(self: &Rc<Pool>, index: usize, told: Told, channel: &Channel2) {
        if self.group.config().keep_alive == 0 || self.shared(index, told).is_some() {
            return;
        }
        let shared = Shared { channel: channel.clone(), told, used: Instant::now() };
        self.places[index].borrow_mut().shared.push(shared);
        self.watch();
    }

    fn watch(self: &Rc<Pool>) {
        if self.is_watched.replace(true) {
            return;
        }
        let pool = Rc::downgrade(self);
        let watch = async move {
            loop {
                sleep(LOOK).await;
                let Some(pool) = pool.upgrade() else { return };
                if !pool.look(Instant::now()) {
                    return pool.is_watched.set(false);
                }
            }
        };
        superpoll_rt::spawn(watch).detach();
    }

    /// Closes connections that were idle for too long or are closed at the other end; returns
    /// whether any connection is left.
    fn look(&self, now: Instant) -> bool {
        let mut is_left = false;
        for place in &self.places {
            let place = &mut place.borrow_mut();
            place.idle.retain_mut(|idle| {
                now.saturating_duration_since(idle.since) < KEPT && idle.channel.is_reusable()
            });
            place.shared.retain(|shared| {
                now.saturating_duration_since(shared.used) < KEPT && shared.channel.is_usable()
            });
            is_left |= !place.idle.is_empty() || !place.shared.is_empty();
        }
        is_left
    }
}

/// A request's hold on a server.
pub(super) struct Lease {
    pub pool: Rc<Pool>,
    pub index: usize,
    pub told: Told,
    /// The route that forwarded the request.
    pub route: Rc<str>,
    /// The request's connection, if the request has it alone.
    pub channel: Option<Box<Channel>>,
}

impl Lease {
    pub fn new(pool: Rc<Pool>, index: usize, told: Told, route: Rc<str>) -> Lease {
        let member = &pool.group.members()[index];
        member.requests.fetch_add(1, Ordering::Relaxed);
        member.active.fetch_add(1, Ordering::Relaxed);
        Lease { pool, index, told, route, channel: None }
    }

    /// Ends the hold: the response has broken off.
    pub fn cut_off(self, error: io::Error) {
        let group = &self.pool.group;
        group.failed(self.index);
        group.tell(self.index, &self.route, &Fault::Body(error), Outcome::CutOff);
    }

    /// Ends the hold: the response has come to its end.
    pub fn end(mut self) {
        if let Some(channel) = self.channel.take() {
            self.pool.keep(self.index, self.told, channel);
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.pool.group.members()[self.index].active.fetch_sub(1, Ordering::Relaxed);
    }
}
