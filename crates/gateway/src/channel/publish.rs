//! Publishing by POST.

use std::future::poll_fn;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER};
use http::request::Parts;
use http::{HeaderValue, Response, StatusCode};
use http_body::Body as _;
use http_body_util::BodyExt;
use superpoll_rt::time::timeout;

use super::local_subscribers::LocalSubscribers;
use super::publisher_queue::PublishTurn;
use crate::body::Body;
use crate::reply;
use crate::upload::{Upload, UploadError};

/// How long a publisher waits until messages before its own are delivered.
const WAIT: Duration = Duration::from_secs(5);

fn busy() -> Response<Body> {
    let text = "messages come faster than they can be delivered; this one was not published\n";
    let mut response = reply::text(StatusCode::SERVICE_UNAVAILABLE, text);
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

fn too_large(limit: u64) -> Response<Body> {
    let text = format!("a message of this channel has {limit} bytes at most\n");
    reply::text(StatusCode::PAYLOAD_TOO_LARGE, text)
}

/// Returns the answer to a request whose body did not come in full.
pub(super) fn failed(error: &UploadError) -> Response<Body> {
    let status = match error {
        UploadError::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
        UploadError::TimedOut(_) => StatusCode::REQUEST_TIMEOUT,
        UploadError::Broken(_) => StatusCode::BAD_REQUEST,
    };
    reply::text(status, format!("{error}\n"))
}

impl LocalSubscribers {
    /// Publishes the body of a request.
    pub(super) async fn publish(&self, head: &Parts, body: Upload) -> Response<Body> {
        if body.is_end_stream() && !head.headers.contains_key(CONTENT_LENGTH) {
            // An empty message is a message, but this is a request without one.
            return reply::status(StatusCode::LENGTH_REQUIRED);
        }
        let limit = self.hub.options().message_bytes;
        let data = match collect(body, limit).await {
            Ok(data) => data,
            Err(response) => return response,
        };
        if !self.hub.has_room() {
            let (mut turn, length) = (PublishTurn::new(&self.hub), data.len() as u64);
            let waited = timeout(WAIT, poll_fn(|cx| turn.poll(length, cx))).await;
            if !matches!(waited, Ok(Ok(()))) {
                self.hub.counters().refused.fetch_add(1, Ordering::Relaxed);
                return busy();
            }
        }
        let Some(id) = self.hub.publish(data) else {
            let text = "another server has taken over this channel; connect again\n";
            let mut response = reply::text(StatusCode::SERVICE_UNAVAILABLE, text);
            let headers = response.headers_mut();
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
            headers.insert(RETRY_AFTER, HeaderValue::from_static("0"));
            return response;
        };
        self.hub.wait_until_recorded().await;
        let json = format!("{{\"id\":{id},\"epoch\":\"{:x}\"}}\n", self.hub.epoch());
        let mut response = self.empty_response(StatusCode::CREATED, id);
        *response.body_mut() = json.into();
        let json = HeaderValue::from_static("application/json");
        response.headers_mut().insert(CONTENT_TYPE, json);
        response
    }
}

/// Reads a body of at most this many bytes.
async fn collect(mut body: Upload, limit: u64) -> Result<Bytes, Response<Body>> {
    if body.size_hint().lower() > limit {
        return Err(too_large(limit));
    }
    // Copied rather than kept as a part of hyper's buffer, which would live as long as the message.
    let mut all = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let data = match frame.map(http_body::Frame::into_data) {
            Ok(Ok(data)) => data,
            // Trailers have no meaning here.
            Ok(Err(_)) => continue,
            Err(error) => return Err(failed(&error)),
        };
        if (all.len() + data.len()) as u64 > limit {
            return Err(too_large(limit));
        }
        all.extend_from_slice(&data);
    }
    Ok(all.freeze())
}
