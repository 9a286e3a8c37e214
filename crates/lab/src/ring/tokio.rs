//! tokio, with its own pipes' ends.

use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::runtime::{Builder, Runtime};

use crate::error::{Error, Result};
use crate::ring::course::{Course, MOST, Pipes, Station, Trip};
use crate::ring::tasks::{Drive, Link, Ring, drive, occupy, pass, ring};

/// A station's ends.
pub(super) struct Ends {
    reader: Receiver,
    writer: Sender,
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

pub(super) fn build_current_thread(course: &Course, pipes: Pipes) -> Result<Box<dyn Ring>> {
    start(course, pipes, &mut Builder::new_current_thread())
}

pub(super) fn build_multi_thread(course: &Course, pipes: Pipes) -> Result<Box<dyn Ring>> {
    start(course, pipes, &mut Builder::new_multi_thread())
}

fn start(course: &Course, pipes: Pipes, builder: &mut Builder) -> Result<Box<dyn Ring>> {
    let failed = |source| Error::system("setting tokio up", source);
    let runtime = builder.enable_io().build().map_err(failed)?;
    let entered = runtime.enter();
    let ends = |reader, writer| {
        let reader = Receiver::from_owned_fd(reader)?;
        Ok(Ends { reader, writer: Sender::from_owned_fd(writer)?, buffer: [0; MOST] })
    };
    let start = |link, station| drop(tokio::spawn(pass(link, station)));
    let link = occupy(course, pipes, ends, start).map_err(failed)?;
    drop(entered);
    Ok(ring(course, runtime, link))
}

impl Drive for Runtime {
    type Link = Ends;

    fn drive(&mut self, link: Ends, driver: Station, trip: Trip) -> io::Result<Ends> {
        let driving = self.spawn(drive(link, driver, trip));
        self.block_on(driving)?
    }
}
