//! An HTTP server: hyper on this runtime, HTTP/1 and HTTP/2 without TLS (h2c) on one port.
//!
//! `GET /` answers `OK`, `POST /` sends the request's body back while it arrives, and `/echo`
//! answers with the headers of the request. Ctrl-C or `SIGTERM` ends it in order: requests that
//! have arrived are answered.
//!
//! Try it with `cargo run --example http_echo -- --listen 127.0.0.1:8080` and
//! `curl -d hello http://127.0.0.1:8080/`, or with `--http2-prior-knowledge`.

use std::error::Error;
use std::fmt::Write;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_lite::future::or;
use http_body_util::{BodyExt, Either, Full};
use hyper::body::{Bytes, Frame, Incoming, SizeHint};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use superpoll_rt::hyper::{EngineExecutor, EngineTimer};
use superpoll_rt::net::TcpListener;
use superpoll_rt::signal::{SignalKind, signal};
use superpoll_rt::spawn;
use superpoll_rt::time::timeout;

mod options;

/// A body that is sent back as it comes, or a body that is known.
type Body = Either<Echo, Full<Bytes>>;

/// A request's body whose first part has come.
struct Echo {
    first: Option<Frame<Bytes>>,
    rest: Incoming,
}

impl Echo {
    /// Waits for the first part. hyper sends `100 Continue` to a client that expects it when the
    /// body is asked for, which has to happen before the answer begins.
    async fn new(mut body: Incoming) -> hyper::Result<Echo> {
        let first = body.frame().await.transpose()?;
        Ok(Echo { first, rest: body })
    }
}

impl hyper::body::Body for Echo {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        match self.first.take() {
            Some(first) => Poll::Ready(Some(Ok(first))),
            None => Pin::new(&mut self.rest).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none() && self.rest.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let first = self.first.as_ref().and_then(Frame::data_ref).map_or(0, Bytes::len) as u64;
        match self.rest.size_hint().exact() {
            Some(rest) => SizeHint::with_exact(first + rest),
            None => SizeHint::default(),
        }
    }
}

/// How long clients have to take their answers after a signal to end.
const PATIENCE: Duration = Duration::from_secs(10);

fn main() -> std::process::ExitCode {
    options::run("Answers HTTP/1 and HTTP/2: GET /, POST / and /echo.", serve)
}

async fn serve(listener: TcpListener) -> io::Result<()> {
    let mut server = auto::Builder::new(EngineExecutor);
    server.http1().timer(EngineTimer).header_read_timeout(Duration::from_secs(30));
    server.http2().timer(EngineTimer).keep_alive_interval(Duration::from_secs(30));
    let connections = GracefulShutdown::new();
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    loop {
        let accepted = async { listener.accept().await.map(Some) };
        let interrupted = async { interrupt.recv().await.map(|()| None) };
        let terminated = async { terminate.recv().await.map(|()| None) };
        let Some((stream, _)) = or(accepted, or(interrupted, terminated)).await? else { break };
        stream.set_nodelay(true)?;
        let connection = server.serve_connection(stream, service_fn(answer)).into_owned();
        let connection = connections.watch(connection);
        spawn(async move {
            // hyper has reported the error to the client, if it still listens.
            let _ = connection.await;
        })
        .detach();
    }
    // New connections are refused from now on; clients that wait for an answer still get it.
    drop(listener);
    // Connections that take longer end with the process.
    let _ = timeout(PATIENCE, connections.shutdown()).await;
    Ok(())
}

async fn answer(
    request: Request<Incoming>,
) -> Result<Response<Body>, Box<dyn Error + Send + Sync>> {
    match (request.method(), request.uri().path()) {
        (_, "/echo") => Ok(text(StatusCode::OK, describe(request.headers()))?),
        (&Method::GET | &Method::HEAD, "/") => Ok(text(StatusCode::OK, "OK")?),
        (&Method::POST, "/") => {
            let kind = request.headers().get(CONTENT_TYPE).cloned();
            let kind = kind.unwrap_or(HeaderValue::from_static("application/octet-stream"));
            let body = Either::Left(Echo::new(request.into_body()).await?);
            Ok(Response::builder().header(CONTENT_TYPE, kind).body(body)?)
        }
        (_, "/") => {
            let mut refusal = text(StatusCode::METHOD_NOT_ALLOWED, "GET, HEAD or POST\n")?;
            refusal.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD, POST"));
            Ok(refusal)
        }
        _ => Ok(text(StatusCode::NOT_FOUND, "there are / and /echo\n")?),
    }
}

fn text(status: StatusCode, text: impl Into<Bytes>) -> Result<Response<Body>, hyper::http::Error> {
    let body = Either::Right(Full::new(text.into()));
    Response::builder().status(status).header(CONTENT_TYPE, "text/plain; charset=utf-8").body(body)
}

/// Returns the headers, one per line.
fn describe(headers: &HeaderMap) -> String {
    headers.iter().fold(String::new(), |mut lines, (name, value)| {
        let value = String::from_utf8_lossy(value.as_bytes());
        // Writing to a string does not fail.
        let _ = writeln!(lines, "{name}: {value}");
        lines
    })
}
