//! The live page: the activity of the engines, once a second, by a WebSocket of its own.
//!
//! The page is one document without any other asset. It shows the inside of the server, so that
//! only programs on this machine see it, unless the configuration says otherwise (see
//! [`guard`](super::guard)). The figures are the plain counters; the page computes rates and ratios
//! from two snapshots.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use async_tungstenite::WebSocketStream;
use async_tungstenite::tungstenite::handshake::server::create_response_with_body;
use async_tungstenite::tungstenite::protocol::{Message, Role, WebSocketConfig};
use bytes::Bytes;
use futures_lite::{StreamExt, future};
use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, UPGRADE};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use superpoll_http::body::Body;
use superpoll_http::cors;
use superpoll_http::exchange::Exchange;
use superpoll_http::io_activity::IoActivity;
use superpoll_http::peer::Peer;
use superpoll_http::reply;
use superpoll_http::transport::Transport;
use superpoll_http::upload::Upload;
use superpoll_rt::time::sleep;

use super::engines::PageProcesses;
use super::overview::{Overview, PAGE};

/// The time between two messages to a page.
const PERIOD: Duration = Duration::from_secs(1);

/// The largest message that a page may send: it has no messages of its own.
const LARGEST: usize = 1024;

const DOCUMENT: &str = include_str!("../../page/index.html");

/// The permissions of the document: it may use only its own content, and talk to this server.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
                      connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'";

impl Overview {
    /// Answers a request below [`PAGE`].
    pub(crate) async fn page(
        self: Arc<Self>,
        request: Request<Upload>,
        exchange: &Exchange,
    ) -> Response<Body> {
        match request.uri().path().strip_prefix(PAGE) {
            Some("") if matches!(*request.method(), Method::GET | Method::HEAD) => document(),
            Some("") => reply::not_allowed("GET, HEAD"),
            Some("live") => live(self, request, exchange),
            _ => reply::status(StatusCode::NOT_FOUND),
        }
    }
}

fn document() -> Response<Body> {
    let mut response = Response::new(Body::from(Bytes::from_static(DOCUMENT.as_bytes())));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    response
}

fn live(overview: Arc<Overview>, request: Request<Upload>, exchange: &Exchange) -> Response<Body> {
    if !exchange.can_take_over() || !request.headers().contains_key(UPGRADE) {
        let mut response = reply::status(StatusCode::UPGRADE_REQUIRED);
        response.headers_mut().insert(UPGRADE, HeaderValue::from_static("websocket"));
        return response;
    }
    match cors::of_another_site(request.headers(), request.uri()) {
        Ok(None) => {}
        Ok(Some(_)) => return reply::status(StatusCode::FORBIDDEN),
        Err(status) => return reply::status(status),
    }
    let Ok(response) = create_response_with_body(&request, Body::empty) else {
        return reply::status(StatusCode::BAD_REQUEST);
    };
    let peer: Rc<Peer> = exchange.peer().clone();
    let admitted = peer.permit.begin_request();
    let io_activity = exchange.io_activity.clone();
    exchange.take_over(move |transport, before| {
        Box::pin(async move {
            // The peer holds its permit as long as the page continues.
            let _peer = (peer, admitted);
            // A page that is closed is no failure.
            let _ = send_snapshots(overview, transport, before, &io_activity).await;
        })
    });
    response
}

async fn send_snapshots(
    overview: Arc<Overview>,
    transport: Transport,
    before: Bytes,
    io_activity: &IoActivity,
) -> Result<(), async_tungstenite::tungstenite::Error> {
    let config = WebSocketConfig::default()
        .read_buffer_size(LARGEST)
        .write_buffer_size(0)
        .max_message_size(Some(LARGEST))
        .max_frame_size(Some(LARGEST));
    let mut socket = WebSocketStream::from_partially_read(
        transport,
        before.to_vec(),
        Role::Server,
        Some(config),
    )
    .await;
    let mut page = PageProcesses::default();
    loop {
        let Some(text) = overview.page_text(&mut page).await else { return Ok(()) };
        socket.send(Message::text(text)).await?;
        io_activity.note_active();
        let mut rest = Box::pin(sleep(PERIOD));
        loop {
            let reads = async { Some(socket.next().await) };
            let rests = async {
                rest.as_mut().await;
                None
            };
            match future::or(reads, rests).await {
                None => break,
                // The library answers pings; a page sends nothing else.
                Some(Some(Ok(_))) => {}
                Some(Some(Err(error))) => return Err(error),
                Some(None) => return Ok(()),
            }
        }
        if overview.is_ending() {
            return socket.close(None).await;
        }
    }
}
