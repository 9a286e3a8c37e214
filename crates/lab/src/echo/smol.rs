//! smol's local executor on the reactor of async-io, with a task for each connection.

use std::io;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;

use futures_lite::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use smol::{Async, LocalExecutor, Task};

use crate::channel::Kind;
use crate::echo::load::Connections;
use crate::error::{Doing, Result};
use crate::server::Control;

pub(super) fn serve(connections: Connections, control: &mut Control) -> Result<()> {
    let executor = LocalExecutor::new();
    let tasks = spawn(&executor, connections).doing("setting smol up")?;
    control.ready()?;
    smol::block_on(executor.run(async {
        for task in tasks {
            task.await;
        }
    }));
    Ok(())
}

fn spawn(executor: &LocalExecutor<'_>, connections: Connections) -> io::Result<Vec<Task<()>>> {
    let (kind, room) = (connections.kind, connections.room);
    let each = connections.sockets.into_iter().map(|socket| match kind {
        Kind::Tcp => Ok(executor.spawn(echo(Async::new(TcpStream::from(socket))?, room))),
        _ => Ok(executor.spawn(echo(Async::new(UnixStream::from(socket))?, room))),
    });
    each.collect()
}

async fn echo<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, room: usize) {
    let mut buffer = vec![0; room];
    // A connection that breaks is missed by the load generator.
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        if stream.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}
