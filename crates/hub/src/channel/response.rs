//! Responses to requests of more than one kind: a reader's place in a channel, and the reasons for
//! which there is no channel.

use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use superpoll_http::body::Body;
use superpoll_http::reply;

use super::hub::Hub;
use super::route::{NoChannel, TooMany};
use crate::broker::Unpublished;

/// The last message that its reader has.
const NEXT: HeaderName = HeaderName::from_static("channel-next");

/// The epoch of that message.
const EPOCH: HeaderName = HeaderName::from_static("channel-epoch");

/// Returns a response without a body that names its reader's place in a channel.
pub(super) fn empty_response(hub: &Hub, status: StatusCode, last: u64) -> Response<Body> {
    empty_response_at(status, last, hub.epoch())
}

/// The same, for a place in an epoch.
pub(super) fn empty_response_at(status: StatusCode, last: u64, epoch: u64) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    add_position(response.headers_mut(), last, epoch);
    response
}

/// Adds the fields that name a reader's place in a channel.
pub(super) fn add_position(headers: &mut HeaderMap, last: u64, epoch: u64) {
    headers.insert(NEXT, last.into());
    if let Ok(epoch) = HeaderValue::from_str(&format!("{epoch:x}")) {
        headers.insert(EPOCH, epoch);
    }
}

/// Returns the answer to a publisher whose message was not published, and that may try again after
/// some seconds.
pub(super) fn unavailable(text: &'static str, seconds: &'static str) -> Response<Body> {
    let mut response = reply::text(StatusCode::SERVICE_UNAVAILABLE, text);
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static(seconds));
    response
}

/// Returns the answer to a request whose channel has a log that could not be used.
pub(super) fn unshared(why: &Unpublished) -> Response<Body> {
    let text = match why {
        Unpublished::Away => "the message log of this channel is away; nothing was published\n",
        Unpublished::Unknown => {
            "the message log of this channel did not answer in time; this message may be published \
             or not: with an Idempotency-Key it can be sent again safely\n"
        }
        Unpublished::Busy => {
            "messages come faster than the message log takes them; this one was not published\n"
        }
        Unpublished::Full => {
            "the message log of this channel has no memory left; this message was not published\n"
        }
        Unpublished::NotReplicated => {
            "too few copies of the message log have this message; it may be lost: with an \
             Idempotency-Key it can be sent again safely\n"
        }
        Unpublished::Refused(_) => {
            "the message log of this channel refuses the message; this message was not published\n"
        }
    };
    let seconds = if *why == Unpublished::Full { "10" } else { "1" };
    unavailable(text, seconds)
}

/// Returns the answer for a channel that there is not.
pub(super) fn no_channel(error: NoChannel) -> Response<Body> {
    match error {
        NoChannel::TooMany(most) => too_many(most),
        NoChannel::Unshared(why) => unshared(&why),
    }
}

/// Returns the answer for a new channel that there is no room for.
fn too_many(TooMany(most): TooMany) -> Response<Body> {
    let text = format!(
        "there are {most} channels here, and no more may be; try again when some have been idle\n"
    );
    let mut response = reply::text(StatusCode::SERVICE_UNAVAILABLE, text);
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("10"));
    response
}
