//! No waiting at all: a loop that knows where the bytes are goes round and only reads and writes.
//! The cost of a runtime is the time that it takes beyond this.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use crate::error::Result;
use crate::ring::course::{Course, MOST, Pipes, Station, Trip, ends};
use crate::ring::tasks::Ring;
use crate::sys::descriptor;

struct Floor {
    ends: Vec<(OwnedFd, OwnedFd)>,
    stations: Vec<Station>,
    starts: Vec<usize>,
    /// Stations whose pipe holds bytes, in the order of the bytes' arrival.
    due: VecDeque<usize>,
    /// How much each pipe holds.
    held: Vec<usize>,
}

pub(super) fn build(course: &Course, pipes: Pipes) -> Result<Box<dyn Ring>> {
    Ok(Box::new(Floor {
        ends: ends(pipes),
        stations: course.stations(),
        starts: course.starts().collect(),
        due: VecDeque::with_capacity(course.total),
        held: vec![0; course.total],
    }))
}

impl Ring for Floor {
    fn go(&mut self, trip: Trip) -> io::Result<()> {
        let driver = self.ends.len() - 1;
        for &start in &self.starts {
            self.due.push_back(start);
            self.held[start] = 1;
        }
        let mut buffer = [0; MOST];
        let mut arrived = 0;
        while let Some(number) = self.due.pop_front() {
            let (reader, writer) = &self.ends[number];
            let count = descriptor::read(reader.as_raw_fd(), &mut buffer);
            let Ok(mut count) = usize::try_from(count) else {
                return Err(io::Error::last_os_error());
            };
            self.stations[number].passed(count);
            self.held[number] -= count;
            if self.held[number] > 0 {
                self.due.push_back(number);
            }
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
                let next = if number == driver { 0 } else { number + 1 };
                if self.held[next] == 0 {
                    self.due.push_back(next);
                }
                self.held[next] += count;
            }
        }
        Ok(())
    }

    fn calls(&self) -> Option<u64> {
        Some(0)
    }
}
