//! Unix datagram sockets.

use std::io;
use std::os::unix::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use socket2::Type;

use super::address;
use super::passing::passing;
use crate::async_fd::AsyncFd;
use crate::error;
use crate::io_registration::IoRegistration;
use crate::net::descriptor::descriptor;
use crate::sources::Direction;
use crate::sys;
use crate::time;

type Inner = std::os::unix::net::UnixDatagram;

/// How long to wait for room in a receiver's queue: the first pause, and the longest.
const NAPS: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(32));

/// A datagram socket of the Unix domain: reliable, ordered, and blocked by a receiver that does not
/// keep up. It passes [descriptors](super#passing-descriptors).
///
/// Bytes that do not fit into the buffer of a receiver are lost; only
/// [`recv_with_fds`](UnixDatagram::recv_with_fds) reports that.
pub struct UnixDatagram {
    fd: AsyncFd<Inner>,
}

fn made(socket: io::Result<Inner>) -> io::Result<UnixDatagram> {
    let doing = "making a Unix datagram socket";
    UnixDatagram::from_std(socket.map_err(|error| error::limit(doing, error))?)
}

impl UnixDatagram {
    /// Returns two sockets that are connected to each other (`socketpair(2)`). While both are
    /// awaited on the same engine, an operation at one end wakes a task that waits at the other end
    /// without asking the kernel.
    ///
    /// # Errors
    ///
    /// Any error of `socketpair(2)`; at the [limit of
    /// descriptors](crate::net#the-limit-of-descriptors), the error says how many there may be.
    pub fn pair() -> io::Result<(UnixDatagram, UnixDatagram)> {
        let doing = "making a pair of Unix datagram sockets";
        let (here, there) = address::pair(Type::DGRAM, doing, IoRegistration::paired)?;
        Ok((UnixDatagram { fd: here }, UnixDatagram { fd: there }))
    }

    /// Returns a socket without a name: it can send, and no receiver can answer.
    ///
    /// # Errors
    ///
    /// Any error of `socket(2)`.
    pub fn unbound() -> io::Result<UnixDatagram> {
        made(Inner::unbound())
    }

    /// Makes a socket file and binds to it. The file must not exist, and it stays when the socket
    /// is dropped.
    ///
    /// # Errors
    ///
    /// Any error of `bind(2)`, such as `AddrInUse` if there is a file already.
    pub fn bind(path: impl AsRef<Path>) -> io::Result<UnixDatagram> {
        made(Inner::bind(path))
    }

    /// Like [`bind`](UnixDatagram::bind), to a path or an abstract name.
    ///
    /// # Errors
    ///
    /// The same errors as [`bind`](UnixDatagram::bind).
    pub fn bind_addr(address: &SocketAddr) -> io::Result<UnixDatagram> {
        made(Inner::bind_addr(address))
    }

    /// Adopts an existing socket and makes it non-blocking.
    ///
    /// # Errors
    ///
    /// Any error of `fcntl(2)`.
    pub fn from_std(socket: Inner) -> io::Result<UnixDatagram> {
        sys::descriptor::set_nonblocking(&socket)?;
        Ok(UnixDatagram { fd: AsyncFd::nonblocking(socket) })
    }

    /// Returns the socket, open and non-blocking.
    pub fn into_std(self) -> Inner {
        self.fd.into_inner()
    }

    /// Chooses the peer of [`send`](UnixDatagram::send), and refuses datagrams from other senders
    /// from now on.
    ///
    /// # Errors
    ///
    /// Any error of `connect(2)`.
    pub fn connect(&self, path: impl AsRef<Path>) -> io::Result<()> {
        self.fd.get_ref().connect(path)
    }

    /// Like [`connect`](UnixDatagram::connect), to a path or an abstract name.
    ///
    /// # Errors
    ///
    /// The same errors as [`connect`](UnixDatagram::connect).
    pub fn connect_addr(&self, address: &SocketAddr) -> io::Result<()> {
        self.fd.get_ref().connect_addr(address)
    }

    /// Sends a datagram to the peer, when there is room in its queue.
    ///
    /// Cancel safe: while it is pending, nothing was sent.
    ///
    /// # Errors
    ///
    /// Any error of `send(2)`, such as `ConnectionRefused` if the peer is gone, or `EMSGSIZE` for a
    /// datagram that is too long.
    pub async fn send(&self, datagram: &[u8]) -> io::Result<usize> {
        self.fd.perform(Direction::Write, |socket| socket.send(datagram)).await
    }

    /// Receives a datagram; bytes that do not fit are lost. An empty buffer takes a datagram too,
    /// and so waits for one.
    ///
    /// Cancel safe: while it is pending, nothing was taken.
    ///
    /// # Errors
    ///
    /// Any error of `recv(2)`.
    pub async fn recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.fd.perform(Direction::Read, |socket| socket.recv(buffer)).await
    }

    /// Sends a datagram to a path. While the receiver's queue is full, it tries again now and then:
    /// the kernel does not tell when there is room at a receiver that the socket is not connected
    /// to.
    ///
    /// Cancel safe: while it is pending, nothing was sent.
    ///
    /// # Errors
    ///
    /// Any error of `sendto(2)`, such as `NotFound` if the file does not exist, or
    /// `ConnectionRefused` if no socket receives.
    pub async fn send_to(&self, datagram: &[u8], path: impl AsRef<Path>) -> io::Result<usize> {
        let address = SocketAddr::from_pathname(path)?;
        self.send_to_addr(datagram, &address).await
    }

    /// Like [`send_to`](UnixDatagram::send_to), to a path or an abstract name.
    ///
    /// Cancel safe: while it is pending, nothing was sent.
    ///
    /// # Errors
    ///
    /// The same errors as [`send_to`](UnixDatagram::send_to).
    pub async fn send_to_addr(&self, datagram: &[u8], to: &SocketAddr) -> io::Result<usize> {
        let (mut nap, longest) = NAPS;
        loop {
            match self.fd.get_ref().send_to_addr(datagram, to) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                outcome => return outcome,
            }
            time::sleep(nap).await;
            nap = (nap * 2).min(longest);
        }
    }

    /// Receives a datagram and returns the address of its sender; bytes that do not fit are lost.
    /// An empty buffer takes a datagram too, and so waits for one.
    ///
    /// Cancel safe: while it is pending, nothing was taken.
    ///
    /// # Errors
    ///
    /// Any error of `recvfrom(2)`.
    pub async fn recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.fd.perform(Direction::Read, |socket| socket.recv_from(buffer)).await
    }

    passing!(drains: false, "a datagram");

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
    /// `NotConnected` before [`connect`](UnixDatagram::connect).
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.fd.get_ref().peer_addr()
    }
}

descriptor!(UnixDatagram: fd, plain);
