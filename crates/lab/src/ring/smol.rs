//! smol: a local executor on the reactor of async-io.

use std::io::{self, PipeReader, PipeWriter};

use smol::{Async, LocalExecutor};

use crate::error::{Doing, Result};
use crate::ring::course::{Course, Pipes, Station, Trip};
use crate::ring::tasks::{Drive, Ends, Ring, drive, occupy, pass, ring};

pub(super) fn build(course: &Course, pipes: Pipes) -> Result<Box<dyn Ring>> {
    let executor = LocalExecutor::new();
    let ends = |reader, writer| {
        let reader = Async::new(PipeReader::from(reader))?;
        Ok(Ends::new(reader, Async::new(PipeWriter::from(writer))?))
    };
    let start = |link, station| executor.spawn(pass(link, station)).detach();
    let link = occupy(course, pipes, ends, start);
    let link = link.doing("setting smol up")?;
    Ok(ring(course, executor, link))
}

impl Drive for LocalExecutor<'static> {
    type Link = Ends<Async<PipeReader>, Async<PipeWriter>>;

    fn drive(&mut self, link: Self::Link, driver: Station, trip: Trip) -> io::Result<Self::Link> {
        let driving = self.spawn(drive(link, driver, trip));
        smol::block_on(self.run(driving))
    }
}
