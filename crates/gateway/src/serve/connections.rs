//! The connections of an engine, for operators.
//!
//! They are looked at some at a time, and other tasks of the engine have their turn in between: a
//! million parked connections are a look of many milliseconds.

use std::rc::Rc;

use futures_lite::future::yield_now;
use superpoll_http::admin::{
    ClientFilter, ConnectionList, ConnectionQuery, ConnectionReport, Protocol, Report, UserCommand,
};
use superpoll_http::peer::{self, Peer};

use super::local::{LocalServer, local_server};
use super::operations::{ConnectionsOperation, Listing};

/// How many places of connections are looked at in one go.
const CHUNK: usize = 4096;

/// The connections of an engine that fit a query, until now.
struct Found {
    query: ConnectionQuery,
    list: ConnectionList,
    now: u32,
}

impl Found {
    fn take(&mut self, peer: &Peer, protocol: Protocol, parked: bool) {
        let fits = self.query.client.is_none_or(|client| client.has(peer.client))
            && self.query.parked.is_none_or(|wanted| wanted == parked);
        if !fits {
            return;
        }
        self.list.total += 1;
        self.list.connections.push(ConnectionReport {
            client: peer.client.map(|client| client.to_string()),
            local: peer.local.map(|local| local.to_string()),
            protocol,
            tls: peer.is_encrypted,
            parked,
            age_seconds: (peer.since > 0).then(|| self.now.saturating_sub(peer.since)),
            process: std::process::id(),
        });
        // Twice as many as are wanted, at most, are kept at a time.
        if self.list.connections.len() >= self.query.limit.saturating_mul(2).max(64) {
            self.list.shorten(self.query.limit);
        }
    }
}

/// Lists or closes connections of this engine.
pub(super) fn operate(server: u64, operation: ConnectionsOperation) -> Listing {
    match operation {
        ConnectionsOperation::List(query) => Box::pin(list(server, query)),
        ConnectionsOperation::Close(client) => Box::pin(close(server, client)),
        ConnectionsOperation::EndUser(UserCommand { user, channel, may_return }) => {
            Box::pin(async move {
                let end = |local: Rc<LocalServer>| {
                    local.worker.channels.end_user(&user, channel.as_deref(), may_return)
                };
                Report::Closed(local_server(server).map_or(0, end))
            })
        }
    }
}

async fn list(server: u64, query: ConnectionQuery) -> Report {
    let now = peer::seconds_now();
    let mut found = Found { query, list: ConnectionList::default(), now };
    let mut next = Some(0);
    while let Some(from) = next {
        next = local_server(server).and_then(|local| {
            local.worker.visit(from, CHUNK, |one| found.take(&one.peer, one.protocol, false))
        });
        yield_now().await;
    }
    next = Some(0);
    while let Some(from) = next {
        next = local_server(server).and_then(|local| {
            let lot = &local.worker.parking_lot;
            lot.visit(from, CHUNK, |peer, protocol| found.take(peer, protocol, true))
        });
        yield_now().await;
    }
    found.list.shorten(found.query.limit);
    Report::Connections(found.list)
}

/// Closes the connections of a client on this engine.
async fn close(server: u64, client: ClientFilter) -> Report {
    let chosen = |peer: &Peer| client.has(peer.client);
    let mut count = local_server(server).map_or(0, |local| local.worker.close(chosen));
    let mut next = Some(0);
    while let Some(from) = next {
        next = local_server(server).and_then(|local| {
            let (closed, next) = local.worker.parking_lot.close(from, CHUNK, chosen);
            count += closed;
            next
        });
        yield_now().await;
    }
    Report::Closed(count)
}
