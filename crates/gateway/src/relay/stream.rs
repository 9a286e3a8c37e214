//! One end of a relayed pair, TCP or Unix.
//!
//! Connecting by TCP does not wait to be told of its success. A socket on its way is written to as if it were
//! connected: it says `WouldBlock` until it is, and the reason if it never will be. That spares the second
//! `connect(2)` or `getsockopt(2)` and, where the peer is near, a wait.
//!
//! A relay that does not speculate waits for a direction before it uses it for the first time, which is what
//! an event loop does that trusts in nothing but its poller.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_io::{AsyncRead, AsyncWrite};
use rustix::pipe::SpliceFlags;
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use superpoll::call;
use superpoll_rt::{AsyncFd, Direction, Drains};

use super::calls::{Call, count};

/// What a direction reads from and writes to.
pub(super) trait End {
    fn poll_read(&self, cx: &mut Context<'_>, room: &mut [u8]) -> Poll<io::Result<usize>>;
    fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>>;
    /// Moves what there is into an empty pipe.
    fn poll_fill(
        &self,
        cx: &mut Context<'_>,
        pipe: &OwnedFd,
        length: usize,
    ) -> Poll<io::Result<usize>>;
    /// Moves out of a pipe what there is room for.
    fn poll_empty(
        &self,
        cx: &mut Context<'_>,
        pipe: &OwnedFd,
        length: usize,
    ) -> Poll<io::Result<usize>>;
    /// Has small writes sent at once from now on.
    fn set_nodelay(&self);
}

/// A socket whose calls are counted.
macro_rules! socket {
    ($(#[$doc:meta])* $name:ident($inner:ty), $drains:literal) => {
        $(#[$doc])*
        pub(super) struct $name($inner);

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

        impl Drains for $name {
            const SHORT_MEANS_BLOCKED: bool = $drains;
            #[inline(always)]
            fn read_in_line(&self, room: &mut [u8]) -> Option<io::Result<usize>> {
                let mut socket = self;
                Some(socket.read(room))
            }
            #[inline(always)]
            fn write_in_line(&self, bytes: &[u8]) -> Option<io::Result<usize>> {
                let mut socket = self;
                Some(socket.write(bytes))
            }
        }

        impl Drop for $name {
            fn drop(&mut self) {
                count(Call::Close);
            }
        }
    };
}

socket! {
    /// Of TCP.
    Tcp(std::net::TcpStream), true
}

socket! {
    /// Of the Unix domain. A read ends where descriptors came along, whatever is behind them.
    Unix(std::os::unix::net::UnixStream), false
}

/// A stream socket.
pub(super) enum Stream {
    Tcp(AsyncFd<Tcp>),
    Unix(AsyncFd<Unix>),
}

impl From<std::net::TcpStream> for Stream {
    /// Takes one that does not block.
    fn from(socket: std::net::TcpStream) -> Stream {
        Stream::Tcp(AsyncFd::nonblocking(Tcp(socket)))
    }
}

impl From<std::os::unix::net::UnixStream> for Stream {
    /// Takes one that does not block.
    fn from(socket: std::os::unix::net::UnixStream) -> Stream {
        Stream::Unix(AsyncFd::nonblocking(Unix(socket)))
    }
}

/// Calls a function with the descriptor of whatever kind.
macro_rules! either {
    ($self:ident, $stream:ident => $call:expr) => {
        match $self {
            Stream::Tcp($stream) => $call,
            Stream::Unix($stream) => $call,
        }
    };
}

impl Stream {
    /// Begins to connect by TCP.
    pub fn begin(address: SocketAddr) -> io::Result<Stream> {
        let kind = Type::STREAM.nonblocking().cloexec();
        count(Call::Socket);
        let socket = Socket::new(Domain::for_address(address), kind, Some(Protocol::TCP))?;
        count(Call::Connect);
        let outcome = socket.connect(&address.into());
        let stream = Stream::from(std::net::TcpStream::from(socket));
        match outcome {
            Ok(()) => {}
            Err(error)
                if error.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => {}
            Err(error) => return Err(error),
        }
        // The peer speaks after it has accepted at the earliest: the first read need not be tried.
        stream.doubt(Direction::Read);
        Ok(stream)
    }

    /// Has the next operation of a direction wait until it is reported.
    pub fn doubt(&self, direction: Direction) {
        let refuse = || -> io::Result<()> { Err(io::ErrorKind::WouldBlock.into()) };
        let _ = either!(self, stream => stream.try_perform(direction, |_| refuse()));
    }

    /// Waits until it is connected, or tells why it never will be.
    pub fn poll_connected(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Stream::Unix(_) => Poll::Ready(Ok(())),
            Stream::Tcp(stream) => stream.poll_perform(cx, Direction::Write, |stream| {
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

    /// Whether it is connected now.
    pub fn is_connected(&self) -> bool {
        match self {
            Stream::Unix(_) => true,
            Stream::Tcp(stream) => {
                count(Call::GetPeer);
                stream.get_ref().0.peer_addr().is_ok()
            }
        }
    }

    /// Ends the writing direction. One that is gone has none, which its next read tells.
    pub fn end_writing(&self) {
        count(Call::Shutdown);
        let _ = either!(self, stream => stream.get_ref().0.shutdown(Shutdown::Write));
    }

    /// Has closing reset the connection, so that the peer does not take a broken stream for a whole one. In the
    /// Unix domain there is no such thing.
    pub fn reset_on_close(&self) {
        if let Stream::Tcp(stream) = self {
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

impl End for Stream {
    #[inline]
    fn poll_read(&self, cx: &mut Context<'_>, room: &mut [u8]) -> Poll<io::Result<usize>> {
        either!(self, stream => Pin::new(&mut &*stream).poll_read(cx, room))
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
        let from = |stream: BorrowedFd<'_>| splice(stream, pipe, length);
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

    fn set_nodelay(&self) {
        if let Stream::Tcp(stream) = self {
            count(Call::SetOption);
            // A connection that is gone tells so when it is written to.
            let _ = stream.get_ref().0.set_nodelay(true);
        }
    }
}
