//! A connection to a server on which HTTP/2 is spoken. Many requests share it, so it has a task.

use std::cell::Cell;
use std::error::Error;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use h2::Reason;
use http::header::CONTENT_TYPE;
use http::{Request, Response};
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use hyper::client::conn::http2::{Builder, SendRequest};
use superpoll_rt::hyper::{EngineExecutor, EngineTimer};
use superpoll_rt::time::{self, Sleep, sleep};

use super::http1::SendFailure;
use super::outgoing::{Interrupted, Outgoing, UploadProgress};
use crate::transport::Upstream;

/// The most bytes of one response that may be on their way.
const STREAM_WINDOW: u32 = 256 << 10;

/// The most bytes of all responses that may be on their way.
const WINDOW: u32 = 1 << 20;

/// The silence after which a server is asked whether it is there. Servers of gRPC close a connection
/// on which more than two such questions come within five minutes each.
const PING: Duration = Duration::from_secs(310);

/// How long the answer to that may take.
const PONG: Duration = Duration::from_secs(10);

/// A limit on the time that the head of a response may take, from the end of the request.
struct ResponseTimer {
    limit: Duration,
    timer: Option<Sleep>,
    report: Option<Rc<UploadProgress>>,
    frames: u64,
    was_over: bool,
}

impl ResponseTimer {
    fn new(limit: Duration, report: Option<Rc<UploadProgress>>) -> ResponseTimer {
        ResponseTimer { limit, timer: None, report, frames: 0, was_over: false }
    }

    /// Ready when the time is over.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(report) = &self.report {
            // The time runs from the last frame that was sent.
            let (frames, is_over) = (report.frames.get(), report.is_over.get());
            if (frames, is_over) != (self.frames, self.was_over) {
                (self.frames, self.was_over) = (frames, is_over);
                if let Some(timer) = &mut self.timer {
                    timer.reset(time::now() + self.limit);
                }
            }
        }
        Pin::new(self.timer.get_or_insert_with(|| sleep(self.limit))).poll(cx)
    }
}

/// A handle to a connection. All clones share it; the connection ends with the last.
#[derive(Clone)]
pub(super) struct Http2Connection {
    sender: SendRequest<Outgoing>,
    is_encrypted: bool,
    /// A request had no response in time: the server may be gone without a word.
    is_doubtful: Rc<Cell<bool>>,
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
        Ok(Http2Connection { sender, is_encrypted, is_doubtful: Rc::default() })
    }

    /// Whether another request can be sent, as far as is known.
    pub(super) fn is_usable(&self) -> bool {
        !self.sender.is_closed() && !self.is_doubtful.get()
    }

    /// Whether it is encrypted.
    pub(super) fn is_encrypted(&self) -> bool {
        self.is_encrypted
    }

    /// Sends a request and waits for the head of its response. The body of a request that was not
    /// sent comes back.
    pub(super) async fn send(
        &mut self,
        request: Request<Outgoing>,
        limit: Duration,
    ) -> Result<Response<Http2Body>, (SendFailure, Option<Outgoing>)> {
        let report = request.body().report();
        let mut timer = ResponseTimer::new(limit, report.clone());
        let Http2Connection { sender, is_doubtful, .. } = self;
        let mut reply = pin!(sender.try_send_request(request));
        poll_fn(|cx| {
            if let Poll::Ready(reply) = reply.as_mut().poll(cx) {
                let begun = reply.map(|response| Http2Body::begin(response, report.clone()));
                return Poll::Ready(begun.map_err(classified));
            }
            ready!(timer.poll(cx));
            is_doubtful.set(true);
            Poll::Ready(Err((SendFailure::TimedOut, None)))
        })
        .await
    }
}

/// The body of a response.
pub(super) struct Http2Body {
    incoming: Incoming,
    /// The body of the request, if it is sent as it comes.
    upload: Option<Rc<UploadProgress>>,
    /// Trailers have to follow.
    is_grpc: bool,
    has_trailers: bool,
}

impl Http2Body {
    fn begin(
        response: Response<Incoming>,
        upload: Option<Rc<UploadProgress>>,
    ) -> Response<Http2Body> {
        let content_type = response.headers().get(CONTENT_TYPE);
        let is_grpc = content_type.is_some_and(|it| it.as_bytes().starts_with(b"application/grpc"));
        response.map(|incoming| Http2Body { incoming, upload, is_grpc, has_trailers: false })
    }

    pub(super) fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }

    /// Returns the frames of the request that were sent as they came.
    pub(super) fn sent_frames(&self) -> u64 {
        self.upload.as_ref().map_or(0, |upload| upload.frames.get())
    }

    pub(super) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let frame = ready!(Pin::new(&mut self.incoming).poll_frame(cx));
        Poll::Ready(match frame {
            Some(Ok(frame)) => {
                self.has_trailers |= frame.is_trailers();
                Some(Ok(frame))
            }
            Some(Err(error)) => Some(Err(self.error(error))),
            None if self.is_cut() => {
                let reset = || io::Error::other(StreamReset(Reason::CANCEL.into()));
                Some(Err(self.interruption().unwrap_or_else(reset)))
            }
            None => None,
        })
    }

    /// Returns the reason for which no more of the body arrives.
    fn error(&self, error: hyper::Error) -> io::Error {
        if let Some(error) = self.interruption() {
            return error;
        }
        let cause = error.source().and_then(|cause| cause.downcast_ref::<h2::Error>());
        let reset = cause.filter(|cause| cause.is_reset() && cause.is_remote());
        match reset.and_then(h2::Error::reason) {
            Some(code) => io::Error::other(StreamReset(code.into())),
            None => io::Error::other(error),
        }
    }

    /// Returns the reason for which this side has reset the stream, if it has.
    fn interruption(&self) -> Option<io::Error> {
        let is_interrupted = self.upload.as_ref().is_some_and(|it| it.is_interrupted());
        is_interrupted.then(|| io::Error::other(Interrupted::new()))
    }

    /// Whether the body ends without its last frame.
    ///
    /// To hyper a reset with CANCEL is an end, as one with NO_ERROR is. A server may send the
    /// latter after a whole response if it does not read the rest of the request (RFC 9113, section
    /// 8.1), so without an announced length or trailers that is the only case of doubt.
    fn is_cut(&self) -> bool {
        let has_end = self.incoming.is_end_stream() || self.has_trailers;
        let reads_all = self.upload.as_ref().is_none_or(|upload| upload.is_over.get());
        let has_more = self.size_hint().exact().is_some_and(|left| left > 0);
        !has_end && (reads_all || self.is_grpc || has_more)
    }
}

/// A server has reset the stream of a response that had begun, with this code.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Debug)]
#[error("the server has reset the stream with code {0}")]
pub struct StreamReset(pub u32);

/// Classifies an error. The body of a request that was not sent is with it.
fn classified(mut error: TrySendError<Request<Outgoing>>) -> (SendFailure, Option<Outgoing>) {
    if let Some(unsent) = error.take_message() {
        return (SendFailure::Unsent, Some(unsent.into_body()));
    }
    match error.into_error() {
        error if error.is_parse() => (SendFailure::Malformed(error.to_string()), None),
        error => (SendFailure::Broken(error.into()), None),
    }
}
