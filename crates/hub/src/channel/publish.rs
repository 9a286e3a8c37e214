//! Publishing by POST.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER};
use http::request::Parts;
use http::{HeaderValue, Response, StatusCode};
use http_body::Body as _;
use http_body_util::BodyExt;
use superpoll_http::body::Body;
use superpoll_http::rate_table::TooFast;
use superpoll_http::reply;
use superpoll_http::upload::{Upload, UploadError};
use superpoll_rt::time::timeout;

use super::hub::{Hub, NotPublished, PublishTurn, Published};
use super::message::Draft;
use super::presence::RESERVED;
use super::publication::{self, Wanted};
use super::publish_limits;
use super::publisher::PublisherLimit;
use super::response::{empty_response_at, unavailable, unshared};

/// How long a publisher waits until messages before its own are delivered.
const WAIT: Duration = Duration::from_secs(5);

fn busy() -> Response<Body> {
    let text = "messages come faster than they can be delivered; this one was not published\n";
    unavailable(text, "1")
}

fn full() -> Response<Body> {
    let text = "the channels of this route keep as many bytes as they may (max_bytes); this message was not published\n";
    unavailable(text, "10")
}

fn too_fast(error: TooFast) -> Response<Body> {
    let mut response =
        reply::text(StatusCode::TOO_MANY_REQUESTS, publish_limits::reason(error) + "\n");
    response.headers_mut().insert(RETRY_AFTER, error.seconds().into());
    response
}

/// Counts a message of a client in, if the client may publish one now.
///
/// # Errors
///
/// The answer to a client that publishes too fast.
pub(super) fn check_rate(
    publisher: &PublisherLimit,
    name: &str,
    hub: impl FnOnce() -> Option<Arc<Hub>>,
) -> Result<(), Box<Response<Body>>> {
    publisher.admit(name).map_err(|error| {
        publisher.count_refused(hub().as_deref());
        Box::new(too_fast(error))
    })
}

fn handed_over() -> Response<Body> {
    let text = "another server has taken over this channel; connect again\n";
    let mut response = unavailable(text, "0");
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

pub(super) fn too_large(limit: u64) -> Response<Body> {
    reply::text(StatusCode::PAYLOAD_TOO_LARGE, publication::too_large(limit) + "\n")
}

/// Returns the answer to a request whose body did not come in full.
pub(super) fn failed(error: &UploadError) -> Response<Body> {
    let status = match error {
        UploadError::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
        UploadError::TimedOut(_) => StatusCode::REQUEST_TIMEOUT,
        UploadError::Broken(_) | UploadError::Short => StatusCode::BAD_REQUEST,
    };
    reply::text(status, format!("{error}\n"))
}

/// Publishes the body of a request.
pub(super) async fn publish(hub: &Arc<Hub>, head: &Parts, body: Upload) -> Response<Body> {
    if body.is_end_stream() && !head.headers.contains_key(CONTENT_LENGTH) {
        // An empty message is a message, but this is a request without one.
        return reply::status(StatusCode::LENGTH_REQUIRED);
    }
    let wanted = match Wanted::read(&head.headers) {
        Ok(wanted) => wanted,
        Err(what) => return reply::text(StatusCode::BAD_REQUEST, what + "\n"),
    };
    let limit = hub.options().message_bytes;
    let data = match collect(body, limit).await {
        Ok(data) => data,
        Err(response) => return response,
    };
    let draft = Draft::new(data);
    let meta = match wanted.check(draft.is_text) {
        Ok(meta) => meta,
        Err(what) => return reply::text(StatusCode::BAD_REQUEST, what + "\n"),
    };
    let Published { id, epoch, is_repeated } =
        match publish_in_turn(hub, Draft { meta, ..draft }).await {
            Ok(published) => published,
            Err(response) => return response,
        };
    let (status, repeated) = match is_repeated {
        false => (StatusCode::CREATED, ""),
        true => (StatusCode::OK, ",\"repeated\":true"),
    };
    let json = format!("{{\"id\":{id},\"epoch\":\"{epoch:x}\"{repeated}}}\n");
    let mut response = empty_response_at(status, id, epoch);
    *response.body_mut() = json.into();
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}

/// Waits until it is the turn of a publisher that holds this many bytes.
///
/// # Errors
///
/// The answer to it, if messages before its own are not delivered in time.
pub(super) async fn until_room(hub: &Arc<Hub>, bytes: u64) -> Result<(), Response<Body>> {
    if !hub.has_room() {
        let mut turn = PublishTurn::new(hub);
        let waited = timeout(WAIT, poll_fn(|cx| turn.poll(bytes, cx))).await;
        if !matches!(waited, Ok(Ok(()))) {
            hub.counters().refused.fetch_add(1, Ordering::Relaxed);
            return Err(busy());
        }
    }
    Ok(())
}

/// Publishes a message when it is its turn, and waits until a successor knows of it.
///
/// # Errors
///
/// The answer to its publisher, if it was not published.
pub(super) async fn publish_in_turn(
    hub: &Arc<Hub>,
    draft: Draft,
) -> Result<Published, Response<Body>> {
    until_room(hub, draft.data.len() as u64).await?;
    let published = match hub.shared() {
        Some(shared) => shared.begin(draft).await,
        None => hub.publish_as(draft),
    };
    let published = published.map_err(|why| not_published(hub, why))?;
    hub.wait_until_recorded().await;
    Ok(published)
}

/// Returns the answer to the publisher of a message that was not published.
pub(super) fn not_published(hub: &Hub, why: NotPublished) -> Response<Body> {
    match why {
        NotPublished::OtherWithKey => {
            let text = "another message was published with this Idempotency-Key\n";
            reply::text(StatusCode::UNPROCESSABLE_ENTITY, text)
        }
        NotPublished::Reserved => reply::text(StatusCode::BAD_REQUEST, format!("{RESERVED}\n")),
        NotPublished::HandedOver => handed_over(),
        NotPublished::Unshared(why) => {
            hub.counters().refused.fetch_add(1, Ordering::Relaxed);
            unshared(&why)
        }
        NotPublished::Full => {
            hub.counters().refused.fetch_add(1, Ordering::Relaxed);
            full()
        }
    }
}

/// Reads a body of at most this many bytes.
pub(super) async fn collect(mut body: Upload, limit: u64) -> Result<Bytes, Response<Body>> {
    if body.size_hint().lower() > limit {
        return Err(too_large(limit));
    }
    // Copied rather than kept as a part of the connection's buffer, which would live as long as the
    // message.
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
