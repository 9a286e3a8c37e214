//! Connecting.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;

use superpoll::operation::Operation;

use crate::budget::yield_if_spent;
use crate::io_ref::AsIoRef;
use crate::net::TcpStream;
use crate::operation_handle::{OperationHandle, should_retry};

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
    yield_if_spent().await;
    if let Ok(handle) = OperationHandle::start(stream.as_io_ref(), Operation::Connect(address)) {
        let connecting = Connecting(handle);
        let progress = poll_fn(|cx| connecting.0.poll_next(cx)).await;
        match progress.map(|progress| progress.outcome) {
            Some(Ok(_)) => {
                drop(connecting);
                return Ok(stream);
            }
            Some(Err(error)) if !should_retry(&error) => return Err(error),
            _ => {}
        }
    }
    stream.connect_to(address).await
}

/// An attempt under way, which ends before its socket is closed.
struct Connecting(OperationHandle);

impl Drop for Connecting {
    fn drop(&mut self) {
        drop(self.0.cancel_and_take());
    }
}
