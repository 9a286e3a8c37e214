//! Unix addresses between `std` and `socket2`, connecting to them, and pairs without an address.

use std::ffi::OsStr;
use std::io;
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::SocketAddr;
use std::time::Duration;

use socket2::{Domain, SockAddr, Socket, Type};

use crate::async_fd::AsyncFd;
use crate::error;
use crate::io_registration::IoRegistration;
use crate::peer_wake::{self, PairedEnd};
use crate::time;

/// How long to wait for room in a listener's queue: the first pause, and the longest.
const NAPS: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(64));

pub(super) fn to_socket2(address: &SocketAddr) -> io::Result<SockAddr> {
    if let Some(path) = address.as_pathname() {
        return SockAddr::unix(path);
    }
    let Some(name) = address.as_abstract_name() else {
        let text = "a Unix address without a name cannot be bound or connected to";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    };
    let mut bytes = vec![0];
    bytes.extend_from_slice(name);
    SockAddr::unix(OsStr::from_bytes(&bytes))
}

pub(super) fn to_std(address: &SockAddr) -> io::Result<SocketAddr> {
    match (address.as_pathname(), address.as_abstract_namespace()) {
        (Some(path), _) => SocketAddr::from_pathname(path),
        (_, Some(name)) => SocketAddr::from_abstract_name(name),
        // The empty path stands for no name.
        _ => SocketAddr::from_pathname(""),
    }
}

/// Returns a connected socket. The kernel connects at once or, if the listener's queue is full, not
/// at all, and offers nothing to wait for.
pub(super) async fn connected(kind: Type, address: &SocketAddr) -> io::Result<Socket> {
    let address = to_socket2(address)?;
    let socket = Socket::new(Domain::UNIX, kind.nonblocking(), None)
        .map_err(|error| error::limit("connecting a Unix socket", error))?;
    let (mut nap, longest) = NAPS;
    loop {
        match socket.connect(&address) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            outcome => return outcome.map(|()| socket),
        }
        time::sleep(nap).await;
        nap = (nap * 2).min(longest);
    }
}

/// Returns the two ends of a connection (`socketpair(2)`), which wake each other on one engine;
/// `register` makes their registrations.
pub(super) fn pair<T: AsFd + From<Socket>>(
    kind: Type,
    doing: &'static str,
    register: impl Fn(PairedEnd) -> IoRegistration,
) -> io::Result<(AsyncFd<T>, AsyncFd<T>)> {
    let (one, other) = Socket::pair(Domain::UNIX, kind.nonblocking(), None)
        .map_err(|error| error::limit(doing, error))?;
    let (here, there) = peer_wake::pair();
    let end = |socket: Socket, end| AsyncFd::with_registration(socket.into(), register(end));
    Ok((end(one, here), end(other, there)))
}
