//! The attempts to get an answer to a request: the server of each, and what follows from a failure.
//!
//! A request is sent again if that cannot carry it out twice: any request of which nothing was
//! sent; and a request that was sent, if its method is idempotent (RFC 9110, section 9.2.2) and its
//! body is still there, for which small bodies of such requests are read first. A connection that
//! turns out to have been closed while it was idle costs another connection to the same server,
//! once. A failure costs a retry, which goes to another server: the first server would fail again.
//! A server that takes too long for its response has failed, but its request is not sent again: the
//! request may be the reason, and would keep the next server busy as well.
//!
//! ```text
//!   server --lease--> ATTEMPT --> response
//!     ^                  |
//!     |                  | failed: the idle connection was closed, and another one is opened;
//!     +------------------+         or another server is chosen; or the client is answered
//! ```

use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::rc::Rc;

use http::Response;
use superpoll_rt::time::timeout;

use super::dial::ClientAddresses;
use super::fault::{self, FailedAttempt, Outcome};
use super::forwarder::Forwarder;
use super::pool::{Lease, PooledServer};
use super::sticky::ClientCookie;
use crate::body::Body;
use crate::log::Entry;
use crate::reply;
use crate::trace::RequestTrace;

/// The facts about a request that decide which server gets it, or are noted about it.
#[derive(Clone, Copy)]
pub(super) struct RequestFacts<'a> {
    /// The cookie that it has, if the upstream gives one.
    pub sticky: Option<&'a ClientCookie>,
    pub client: Option<IpAddr>,
    /// The addresses for the PROXY protocol.
    pub addresses: ClientAddresses,
    pub trace: Option<&'a Rc<RequestTrace>>,
    pub entry: Option<&'a Rc<Entry>>,
}

/// The attempts for one request.
pub(super) struct Attempts<'a> {
    forwarder: &'a Forwarder,
    facts: RequestFacts<'a>,
    server: Option<Rc<PooledServer>>,
    /// The servers that have failed.
    tried: Vec<u64>,
    /// The retries that are left.
    left: u32,
    /// The next attempt is made on a new connection.
    pub must_dial: bool,
}

impl<'a> Attempts<'a> {
    /// Chooses the first server.
    pub(super) fn new(forwarder: &'a Forwarder, facts: RequestFacts<'a>) -> Attempts<'a> {
        let (tried, left) = (Vec::new(), forwarder.retries);
        let mut attempts =
            Attempts { forwarder, facts, server: None, tried, left, must_dial: false };
        attempts.choose();
        attempts
    }

    /// Returns the wait for the look-up of the servers' names, if there is no server before its
    /// end. After it another one is [chosen](Attempts::choose).
    pub(super) fn lookup(&self) -> Option<Pin<Box<impl Future + use<'a>>>> {
        let (group, limit) = (&self.forwarder.pool.group, self.forwarder.connect);
        let waits = self.server.is_none() && group.is_being_looked_up();
        // Rare cases are kept out of the future that each request has.
        waits.then(|| Box::pin(timeout(limit, group.has_servers())))
    }

    /// Chooses a server that was not tried.
    pub(super) fn choose(&mut self) {
        let cookie = self.facts.sticky.and_then(|client| client.value.as_deref());
        self.server = self.forwarder.pool.choose_for(cookie, self.facts.client, &self.tried);
    }

    /// Begins an attempt.
    ///
    /// # Errors
    ///
    /// There is no server. The client is answered with this.
    pub(super) fn lease(&self) -> Result<Lease, Box<Response<Body>>> {
        let Forwarder { pool, route, .. } = self.forwarder;
        let RequestFacts { addresses, trace, entry, .. } = self.facts;
        let Some(server) = &self.server else { return Err(self.turn_away()) };
        let entry = entry.cloned();
        let mut lease = Lease::new(pool.clone(), server.clone(), addresses, route.clone(), entry);
        lease.trace = trace.cloned();
        Ok(lease)
    }

    /// Answers a request for which there is no server.
    #[cold]
    fn turn_away(&self) -> Box<Response<Body>> {
        let group = &self.forwarder.pool.group;
        group.turned_away(&self.forwarder.route, self.facts.trace);
        if let Some(entry) = self.facts.entry {
            entry.note(|record| {
                record.upstream(group.shared_name());
            });
        }
        let seconds = group.retry_after().as_secs_f64().ceil() as u64;
        Box::new(reply::unavailable(seconds.max(1)))
    }

    /// Notes that an attempt has failed, and chooses the way of the next one.
    ///
    /// # Errors
    ///
    /// There is no other attempt. The client is answered with this.
    pub(super) fn failed(
        &mut self,
        failed: FailedAttempt,
        may_repeat: bool,
    ) -> Result<(), Box<Response<Body>>> {
        let Some(server) = self.server.take() else { return Err(self.turn_away()) };
        let status = failed.status();
        let FailedAttempt { fault, was_idle, may_go_on } = failed;
        let Forwarder { pool, route, .. } = self.forwarder;
        if !was_idle {
            pool.group.attempt_failed(&server, &fault);
            pool.note_tried(&server, &fault, &mut self.tried);
        } else if may_repeat {
            (self.server, self.must_dial) = (Some(server), true);
            return Ok(());
        }
        if may_go_on && may_repeat && self.left > 0 {
            self.choose();
        }
        let (outcome, next) = match self.server {
            Some(_) => (Outcome::Retried, Ok(())),
            None => (Outcome::Answered(status), Err(Box::new(fault::response(status, &fault)))),
        };
        pool.group.report_failure(&server, route, &fault, outcome, self.facts.trace);
        (self.left, self.must_dial) = (self.left.saturating_sub(1), false);
        next
    }
}
