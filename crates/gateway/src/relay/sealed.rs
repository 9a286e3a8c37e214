//! A client and its upstream, with encryption at one end or at both.
//!
//! The two directions are those of a pair of plain sockets (`flow`): they read before they wait and
//! hold a buffer only while their target is slow. They copy, as the kernel can splice no bytes that
//! have to be sealed or opened. The end of a direction is another one:
//!
//! | the source | the target is sent |
//! |---|---|
//! | ends in order: `close_notify`, or the end of a plain stream | the end in order, in its own way |
//! | ends without `close_notify`, breaks, or sends a record that is not genuine | a reset |
//!
//! A stream that ends without `close_notify` may have been cut off by anyone on the way (RFC 8446,
//! section 6.1). Passing that on as an end in order would hide it. For the same reason neither end
//! is sent a `close_notify` where a pair breaks or is idle for too long.
//!
//! An encrypted stream takes bytes before the kernel has room for them. So a target is flushed in
//! each turn, and its end is only sent after all bytes that it has taken.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use futures_io::{AsyncRead, AsyncWrite};
use futures_rustls::client;
use socket2::SockRef;
use superpoll_http::log::BrokenBy;
use superpoll_http::tls::TlsStream;
use superpoll_http::transport::{Layered, Plain};
use superpoll_rt::time::{self, Sleep, sleep_until};

use super::flow::{Broken, Flow, Moved};
use super::shared::ActivePair;
use super::stream::End;

/// An encrypted stream over a socket.
pub(super) trait OverSocket {
    fn socket(&self) -> &Plain;
}

impl OverSocket for TlsStream {
    fn socket(&self) -> &Plain {
        self.plain()
    }
}

impl OverSocket for client::TlsStream<Plain> {
    fn socket(&self) -> &Plain {
        self.get_ref().0
    }
}

/// An end of a pair, encrypted or not.
pub(super) struct Sealed<T> {
    stream: RefCell<Layered<T>>,
    /// The stream has taken bytes that the kernel may not have.
    is_behind: Cell<bool>,
}

impl<T: AsyncRead + AsyncWrite + OverSocket + Unpin> Sealed<T> {
    pub(super) fn new(stream: Layered<T>) -> Sealed<T> {
        Sealed { stream: RefCell::new(stream), is_behind: Cell::new(false) }
    }

    /// Gives the kernel the bytes that the stream has taken.
    fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.is_behind.get() {
            ready!(Pin::new(&mut *self.stream.borrow_mut()).poll_flush(cx))?;
            self.is_behind.set(false);
        }
        Poll::Ready(Ok(()))
    }

    /// Sends the end of the stream, after all bytes that it has taken.
    fn poll_end(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match ready!(Pin::new(&mut *self.stream.borrow_mut()).poll_close(cx)) {
            // The peer is gone, which the other direction reports.
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Poll::Ready(Ok(())),
            outcome => Poll::Ready(outcome),
        }
    }

    /// Makes closing reset the connection. The Unix domain has no reset.
    fn reset_on_close(&self) {
        let stream = self.stream.borrow();
        let socket = match &*stream {
            Layered::Plain(plain) => plain,
            Layered::Tls(stream) => stream.get_ref().socket(),
            Layered::Stream(_) => return,
        };
        if let Plain::Tcp(socket) = socket {
            let _ = SockRef::from(socket).set_linger(Some(Duration::ZERO));
        }
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> End for Sealed<T> {
    fn poll_read(&self, cx: &mut Context<'_>, room: &mut [u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.stream.borrow_mut()).poll_read(cx, room)
    }

    fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.is_behind.set(true);
        Pin::new(&mut *self.stream.borrow_mut()).poll_write(cx, bytes)
    }

    fn poll_fill(&self, _: &mut Context<'_>, _: &OwnedFd, _: usize) -> Poll<io::Result<usize>> {
        Poll::Ready(Err(io::ErrorKind::Unsupported.into()))
    }

    fn poll_empty(&self, _: &mut Context<'_>, _: &OwnedFd, _: usize) -> Poll<io::Result<usize>> {
        Poll::Ready(Err(io::ErrorKind::Unsupported.into()))
    }

    fn poll_write_last(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write(cx, bytes)
    }

    fn set_nodelay(&self) {
        // Accepted sockets have it, and so do those that were connected.
    }

    fn has_all(&self) -> bool {
        false
    }
}

/// A direction, and how far its end has got.
struct Half {
    flow: Flow,
    ended: bool,
    /// The target was sent the end.
    is_over: bool,
}

impl Half {
    fn new() -> Half {
        Half { flow: Flow::copying(), ended: false, is_over: false }
    }

    /// Moves bytes until there are none to move; ready when the target was sent the end.
    fn poll<S, T>(
        &mut self,
        cx: &mut Context<'_>,
        source: &Sealed<S>,
        target: &Sealed<T>,
        moved: &mut Moved,
    ) -> Poll<Result<(), Broken>>
    where
        S: AsyncRead + AsyncWrite + OverSocket + Unpin,
        T: AsyncRead + AsyncWrite + OverSocket + Unpin,
    {
        if !self.ended && self.flow.poll(cx, source, target, moved)?.is_ready() {
            self.ended = true;
        }
        if self.ended && !self.is_over {
            ready!(target.poll_end(cx)).map_err(Broken::Target)?;
            self.is_over = true;
        }
        if self.is_over {
            return Poll::Ready(Ok(()));
        }
        if let Poll::Ready(Err(error)) = target.poll_flush(cx) {
            return Poll::Ready(Err(Broken::Target(error)));
        }
        Poll::Pending
    }
}

/// The time limit of a pair.
struct Idleness {
    limit: Duration,
    sleep: Sleep,
    /// When bytes were last moved.
    active: Instant,
}

impl Idleness {
    fn new(limit: Duration) -> Idleness {
        let active = time::now();
        Idleness { limit, sleep: sleep_until(active + limit), active }
    }

    /// Ready when no byte has moved for too long.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            ready!(Pin::new(&mut self.sleep).poll(cx));
            let due = self.active + self.limit;
            if time::now() >= due {
                return Poll::Ready(());
            }
            self.sleep = sleep_until(due);
        }
    }
}

/// A relayed pair with an encrypted end.
pub(super) struct SealedPair {
    client: Sealed<TlsStream>,
    upstream: Sealed<client::TlsStream<Plain>>,
    up: Half,
    down: Half,
    idleness: Option<Box<Idleness>>,
    active: ActivePair,
}

impl SealedPair {
    /// Creates the pair of two ends that are connected. `ahead` goes ahead of all bytes from the
    /// client.
    pub(super) fn new(
        client: Sealed<TlsStream>,
        upstream: Sealed<client::TlsStream<Plain>>,
        ahead: Vec<u8>,
        active: ActivePair,
    ) -> SealedPair {
        active.connected();
        let (mut up, down) = (Half::new(), Half::new());
        up.flow.begin_with_bytes(ahead);
        let idle = active.options().idle_timeout;
        let idleness = idle.map(|limit| Box::new(Idleness::new(limit)));
        SealedPair { client, upstream, up, down, idleness, active }
    }

    fn broken(&self, broken: &Broken, of_client: bool) {
        // A source that has sent a wrong record gets an alert, which a reset would overtake.
        let is_told = |broken: &Broken| matches!(broken, Broken::Source(error) if error.kind() == io::ErrorKind::InvalidData);
        if !(of_client && is_told(broken)) {
            self.client.reset_on_close();
        }
        if of_client || !is_told(broken) {
            self.upstream.reset_on_close();
        }
        self.active.broken_by(if of_client { BrokenBy::Client } else { BrokenBy::Upstream });
        self.active.totals().broken.fetch_add(1, Ordering::Relaxed);
    }

    /// Moves the bytes that are available; ready when the pair is over.
    fn relay(&mut self, cx: &mut Context<'_>, moved: &mut [Moved; 2]) -> Poll<()> {
        let [up_moved, down_moved] = moved;
        let up = self.up.poll(cx, &self.client, &self.upstream, up_moved);
        if let Poll::Ready(Err(broken)) = &up {
            self.broken(broken, matches!(broken, Broken::Source(_)));
            return Poll::Ready(());
        }
        let down = self.down.poll(cx, &self.upstream, &self.client, down_moved);
        if let Poll::Ready(Err(broken)) = &down {
            self.broken(broken, matches!(broken, Broken::Target(_)));
            return Poll::Ready(());
        }
        if up.is_ready() && down.is_ready() {
            self.active.note(|record| record.broken_by = None);
            return Poll::Ready(());
        }
        Poll::Pending
    }
}

impl Future for SealedPair {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        let mut moved = <[Moved; 2]>::default();
        let outcome = this.relay(cx, &mut moved);
        let [up, down] = &moved;
        this.active.moved(up, down);
        if outcome.is_ready() {
            return Poll::Ready(());
        }
        let Some(idleness) = &mut this.idleness else { return Poll::Pending };
        if (up.read | up.written | down.read | down.written) > 0 {
            idleness.active = time::now();
        }
        ready!(idleness.poll(cx));
        this.active.broken_by(BrokenBy::Timeout);
        this.active.totals().timed_out.fetch_add(1, Ordering::Relaxed);
        Poll::Ready(())
    }
}
