//! Responses of the admin listener.

use http::header::{ALLOW, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Response, StatusCode};
use serde::Serialize;
use serde_json::json;

use crate::admin::{Refusal, RefusalReason};
use crate::body::Body;
use crate::reply;

/// The paths, for people.
const INDEX: &str = "\
superpoll: the admin listener

GET    /metrics
GET    /healthz
GET    /readyz
GET    /_superpoll/
GET    /api/status
GET    /api/upstreams
GET    /api/upstreams/NAME
PATCH  /api/upstreams/NAME/servers/ADDRESS   {\"state\": \"up\", \"down\" or \"drain\", \"weight\": N or null}
GET    /api/connections                      ?client=IP[:PORT] &parked=true|false &limit=N
DELETE /api/connections                      ?client=IP[:PORT]
GET    /api/channels                         ?after=KEY &limit=N
GET    /api/log
PUT    /api/log                              {\"level\": \"info\", \"notice\", \"warning\", \"error\" or null}
POST   /api/reload
POST   /api/drain
";

/// Returns the list of paths.
pub(super) fn index() -> Response<Body> {
    reply::text(StatusCode::OK, INDEX)
}

/// Returns a value in JSON.
pub(super) fn json(status: StatusCode, value: &impl Serialize) -> Response<Body> {
    // These types have no map with other keys than texts.
    let mut text = serde_json::to_string_pretty(value).unwrap_or_default();
    text.push('\n');
    let length = HeaderValue::from(text.len());
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CONTENT_LENGTH, length);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// Returns an error, with the reason and the expected value.
pub(super) fn refuse(status: StatusCode, error: impl Into<String>) -> Response<Body> {
    json(status, &json!({ "error": error.into() }))
}

/// Returns the answer to a method that the path does not have.
pub(super) fn not_allowed(allowed: &'static str) -> Response<Body> {
    let what = format!("the path does not have this method, expected {allowed}");
    let mut response = refuse(StatusCode::METHOD_NOT_ALLOWED, what);
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    response
}

/// Returns the answer for a refusal.
pub(super) fn refusal(refusal: Refusal) -> Response<Body> {
    let status = match refusal.reason {
        RefusalReason::NotFound => StatusCode::NOT_FOUND,
        RefusalReason::Invalid => StatusCode::BAD_REQUEST,
        RefusalReason::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
    };
    refuse(status, refusal.message)
}
