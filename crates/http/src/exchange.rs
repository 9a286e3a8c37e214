//! The context of a request, in addition to its head and body: its peer, and the plan for its
//! connection.
//!
//! A service answers with a response. Two kinds of answers are more than that, and both need the
//! connection itself: a protocol that takes the connection over (WebSocket), and an answer that
//! waits at the price of a descriptor (long-poll), or of a stream of HTTP/2. The service states its
//! plan here and the connection carries it out, since only the connection knows when everything was
//! written.

use std::any::Any;
use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Response;

use crate::body::Body;
use crate::interim::InterimResponses;
use crate::io_activity::IoActivity;
use crate::log::Entry;
use crate::parking_lot::WaitingRequest;
use crate::peer::Peer;
use crate::trace::RequestTrace;
use crate::transport::Transport;

/// A future that stays on its engine.
pub type LocalFuture<T = ()> = Pin<Box<dyn Future<Output = T>>>;

/// Continues a connection that has left HTTP, with the bytes that were read of it beyond the
/// request.
pub(crate) type TakeOver = Box<dyn FnOnce(Transport, Bytes) -> LocalFuture>;

/// The plan of a service for the connection.
pub enum Plan {
    /// The connection is given to a function after the response, as for a WebSocket.
    TakeOver(TakeOver),
    /// The request waits without a task, and the connection is parked meanwhile.
    Wait(Box<dyn FnOnce(WaitingRequest)>),
    /// The request waits without a task on its stream of HTTP/2.
    Rest(Box<dyn RestingAnswer>),
}

/// An answer that waits for news, and needs no task for that.
pub trait RestingAnswer: Any {
    /// Returns the answer, once there is one.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Response<Body>>;

    /// Whether it has no answer now, and gets none before there is news.
    fn can_rest(&self) -> bool;
}

/// Marks a response that a request has waited for until there was news, which is no slowness.
#[derive(Clone, Copy, Debug)]
pub struct Waited;

/// One request's hold on its connection. All clones share it.
#[derive(Clone)]
pub struct Exchange {
    /// The client.
    pub peer: Rc<Peer>,
    /// Whether the connection can be given to a function after the response.
    pub can_take_over: bool,
    /// Whether the request can wait without a task, on its connection or on its stream.
    pub can_wait: bool,
    /// Whether only programs on this machine reach the listener, and no proxy is known to be before
    /// it.
    pub is_private: bool,
    /// Whether the answer to a request that waits without its head may have
    /// `Strict-Transport-Security`.
    pub may_have_hsts: bool,
    /// What happens to the connection after the handler, where that is unusual.
    pub plan: Rc<RefCell<Option<Plan>>>,
    /// The interim responses for the client, if it understands them.
    pub interim: Option<Rc<InterimResponses>>,
    /// Whether the request is alone on its connection.
    pub is_alone: bool,
    /// The events on the connection.
    pub io_activity: Rc<IoActivity>,
    /// The id of the request and its trace, if requests are followed.
    pub trace: Option<Rc<RequestTrace>>,
    /// The request's line of the access log, if there is a log. The line is written when no part of
    /// the request has it any more.
    pub entry: Option<Rc<Entry>>,
}

impl Exchange {
    /// Returns the peer.
    #[must_use]
    #[inline]
    pub fn peer(&self) -> &Rc<Peer> {
        &self.peer
    }

    /// Whether the connection can be taken over; true for HTTP/1.1.
    #[must_use]
    #[inline]
    pub fn can_take_over(&self) -> bool {
        self.can_take_over
    }

    /// Gives the connection to `then` when the response of this request, which must be 101, was
    /// sent.
    pub fn take_over(&self, then: impl FnOnce(Transport, Bytes) -> LocalFuture + 'static) {
        let then: TakeOver = match self.entry.clone() {
            None => Box::new(then),
            // The line of the access log is written at the end of the other protocol.
            Some(entry) => Box::new(move |transport, read| {
                entry.detach();
                let goes_on = then(transport, read);
                Box::pin(async move {
                    goes_on.await;
                    drop(entry);
                })
            }),
        };
        *self.plan.borrow_mut() = Some(Plan::TakeOver(then));
    }

    /// Whether this request can [`wait`](Exchange::wait) for its answer, and its connection with
    /// it; true for HTTP/1.
    #[must_use]
    #[inline]
    pub fn can_wait(&self) -> bool {
        self.can_wait && self.is_alone
    }

    /// Whether its stream can be left to an answer that [waits](Exchange::rest); true for HTTP/2.
    #[must_use]
    #[inline]
    pub fn can_rest(&self) -> bool {
        self.can_wait && !self.is_alone
    }

    /// Ends the request, and its connection, as soon as the client has ended its side of it and
    /// everything that it has sent was read. Otherwise the response is still sent: a client may end
    /// its side after its request (`shutdown(SHUT_WR)`) and read on. A response that may take
    /// indefinitely cannot tell such a client from one that has gone until it writes.
    ///
    /// A stream of HTTP/2 is ended with its connection in any case.
    pub fn end_with_client(&self) {
        if self.is_alone {
            self.io_activity.ends_with_client.set(true);
        }
    }

    /// Limits the bytes that the connection's socket holds and has not sent, from its next flush
    /// on and for as long as it lives. See [`limit_unsent`](crate::plain_stream::limit_unsent).
    #[inline]
    pub fn limit_unsent(&self, bytes: u32) {
        self.io_activity.unsent_limit.set(Some(bytes));
    }

    /// Takes the connection from its task and gives it to `then`, which has to make sure that it is
    /// answered one day. The service then returns a future that is never ready; it is dropped.
    pub fn wait(&self, then: impl FnOnce(WaitingRequest) + 'static) {
        let may_have_hsts = self.may_have_hsts;
        let then = move |mut waiting: WaitingRequest| {
            if let Some(pending) = &mut waiting.parked.pending {
                pending.form.may_have_hsts = may_have_hsts;
            }
            then(waiting);
        };
        *self.plan.borrow_mut() = Some(Plan::Wait(Box::new(then)));
    }

    /// Leaves the stream of this request to an answer that waits for news. The service calls this
    /// in its own task, and returns a future that is never ready; it is dropped.
    pub fn rest(&self, answer: impl RestingAnswer) {
        *self.plan.borrow_mut() = Some(Plan::Rest(Box::new(answer)));
    }
}

superpoll::debug_fields!(Exchange, it =>
    peer: it.peer, can_take_over: it.can_take_over, can_wait: it.can_wait);
