//! The parts of a ring: the tasks that pass bytes on, the same for every runtime, and the driver.

use std::future::Future;
use std::io;
use std::os::fd::{AsRawFd, RawFd};

use futures_lite::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use superpoll::BackendKind;
use superpoll_rt::pipe::{self, PipeReader, PipeWriter};
use superpoll_rt::{Runtime, spawn};

use crate::error::{Doing, Result};
use crate::ring::course::{Course, MOST, Pipes, Station, Trip, ends};

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

    /// The present numbers of its pipes' ends, if it replaces its pipes.
    fn renewed(&self) -> Option<(Vec<RawFd>, Vec<RawFd>)> {
        None
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

/// The link of a runtime whose pipes have the traits of futures-io.
pub(super) struct Ends<R, W> {
    reader: R,
    writer: W,
    buffer: [u8; MOST],
}

impl<R, W> Ends<R, W> {
    /// Links a pipe and the next.
    pub(super) fn new(reader: R, writer: W) -> Ends<R, W> {
        Ends { reader, writer, buffer: [0; MOST] }
    }
}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> Link for Ends<R, W> {
    async fn receive(&mut self) -> io::Result<usize> {
        self.reader.read(&mut self.buffer).await
    }
    async fn send(&mut self, count: usize) -> io::Result<()> {
        self.writer.write_all(&self.buffer[..count]).await
    }
}

/// A runtime with a task at each station.
pub(super) trait Drive {
    /// How it reads a pipe and writes the next.
    type Link: Link;

    /// Runs the driver's part of a trip, in a task like the others; gives the ends back.
    fn drive(&mut self, link: Self::Link, driver: Station, trip: Trip) -> io::Result<Self::Link>;

    /// See [`Ring::calls`].
    fn calls(&self) -> Option<u64> {
        None
    }
}

/// A runtime with the driver's ends, which are lent to its task for a trip.
struct Tasks<R: Drive> {
    runtime: R,
    driver: Station,
    link: Option<R::Link>,
}

/// Returns the ring of a runtime whose other stations are occupied.
pub(super) fn ring<R: Drive<Link: 'static> + 'static>(
    course: &Course,
    runtime: R,
    link: Option<R::Link>,
) -> Box<dyn Ring> {
    Box::new(Tasks { runtime, driver: course.driver(), link })
}

impl<R: Drive> Ring for Tasks<R> {
    fn go(&mut self, trip: Trip) -> io::Result<()> {
        let link = self.link.take().ok_or(io::ErrorKind::BrokenPipe)?;
        self.link = Some(self.runtime.drive(link, self.driver.clone(), trip)?);
        Ok(())
    }

    fn calls(&self) -> Option<u64> {
        self.runtime.calls()
    }
}

/// Links the ends of each station and starts its task; the driver's link is returned.
pub(super) fn occupy<R, W, L>(
    course: &Course,
    pipes: Vec<(R, W)>,
    link: impl Fn(R, W) -> io::Result<L>,
    start: impl Fn(L, Station),
) -> io::Result<Option<L>> {
    let links = ends(pipes).into_iter().map(|(reader, writer)| link(reader, writer));
    let mut links = links.collect::<io::Result<Vec<L>>>()?;
    let drivers = links.pop();
    for (number, link) in links.into_iter().enumerate() {
        start(link, course.station(number));
    }
    Ok(drivers)
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

// Our runtime: once with foreign pipes, whose two ends it does not know as peers, and once with
// its own pipes.

pub(super) fn build_ours(
    course: &Course,
    pipes: Pipes,
    backend: BackendKind,
) -> Result<Box<dyn Ring>> {
    let pipes: io::Result<Vec<_>> = pipes
        .into_iter()
        .map(|(reader, writer)| Ok((pipe::reader_from(reader)?, pipe::writer_from(writer)?)))
        .collect();
    let pipes = pipes.doing("handing a pipe to the runtime")?;
    start(course, pipes, backend)
}

pub(super) fn build_peers(course: &Course) -> Result<Built> {
    let pipes: io::Result<Vec<_>> = (0..course.total).map(|_| pipe::pipe()).collect();
    let pipes = pipes.doing("opening a pipe")?;
    let (readers, writers) = numbers(&pipes);
    Ok(Built { ring: start(course, pipes, BackendKind::Adaptive)?, readers, writers })
}

fn start(
    course: &Course,
    pipes: Vec<(PipeReader, PipeWriter)>,
    backend: BackendKind,
) -> Result<Box<dyn Ring>> {
    let runtime = Runtime::builder().backend(backend).build()?;
    let start = |link, station| spawn(pass(link, station)).detach();
    let ends = |reader, writer| Ok(Ends::new(reader, writer));
    let link = runtime.try_block_on(async { occupy(course, pipes, ends, start) })?;
    Ok(ring(course, runtime, link.doing("starting tasks")?))
}

impl Drive for Runtime {
    type Link = Ends<PipeReader, PipeWriter>;

    fn drive(&mut self, link: Self::Link, driver: Station, trip: Trip) -> io::Result<Self::Link> {
        let trip = async { spawn(drive(link, driver, trip)).await };
        self.try_block_on(trip)?.map_err(|e| io::Error::other(e.to_string()))?
    }

    fn calls(&self) -> Option<u64> {
        Some(self.stats().iter().map(|engine| engine.poller.calls.total()).sum())
    }
}
