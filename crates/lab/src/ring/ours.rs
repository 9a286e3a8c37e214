//! Our runtime: once with foreign pipes, whose two ends it does not know as peers, and once with
//! its own pipes.

use std::io;
use std::os::fd::OwnedFd;

use futures_lite::{AsyncReadExt, AsyncWriteExt};
use superpoll::BackendKind;
use superpoll_rt::Runtime;
use superpoll_rt::pipe::{self, PipeReader, PipeWriter};

use crate::error::{Error, Result};
use crate::ring::course::{Course, MOST, Station, Trip, ends};
use crate::ring::tasks::{Built, Link, Ring, drive, numbers, pass};

struct Ours {
    runtime: Runtime,
    driver: Station,
    link: Option<Ends>,
}

struct Ends {
    reader: PipeReader,
    writer: PipeWriter,
    buffer: [u8; MOST],
}

impl Link for Ends {
    async fn receive(&mut self) -> io::Result<usize> {
        self.reader.read(&mut self.buffer).await
    }
    async fn send(&mut self, count: usize) -> io::Result<()> {
        self.writer.write_all(&self.buffer[..count]).await
    }
}

pub(super) fn build(
    course: &Course,
    pipes: Vec<(OwnedFd, OwnedFd)>,
    backend: BackendKind,
) -> Result<Box<dyn Ring>> {
    let pipes: io::Result<Vec<_>> = pipes
        .into_iter()
        .map(|(reader, writer)| Ok((pipe::reader_from(reader)?, pipe::writer_from(writer)?)))
        .collect();
    let pipes = pipes.map_err(|e| Error::system("handing a pipe to the runtime", e))?;
    start(course, pipes, backend)
}

pub(super) fn build_peers(course: &Course, backend: BackendKind) -> Result<Built> {
    let pipes: io::Result<Vec<_>> = (0..course.total).map(|_| pipe::pipe()).collect();
    let pipes = pipes.map_err(|e| Error::system("opening a pipe", e))?;
    let (readers, writers) = numbers(&pipes);
    Ok(Built { ring: start(course, pipes, backend)?, readers, writers })
}

fn start(
    course: &Course,
    pipes: Vec<(PipeReader, PipeWriter)>,
    backend: BackendKind,
) -> Result<Box<dyn Ring>> {
    let said = |error: superpoll_rt::Error| Error::usage(error.to_string());
    let runtime = Runtime::builder().backend(backend).build().map_err(said)?;
    let mut links: Vec<Ends> = ends(pipes)
        .into_iter()
        .map(|(reader, writer)| Ends { reader, writer, buffer: [0; MOST] })
        .collect();
    let link = links.pop();
    let spawn_all = async {
        for (number, link) in links.into_iter().enumerate() {
            drop(superpoll_rt::spawn(pass(link, course.station(number))));
        }
    };
    runtime.block_on(spawn_all).map_err(said)?;
    Ok(Box::new(Ours { runtime, driver: course.driver(), link }))
}

impl Ring for Ours {
    fn go(&mut self, trip: Trip) -> io::Result<()> {
        let link = self.link.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let driver = self.driver.clone();
        let trip = async { superpoll_rt::spawn(drive(link, driver, trip)).await };
        let link = self.runtime.block_on(trip)?.map_err(|e| io::Error::other(e.to_string()))??;
        self.link = Some(link);
        Ok(())
    }

    fn calls(&self) -> Option<u64> {
        Some(self.runtime.stats().iter().map(|engine| engine.poller.calls.total()).sum())
    }
}
