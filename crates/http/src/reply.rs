//! Responses that the gateway makes itself.

use http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderValue, Response, StatusCode};
use http_body::Body as _;
use superpoll_http1::{FieldLines, Method};

use crate::body::Body;

/// The media type of texts.
pub(crate) const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// Keeps browsers from guessing another one.
pub(crate) const NO_GUESS: HeaderValue = HeaderValue::from_static("nosniff");

/// Returns a status, with its text as the body.
pub fn status(status: StatusCode) -> Response<Body> {
    text(status, text_of(status))
}

/// Gives the fields of a text, as HTTP/1.1 writes them, to a function.
pub(crate) fn with_lines<T>(then: impl FnOnce(&FieldLines) -> T) -> T {
    thread_local! {
        static LINES: FieldLines =
            [(&CONTENT_TYPE, &TEXT), (&X_CONTENT_TYPE_OPTIONS, &NO_GUESS)].into_iter().collect();
    }
    LINES.with(then)
}

/// Returns the text of a status.
pub(crate) fn text_of(status: StatusCode) -> String {
    let reason = status.canonical_reason().unwrap_or_default();
    [status.as_str(), " ", reason, "\n"].concat()
}

/// Returns 503 for a shortage that may end soon: the client may ask again after some seconds.
pub fn unavailable(seconds: u64) -> Response<Body> {
    let mut response = status(StatusCode::SERVICE_UNAVAILABLE);
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    response
}

/// Answers a request with a method that the resource does not have; `allowed` are the methods that
/// it has.
pub fn not_allowed(allowed: &'static str) -> Response<Body> {
    let mut response = status(StatusCode::METHOD_NOT_ALLOWED);
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    response
}

/// Answers a request with a method that a resource of this server does not have: with 501 if no
/// resource knows the method (RFC 9110, section 9.1).
pub fn refused(method: &http::Method, allowed: &'static str) -> Response<Body> {
    match Method::new(method.as_str()).is_some_and(is_known) {
        true => not_allowed(allowed),
        false => status(StatusCode::NOT_IMPLEMENTED),
    }
}

/// Whether a method is one of HTTP itself (RFC 9110, section 9.3, and RFC 5789).
pub(crate) fn is_known(method: Method<'_>) -> bool {
    !matches!(method, Method::Other(_))
}

/// Answers OPTIONS that asks for no resource, with the methods of the server.
pub fn options() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    let headers = response.headers_mut();
    let all = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";
    headers.insert(ALLOW, HeaderValue::from_static(all));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(0));
    response
}

/// Returns a status and a text.
pub fn text(status: StatusCode, text: impl Into<String>) -> Response<Body> {
    let text = text.into();
    let length = HeaderValue::from(text.len());
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, TEXT);
    headers.insert(CONTENT_LENGTH, length);
    headers.insert(X_CONTENT_TYPE_OPTIONS, NO_GUESS);
    response
}

/// Returns a response of JSON, which no cache keeps.
pub fn json(json: impl Into<Body>) -> Response<Body> {
    let body = json.into();
    let length = body.size_hint().exact();
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(length) = length {
        headers.insert(CONTENT_LENGTH, length.into());
    }
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
