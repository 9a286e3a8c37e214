//! The C library libev: one watcher per pipe, one callback per report.

use std::io;
use std::os::fd::OwnedFd;

use crate::error::{Error, Result};
use crate::ring::course::{Course, Trip};
use crate::ring::passing::Passing;
use crate::ring::tasks::Ring;
use crate::sys::libev::Loop;

struct Libev {
    // Declared before the pipes that it watches.
    watched: Loop<Passing>,
    passing: Passing,
    _pipes: Vec<(OwnedFd, OwnedFd)>,
}

pub(super) fn build(course: &Course, pipes: Vec<(OwnedFd, OwnedFd)>) -> Result<Box<dyn Ring>> {
    let passing = Passing::new(course, &pipes);
    let watched = Loop::new(&passing.readers())
        .ok_or_else(|| Error::usage("libev has no epoll here: see ev_loop_new in ev(3)"))?;
    Ok(Box::new(Libev { watched, passing, _pipes: pipes }))
}

impl Ring for Libev {
    fn go(&mut self, trip: Trip) -> io::Result<()> {
        self.passing.begin(trip);
        while self.passing.goes_on()? {
            self.watched.run_once(&mut self.passing);
        }
        Ok(())
    }
}
