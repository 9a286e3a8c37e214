//! TCP sockets on the loopback address.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

fn check(returned: libc::c_int) -> io::Result<libc::c_int> {
    if returned < 0 { Err(io::Error::last_os_error()) } else { Ok(returned) }
}

const LENGTH: libc::socklen_t = size_of::<libc::sockaddr_in>() as libc::socklen_t;

fn loopback(port: u16) -> libc::sockaddr_in {
    address(Ipv4Addr::LOCALHOST, port)
}

fn address(host: Ipv4Addr, port: u16) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: port.to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from(host).to_be() },
        sin_zero: [0; 8],
    }
}

fn stream(flags: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: the call takes numbers; the one it returns has no owner yet.
    unsafe {
        let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | flags;
        Ok(OwnedFd::from_raw_fd(check(libc::socket(libc::AF_INET, kind, 0))?))
    }
}

/// Returns a socket that listens on a port, zero for any free one, alone or together with other
/// sockets on the same port.
pub(crate) fn listen(port: u16, with_others: bool) -> io::Result<OwnedFd> {
    let socket = stream(libc::SOCK_NONBLOCK)?;
    let on: libc::c_int = 1;
    let length = size_of::<libc::c_int>() as libc::socklen_t;
    let name = if with_others { libc::SO_REUSEPORT } else { libc::SO_REUSEADDR };
    let address = loopback(port);
    let fd = socket.as_raw_fd();
    // SAFETY: the kernel reads one integer and one address, which outlive the calls.
    unsafe {
        check(libc::setsockopt(fd, libc::SOL_SOCKET, name, (&raw const on).cast(), length))?;
        check(libc::bind(fd, (&raw const address).cast(), LENGTH))?;
        check(libc::listen(fd, 4096))?;
    }
    Ok(socket)
}

/// Returns the port of a socket.
pub(crate) fn port(socket: &OwnedFd) -> io::Result<u16> {
    let mut address = loopback(0);
    let mut length = LENGTH;
    // SAFETY: the kernel writes at most one address and its length, which outlive the call.
    check(unsafe {
        libc::getsockname(socket.as_raw_fd(), (&raw mut address).cast(), &raw mut length)
    })?;
    Ok(u16::from_be(address.sin_port))
}

/// Returns a non-blocking socket that can connect.
pub(crate) fn client() -> io::Result<OwnedFd> {
    stream(libc::SOCK_NONBLOCK)
}

/// Begins to connect to a port; over the loopback device the peer's kernel has done its part when
/// this returns.
pub(crate) fn connect(socket: &OwnedFd, port: u16) -> io::Result<()> {
    let address = loopback(port);
    // SAFETY: the kernel reads one address, which outlives the call.
    let returned =
        unsafe { libc::connect(socket.as_raw_fd(), (&raw const address).cast(), LENGTH) };
    match check(returned) {
        Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
        _ => Ok(()),
    }
}

/// Connects to a port of the loopback device from an address of its network, and waits for that.
/// Each address has all ports to itself.
pub(crate) fn connect_from(from: Ipv4Addr, port: u16) -> io::Result<OwnedFd> {
    let socket = stream(0)?;
    let fd = socket.as_raw_fd();
    let on: libc::c_int = 1;
    let length = size_of::<libc::c_int>() as libc::socklen_t;
    let (own, other) = (address(from, 0), loopback(port));
    // SAFETY: the kernel reads one integer and two addresses, which outlive the calls.
    unsafe {
        // The kernel chooses the port at the connect, when the peer is known; without that option
        // it chooses now.
        libc::setsockopt(
            fd,
            libc::IPPROTO_IP,
            libc::IP_BIND_ADDRESS_NO_PORT,
            (&raw const on).cast(),
            length,
        );
        check(libc::bind(fd, (&raw const own).cast(), LENGTH))?;
        loop {
            match check(libc::connect(fd, (&raw const other).cast(), LENGTH)) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                outcome => break outcome.map(|_| socket),
            }
        }
    }
}

/// Accepts a connection and closes it; returns whether there was a connection.
pub(crate) fn accept_and_close(listener: RawFd) -> bool {
    // SAFETY: the peer's address is not asked for; the number returned has no other owner and is
    // closed once.
    unsafe {
        let accepted =
            libc::accept4(listener, std::ptr::null_mut(), std::ptr::null_mut(), libc::SOCK_CLOEXEC);
        accepted >= 0 && libc::close(accepted) == 0
    }
}
