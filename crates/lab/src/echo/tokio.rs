//! tokio's `current_thread` runtime, with a task for each connection.

use std::io;
use std::net::TcpStream as StdTcp;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Builder;
use tokio::task::JoinHandle;

use crate::echo::load::Connections;
use crate::error::{Error, Result};
use crate::server::Control;

pub(crate) fn serve(connections: Connections, control: &mut Control) -> Result<()> {
    let failed = |source: io::Error| Error::system("setting tokio up", source);
    let runtime = Builder::new_current_thread().enable_io().build().map_err(failed)?;
    runtime.block_on(async {
        let tasks = spawn(connections).map_err(failed)?;
        control.ready()?;
        for task in tasks {
            task.await.map_err(|error| Error::usage(format!("a task of tokio's: {error}")))?;
        }
        Ok(())
    })
}

fn spawn(connections: Connections) -> io::Result<Vec<JoinHandle<()>>> {
    let Connections { sockets, room } = connections;
    let stream = |socket| TcpStream::from_std(StdTcp::from(socket));
    sockets.into_iter().map(|socket| Ok(tokio::spawn(echo(stream(socket)?, room)))).collect()
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
