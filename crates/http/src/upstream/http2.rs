//! A connection to a server on which HTTP/2 is spoken. Many requests share it, so it has a task.

use std::cell::{Cell, RefCell};
use std::error::Error;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use hyper::client::conn::http2::{Builder, Connection, SendRequest};
use socket2::{SockRef, TcpKeepalive};
use superpoll_rt::hyper::{EngineExecutor, EngineTimer};
use superpoll_rt::time::{self, Sleep, sleep};

use super::http1::SendFailure;
use super::outgoing::{Interrupted, Outgoing, UploadProgress};
use crate::transport::Upstream;

/// The most bytes of one response that may be on their way.
const STREAM_WINDOW: u32 = 256 << 10;

/// The most bytes of all responses that may be on their way.
const WINDOW: u32 = 1 << 20;

/// The silence after which a server is asked whether it is there. Servers of gRPC close a
/// connection on which more than two such questions come within five minutes each.
const PING: Duration = Duration::from_secs(310);

/// The silence after which the server's kernel is asked instead, which no server sees.
const QUIET: Duration = Duration::from_secs(20);

/// How long the server's kernel may leave bytes, or such a question, without an answer.
const LOST: Duration = Duration::from_secs(30);

/// How long the answer of a server may take.
const PONG: Duration = Duration::from_secs(10);

/// How long the settings of a server may take, with which each connection begins.
const SETTINGS: Duration = Duration::from_secs(1);

/// The time between two looks at them.
const LOOK: Duration = Duration::from_millis(2);

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

/// Makes the kernel end a connection whose server is gone without a word.
fn notice_loss(stream: &Upstream) {
    let plain = match stream {
        Upstream::Plain(plain) => plain,
        Upstream::Tls(stream) => stream.get_ref().get_ref().0,
        Upstream::Stream(_) => return,
    };
    let socket = SockRef::from(plain);
    // Sockets of the Unix domain have no such options, and lose nothing.
    let _ = socket.set_tcp_user_timeout(Some(LOST));
    let _ =
        socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(QUIET).with_interval(QUIET / 2));
}

/// A handle to a connection. All clones share it; the connection ends with the last.
#[derive(Clone)]
pub(super) struct Http2Connection {
    sender: SendRequest<Outgoing>,
    is_encrypted: bool,
    /// A request had no response in time: the server may be gone without a word.
    is_doubtful: Rc<Cell<bool>>,
    /// There was a response, before which the server's settings have come.
    is_settled: Rc<Cell<bool>>,
    /// It, for its settings.
    connection: Weak<RefCell<Connection<Upstream, Outgoing, EngineExecutor>>>,
}

impl Http2Connection {
    /// Speaks HTTP/2 over a stream.
    pub(super) async fn open(stream: Upstream) -> hyper::Result<Http2Connection> {
        let is_encrypted = matches!(stream, Upstream::Tls(_));
        notice_loss(&stream);
        let mut builder = Builder::new(EngineExecutor);
        builder
            .timer(EngineTimer)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(WINDOW)
            .keep_alive_interval(PING)
            .keep_alive_timeout(PONG);
        let (sender, connection) = builder.handshake(stream).await?;
        let task = Rc::new(RefCell::new(connection));
        let connection = Rc::downgrade(&task);
        let run = poll_fn(move |cx| Pin::new(&mut *task.borrow_mut()).poll(cx));
        // Each request on the connection learns how it has ended.
        superpoll_rt::spawn(async { drop(run.await) }).detach();
        Ok(Http2Connection {
            sender,
            is_encrypted,
            is_doubtful: Rc::default(),
            is_settled: Rc::default(),
            connection,
        })
    }

    /// Whether another request can be sent, as far as is known.
    pub(super) fn is_usable(&self) -> bool {
        !self.sender.is_closed() && !self.is_doubtful.get()
    }

    /// Whether the server allows WebSockets on streams. On a new connection its settings are waited
    /// for.
    pub(super) async fn allows_websockets(&self) -> bool {
        let due = time::now() + SETTINGS;
        loop {
            let connection = self.connection.upgrade();
            let is_allowed =
                connection.is_some_and(|it| it.borrow().is_extended_connect_protocol_enabled());
            if is_allowed || self.is_settled.get() || time::now() >= due || !self.is_usable() {
                return is_allowed;
            }
            sleep(LOOK).await;
        }
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
        let Http2Connection { sender, is_doubtful, is_settled, .. } = self;
        let mut reply = pin!(sender.try_send_request(request));
        poll_fn(|cx| {
            if let Poll::Ready(reply) = reply.as_mut().poll(cx) {
                is_settled.set(true);
                let body = |incoming| Http2Body { incoming, upload: report.clone() };
                let begun = reply.map(|response| response.map(body));
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
}

impl Http2Body {
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
        Poll::Ready(frame.map(|frame| frame.map_err(|error| self.error(error))))
    }

    /// Returns the reason for which no more of the body arrives.
    fn error(&self, error: hyper::Error) -> io::Error {
        if self.upload.as_ref().is_some_and(|upload| upload.is_interrupted()) {
            // The stream was reset by this side then.
            return io::Error::other(Interrupted::new());
        }
        match StreamReset::behind(&error) {
            Some(reset) => io::Error::other(reset),
            None => io::Error::other(error),
        }
    }
}

/// A server has reset a stream, with this code (RFC 9113, section 7).
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Debug)]
#[error("the server has reset the stream with code {0}")]
pub struct StreamReset(pub u32);

impl StreamReset {
    fn behind(error: &hyper::Error) -> Option<StreamReset> {
        let cause = error.source().and_then(|cause| cause.downcast_ref::<h2::Error>());
        let reset = cause.filter(|cause| cause.is_reset() && cause.is_remote());
        Some(StreamReset(reset?.reason()?.into()))
    }

    /// Whether the server has given the request up, as at the end of its deadline.
    pub(super) fn is_cancel(self) -> bool {
        self.0 == u32::from(h2::Reason::CANCEL)
    }
}

/// Classifies an error. The body of a request that was not sent is with it.
fn classified(mut error: TrySendError<Request<Outgoing>>) -> (SendFailure, Option<Outgoing>) {
    if let Some(unsent) = error.take_message() {
        return (SendFailure::Unsent, Some(unsent.into_body()));
    }
    match error.into_error() {
        error if error.is_parse() => (SendFailure::Malformed(error.to_string()), None),
        error => match StreamReset::behind(&error) {
            Some(reset) => (SendFailure::Broken(reset.into()), None),
            None => (SendFailure::Broken(error.into()), None),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use superpoll_rt::Runtime;

    use super::*;
    use crate::transport::{Plain, Socket};

    #[test]
    fn the_kernel_ends_a_connection_whose_server_is_gone() {
        Runtime::new().unwrap().block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            socket.set_nonblocking(true).unwrap();
            let same = socket.try_clone().unwrap();
            let plain = Plain::new(Socket::Tcp(socket)).unwrap();
            notice_loss(&Upstream::Plain(plain));
            let same = SockRef::from(&same);
            assert_eq!(same.tcp_user_timeout().unwrap(), Some(LOST));
            assert!(same.keepalive().unwrap());
            assert_eq!(same.tcp_keepalive_time().unwrap(), QUIET);
        });
    }
}
