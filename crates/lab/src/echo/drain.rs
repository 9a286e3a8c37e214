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
    let count = |returned| usize::try_from(returned).map_err(|_| io::Error::last_os_error().kind());
    let read = |buffer: &mut [u8]| count(descriptor::read(fd, buffer));
    echo_by(buffer, read, |bytes| count(descriptor::write(fd, bytes)).ok())
}

/// Like [`echo`], with these calls.
#[inline(always)]
pub(super) fn echo_by(
    buffer: &mut [u8],
    read: impl Fn(&mut [u8]) -> Result<usize, io::ErrorKind>,
    write: impl Fn(&[u8]) -> Option<usize>,
) -> bool {
    loop {
        match read(buffer) {
            Ok(0) => return false,
            Ok(count) => {
                if write(&buffer[..count]) != Some(count) {
                    return false;
                }
                if count < buffer.len() {
                    return true;
                }
            }
            Err(io::ErrorKind::WouldBlock) => return true,
            Err(io::ErrorKind::Interrupted) => {}
            Err(_) => return false,
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
