//! tokio, with its own pipes' ends.

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::runtime::{Builder, Runtime};

use crate::error::{Error, Result};
use crate::ring::course::{Course, MOST, Station, Trip, ends};
use crate::ring::tasks::{Link, Ring, drive, pass};

struct Tokio {
    runtime: Runtime,
    driver: Station,
    link: Option<Ends>,
}

struct Ends {
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

pub(super) fn build_current_thread(
    course: &Course,
    pipes: Vec<(OwnedFd, OwnedFd)>,
) -> Result<Box<dyn Ring>> {
    start(course, pipes, &mut Builder::new_current_thread())
}

pub(super) fn build_multi_thread(
    course: &Course,
    pipes: Vec<(OwnedFd, OwnedFd)>,
) -> Result<Box<dyn Ring>> {
    start(course, pipes, &mut Builder::new_multi_thread())
}

fn start(
    course: &Course,
    pipes: Vec<(OwnedFd, OwnedFd)>,
    builder: &mut Builder,
) -> Result<Box<dyn Ring>> {
    let failed = |source| Error::system("setting tokio up", source);
    let runtime = builder.enable_io().build().map_err(failed)?;
    let entered = runtime.enter();
    let mut links = ends(pipes)
        .into_iter()
        .map(|(reader, writer)| {
            let reader = Receiver::from_owned_fd(reader)?;
            Ok(Ends { reader, writer: Sender::from_owned_fd(writer)?, buffer: [0; MOST] })
        })
        .collect::<io::Result<Vec<Ends>>>()
        .map_err(failed)?;
    let link = links.pop();
    for (number, link) in links.into_iter().enumerate() {
        drop(tokio::spawn(pass(link, course.station(number))));
    }
    drop(entered);
    Ok(Box::new(Tokio { runtime, driver: course.driver(), link }))
}

impl Ring for Tokio {
    fn go(&mut self, trip: Trip) -> io::Result<()> {
        let link = self.link.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let driving = self.runtime.spawn(drive(link, self.driver.clone(), trip));
        self.link = Some(self.runtime.block_on(driving)??);
        Ok(())
    }
}
