//! Accepting: the task that each listener has on each engine.

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_lite::future::or;
use superpoll_http::connection_limits::LimitReached;
use superpoll_http::listen::{self, Listener};
use superpoll_http::log::{Event, Level, RateLimited, others};
use superpoll_http::peer::{self, Peer, Permit};
use superpoll_http::transport::Plain;
use superpoll_rt::{spawn, time};

use super::listener_context::ListenerContext;
use super::shared::Shared;
use super::worker::Worker;
use crate::config::Address;

/// The time between two reports that connections are refused, or cannot be accepted.
const REFUSALS: Duration = Duration::from_secs(10);

/// How long a listener pauses when there is no descriptor, not even for a client that is closed at
/// once.
const PAUSE: Duration = Duration::from_millis(10);

/// How long a listener pauses after any other error, such as a shortage of memory. It continues
/// after that: the kernel would continue to take clients, which would have no answer.
const RETRY: Duration = Duration::from_millis(100);

/// Limits the reports that connections are refused.
pub(super) fn refusals() -> RateLimited {
    RateLimited::new(REFUSALS)
}

/// A listener on one engine.
pub(super) struct Accepting {
    pub on: Address,
    /// The address that clients connect to, if there is only one.
    pub local: Option<SocketAddr>,
    pub worker: Rc<Worker>,
    pub context: Rc<ListenerContext>,
    pub closed: Rc<Cell<bool>>,
    pub shared: Arc<Shared>,
    pub refusals: RateLimited,
    pub failures: RateLimited,
}

impl Accepting {
    pub(super) async fn run(self, listener: Listener) {
        let waits = self.worker.wait();
        let counters = &self.worker.counters;
        let mut shed = 0;
        loop {
            let accepted = poll_fn(|cx| {
                waits.remember(cx.waker());
                if self.closed.get() {
                    return Poll::Ready(None);
                }
                listener.poll_accept(cx).map(Some)
            });
            let accepted = accepted.await;
            if listener.shed() > shed {
                counters.refused.add(listener.shed() - shed);
                shed = listener.shed();
                self.refused("no descriptor is left; raise the limit (ulimit -n) or allow fewer");
            }
            match accepted {
                None => break,
                Some(Ok((plain, client))) => self.begin(plain, client),
                Some(Err(error)) if is_limit(&error) => time::sleep(PAUSE).await,
                Some(Err(error)) => {
                    self.failed(&error);
                    time::sleep(RETRY).await;
                }
            }
        }
        let socket = listener.into_socket();
        time::sleep(listen::CLOSING).await;
        drop(socket);
    }

    /// Reports that no connection can be accepted now.
    fn failed(&self, error: &io::Error) {
        let Some(left_out) = self.failures.admit() else { return };
        let (on, others) = (&self.on, others(left_out));
        let message = format!("accepting on {on}: {error}; it is tried again{others}");
        let event = Event::new(Level::Error, "accept-failed", message);
        let event = event.with("listener", on.to_string());
        (self.shared.report)(&event.with("left_out", left_out));
    }

    /// Reports that a connection was closed at once, or another one for it.
    fn closed(&self, which: &str, why: &str) {
        let Some(left_out) = self.refusals.admit() else { return };
        let (on, others) = (&self.on, others(left_out));
        let message = format!("closing {which} on {on}: {why}{others}");
        let event = Event::new(Level::Warning, "connection-refused", message);
        let event = event.with("listener", on.to_string()).with("why", why);
        (self.shared.report)(&event.with("left_out", left_out));
    }

    fn refused(&self, why: &str) {
        self.closed("a new connection", why);
    }

    fn begin(&self, plain: Plain, client: Option<SocketAddr>) {
        // With the PROXY protocol the peer of the connection is not the client.
        let counted = client.filter(|_| !self.context.is_behind_proxy).map(|client| client.ip());
        let permit = match self.context.is_admin {
            true => self.admit_operator(counted),
            false => self.admit(counted),
        };
        let counters = &self.worker.counters;
        counters.accepted.add(1);
        let permit = match permit {
            Ok(permit) => permit,
            Err(why) => {
                counters.refused.add(1);
                return self.refused(why);
            }
        };
        let local = self.local.or_else(|| plain.local_address());
        let is_proxied = self.context.is_behind_proxy;
        let since = peer::seconds_now();
        let replaced = match &permit {
            Permit::Admin(permit) => Some(permit.replaced()),
            Permit::Unlimited | Permit::Client(_) => None,
        };
        let peer = Peer { client, local, is_proxied, permit, since, ..Peer::default() };
        let serving = self.context.clone().begin(plain, peer);
        match replaced {
            None => spawn(serving).detach(),
            Some(replaced) => spawn(or(replaced, serving)).detach(),
        }
    }

    /// Admits a connection of a client.
    fn admit(&self, client: Option<IpAddr>) -> Result<Permit, &'static str> {
        match self.shared.connection_limits.acquire(client) {
            Ok(permit) => Ok(Permit::Client(permit)),
            Err(LimitReached::Total) => {
                Err("there are as many as limits.connections and the limit of descriptors \
                     (ulimit -n) allow")
            }
            Err(LimitReached::Client) => {
                Err("its client has as many as limits.connections_per_client allows")
            }
        }
    }

    /// Admits a connection to the admin listener, if need be in place of an idle one.
    fn admit_operator(&self, client: Option<IpAddr>) -> Result<Permit, &'static str> {
        if !self.worker.router().admits_admin(client) {
            return Err("its client is not among those that allow and deny in [admin] admit");
        }
        let which = "the connection that was idle longest";
        match self.shared.admin_connections.acquire(client) {
            Ok((permit, full)) => {
                match full {
                    None => {}
                    Some(LimitReached::Total) => {
                        self.closed(which, "the admin listener has 64, and another client came");
                    }
                    Some(LimitReached::Client) => {
                        self.closed(which, "its client has 32 to the admin listener, and one more");
                    }
                }
                Ok(Permit::Admin(permit))
            }
            Err(LimitReached::Total) => {
                Err("the admin listener has 64, and each of them has a request under way")
            }
            Err(LimitReached::Client) => {
                Err("its client has 32 to the admin listener, each with a request under way")
            }
        }
    }
}

fn is_limit(error: &io::Error) -> bool {
    use rustix::io::Errno;
    Errno::from_io_error(error).is_some_and(|errno| matches!(errno, Errno::MFILE | Errno::NFILE))
}
