//! The C library libuv: a poll handle for each socket, whose callback reads and writes. Its
//! streams, which would do that for their users, use the same loop and request a buffer before each
//! read.

use std::os::fd::AsRawFd;

use crate::echo::connections::Connections;
use crate::echo::drain::Sockets;
use crate::error::{Error, Result};
use crate::server::Control;
use crate::sys::libuv::Loop;

pub(super) fn serve(connections: Connections, control: &mut Control) -> Result<()> {
    let mut sockets = Sockets::new(connections);
    let numbers: Vec<_> = sockets.all().iter().map(AsRawFd::as_raw_fd).collect();
    let mut watched = Loop::new(&numbers)
        .ok_or_else(|| Error::usage("libuv refused a socket: see uv_poll_init"))?;
    control.ready()?;
    while sockets.is_open() {
        watched.run_once(&mut sockets);
    }
    Ok(())
}
