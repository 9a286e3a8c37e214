//! The requests that the lane takes.
//!
//! The codec reads all of HTTP/1, and refuses what two servers could understand differently. The
//! lane leaves those requests to handlers that it cannot answer to the end.

use superpoll_http1::{BodyReader, Field, Form, Framing, Method, Progress, RequestHead, Version};

use crate::buffer::SIZE;
use crate::upstream::strict;

/// The outcome of reading a request for the lane.
#[derive(Clone, Copy, Debug)]
pub enum Parsed<T> {
    /// More of them are needed.
    Partial,
    /// A handler answers the request.
    Irregular,
    /// The lane takes it.
    Regular(T),
}

/// Whether the lane can answer a request to the end.
pub fn is_plain(head: &RequestHead<'_>) -> bool {
    let changes_protocol = head.wants.upgrade.is_some();
    if head.len > SIZE
        || head.version == Version::Http10
        || head.target.form() != Form::Origin
        || !head.target.as_str().is_ascii()
        || matches!(head.method, Method::Connect | Method::Trace)
        || changes_protocol
        || head.wants.continues
        || strict::has_dots(head.target.path())
    {
        return false;
    }
    head.fields.iter().all(|Field { name, .. }| match name.as_bytes() {
        // Fields behind the body are passed on by handlers.
        b"trailer" => false,
        // It bounds how often the request may be forwarded.
        b"max-forwards" => head.method != Method::Options,
        _ => true,
    })
}

/// Whether a request asks for all of something, whatever the client has of it.
pub fn is_unconditional(head: &RequestHead<'_>) -> bool {
    let is_condition = |name: &[u8]| name.starts_with(b"if-") || name == b"range";
    !head.fields.iter().any(|field| is_condition(field.name.as_bytes()))
}

/// Reads the body of a request, which has to come whole and without trailers. Returns how many
/// bytes it takes.
pub(super) fn whole(framing: Framing, bytes: &[u8], mut data: impl FnMut(&[u8])) -> Parsed<usize> {
    let (mut reader, mut at) = (BodyReader::new(framing), 0);
    if reader.is_over() {
        return Parsed::Regular(0);
    }
    loop {
        let piece = match reader.step(&bytes[at..]) {
            Ok(piece) if piece.trailer.is_none() => piece,
            Ok(_) | Err(_) => return Parsed::Irregular,
        };
        data(&bytes[at..][piece.data.clone()]);
        at += piece.used;
        match piece.progress {
            Progress::Again => {}
            Progress::More => return Parsed::Partial,
            Progress::Over => return Parsed::Regular(at),
        }
    }
}
