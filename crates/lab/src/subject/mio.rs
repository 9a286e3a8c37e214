//! The crate mio: edge-triggered epoll, as it offers nothing else on Linux.

use ::mio::unix::SourceFd;
use ::mio::{Events, Interest, Poll, Token};

use crate::channel::Pairs;
use crate::error::{Doing, Result};
use crate::subject::work::{ReadLog, Subject, Turns};

pub(super) fn build(pairs: &Pairs) -> Result<Box<dyn Subject + '_>> {
    let mut poll = Poll::new().doing("creating a mio::Poll")?;
    let readers = pairs.readers();
    for (pair, fd) in readers.iter().enumerate() {
        poll.registry()
            .register(&mut SourceFd(fd), Token(pair), Interest::READABLE)
            .doing(format_args!("registering descriptor {fd} with mio"))?;
    }
    let mut events = Events::with_capacity(readers.len());
    Ok(Box::new(Turns(move |log: &mut ReadLog| {
        poll.poll(&mut events, None).doing("mio::Poll")?;
        for event in &events {
            let pair = event.token().0;
            log.read(pair, readers[pair]);
        }
        Ok(())
    })))
}
