//! The crate mio: edge-triggered epoll.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use ::mio::unix::SourceFd;
use ::mio::{Events, Interest, Poll, Token};

use crate::error::{Error, Result};
use crate::ring::course::{Course, Trip};
use crate::ring::passing::Passing;
use crate::ring::tasks::Ring;

struct Mio {
    poll: Poll,
    events: Events,
    passing: Passing,
    _pipes: Vec<(OwnedFd, OwnedFd)>,
}

pub(super) fn build(course: &Course, pipes: Vec<(OwnedFd, OwnedFd)>) -> Result<Box<dyn Ring>> {
    let failed = |e| Error::system("watching a pipe with mio", e);
    let poll = Poll::new().map_err(failed)?;
    for (number, (reader, _)) in pipes.iter().enumerate() {
        let mut source = SourceFd(&reader.as_raw_fd());
        poll.registry().register(&mut source, Token(number), Interest::READABLE).map_err(failed)?;
    }
    Ok(Box::new(Mio {
        poll,
        events: Events::with_capacity(course.total.min(1024)),
        passing: Passing::new(course, &pipes),
        _pipes: pipes,
    }))
}

impl Ring for Mio {
    fn go(&mut self, trip: Trip) -> io::Result<()> {
        self.passing.begin(trip);
        while self.passing.goes_on()? {
            self.poll.poll(&mut self.events, None)?;
            for event in &self.events {
                self.passing.drain(event.token().0)?;
            }
        }
        Ok(())
    }
}
