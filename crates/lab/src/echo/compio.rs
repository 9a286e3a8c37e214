//! compio, on epoll and on io_uring, with a task for each connection.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use compio::buf::{BufResult, IntoInner, IoBuf};
use compio::driver::DriverType;
use compio::io::{AsyncRead, AsyncWriteExt};
use compio::runtime::fd::AsyncFd;
use compio::runtime::spawn;

use crate::echo::load::Connections;
use crate::error::{Error, Result};
use crate::ring::compio::{failed, runtime};
use crate::server::Control;
use crate::sys::descriptor;

pub(super) fn serve_poll(connections: Connections, control: &mut Control) -> Result<()> {
    serve(connections, control, DriverType::Poll)
}

pub(super) fn serve_uring(connections: Connections, control: &mut Control) -> Result<()> {
    serve(connections, control, DriverType::IoUring)
}

fn serve(connections: Connections, control: &mut Control, driver: DriverType) -> Result<()> {
    for socket in &connections.sockets {
        let blocking = driver == DriverType::IoUring;
        descriptor::set_blocking(socket.as_raw_fd(), blocking).map_err(failed)?;
    }
    let Connections { sockets, room } = connections;
    runtime(driver)?.block_on(async {
        let task = |socket| Ok(spawn(echo(AsyncFd::new(socket)?, room)));
        let tasks =
            sockets.into_iter().map(task).collect::<io::Result<Vec<_>>>().map_err(failed)?;
        control.ready()?;
        for task in tasks {
            task.await.map_err(|error| Error::usage(format!("a task of compio's: {error:?}")))?;
        }
        Ok(())
    })
}

async fn echo(mut stream: AsyncFd<OwnedFd>, room: usize) {
    let mut buffer = Vec::with_capacity(room);
    // A connection that breaks is missed by the load generator.
    loop {
        let BufResult(count, read) = stream.read(buffer).await;
        let Ok(count @ 1..) = count else { return };
        let BufResult(written, part) = stream.write_all(read.slice(..count)).await;
        if written.is_err() {
            return;
        }
        buffer = part.into_inner();
        buffer.clear();
    }
}
