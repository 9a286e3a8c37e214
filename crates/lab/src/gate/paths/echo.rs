//! Requests over TCP that a task echoes, and the client that sends them.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use futures_lite::{AsyncReadExt, AsyncWriteExt};
use superpoll_rt::net::{TcpListener, TcpStream};
use superpoll_rt::{Runtime, spawn};

use crate::error::{Error, Result};
use crate::gate::paths::work::{Work, in_tasks, runtime, said};

/// The length of a request.
const LENGTH: usize = 64;

pub(super) fn set_up() -> Result<Box<dyn Work>> {
    through(|_, origin| Ok((origin, ())))
}

/// Sets up a client of a server that echoes, with an intermediary between the two; `between`
/// returns the address where the intermediary listens, and what must live as long as the client.
pub(super) fn through<Kept: 'static>(
    between: impl FnOnce(&Runtime, SocketAddr) -> Result<(SocketAddr, Kept)>,
) -> Result<Box<dyn Work>> {
    let runtime = runtime()?;
    let failed = |e| Error::system("setting an echo server up", e);
    let origin = runtime.try_block_on(serve()).map_err(said)?.map_err(failed)?;
    let (address, kept) = between(&runtime, origin)?;
    let connected = runtime.try_block_on(TcpStream::connect(address)).map_err(said)?;
    let stream = connected.map_err(failed)?;
    in_tasks(runtime, stream, "asking an echo server", move |mut stream, count| {
        let _ = &kept;
        async move {
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
        }
    })
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
