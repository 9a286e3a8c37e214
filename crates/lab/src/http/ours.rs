//! Our runtime below hyper, on the requested back-end.

use std::convert::Infallible;
use std::io;
use std::net::TcpListener;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::rt::{Read, Write};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use superpoll::BackendKind;

use crate::error::{Error, Result};
use crate::http::BODY;
use crate::server::{Control, program};

pub(super) fn serve(
    listener: TcpListener,
    control: &mut Control,
    backend: BackendKind,
) -> Result<()> {
    let failed = |source: io::Error| Error::system("setting our runtime up", source);
    program::serve(backend, control, |runtime| {
        let listener = superpoll_rt::net::TcpListener::from_std(listener).map_err(failed)?;
        runtime
            .try_block_on(async { superpoll_rt::spawn(accept(listener)).detach() })
            .map_err(Error::from)
    })
}

async fn accept(listener: superpoll_rt::net::TcpListener) {
    // A client without a connection gets no answer, which the load generator notices.
    while let Ok((stream, _)) = listener.accept().await {
        if stream.set_nodelay(true).is_ok() {
            superpoll_rt::spawn(say_hello(stream)).detach();
        }
    }
}

// The handling of a connection by every hyper server, and the answer of all servers.

/// Answers until the client has enough, with hyper's own settings.
pub(super) async fn say_hello<S: Read + Write + Unpin>(stream: S) {
    // A client that goes away is no failure of the server's; the load generator notices lost
    // answers.
    let _ = http1::Builder::new().serve_connection(stream, service_fn(hello)).await;
}

async fn hello(_: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(Full::new(Bytes::from_static(BODY))))
}
