//! Hosts that are served over encrypted connections only, and redirects.
//!
//! A request of such a host that is not encrypted is answered with 308 and the same URL under
//! `https`, so that its method and its body stay. One kind of request is served as it is: that of a
//! certificate authority which validates the host by HTTP-01 (RFC 8555, section 8.3), because it
//! may come before there is a certificate. Programs on this machine also keep their access to the
//! metrics and the live page, which no other client has without encryption.

use http::header::LOCATION;
use http::{HeaderValue, Response, StatusCode};
use superpoll_http::authority;
use superpoll_http::body::Body;
use superpoll_http::head::Head;
use superpoll_http::reply;

use crate::config::{Address, Host, RedirectTarget};

/// The path of the answers to a certificate authority.
const VALIDATION: &str = "/.well-known/acme-challenge/";

/// The text for a client that names no host, which a redirect needs.
const HOST_IS_MISSING: &str = "400 Bad Request: the request names no host, and the place that it \
                               is redirected to depends on the host\n";

/// The rule of a host that is served over encrypted connections only.
pub(super) struct HttpsRule {
    to: RedirectTarget,
    hsts: Option<HeaderValue>,
}

impl HttpsRule {
    /// Returns the rule of a host. `encrypted` are the encrypted listeners and their ports.
    pub(super) fn for_host(host: &Host, encrypted: &[(Address, u16)]) -> Option<HttpsRule> {
        let https = host.https?;
        let serves = |address| host.listeners.is_empty() || host.listeners.contains(address);
        let ports = encrypted.iter().filter(|(address, _)| serves(address)).map(|(_, port)| *port);
        // The usual port if there is a choice; else the first.
        let port = ports.clone().find(|port| *port == 443).or(ports.clone().next());
        let hsts = https.hsts.map(|time| format!("max-age={}", time.as_secs()));
        Some(HttpsRule {
            to: RedirectTarget::encrypted(port.unwrap_or(443)),
            hsts: hsts.and_then(|text| HeaderValue::try_from(text).ok()),
        })
    }

    /// Redirects a request that is not encrypted.
    pub(super) fn redirect(&self, head: Head<'_>) -> Response<Body> {
        redirect(&self.to, StatusCode::PERMANENT_REDIRECT, head)
    }

    /// Returns the value of `Strict-Transport-Security`, for hosts that may have one.
    pub(super) fn hsts(&self) -> Option<HeaderValue> {
        self.hsts.clone()
    }

    /// Returns that value for the answer to an encrypted request.
    pub(super) fn hsts_for(&self, head: Head<'_>) -> Option<HeaderValue> {
        let host = authority::of_request(head, true).ok().flatten()?;
        self.hsts.clone().filter(|_| host.may_have_hsts())
    }
}

/// Whether a path is that of the validation of a host: the fixed path and a token.
pub(super) fn is_validation(path: &str) -> bool {
    let is_of_token = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let token = path.strip_prefix(VALIDATION);
    token.is_some_and(|token| !token.is_empty() && token.bytes().all(is_of_token))
}

/// Redirects a request.
pub(super) fn redirect(to: &RedirectTarget, status: StatusCode, head: Head<'_>) -> Response<Body> {
    let host = authority::of_request(head, true).ok().flatten();
    if to.needs_host() && host.is_none() {
        return reply::text(StatusCode::BAD_REQUEST, HOST_IS_MISSING);
    }
    let Some(to) = to.of(host, (head.path, head.query)) else {
        return reply::status(StatusCode::BAD_REQUEST);
    };
    let mut response = reply::status(status);
    response.headers_mut().insert(LOCATION, to);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tokens_are_validations() {
        assert!(is_validation("/.well-known/acme-challenge/abc_DEF-1"));
        for path in [
            "/.well-known/acme-challenge/",
            "/.well-known/acme-challenge",
            "/.well-known/acme-challenge/../x",
            "/.well-known/acme-challenge/a/b",
            "/.well-known/acme-challenge/%61",
            "/x/.well-known/acme-challenge/a",
        ] {
            assert!(!is_validation(path), "{path}");
        }
    }
}
