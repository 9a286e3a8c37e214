//! Unix stream sockets.
//!
//! The stream reads bytes with `recvmsg(2)`, which costs the same as `read(2)` and tells when
//! unexpected descriptors came along. The kernel ends a read there, and the short count says
//! nothing about the bytes behind. A reader that took it for a drained stream would wait for an
//! edge that is past.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::SocketAddr;
use std::path::Path;
use std::task::{Context, Poll};

use socket2::Type;
use superpoll::call;

use super::address;
use super::passing::passing;
use crate::async_fd::AsyncFd;
use crate::io_registration::IoRegistration;
use crate::net::stream::{StreamSocket, stream_socket};
use crate::short_reads::{IoState, total_len};
use crate::sources::Direction;
use crate::sys::message;

type Inner = std::os::unix::net::UnixStream;

/// A connection of the Unix domain.
///
/// It reads and writes through the traits of `futures-io`, as a
/// [`TcpStream`](crate::net::TcpStream) does, and passes [descriptors](super#passing-descriptors).
pub struct UnixStream {
    fd: AsyncFd<Inner>,
}

/// Reads, and returns the number of bytes and the state in which this leaves the stream.
fn read(
    stream: &Inner,
    buffers: &mut [IoSliceMut<'_>],
    requested: usize,
) -> io::Result<(usize, IoState)> {
    let (done, ended_early) = message::read(stream.as_fd(), buffers)?;
    Ok((done, if ended_early { IoState::Ready } else { IoState::after(done, requested) }))
}

fn write(stream: &Inner, bytes: &[u8]) -> io::Result<(usize, IoState)> {
    let done = call::send(stream, bytes)?;
    Ok((done, IoState::after(done, bytes.len())))
}

impl UnixStream {
    pub(crate) fn nonblocking(stream: Inner) -> UnixStream {
        UnixStream { fd: AsyncFd::stream(stream) }
    }

    /// Returns the two ends of a connection (`socketpair(2)`). While both are awaited on the same
    /// engine, an operation at one end wakes a task that waits at the other end without asking the
    /// kernel.
    ///
    /// # Errors
    ///
    /// Any error of `socketpair(2)`; at the [limit of
    /// descriptors](crate::net#the-limit-of-descriptors), the error says how many there may be.
    pub fn pair() -> io::Result<(UnixStream, UnixStream)> {
        let doing = "making a pair of Unix streams";
        let (here, there) =
            address::pair(Type::STREAM, doing, |end| IoRegistration::paired(end).stream())?;
        Ok((UnixStream { fd: here }, UnixStream { fd: there }))
    }

    /// Connects to a path. While the listener's queue is full, it tries again now and then.
    ///
    /// Cancel safe: an attempt that is under way is given up.
    ///
    /// # Errors
    ///
    /// Any error of `connect(2)`, such as `NotFound` if the file does not exist, or
    /// `ConnectionRefused` if no socket listens.
    pub async fn connect(path: impl AsRef<Path>) -> io::Result<UnixStream> {
        let address = SocketAddr::from_pathname(path)?;
        UnixStream::connect_addr(&address).await
    }

    /// Like [`connect`](UnixStream::connect), to a path or an abstract name.
    ///
    /// Cancel safe: an attempt that is under way is given up.
    ///
    /// # Errors
    ///
    /// The same errors as [`connect`](UnixStream::connect); `InvalidInput` for an address without a
    /// name.
    pub async fn connect_addr(address: &SocketAddr) -> io::Result<UnixStream> {
        let socket = address::connected(Type::STREAM, address).await?;
        Ok(UnixStream::nonblocking(socket.into()))
    }

    /// Returns the socket, open and non-blocking.
    pub fn into_std(self) -> Inner {
        self.fd.into_inner()
    }

    /// Returns the socket's own address.
    ///
    /// # Errors
    ///
    /// Any error of `getsockname(2)`.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.fd.get_ref().local_addr()
    }

    /// Returns the peer's address.
    ///
    /// # Errors
    ///
    /// Any error of `getpeername(2)`.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.fd.get_ref().peer_addr()
    }

    /// Reads the bytes that are there, without waiting.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if there is nothing, or any error of `recvmsg(2)`.
    pub fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        let requested = buffer.len();
        self.fd.registration().try_io(self.fd.as_fd(), Direction::Read, || {
            read(self.fd.get_ref(), &mut [IoSliceMut::new(buffer)], requested)
        })
    }

    /// Writes as many bytes as there is room for, without waiting.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if there is no room, or any error of `send(2)`.
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.fd
            .registration()
            .try_io(self.fd.as_fd(), Direction::Write, || write(self.fd.get_ref(), bytes))
    }

    passing!(drains: true, "bytes, perhaps only a part,");
}

stream_socket!(UnixStream, Inner);

impl StreamSocket for UnixStream {
    #[inline]
    fn poll_read(&self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        if buffer.is_empty() {
            return IoRegistration::poll_empty(cx, || Ok(0));
        }
        let requested = buffer.len();
        self.fd.poll_with(cx, Direction::Read, |stream| {
            read(stream, &mut [IoSliceMut::new(buffer)], requested)
        })
    }

    fn poll_read_vectored(
        &self,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>> {
        let requested = total_len(buffers.iter().map(|buffer| buffer.len()));
        if requested == 0 {
            return IoRegistration::poll_empty(cx, || Ok(0));
        }
        self.fd.poll_with(cx, Direction::Read, |stream| read(stream, buffers, requested))
    }

    #[inline]
    fn poll_write(&self, cx: &mut Context<'_>, buffer: &[u8]) -> Poll<io::Result<usize>> {
        if buffer.is_empty() {
            return IoRegistration::poll_empty(cx, || call::send(self.fd.get_ref(), buffer));
        }
        self.fd.poll_with(cx, Direction::Write, |stream| write(stream, buffer))
    }

    fn poll_write_vectored(
        &self,
        cx: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.fd.poll_send_vectored(cx, buffers)
    }

    fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        UnixStream::shutdown(self, how)
    }
}
