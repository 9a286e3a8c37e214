//! smol's local executor on the reactor of async-io, with a task for each connection.

use std::io;
use std::net::TcpStream;

use futures_lite::{AsyncReadExt, AsyncWriteExt};
use smol::{Async, LocalExecutor, Task};

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
    let Connections { sockets, room } = connections;
    let stream = |socket| Async::new(TcpStream::from(socket));
    sockets.into_iter().map(|socket| Ok(executor.spawn(echo(stream(socket)?, room)))).collect()
}

async fn echo(mut stream: Async<TcpStream>, room: usize) {
    let mut buffer = vec![0; room];
    // A connection that breaks is missed by the load generator.
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        if stream.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}
