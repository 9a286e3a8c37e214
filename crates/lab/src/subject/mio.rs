//! The crate mio: edge-triggered epoll, as it offers nothing else on Linux.

use std::os::fd::RawFd;

use ::mio::unix::SourceFd;
use ::mio::{Events, Interest, Poll, Token};

use crate::channel::Pairs;
use crate::error::{Error, Result};
use crate::subject::work::{ReadLog, Subject};

struct Mio<'a> {
    poll: Poll,
    events: Events,
    readers: &'a [RawFd],
}

pub(super) fn build(pairs: &Pairs) -> Result<Box<dyn Subject + '_>> {
    let poll = Poll::new().map_err(|e| Error::system("creating a mio::Poll", e))?;
    for (pair, fd) in pairs.readers().iter().enumerate() {
        poll.registry()
            .register(&mut SourceFd(fd), Token(pair), Interest::READABLE)
            .map_err(|e| Error::system(format!("registering descriptor {fd} with mio"), e))?;
    }
    let events = Events::with_capacity(pairs.len());
    Ok(Box::new(Mio { poll, events, readers: pairs.readers() }))
}

impl Subject for Mio<'_> {
    fn round(&mut self, active: &[u32], log: &mut ReadLog) -> Result<()> {
        while log.bytes() < active.len() {
            self.poll.poll(&mut self.events, None).map_err(|e| Error::system("mio::Poll", e))?;
            for event in &self.events {
                let pair = event.token().0;
                log.read(pair, self.readers[pair]);
            }
        }
        Ok(())
    }
}
