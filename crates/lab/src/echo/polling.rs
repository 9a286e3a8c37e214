//! The crate polling, level-triggered.

use std::os::fd::AsFd;

use crate::echo::connections::{Connections, EVENTS};
use crate::echo::drain::echo;
use crate::error::{Error, Result};
use crate::server::Control;
use crate::sys::polling::Readers;

pub(super) fn serve(connections: Connections, control: &mut Control) -> Result<()> {
    let failed = |e| Error::system("polling::Poller", e);
    let mut buffer = vec![0; connections.room];
    let sockets = &connections.sockets;
    let mut watched =
        Readers::watch(sockets.iter().map(AsFd::as_fd).collect(), EVENTS).map_err(failed)?;
    control.ready()?;
    let mut open = sockets.len();
    let mut closed = Vec::new();
    while open > 0 {
        for place in watched.wait().map_err(failed)? {
            if !echo(&sockets[place], &mut buffer) {
                closed.push(place);
            }
        }
        for place in closed.drain(..) {
            watched.stop(place).map_err(failed)?;
            open -= 1;
        }
    }
    Ok(())
}
