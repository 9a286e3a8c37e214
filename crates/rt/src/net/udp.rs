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
/// A datagram is received whole or not at all: what does not fit into the buffer is lost, without a
/// word. Every operation is one system call on one datagram and cancel safe: while it is pending,
/// nothing was sent or taken.
///
/// On a connected socket an operation may fail with what an earlier datagram met, such as
/// `ConnectionRefused`; the socket stays usable.
pub struct UdpSocket {
    fd: AsyncFd<std::net::UdpSocket>,
}

impl UdpSocket {
    /// Binds to the first address that can be had. Port 0 lets the kernel choose.
    ///
    /// Cancel safe: nothing stays bound.
    ///
    /// # Errors
    ///
    /// What looking up the name says, or, of the last address, what `socket(2)` or `bind(2)` says.
    pub async fn bind(address: impl ToSocketAddrs) -> io::Result<UdpSocket> {
        let addresses = address::resolve(&address).await?;
        let socket = std::net::UdpSocket::bind(&*addresses)
            .map_err(|error| error::limit("making a UDP socket", error))?;
        UdpSocket::from_std(socket)
    }

    /// Takes a socket from elsewhere and makes it non-blocking.
    ///
    /// # Errors
    ///
    /// What `fcntl(2)` says.
    pub fn from_std(socket: std::net::UdpSocket) -> io::Result<UdpSocket> {
        sys::descriptor::set_nonblocking(&socket)?;
        Ok(UdpSocket { fd: AsyncFd::nonblocking(socket) })
    }

    /// Gives the socket back, open and non-blocking.
    pub fn into_std(self) -> std::net::UdpSocket {
        self.fd.into_inner()
    }

    /// Chooses the peer of [`send`](UdpSocket::send) and [`recv`](UdpSocket::recv), and refuses what
    /// others send from now on: the first address that the kernel takes. It sends nothing.
    ///
    /// Cancel safe: the peer is chosen or it is not.
    ///
    /// # Errors
    ///
    /// What looking up the name says, or, of the last address, what `connect(2)` says.
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
    /// What `send(2)` says: `EMSGSIZE` for a datagram that is too long, `ConnectionRefused` after an
    /// earlier one.
    pub async fn send(&self, datagram: &[u8]) -> io::Result<usize> {
        self.fd.perform(Direction::Write, |socket| socket.send(datagram)).await
    }

    /// Receives a datagram from the peer of [`connect`](UdpSocket::connect); what does not fit is lost.
    ///
    /// Cancel safe: while it is pending, nothing was taken.
    ///
    /// # Errors
    ///
    /// What `recv(2)` says.
    pub async fn recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.fd.perform(Direction::Read, |socket| socket.recv(buffer)).await
    }

    /// Sends a datagram to an address.
    ///
    /// Cancel safe: while it is pending, nothing was sent.
    ///
    /// # Errors
    ///
    /// What `sendto(2)` says, see [`send`](UdpSocket::send).
    pub async fn send_to(&self, datagram: &[u8], address: SocketAddr) -> io::Result<usize> {
        self.fd.perform(Direction::Write, |socket| socket.send_to(datagram, address)).await
    }

    /// Receives a datagram and says who sent it; what does not fit is lost.
    ///
    /// Cancel safe: while it is pending, nothing was taken.
    ///
    /// # Errors
    ///
    /// What `recvfrom(2)` says.
    pub async fn recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.fd.perform(Direction::Read, |socket| socket.recv_from(buffer)).await
    }

    /// As [`recv`](UdpSocket::recv), and leaves the datagram where it is (`MSG_PEEK`).
    ///
    /// Cancel safe: it takes nothing.
    ///
    /// # Errors
    ///
    /// What `recv(2)` says.
    pub async fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.fd.perform(Direction::Read, |socket| socket.peek(buffer)).await
    }

    /// As [`recv_from`](UdpSocket::recv_from), and leaves the datagram where it is (`MSG_PEEK`).
    ///
    /// Cancel safe: it takes nothing.
    ///
    /// # Errors
    ///
    /// What `recvfrom(2)` says.
    pub async fn peek_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.fd.perform(Direction::Read, |socket| socket.peek_from(buffer)).await
    }

    /// Waits until there is a datagram to receive, most likely.
    ///
    /// Cancel safe: it holds nothing.
    ///
    /// # Errors
    ///
    /// Without a runtime on this thread, or if the socket cannot be watched.
    pub async fn readable(&self) -> io::Result<()> {
        self.fd.readable().await.map(drop)
    }

    /// Waits until a datagram can be sent, most likely.
    ///
    /// Cancel safe: it holds nothing.
    ///
    /// # Errors
    ///
    /// As [`readable`](UdpSocket::readable).
    pub async fn writable(&self) -> io::Result<()> {
        self.fd.writable().await.map(drop)
    }

    /// Receives a datagram and says who sent it, without waiting.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if there is none, or what `recvfrom(2)` says.
    pub fn try_recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.fd.try_perform(Direction::Read, |socket| socket.recv_from(buffer))
    }

    /// Sends a datagram to an address, without waiting.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if there is no room, or what `sendto(2)` says.
    pub fn try_send_to(&self, datagram: &[u8], address: SocketAddr) -> io::Result<usize> {
        self.fd.try_perform(Direction::Write, |socket| socket.send_to(datagram, address))
    }

    /// The own address.
    ///
    /// # Errors
    ///
    /// What `getsockname(2)` says.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.fd.get_ref().local_addr()
    }

    /// The peer's address.
    ///
    /// # Errors
    ///
    /// `NotConnected` before [`connect`](UdpSocket::connect).
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.fd.get_ref().peer_addr()
    }

    /// Whether it may send to broadcast addresses (`SO_BROADCAST`).
    ///
    /// # Errors
    ///
    /// What `setsockopt(2)` says.
    pub fn set_broadcast(&self, broadcast: bool) -> io::Result<()> {
        self.fd.get_ref().set_broadcast(broadcast)
    }

    /// Whether it may send to broadcast addresses (`SO_BROADCAST`).
    ///
    /// # Errors
    ///
    /// What `getsockopt(2)` says.
    pub fn broadcast(&self) -> io::Result<bool> {
        self.fd.get_ref().broadcast()
    }

    /// Sets the time to live of packets sent (`IP_TTL`).
    ///
    /// # Errors
    ///
    /// What `setsockopt(2)` says.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.fd.get_ref().set_ttl(ttl)
    }

    /// The time to live of packets sent (`IP_TTL`).
    ///
    /// # Errors
    ///
    /// What `getsockopt(2)` says.
    pub fn ttl(&self) -> io::Result<u32> {
        self.fd.get_ref().ttl()
    }

    /// Whether what is sent to a group comes back to this host (`IP_MULTICAST_LOOP`).
    ///
    /// # Errors
    ///
    /// What `setsockopt(2)` says.
    pub fn set_multicast_loop_v4(&self, on: bool) -> io::Result<()> {
        self.fd.get_ref().set_multicast_loop_v4(on)
    }

    /// Whether what is sent to a group comes back to this host (`IPV6_MULTICAST_LOOP`).
    ///
    /// # Errors
    ///
    /// What `setsockopt(2)` says.
    pub fn set_multicast_loop_v6(&self, on: bool) -> io::Result<()> {
        self.fd.get_ref().set_multicast_loop_v6(on)
    }

    /// How many routers a packet to a group passes (`IP_MULTICAST_TTL`).
    ///
    /// # Errors
    ///
    /// What `setsockopt(2)` says.
    pub fn set_multicast_ttl_v4(&self, ttl: u32) -> io::Result<()> {
        self.fd.get_ref().set_multicast_ttl_v4(ttl)
    }

    /// Joins a group on the interface with this address (`IP_ADD_MEMBERSHIP`).
    ///
    /// # Errors
    ///
    /// What `setsockopt(2)` says.
    pub fn join_multicast_v4(&self, group: Ipv4Addr, interface: Ipv4Addr) -> io::Result<()> {
        self.fd.get_ref().join_multicast_v4(&group, &interface)
    }

    /// Leaves a group (`IP_DROP_MEMBERSHIP`).
    ///
    /// # Errors
    ///
    /// What `setsockopt(2)` says.
    pub fn leave_multicast_v4(&self, group: Ipv4Addr, interface: Ipv4Addr) -> io::Result<()> {
        self.fd.get_ref().leave_multicast_v4(&group, &interface)
    }

    /// Joins a group on the interface with this number (`IPV6_ADD_MEMBERSHIP`); 0 is any.
    ///
    /// # Errors
    ///
    /// What `setsockopt(2)` says.
    pub fn join_multicast_v6(&self, group: Ipv6Addr, interface: u32) -> io::Result<()> {
        self.fd.get_ref().join_multicast_v6(&group, interface)
    }

    /// Leaves a group (`IPV6_DROP_MEMBERSHIP`).
    ///
    /// # Errors
    ///
    /// What `setsockopt(2)` says.
    pub fn leave_multicast_v6(&self, group: Ipv6Addr, interface: u32) -> io::Result<()> {
        self.fd.get_ref().leave_multicast_v6(&group, interface)
    }
}

descriptor!(UdpSocket: fd, plain);
