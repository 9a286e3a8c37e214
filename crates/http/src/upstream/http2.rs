//! A connection to a server on which HTTP/2 is spoken. Many requests share it, so it has a task.
//!
//! ```text
//!   begin: a stream, once the server allows another one     Http2Connection
//!     |
//!     |  body of the request --> `sending`                   a task, unless it is in memory
//!     v
//!   Reply --interim responses, head of the response--> Http2Body, or a Tunnel (RFC 8441)
//! ```
//!
//! The library `h2` keeps the streams and windows. Requests wait in turn for the server to allow
//! another stream: those that have none when the connection ends were never sent. The task also
//! asks a silent server whether it is there, and ends with the last handle.

mod body;
mod sending;
mod tunnel;

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use h2::client::{Builder, Connection, ResponseFuture, SendRequest};
use h2::{Ping, Reason, SendStream};
use http::header::CONTENT_LENGTH;
use http::{HeaderValue, Method, Request, Response};
use http_body::Body as _;
use socket2::{SockRef, TcpKeepalive};
use superpoll_rt::time::{self, Sleep, sleep};
use tokio::sync::{Mutex, oneshot};

pub(super) use self::body::Http2Body;
pub use self::body::StreamReset;
use self::sending::Sending;
pub(super) use self::tunnel::Tunnel;
use super::http1::SendFailure;
use super::outgoing::{Outgoing, UploadProgress};
use crate::transport::Upstream;

/// The most bytes of one response that may be on their way.
const STREAM_WINDOW: u32 = 256 << 10;

/// The most bytes of all responses that may be on their way.
const WINDOW: u32 = 1 << 20;

/// The most bytes of a head.
const HEAD: u32 = 16 << 10;

/// The silence after which a server is asked whether it is there, or up to twice that. Servers of
/// gRPC close a connection on which more than two such questions come within five minutes each.
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

/// The state that a connection's handles, its streams and its task share.
#[derive(Default)]
struct State {
    /// A request had no response in time: the server may be gone without a word.
    is_doubtful: Cell<bool>,
    /// There was a response, before which the server's settings have come.
    is_settled: Cell<bool>,
    /// Something was heard since the task has last looked.
    was_heard: Cell<bool>,
    /// The streams on which something is waited for.
    streams: Cell<usize>,
    /// The task.
    task: RefCell<Option<Waker>>,
}

/// A stream on which something of the server is waited for.
struct Awaited(Rc<State>);

impl Awaited {
    fn new(state: &Rc<State>) -> Awaited {
        state.streams.set(state.streams.get() + 1);
        Awaited(state.clone())
    }

    fn has_heard(&self) {
        self.0.was_heard.set(true);
    }
}

impl Drop for Awaited {
    fn drop(&mut self) {
        self.0.streams.set(self.0.streams.get() - 1);
    }
}

/// Wakes the task when the last handle is gone: the library does not.
struct LastHandle(Rc<State>);

impl Drop for LastHandle {
    fn drop(&mut self) {
        self.0.task.take().into_iter().for_each(Waker::wake);
    }
}

struct Handles {
    /// The one who has it gets the next stream.
    turn: Mutex<SendRequest<Bytes>>,
    /// Another one, for questions that do not wait.
    any: RefCell<SendRequest<Bytes>>,
    is_encrypted: bool,
    // After the others, which keep the connection open.
    last: LastHandle,
}

/// A handle to a connection. All clones share it; the connection ends with the last.
#[derive(Clone)]
pub(super) struct Http2Connection(Rc<Handles>);

impl Http2Connection {
    /// Speaks HTTP/2 over a stream.
    ///
    /// # Errors
    ///
    /// The first bytes could not be written.
    pub(super) async fn open(stream: Upstream) -> Result<Http2Connection, h2::Error> {
        let is_encrypted = matches!(stream, Upstream::Tls(_));
        notice_loss(&stream);
        let mut builder = Builder::new();
        builder
            .initial_window_size(STREAM_WINDOW)
            .initial_connection_window_size(WINDOW)
            .max_header_list_size(HEAD)
            .enable_push(false);
        let (sender, connection) = builder.handshake(stream).await?;
        let state = Rc::new(State::default());
        superpoll_rt::spawn(run(connection, state.clone())).detach();
        let any = RefCell::new(sender.clone());
        let turn = Mutex::new(sender);
        let last = LastHandle(state);
        Ok(Http2Connection(Rc::new(Handles { turn, any, is_encrypted, last })))
    }

    fn state(&self) -> &Rc<State> {
        &self.0.last.0
    }

    /// Whether another request can be sent, as far as is known.
    pub(super) fn is_usable(&self) -> bool {
        let cx = &mut Context::from_waker(Waker::noop());
        let is_over = matches!(self.0.any.borrow_mut().poll_ready(cx), Poll::Ready(Err(_)));
        !is_over && !self.state().is_doubtful.get()
    }

    /// Whether the server allows WebSockets on streams. On a new connection its settings are waited
    /// for.
    pub(super) async fn allows_websockets(&self) -> bool {
        let due = time::now() + SETTINGS;
        loop {
            let is_allowed = self.0.any.borrow().is_extended_connect_protocol_enabled();
            let is_settled = self.state().is_settled.get();
            if is_allowed || is_settled || time::now() >= due || !self.is_usable() {
                return is_allowed;
            }
            sleep(LOOK).await;
        }
    }

    /// Whether it is encrypted.
    pub(super) fn is_encrypted(&self) -> bool {
        self.0.is_encrypted
    }

    /// Begins to send a request, whose response is to begin within a limit of time.
    ///
    /// # Errors
    ///
    /// The body of a request that was not sent comes back.
    pub(super) async fn begin(
        &self,
        request: Request<Outgoing>,
        limit: Duration,
    ) -> Result<Reply, (SendFailure, Option<Outgoing>)> {
        let (mut head, body) = request.into_parts();
        let is_connect = head.method == Method::CONNECT;
        if let Some(length) = body.size_hint().exact().filter(|_| !is_connect) {
            let means_one = matches!(head.method, Method::POST | Method::PUT | Method::PATCH);
            if length > 0 || means_one {
                head.headers.entry(CONTENT_LENGTH).or_insert_with(|| HeaderValue::from(length));
            }
        }
        let is_empty = body.is_end_stream() && !is_connect;
        let request = Request::from_parts(head, ());
        let mut timer = ResponseTimer::new(limit, body.report());
        let opened = {
            let mut opening = pin!(self.open_stream(request, is_empty));
            poll_fn(|cx| match opening.as_mut().poll(cx) {
                Poll::Ready(opened) => Poll::Ready(Some(opened)),
                Poll::Pending => timer.poll(cx).map(|()| None),
            })
            .await
        };
        let (mut response, stream) = match opened {
            Some(Ok(Some(opened))) => opened,
            Some(Ok(None)) => return Err((SendFailure::Unsent, Some(body))),
            Some(Err(error)) => return Err((StreamReset::failure(error), None)),
            None => {
                self.state().is_doubtful.set(true);
                return Err((SendFailure::TimedOut, None));
            }
        };
        // A body that nothing was sent of may go elsewhere.
        let first = match poll_fn(|cx| Poll::Ready(response.poll_informational(cx))).await {
            Poll::Ready(Some(Err(error))) if is_left_out(&error) => {
                return Err((SendFailure::Unsent, Some(body)));
            }
            Poll::Ready(Some(Ok(head))) => Some(head),
            _ => None,
        };
        let (awaited, upload) = (Awaited::new(self.state()), body.report());
        let (mut tunnel, mut cancels) = (None, None);
        if is_connect {
            tunnel = Some(stream);
        } else if !is_empty {
            cancels = Sending::begin(body, stream).await;
        }
        Ok(Reply { first, response, timer, tunnel, cancels, upload, awaited })
    }

    /// Returns a new stream, once the server allows it; `None` if the connection has ended.
    async fn open_stream(
        &self,
        request: Request<()>,
        is_empty: bool,
    ) -> Result<Option<(ResponseFuture, SendStream<Bytes>)>, h2::Error> {
        let mut turn = self.0.turn.lock().await;
        if poll_fn(|cx| turn.poll_ready(cx)).await.is_err() {
            return Ok(None);
        }
        let (response, stream) = turn.send_request(request, is_empty)?;
        let mut opening = Opening(Some(stream));
        // The library has one waker for this and for the body, and keeps the stream until then. The
        // response has an error, too.
        let _ = poll_fn(|cx| turn.poll_ready(cx)).await;
        Ok(opening.0.take().map(|stream| (response, stream)))
    }
}

/// A stream that may wait for the server to allow another one. If it is not waited for any more,
/// its request is not sent.
struct Opening(Option<SendStream<Bytes>>);

impl Drop for Opening {
    fn drop(&mut self) {
        if let Some(stream) = &mut self.0 {
            stream.send_reset(Reason::CANCEL);
        }
    }
}

/// Drives a connection to its end.
async fn run(mut connection: Connection<Upstream>, state: Rc<State>) {
    let mut pings = connection.ping_pong();
    let (mut timer, mut is_asked) = (sleep(PING), false);
    poll_fn(|cx| {
        state.task.replace(Some(cx.waker().clone()));
        if Pin::new(&mut connection).poll(cx).is_ready() {
            // Each request on the connection learns how it has ended.
            return Poll::Ready(());
        }
        let Some(pings) = &mut pings else { return Poll::Pending };
        if is_asked && pings.poll_pong(cx).is_ready() {
            is_asked = false;
            timer.reset(time::now() + PING);
        }
        while Pin::new(&mut timer).poll(cx).is_ready() {
            if is_asked {
                return Poll::Ready(());
            }
            let is_silent = !state.was_heard.take() && state.streams.get() > 0;
            is_asked = is_silent && pings.send_ping(Ping::opaque()).is_ok();
            timer.reset(time::now() + if is_asked { PONG } else { PING });
        }
        Poll::Pending
    })
    .await;
}

/// Whether a server that is about to end has not begun to work on a request (RFC 9113, section
/// 6.8).
fn is_left_out(error: &h2::Error) -> bool {
    error.is_remote() && error.is_go_away()
}

/// Whether a server that has too much to do has not begun to work on a request (RFC 9113, section
/// 8.7).
fn is_refused(error: &h2::Error) -> bool {
    error.is_remote() && error.is_reset() && error.reason() == Some(Reason::REFUSED_STREAM)
}

/// The head of a response.
pub(super) enum Head {
    /// Another one follows.
    Interim(Response<()>),
    Final(Response<Http2Body>),
}

/// The response to a request, before its head. A request whose reply is dropped is cancelled.
pub(super) struct Reply {
    /// An interim response that has come already.
    first: Option<Response<()>>,
    response: ResponseFuture,
    timer: ResponseTimer,
    /// The stream to the server, if the request asks for a tunnel.
    tunnel: Option<SendStream<Bytes>>,
    /// Cancels the request when it is dropped.
    cancels: Option<oneshot::Sender<()>>,
    upload: Option<Rc<UploadProgress>>,
    awaited: Awaited,
}

impl Reply {
    /// Polls for the next head. Not to be polled again after the final one.
    ///
    /// # Errors
    ///
    /// There is no response, or it did not come in time.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Head, SendFailure>> {
        if let Some(head) = self.first.take() {
            return Poll::Ready(Ok(Head::Interim(head)));
        }
        if let Poll::Ready(Some(Ok(head))) = self.response.poll_informational(cx) {
            self.awaited.has_heard();
            return Poll::Ready(Ok(Head::Interim(head)));
        }
        match Pin::new(&mut self.response).poll(cx) {
            Poll::Ready(Ok(response)) => {
                self.awaited.has_heard();
                self.awaited.0.is_settled.set(true);
                let length = body::length(response.headers());
                let awaited = Awaited::new(&self.awaited.0);
                let sent = (self.tunnel.take(), self.cancels.take());
                let upload = self.upload.take();
                let body = |received| Http2Body::new(received, length, sent, upload, awaited);
                Poll::Ready(Ok(Head::Final(response.map(body))))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(match self.upload {
                None if is_left_out(&error) => SendFailure::Unsent,
                None if is_refused(&error) => SendFailure::Refused(StreamReset::REFUSED),
                // An upload cannot be sent again.
                _ => StreamReset::failure(error),
            })),
            Poll::Pending => {
                ready!(self.timer.poll(cx));
                self.awaited.0.is_doubtful.set(true);
                Poll::Ready(Err(SendFailure::TimedOut))
            }
        }
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
