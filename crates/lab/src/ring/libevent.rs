//! The C library libevent: persistent events, one callback per report.

use std::io;
use std::os::fd::OwnedFd;

use crate::error::{Error, Result};
use crate::ring::course::{Course, Trip};
use crate::ring::passing::Passing;
use crate::ring::tasks::Ring;
use crate::sys::libevent::Base;

struct Libevent {
    // Declared before the pipes that it watches.
    watched: Base<Passing>,
    passing: Passing,
    _pipes: Vec<(OwnedFd, OwnedFd)>,
}

pub(super) fn build(course: &Course, pipes: Vec<(OwnedFd, OwnedFd)>) -> Result<Box<dyn Ring>> {
    let passing = Passing::new(course, &pipes);
    let watched = Base::new(&passing.readers())
        .ok_or_else(|| Error::usage("libevent refused a pipe: see event_add(3)"))?;
    Ok(Box::new(Libevent { watched, passing, _pipes: pipes }))
}

impl Ring for Libevent {
    fn go(&mut self, trip: Trip) -> io::Result<()> {
        self.passing.begin(trip);
        while self.passing.goes_on()? {
            if !self.watched.run_once(&mut self.passing) {
                return Err(io::Error::other("event_base_loop of libevent failed"));
            }
        }
        Ok(())
    }
}
