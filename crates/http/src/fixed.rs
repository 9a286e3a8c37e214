//! Answers that the configuration has (`respond`).

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use superpoll_config::Respond;

use crate::answers::KeepsBody;
use crate::body::Body;
use crate::reply::{NO_GUESS, TEXT, text_of};

/// The mark of a response that no client gets, in its extensions: the connection of HTTP/1 is
/// closed in its place, and the stream of HTTP/2 is reset.
#[derive(Clone, Copy, Debug)]
pub struct NoAnswer;

/// An answer that the configuration has.
#[derive(Debug)]
pub struct FixedAnswer {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
    /// Nothing is sent.
    is_silent: bool,
}

impl FixedAnswer {
    /// Makes the answer of a route.
    #[must_use]
    pub fn new(respond: &Respond) -> FixedAnswer {
        // The check of the configuration has done the same.
        let status = StatusCode::from_u16(respond.status).unwrap_or(StatusCode::NOT_FOUND);
        let mut headers = HeaderMap::new();
        let body = match &respond.body {
            _ if !respond.has_body() => Bytes::new(),
            Some(text) => Bytes::from(text.clone()),
            // Not all statuses have a name.
            None => Bytes::from(text_of(status).replace(" \n", "\n")),
        };
        if respond.has_body() && !respond.headers.iter().any(|(name, _)| name == CONTENT_TYPE) {
            headers.insert(CONTENT_TYPE, TEXT);
            headers.insert(X_CONTENT_TYPE_OPTIONS, NO_GUESS);
        }
        // A status without a body has no length, or one of 0 (RFC 9110, section 8.6).
        if respond.has_body() || status == StatusCode::RESET_CONTENT {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
        }
        for (name, value) in &respond.headers {
            headers.append(name, value.clone());
        }
        FixedAnswer { status, headers, body, is_silent: respond.is_silent() }
    }

    /// Returns the response to a request.
    #[must_use]
    pub fn response(&self) -> Response<Body> {
        let mut response = Response::new(Body::from(self.body.clone()));
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers.clone();
        response.extensions_mut().insert(KeepsBody);
        if self.is_silent {
            response.extensions_mut().insert(NoAnswer);
        }
        response
    }
}
