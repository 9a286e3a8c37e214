//! A client's end of a TCP connection to a server.

use std::io::{self, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};

use crate::channel;
use crate::sys::{descriptor, epoll, socket};

/// Connects to a port from an address of this machine's own network.
pub(crate) fn connect(from: Ipv4Addr, port: u16) -> io::Result<OwnedFd> {
    let stream = TcpStream::from(socket::connect_from(from, port)?);
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    // No port is to stay occupied after the run.
    let stream = OwnedFd::from(stream);
    descriptor::reset_on_close(&stream)?;
    channel::plain_congestion(&stream);
    Ok(stream)
}

/// A connection that is kept open, for requests that are short.
#[derive(Debug)]
pub(crate) struct Client(TcpStream);

impl Client {
    /// Connects to a port from an address of this machine's own network. Arriving bytes are
    /// reported to the set, with this number.
    pub(crate) fn connect(
        from: Ipv4Addr,
        port: u16,
        set: &OwnedFd,
        number: u64,
    ) -> io::Result<Client> {
        let stream = connect(from, port)?;
        epoll::add(set, stream.as_raw_fd(), libc::EPOLLIN as u32, number)?;
        Ok(Client(stream.into()))
    }

    /// Sends a request, all of it at once.
    pub(crate) fn send(&mut self, request: &[u8]) -> Result<(), String> {
        match self.0.write(request) {
            Ok(count) if count == request.len() => Ok(()),
            Ok(count) => Err(format!("the connection took {count} bytes of a request")),
            Err(error) => Err(format!("the connection took no request: {error}")),
        }
    }

    /// Reads once the bytes that have arrived; `None` if that was interrupted.
    pub(crate) fn receive<'a>(&self, buffer: &'a mut [u8]) -> Result<Option<&'a [u8]>, String> {
        match usize::try_from(descriptor::read(self.0.as_raw_fd(), buffer)) {
            Ok(0) => Err("it closed a connection".to_owned()),
            Ok(count) => Ok(Some(&buffer[..count])),
            Err(_) => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => Ok(None),
                error => Err(format!("a connection broke: {error}")),
            },
        }
    }
}
