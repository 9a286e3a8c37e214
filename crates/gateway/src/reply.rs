//! Responses that the gateway makes itself.

use http::header::{ALLOW, CONTENT_LENGTH, CONTENT_TYPE, LINK, STRICT_TRANSPORT_SECURITY};
use http::{HeaderValue, Response, StatusCode};

use crate::body::Body;

/// The fields that a host adds to all responses.
#[derive(Clone, Default, Debug)]
pub(crate) struct Additions {
    /// `Strict-Transport-Security`, unless the server has its own.
    pub(crate) hsts: Option<HeaderValue>,
    pub(crate) link: Option<HeaderValue>,
}

impl Additions {
    /// Adds the fields to a response.
    pub(crate) fn to<B>(self, mut response: Response<B>) -> Response<B> {
        let headers = response.headers_mut();
        if let Some(link) = self.link {
            headers.append(LINK, link);
        }
        if let Some(hsts) = self.hsts {
            headers.entry(STRICT_TRANSPORT_SECURITY).or_insert(hsts);
        }
        response
    }
}

/// Returns a status, with its text as the body.
pub(crate) fn status(status: StatusCode) -> Response<Body> {
    text(status, format!("{} {}\n", status.as_u16(), status.canonical_reason().unwrap_or("")))
}

/// Answers a request with a method that the resource does not have; `allowed` are the methods that
/// it has.
pub(crate) fn not_allowed(allowed: &'static str) -> Response<Body> {
    let mut response = status(StatusCode::METHOD_NOT_ALLOWED);
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    response
}

/// Answers OPTIONS that asks for no resource, with the methods of the server.
pub(crate) fn options() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    let headers = response.headers_mut();
    let all = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";
    headers.insert(ALLOW, HeaderValue::from_static(all));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(0));
    response
}

/// Returns a status and a text.
pub(crate) fn text(status: StatusCode, text: impl Into<String>) -> Response<Body> {
    let text = text.into();
    let length = HeaderValue::from(text.len());
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(CONTENT_LENGTH, length);
    response
}
