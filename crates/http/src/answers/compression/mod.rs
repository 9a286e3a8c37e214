//! The compression of answers of servers behind (`compress` in a proxy): which answers are
//! compressed, and how their fields change.
//!
//! An answer is compressed if it is text of some sort, its client accepts a coding, and nothing in
//! it speaks against that: a coding that it has already, a part of a range, `no-transform` of
//! either side (RFC 9110, section 7.7), or a digest of its bytes. Its length goes, its ETag becomes
//! weak, since other bytes have the same name now, and ranges of it are not offered. `Vary` is
//! added to each answer that might have been compressed for another client, so that caches do not
//! mix them up.
//!
//! A stream of server-sent events is never compressed. It stays open for hours, and its encoder
//! would take a hundred times the memory of the connection; its messages are short, too.
//!
//! The levels are fixed and low, as each answer is compressed again. A body that is there and short
//! is compressed at once. Others are compressed on their way ([`Compressed`]), a piece at a time
//! between the tasks of other connections. The encoders of a process have a bound of memory
//! ([`Permit`]); while it is reached, answers are passed on as they are.

mod body;
mod encoder;

use std::cmp::Reverse;

use bytes::Bytes;
use http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE,
    ETAG, VARY,
};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body::Body as _;

use self::body::Compressed;
use self::encoder::{Encoder, Permit};
use crate::body::Body;
use crate::encoding::{Accepted, Coding};
use crate::files;
use crate::head::Fields;

/// The shortest body that is compressed: below, compression saves less than a packet.
const SHORTEST: u64 = 1024;

/// The longest body in memory that is compressed at once.
const LONGEST_AT_ONCE: usize = 32 << 10;

/// The codings, those first that compress fast.
const CODINGS: [Coding; 3] = [Coding::Zstd, Coding::Brotli, Coding::Gzip];

/// The fields that say something about the bytes of a body, which compression would make wrong.
const DIGESTS: [&str; 4] = ["content-md5", "digest", "content-digest", "repr-digest"];

/// The fields of a request about the compression of its answer.
pub(crate) struct Compression {
    accepted: Accepted,
    is_head: bool,
    /// The client asks that nothing be changed.
    is_refused: bool,
}

impl Compression {
    /// Reads the fields of a request.
    pub(crate) fn new(fields: Fields<'_>, is_head: bool) -> Compression {
        let accepted = Accepted::of_values(fields.values("accept-encoding"));
        Compression { accepted, is_head, is_refused: forbids(fields) }
    }

    /// Whether a response may be another one because of it. Most others are told by these fields.
    pub(crate) fn concerns(&self, fields: Fields<'_>) -> bool {
        let is_other = |kind| !files::is_text(kind);
        let is_never = fields.value(CONTENT_TYPE.as_str()).is_some_and(is_other);
        !is_never && !fields.has(CONTENT_ENCODING.as_str())
    }

    /// Compresses the response, if that is possible and of use.
    pub(crate) fn apply(self, response: Response<Body>) -> Response<Body> {
        let (mut head, body) = response.into_parts();
        if head.status == StatusCode::NOT_MODIFIED && self.concerns(Fields::Map(&head.headers)) {
            vary(&mut head.headers);
            return Response::from_parts(head, body);
        }
        let length = body.size_hint().exact();
        let is_short = !self.is_head && length.is_some_and(|length| length < SHORTEST);
        if is_short || !is_compressible(head.status, Fields::Map(&head.headers)) {
            return Response::from_parts(head, body);
        }
        vary(&mut head.headers);
        if self.is_head || self.is_refused {
            return Response::from_parts(head, body);
        }
        let Some((coding, permit)) = self.coding() else { return Response::from_parts(head, body) };
        let Ok(encoder) = Encoder::new(coding) else { return Response::from_parts(head, body) };
        let body = match body.in_memory() {
            Some(bytes) if bytes.len() <= LONGEST_AT_ONCE => match at_once(encoder, bytes) {
                Some(shorter) => {
                    head.headers.insert(CONTENT_LENGTH, HeaderValue::from(shorter.len()));
                    Body::from(shorter)
                }
                None => return Response::from_parts(head, body),
            },
            _ => {
                head.headers.remove(CONTENT_LENGTH);
                Body::stream(Compressed::new(body, encoder, permit))
            }
        };
        head.headers.insert(CONTENT_ENCODING, HeaderValue::from_static(coding.name()));
        head.headers.remove(ACCEPT_RANGES);
        weaken(&mut head.headers);
        Response::from_parts(head, body)
    }

    /// Returns the coding that the client likes best and for which there is memory.
    fn coding(&self) -> Option<(Coding, Permit)> {
        let mut codings = CODINGS;
        codings.sort_by_key(|coding| Reverse(self.accepted.weight(*coding)));
        let accepted = codings.into_iter().filter(|coding| self.accepted.weight(*coding) > 0);
        accepted.into_iter().find_map(|coding| Some((coding, Permit::take(coding)?)))
    }
}

/// Compresses a body; `None` if it does not become shorter.
fn at_once(mut encoder: Encoder, bytes: &Bytes) -> Option<Bytes> {
    encoder.write(bytes).ok()?;
    let out = encoder.finish().ok()?;
    (out.len() < bytes.len()).then(|| out.into())
}

/// Whether Cache-Control says that nothing may be changed.
fn forbids(fields: Fields<'_>) -> bool {
    fields.has_element(CACHE_CONTROL.as_str(), b"no-transform")
}

/// Whether a response would be compressed for a client that accepts it.
fn is_compressible(status: StatusCode, fields: Fields<'_>) -> bool {
    let has_no_body = status.is_informational()
        || matches!(status, StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT);
    let is_part = status == StatusCode::PARTIAL_CONTENT || fields.has(CONTENT_RANGE.as_str());
    if has_no_body || is_part || fields.has(CONTENT_ENCODING.as_str()) || forbids(fields) {
        return false;
    }
    if DIGESTS.iter().any(|name| fields.has(name)) {
        return false;
    }
    let mut kinds = fields.values(CONTENT_TYPE.as_str());
    let (Some(kind), None) = (kinds.next(), kinds.next()) else { return false };
    let is_stream =
        kind.get(..17).is_some_and(|kind| kind.eq_ignore_ascii_case(b"text/event-stream"));
    !is_stream && files::is_text(kind)
}

/// Adds Accept-Encoding to Vary.
fn vary(headers: &mut HeaderMap) {
    let values = headers.get_all(VARY).into_iter();
    let mut words = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    let is_there = words.any(|word| {
        let word = word.trim_ascii();
        word == b"*" || word.eq_ignore_ascii_case(b"accept-encoding")
    });
    if !is_there {
        headers.append(VARY, HeaderValue::from_static("accept-encoding"));
    }
}

/// Makes the ETag weak.
fn weaken(headers: &mut HeaderMap) {
    let Some(tag) = headers.get(ETAG).filter(|tag| !tag.as_bytes().starts_with(b"W/")) else {
        return;
    };
    let weak = [b"W/", tag.as_bytes()].concat();
    match HeaderValue::from_bytes(&weak) {
        Ok(weak) => drop(headers.insert(ETAG, weak)),
        Err(_) => drop(headers.remove(ETAG)),
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, Request};

    use super::*;

    fn response(
        status: u16,
        fields: &[(&'static str, &'static str)],
        length: usize,
    ) -> Response<Body> {
        let mut response = Response::new(Body::from("text ".repeat(length / 5)));
        *response.status_mut() = StatusCode::from_u16(status).unwrap();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
        headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
        for (name, value) in fields {
            let name = HeaderName::from_static(name);
            if name == CONTENT_TYPE {
                headers.remove(CONTENT_TYPE);
            }
            headers.append(name, HeaderValue::from_static(value));
        }
        response
    }

    fn apply(
        (method, fields): (&str, &[(&str, &str)]),
        response: Response<Body>,
    ) -> Response<Body> {
        let mut request = Request::builder().method(method);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let request = request.body(()).unwrap();
        let is_head = request.method() == http::Method::HEAD;
        Compression::new(request.headers().into(), is_head).apply(response)
    }

    fn field(response: &Response<Body>, name: &str) -> String {
        let values = response.headers().get_all(name).into_iter();
        values.map(|value| value.to_str().unwrap()).collect::<Vec<_>>().join("|")
    }

    #[test]
    fn fields_follow_the_coding() {
        let plain = &[("etag", "\"a\""), ("accept-ranges", "bytes"), ("vary", "Origin")];
        for (accepted, coding) in [
            ("gzip", "gzip"),
            ("gzip, br", "br"),
            ("gzip, br, zstd", "zstd"),
            ("zstd;q=0.5, gzip", "gzip"),
        ] {
            let request = ("GET", &[("accept-encoding", accepted)][..]);
            let answer = apply(request, response(200, plain, 5000));
            assert_eq!(field(&answer, "content-encoding"), coding);
            assert_eq!(field(&answer, "etag"), "W/\"a\"");
            assert_eq!(field(&answer, "vary"), "Origin|accept-encoding");
            assert_eq!(field(&answer, "accept-ranges"), "");
            let length = answer.body().in_memory().unwrap().len();
            assert_eq!(field(&answer, "content-length"), length.to_string());
            assert!(length < 500, "{length}");
            // A body that is not compressed at once has no length.
            let answer = apply(request, response(404, plain, 100_000));
            assert_eq!(field(&answer, "content-encoding"), coding);
            assert_eq!(field(&answer, "content-length"), "");
        }
        for (tag, weak) in [("W/\"a\"", "W/\"a\""), ("a", "W/a")] {
            let request = ("GET", &[("accept-encoding", "br")][..]);
            let answer = apply(request, response(200, &[("etag", tag)], 5000));
            assert_eq!(field(&answer, "etag"), weak);
        }
    }

    #[test]
    fn an_answer_that_is_not_compressed_stays_as_it_is() {
        let gzip = ("accept-encoding", "gzip, br, zstd");
        let get = ("GET", &[gzip][..]);
        for (request, status, fields, length, varies) in [
            // Of the client.
            (("GET", &[][..]), 200, &[][..], 5000, true),
            (("GET", &[("accept-encoding", "identity")]), 200, &[], 5000, true),
            (("GET", &[("accept-encoding", "gzip;q=0")]), 200, &[], 5000, true),
            (("GET", &[gzip, ("cache-control", "no-cache, No-Transform")]), 200, &[], 5000, true),
            (("HEAD", &[gzip]), 200, &[], 5000, true),
            // Of the answer.
            (get, 200, &[], 1000, false),
            (get, 200, &[], 0, false),
            (get, 206, &[("content-range", "bytes 0-4999/9999")], 5000, false),
            (get, 204, &[], 0, false),
            (get, 304, &[], 0, true),
            (get, 200, &[("content-encoding", "gzip")], 5000, false),
            (get, 200, &[("content-encoding", "identity")], 5000, false),
            (get, 200, &[("cache-control", "max-age=1,no-transform")], 5000, false),
            (get, 200, &[("content-digest", "sha-256=:x:")], 5000, false),
            (get, 200, &[("content-md5", "x")], 5000, false),
            (get, 200, &[("content-type", "image/png")], 5000, false),
            (get, 200, &[("content-type", "text/event-stream")], 5000, false),
            (get, 200, &[("content-type", "Text/Event-Stream; charset=utf-8")], 5000, false),
            (get, 200, &[("content-type", "nonsense")], 5000, false),
            (get, 200, &[("content-type", "multipart/mixed; boundary=x")], 5000, false),
        ] {
            let before = response(status, fields, length);
            let answer = apply(request, response(status, fields, length));
            assert_eq!(
                answer.body().in_memory(),
                before.body().in_memory(),
                "{request:?} {fields:?}"
            );
            let mut headers = before.headers().clone();
            if varies {
                headers.insert(VARY, HeaderValue::from_static("accept-encoding"));
            }
            assert_eq!(*answer.headers(), headers, "{request:?} {status} {fields:?}");
        }
        // Vary says so already, or says that nothing is to be cached.
        for vary in ["*", "Origin, Accept-Encoding", "accept-encoding"] {
            let answer = apply(("GET", &[]), response(200, &[("vary", vary)], 5000));
            assert_eq!(field(&answer, "vary"), vary);
        }
    }

    #[test]
    fn text_of_all_kinds_is_compressed() {
        for kind in [
            "text/html; charset=utf-8",
            "application/json",
            "application/problem+json",
            "text/javascript",
            "application/xml",
            "image/svg+xml",
            "application/wasm",
        ] {
            let request = ("POST", &[("accept-encoding", "gzip")][..]);
            let answer = apply(request, response(500, &[("content-type", kind)], 5000));
            assert_eq!(field(&answer, "content-encoding"), "gzip", "{kind}");
        }
    }
}
