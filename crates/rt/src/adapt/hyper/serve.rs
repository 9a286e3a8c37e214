//! Serving HTTP on a listener.

use std::error::Error;
use std::future::{Future, pending};
use std::io;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use hyper::body::{Body, Incoming};
use hyper::service::Service;
use hyper::{Request, Response};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;

use super::{EngineExecutor, EngineTimer};
use crate::net::TcpListener;
use crate::task::spawn;
use crate::time::timeout;

/// How long a client may take for the head of a request.
const HEAD: Duration = Duration::from_secs(30);

/// How often the other end of an HTTP/2 connection is asked whether it is there.
const PING: Duration = Duration::from_secs(30);

/// Answers HTTP/1, HTTP/2 without TLS and upgrades on a listener, each connection in a task of this
/// engine, until accepting fails. A service of `tower`, such as axum's `Router`, goes through
/// [`hyper_util::service::TowerToHyperService`].
///
/// A request's head may take 30 seconds. Everything else has no limit: use hyper-util's `Builder`
/// and an accept loop of your own for other settings.
///
/// # Errors
///
/// Any error of `accept(2)` that no later call can mend.
pub async fn serve<S, B>(listener: TcpListener, service: S) -> io::Result<()>
where
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + 'static,
    S::Future: 'static,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    B: Body + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    serve_until(listener, service, pending(), Duration::ZERO).await.map(drop)
}

/// Like [`serve`], until `end` is ready. Then no connection is accepted any more, requests that
/// have arrived are answered, and idle connections are closed. Returns whether all connections
/// ended within `patience`; those that did not continue in their tasks.
///
/// Cancel safe: dropped, it closes the listener, and connections continue in their tasks.
///
/// # Errors
///
/// The same errors as [`serve`].
pub async fn serve_until<S, B>(
    listener: TcpListener,
    service: S,
    end: impl Future<Output = ()>,
    patience: Duration,
) -> io::Result<bool>
where
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + 'static,
    S::Future: 'static,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    B: Body + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let mut server = auto::Builder::new(EngineExecutor);
    server.http1().timer(EngineTimer).header_read_timeout(HEAD);
    server.http2().timer(EngineTimer).keep_alive_interval(PING);
    let connections = GracefulShutdown::new();
    let mut end = pin!(end);
    loop {
        let mut accept = pin!(listener.accept());
        let accepted = std::future::poll_fn(|cx| match end.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(None),
            Poll::Pending => accept.as_mut().poll(cx).map(Some),
        });
        let Some(accepted) = accepted.await else { break };
        let (stream, _) = accepted?;
        // A client that has left already is found out by the first read.
        let _ = stream.set_nodelay(true);
        let connection = server.serve_connection_with_upgrades(stream, service.clone());
        let connection = connections.watch(connection.into_owned());
        spawn(async move {
            // hyper has reported the error to the client, if it still listens.
            let _ = connection.await;
        })
        .detach();
    }
    drop(listener);
    Ok(timeout(patience, connections.shutdown()).await.is_ok())
}
