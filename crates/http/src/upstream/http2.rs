//! A connection to a server on which HTTP/2 is spoken. Many requests share it, so it has a task.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use http::Response;
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use superpoll_rt::hyper::{EngineExecutor, EngineTimer};

use super::form::ServerRequest;
use super::http1::{ResponseTimer, SendFailure};
use super::outgoing::Outgoing;
use crate::transport::Upstream;

/// The most bytes of one response that may be on their way.
const STREAM_WINDOW: u32 = 256 << 10;

/// The most bytes of all responses that may be on their way.
const WINDOW: u32 = 1 << 20;

/// The silence after which a server is asked whether it is there.
const PING: Duration = Duration::from_secs(20);

/// How long the answer to that may take.
const PONG: Duration = Duration::from_secs(10);

/// A handle to a connection. All clones share it; the connection ends with the last.
#[derive(Clone)]
pub(super) struct Http2Connection {
    sender: SendRequest<Outgoing>,
    is_encrypted: bool,
}

impl Http2Connection {
    /// Speaks HTTP/2 over a stream.
    pub(super) async fn open(stream: Upstream) -> hyper::Result<Http2Connection> {
        let is_encrypted = matches!(stream, Upstream::Tls(_));
        let mut builder = Builder::new(EngineExecutor);
        builder
            .timer(EngineTimer)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(WINDOW)
            .keep_alive_interval(PING)
            .keep_alive_timeout(PONG);
        let (sender, connection) = builder.handshake(stream).await?;
        // Each request on the connection learns how it has ended.
        superpoll_rt::spawn(async { drop(connection.await) }).detach();
        Ok(Http2Connection { sender, is_encrypted })
    }

    /// Whether another request can be sent, as far as is known.
    pub(super) fn is_usable(&self) -> bool {
        !self.sender.is_closed()
    }

    /// As [`Http1Connection::send`](super::http1::Http1Connection::send), with the body in the
    /// response.
    pub(super) async fn send(
        &mut self,
        slot: &mut Option<ServerRequest>,
        repeats: bool,
        limit: Duration,
    ) -> Result<Response<Incoming>, SendFailure> {
        let Some(ServerRequest { head, body }) = slot.take() else {
            return Err(SendFailure::Unsent);
        };
        let mut spare = if repeats { body.again() } else { None };
        let mut timer = ResponseTimer::new(limit, body.report());
        let Some(request) = head.to_h2(body, self.is_encrypted) else {
            return Err(SendFailure::Malformed("its target is none of HTTP/2".to_owned()));
        };
        let mut reply = pin!(self.sender.try_send_request(request));
        let answered = poll_fn(|cx| {
            if let Poll::Ready(reply) = reply.as_mut().poll(cx) {
                return Poll::Ready(reply.map_err(|error| SendFailure::new(error, &mut spare)));
            }
            timer.poll(cx).map(|()| Err(SendFailure::TimedOut))
        })
        .await;
        if answered.is_err() {
            *slot = spare.map(|body| ServerRequest { head, body });
        }
        answered
    }
}
