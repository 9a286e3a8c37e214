//! A request for a WebSocket on a stream of HTTP/2 (RFC 8441), and the response to it.
//!
//! The rest of the server, and the servers behind it, know WebSockets of HTTP/1.1 only. So the
//! request, a `CONNECT` with the pseudo-field `:protocol`, becomes a `GET` with `Upgrade` and with
//! a key that is made here, and the answer 101 to it becomes 200.
//!
//! An answer that says no is passed on. An answer that says yes without having changed the
//! protocol, such as a file or the page of a server that ignores `Upgrade`, becomes 501: on such a
//! stream, 200 means that WebSocket has begun.

use std::cell::RefCell;
use std::rc::Rc;

use http::header::{
    CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use superpoll_http::body::Body;
use superpoll_http::exchange::Plan;
use superpoll_http::reply;
use tungstenite::handshake::client::generate_key;
use tungstenite::handshake::derive_accept_key;

/// The protocol that streams may change to.
const PROTOCOL: &str = "websocket";

/// A request for a WebSocket on a stream.
pub(super) struct Handshake {
    /// The plan of the service for the stream.
    pub plan: Rc<RefCell<Option<Plan>>>,
    /// The proof that the other side has understood the request.
    pub accept: String,
}

impl Handshake {
    /// Changes a request for a protocol into one of HTTP/1.1, if the protocol is WebSocket.
    pub(super) fn of<B>(protocol: &str, request: &mut Request<B>) -> Option<Box<Handshake>> {
        if !protocol.eq_ignore_ascii_case(PROTOCOL) {
            return None;
        }
        let key = generate_key();
        let accept = derive_accept_key(key.as_bytes());
        *request.method_mut() = Method::GET;
        let headers = request.headers_mut();
        headers.remove(TRANSFER_ENCODING);
        headers.insert(UPGRADE, HeaderValue::from_static(PROTOCOL));
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(SEC_WEBSOCKET_KEY, HeaderValue::from_str(&key).ok()?);
        Some(Box::new(Handshake { plan: Rc::default(), accept }))
    }
}

/// Changes the response to a handshake of HTTP/1.1 into that of a stream.
pub(super) fn response(mut response: Response<Body>, accept: &str) -> Response<Body> {
    let status = response.status();
    if status == StatusCode::SWITCHING_PROTOCOLS {
        let headers = response.headers_mut();
        let proof = headers.remove(SEC_WEBSOCKET_ACCEPT);
        if proof.is_none_or(|proof| proof.as_bytes() != accept.as_bytes()) {
            return reply::status(StatusCode::BAD_GATEWAY);
        }
        headers.remove(CONNECTION);
        headers.remove(UPGRADE);
        *response.status_mut() = StatusCode::OK;
    } else if status.is_success() || status.is_informational() {
        let text = "there is no WebSocket at this path\n";
        return reply::text(StatusCode::NOT_IMPLEMENTED, text);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(status: u16, accept: Option<&'static str>) -> Response<Body> {
        let mut answer = Response::new(Body::empty());
        *answer.status_mut() = StatusCode::from_u16(status).unwrap();
        let headers = answer.headers_mut();
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert("sec-websocket-protocol", HeaderValue::from_static("chat"));
        if let Some(accept) = accept {
            headers.insert(SEC_WEBSOCKET_ACCEPT, HeaderValue::from_static(accept));
        }
        response(answer, "proof")
    }

    #[test]
    fn only_a_proven_change_of_protocol_is_a_success() {
        let answer = answered(101, Some("proof"));
        assert_eq!(answer.status(), 200);
        let names: Vec<&str> = answer.headers().keys().map(http::HeaderName::as_str).collect();
        assert_eq!(names, ["sec-websocket-protocol"]);
        for (status, accept, expected) in [
            (101, None, 502),
            (101, Some("another"), 502),
            (200, Some("proof"), 501),
            (204, None, 501),
            (103, None, 501),
            (307, None, 307),
            (403, None, 403),
            (426, None, 426),
            (503, None, 503),
        ] {
            assert_eq!(answered(status, accept).status(), expected, "{status}");
        }
    }
}
