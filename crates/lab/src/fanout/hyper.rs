//! A server of one channel with hyper, tungstenite and `tokio::sync::broadcast`, on tokio's
//! `current_thread` runtime: as short as a programmer would write it.

use std::convert::Infallible;
use std::net::TcpListener;
use std::sync::{Arc, Mutex, PoisonError};

use ::tokio::sync::broadcast::{self, Receiver, Sender};
use futures_lite::{FutureExt, stream};
use futures_util::{SinkExt, StreamExt};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::header::{ACCEPT, CONNECTION, CONTENT_TYPE, SEC_WEBSOCKET_ACCEPT, UPGRADE};
use hyper::header::{HeaderName, HeaderValue, SEC_WEBSOCKET_KEY};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::upgrade::Upgraded;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Utf8Bytes;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Message, Role, WebSocketConfig};

use crate::error::Result;
use crate::http::tokio;
use crate::server::Control;

/// Messages that may wait for a subscriber.
const CAPACITY: usize = 256;

/// The buffer with which a WebSocket reads: the default of 128 KiB is made for clients that send a
/// lot.
const READ_BUFFER: usize = 4096;

/// A message in each of its forms.
#[derive(Clone, Debug, Default)]
struct Published {
    id: u64,
    text: Utf8Bytes,
    event: Bytes,
}

/// The channel.
#[derive(Debug)]
struct Channel {
    subscribers: Sender<Published>,
    /// The last message. The publisher waits until all have it, so one is history enough.
    last: Mutex<Published>,
}

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// Serves the channel indefinitely to the clients of a listener.
pub(super) fn serve(listener: TcpListener, control: &mut Control) -> Result<()> {
    let channel = Channel { subscribers: broadcast::channel(CAPACITY).0, last: Mutex::default() };
    let channel = Arc::new(channel);
    tokio::serve_each(listener, control, |stream| {
        let channel = Arc::clone(&channel);
        let answer = move |request| answer(Arc::clone(&channel), request);
        let connection = http1::Builder::new().serve_connection(stream, service_fn(answer));
        // A client that goes away is no failure of the server's.
        async { connection.with_upgrades().await.unwrap_or_default() }
    })
}

async fn answer(
    channel: Arc<Channel>,
    mut request: Request<Incoming>,
) -> Result<Response<Body>, hyper::Error> {
    let messages = channel.subscribers.subscribe();
    if *request.method() == Method::POST {
        let body = request.into_body().collect().await?.to_bytes();
        let status = match Utf8Bytes::try_from(body) {
            Ok(text) => {
                channel.publish(text);
                StatusCode::CREATED
            }
            Err(_) => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        };
        return Ok(response(status, []));
    }
    if let Some(key) = request.headers().get(SEC_WEBSOCKET_KEY) {
        let accept = derive_accept_key(key.as_bytes());
        let accept = HeaderValue::from_str(&accept).unwrap_or(HeaderValue::from_static(""));
        let upgraded = hyper::upgrade::on(&mut request);
        drop(::tokio::spawn(async {
            if let Ok(stream) = upgraded.await {
                send(stream, messages).await;
            }
        }));
        let fields = [
            (UPGRADE, HeaderValue::from_static("websocket")),
            (CONNECTION, HeaderValue::from_static("Upgrade")),
            (SEC_WEBSOCKET_ACCEPT, accept),
        ];
        return Ok(response(StatusCode::SWITCHING_PROTOCOLS, fields));
    }
    if request.headers().get(ACCEPT).is_some_and(|kind| kind == "text/event-stream") {
        let kind = (CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        let events = stream::unfold(messages, |mut messages| async {
            let message = messages.recv().await.ok()?;
            Some((Ok(Frame::data(message.event)), messages))
        });
        return Ok(response(StatusCode::OK, [kind]).map(|_| StreamBody::new(events).boxed_unsync()));
    }
    let query = request.uri().query().unwrap_or_default();
    let after: Option<u64> = query.strip_prefix("after=").and_then(|id| id.parse().ok());
    let message = channel.after(after, messages).await;
    let next = (HeaderName::from_static("next"), HeaderValue::from(message.id));
    let body = Full::new(Bytes::from(message.text));
    Ok(response(StatusCode::OK, [next]).map(|_| body.boxed_unsync()))
}

/// Returns a response without a body.
fn response(
    status: StatusCode,
    fields: impl IntoIterator<Item = (HeaderName, HeaderValue)>,
) -> Response<Body> {
    let mut response = Response::new(Full::default().boxed_unsync());
    *response.status_mut() = status;
    response.headers_mut().extend(fields);
    response
}

impl Channel {
    fn publish(&self, text: Utf8Bytes) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let id = last.id + 1;
        let event = Bytes::from(format!("id: {id}\ndata: {text}\n\n"));
        *last = Published { id, text, event };
        // Without subscribers there is no one to send it to.
        let _ = self.subscribers.send(last.clone());
    }

    /// Returns the last message if it comes after this number, and otherwise the next one.
    async fn after(&self, number: Option<u64>, mut messages: Receiver<Published>) -> Published {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if number.is_some_and(|number| number < last.id) {
            return last;
        }
        messages.recv().await.unwrap_or_default()
    }
}

/// Sends messages by WebSocket until its client ends it.
async fn send(stream: Upgraded, mut messages: Receiver<Published>) {
    let config = WebSocketConfig::default().read_buffer_size(READ_BUFFER);
    let stream = TokioIo::new(stream);
    let stream = WebSocketStream::from_raw_socket(stream, Role::Server, Some(config)).await;
    let (mut sink, mut stream) = stream.split();
    let sending = async {
        while let Ok(message) = messages.recv().await {
            if sink.send(Message::Text(message.text)).await.is_err() {
                return;
            }
        }
    };
    let receiving = async { while let Some(Ok(_)) = stream.next().await {} };
    receiving.or(sending).await;
}
