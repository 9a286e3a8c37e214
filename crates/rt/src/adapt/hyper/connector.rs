//! Connections for the pooled client of `hyper-util`.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use hyper::Uri;
use hyper_util::client::legacy::connect::{Connected, Connection};
use tower_service::Service;

use crate::net::TcpStream;
use crate::task::{JoinHandle, spawn};

/// Connects over TCP for [`hyper_util::client::legacy::Client`], which keeps connections and uses
/// them again. It serves `http:` only; wrap it for TLS.
///
/// ```no_run
/// use http_body_util::{BodyExt, Empty};
/// use hyper::body::Bytes;
/// use hyper_util::client::legacy::Client;
/// use superpoll_rt::hyper::{Connector, EngineExecutor, EngineTimer};
///
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let client = Client::builder(EngineExecutor)
///     .pool_timer(EngineTimer)
///     .build::<_, Empty<Bytes>>(Connector);
/// let answer = client.get("http://localhost:8080/".parse()?).await?;
/// let body = answer.into_body().collect().await?.to_bytes();
/// # drop(body);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Connector;

/// A connection that is being made, by a task of the engine on which it was asked for. Dropping it
/// gives the connection up.
#[derive(Debug)]
pub struct Connecting(JoinHandle<io::Result<TcpStream>>);

async fn connect(uri: Uri) -> io::Result<TcpStream> {
    let refuse = |text: String| io::Error::new(io::ErrorKind::InvalidInput, text);
    if uri.scheme_str().is_some_and(|scheme| scheme != "http") {
        let text = format!("connecting to {uri}: Connector serves http: only; wrap it for TLS");
        return Err(refuse(text));
    }
    let Some(host) = uri.host() else {
        return Err(refuse(format!("connecting to {uri}: it names no host")));
    };
    // An IPv6 address is in brackets.
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let stream = TcpStream::connect((host, uri.port_u16().unwrap_or(80))).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

impl Service<Uri> for Connector {
    type Response = TcpStream;
    type Error = io::Error;
    type Future = Connecting;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// # Panics
    ///
    /// If no runtime runs on this thread.
    fn call(&mut self, uri: Uri) -> Connecting {
        Connecting(spawn(connect(uri)))
    }
}

impl Future for Connecting {
    type Output = io::Result<TcpStream>;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<TcpStream>> {
        Poll::Ready(ready!(Pin::new(&mut self.0).poll(cx)).unwrap_or_else(|error| {
            // The runtime ends.
            Err(io::Error::other(error))
        }))
    }
}

impl Drop for Connecting {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Connection for TcpStream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}
