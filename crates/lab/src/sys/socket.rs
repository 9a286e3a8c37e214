//! TCP sockets on the loopback address.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::sys::socket::{
    self, AddressFamily, Backlog, SockFlag, SockType, SockaddrIn, setsockopt, sockopt,
};

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 4096;

fn address(host: Ipv4Addr, port: u16) -> SockaddrIn {
    SocketAddrV4::new(host, port).into()
}

fn stream(flags: SockFlag) -> io::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | flags;
    Ok(socket::socket(AddressFamily::Inet, SockType::Stream, flags, None)?)
}

/// Returns a socket that listens on a port, zero for any free one, alone or together with other
/// sockets on the same port.
pub(crate) fn listen(port: u16, with_others: bool) -> io::Result<OwnedFd> {
    let socket = stream(SockFlag::SOCK_NONBLOCK)?;
    if with_others {
        setsockopt(&socket, sockopt::ReusePort, &true)?;
    } else {
        setsockopt(&socket, sockopt::ReuseAddr, &true)?;
    }
    socket::bind(socket.as_raw_fd(), &address(Ipv4Addr::LOCALHOST, port))?;
    socket::listen(&socket, Backlog::new(BACKLOG)?)?;
    Ok(socket)
}

/// Returns the port of a socket.
pub(crate) fn port(socket: &OwnedFd) -> io::Result<u16> {
    Ok(socket::getsockname::<SockaddrIn>(socket.as_raw_fd())?.port())
}

/// Returns a non-blocking socket that can connect.
pub(crate) fn client() -> io::Result<OwnedFd> {
    stream(SockFlag::SOCK_NONBLOCK)
}

/// Begins to connect to a port; over the loopback device the peer's kernel has done its part when
/// this returns.
pub(crate) fn connect(socket: &OwnedFd, port: u16) -> io::Result<()> {
    match socket::connect(socket.as_raw_fd(), &address(Ipv4Addr::LOCALHOST, port)) {
        Err(Errno::EINPROGRESS) => Ok(()),
        outcome => Ok(outcome?),
    }
}

/// Connects to a port of the loopback device from an address of its network, and waits for that.
/// Each address has all ports to itself.
pub(crate) fn connect_from(from: Ipv4Addr, port: u16) -> io::Result<OwnedFd> {
    let socket = stream(SockFlag::empty())?;
    // The kernel chooses the port at the connect, when the peer is known; without this option it
    // chooses now, from far fewer.
    let _ = setsockopt(&socket, sockopt::IpBindAddressNoPort, &true);
    socket::bind(socket.as_raw_fd(), &address(from, 0))?;
    let peer = address(Ipv4Addr::LOCALHOST, port);
    loop {
        match socket::connect(socket.as_raw_fd(), &peer) {
            Err(Errno::EINTR) => {}
            outcome => return Ok(outcome.map(|()| socket)?),
        }
    }
}

/// Accepts a connection and closes it; returns whether there was a connection.
pub(crate) fn accept_and_close(listener: RawFd) -> bool {
    socket::accept4(listener, SockFlag::SOCK_CLOEXEC).is_ok_and(|fd| nix::unistd::close(fd).is_ok())
}
