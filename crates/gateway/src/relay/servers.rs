//! The servers of a group, as a connection tries them: each at most once.
//!
//! A pair connects by itself to servers that have addresses, and is sent elsewhere if one of them
//! turns out not to be reachable. To others, as those with TLS, the introduction connects.

use std::io;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use superpoll_http::log::BrokenBy;
use superpoll_http::transport::Upstream;
use superpoll_http::upstream::{self, Group, LocalShortage, Pool, PooledServer};
use superpoll_rt::time;

use super::shared::ActivePair;
use super::stream::Stream;

/// A connection's use of a server.
struct ActiveServer(Rc<PooledServer>);

impl Drop for ActiveServer {
    fn drop(&mut self) {
        self.0.active.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The server of a connection, and those that it has tried before.
pub(super) struct Servers {
    pool: Rc<Pool>,
    client: Option<IpAddr>,
    tried: Vec<u64>,
    server: ActiveServer,
    /// When the server was tried, if there is an access log.
    began: Option<Instant>,
}

impl Servers {
    /// Chooses a server for a client, if one is up.
    pub(super) fn choose(
        group: &Arc<Group>,
        client: Option<IpAddr>,
        active: &ActivePair,
    ) -> Option<Servers> {
        let pool = active.local().pool(group);
        let (server, began) = begin(group, pool.choose(client, &[])?, active);
        Some(Servers { pool, client, tried: Vec::new(), server, began })
    }

    /// The same, and waits until the names of the group were looked up. `None` if there is none,
    /// which has been reported.
    pub(super) async fn find(
        group: &Arc<Group>,
        client: Option<IpAddr>,
        active: &ActivePair,
    ) -> Option<Servers> {
        let mut found = Servers::choose(group, client, active);
        if found.is_none() && group.is_being_looked_up() {
            let limit = active.options().connect_timeout;
            let _ = time::timeout(limit, group.has_servers()).await;
            found = Servers::choose(group, client, active);
        }
        if found.is_none() {
            active.note(|record| {
                record.upstream(Some(group.shared_name()));
                record.broken_by = Some(BrokenBy::Upstream);
            });
            active.local().shared.none_up(group);
        }
        found
    }

    /// Whether a pair can connect to them by itself.
    pub(super) fn are_direct(&self) -> bool {
        self.pool.is_direct()
    }

    /// Begins to connect to the server, as [`Stream::begin`].
    pub(super) fn begin(&self, sends: bool) -> io::Result<Stream> {
        let connect = |address| Stream::begin(address, sends);
        upstream::begin(&self.pool.group, &self.server.0, connect)
    }

    /// Connects to a server, and sends these bytes ahead of everything. `None` if no server can be
    /// reached, which has been reported.
    pub(super) async fn dial(&mut self, header: &[u8], active: &ActivePair) -> Option<Upstream> {
        let limit = active.options().connect_timeout;
        loop {
            let dialled =
                upstream::dial_for_relay(&self.pool.group, &self.server.0, header, limit).await;
            match dialled {
                Ok(upstream) => {
                    self.worked();
                    active.note_connect(self.began);
                    return Some(upstream);
                }
                Err(error) => self.failed(error, active).then_some(())?,
            }
        }
    }

    /// Notes that the server is connected.
    pub(super) fn worked(&self) {
        self.pool.group.worked(&self.server.0);
    }

    /// Notes that the server could not be reached. Returns whether there is another one now; the
    /// failure has been reported.
    pub(super) fn failed(&mut self, error: io::Error, active: &ActivePair) -> bool {
        let (group, server) = (self.pool.group.clone(), self.server.0.clone());
        let lack = LocalShortage::from_error(&error);
        if lack.is_none() {
            group.unreachable(&server);
        }
        self.tried.push(server.id);
        let next = match lack {
            Some(LocalShortage::Everywhere) => None,
            Some(LocalShortage::Ports) | None => self.pool.choose(self.client, &self.tried),
        };
        active.local().shared.server_not_connected(&group, &server, error, next.is_some());
        server.retries.fetch_add(u64::from(next.is_some()), Ordering::Relaxed);
        match next {
            Some(next) => {
                (self.server, self.began) = begin(&group, next, active);
                true
            }
            None => {
                active.broken_by(BrokenBy::Upstream);
                false
            }
        }
    }
}

/// Counts a connection to a server.
fn begin(
    group: &Group,
    server: Rc<PooledServer>,
    active: &ActivePair,
) -> (ActiveServer, Option<Instant>) {
    active.note(|record| {
        record.upstream(Some(group.shared_name())).tries(server.id, &server.label);
    });
    for count in [&server.requests, &server.active, &server.dials] {
        count.fetch_add(1, Ordering::Relaxed);
    }
    (ActiveServer(server), active.is_logged().then(time::now))
}
