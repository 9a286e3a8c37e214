//! The crate mio: edge-triggered epoll, as it offers nothing else on Linux.

use ::mio::unix::SourceFd;
use ::mio::{Events, Interest, Poll, Token};

use crate::channel::Pairs;
use crate::error::{Error, Result};
use crate::subject::work::{ReadLog, Subject, Turns};

pub(super) fn build(pairs: &Pairs) -> Result<Box<dyn Subject + '_>> {
    let mut poll = Poll::new().map_err(|e| Error::system("creating a mio::Poll", e))?;
    let readers = pairs.readers();
    for (pair, fd) in readers.iter().enumerate() {
        poll.registry()
            .register(&mut SourceFd(fd), Token(pair), Interest::READABLE)
            .map_err(|e| Error::system(format!("registering descriptor {fd} with mio"), e))?;
    }
    let mut events = Events::with_capacity(readers.len());
    Ok(Box::new(Turns(move |log: &mut ReadLog| {
        poll.poll(&mut events, None).map_err(|e| Error::system("mio::Poll", e))?;
        for event in &events {
            let pair = event.token().0;
            log.read(pair, readers[pair]);
        }
        Ok(())
    })))
}
