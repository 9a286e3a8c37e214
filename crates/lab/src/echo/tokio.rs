//! tokio's `current_thread` runtime, with a task for each connection.

use std::io;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::runtime::Builder;
use tokio::task::JoinHandle;

use crate::channel::Kind;
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
    let (kind, room) = (connections.kind, connections.room);
    let each = connections.sockets.into_iter().map(|socket| match kind {
        Kind::Tcp => {
            let stream = tokio::net::TcpStream::from_std(TcpStream::from(socket))?;
            Ok(tokio::spawn(echo(stream, room)))
        }
        _ => {
            let stream = tokio::net::UnixStream::from_std(UnixStream::from(socket))?;
            Ok(tokio::spawn(echo(stream, room)))
        }
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
