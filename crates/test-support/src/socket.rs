//! Connections for which kernels keep few bytes, and free ports.

use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicU16, Ordering};

use socket2::{Domain, Socket, Type};

/// The bytes of a segment on an Ethernet.
const SEGMENT: u32 = 1400;

/// Connects with the segments of an Ethernet, and with a small buffer for received bytes, if
/// `receive` has its size.
///
/// With the segments of a loopback, which have 64 KiB, they come all at once or not at all, and the
/// kernel keeps megabytes for a client that does not read, all of which a server has to make first.
///
/// # Panics
///
/// If nothing listens there.
pub fn connect_narrow(address: impl ToSocketAddrs, receive: Option<usize>) -> TcpStream {
    let address = address.to_socket_addrs().unwrap().next().expect("an address");
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None).unwrap();
    socket.set_tcp_mss(SEGMENT).unwrap();
    if let Some(size) = receive {
        // Before it connects: a kernel takes all the bytes that it has once announced room for, and
        // none leaves the server's kernel until those were read.
        socket.set_recv_buffer_size(size).unwrap();
    }
    socket.connect(&address.into()).unwrap();
    socket.into()
}

/// Returns a port that was free a moment ago, outside the range from which the kernel gives ports
/// to connections.
///
/// # Panics
///
/// If no port is free.
#[must_use]
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Processes that were started one after the other are far from each other.
    let start = (std::process::id() as u16).wrapping_mul(40_503);
    let mut all = (0..20_000).map(|_| {
        let at = start.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % 20_000;
        10_240 + at
    });
    all.find(|&port| TcpListener::bind(("127.0.0.1", port)).is_ok()).unwrap()
}
