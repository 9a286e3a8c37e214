//! Our runtime, with a task for each connection.

use std::io;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;

use futures_lite::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use superpoll::BackendKind;
use superpoll_rt::{AsyncFd, Runtime, net};

use crate::channel::Kind;
use crate::echo::subject::Connections;
use crate::error::{Error, Result};
use crate::server::{Control, Counts};

pub(crate) fn serve(
    connections: Connections,
    control: &mut Control,
    backend: BackendKind,
) -> Result<()> {
    let said = |error: superpoll_rt::Error| Error::usage(error.to_string());
    let failed = |source: io::Error| Error::system("setting our runtime up", source);
    let runtime = Runtime::builder().backend(backend).build().map_err(said)?;
    let mut questions = AsyncFd::new(control.questions()?).map_err(failed)?;
    runtime.block_on(async { spawn(connections).map_err(failed) }).map_err(said)??;
    control.ready()?;
    loop {
        let asked = runtime.block_on(async { questions.read(&mut [0]).await });
        if !matches!(asked.map_err(said)?, Ok(1)) {
            return Ok(());
        }
        let stats = runtime.stats();
        control.counted(&Counts {
            waits: stats.iter().map(|engine| engine.poller.calls.waits()).sum(),
            epoll_ctl: stats.iter().map(|engine| engine.poller.calls.epoll_ctl()).sum(),
        })?;
    }
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
