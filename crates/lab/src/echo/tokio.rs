//! tokio's `current_thread` runtime, with a task for each connection.

use std::io;
use std::net::TcpStream as StdTcp;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Builder;

use crate::echo::load::Connections;
use crate::error::{Error, Result};
use crate::server::Control;

pub(crate) fn serve(connections: Connections, control: &mut Control) -> Result<()> {
    let failed = |source: io::Error| Error::system("setting tokio up", source);
    let Connections { sockets, room } = connections;
    let runtime = Builder::new_current_thread().enable_io().build().map_err(failed)?;
    runtime.block_on(async {
        let task =
            |socket| Ok(tokio::spawn(echo(TcpStream::from_std(StdTcp::from(socket))?, room)));
        let tasks =
            sockets.into_iter().map(task).collect::<io::Result<Vec<_>>>().map_err(failed)?;
        control.ready()?;
        for task in tasks {
            task.await.map_err(|error| Error::usage(format!("a task of tokio's: {error}")))?;
        }
        Ok(())
    })
}

async fn echo(mut stream: TcpStream, room: usize) {
    let mut buffer = vec![0; room];
    // A connection that breaks is missed by the load generator.
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        if stream.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}
