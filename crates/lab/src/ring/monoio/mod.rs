//! monoio, on epoll and on io_uring. It has no calls to read or write a pipe, but its Unix streams
//! read and write any descriptor through the vectored calls, which work on pipes.

mod ffi;

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;

use monoio::io::{AsyncReadRent, AsyncWriteRent};
use monoio::net::UnixStream;
use monoio::{IoUringDriver, LegacyDriver, Runtime, RuntimeBuilder};

use crate::error::{Error, Result};
use crate::ring::course::{Course, MOST, Station, Trip, ends};
use crate::ring::tasks::{Link, Ring, drive, pass};
use crate::sys::descriptor;
use ffi::Block;

struct Monoio<D> {
    runtime: Runtime<D>,
    driver: Station,
    link: Option<Ends>,
}

struct Ends {
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

pub(super) fn build_epoll(
    course: &Course,
    pipes: Vec<(OwnedFd, OwnedFd)>,
) -> Result<Box<dyn Ring>> {
    let mut runtime = RuntimeBuilder::<LegacyDriver>::new().build().map_err(failed)?;
    let link = runtime.block_on(start(course, pipes)).map_err(failed)?;
    Ok(Box::new(Monoio { runtime, driver: course.driver(), link }))
}

pub(super) fn build_uring(
    course: &Course,
    pipes: Vec<(OwnedFd, OwnedFd)>,
) -> Result<Box<dyn Ring>> {
    for (reader, writer) in &pipes {
        // On a non-blocking descriptor, io_uring returns a refused operation instead of waiting.
        descriptor::set_blocking(reader.as_raw_fd(), true).map_err(failed)?;
        descriptor::set_blocking(writer.as_raw_fd(), true).map_err(failed)?;
    }
    let mut runtime = RuntimeBuilder::<IoUringDriver>::new().build().map_err(failed)?;
    let link = runtime.block_on(start(course, pipes)).map_err(failed)?;
    Ok(Box::new(Monoio { runtime, driver: course.driver(), link }))
}

async fn start(course: &Course, pipes: Vec<(OwnedFd, OwnedFd)>) -> io::Result<Option<Ends>> {
    let mut links = ends(pipes)
        .into_iter()
        .map(|(reader, writer)| {
            let reader = UnixStream::from_std(StdStream::from(reader))?;
            let writer = UnixStream::from_std(StdStream::from(writer))?;
            Ok(Ends { reader, writer, block: None })
        })
        .collect::<io::Result<Vec<Ends>>>()?;
    let link = links.pop();
    for (number, link) in links.into_iter().enumerate() {
        drop(monoio::spawn(pass(link, course.station(number))));
    }
    Ok(link)
}

macro_rules! ring {
    ($driver:ty) => {
        impl Ring for Monoio<$driver> {
            fn go(&mut self, trip: Trip) -> io::Result<()> {
                let link = self.link.take().ok_or(io::ErrorKind::BrokenPipe)?;
                let driver = self.driver.clone();
                let trip = async { monoio::spawn(drive(link, driver, trip)).await };
                self.link = Some(self.runtime.block_on(trip)?);
                Ok(())
            }
        }
    };
}

ring!(LegacyDriver);
ring!(IoUringDriver);
