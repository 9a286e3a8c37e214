//! The work of stations in loops where a poller reports which pipe has bytes: a state machine whose
//! only state is the two ends.

use std::io;
use std::os::fd::{AsRawFd, RawFd};

use crate::ring::course::{Course, MOST, Pipes, Station, Trip, ends};
use crate::ring::tasks::Ring;
use crate::sys::descriptor;

/// All stations of a ring and a trip's progress. The caller owns the pipes and keeps them open.
#[derive(Debug)]
pub(super) struct Passing {
    ends: Vec<(RawFd, RawFd)>,
    stations: Vec<Station>,
    buffer: [u8; MOST],
    trip: Trip,
    arrived: u64,
    failure: Option<io::Error>,
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
        }
    }

    /// The ends to read, by station.
    #[cfg(feature = "rivals-c")]
    pub(super) fn readers(&self) -> Vec<RawFd> {
        self.ends.iter().map(|(reader, _)| *reader).collect()
    }

    /// Begins a trip.
    pub(super) fn begin(&mut self, trip: Trip) {
        (self.trip, self.arrived) = (trip, 0);
    }

    /// Whether the trip goes on.
    fn goes_on(&mut self) -> io::Result<bool> {
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

    /// Passes on all bytes that are there, for pollers that report arrivals and not states. A read
    /// that leaves room in the buffer has emptied the pipe.
    #[cfg(feature = "rival-mio")]
    #[inline(always)]
    pub(super) fn drain(&mut self, number: usize) -> io::Result<()> {
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

/// A ring over a poller.
struct Turns<Turn, Kept> {
    // Declared before the pipes that it watches.
    turn: Turn,
    passing: Passing,
    waits: Option<u64>,
    _pipes: Kept,
}

/// Returns a ring over a poller: a turn waits once, and passes the bytes on that are reported.
/// `waits` counts turns, if these are all calls besides reads and writes.
pub(super) fn in_turns(
    passing: Passing,
    pipes: impl Sized + 'static,
    waits: Option<u64>,
    turn: impl FnMut(&mut Passing) -> io::Result<()> + 'static,
) -> Box<dyn Ring> {
    Box::new(Turns { turn, passing, waits, _pipes: pipes })
}

impl<Turn: FnMut(&mut Passing) -> io::Result<()>, Kept> Ring for Turns<Turn, Kept> {
    fn go(&mut self, trip: Trip) -> io::Result<()> {
        self.passing.begin(trip);
        while self.passing.goes_on()? {
            self.waits = self.waits.map(|waits| waits + 1);
            (self.turn)(&mut self.passing)?;
        }
        Ok(())
    }

    fn calls(&self) -> Option<u64> {
        self.waits
    }
}

#[cfg(feature = "rivals-c")]
impl crate::sys::ready::Ready for Passing {
    #[inline(always)]
    fn ready(&mut self, place: usize, _fd: RawFd) -> bool {
        if let Err(error) = self.pass(place) {
            self.failure = Some(error);
        }
        true
    }
}
