//! Strictness: requests that two servers may understand in two ways are not forwarded.
//!
//! Request smuggling needs a proxy and a server that disagree about the end of a request, or about
//! its target. Most of it cannot happen here by construction: the codec reads a request into its
//! parts and refuses what could be read in two ways, and it writes another one from those
//! (`superpoll_http1`). HTTP/2 has no framing that could be read differently.
//!
//! This module refuses requests that the codecs accept and a server might read differently:
//!
//! - dots as a part of the path, plain or percent-encoded: routes are found by the path as it is
//!   written, and a server that resolves `/a/../b` would answer for a path that the route does not
//!   have.
//! - fields with an underscore that stand for an important field: CGI and its successors call
//!   `X_Forwarded_For` and `X-Forwarded-For` the same. They are left out; see
//!   [`fields`](super::fields).
//! - an upgrade to HTTP/2 (`h2c`), in which requests would go past the routes: the field is left
//!   out.
//! - expectations of HTTP/2 other than `100-continue` (RFC 9110, section 10.1.1: 417). The codec
//!   refuses those of HTTP/1, as it does codings in addition to `chunked`, in requests and
//!   responses.

use http::StatusCode;
use http::header::EXPECT;
use http::request::Parts;
use memchr::memchr2;

/// Checks that all servers understand a request in the same way; the error is the status to answer
/// with.
pub(super) fn check(head: &Parts) -> Result<(), StatusCode> {
    let mut expectations = head.headers.get_all(EXPECT).into_iter();
    if expectations.any(|field| !field.as_bytes().eq_ignore_ascii_case(b"100-continue")) {
        return Err(StatusCode::EXPECTATION_FAILED);
    }
    if has_dots(head.uri.path()) {
        return Err(StatusCode::BAD_REQUEST);
    }
    Ok(())
}

/// Whether a part of the path is one or two dots.
pub(super) fn has_dots(path: &str) -> bool {
    // Few paths have a part that begins so, and few bytes are enough to find out.
    if memchr2(b'.', b'%', path.as_bytes()).is_none() {
        return false;
    }
    let begins = |pair: &[u8]| matches!(pair, [b'/' | b'\\', b'.' | b'%']);
    if !path.as_bytes().windows(2).any(begins) {
        return false;
    }
    path.split(['/', '\\']).any(|part| {
        let part = part.split(';').next().unwrap_or(part).as_bytes();
        let mut rest = part;
        let mut dots = 0;
        while !rest.is_empty() {
            let length = match rest {
                [b'.', ..] => 1,
                [b'%', b'2', b'e' | b'E', ..] => 3,
                _ => return false,
            };
            rest = &rest[length..];
            dots += 1;
        }
        dots == 1 || dots == 2
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    fn checked(request: http::request::Builder) -> Result<(), StatusCode> {
        check(&request.body(()).unwrap().into_parts().0)
    }

    #[test]
    fn dots_are_found_however_they_are_written() {
        for path in [
            "/..",
            "/a/../b",
            "/a/.",
            "/%2e%2E/b",
            "/a/.%2e",
            "/..;x=1/b",
            "/./b",
            "/a\\..\\b/.x",
            "/a\\..\\b",
            "/a\\%2e%2e",
        ] {
            assert!(has_dots(path), "{path}");
        }
        for path in ["/", "/a..b", "/.well-known/a", "/...", "/a/%2ex", "/%2f", "/a.b/c"] {
            assert!(!has_dots(path), "{path}");
        }
    }

    #[test]
    fn only_unambiguous_requests_pass() {
        let of = |name: &str, value: &str| checked(Request::post("/a").header(name, value));
        assert_eq!(of("expect", "100-Continue"), Ok(()));
        assert_eq!(of("expect", "more"), Err(StatusCode::EXPECTATION_FAILED));
    }
}
