//! monoio, on epoll and on io_uring, with a task for each connection.

use std::io;
use std::net::TcpStream as StdTcp;
use std::os::fd::AsRawFd;

use monoio::buf::{IoBuf, Slice};
use monoio::io::{AsyncReadRent, AsyncWriteRentExt};
use monoio::net::TcpStream;
use monoio::{IoUringDriver, LegacyDriver, RuntimeBuilder};

use crate::echo::load::Connections;
use crate::error::{Error, Result};
use crate::server::Control;
use crate::sys::descriptor;

fn failed(source: io::Error) -> Error {
    Error::system("setting monoio up", source)
}

pub(super) fn serve_epoll(connections: Connections, control: &mut Control) -> Result<()> {
    let mut runtime = RuntimeBuilder::<LegacyDriver>::new().build().map_err(failed)?;
    runtime.block_on(all(connections, control))
}

pub(super) fn serve_uring(connections: Connections, control: &mut Control) -> Result<()> {
    for socket in &connections.sockets {
        // Refused operations of a socket that does not block are given back, not waited for.
        descriptor::set_blocking(socket.as_raw_fd(), true).map_err(failed)?;
    }
    let mut runtime = RuntimeBuilder::<IoUringDriver>::new().build().map_err(failed)?;
    runtime.block_on(all(connections, control))
}

async fn all(connections: Connections, control: &mut Control) -> Result<()> {
    let Connections { sockets, room } = connections;
    let task = |socket| Ok(monoio::spawn(echo(TcpStream::from_std(StdTcp::from(socket))?, room)));
    let tasks = sockets.into_iter().map(task).collect::<io::Result<Vec<_>>>().map_err(failed)?;
    control.ready()?;
    for task in tasks {
        task.await;
    }
    Ok(())
}

async fn echo(mut stream: TcpStream, room: usize) {
    let mut buffer = Vec::with_capacity(room);
    // A connection that breaks is missed by the load generator.
    loop {
        let (count, read) = stream.read(buffer).await;
        let Ok(count @ 1..) = count else { return };
        let (written, part): (_, Slice<Vec<u8>>) = stream.write_all(read.slice(..count)).await;
        if written.is_err() {
            return;
        }
        buffer = part.into_inner();
    }
}
