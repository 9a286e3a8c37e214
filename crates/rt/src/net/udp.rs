//! UDP.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use super::address::{self, ToSocketAddrs};
use crate::async_fd::AsyncFd;
use crate::error;
use crate::net::descriptor::descriptor;
use crate::sources::Direction;
use crate::sys;

/// A UDP socket (`udp(7)`).
///
/// A datagram is received whole or not at all: bytes that do not fit into the buffer are lost
/// silently. Every operation is one system call on one datagram and cancel safe: while it is
/// pending, nothing was sent or taken.
///
/// On a connected socket an operation may fail with the error that an earlier datagram met, such as
/// `ConnectionRefused`; the socket stays usable.
pub struct UdpSocket {
    fd: AsyncFd<std::net::UdpSocket>,
}

impl UdpSocket {
    /// Binds to the first available address. Port 0 lets the kernel choose.
    ///
    /// Cancel safe: nothing stays bound.
    ///
    /// # Errors
    ///
    /// Any error of the name look-up, or, for the last address, of `socket(2)` or `bind(2)`.
    pub async fn bind(address: impl ToSocketAddrs) -> io::Result<UdpSocket> {
        let addresses = address::resolve(&address).await?;
        let socket = std::net::UdpSocket::bind(&*addresses)
            .map_err(|error| error::limit("making a UDP socket", error))?;
        UdpSocket::from_std(socket)
    }

    /// Adopts an existing socket and makes it non-blocking.
    ///
    /// # Errors
    ///
    /// Any error of `fcntl(2)`.
    pub fn from_std(socket: std::net::UdpSocket) -> io::Result<UdpSocket> {
        sys::descriptor::set_nonblocking(&socket)?;
        Ok(UdpSocket { fd: AsyncFd::nonblocking(socket) })
    }

    /// Returns the socket, open and non-blocking.
    pub fn into_std(self) -> std::net::UdpSocket {
        self.fd.into_inner()
    }

    /// Chooses the peer of [`send`](UdpSocket::send) and [`recv`](UdpSocket::recv), and refuses
    /// datagrams from other senders from now on. The peer is the first address that the kernel
    /// takes. It sends nothing.
    ///
    /// Cancel safe: the peer is chosen or it is not.
    ///
    /// # Errors
    ///
    /// Any error of the name look-up, or, for the last address, of `connect(2)`.
    pub async fn connect(&self, address: impl ToSocketAddrs) -> io::Result<()> {
        let addresses = address::resolve(&address).await?;
        self.fd.get_ref().connect(&*addresses)
    }

    /// Sends a datagram to the peer of [`connect`](UdpSocket::connect).
    ///
    /// Cancel safe: while it is pending, nothing was sent.
    ///
    /// # Errors
    ///
    /// Any error of `send(2)`, such as `EMSGSIZE` for a datagram that is too long, or
    /// `ConnectionRefused` after an earlier datagram.
    pub async fn send(&self, datagram: &[u8]) -> io::Result<usize> {
        self.fd.perform(Direction::Write, |socket| socket.send(datagram)).await
    }

    /// Receives a datagram from the peer of [`connect`](UdpSocket::connect); bytes that do not fit
    /// are lost. An empty buffer takes a datagram too, and so waits for one.
    ///
    /// Cancel safe: while it is pending, nothing was taken.
    ///
    /// # Errors
    ///
    /// Any error of `recv(2)`.
    pub async fn recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.fd.perform(Direction::Read, |socket| socket.recv(buffer)).await
    }

    /// Sends a datagram to an address.
    ///
    /// Cancel safe: while it is pending, nothing was sent.
    ///
    /// # Errors
    ///
    /// Any error of `sendto(2)`, see [`send`](UdpSocket::send).
    pub async fn send_to(&self, datagram: &[u8], address: SocketAddr) -> io::Result<usize> {
        self.fd.perform(Direction::Write, |socket| socket.send_to(datagram, address)).await
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

    /// Like [`recv`](UdpSocket::recv), and leaves the datagram where it is (`MSG_PEEK`).
    ///
    /// Cancel safe: it takes nothing.
    ///
    /// # Errors
    ///
    /// Any error of `recv(2)`.
    pub async fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.fd.perform(Direction::Read, |socket| socket.peek(buffer)).await
    }

    /// Like [`recv_from`](UdpSocket::recv_from), and leaves the datagram where it is (`MSG_PEEK`).
    ///
    /// Cancel safe: it takes nothing.
    ///
    /// # Errors
    ///
    /// Any error of `recvfrom(2)`.
    pub async fn peek_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.fd.perform(Direction::Read, |socket| socket.peek_from(buffer)).await
    }

    /// Waits until there is probably a datagram to receive.
    ///
    /// Cancel safe: it holds nothing.
    ///
    /// # Errors
    ///
    /// Without a runtime on this thread, or if the socket cannot be watched.
    pub async fn readable(&self) -> io::Result<()> {
        self.fd.readable().await.map(drop)
    }

    /// Waits until there is probably room to send a datagram.
    ///
    /// Cancel safe: it holds nothing.
    ///
    /// # Errors
    ///
    /// The same errors as [`readable`](UdpSocket::readable).
    pub async fn writable(&self) -> io::Result<()> {
        self.fd.writable().await.map(drop)
    }

    /// Receives a datagram and returns the address of its sender, without waiting.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if there is none, or any error of `recvfrom(2)`.
    pub fn try_recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.fd.try_perform(Direction::Read, |socket| socket.recv_from(buffer))
    }

    /// Sends a datagram to an address, without waiting.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if there is no room, or any error of `sendto(2)`.
    pub fn try_send_to(&self, datagram: &[u8], address: SocketAddr) -> io::Result<usize> {
        self.fd.try_perform(Direction::Write, |socket| socket.send_to(datagram, address))
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
    /// `NotConnected` before [`connect`](UdpSocket::connect).
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.fd.get_ref().peer_addr()
    }

    /// Sets whether the socket may send to broadcast addresses (`SO_BROADCAST`).
    ///
    /// # Errors
    ///
    /// Any error of `setsockopt(2)`.
    pub fn set_broadcast(&self, broadcast: bool) -> io::Result<()> {
        self.fd.get_ref().set_broadcast(broadcast)
    }

    /// Returns whether the socket may send to broadcast addresses (`SO_BROADCAST`).
    ///
    /// # Errors
    ///
    /// Any error of `getsockopt(2)`.
    pub fn broadcast(&self) -> io::Result<bool> {
        self.fd.get_ref().broadcast()
    }

    /// Sets the time to live of sent packets (`IP_TTL`).
    ///
    /// # Errors
    ///
    /// Any error of `setsockopt(2)`.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.fd.get_ref().set_ttl(ttl)
    }

    /// Returns the time to live of sent packets (`IP_TTL`).
    ///
    /// # Errors
    ///
    /// Any error of `getsockopt(2)`.
    pub fn ttl(&self) -> io::Result<u32> {
        self.fd.get_ref().ttl()
    }

    /// Sets whether datagrams sent to a group come back to this host (`IP_MULTICAST_LOOP`).
    ///
    /// # Errors
    ///
    /// Any error of `setsockopt(2)`.
    pub fn set_multicast_loop_v4(&self, on: bool) -> io::Result<()> {
        self.fd.get_ref().set_multicast_loop_v4(on)
    }

    /// Sets whether datagrams sent to a group come back to this host (`IPV6_MULTICAST_LOOP`).
    ///
    /// # Errors
    ///
    /// Any error of `setsockopt(2)`.
    pub fn set_multicast_loop_v6(&self, on: bool) -> io::Result<()> {
        self.fd.get_ref().set_multicast_loop_v6(on)
    }

    /// Sets how many routers a packet to a group passes (`IP_MULTICAST_TTL`).
    ///
    /// # Errors
    ///
    /// Any error of `setsockopt(2)`.
    pub fn set_multicast_ttl_v4(&self, ttl: u32) -> io::Result<()> {
        self.fd.get_ref().set_multicast_ttl_v4(ttl)
    }

    /// Joins a group on the interface with this address (`IP_ADD_MEMBERSHIP`).
    ///
    /// # Errors
    ///
    /// Any error of `setsockopt(2)`.
    pub fn join_multicast_v4(&self, group: Ipv4Addr, interface: Ipv4Addr) -> io::Result<()> {
        self.fd.get_ref().join_multicast_v4(&group, &interface)
    }

    /// Leaves a group (`IP_DROP_MEMBERSHIP`).
    ///
    /// # Errors
    ///
    /// Any error of `setsockopt(2)`.
    pub fn leave_multicast_v4(&self, group: Ipv4Addr, interface: Ipv4Addr) -> io::Result<()> {
        self.fd.get_ref().leave_multicast_v4(&group, &interface)
    }

    /// Joins a group on the interface with this number (`IPV6_ADD_MEMBERSHIP`); 0 is any.
    ///
    /// # Errors
    ///
    /// Any error of `setsockopt(2)`.
    pub fn join_multicast_v6(&self, group: Ipv6Addr, interface: u32) -> io::Result<()> {
        self.fd.get_ref().join_multicast_v6(&group, interface)
    }

    /// Leaves a group (`IPV6_DROP_MEMBERSHIP`).
    ///
    /// # Errors
    ///
    /// Any error of `setsockopt(2)`.
    pub fn leave_multicast_v6(&self, group: Ipv6Addr, interface: u32) -> io::Result<()> {
        self.fd.get_ref().leave_multicast_v6(&group, interface)
    }
}

descriptor!(UdpSocket: fd, plain);
