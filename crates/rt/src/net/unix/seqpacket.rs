//! Unix sockets of sequenced packets.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::SocketAddr;
use std::path::Path;

use socket2::{Domain, SockRef, Socket, Type};

use super::address;
use super::passing::passing;
use crate::async_fd::AsyncFd;
use crate::io_registration::IoRegistration;
use crate::net::descriptor::descriptor;
use crate::sources::Direction;
use crate::sys;

/// A connection of the Unix domain that keeps the boundaries of messages (`SOCK_SEQPACKET`, Linux
/// 2.6.4). It passes [descriptors](super#passing-descriptors).
///
/// A message is sent whole or not at all. Bytes that do not fit into the buffer of a receiver are
/// lost; only [`recv_with_fds`](UnixSeqpacket::recv_with_fds) reports that. The end of the
/// connection looks like an empty message: if that matters, send no empty messages.
pub struct UnixSeqpacket {
    fd: AsyncFd<Socket>,
}

impl UnixSeqpacket {
    pub(super) fn nonblocking(socket: Socket) -> UnixSeqpacket {
        UnixSeqpacket { fd: AsyncFd::nonblocking(socket) }
    }

    /// Returns the two ends of a connection (`socketpair(2)`). While both are awaited on the same
    /// engine, an operation at one end wakes a task that waits at the other end without asking the
    /// kernel.
    ///
    /// # Errors
    ///
    /// Any error of `socketpair(2)`; at the [limit of
    /// descriptors](crate::net#the-limit-of-descriptors), the error says how many there may be.
    pub fn pair() -> io::Result<(UnixSeqpacket, UnixSeqpacket)> {
        let doing = "making a pair of Unix sockets of sequenced packets";
        let (here, there) = address::pair(Type::SEQPACKET, doing, IoRegistration::paired)?;
        Ok((UnixSeqpacket { fd: here }, UnixSeqpacket { fd: there }))
    }

    /// Connects to a path. While the listener's queue is full, it tries again now and then.
    ///
    /// Cancel safe: an attempt that is under way is given up.
    ///
    /// # Errors
    ///
    /// Any error of `connect(2)`, such as `NotFound` if the file does not exist, or
    /// `ConnectionRefused` if no socket listens.
    pub async fn connect(path: impl AsRef<Path>) -> io::Result<UnixSeqpacket> {
        let address = SocketAddr::from_pathname(path)?;
        UnixSeqpacket::connect_addr(&address).await
    }

    /// Like [`connect`](UnixSeqpacket::connect), to a path or an abstract name.
    ///
    /// Cancel safe: an attempt that is under way is given up.
    ///
    /// # Errors
    ///
    /// The same errors as [`connect`](UnixSeqpacket::connect); `InvalidInput` for an address
    /// without a name.
    pub async fn connect_addr(address: &SocketAddr) -> io::Result<UnixSeqpacket> {
        let socket = address::connected(Type::SEQPACKET, address).await?;
        Ok(UnixSeqpacket::nonblocking(socket))
    }

    /// Adopts an existing connected socket of this kind and makes it non-blocking.
    ///
    /// # Errors
    ///
    /// Any error of `getsockopt(2)` or `fcntl(2)`; `InvalidInput` for a socket of another kind.
    pub fn from_fd(fd: OwnedFd) -> io::Result<UnixSeqpacket> {
        let socket = Socket::from(fd);
        if socket.r#type()? != Type::SEQPACKET || socket.domain()? != Domain::UNIX {
            let text =
                "taking a descriptor as a Unix seqpacket socket: it is a socket of another kind";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        sys::descriptor::set_nonblocking(&socket)?;
        Ok(UnixSeqpacket::nonblocking(socket))
    }

    /// Returns the descriptor, open and non-blocking.
    pub fn into_fd(self) -> OwnedFd {
        self.fd.into_inner().into()
    }

    /// Sends a message.
    ///
    /// Cancel safe: while it is pending, nothing was sent.
    ///
    /// # Errors
    ///
    /// Any error of `send(2)`, such as `BrokenPipe` if the peer is gone, or `EMSGSIZE` for a
    /// message that is too long.
    pub async fn send(&self, message: &[u8]) -> io::Result<usize> {
        self.fd
            .perform(Direction::Write, |socket| {
                SockRef::from(socket).send_with_flags(message, libc::MSG_NOSIGNAL)
            })
            .await
    }

    /// Receives a message; bytes that do not fit are lost. Zero bytes are an empty message or the
    /// end. An empty buffer takes a message too, and so waits for one.
    ///
    /// Cancel safe: while it is pending, nothing was taken.
    ///
    /// # Errors
    ///
    /// Any error of `recvmsg(2)`.
    pub async fn recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.fd
            .perform(Direction::Read, |socket| {
                sys::message::read(socket.as_fd(), &mut [io::IoSliceMut::new(buffer)])
                    .map(|(length, _)| length)
            })
            .await
    }

    passing!(drains: false, "a message");

    /// Returns the socket's own address.
    ///
    /// # Errors
    ///
    /// Any error of `getsockname(2)`.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        address::to_std(&self.fd.get_ref().local_addr()?)
    }

    /// Returns the peer's address.
    ///
    /// # Errors
    ///
    /// Any error of `getpeername(2)`.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        address::to_std(&self.fd.get_ref().peer_addr()?)
    }
}

descriptor!(UnixSeqpacket: fd, named);
