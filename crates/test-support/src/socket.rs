//! Connections for which kernels keep few bytes.

use std::net::{TcpStream, ToSocketAddrs};

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
