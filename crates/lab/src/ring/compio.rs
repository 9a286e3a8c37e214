//! compio, on epoll and on io_uring.

use std::io;
use std::os::fd::OwnedFd;

use compio::buf::{BufResult, IntoInner, IoBuf};
use compio::driver::{DriverType, ProactorBuilder};
use compio::io::{AsyncRead, AsyncWriteExt};
use compio::runtime::fd::AsyncFd;
use compio::runtime::{Runtime, spawn};

use crate::error::{Error, Result};
use crate::ring::course::{Course, MOST, Pipes, Station, Trip, set_blocking};
use crate::ring::tasks::{Drive, Link, Ring, drive, occupy, pass, ring};

/// A station's ends.
pub(super) struct Ends {
    reader: AsyncFd<OwnedFd>,
    writer: AsyncFd<OwnedFd>,
    buffer: Vec<u8>,
}

impl Link for Ends {
    async fn receive(&mut self) -> io::Result<usize> {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        let BufResult(count, buffer) = self.reader.read(buffer).await;
        self.buffer = buffer;
        count
    }
    async fn send(&mut self, count: usize) -> io::Result<()> {
        let part = std::mem::take(&mut self.buffer).slice(..count);
        let BufResult(written, part) = self.writer.write_all(part).await;
        self.buffer = part.into_inner();
        written
    }
}

pub(super) fn build_poll(course: &Course, pipes: Pipes) -> Result<Box<dyn Ring>> {
    start(course, pipes, DriverType::Poll)
}

pub(super) fn build_uring(course: &Course, pipes: Pipes) -> Result<Box<dyn Ring>> {
    start(course, pipes, DriverType::IoUring)
}

pub(crate) fn failed(source: io::Error) -> Error {
    Error::system("setting compio up", source)
}

/// Creates a runtime on this driver.
pub(crate) fn runtime(driver: DriverType) -> Result<Runtime> {
    let mut proactor = ProactorBuilder::new();
    proactor.driver_type(driver);
    let runtime = Runtime::builder().with_proactor(proactor).build().map_err(failed)?;
    if runtime.driver_type() != driver {
        return Err(Error::usage(format!("compio has no driver {driver:?} here")));
    }
    Ok(runtime)
}

fn start(course: &Course, pipes: Pipes, driver: DriverType) -> Result<Box<dyn Ring>> {
    set_blocking(&pipes, driver == DriverType::IoUring).map_err(failed)?;
    let runtime = runtime(driver)?;
    let ends = |reader, writer| {
        let (reader, writer) = (AsyncFd::new(reader)?, AsyncFd::new(writer)?);
        Ok(Ends { reader, writer, buffer: Vec::with_capacity(MOST) })
    };
    let start = |link, station| spawn(pass(link, station)).detach();
    let link = runtime.block_on(async { occupy(course, pipes, ends, start) });
    Ok(ring(course, runtime, link.map_err(failed)?))
}

impl Drive for Runtime {
    type Link = Ends;

    fn drive(&mut self, link: Ends, driver: Station, trip: Trip) -> io::Result<Ends> {
        let trip = async { spawn(drive(link, driver, trip)).await };
        self.block_on(trip).map_err(|e| io::Error::other(format!("{e:?}")))?
    }
}
