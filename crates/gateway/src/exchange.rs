//! What a request comes with beside its head and body: who asks, and what may become of the connection.
//!
//! A service answers with a response. Two kinds of answers are more than that, and both need the connection
//! itself: a protocol that takes it over (WebSocket), and an answer that is to be waited for at the price of a
//! descriptor (long-poll). The service says so here and the connection does it, as only the connection knows when
//! hyper has nothing of the stream in its hands any more.

use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;

use bytes::Bytes;

use crate::park::Waiting;
use crate::seats::Seat;
use crate::tally::Tally;
use crate::transport::Transport;

/// Who is at the other end.
#[derive(Debug)]
pub struct Peer {
    /// The client's address, as the PROXY protocol or the socket tells it; none in the Unix domain.
    pub client: Option<SocketAddr>,
    /// The address that the client has connected to; none in the Unix domain.
    pub local: Option<SocketAddr>,
    /// Whether the connection is encrypted.
    pub is_encrypted: bool,
    /// Whether a proxy connects for the client and says so by the PROXY protocol.
    pub is_proxied: bool,
    /// Its place among the connections that there may be.
    pub(crate) seat: Option<Seat>,
}

/// A future that stays on its engine.
pub type LocalFuture<T = ()> = Pin<Box<dyn Future<Output = T>>>;

/// What goes on with a connection that has left HTTP, and with the bytes that were read of it beyond the request.
pub(crate) type TakeOver = Box<dyn FnOnce(Transport, Bytes) -> LocalFuture>;

/// What a service asks of the connection.
pub(crate) enum Plan {
    TakeOver(TakeOver),
    Wait(Box<dyn FnOnce(Waiting)>),
}

/// One request's hold on its connection. Clones are the same.
#[derive(Clone)]
pub struct Exchange {
    pub(crate) peer: Rc<Peer>,
    pub(crate) can_take_over: bool,
    pub(crate) can_wait: bool,
    pub(crate) plan: Rc<RefCell<Option<Plan>>>,
    /// What has happened on the connection, if the request is alone on it.
    pub(crate) tally: Option<Rc<Tally>>,
}

impl Exchange {
    /// Who asks.
    #[must_use]
    pub fn peer(&self) -> &Rc<Peer> {
        &self.peer
    }

    /// Whether the connection can be taken over, which is so with HTTP/1.1.
    #[must_use]
    pub fn can_take_over(&self) -> bool {
        self.can_take_over
    }

    /// Has the connection given to `then` when the response of this request, which must be 101, was sent.
    pub fn take_over(&self, then: impl FnOnce(Transport, Bytes) -> LocalFuture + 'static) {
        *self.plan.borrow_mut() = Some(Plan::TakeOver(Box::new(then)));
    }

    /// Whether this request can wait for its answer without a task, which is so with HTTP/1 that is not encrypted.
    #[must_use]
    pub fn can_wait(&self) -> bool {
        self.can_wait
    }

    /// Ends the request, and its connection, as soon as the client has ended its side of it and everything that it has
    /// sent was read. Otherwise the response is still sent: a client may end its side after its request
    /// (`shutdown(SHUT_WR)`) and read on. A response that may take indefinitely cannot tell such a client from one that
    /// has gone until it writes.
    ///
    /// A stream of HTTP/2 is ended with its connection in any case.
    pub fn end_with_client(&self) {
        if let Some(tally) = &self.tally {
            tally.ends_with_client.set(true);
        }
    }

    /// Has the connection taken out of hyper and given to `then`, which has to see that it is answered one day. The
    /// service then returns a future that is never ready; it is dropped.
    pub fn wait(&self, then: impl FnOnce(Waiting) + 'static) {
        *self.plan.borrow_mut() = Some(Plan::Wait(Box::new(then)));
    }
}

impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exchange")
            .field("peer", &self.peer)
            .field("can_take_over", &self.can_take_over)
            .field("can_wait", &self.can_wait)
            .finish_non_exhaustive()
    }
}
