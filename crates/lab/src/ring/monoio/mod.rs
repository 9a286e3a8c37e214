//! monoio, on epoll and on io_uring. It has no calls to read or write a pipe, but its Unix streams
//! read and write any descriptor through the vectored calls, which work on pipes.

mod ffi;

use std::io;
use std::os::unix::net::UnixStream as StdStream;

use monoio::io::{AsyncReadRent, AsyncWriteRent};
use monoio::net::UnixStream;
use monoio::{Driver, IoUringDriver, LegacyDriver, Runtime, RuntimeBuilder, spawn};

use crate::error::{Error, Result};
use crate::ring::course::{Course, MOST, Pipes, Station, Trip, set_blocking};
use crate::ring::tasks::{Drive, Link, Ring, drive, occupy, pass, ring};
use ffi::Block;

/// A station's ends.
pub(super) struct Ends {
    reader: UnixStream,
    writer: UnixStream,
    block: Option<Block>,
}

impl Ends {
    fn block(&mut self) -> Block {
        self.block.take().unwrap_or_else(Block::new)
    }
}

impl Link for Ends {
    async fn receive(&mut self) -> io::Result<usize> {
        let block = self.block().of(MOST);
        let (count, block) = self.reader.readv(block).await;
        self.block = Some(block);
        count
    }
    async fn send(&mut self, count: usize) -> io::Result<()> {
        let block = self.block().of(count);
        let (written, block) = self.writer.writev(block).await;
        self.block = Some(block);
        // This few bytes are taken all at once or not at all.
        if written? == count { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }
}

fn failed(source: io::Error) -> Error {
    Error::system("setting monoio up", source)
}

pub(super) fn build_epoll(course: &Course, pipes: Pipes) -> Result<Box<dyn Ring>> {
    start(course, pipes, RuntimeBuilder::<LegacyDriver>::new().build())
}

pub(super) fn build_uring(course: &Course, pipes: Pipes) -> Result<Box<dyn Ring>> {
    // On a non-blocking descriptor, io_uring returns a refused operation instead of waiting.
    set_blocking(&pipes, true).map_err(failed)?;
    start(course, pipes, RuntimeBuilder::<IoUringDriver>::new().build())
}

fn start<D: Driver + 'static>(
    course: &Course,
    pipes: Pipes,
    runtime: io::Result<Runtime<D>>,
) -> Result<Box<dyn Ring>> {
    let mut runtime = runtime.map_err(failed)?;
    let ends = |reader, writer| {
        let reader = UnixStream::from_std(StdStream::from(reader))?;
        let writer = UnixStream::from_std(StdStream::from(writer))?;
        Ok(Ends { reader, writer, block: None })
    };
    let start = |link, station| drop(spawn(pass(link, station)));
    let link = runtime.block_on(async { occupy(course, pipes, ends, start) }).map_err(failed)?;
    Ok(ring(course, runtime, link))
}

impl<D: Driver> Drive for Runtime<D> {
    type Link = Ends;

    fn drive(&mut self, link: Ends, driver: Station, trip: Trip) -> io::Result<Ends> {
        self.block_on(async { spawn(drive(link, driver, trip)).await })
    }
}
