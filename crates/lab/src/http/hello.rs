//! The handling of a connection by every hyper server, and the answer of all servers.

use std::convert::Infallible;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::rt::{Read, Write};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};

use crate::http::BODY;

/// Answers until the client has enough, with hyper's own settings.
pub(super) async fn serve<S: Read + Write + Unpin>(stream: S) {
    // A client that goes away is no failure of the server's; the load generator notices lost
    // answers.
    let _ = http1::Builder::new().serve_connection(stream, service_fn(hello)).await;
}

async fn hello(_: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(Full::new(Bytes::from_static(BODY))))
}
