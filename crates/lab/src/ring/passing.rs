//! The work of stations in loops where a poller reports which pipe has bytes: a state machine whose
//! only state is the two ends.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, RawFd};

use crate::error::{Error, Result};
use crate::loops::{Loop, Ready, Watch};
use crate::ring::course::{Course, MOST, Pipes, Station, Trip, ends};
use crate::ring::tasks::Ring;
use crate::sys::descriptor;

/// All stations of a ring and a trip's progress. The caller owns the pipes and keeps them open.
#[derive(Debug)]
pub(crate) struct Passing {
    ends: Vec<(RawFd, RawFd)>,
    stations: Vec<Station>,
    buffer: [u8; MOST],
    trip: Trip,
    arrived: u64,
    failure: Option<io::Error>,
    /// Whether each report is the only one of all bytes that are there.
    drains: bool,
}

impl Passing {
    /// Stations between these pipes.
    pub(super) fn new(course: &Course, pipes: &Pipes) -> Passing {
        let numbers = pipes.iter().map(|(reader, writer)| (reader.as_raw_fd(), writer.as_raw_fd()));
        Passing {
            ends: ends(numbers.collect()),
            stations: course.stations(),
            buffer: [0; MOST],
            trip: course.trip(0),
            arrived: 0,
            failure: None,
            drains: false,
        }
    }

    /// Begins a trip.
    pub(super) fn begin(&mut self, trip: Trip) {
        (self.trip, self.arrived) = (trip, 0);
    }

    /// Whether the trip goes on.
    pub(super) fn goes_on(&mut self) -> io::Result<bool> {
        self.failure.take().map_or(Ok(self.arrived < self.trip.arrivals), Err)
    }

    /// Reads once at a station and passes the bytes on. Returns how many were read, and how many of
    /// them went on: the driver keeps those that have arrived for the last time.
    #[inline(always)]
    pub(super) fn pass(&mut self, number: usize) -> io::Result<(usize, usize)> {
        let (reader, writer) = self.ends[number];
        let Ok(count) = usize::try_from(descriptor::read(reader, &mut self.buffer)) else {
            return Err(io::Error::last_os_error());
        };
        self.stations[number].passed(count);
        let mut onward = count;
        if number + 1 == self.ends.len() {
            onward = self.trip.onward.saturating_sub(self.arrived).min(count as u64) as usize;
            self.arrived += count as u64;
        }
        if onward > 0 {
            let written = descriptor::write(writer, &self.buffer[..onward]);
            if usize::try_from(written) != Ok(onward) {
                return Err(io::Error::last_os_error());
            }
        }
        Ok((count, onward))
    }

    /// Notes the new ends of a station's pipe.
    pub(super) fn renewed(&mut self, number: usize, reader: RawFd, writer: RawFd) {
        self.ends[number].0 = reader;
        let before = number.checked_sub(1).unwrap_or(self.ends.len() - 1);
        self.ends[before].1 = writer;
    }

    /// Passes on all bytes that are there, for pollers that report arrivals and not states. A read
    /// that leaves room in the buffer has emptied the pipe.
    #[inline(always)]
    fn drain(&mut self, number: usize) -> io::Result<()> {
        loop {
            match self.pass(number) {
                Ok((MOST, _)) => {}
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }
}

impl Ready for Passing {
    #[inline(always)]
    fn ready(&mut self, place: usize, _fd: RawFd) -> bool {
        let passed = if self.drains { self.drain(place) } else { self.pass(place).map(drop) };
        if let Err(error) = passed {
            self.failure = Some(error);
        }
        true
    }
}

/// A ring over a loop that reports which pipes have bytes.
struct Turns<L> {
    // Declared before the pipes that it watches.
    watched: L,
    passing: Passing,
    _pipes: Pipes,
}

/// Returns a ring over a loop: a turn waits once, and passes the bytes on that are reported.
pub(super) fn build<L: Watch<Passing> + 'static>(
    course: &Course,
    pipes: Pipes,
) -> Result<Box<dyn Ring>> {
    let passing = Passing { drains: L::EDGE, ..Passing::new(course, &pipes) };
    let readers: Vec<RawFd> = passing.ends.iter().map(|(reader, _)| *reader).collect();
    let watched = L::watch(&readers, course.total.min(1024))?;
    Ok(Box::new(Turns { watched, passing, _pipes: pipes }))
}

impl<L: Loop<Passing>> Ring for Turns<L> {
    fn go(&mut self, trip: Trip) -> io::Result<()> {
        self.passing.begin(trip);
        while self.passing.goes_on()? {
            self.watched.turn(&mut self.passing).map_err(|error| match error {
                Error::System { source, .. } => source,
                other => io::Error::other(other.to_string()),
            })?;
        }
        Ok(())
    }

    fn calls(&self) -> Option<u64> {
        self.watched.waits()
    }
}

// No waiting at all: a loop that knows where the bytes are goes round and only reads and writes.
// The cost of a runtime is the time that it takes beyond this.

struct Floor {
    passing: Passing,
    _pipes: Pipes,
    starts: Vec<usize>,
    /// Stations whose pipe holds bytes, in the order of the bytes' arrival.
    due: VecDeque<usize>,
    /// How much each pipe holds.
    held: Vec<usize>,
}

pub(super) fn build_floor(course: &Course, pipes: Pipes) -> Result<Box<dyn Ring>> {
    Ok(Box::new(Floor {
        passing: Passing::new(course, &pipes),
        _pipes: pipes,
        starts: course.starts().collect(),
        due: VecDeque::with_capacity(course.total),
        held: vec![0; course.total],
    }))
}

impl Ring for Floor {
    fn go(&mut self, trip: Trip) -> io::Result<()> {
        for &start in &self.starts {
            self.due.push_back(start);
            self.held[start] = 1;
        }
        self.passing.begin(trip);
        while let Some(number) = self.due.pop_front() {
            let (read, onward) = self.passing.pass(number)?;
            self.held[number] -= read;
            if self.held[number] > 0 {
                self.due.push_back(number);
            }
            if onward > 0 {
                let next = if number + 1 == self.held.len() { 0 } else { number + 1 };
                if self.held[next] == 0 {
                    self.due.push_back(next);
                }
                self.held[next] += onward;
            }
        }
        Ok(())
    }

    fn calls(&self) -> Option<u64> {
        Some(0)
    }
}
