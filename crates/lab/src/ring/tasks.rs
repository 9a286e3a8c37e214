//! The parts of a ring: the tasks that pass bytes on, the same for every runtime, and the driver.

use std::future::Future;
use std::io;
use std::os::fd::{AsRawFd, RawFd};

use crate::ring::course::{Station, Trip};

/// A ring that is set up and waits for bytes.
pub(crate) trait Ring {
    /// Lets the placed bytes go round.
    fn go(&mut self, trip: Trip) -> io::Result<()>;

    /// System calls so far except reads and writes, if it counts them.
    fn calls(&self) -> Option<u64> {
        None
    }

    /// Makes sure after a trip that its stations have reported the bytes that they passed on.
    fn flush_reports(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// The process that has its stations, if it is not this process.
    fn elsewhere(&self) -> Option<i32> {
        None
    }
}

/// A ring and the numbers of its pipes' ends.
pub(crate) struct Built {
    /// The ring.
    pub ring: Box<dyn Ring>,
    /// The ends to read, in the order of the pipes.
    pub readers: Vec<RawFd>,
    /// The ends to write.
    pub writers: Vec<RawFd>,
}

/// The numbers of the ends of pipes.
pub(super) fn numbers<R: AsRawFd, W: AsRawFd>(pipes: &[(R, W)]) -> (Vec<RawFd>, Vec<RawFd>) {
    pipes.iter().map(|(reader, writer)| (reader.as_raw_fd(), writer.as_raw_fd())).unzip()
}

/// A station's two ends and its buffer.
pub(super) trait Link {
    /// Reads up to [`MOST`](crate::ring::course::MOST) bytes and returns their number; zero at the
    /// end.
    fn receive(&mut self) -> impl Future<Output = io::Result<usize>>;
    /// Writes the first `count` bytes of those that were read last.
    fn send(&mut self, count: usize) -> impl Future<Output = io::Result<()>>;
}

/// Passes on all bytes that come. A failing station reports its cause and closes its ends, which
/// ends all stations after it.
pub(super) async fn pass<L: Link>(mut link: L, station: Station) {
    let failure = loop {
        match link.receive().await {
            Ok(0) => return,
            Ok(count) => {
                station.passed(count);
                if let Err(error) = link.send(count).await {
                    break error;
                }
            }
            Err(error) => break error,
        }
    };
    station.failed(&failure);
}

/// The driver's part of a trip; gives the ends back.
pub(super) async fn drive<L: Link>(mut link: L, station: Station, trip: Trip) -> io::Result<L> {
    let mut arrived = 0;
    while arrived < trip.arrivals {
        let count = link.receive().await?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        station.passed(count);
        let onward = trip.onward.saturating_sub(arrived).min(count as u64) as usize;
        arrived += count as u64;
        if onward > 0 {
            link.send(onward).await?;
        }
    }
    Ok(link)
}
