//! The C library libevent: a persistent event for each socket, whose callback reads and writes. Its
//! buffers (`bufferevent`) would copy each message twice more.

use std::os::fd::AsRawFd;

use crate::echo::connections::Connections;
use crate::echo::drain::Sockets;
use crate::error::{Error, Result};
use crate::server::Control;
use crate::sys::libevent::Base;

pub(super) fn serve(connections: Connections, control: &mut Control) -> Result<()> {
    let mut sockets = Sockets::new(connections);
    let numbers: Vec<_> = sockets.all().iter().map(AsRawFd::as_raw_fd).collect();
    let mut watched = Base::new(&numbers)
        .ok_or_else(|| Error::usage("libevent refused a socket: see event_add(3)"))?;
    control.ready()?;
    while sockets.is_open() {
        if !watched.run_once(&mut sockets) {
            return Err(Error::usage("event_base_loop of libevent failed"));
        }
    }
    Ok(())
}
