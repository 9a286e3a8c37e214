//! Code shared by the loops whose poller tells them which socket is ready: reads and writes as C
//! makes them.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use crate::echo::load::{Connections, EVENTS};
use crate::error::{Error, Result};
use crate::loops::{Ready, Watch};
use crate::server::Control;
use crate::sys::descriptor;
use crate::sys::uring::echo::Echo;

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
#[derive(Debug)]
pub(crate) struct Sockets {
    sockets: Vec<OwnedFd>,
    buffer: Vec<u8>,
    open: usize,
}

impl Sockets {
    /// Takes the sockets that a server was given.
    pub(super) fn new(connections: Connections) -> Sockets {
        let (sockets, buffer) = (connections.sockets, vec![0; connections.room]);
        Sockets { open: sockets.len(), sockets, buffer }
    }
}

impl Ready for Sockets {
    #[inline(always)]
    fn ready(&mut self, place: usize, _fd: RawFd) -> bool {
        let goes_on = echo(&self.sockets[place], &mut self.buffer);
        self.open -= usize::from(!goes_on);
        goes_on
    }
}

/// Serves by a loop that reports which sockets are ready.
pub(crate) fn serve<L: Watch<Sockets>>(
    connections: Connections,
    control: &mut Control,
) -> Result<()> {
    let mut sockets = Sockets::new(connections);
    let numbers: Vec<RawFd> = sockets.sockets.iter().map(AsRawFd::as_raw_fd).collect();
    let mut watched = L::watch(&numbers, EVENTS)?;
    control.ready()?;
    while sockets.open > 0 {
        match watched.turn(&mut sockets) {
            Err(Error::System { source, .. }) if source.kind() == io::ErrorKind::Interrupted => {}
            outcome => drop(outcome?),
        }
    }
    Ok(())
}

// io_uring as a C programmer uses it.

/// Returns why it cannot run here.
pub(crate) fn refusal() -> Option<String> {
    let refused = Echo::new(&[], 512).err()?;
    Some(format!("a ring with provided buffers: {refused}"))
}

pub(crate) fn serve_by_ring(connections: Connections, control: &mut Control) -> Result<()> {
    let failed = |source| Error::system("serving with an io_uring", source);
    let mut echo = Echo::new(&connections.sockets, connections.room).map_err(failed)?;
    control.ready()?;
    while echo.is_open() {
        echo.turn().map_err(failed)?;
    }
    Ok(())
}
