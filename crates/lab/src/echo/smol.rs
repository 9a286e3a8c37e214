//! smol's local executor on the reactor of async-io, with a task for each connection.

use std::io;
use std::net::TcpStream;

use futures_lite::{AsyncReadExt, AsyncWriteExt};
use smol::{Async, LocalExecutor};

use crate::echo::load::Connections;
use crate::error::{Doing, Result};
use crate::server::Control;

pub(super) fn serve(connections: Connections, control: &mut Control) -> Result<()> {
    let executor = LocalExecutor::new();
    let Connections { sockets, room } = connections;
    let task = |socket| Ok(executor.spawn(echo(Async::new(TcpStream::from(socket))?, room)));
    let tasks = sockets.into_iter().map(task).collect::<io::Result<Vec<_>>>();
    let tasks = tasks.doing("setting smol up")?;
    control.ready()?;
    smol::block_on(executor.run(async {
        for task in tasks {
            task.await;
        }
    }));
    Ok(())
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
