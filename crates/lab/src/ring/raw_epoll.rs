//! `epoll(7)` as a C programmer would write the ring: one set, level-triggered, each reader registered
//! once and for all, and a state machine that needs no state besides the two ends.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use crate::error::{Error, Result};
use crate::ring::course::{Course, MOST, Station, Trip, ends};
use crate::ring::subject::Ring;
use crate::sys::{descriptor, epoll};

struct RawEpoll {
    set: OwnedFd,
    ends: Vec<(OwnedFd, OwnedFd)>,
    stations: Vec<Station>,
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
        ends: ends(pipes),
        stations: (0..course.total).map(|number| course.station(number)).collect(),
        events: vec![epoll::Raw { events: 0, u64: 0 }; course.total.min(1024)],
        waits: 0,
    }))
}

impl Ring for RawEpoll {
    fn go(&mut self, trip: Trip) -> io::Result<()> {
        let driver = self.ends.len() - 1;
        let mut buffer = [0; MOST];
        let mut arrived = 0;
        while arrived < trip.arrivals {
            self.waits += 1;
            let ready = epoll::wait(self.set.as_raw_fd(), &mut self.events);
            let Ok(ready) = usize::try_from(ready) else {
                return Err(io::Error::last_os_error());
            };
            for event in &self.events[..ready] {
                let number = event.u64 as usize;
                let (reader, writer) = &self.ends[number];
                let count = descriptor::read(reader.as_raw_fd(), &mut buffer);
                let Ok(mut count) = usize::try_from(count) else {
                    return Err(io::Error::last_os_error());
                };
                self.stations[number].passed(count);
                if number == driver {
                    let onward = trip.onward.saturating_sub(arrived).min(count as u64);
                    arrived += count as u64;
                    count = onward as usize;
                }
                if count > 0 {
                    let written = descriptor::write(writer.as_raw_fd(), &buffer[..count]);
                    if usize::try_from(written) != Ok(count) {
                        return Err(io::Error::last_os_error());
                    }
                }
            }
        }
        Ok(())
    }

    fn calls(&self) -> Option<u64> {
        Some(self.waits)
    }
}
