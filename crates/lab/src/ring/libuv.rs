//! The C library libuv: one poll handle per pipe, one callback per report.

use std::io;
use std::os::fd::OwnedFd;

use crate::error::{Error, Result};
use crate::ring::course::{Course, Trip};
use crate::ring::passing::Passing;
use crate::ring::tasks::Ring;
use crate::sys::libuv::Loop;

struct Libuv {
    // Declared before the pipes that it watches.
    watched: Loop<Passing>,
    passing: Passing,
    _pipes: Vec<(OwnedFd, OwnedFd)>,
}

pub(super) fn build(course: &Course, pipes: Vec<(OwnedFd, OwnedFd)>) -> Result<Box<dyn Ring>> {
    let passing = Passing::new(course, &pipes);
    let watched = Loop::new(&passing.readers())
        .ok_or_else(|| Error::usage("libuv refused a pipe: see uv_poll_init"))?;
    Ok(Box::new(Libuv { watched, passing, _pipes: pipes }))
}

impl Ring for Libuv {
    fn go(&mut self, trip: Trip) -> io::Result<()> {
        self.passing.begin(trip);
        while self.passing.goes_on()? {
            self.watched.run_once(&mut self.passing);
        }
        Ok(())
    }
}
