//! A connection to a server on which HTTP/2 is spoken. Many requests share it, so it has a task.

use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use superpoll_rt::hyper::{EngineExecutor, EngineTimer};

use super::channel::{Lost, Patience};
use super::outgoing::Outgoing;
use crate::transport::Upstream;

/// How much of one response may be on its way.
const STREAM_WINDOW: u32 = 256 << 10;

/// How much of all responses may be.
const WINDOW: u32 = 1 << 20;

/// After how long without a word a server is asked whether it is there.
const PING: Duration = Duration::from_secs(20);

/// How long it may take to answer that.
const PONG: Duration = Duration::from_secs(10);

/// A handle to a connection. Clones are the same; the connection ends with the last.
#[derive(Clone)]
pub(super) struct Channel2(SendRequest<Outgoing>);

impl Channel2 {
    /// Speaks HTTP/2 over a stream.
    pub async fn open(stream: Upstream) -> hyper::Result<Channel2> {
        let mut builder = Builder::new(EngineExecutor);
        builder
            .timer(EngineTimer)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(WINDOW)
            .keep_alive_interval(PING)
            .keep_alive_timeout(PONG);
        let (sender, connection) = builder.handshake(stream).await?;
        // How it ends is told to those who have requests on it.
        superpoll_rt::spawn(async { drop(connection.await) }).detach();
        Ok(Channel2(sender))
    }

    /// Whether another request can be sent, as far as is known.
    pub fn is_usable(&self) -> bool {
        !self.0.is_closed()
    }

    /// As [`Channel::send`](super::channel::Channel::send).
    pub async fn send(
        &mut self,
        slot: &mut Option<Request<Outgoing>>,
        limit: Duration,
    ) -> Result<Response<Incoming>, Lost> {
        let Some(request) = slot.take() else { return Err(Lost::Unsent) };
        let mut patience = Patience::new(limit, request.body().report());
        let mut reply = pin!(self.0.try_send_request(request));
        std::future::poll_fn(|cx| {
            if let Poll::Ready(reply) = reply.as_mut().poll(cx) {
                return Poll::Ready(reply.map_err(|error| Lost::of(error, slot)));
            }
            patience.poll(cx).map(|()| Err(Lost::TimedOut))
        })
        .await
    }
}
