//! tokio's `current_thread` runtime below hyper, as in hyper's own examples.

use std::net::TcpListener;

use hyper_util::rt::TokioIo;
use tokio::runtime::Builder;

use crate::error::{Doing, Error, Result};
use crate::http::ours;
use crate::server::Control;

/// Serves thirteen bytes indefinitely to the clients of a listener.
pub(crate) fn serve(listener: TcpListener, control: &mut Control) -> Result<()> {
    serve_each(listener, control, ours::say_hello)
}

/// Serves each connection of a listener in a task of its own, indefinitely.
pub(crate) fn serve_each<Served>(
    listener: TcpListener,
    control: &mut Control,
    serve: impl Fn(TokioIo<tokio::net::TcpStream>) -> Served,
) -> Result<()>
where
    Served: Future<Output: Send> + Send + 'static,
{
    let failed = |source| Error::system("setting tokio up", source);
    let runtime = Builder::new_current_thread().enable_io().build().map_err(failed)?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener).map_err(failed)?;
        control.ready()?;
        loop {
            let (stream, _) = listener.accept().await.doing("accepting a connection")?;
            if stream.set_nodelay(true).is_ok() {
                drop(tokio::spawn(serve(TokioIo::new(stream))));
            }
        }
    })
}
