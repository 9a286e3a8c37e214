//! compio, on epoll and on io_uring.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use compio::buf::{BufResult, IntoInner, IoBuf};
use compio::driver::{DriverType, ProactorBuilder};
use compio::io::{AsyncRead, AsyncWriteExt};
use compio::runtime::Runtime;
use compio::runtime::fd::AsyncFd;

use crate::error::{Error, Result};
use crate::ring::course::{Course, MOST, Station, Trip, ends};
use crate::ring::tasks::{Link, Ring, drive, pass};
use crate::sys::descriptor;

struct Compio {
    runtime: Runtime,
    driver: Station,
    link: Option<Ends>,
}

struct Ends {
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

pub(super) fn build_poll(course: &Course, pipes: Vec<(OwnedFd, OwnedFd)>) -> Result<Box<dyn Ring>> {
    start(course, pipes, DriverType::Poll)
}

pub(super) fn build_uring(
    course: &Course,
    pipes: Vec<(OwnedFd, OwnedFd)>,
) -> Result<Box<dyn Ring>> {
    start(course, pipes, DriverType::IoUring)
}

fn start(
    course: &Course,
    pipes: Vec<(OwnedFd, OwnedFd)>,
    driver: DriverType,
) -> Result<Box<dyn Ring>> {
    let failed = |source| Error::system("setting compio up", source);
    for (reader, writer) in &pipes {
        let blocking = driver == DriverType::IoUring;
        descriptor::set_blocking(reader.as_raw_fd(), blocking).map_err(failed)?;
        descriptor::set_blocking(writer.as_raw_fd(), blocking).map_err(failed)?;
    }
    let mut proactor = ProactorBuilder::new();
    proactor.driver_type(driver);
    let runtime = Runtime::builder().with_proactor(proactor).build().map_err(failed)?;
    if runtime.driver_type() != driver {
        return Err(Error::usage(format!("compio has no driver {driver:?} here")));
    }
    let link = runtime.block_on(async {
        let mut links = ends(pipes)
            .into_iter()
            .map(|(reader, writer)| {
                let reader = AsyncFd::new(reader)?;
                let writer = AsyncFd::new(writer)?;
                Ok(Ends { reader, writer, buffer: Vec::with_capacity(MOST) })
            })
            .collect::<io::Result<Vec<Ends>>>()?;
        let link = links.pop();
        for (number, link) in links.into_iter().enumerate() {
            compio::runtime::spawn(pass(link, course.station(number))).detach();
        }
        Ok(link)
    });
    Ok(Box::new(Compio { runtime, driver: course.driver(), link: link.map_err(failed)? }))
}

impl Ring for Compio {
    fn go(&mut self, trip: Trip) -> io::Result<()> {
        let link = self.link.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let driver = self.driver.clone();
        let trip = async { compio::runtime::spawn(drive(link, driver, trip)).await };
        let driven = self.runtime.block_on(trip).map_err(|e| io::Error::other(format!("{e:?}")))?;
        self.link = Some(driven?);
        Ok(())
    }
}
