//! WebSockets on streams of HTTP/2 (RFC 8441): from the handshake (`handshake`) on, such a stream
//! is like a connection of HTTP/1.1 after an upgrade.
//!
//! The response of hyper ends with its head. The stream then counts as a running request until it
//! is closed, and as a stream of its connection until its last byte was written (`streams`).

use std::convert::Infallible;
use std::future::Future;
use std::rc::Rc;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use superpoll_http::exchange::Plan;
use superpoll_http::head::Head;
use superpoll_http::http2_stream::Http2Stream;
use superpoll_http::transport::Transport;
use superpoll_http::upload::RequestBody;
use superpoll_rt::spawn;

use super::answer::{Begun, ConnectionState, Running, Serving, usual_head_bytes};
use super::handshake::Handshake;
use super::streams::{Portions, StreamGuard, portioned};

/// Answers the request of a stream.
pub(super) fn serve(
    state: &Rc<ConnectionState>,
    mut request: Request<Incoming>,
    guard: StreamGuard,
) -> impl Future<Output = Result<Response<Portions>, Infallible>> + use<> {
    let handshake = Handshake::take_from(&mut request);
    let request = request.map(RequestBody::Http2);
    let begun = Begun::new(state, Head::from(&request), || usual_head_bytes(&request));
    let serving = begun.serve(|| Some(request), handshake.as_deref());
    let handshake = handshake.map(|handshake| (handshake, state.clone()));
    async move {
        match handshake {
            None => portioned(serving, guard).await,
            Some((handshake, state)) => Box::pin(finish(handshake, state, serving, guard)).await,
        }
    }
}

/// Answers a handshake, and continues the stream as a WebSocket if its service has agreed.
async fn finish(
    handshake: Box<Handshake>,
    state: Rc<ConnectionState>,
    serving: Serving,
    guard: StreamGuard,
) -> Result<Response<Portions>, Infallible> {
    let response = serving.await?;
    let then = match handshake.plan.take() {
        Some(Plan::TakeOver(then)) if response.status() == StatusCode::OK => then,
        _ => return Ok(response.map(|answer| Portions::new(answer, Some(guard)))),
    };
    guard.upgrade();
    let (upgrade, running) = (handshake.upgrade, Running::again(&state));
    let goes_on = async move {
        // The client may have gone meanwhile.
        let Ok(io) = upgrade.await else { return };
        let stream = Http2Stream::new(io, Box::new((running, guard)));
        then(Transport::Stream(Box::new(stream)), Bytes::new()).await;
    };
    spawn(goes_on).detach();
    Ok(response.map(|answer| Portions::new(answer, None)))
}
