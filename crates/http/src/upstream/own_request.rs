//! Requests of this server's own, each on a connection that it was given: checks of servers, and
//! the requests for certificates.

use std::future::poll_fn;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{Request, Response};

use super::client::Apart;
use super::fault::{FailedAttempt, Fault};
use super::forwarder::{Answer, LimitTimer, Missed, Out, ask};
use super::http1::Http1Connection;
use super::incoming::Incoming;
use super::request::ServerRequest;
use crate::answers::Additions;
use crate::progress::Progress;
use crate::transport::Upstream;

/// Sends a request, and waits for the head of the response, whose body is that of the connection.
pub(super) async fn send(
    connection: &mut Http1Connection,
    request: &ServerRequest,
    limit: Duration,
) -> Result<Response<Incoming>, Fault> {
    let (additions, progress) = (Additions::default(), Progress::default());
    let (mut out, mut timer) = (Out::default(), LimitTimer::default());
    let (way, outcome) = ((request, &additions, &progress), (&mut out, &mut timer));
    match ask((connection, false), way, &mut Apart::default(), outcome, limit).await {
        Ok(_) => {}
        Err(Missed::Failed(FailedAttempt { fault, .. }, _)) => return Err(fault),
        // It has no client.
        Err(Missed::ClientGone | Missed::Unfit | Missed::NoWebSockets) => {
            return Err(Fault::Silent(limit));
        }
    }
    match out.answer {
        Some(Answer::Given(response)) => Ok(response),
        _ => Err(Fault::Silent(limit)),
    }
}

/// Makes one exchange on a connection of its own. The body of the response has at most `most`
/// bytes.
///
/// # Errors
///
/// The exchange broke, took longer than `limit` for the head, or its response is malformed or too
/// large.
pub async fn exchange(
    stream: Upstream,
    request: Request<Bytes>,
    limit: Duration,
    most: usize,
) -> Result<Response<Bytes>, String> {
    let mut connection = Http1Connection::new(stream);
    let request = ServerRequest::own(&request).map_err(|why| why.to_string())?;
    let response = send(&mut connection, &request, limit).await;
    let response = response.map_err(|fault| match fault {
        Fault::Broken(error) => error.to_string(),
        Fault::Head(what) => what,
        Fault::Silent(limit) => format!("no answer within {limit:?}"),
        fault => fault.to_string(),
    })?;
    let mut body = BytesMut::new();
    while let Some(frame) = poll_fn(|cx| connection.poll_body(cx)).await {
        let data = frame.map_err(|error| error.to_string())?.into_data().unwrap_or_default();
        if data.len() > most - body.len() {
            return Err(format!("its body has more than {most} bytes"));
        }
        body.extend_from_slice(&data);
    }
    Ok(response.map(|_| body.freeze()))
}
