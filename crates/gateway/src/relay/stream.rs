//! One end of a relayed pair, TCP or Unix.
//!
//! Connecting by TCP does not wait for the report of success. A socket that is still connecting is
//! written to as if it were connected: it returns `WouldBlock` until it is, and the reason if the
//! connection fails. That spares the second `connect(2)` or `getsockopt(2)` and, where the peer is
//! near, a wait.
//!
//! A relay that does not speculate waits for a direction before it uses that direction for the
//! first time, as in an event loop that trusts only its poller.

use std::cell::Cell;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_io::{AsyncRead, AsyncWrite};
use rustix::net::{SendFlags, send};
use rustix::pipe::SpliceFlags;
use socket2::SockRef;
use superpoll::call;
use superpoll_http::transport::Socket;
use superpoll_rt::net::TcpStream;
use superpoll_rt::{AsyncFd, Direction, ShortCounts};

use super::calls::{Call, count};
use super::deferred::Seen;

/// The end that a direction reads from or writes to.
pub(super) trait End {
    fn poll_read(&self, cx: &mut Context<'_>, room: &mut [u8]) -> Poll<io::Result<usize>>;
    fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>>;
    /// Moves the available bytes into an empty pipe.
    fn poll_fill(
        &self,
        cx: &mut Context<'_>,
        pipe: &OwnedFd,
        length: usize,
    ) -> Poll<io::Result<usize>>;
    /// Moves as many bytes out of a pipe as the target has room for.
    fn poll_empty(
        &self,
        cx: &mut Context<'_>,
        pipe: &OwnedFd,
        length: usize,
    ) -> Poll<io::Result<usize>>;
    /// Writes the last bytes; the end of the stream that follows goes with them.
    fn poll_write_last(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>>;
    /// Makes the kernel send small writes at once from now on.
    fn set_nodelay(&self);
    /// Whether a read that begins now and returns less than it could has reached the end.
    fn has_all(&self) -> bool;
}

/// Counts the close of the socket that it is part of.
struct Closing;

impl Drop for Closing {
    fn drop(&mut self) {
        count(Call::Close);
    }
}

/// A socket whose calls are counted.
macro_rules! socket {
    ($(#[$doc:meta])* $name:ident($inner:ty), $drains:literal) => {
        $(#[$doc])*
        pub(super) struct $name($inner, Closing);

        impl From<$name> for OwnedFd {
            /// The new owner counts the close.
            fn from(socket: $name) -> OwnedFd {
                let $name(socket, closing) = socket;
                std::mem::forget(closing);
                socket.into()
            }
        }

        impl AsFd for $name {
            #[inline]
            fn as_fd(&self) -> BorrowedFd<'_> {
                self.0.as_fd()
            }
        }

        impl Read for &$name {
            #[inline(always)]
            fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
                count(Call::Read);
                call::read(&self.0, room)
            }
        }

        impl Write for &$name {
            #[inline(always)]
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                count(Call::Send);
                call::send(&self.0, bytes)
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }

        impl ShortCounts for $name {
            const SHORT_MEANS_BLOCKED: bool = $drains;
            #[inline(always)]
            fn read_inline(&self, room: &mut [u8]) -> Option<io::Result<usize>> {
                let mut socket = self;
                Some(socket.read(room))
            }
            #[inline(always)]
            fn write_inline(&self, bytes: &[u8]) -> Option<io::Result<usize>> {
                let mut socket = self;
                Some(socket.write(bytes))
            }
        }
    };
}

socket! {
    /// Of TCP.
    Tcp(std::net::TcpStream), true
}

socket! {
    /// Of the Unix domain. A read ends where descriptors are attached, whatever is behind them.
    Unix(std::os::unix::net::UnixStream), false
}

/// The socket, of either kind.
enum Kind {
    Tcp(AsyncFd<Tcp>),
    Unix(AsyncFd<Unix>),
}

/// How a stream is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reading {
    /// The stream is watched, or will be as soon as a read finds nothing.
    Watched,
    /// Not in this turn.
    Later,
    /// The read is tried without watching the stream.
    Tried,
}

/// A stream socket.
pub(super) struct Stream {
    kind: Kind,
    reading: Cell<Reading>,
    /// The end was seen while the stream was not watched.
    saw_eof: Cell<bool>,
}

impl From<std::net::TcpStream> for Stream {
    /// Takes a stream that does not block.
    fn from(socket: std::net::TcpStream) -> Stream {
        let kind = Kind::Tcp(AsyncFd::detecting_eof(Tcp(socket, Closing)));
        Stream::new(kind)
    }
}

impl From<std::os::unix::net::UnixStream> for Stream {
    /// Takes a stream that does not block.
    fn from(socket: std::os::unix::net::UnixStream) -> Stream {
        let kind = Kind::Unix(AsyncFd::nonblocking(Unix(socket, Closing)));
        Stream::new(kind)
    }
}

impl From<Socket> for Stream {
    /// Takes a stream that does not block.
    fn from(socket: Socket) -> Stream {
        match socket {
            Socket::Tcp(socket) => socket.into(),
            Socket::Unix(socket) => socket.into(),
        }
    }
}

/// Calls a function with the descriptor, of either kind.
macro_rules! either {
    ($self:ident, $stream:ident => $call:expr) => {
        match &$self.kind {
            Kind::Tcp($stream) => $call,
            Kind::Unix($stream) => $call,
        }
    };
}

impl Stream {
    fn new(kind: Kind) -> Stream {
        Stream { kind, reading: Cell::new(Reading::Watched), saw_eof: Cell::new(false) }
    }

    /// Begins to connect by TCP. If there are bytes to send at once, the kernel does not
    /// acknowledge the connection on its own before them, which spares a packet.
    pub(super) fn begin(address: SocketAddr, sends: bool) -> io::Result<Stream> {
        count(Call::Socket);
        let socket = TcpStream::unconnected(address)?.into_std();
        let options = SockRef::from(&socket);
        if sends {
            count(Call::SetOption);
            // The connection works without it, too.
            let _ = options.set_tcp_quickack(false);
        }
        count(Call::Connect);
        let outcome = options.connect(&address.into());
        let stream = Stream::from(socket);
        match outcome {
            Ok(()) => {}
            Err(error)
                if error.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => {}
            Err(error) => return Err(error),
        }
        // The peer sends nothing before it has accepted the connection, so the first read need not
        // be tried.
        stream.doubt(Direction::Read);
        Ok(stream)
    }

    /// Makes the next operation of a direction wait until it is reported.
    pub(super) fn doubt(&self, direction: Direction) {
        let refuse = || -> io::Result<()> { Err(io::ErrorKind::WouldBlock.into()) };
        let _ = either!(self, stream => stream.try_perform(direction, |_| refuse()));
    }

    /// Returns how the stream is read.
    pub(super) fn reading(&self) -> Reading {
        self.reading.get()
    }

    /// Sets how the stream is read from now on. When the stream begins to be watched, it reports
    /// bytes that have arrived meanwhile.
    pub(super) fn set_reading(&self, reading: Reading) {
        if self.reading.replace(reading) != Reading::Watched && reading == Reading::Watched {
            self.doubt(Direction::Read);
        }
    }

    /// Applies what was seen of the stream, which is not watched.
    pub(super) fn apply(&self, seen: Seen) {
        if self.reading() != Reading::Watched {
            self.reading.set(if seen.readable { Reading::Tried } else { Reading::Later });
            self.saw_eof.set(seen.has_eof);
        }
    }

    /// Notes that the stream, unless it is watched, is not read until it was seen.
    pub(super) fn is_not_read(&self) {
        if self.reading() != Reading::Watched {
            self.reading.set(Reading::Later);
        }
    }

    /// Returns the descriptor.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        either!(self, stream => stream.as_fd())
    }

    /// Reads the bytes that are available now.
    pub(super) fn try_read(&self, room: &mut [u8]) -> io::Result<usize> {
        either!(self, stream => stream.try_perform(Direction::Read, |mut socket| socket.read(room)))
    }

    /// Notes that a read has returned less than it could while the stream is not watched yet: the
    /// next read need not be tried. When the stream begins to be watched, it reports all bytes that
    /// are there.
    pub(super) fn is_drained(&self) {
        if matches!(self.kind, Kind::Tcp(_)) {
            self.doubt(Direction::Read);
        }
    }

    /// Waits until the stream is connected, or returns the reason for which the connection failed.
    pub(super) fn poll_connected(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &self.kind {
            Kind::Unix(_) => Poll::Ready(Ok(())),
            Kind::Tcp(stream) => stream.poll_perform(cx, Direction::Write, |stream| {
                count(Call::GetOption);
                match stream.0.take_error()? {
                    Some(error) => Err(error),
                    None => {
                        count(Call::GetPeer);
                        match stream.0.peer_addr() {
                            Err(error) if error.kind() == io::ErrorKind::NotConnected => {
                                Err(io::ErrorKind::WouldBlock.into())
                            }
                            outcome => outcome.map(drop),
                        }
                    }
                }
            }),
        }
    }

    /// Whether the stream is connected now.
    pub(super) fn is_connected(&self) -> bool {
        match &self.kind {
            Kind::Unix(_) => true,
            Kind::Tcp(stream) => {
                count(Call::GetPeer);
                stream.get_ref().0.peer_addr().is_ok()
            }
        }
    }

    /// Ends the writing direction. A connection that is gone has none; its next read reports that.
    pub(super) fn end_writing(&self) {
        count(Call::Shutdown);
        let _ = either!(self, stream => stream.get_ref().0.shutdown(Shutdown::Write));
    }

    /// Closes two streams, with one call if possible.
    pub(super) fn close_both(self, other: Stream) {
        let at_once = match (self.kind, other.kind) {
            (Kind::Tcp(one), Kind::Tcp(other)) => one.close_both(other),
            (Kind::Tcp(one), Kind::Unix(other)) => one.close_both(other),
            (Kind::Unix(one), Kind::Tcp(other)) => one.close_both(other),
            (Kind::Unix(one), Kind::Unix(other)) => one.close_both(other),
        };
        match at_once {
            true => count(Call::CloseRange),
            false => [Call::Close; 2].into_iter().for_each(count),
        }
    }

    /// Makes closing reset the connection, so that the peer does not take a broken stream for a
    /// whole one. The Unix domain has no reset.
    pub(super) fn reset_on_close(&self) {
        if let Kind::Tcp(stream) = &self.kind {
            count(Call::SetOption);
            let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
        }
    }
}

/// `splice(2)` without blocking.
fn splice(from: impl AsFd, to: impl AsFd, length: usize) -> io::Result<usize> {
    count(Call::Splice);
    let flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
    Ok(rustix::pipe::splice(from, None, to, None, length, flags)?)
}

/// Whether the next byte is an urgent one.
fn is_at_mark(stream: BorrowedFd<'_>) -> bool {
    count(Call::AskMark);
    call::is_at_mark(stream)
}

impl End for Stream {
    #[inline]
    fn poll_read(&self, cx: &mut Context<'_>, room: &mut [u8]) -> Poll<io::Result<usize>> {
        match self.reading.get() {
            Reading::Watched => {
                either!(self, stream => Pin::new(&mut &*stream).poll_read(cx, room))
            }
            Reading::Later => Poll::Pending,
            Reading::Tried => match self.try_read(room) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.reading.set(Reading::Later);
                    Poll::Pending
                }
                outcome => {
                    if outcome.as_ref().is_ok_and(|count| *count < room.len()) {
                        self.reading.set(Reading::Later);
                    }
                    Poll::Ready(outcome)
                }
            },
        }
    }

    #[inline]
    fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        either!(self, stream => Pin::new(&mut &*stream).poll_write(cx, bytes))
    }

    fn poll_fill(
        &self,
        cx: &mut Context<'_>,
        pipe: &OwnedFd,
        length: usize,
    ) -> Poll<io::Result<usize>> {
        self.set_reading(Reading::Watched);
        let from = |stream: BorrowedFd<'_>| match splice(stream, pipe, length) {
            // The byte would stay there: bytes after an urgent byte have to be copied.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && is_at_mark(stream) => {
                Err(io::ErrorKind::Unsupported.into())
            }
            outcome => outcome,
        };
        either!(self, stream => stream.poll_perform(cx, Direction::Read, |socket| from(socket.as_fd())))
    }

    fn poll_empty(
        &self,
        cx: &mut Context<'_>,
        pipe: &OwnedFd,
        length: usize,
    ) -> Poll<io::Result<usize>> {
        let to = |stream: BorrowedFd<'_>| splice(pipe, stream, length);
        either!(self, stream => stream.poll_perform(cx, Direction::Write, |socket| to(socket.as_fd())))
    }

    fn poll_write_last(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &self.kind {
            Kind::Unix(_) => self.poll_write(cx, bytes),
            Kind::Tcp(stream) => stream.poll_perform(cx, Direction::Write, |socket| {
                count(Call::Send);
                Ok(send(socket, bytes, SendFlags::MORE | SendFlags::NOSIGNAL)?)
            }),
        }
    }

    #[inline]
    fn has_all(&self) -> bool {
        matches!(&self.kind, Kind::Tcp(stream) if self.saw_eof.get() || stream.has_eof())
    }

    fn set_nodelay(&self) {
        if let Kind::Tcp(stream) = &self.kind {
            count(Call::SetOption);
            // A connection that is gone fails at the next write.
            let _ = stream.get_ref().0.set_nodelay(true);
        }
    }
}
