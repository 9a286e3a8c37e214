//! Our runtime, with a task for each connection.

use std::io;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;

use futures_lite::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use superpoll::BackendKind;
use superpoll_rt::net;

use crate::channel::Kind;
use crate::echo::connections::Connections;
use crate::error::{Error, Result};
use crate::server::{Control, program};

pub(crate) fn serve(
    connections: Connections,
    control: &mut Control,
    backend: BackendKind,
) -> Result<()> {
    let failed = |source: io::Error| Error::system("setting our runtime up", source);
    program::serve(backend, control, |runtime| {
        runtime.try_block_on(async { spawn(connections).map_err(failed) })?
    })
}

fn spawn(connections: Connections) -> io::Result<()> {
    let room = connections.room;
    for socket in connections.sockets {
        match connections.kind {
            Kind::Tcp => {
                let stream = net::TcpStream::from_std(TcpStream::from(socket))?;
                superpoll_rt::spawn(echo(stream, room)).detach();
            }
            _ => {
                let stream = net::unix::UnixStream::from_std(UnixStream::from(socket))?;
                superpoll_rt::spawn(echo(stream, room)).detach();
            }
        }
    }
    Ok(())
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
