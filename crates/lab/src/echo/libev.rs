//! The C library libev: a watcher for each socket, whose callback reads and writes.

use std::os::fd::AsRawFd;

use crate::echo::connections::Connections;
use crate::echo::drain::Sockets;
use crate::error::{Error, Result};
use crate::server::Control;
use crate::sys::libev::Loop;

pub(super) fn serve(connections: Connections, control: &mut Control) -> Result<()> {
    let mut sockets = Sockets::new(connections);
    let numbers: Vec<_> = sockets.all().iter().map(AsRawFd::as_raw_fd).collect();
    let mut watched = Loop::new(&numbers)
        .ok_or_else(|| Error::usage("libev has no epoll here: see ev_loop_new in ev(3)"))?;
    control.ready()?;
    while sockets.is_open() {
        watched.run_once(&mut sockets);
    }
    Ok(())
}
