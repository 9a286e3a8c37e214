//! Pages of other sites (CORS): the fields that let their scripts use a channel.

use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ALLOW,
    VARY,
};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use superpoll_http::body::Body;
use superpoll_http::reply;

/// The methods of a channel.
pub(super) const METHODS: &str = "GET, HEAD, OPTIONS, POST";

/// The fields of responses that a page of another site may read.
const EXPOSED: &str = "channel-next, channel-epoch, channel-subscribers, last-event-id, link, \
                       retry-after, www-authenticate";

/// The fields of requests that a page of another site may send.
const SENT: &str = "authorization, cache-control, channel-event, channel-ttl, content-type, \
                    idempotency-key, last-event-id";

/// The seconds for which a browser may keep the answer to a preflight.
const PREFLIGHT: &str = "600";

/// The page of another site that may use a channel.
#[derive(Clone)]
pub(super) struct ForeignPage {
    pub origin: HeaderValue,
    /// Whether it may do so with the cookies of its visitor.
    pub has_cookies: bool,
}

impl ForeignPage {
    /// Lets the page read a response.
    pub(super) fn allow(self, headers: &mut HeaderMap) {
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, self.origin);
        headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED));
        headers.insert(VARY, HeaderValue::from_static("origin"));
        if self.has_cookies {
            let allowed = HeaderValue::from_static("true");
            headers.insert(ACCESS_CONTROL_ALLOW_CREDENTIALS, allowed);
        }
    }
}

/// Refuses the page of another site that a channel does not know. The response names both sites: a
/// proxy that does not pass the `Host` of its client on makes a page of the own site look like one
/// of another.
pub(super) fn refuse(channel: &str, origin: &HeaderValue, asked: Option<&str>) -> Response<Body> {
    let origin = String::from_utf8_lossy(origin.as_bytes());
    let host = asked.unwrap_or("");
    let text = format!(
        "pages of other sites may use {channel} if its origins name them: this page is of \
         {origin:?}, and its request arrived for the host {host:?}. If these are the same site, \
         have the proxy before this server pass the client's Host on\n"
    );
    reply::text(StatusCode::FORBIDDEN, text)
}

/// Names the permitted requests, which browsers ask for before they send more than a form could.
pub(super) fn preflight() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    headers.insert(ALLOW, HeaderValue::from_static(METHODS));
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(METHODS));
    headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static(SENT));
    headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static(PREFLIGHT));
    response
}
