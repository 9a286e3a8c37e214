//! The crate mio: edge-triggered epoll.

use std::io;
use std::os::fd::AsRawFd;

use ::mio::unix::SourceFd;
use ::mio::{Events, Interest, Poll, Token};

use crate::echo::connections::{Connections, EVENTS};
use crate::echo::drain::Sockets;
use crate::error::{Doing, Error, Result};
use crate::server::Control;

pub(super) fn serve(connections: Connections, control: &mut Control) -> Result<()> {
    let failed = |e| Error::system("watching a socket with mio", e);
    let mut poll = Poll::new().map_err(failed)?;
    let mut sockets = Sockets::new(connections);
    for (place, socket) in sockets.all().iter().enumerate() {
        let mut source = SourceFd(&socket.as_raw_fd());
        poll.registry().register(&mut source, Token(place), Interest::READABLE).map_err(failed)?;
    }
    control.ready()?;
    let mut events = Events::with_capacity(EVENTS);
    while sockets.is_open() {
        match poll.poll(&mut events, None) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            outcome => outcome.doing("mio::Poll")?,
        }
        for event in &events {
            let place = event.token().0;
            if !sockets.answer(place) {
                let fd = sockets.all()[place].as_raw_fd();
                poll.registry().deregister(&mut SourceFd(&fd)).map_err(failed)?;
            }
        }
    }
    Ok(())
}
