//! Our poller, with reads and writes by its inlined calls: the loop that its user would write.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use superpoll::{BackendKind, Events, Interest, Key, Mode, Poller, Watch, call};

use crate::echo::connections::{Connections, EVENTS};
use crate::echo::drain::echo_by;
use crate::error::{Error, Result};
use crate::server::{Control, Counts};

pub(crate) fn serve(
    connections: Connections,
    control: &mut Control,
    kind: BackendKind,
) -> Result<()> {
    let mut poller = Poller::builder().backend(kind).build()?;
    let mut buffer = vec![0; connections.room];
    let watch = Watch::new(Interest::READABLE).mode(Mode::Auto);
    let questions = control.questions()?;
    let asked = poller.register(&questions, watch)?;
    let mut sockets: Vec<Option<(Key, OwnedFd)>> = Vec::new();
    for socket in connections.sockets {
        let key = poller.register(&socket, watch)?;
        let place = key.index() as usize;
        if place >= sockets.len() {
            sockets.resize_with(place + 1, || None);
        }
        sockets[place] = Some((key, socket));
    }
    let mut open = sockets.iter().flatten().count();
    poller.flush();
    control.ready()?;
    let mut events = Events::with_limit(EVENTS);
    while open > 0 {
        poller.wait(&mut events, None)?;
        for event in &events {
            let key = event.key();
            if key == asked {
                match call::read(&questions, &mut [0]) {
                    Ok(1) => control.counted(counts(&poller))?,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    _ => return Ok(()),
                }
                continue;
            }
            let socket = &mut sockets[key.index() as usize];
            if socket.as_ref().is_some_and(|(_, socket)| !echo(socket, &mut buffer)) {
                poller.deregister(key)?;
                *socket = None;
                open -= 1;
            }
        }
        if let Some((_, error)) = events.refusals().first() {
            return Err(Error::usage(error.to_string()));
        }
    }
    Ok(())
}

fn counts(poller: &Poller) -> Counts {
    let calls = poller.stats().calls;
    Counts { waits: calls.waits(), epoll_ctl: calls.epoll_ctl(), ..Counts::default() }
}

/// Echoes the bytes that can be read; returns whether the connection goes on.
fn echo(socket: impl AsFd, buffer: &mut [u8]) -> bool {
    let read = |buffer: &mut [u8]| call::read(&socket, buffer).map_err(|error| error.kind());
    echo_by(buffer, read, |bytes| call::send(&socket, bytes).ok())
}
