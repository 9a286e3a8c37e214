//! Unix sockets of sequenced packets.

use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::SocketAddr;
use std::path::Path;

use socket2::{Domain, SockRef, Socket, Type};

use super::address;
use super::passing::{self, PeerCredentials, passing};
use crate::async_fd::AsyncFd;
use crate::error;
use crate::link::Link;
use crate::net::descriptor::descriptor;
use crate::peers;
use crate::sources::Direction;
use crate::sys;

/// A connection of the Unix domain that keeps the boundaries of messages (`SOCK_SEQPACKET`, Linux 2.6.4).
/// It passes [descriptors](super#passing-descriptors).
///
/// A message is sent whole or not at all. What does not fit into the buffer of a receiver is lost; only
/// [`recv_with_fds`](UnixSeqpacket::recv_with_fds) tells. The end of the connection looks like an empty
/// message: send none, if that matters.
pub struct UnixSeqpacket {
    fd: AsyncFd<Socket>,
}

impl UnixSeqpacket {
    pub(super) fn nonblocking(socket: Socket) -> UnixSeqpacket {
        UnixSeqpacket { fd: AsyncFd::nonblocking(socket) }
    }

    /// Two ends of a connection (`socketpair(2)`). While both are awaited on the same engine, a task that
    /// waits at one end is woken by what is done at the other without a look at the kernel.
    ///
    /// # Errors
    ///
    /// What `socketpair(2)` says; at the [limit of descriptors](crate::net#the-limit-of-descriptors), how many
    /// there may be.
    pub fn pair() -> io::Result<(UnixSeqpacket, UnixSeqpacket)> {
        let (one, other) = Socket::pair(Domain::UNIX, Type::SEQPACKET.nonblocking(), None)
            .map_err(|error| {
                error::limit("making a pair of Unix sockets of sequenced packets", error)
            })?;
        let (here, there) = peers::pair();
        Ok((
            UnixSeqpacket { fd: AsyncFd::linked(one, Link::with_end(here)) },
            UnixSeqpacket { fd: AsyncFd::linked(other, Link::with_end(there)) },
        ))
    }

    /// Connects to a path. While the listener's queue is full, it tries again now and then.
    ///
    /// Cancel safe: an attempt that is under way is given up.
    ///
    /// # Errors
    ///
    /// What `connect(2)` says: `NotFound` without a file, `ConnectionRefused` if nobody listens.
    pub async fn connect(path: impl AsRef<Path>) -> io::Result<UnixSeqpacket> {
        let address = SocketAddr::from_pathname(path)?;
        UnixSeqpacket::connect_addr(&address).await
    }

    /// As [`connect`](UnixSeqpacket::connect), to a path or an abstract name.
    ///
    /// Cancel safe: an attempt that is under way is given up.
    ///
    /// # Errors
    ///
    /// As [`connect`](UnixSeqpacket::connect); `InvalidInput` for an address without a name.
    pub async fn connect_addr(address: &SocketAddr) -> io::Result<UnixSeqpacket> {
        let socket = address::connected(Type::SEQPACKET, address).await?;
        Ok(UnixSeqpacket::nonblocking(socket))
    }

    /// Takes a connected socket of this kind from elsewhere and makes it non-blocking.
    ///
    /// # Errors
    ///
    /// What `getsockopt(2)` or `fcntl(2)` says; `InvalidInput` for a socket of another kind.
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

    /// Gives the descriptor back, open and non-blocking.
    pub fn into_fd(self) -> OwnedFd {
        self.fd.into_inner().into()
    }

    /// Sends a message.
    ///
    /// Cancel safe: while it is pending, nothing was sent.
    ///
    /// # Errors
    ///
    /// What `send(2)` says: `BrokenPipe` if the peer is gone, `EMSGSIZE` for a message that is too long.
    pub async fn send(&self, message: &[u8]) -> io::Result<usize> {
        self.fd
            .perform(Direction::Write, |socket| {
                SockRef::from(socket).send_with_flags(message, libc::MSG_NOSIGNAL)
            })
            .await
    }

    /// Receives a message; what does not fit is lost. Zero bytes are an empty message or the end.
    ///
    /// Cancel safe: while it is pending, nothing was taken.
    ///
    /// # Errors
    ///
    /// What `recvmsg(2)` says.
    pub async fn recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.fd
            .perform(Direction::Read, |socket| {
                sys::message::read(socket.as_fd(), &mut [io::IoSliceMut::new(buffer)])
                    .map(|(length, _)| length)
            })
            .await
    }

    passing!(drains: false, "a message");

    /// The own address.
    ///
    /// # Errors
    ///
    /// What `getsockname(2)` says.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        address::to_std(&self.fd.get_ref().local_addr()?)
    }

    /// The peer's address.
    ///
    /// # Errors
    ///
    /// What `getpeername(2)` says.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        address::to_std(&self.fd.get_ref().peer_addr()?)
    }

    /// Who was at the other end when the connection was made (`SO_PEERCRED`).
    ///
    /// # Errors
    ///
    /// What `getsockopt(2)` says.
    pub fn peer_credentials(&self) -> io::Result<PeerCredentials> {
        passing::credentials(&self.fd)
    }

    /// Ends one direction or both (`shutdown(2)`).
    ///
    /// # Errors
    ///
    /// What `shutdown(2)` says.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.fd.get_ref().shutdown(how)
    }
}

descriptor!(UnixSeqpacket: fd, named);
