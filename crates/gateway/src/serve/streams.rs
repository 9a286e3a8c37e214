//! The responses of an HTTP/2 connection on their way: how much memory each stream holds, and for
//! how long.
//!
//! A client may open many streams and take no bytes of any, by a window of zero or by not reading.
//! hyper asks a body for its next frame before it knows whether the frame can be sent, and keeps a
//! frame that cannot be sent. So frames are small here ([`FRAME`]), h2 keeps little of a stream
//! that does not move ([`BUFFER`]), and beyond a frame for each stream all streams of a connection
//! share [`CONNECTION`] bytes. The bytes that a stream holds are counted from when its body has
//! given them until h2 has written them to the connection.
//!
//! A stream is reset when nothing of it is written for as long as the `body` timeout, although the
//! connection has room. If its body is over and only its last bytes are stuck, there is nothing
//! left to reset it by: the connection then ends as soon as its other streams have.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};
use http::Response;
use http_body::{Frame, SizeHint};
use hyper::rt::Executor;
use slab::Slab;
use superpoll_rt::{JoinHandle, spawn, time};

use super::answer::{Answer, Serving};

/// The most bytes of a body that hyper is given at a time: those of a frame that every client
/// accepts (RFC 9113, section 4.2).
const FRAME: usize = 16 << 10;

/// The most bytes of a file that are read at a time.
const READ: usize = 32 << 10;

/// The most bytes that h2 keeps of a stream that it cannot send, give or take a frame.
pub(super) const BUFFER: usize = 64 << 10;

/// The most bytes that all streams of a connection may hold beyond a frame each.
const CONNECTION: usize = 1 << 20;

/// The streams of a connection.
#[derive(Default)]
pub(super) struct Streams {
    all: RefCell<Slab<Rc<Stream>>>,
    held: Cell<usize>,
    /// Streams that wait for room.
    waiting: RefCell<VecDeque<Rc<Stream>>>,
    /// The stream whose task is about to be spawned.
    newest: RefCell<Option<Rc<Stream>>>,
}

/// A stream, from its request until all of its response was written.
struct Stream {
    streams: Rc<Streams>,
    index: Cell<usize>,
    /// Bytes that were given to hyper and not written yet.
    held: Cell<usize>,
    /// Some of its bytes were written since the last check.
    has_moved: Cell<bool>,
    /// When it was last seen to move, or to hold no bytes.
    since: Cell<Instant>,
    /// Its body is over, or was dropped.
    is_over: Cell<bool>,
    /// The task that waits until the stream may be given more bytes.
    waker: RefCell<Option<Waker>>,
    /// The stream is among those that wait for the shared bytes.
    is_waiting: Cell<bool>,
    /// It has left HTTP: its task is the one that writes its bytes, and its guard is held by the
    /// protocol that it has changed to.
    is_upgraded: Cell<bool>,
    task: RefCell<Option<JoinHandle<()>>>,
}

/// A stream's request or body.
pub(super) struct StreamGuard(Rc<Stream>);

impl Streams {
    /// Begins a stream, whose task is spawned next.
    pub(super) fn begin(self: &Rc<Streams>) -> StreamGuard {
        let stream = Rc::new(Stream {
            streams: self.clone(),
            index: Cell::new(0),
            held: Cell::new(0),
            has_moved: Cell::new(false),
            since: Cell::new(time::now()),
            is_over: Cell::new(false),
            waker: RefCell::default(),
            is_waiting: Cell::new(false),
            is_upgraded: Cell::new(false),
            task: RefCell::default(),
        });
        stream.index.set(self.all.borrow_mut().insert(stream.clone()));
        self.newest.replace(Some(stream.clone()));
        StreamGuard(stream)
    }

    /// Resets streams that have not moved for this long. Returns whether there are some that cannot
    /// be reset.
    ///
    /// While the connection itself is stuck, no stream can move.
    pub(super) fn end_stalled(&self, now: Instant, limit: Duration, is_stuck: bool) -> bool {
        let mut tasks = Vec::new();
        let mut is_left = false;
        for (_, stream) in self.all.borrow().iter() {
            // A protocol has time limits of its own, up to its end.
            let is_in_use = stream.is_upgraded.get() && !stream.is_over.get();
            if stream.has_moved.take() || stream.held.get() == 0 || is_stuck || is_in_use {
                stream.since.set(now);
            } else if now.saturating_duration_since(stream.since.get()) >= limit {
                is_left |= stream.is_over.get() && !stream.is_upgraded.get();
                tasks.extend(stream.task.take());
            }
        }
        // Dropping a task's future resets its stream.
        tasks.iter_mut().for_each(JoinHandle::abort);
        is_left
    }

    /// Whether every stream has ended, and all of it was written.
    pub(super) fn are_done(&self) -> bool {
        self.all.borrow().is_empty()
    }

    /// Returns how many bytes all streams hold.
    #[cfg(test)]
    fn held(&self) -> usize {
        self.held.get()
    }
}

impl StreamGuard {
    /// Notes that the stream leaves HTTP with the response that hyper is given next. Its bytes are
    /// written by the task that hyper then spawns.
    pub(super) fn upgrade(&self) {
        self.0.is_upgraded.set(true);
        self.0.streams.newest.replace(Some(self.0.clone()));
    }
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        let stream = &self.0;
        stream.is_over.set(true);
        if stream.is_waiting.get() {
            let mut waiting = stream.streams.waiting.borrow_mut();
            waiting.retain(|other| !Rc::ptr_eq(other, stream));
        }
        stream.remove_if_done();
    }
}

impl Stream {
    fn remove_if_done(&self) {
        if self.is_over.get() && self.held.get() == 0 {
            let removed = self.streams.all.borrow_mut().try_remove(self.index.get());
            // Another stream may get the index from here on.
            self.index.set(usize::MAX);
            // The future is dropped when the table can be used again.
            drop(removed);
        }
    }

    /// Ready when the stream may be given another frame.
    fn poll_room(self: &Rc<Stream>, cx: &Context<'_>) -> Poll<()> {
        if self.held.get() == 0 || self.streams.held.get() < CONNECTION {
            return Poll::Ready(());
        }
        self.waker.replace(Some(cx.waker().clone()));
        if !self.is_waiting.replace(true) {
            self.streams.waiting.borrow_mut().push_back(self.clone());
        }
        Poll::Pending
    }

    fn hold(&self, bytes: usize) {
        if self.held.get() == 0 {
            self.since.set(time::now());
        }
        self.held.set(self.held.get() + bytes);
        self.streams.held.set(self.streams.held.get() + bytes);
    }

    fn release(&self, bytes: usize) {
        self.held.set(self.held.get() - bytes);
        self.streams.held.set(self.streams.held.get() - bytes);
        self.has_moved.set(true);
        self.remove_if_done();
        if self.held.get() == 0 {
            self.wake();
        }
        if self.streams.held.get() < CONNECTION {
            // One stream is woken at a time. The bytes that its task gives back wake the stream
            // after it, or else that stream's own bytes do.
            let next = self.streams.waiting.borrow_mut().pop_front();
            if let Some(next) = next {
                next.is_waiting.set(false);
                next.wake();
            }
        }
    }

    fn wake(&self) {
        self.waker.take().into_iter().for_each(Waker::wake);
    }
}

/// A part of a response that hyper has.
pub(super) struct Portion {
    bytes: Bytes,
    length: usize,
    stream: Rc<Stream>,
}

impl Buf for Portion {
    fn remaining(&self) -> usize {
        self.bytes.len()
    }

    fn chunk(&self) -> &[u8] {
        &self.bytes
    }

    fn advance(&mut self, count: usize) {
        self.stream.has_moved.set(true);
        self.bytes.advance(count);
    }
}

impl Drop for Portion {
    fn drop(&mut self) {
        self.stream.release(self.length);
    }
}

/// A response's body, in portions.
pub(super) struct Portions {
    answer: Answer,
    /// The rest of the last frame.
    rest: Bytes,
    /// None if the stream leaves HTTP: there is no body then.
    guard: Option<StreamGuard>,
}

impl Portions {
    pub(super) fn new(mut answer: Answer, guard: Option<StreamGuard>) -> Portions {
        answer.limit_reads(READ);
        Portions { answer, rest: Bytes::new(), guard }
    }
}

impl Drop for Portions {
    fn drop(&mut self) {
        self.answer.cut(self.rest.len() as u64);
    }
}

/// Answers a request in portions.
pub(super) async fn portioned(
    serving: Serving,
    guard: StreamGuard,
) -> Result<Response<Portions>, Infallible> {
    let response = serving.await?;
    Ok(response.map(|answer| Portions::new(answer, Some(guard))))
}

impl http_body::Body for Portions {
    type Data = Portion;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Portion>>>> {
        let this = self.get_mut();
        let Some(StreamGuard(stream)) = &this.guard else { return Poll::Ready(None) };
        ready!(stream.poll_room(cx));
        if this.rest.is_empty() {
            let frame = match ready!(Pin::new(&mut this.answer).poll_frame(cx)) {
                Some(Ok(frame)) => frame,
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(None),
            };
            match frame.into_data() {
                Ok(data) => this.rest = data,
                Err(other) => {
                    let trailers = other.into_trailers().unwrap_or_default();
                    return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
                }
            }
        }
        let bytes = this.rest.split_to(this.rest.len().min(FRAME));
        stream.hold(bytes.len());
        let length = bytes.len();
        Poll::Ready(Some(Ok(Frame::data(Portion { bytes, length, stream: stream.clone() }))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.answer.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let mut hint = self.answer.size_hint();
        let rest = self.rest.len() as u64;
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper + rest);
        }
        hint.set_lower(hint.lower() + rest);
        hint
    }
}

/// Spawns the tasks of a connection's streams.
#[derive(Clone)]
pub(super) struct Spawner(pub Rc<Streams>);

impl<F: Future<Output = ()> + 'static> Executor<F> for Spawner {
    fn execute(&self, future: F) {
        let Some(stream) = self.0.newest.take() else { return spawn(future).detach() };
        let task = match stream.is_upgraded.get() {
            false => spawn(future),
            true => {
                // A byte stands for all that is still to be written.
                stream.hold(1);
                let writes = Portion { bytes: Bytes::new(), length: 1, stream: stream.clone() };
                spawn(async move {
                    future.await;
                    drop(writes);
                })
            }
        };
        stream.task.replace(Some(task));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn portion(guard: &StreamGuard, length: usize) -> Portion {
        guard.0.hold(length);
        let (bytes, stream) = (Bytes::from(vec![0; length]), guard.0.clone());
        Portion { bytes, length, stream }
    }

    #[test]
    fn beyond_one_frame_each_streams_share_the_connections_budget() {
        let streams: Rc<Streams> = Rc::default();
        let cx = Context::from_waker(Waker::noop());
        let guards: Vec<StreamGuard> = (0..100).map(|_| streams.begin()).collect();
        let mut portions = VecDeque::new();
        while guards[0].0.poll_room(&cx).is_ready() {
            portions.push_back(portion(&guards[0], FRAME));
        }
        assert_eq!(streams.held(), CONNECTION);
        for guard in &guards[1..] {
            assert!(guard.0.poll_room(&cx).is_ready());
            portions.push_back(portion(guard, FRAME));
            assert!(guard.0.poll_room(&cx).is_pending());
        }
        assert_eq!(streams.held(), CONNECTION + 99 * FRAME);
        drop(portions.drain(..100).collect::<Vec<_>>());
        assert!(streams.held() < CONNECTION);
        assert!(guards[99].0.poll_room(&cx).is_ready());
        drop((guards, portions));
        assert_eq!((streams.held(), streams.all.borrow().len()), (0, 0));
    }

    #[test]
    fn only_streams_without_progress_are_found() {
        let streams: Rc<Streams> = Rc::default();
        let limit = Duration::from_secs(5);
        let (slow, stuck, done) = (streams.begin(), streams.begin(), streams.begin());
        let (mut first, _second, third) =
            (portion(&slow, 10), portion(&stuck, 10), portion(&done, 10));
        let begin = Instant::now();
        for second in 0..20 {
            let now = begin + Duration::from_secs(second);
            // No stream can move as long as the connection does not.
            assert!(!streams.end_stalled(now, limit, true));
        }
        drop(done);
        for second in 20..30 {
            if second % 4 == 0 {
                first.advance(1);
            }
            let now = begin + Duration::from_secs(second);
            let is_left = streams.end_stalled(now, limit, false);
            assert_eq!(is_left, second >= 24, "{second}");
        }
        let now = begin + Duration::from_secs(30);
        assert!(now - slow.0.since.get() < limit && now - stuck.0.since.get() > limit);
        drop(third);
        assert!(!streams.end_stalled(now, limit, false));
        assert_eq!(streams.all.borrow().len(), 2);
    }

    #[test]
    fn a_stream_that_has_left_http_is_reset_only_after_its_protocol_has_ended() {
        let limit = Duration::from_secs(5);
        superpoll_rt::Runtime::new().unwrap().block_on(async {
            let streams: Rc<Streams> = Rc::default();
            let executor = Spawner(streams.clone());
            // The request's task, and the task that writes the bytes of the other protocol.
            let guard = streams.begin();
            executor.execute(async {});
            guard.upgrade();
            let writes = Rc::new(());
            let held = writes.clone();
            executor.execute(async move {
                std::future::pending::<()>().await;
                drop(held);
            });
            let begin = Instant::now();
            for second in 0..20 {
                let now = begin + Duration::from_secs(second);
                assert!(!streams.end_stalled(now, limit, false));
                superpoll_rt::yield_now().await;
                assert_eq!(Rc::strong_count(&writes), 2, "after {second} s");
            }
            // The protocol has ended, and its last bytes are not taken.
            drop(guard);
            // It was last in use after 19 s.
            for second in 20..=24 {
                assert_eq!((Rc::strong_count(&writes), streams.all.borrow().len()), (2, 1));
                let now = begin + Duration::from_secs(second);
                // It can be reset, so the connection can continue.
                assert!(!streams.end_stalled(now, limit, false));
                superpoll_rt::yield_now().await;
            }
            assert_eq!(Rc::strong_count(&writes), 1);
            assert_eq!((streams.held(), streams.all.borrow().len()), (0, 0));
            // One whose last bytes are taken is not kept.
            let guard = streams.begin();
            executor.execute(async {});
            guard.upgrade();
            executor.execute(async {});
            drop(guard);
            superpoll_rt::yield_now().await;
            assert_eq!((streams.held(), streams.all.borrow().len()), (0, 0));
        });
    }
}
