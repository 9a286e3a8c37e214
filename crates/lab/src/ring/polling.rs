//! The crate polling, level-triggered.

use std::io;
use std::os::fd::OwnedFd;

use crate::error::{Error, Result};
use crate::ring::course::{Course, Trip};
use crate::ring::passing::Passing;
use crate::ring::tasks::Ring;
use crate::sys::polling::Readers;

struct Polling {
    watched: Readers<OwnedFd>,
    passing: Passing,
    _writers: Vec<OwnedFd>,
}

pub(super) fn build(course: &Course, pipes: Vec<(OwnedFd, OwnedFd)>) -> Result<Box<dyn Ring>> {
    let passing = Passing::new(course, &pipes);
    let (readers, writers) = pipes.into_iter().unzip();
    let watched = Readers::watch(readers, course.total.min(1024))
        .map_err(|e| Error::system("watching pipes with polling", e))?;
    Ok(Box::new(Polling { watched, passing, _writers: writers }))
}

impl Ring for Polling {
    fn go(&mut self, trip: Trip) -> io::Result<()> {
        self.passing.begin(trip);
        while self.passing.goes_on()? {
            for number in self.watched.wait()? {
                self.passing.pass(number)?;
            }
        }
        Ok(())
    }
}
