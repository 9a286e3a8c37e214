//! A stream of an HTTP/2 connection that has left HTTP (RFC 8441): bytes in both directions.
//!
//! ```text
//!   the other protocol: Http2Stream <-- StreamPipe --> the connection's task: windows and frames
//! ```
//!
//! A connection that is to be parked asks the protocols on its streams to [rest](Resting). One that
//! waits for news leaves its stream then, and has no task until there are some.
//!
//! A write is a copy, and the next one waits until the connection has taken it: `WRITE` is the
//! bound. In the other direction it is the window of the stream, as bytes count against that until
//! they were read here.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::{Buf, Bytes, BytesMut};
use futures_io::{AsyncRead, AsyncWrite};

/// The most bytes of a write.
const WRITE: usize = 16 << 10;

/// A protocol on a stream that waits for news, and needs no task for that.
pub trait Resting: Any {
    /// Whether it has something to do. Until then, the waker is to be woken by that.
    fn has_news(&self, waker: &Waker) -> bool;

    /// Goes on in a task.
    fn resume(self: Box<Self>, stream: Http2Stream);

    /// Ends, as the client has gone.
    fn end(self: Box<Self>);
}

/// The bytes between a stream and its connection.
pub struct StreamPipe {
    /// Bytes of the client.
    incoming: RefCell<BytesMut>,
    /// No more of them follow.
    has_ended: Cell<bool>,
    /// Those that were read here and not released by the connection yet.
    read: Cell<usize>,
    /// Bytes for the client.
    outgoing: Cell<Bytes>,
    /// Whether there are some.
    is_full: Cell<bool>,
    /// No more of them follow.
    is_closed: Cell<bool>,
    /// The other protocol has ended.
    is_dropped: Cell<bool>,
    /// The stream has ended.
    is_gone: Cell<bool>,
    /// The other protocol, if it has no task; and whether it is asked to have none.
    resting: Cell<Option<Box<dyn Resting>>>,
    is_asked: Cell<bool>,
    reader: Cell<Option<Waker>>,
    writer: Cell<Option<Waker>>,
    connection: Waker,
}

impl StreamPipe {
    /// Returns both ends: that of the connection, whose task is woken by `connection`, with bytes
    /// of the client that are there already; and that of the other protocol.
    #[must_use]
    pub fn new(
        connection: Waker,
        incoming: BytesMut,
        has_ended: bool,
    ) -> (Rc<StreamPipe>, Http2Stream) {
        let pipe = Rc::new(StreamPipe {
            incoming: RefCell::new(incoming),
            has_ended: Cell::new(has_ended),
            read: Cell::new(0),
            outgoing: Cell::default(),
            is_full: Cell::new(false),
            is_closed: Cell::new(false),
            is_dropped: Cell::new(false),
            is_gone: Cell::new(false),
            resting: Cell::default(),
            is_asked: Cell::new(false),
            reader: Cell::default(),
            writer: Cell::default(),
            connection,
        });
        (pipe.clone(), Http2Stream(pipe))
    }

    /// Returns the end of a connection, on whose stream a protocol rests.
    #[must_use]
    pub fn at_rest(connection: Waker, resting: Box<dyn Resting>) -> Rc<StreamPipe> {
        let (pipe, stream) = StreamPipe::new(connection, BytesMut::new(), false);
        stream.rest(resting);
        pipe
    }

    /// Asks the other protocol to rest as soon as it waits for news.
    pub fn ask_to_rest(&self) {
        if !self.is_asked.replace(true) {
            self.reader.take().into_iter().for_each(Waker::wake);
        }
    }

    /// Whether the other protocol rests, and no bytes are under way.
    #[must_use]
    pub fn can_rest(&self) -> bool {
        self.is_quiet()
            && self.read.get() == 0
            && self.with_resting(|resting| !resting.has_news(&self.connection))
    }

    /// Gives the other protocol a task again if it rests and has something to do.
    pub fn resume(self: &Rc<StreamPipe>) {
        if self.with_resting(|resting| !self.is_quiet() || resting.has_news(&self.connection))
            && let Some(resting) = self.resting.take()
        {
            self.is_asked.set(false);
            resting.resume(Http2Stream(self.clone()));
        }
    }

    /// Takes the other protocol that rests.
    pub fn take_resting(&self) -> Option<Box<dyn Resting>> {
        self.resting.take()
    }

    fn with_resting(&self, look: impl FnOnce(&dyn Resting) -> bool) -> bool {
        let Some(resting) = self.resting.take() else { return false };
        let seen = look(&*resting);
        self.resting.set(Some(resting));
        seen
    }

    fn is_quiet(&self) -> bool {
        let (is_full, has_ended) = (self.is_full.get(), self.has_ended.get());
        let is_open = !has_ended && !self.is_closed.get() && !self.is_gone.get();
        is_open && !is_full && self.incoming.borrow().is_empty()
    }

    /// Passes bytes of the client on, and whether they are the last ones.
    pub fn push(&self, bytes: &[u8], has_ended: bool) {
        self.incoming.borrow_mut().extend_from_slice(bytes);
        self.has_ended.set(self.has_ended.get() || has_ended);
        self.reader.take().into_iter().for_each(Waker::wake);
    }

    /// Returns how many bytes were read since the last call.
    pub fn take_read(&self) -> usize {
        self.read.take()
    }

    /// Takes the bytes for the client.
    pub fn take_written(&self) -> Bytes {
        self.is_full.set(false);
        self.writer.take().into_iter().for_each(Waker::wake);
        self.outgoing.take()
    }

    /// Whether no more bytes for the client follow those that were taken.
    #[must_use]
    pub fn is_over(&self) -> bool {
        (self.is_closed.get() || self.is_dropped.get()) && !self.is_full.get()
    }

    /// Whether the other protocol has ended, and reads no more.
    #[must_use]
    pub fn is_dropped(&self) -> bool {
        self.is_dropped.get()
    }

    /// Ends the stream: reads and writes fail from now on.
    pub fn end(&self) {
        self.is_gone.set(true);
        self.resting.take().into_iter().for_each(Resting::end);
        for waker in [&self.reader, &self.writer] {
            waker.take().into_iter().for_each(Waker::wake);
        }
    }

    fn wait(&self, waker: &Cell<Option<Waker>>, cx: &Context<'_>) {
        waker.set(Some(cx.waker().clone()));
    }
}

superpoll::debug_fields!(StreamPipe, it => is_over: it.is_over(), is_gone: it.is_gone.get());

/// A stream that has left HTTP.
#[derive(Debug)]
pub struct Http2Stream(Rc<StreamPipe>);

impl Http2Stream {
    /// Whether the protocol is asked to rest, no bytes are under way, and more may follow in both
    /// directions.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.0.is_asked.get() && self.0.is_quiet()
    }

    /// Leaves the stream to a protocol that rests.
    pub fn rest(self, resting: Box<dyn Resting>) {
        self.0.resting.set(Some(resting));
    }
}

impl Drop for Http2Stream {
    fn drop(&mut self) {
        let is_left = self.0.with_resting(|_| true);
        self.0.is_dropped.set(!is_left);
        self.0.connection.wake_by_ref();
    }
}

impl AsyncRead for Http2Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        room: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let pipe = &*self.0;
        let mut incoming = pipe.incoming.borrow_mut();
        if !incoming.is_empty() {
            let count = incoming.len().min(room.len());
            room[..count].copy_from_slice(&incoming[..count]);
            incoming.advance(count);
            if incoming.is_empty() {
                *incoming = BytesMut::new();
            }
            pipe.read.set(pipe.read.get() + count);
            pipe.connection.wake_by_ref();
            return Poll::Ready(Ok(count));
        }
        if pipe.has_ended.get() {
            return Poll::Ready(Ok(0));
        }
        if pipe.is_gone.get() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        pipe.wait(&pipe.reader, cx);
        Poll::Pending
    }
}

impl AsyncWrite for Http2Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let pipe = &*self.0;
        if pipe.is_gone.get() || pipe.is_closed.get() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        if pipe.is_full.get() {
            pipe.wait(&pipe.writer, cx);
            return Poll::Pending;
        }
        let some = &bytes[..bytes.len().min(WRITE)];
        pipe.outgoing.set(Bytes::copy_from_slice(some));
        pipe.is_full.set(true);
        pipe.connection.wake_by_ref();
        Poll::Ready(Ok(some.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let pipe = &*self.0;
        match pipe.is_full.get() {
            true if pipe.is_gone.get() => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            true => {
                pipe.wait(&pipe.writer, cx);
                Poll::Pending
            }
            false => Poll::Ready(Ok(())),
        }
    }

    fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.0.is_closed.replace(true) {
            self.0.connection.wake_by_ref();
        }
        self.poll_flush(cx)
    }
}
