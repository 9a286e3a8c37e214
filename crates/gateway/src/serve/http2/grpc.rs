//! Errors of this server, or of one that does not speak gRPC, as answers to calls of gRPC.
//!
//! A client of gRPC takes the body of any response for messages, and some say that it is malformed
//! rather than what the status of HTTP says. So such a response becomes one of gRPC without a
//! message, whose status is that of HTTP in the words of gRPC (`http-grpc-status-mapping.md` of
//! its specification; 413 is one more). The access log and the metrics have the status of HTTP.

use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, TRAILER};
use http::{HeaderName, HeaderValue, Response, StatusCode};
use superpoll_http1::Method;
use superpoll_http2::RequestHead;

use crate::serve::answer::Answer;

const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");
const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");

/// Whether a content type is one of gRPC.
fn is_grpc(content_type: &[u8]) -> bool {
    let rest = content_type.strip_prefix(GRPC.as_bytes());
    rest.is_some_and(|rest| matches!(rest, [] | [b'+' | b';', ..]))
}

/// Whether a request is a call of gRPC.
pub(super) fn is_call(head: &RequestHead<'_>) -> bool {
    head.method == Method::Post
        && head.fields.value("content-type").is_some_and(|value| is_grpc(value.as_bytes()))
}

/// Returns the code of gRPC for a status of HTTP.
fn code(status: StatusCode) -> u8 {
    match status.as_u16() {
        // INTERNAL, UNAUTHENTICATED, PERMISSION_DENIED, UNIMPLEMENTED, RESOURCE_EXHAUSTED.
        400 => 13,
        401 => 16,
        403 => 7,
        404 => 12,
        413 => 8,
        // UNAVAILABLE, and UNKNOWN.
        429 | 502..=504 => 14,
        _ => 2,
    }
}

/// Returns the response to a call of gRPC.
pub(super) fn translate(mut response: Response<Answer>) -> Response<Answer> {
    let status = response.status();
    let headers = response.headers_mut();
    let has_type = headers.get(CONTENT_TYPE).is_some_and(|it| is_grpc(it.as_bytes()));
    if status == StatusCode::OK || has_type {
        return response;
    }
    for name in [CONTENT_ENCODING, CONTENT_LENGTH, TRAILER] {
        headers.remove(name);
    }
    headers.insert(CONTENT_TYPE, GRPC);
    headers.insert(GRPC_STATUS, u16::from(code(status)).into());
    // The names of statuses have nothing that would have to be encoded.
    if let Ok(message) = HeaderValue::from_str(&status.to_string()) {
        headers.insert(GRPC_MESSAGE, message);
    }
    response.body_mut().clear();
    *response.status_mut() = StatusCode::OK;
    response
}
