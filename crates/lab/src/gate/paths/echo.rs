//! Requests over TCP that a task echoes, and the client that sends them.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use futures_lite::{AsyncReadExt, AsyncWriteExt};
use superpoll_rt::net::{TcpListener, TcpStream};
use superpoll_rt::{BackendKind, Runtime, spawn};

use crate::error::{Error, Result};
use crate::gate::counted::{self, Counted};
use crate::gate::paths::work::{Work, said, wrong};

/// The length of a request.
const LENGTH: usize = 64;

/// A client of a server that echoes.
pub(super) struct Client {
    runtime: Runtime,
    stream: Option<TcpStream>,
    /// Objects that must live as long as the client.
    _kept: Box<dyn std::any::Any>,
}

pub(super) fn set_up() -> Result<Box<dyn Work>> {
    through(|_, origin| Ok((origin, Box::new(()))))
}

/// Sets up a server with an intermediary before it; `between` returns the address where the
/// intermediary listens.
pub(super) fn through(
    between: impl FnOnce(&Runtime, SocketAddr) -> Result<(SocketAddr, Box<dyn std::any::Any>)>,
) -> Result<Box<dyn Work>> {
    let runtime = Runtime::builder().backend(BackendKind::Epoll).build().map_err(said)?;
    let failed = |e| Error::system("setting an echo server up", e);
    let origin = runtime.block_on(serve()).map_err(said)?.map_err(failed)?;
    let (address, kept) = between(&runtime, origin)?;
    let connected = runtime.block_on(TcpStream::connect(address)).map_err(said)?;
    let stream = connected.map_err(failed)?;
    Ok(Box::new(Client { runtime, stream: Some(stream), _kept: kept }))
}

async fn serve() -> io::Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    let accept = async move {
        while let Ok((stream, _)) = listener.accept().await {
            spawn(echo(stream)).detach();
        }
    };
    spawn(accept).detach();
    Ok(address)
}

async fn echo(mut stream: TcpStream) {
    let mut buffer = [0; 4 * LENGTH];
    // If the connection breaks, the client fails.
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        if stream.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}

impl Work for Client {
    fn operate(&mut self, count: u64) -> Result<()> {
        let Some(mut stream) = self.stream.take() else {
            return wrong("echo", "the connection is broken");
        };
        let ask = async move {
            let (mut request, mut answer) = ([0; LENGTH], [0; LENGTH]);
            for number in 0..count {
                request.fill(number as u8);
                stream.write_all(&request).await?;
                stream.read_exact(&mut answer).await?;
                if answer != request {
                    return Err(io::Error::other("another answer than was asked for"));
                }
            }
            Ok(stream)
        };
        let stream = self.runtime.block_on(async { spawn(ask).await }).map_err(said)?;
        let stream = stream.map_err(said)?;
        self.stream = Some(stream.map_err(|e| Error::system("asking an echo server", e))?);
        Ok(())
    }

    fn counted(&self) -> Counted {
        counted::of_runtime(&self.runtime)
    }
}
