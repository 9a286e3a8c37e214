//! `epoll(7)` as a C programmer uses it: wait, read, write.

use std::os::fd::{AsRawFd, OwnedFd};

use crate::echo::connections::{Connections, EVENTS};
use crate::echo::drain::echo;
use crate::error::{Doing, Result};
use crate::server::Control;
use crate::sys::epoll;

pub(crate) fn serve_level(connections: Connections, control: &mut Control) -> Result<()> {
    serve(connections, control, 0)
}

/// Reads that leave room in the buffer have drained the socket, so that edges need no second read.
pub(crate) fn serve_edge(connections: Connections, control: &mut Control) -> Result<()> {
    serve(connections, control, libc::EPOLLET)
}

fn serve(connections: Connections, control: &mut Control, trigger: i32) -> Result<()> {
    let set = epoll::create().doing("creating an epoll set")?;
    let mut buffer = vec![0; connections.room];
    let mut sockets: Vec<Option<OwnedFd>> = connections.sockets.into_iter().map(Some).collect();
    for (number, socket) in (0..).zip(sockets.iter().flatten()) {
        epoll::add(&set, socket.as_raw_fd(), (libc::EPOLLIN | trigger) as u32, number)
            .doing("watching a socket with epoll")?;
    }
    control.ready()?;
    let mut open = sockets.len();
    let mut events = vec![epoll::Raw { events: 0, u64: 0 }; EVENTS];
    while open > 0 {
        let ready = epoll::wait(set.as_raw_fd(), &mut events);
        for event in &events[..usize::try_from(ready).unwrap_or(0)] {
            let socket = &mut sockets[event.u64 as usize];
            if socket.as_ref().is_some_and(|socket| !echo(socket, &mut buffer)) {
                // Closing ends the watch too.
                *socket = None;
                open -= 1;
            }
        }
    }
    Ok(())
}
