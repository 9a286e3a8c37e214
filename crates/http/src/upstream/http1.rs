//! A connection to a server on which HTTP/1.1 is spoken, without a task of its own.
//!
//! hyper gives a client connection in two parts: a handle that requests are sent with, and a future
//! that has to be polled for anything to happen. The usual way is a task for the future. Then each
//! request and each part of its response goes from task to task, with wake-ups and another turn of
//! the executor. Here the task that waits for something from the connection polls the connection's
//! future as well: the request's task while it waits for the head, then the task of the response's
//! body. No task polls it in the pool; events meanwhile show when it is taken out.
//!
//! The two parts still talk through channels of hyper's, and wake each other. These wake-ups never
//! need to leave this module, as both parts are polled until neither has news for the other. So
//! hyper is given a waker that sets a flag, and only the socket wakes the task itself: the stream
//! below hyper is polled with the waker of the task that polls the channel now.

use std::cell::{Cell, RefCell};
use std::error::Error;
use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1::{Builder, Connection, SendRequest};
use hyper::rt::{Read, ReadBufCursor, Write};
use superpoll_rt::time::{self, Sleep, sleep};

use super::outgoing::{Outgoing, UploadProgress};
use crate::transport::{Upstream, poll_write_all};

/// How often the parts of a connection may wake each other before other tasks have their turn.
const ROUNDS: usize = 16;

/// The most that hyper reads ahead of a response's body.
const MOST_AHEAD: usize = 128 << 10;

/// The largest head of a response.
const LARGEST_HEAD: usize = 64 << 10;

/// Remembers that it was woken.
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Flag>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Flag>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The stream below hyper, polled with the waker of the task that polls the channel.
struct DriverIo {
    stream: Upstream,
    task: Rc<RefCell<Waker>>,
    /// Bytes that were read before.
    before: Bytes,
    replay: Rc<Cell<Replay>>,
    /// The rest of the request that was sent before hyper had the connection, from a position on.
    unsent: Option<(Vec<u8>, usize)>,
    /// hyper has nothing more to write, and all that it has written was flushed.
    is_flushed: Rc<Cell<bool>>,
}

/// Whether the request of a connection was sent before hyper had the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Replay {
    No,
    /// It was, and hyper has not written its own. Until then hyper expects no response.
    Waits,
    /// It was, and so hyper's bytes are not sent.
    Yes,
}

impl DriverIo {
    fn poll<T>(
        self: Pin<&mut Self>,
        poll: impl FnOnce(Pin<&mut Upstream>, &mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        let DriverIo { stream, task, .. } = self.get_mut();
        poll(Pin::new(stream), &mut Context::from_waker(&task.borrow()))
    }
}

impl DriverIo {
    /// Sends the rest of the request that hyper's stands for.
    fn send_along(&mut self) {
        let Some((rest, mut at)) = self.unsent.take() else { return };
        let task = self.task.borrow();
        let cx = &mut Context::from_waker(&task);
        match poll_write_all(&mut self.stream, cx, &rest, &mut at) {
            Poll::Ready(Ok(())) => self.is_flushed.set(true),
            Poll::Pending => self.unsent = Some((rest, at)),
            // A server that reads no more may still answer, but gets no other request.
            Poll::Ready(Err(_)) => {}
        }
    }

    /// Whether bytes of hyper are not sent. The first of them make hyper read.
    fn swallows(&self, cx: &Context<'_>) -> bool {
        if self.replay.get() == Replay::Waits {
            self.replay.set(Replay::Yes);
            cx.waker().wake_by_ref();
        }
        self.replay.get() == Replay::Yes
    }
}

impl Read for DriverIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        mut room: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        if self.replay.get() == Replay::Waits {
            return Poll::Pending;
        }
        self.send_along();
        let before = &mut self.as_mut().get_mut().before;
        if !before.is_empty() {
            let count = before.len().min(room.remaining());
            room.put_slice(&before.split_to(count));
            return Poll::Ready(Ok(()));
        }
        self.poll(|stream, cx| Read::poll_read(stream, cx, room))
    }
}

impl Write for DriverIo {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.swallows(cx) {
            return Poll::Ready(Ok(bytes.len()));
        }
        self.is_flushed.set(false);
        self.poll(|stream, cx| Write::poll_write(stream, cx, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.swallows(cx) {
            return Poll::Ready(Ok(parts.iter().map(|part| part.len()).sum()));
        }
        self.is_flushed.set(false);
        self.poll(|stream, cx| Write::poll_write_vectored(stream, cx, parts))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // hyper flushes the stream when its own buffer is empty.
        let (is_flushed, swallows) = (self.is_flushed.clone(), self.replay.get() != Replay::No);
        let outcome = self.poll(Write::poll_flush);
        if !swallows {
            is_flushed.set(matches!(outcome, Poll::Ready(Ok(()))));
        }
        outcome
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll(Write::poll_shutdown)
    }
}

/// The reason for which there is no response.
pub(super) enum SendFailure {
    /// The connection was over before anything of the request was sent.
    Unsent,
    /// The connection broke.
    Broken(Box<dyn Error + Send + Sync>),
    /// The bytes on the connection are not HTTP.
    Malformed(hyper::Error),
    /// No bytes came for too long.
    TimedOut,
}

impl SendFailure {
    /// Classifies an error of hyper; a request that was not sent goes back to its place.
    pub(super) fn new(
        mut error: TrySendError<Request<Outgoing>>,
        slot: &mut Option<Request<Outgoing>>,
    ) -> SendFailure {
        *slot = error.take_message();
        if slot.is_some() {
            return SendFailure::Unsent;
        }
        match error.into_error() {
            error if error.is_parse() => SendFailure::Malformed(error),
            error => SendFailure::Broken(error.into()),
        }
    }
}

/// A limit on the time that the head of a response may take, from the end of the request.
pub(super) struct ResponseTimer {
    limit: Duration,
    timer: Option<Sleep>,
    report: Option<Rc<UploadProgress>>,
    frames: u64,
    was_over: bool,
}

impl ResponseTimer {
    pub(super) fn new(limit: Duration, report: Option<Rc<UploadProgress>>) -> ResponseTimer {
        ResponseTimer { limit, timer: None, report, frames: 0, was_over: false }
    }

    /// Ready when the time is over.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
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

/// A connection to a server.
pub(super) struct Http1Connection {
    sender: SendRequest<Outgoing>,
    driver: Driver,
}

struct Driver {
    /// `None` when it is over and no part of a response is left in it: only then does hyper give
    /// back requests that it has not sent.
    connection: Option<Connection<DriverIo, Outgoing>>,
    task: Rc<RefCell<Waker>>,
    flag: Arc<Flag>,
    waker: Waker,
    is_over: bool,
    replay: Rc<Cell<Replay>>,
    is_flushed: Rc<Cell<bool>>,
}

impl Driver {
    /// Polls the connection and a caller's future on it, until neither gets any further.
    fn poll<T>(
        &mut self,
        task: &Waker,
        mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        if !self.task.borrow().will_wake(task) {
            *self.task.borrow_mut() = task.clone();
        }
        let mut cx = Context::from_waker(&self.waker);
        for _ in 0..ROUNDS {
            self.flag.0.store(false, Ordering::Relaxed);
            if !self.is_over
                && let Some(connection) = &mut self.connection
            {
                self.is_over = connection.poll_without_shutdown(&mut cx).is_ready();
            }
            if let Poll::Ready(outcome) = poll(&mut cx) {
                return Poll::Ready(outcome);
            }
            if self.is_over && self.connection.take().is_some() {
                continue;
            }
            if !self.flag.0.load(Ordering::Relaxed) {
                return Poll::Pending;
            }
        }
        task.wake_by_ref();
        Poll::Pending
    }
}

impl Http1Connection {
    /// Speaks HTTP/1.1 over a stream.
    pub(super) async fn open(stream: Upstream) -> hyper::Result<Http1Connection> {
        Http1Connection::over(stream, Bytes::new(), Replay::No, None).await
    }

    /// Reads the response to a request that was sent already, of which some bytes were read. The
    /// next request stands for that one, and is not sent; those after it are. `unsent` is the rest
    /// of the request that is still to be sent, if there is one.
    pub(super) async fn replay(
        stream: Upstream,
        before: Bytes,
        unsent: Option<Vec<u8>>,
    ) -> hyper::Result<Http1Connection> {
        Http1Connection::over(stream, before, Replay::Waits, unsent).await
    }

    async fn over(
        stream: Upstream,
        before: Bytes,
        replay: Replay,
        unsent: Option<Vec<u8>>,
    ) -> hyper::Result<Http1Connection> {
        let task = Rc::new(RefCell::new(Waker::noop().clone()));
        let is_flushed = Rc::new(Cell::new(unsent.is_none()));
        let flushed = is_flushed.clone();
        let replay = Rc::new(Cell::new(replay));
        let below = DriverIo {
            stream,
            task: task.clone(),
            before,
            replay: replay.clone(),
            unsent: unsent.map(|rest| (rest, 0)),
            is_flushed: flushed,
        };
        let mut builder = Builder::new();
        builder.max_buf_size(MOST_AHEAD).max_header_size(LARGEST_HEAD);
        let (sender, connection) = builder.handshake(below).await?;
        let flag = Arc::new(Flag(AtomicBool::new(false)));
        let waker = Waker::from(flag.clone());
        let connection = Some(connection);
        let driver = Driver { connection, task, flag, waker, is_over: false, replay, is_flushed };
        Ok(Http1Connection { sender, driver })
    }

    /// Sends a request and waits for the head of its response. The request is taken from its place;
    /// if it is there again, nothing of it was sent.
    pub(super) async fn send(
        &mut self,
        slot: &mut Option<Request<Outgoing>>,
        limit: Duration,
    ) -> Result<Response<Incoming>, SendFailure> {
        let Some(request) = slot.take() else { return Err(SendFailure::Unsent) };
        let report = request.body().report();
        let mut timer = ResponseTimer::new(limit, report.clone());
        let Http1Connection { sender, driver } = self;
        let mut reply = pin!(sender.try_send_request(request));
        poll_fn(|cx| {
            if let Some(report) = &report {
                report.remember(cx.waker());
            }
            if let Poll::Ready(reply) = driver.poll(cx.waker(), |cx| reply.as_mut().poll(cx)) {
                return Poll::Ready(reply.map_err(|error| SendFailure::new(error, slot)));
            }
            timer.poll(cx).map(|()| Err(SendFailure::TimedOut))
        })
        .await
    }

    /// Polls for a part of a response, for a task.
    pub(super) fn poll<T>(
        &mut self,
        task: &Waker,
        poll: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        self.driver.poll(task, poll)
    }

    /// Whether another request can be sent, as far as is known.
    pub(super) fn is_reusable(&mut self) -> bool {
        let _: Poll<()> = self.driver.poll(Waker::noop(), |_| Poll::Pending);
        let is_sent = self.driver.replay.get() == Replay::No || self.is_flushed();
        let is_ready = !self.driver.is_over && self.sender.is_ready() && is_sent;
        // hyper has written the request that stands for another one, and read the response.
        if is_ready && self.driver.replay.get() == Replay::Yes {
            self.driver.replay.set(Replay::No);
        }
        is_ready && self.driver.replay.get() == Replay::No
    }

    /// Whether hyper holds no bytes that are still to be written: a server may answer a request
    /// whose body it has not read.
    pub(super) fn is_flushed(&self) -> bool {
        self.driver.is_flushed.get()
    }

    /// Returns the stream and the bytes that were read of it, once the server has agreed to another
    /// protocol.
    pub(super) fn into_stream(self) -> Option<(Upstream, Bytes)> {
        let parts = self.driver.connection?.into_parts();
        Some((parts.io.stream, parts.read_buf))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use http::header::HOST;
    use http_body::Body as _;
    use superpoll_rt::Runtime;

    use super::*;
    use crate::plain_stream::narrow;

    /// The response to a request that was sent in part is there at once, and the rest of the
    /// request is sent before another one.
    #[test]
    fn no_request_follows_one_that_was_sent_in_part() {
        let rest: Vec<u8> = (0..200_000_u32).map(|at| ((at * 7) >> 3) as u8).collect();
        Runtime::new().unwrap().block_on(async {
            let (plain, mut theirs) = narrow();
            let answer = Bytes::from_static(b"HTTP/1.1 299 Own\r\nContent-Length: 3\r\n\r\nabc");
            let unsent = Some(rest.clone());
            let opened = Http1Connection::replay(Upstream::Plain(plain), answer, unsent).await;
            let mut connection = opened.unwrap();
            let request = Request::builder().header(HOST, "a").body(Outgoing::empty());
            let response = connection.send(&mut request.ok(), Duration::MAX).await;
            let mut body = response.ok().unwrap().into_body();
            let frame =
                poll_fn(|cx| connection.poll(cx.waker(), |cx| Pin::new(&mut body).poll_frame(cx)));
            assert_eq!(frame.await.unwrap().unwrap().into_data().unwrap(), "abc");
            let (mut seen, mut room) = (Vec::new(), [0; 3000]);
            while !connection.is_reusable() {
                if let Ok(count) = theirs.read(&mut room) {
                    seen.extend_from_slice(&room[..count]);
                }
                superpoll_rt::next_turn().await;
            }
            while let Ok(count @ 1..) = theirs.read(&mut room) {
                seen.extend_from_slice(&room[..count]);
            }
            assert!(seen == rest, "{} of {} bytes", seen.len(), rest.len());
        });
    }
}
