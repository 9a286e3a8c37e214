//! Connecting.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;

use superpoll::operation::Operation;

use super::turn;
use crate::net::TcpStream;
use crate::operations::{UnderWay, is_to_be_repeated};
use crate::tie::Tied;

/// Connects to an address (`connect(2)`; on `uring` `IORING_OP_CONNECT`), as
/// [`TcpStream::connect_addr`] does.
///
/// Cancel safe: an attempt that is under way is given up, and its socket closed.
///
/// # Errors
///
/// Any error of `socket(2)` and `connect(2)`, such as `ConnectionRefused`, `TimedOut` or
/// `NetworkUnreachable`.
pub async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::unconnected(address)?;
    turn().await;
    if let Ok(under_way) = UnderWay::start(stream.tie(), Operation::Connect(address)) {
        let connecting = Connecting(under_way);
        let progress = poll_fn(|cx| connecting.0.poll_next(cx)).await;
        match progress.map(|progress| progress.outcome) {
            Some(Ok(_)) => {
                drop(connecting);
                return Ok(stream);
            }
            Some(Err(error)) if !is_to_be_repeated(&error) => return Err(error),
            _ => {}
        }
    }
    stream.connect_to(address).await?;
    Ok(stream)
}

/// An attempt under way, which ends before its socket is closed.
struct Connecting(UnderWay);

impl Drop for Connecting {
    fn drop(&mut self) {
        drop(self.0.take_rest());
    }
}
