//! Our runtime: once with foreign pipes, whose two ends it does not know as peers, and once with
//! its own pipes.

use std::io;

use superpoll::BackendKind;
use superpoll_rt::pipe::{self, PipeReader, PipeWriter};
use superpoll_rt::{Runtime, spawn};

use crate::error::{Doing, Result};
use crate::ring::course::{Course, Pipes, Station, Trip};
use crate::ring::tasks::{Built, Drive, Ends, Ring, drive, numbers, occupy, pass, ring};

pub(super) fn build(course: &Course, pipes: Pipes, backend: BackendKind) -> Result<Box<dyn Ring>> {
    let pipes: io::Result<Vec<_>> = pipes
        .into_iter()
        .map(|(reader, writer)| Ok((pipe::reader_from(reader)?, pipe::writer_from(writer)?)))
        .collect();
    let pipes = pipes.doing("handing a pipe to the runtime")?;
    start(course, pipes, backend)
}

pub(super) fn build_peers(course: &Course, backend: BackendKind) -> Result<Built> {
    let pipes: io::Result<Vec<_>> = (0..course.total).map(|_| pipe::pipe()).collect();
    let pipes = pipes.doing("opening a pipe")?;
    let (readers, writers) = numbers(&pipes);
    Ok(Built { ring: start(course, pipes, backend)?, readers, writers })
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
