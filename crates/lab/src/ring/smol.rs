//! smol: a local executor on the reactor of async-io.

use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::OwnedFd;

use smol::{Async, LocalExecutor};

use futures_lite::{AsyncReadExt, AsyncWriteExt};

use crate::error::{Error, Result};
use crate::ring::course::{Course, MOST, Station, Trip, ends};
use crate::ring::tasks::{Link, Ring, drive, pass};

struct Smol {
    executor: LocalExecutor<'static>,
    driver: Station,
    link: Option<Ends>,
}

struct Ends {
    reader: Async<PipeReader>,
    writer: Async<PipeWriter>,
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

pub(super) fn build(course: &Course, pipes: Vec<(OwnedFd, OwnedFd)>) -> Result<Box<dyn Ring>> {
    let executor = LocalExecutor::new();
    let mut links = ends(pipes)
        .into_iter()
        .map(|(reader, writer)| {
            let reader = Async::new(PipeReader::from(reader))?;
            let writer = Async::new(PipeWriter::from(writer))?;
            Ok(Ends { reader, writer, buffer: [0; MOST] })
        })
        .collect::<io::Result<Vec<Ends>>>()
        .map_err(|e| Error::system("setting smol up", e))?;
    let link = links.pop();
    for (number, link) in links.into_iter().enumerate() {
        executor.spawn(pass(link, course.station(number))).detach();
    }
    Ok(Box::new(Smol { executor, driver: course.driver(), link }))
}

impl Ring for Smol {
    fn go(&mut self, trip: Trip) -> io::Result<()> {
        let link = self.link.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let driving = self.executor.spawn(drive(link, self.driver.clone(), trip));
        self.link = Some(smol::block_on(self.executor.run(driving))?);
        Ok(())
    }
}
