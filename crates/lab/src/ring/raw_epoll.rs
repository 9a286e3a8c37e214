//! `epoll(7)` as a C programmer would write the ring: one set, level-triggered, each reader
//! registered exactly once.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use crate::error::{Error, Result};
use crate::ring::course::{Course, Trip};
use crate::ring::passing::Passing;
use crate::ring::tasks::Ring;
use crate::sys::epoll;

struct RawEpoll {
    set: OwnedFd,
    passing: Passing,
    _pipes: Vec<(OwnedFd, OwnedFd)>,
    events: Vec<epoll::Raw>,
    waits: u64,
}

pub(super) fn build(course: &Course, pipes: Vec<(OwnedFd, OwnedFd)>) -> Result<Box<dyn Ring>> {
    let set = epoll::create().map_err(|e| Error::system("creating an epoll set", e))?;
    for (number, (reader, _)) in pipes.iter().enumerate() {
        epoll::add(&set, reader.as_raw_fd(), libc::EPOLLIN as u32, number as u64)
            .map_err(|e| Error::system(format!("watching pipe {number} with epoll"), e))?;
    }
    Ok(Box::new(RawEpoll {
        set,
        passing: Passing::new(course, &pipes),
        _pipes: pipes,
        events: vec![epoll::Raw { events: 0, u64: 0 }; course.total.min(1024)],
        waits: 0,
    }))
}

impl Ring for RawEpoll {
    fn go(&mut self, trip: Trip) -> io::Result<()> {
        self.passing.begin(trip);
        while self.passing.goes_on()? {
            self.waits += 1;
            let ready = epoll::wait(self.set.as_raw_fd(), &mut self.events);
            let Ok(ready) = usize::try_from(ready) else {
                return Err(io::Error::last_os_error());
            };
            for event in &self.events[..ready] {
                self.passing.pass(event.u64 as usize)?;
            }
        }
        Ok(())
    }

    fn calls(&self) -> Option<u64> {
        Some(self.waits)
    }
}
