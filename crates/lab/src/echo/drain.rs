//! Code shared by the loops whose poller tells them which socket is ready: reads and writes as C
//! makes them.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

#[cfg(any(feature = "rival-mio", feature = "rivals-c"))]
use crate::echo::connections::Connections;
use crate::sys::descriptor;

/// Echoes the bytes that can be read; returns whether the connection goes on. A read that leaves
/// room in the buffer has drained the socket, so an edge needs no second read.
pub(super) fn echo(socket: &OwnedFd, buffer: &mut [u8]) -> bool {
    let fd = socket.as_raw_fd();
    loop {
        match usize::try_from(descriptor::read(fd, buffer)) {
            Ok(0) => return false,
            Ok(count) => {
                if usize::try_from(descriptor::write(fd, &buffer[..count])) != Ok(count) {
                    return false;
                }
                if count < buffer.len() {
                    return true;
                }
            }
            Err(_) => match io::Error::last_os_error().kind() {
                io::ErrorKind::WouldBlock => return true,
                io::ErrorKind::Interrupted => {}
                _ => return false,
            },
        }
    }
}

/// The sockets of a server, by place.
#[cfg(any(feature = "rival-mio", feature = "rivals-c"))]
#[derive(Debug)]
pub(super) struct Sockets {
    sockets: Vec<OwnedFd>,
    buffer: Vec<u8>,
    open: usize,
}

#[cfg(any(feature = "rival-mio", feature = "rivals-c"))]
impl Sockets {
    /// Takes the sockets that a server was given.
    pub(super) fn new(connections: Connections) -> Sockets {
        let (sockets, buffer) = (connections.sockets, vec![0; connections.room]);
        Sockets { open: sockets.len(), sockets, buffer }
    }

    /// Returns the sockets themselves.
    pub(super) fn all(&self) -> &[OwnedFd] {
        &self.sockets
    }

    /// Returns whether any connection is left.
    pub(super) fn is_open(&self) -> bool {
        self.open > 0
    }

    /// Answers on one connection; returns whether it goes on. The caller stops watching a
    /// connection that does not.
    #[inline(always)]
    pub(super) fn answer(&mut self, place: usize) -> bool {
        let goes_on = echo(&self.sockets[place], &mut self.buffer);
        self.open -= usize::from(!goes_on);
        goes_on
    }
}

#[cfg(feature = "rivals-c")]
impl crate::sys::ready::Ready for Sockets {
    #[inline(always)]
    fn ready(&mut self, place: usize, _fd: std::os::fd::RawFd) -> bool {
        self.answer(place)
    }
}
