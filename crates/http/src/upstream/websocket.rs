//! WebSockets to servers of HTTP/2 (RFC 8441).
//!
//! The rest of the gateway knows those of HTTP/1.1: a `GET` with `Upgrade` and a key, and 101 with
//! a proof of it. To a server of HTTP/2 the request is a `CONNECT` that names the protocol, and 200
//! is the server's consent.

use data_encoding::BASE64;
use h2::ext::Protocol;
use http::header::{CONTENT_LENGTH, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, UPGRADE};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};

/// The protocol that streams may change to.
const PROTOCOL: &str = "websocket";

/// The constant that makes a proof of a key (RFC 6455, section 1.3).
const PROOF: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Whether a field `Upgrade` asks for a WebSocket.
pub(super) fn is_asked_for(upgrade: &HeaderValue) -> bool {
    upgrade.as_bytes().eq_ignore_ascii_case(PROTOCOL.as_bytes())
}

/// Changes a request of HTTP/1.1 for a WebSocket into one of HTTP/2. Returns the proof that its
/// client expects; `None` if it is none (RFC 6455, section 4.1).
pub(super) fn ask<B>(request: &mut Request<B>) -> Option<HeaderValue> {
    if request.method() != Method::GET {
        return None;
    }
    *request.method_mut() = Method::CONNECT;
    request.extensions_mut().insert(Protocol::from_static(PROTOCOL));
    let key = request.headers_mut().remove(SEC_WEBSOCKET_KEY)?;
    let proof = digest(&SHA1_FOR_LEGACY_USE_ONLY, &[key.as_bytes(), PROOF].concat());
    HeaderValue::from_str(&BASE64.encode(proof.as_ref())).ok()
}

/// Changes the consent of a server into that of HTTP/1.1. Any other response stays as it is.
pub(super) fn consent<B>(response: &mut Response<B>, proof: HeaderValue) {
    if response.status() == StatusCode::OK {
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        // What follows is no body.
        response.headers_mut().remove(CONTENT_LENGTH);
        response.headers_mut().insert(UPGRADE, HeaderValue::from_static(PROTOCOL));
        response.headers_mut().insert(SEC_WEBSOCKET_ACCEPT, proof);
    }
}
