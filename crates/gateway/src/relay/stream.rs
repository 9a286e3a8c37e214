//! One end of a relayed pair, TCP or Unix.
//!
//! Connecting by TCP does not wait to be told of its success. A socket on its way is written to as if it were
//! connected: it says `WouldBlock` until it is, and the reason if it never will be. That spares the second
//! `connect(2)` or `getsockopt(2)` and, where the peer is near, a wait.

use std::io;
use std::net::{Shutdown, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_io::{AsyncRead, AsyncWrite};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use superpoll_rt::net::StreamSocket;
use superpoll_rt::net::unix::UnixStream;
use superpoll_rt::pipe::{PipeReader, PipeWriter};
use superpoll_rt::transfer::poll_splice;
use superpoll_rt::{AsyncFd, Direction};

/// A stream socket.
pub(super) enum Stream {
    Tcp(AsyncFd<std::net::TcpStream>),
    Unix(UnixStream),
}

impl Stream {
    /// Begins to connect by TCP.
    pub fn begin(address: SocketAddr) -> io::Result<Stream> {
        let kind = Type::STREAM.nonblocking().cloexec();
        let socket = Socket::new(Domain::for_address(address), kind, Some(Protocol::TCP))?;
        match socket.connect(&address.into()) {
            Ok(()) => {}
            Err(error)
                if error.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => {}
            Err(error) => return Err(error),
        }
        let socket = AsyncFd::nonblocking(std::net::TcpStream::from(socket));
        // The peer speaks after it has accepted at the earliest: the first read need not be tried.
        let _ = socket.try_perform(Direction::Read, |_| -> io::Result<()> {
            Err(io::ErrorKind::WouldBlock.into())
        });
        Ok(Stream::Tcp(socket))
    }

    /// Waits until it is connected, or tells why it never will be.
    pub fn poll_connected(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Stream::Unix(_) => Poll::Ready(Ok(())),
            Stream::Tcp(stream) => {
                stream.poll_perform(cx, Direction::Write, |stream| match stream.take_error()? {
                    Some(error) => Err(error),
                    None => match stream.peer_addr() {
                        Err(error) if error.kind() == io::ErrorKind::NotConnected => {
                            Err(io::ErrorKind::WouldBlock.into())
                        }
                        outcome => outcome.map(drop),
                    },
                })
            }
        }
    }

    /// Whether it is connected now.
    pub fn is_connected(&self) -> bool {
        match self {
            Stream::Unix(_) => true,
            Stream::Tcp(stream) => stream.get_ref().peer_addr().is_ok(),
        }
    }

    pub fn poll_read(&self, cx: &mut Context<'_>, room: &mut [u8]) -> Poll<io::Result<usize>> {
        match self {
            Stream::Tcp(stream) => Pin::new(&mut &*stream).poll_read(cx, room),
            Stream::Unix(stream) => StreamSocket::poll_read(stream, cx, room),
        }
    }

    pub fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Stream::Tcp(stream) => Pin::new(&mut &*stream).poll_write(cx, bytes),
            Stream::Unix(stream) => StreamSocket::poll_write(stream, cx, bytes),
        }
    }

    /// Moves what there is into a pipe.
    pub fn poll_fill(
        &self,
        cx: &mut Context<'_>,
        pipe: &PipeWriter,
        length: usize,
    ) -> Poll<io::Result<usize>> {
        match self {
            Stream::Tcp(stream) => poll_splice(cx, stream, pipe, length),
            Stream::Unix(stream) => poll_splice(cx, stream, pipe, length),
        }
    }

    /// Moves out of a pipe what there is room for.
    pub fn poll_empty(
        &self,
        cx: &mut Context<'_>,
        pipe: &PipeReader,
        length: usize,
    ) -> Poll<io::Result<usize>> {
        match self {
            Stream::Tcp(stream) => poll_splice(cx, pipe, stream, length),
            Stream::Unix(stream) => poll_splice(cx, pipe, stream, length),
        }
    }

    /// Has small writes sent at once from now on.
    pub fn set_nodelay(&self) {
        if let Stream::Tcp(stream) = self {
            // A connection that is gone tells so when it is written to.
            let _ = stream.get_ref().set_nodelay(true);
        }
    }

    /// Ends the writing direction. One that is gone has none, which its next read tells.
    pub fn end_writing(&self) {
        let _ = match self {
            Stream::Tcp(stream) => stream.get_ref().shutdown(Shutdown::Write),
            Stream::Unix(stream) => stream.shutdown(Shutdown::Write),
        };
    }

    /// Has closing reset the connection, so that the peer does not take a broken stream for a whole one. In the
    /// Unix domain there is no such thing.
    pub fn reset_on_close(&self) {
        if let Stream::Tcp(stream) = self {
            let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
        }
    }
}
