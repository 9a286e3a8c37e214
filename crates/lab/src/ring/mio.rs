//! The crate mio: edge-triggered epoll.

use std::os::fd::AsRawFd;

use ::mio::unix::SourceFd;
use ::mio::{Events, Interest, Poll, Token};

use crate::error::{Error, Result};
use crate::ring::course::{Course, Pipes};
use crate::ring::passing::{Passing, in_turns};
use crate::ring::tasks::Ring;

pub(super) fn build(course: &Course, pipes: Pipes) -> Result<Box<dyn Ring>> {
    let failed = |e| Error::system("watching a pipe with mio", e);
    let mut poll = Poll::new().map_err(failed)?;
    for (number, (reader, _)) in pipes.iter().enumerate() {
        let mut source = SourceFd(&reader.as_raw_fd());
        poll.registry().register(&mut source, Token(number), Interest::READABLE).map_err(failed)?;
    }
    let mut events = Events::with_capacity(course.total.min(1024));
    Ok(in_turns(Passing::new(course, &pipes), pipes, None, move |passing| {
        poll.poll(&mut events, None)?;
        events.iter().try_for_each(|event| passing.drain(event.token().0))
    }))
}
