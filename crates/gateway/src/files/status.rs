//! Responses that consist of a status, without a file.

use http::header::{ALLOW, CONTENT_LENGTH, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Method, Response, StatusCode};

use crate::body::Body;
use crate::reply;

/// Returns a response whose body is its status.
pub(super) fn plain(status: StatusCode, method: &Method) -> Response<Body> {
    let text = format!("{} {}\n", status.as_u16(), status.canonical_reason().unwrap_or(""));
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(text.len()));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if method != Method::HEAD {
        *response.body_mut() = Body::from(text);
    }
    response
}

/// Answers a request that is no GET or HEAD: with 501 if no resource knows the method.
pub(super) fn not_allowed(method: &Method) -> Response<Body> {
    if !reply::is_known(method) {
        return plain(StatusCode::NOT_IMPLEMENTED, method);
    }
    let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, method);
    response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    response
}
