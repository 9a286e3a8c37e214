//! Reading the head of a response, if it is plainly regular.

use http::StatusCode;
use httparse::{Header, Status};

use super::body::Length;
use super::buffer::SIZE;
use super::field::{About, Lines, Names, about};
use super::request::{Parsed, Room};

/// The head of a regular response.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResponseHead<'h, 'b> {
    pub(crate) status: StatusCode,
    /// All fields in their order.
    pub(crate) fields: &'h [Header<'b>],
    pub(super) names: Names<'h>,
    pub(crate) length: Length,
    /// The value of `Content-Length`, which a response without a body may have as well.
    pub(crate) said: Option<&'b [u8]>,
    /// The server wants no further request on its connection.
    pub(crate) closes: bool,
    pub(crate) has_date: bool,
    pub(crate) len: usize,
}

/// Reads the head at the beginning of some bytes, that of the response to a request. `lower` is for
/// the names of its fields, and empty.
pub(crate) fn parse<'h, 'b>(
    bytes: &'b [u8],
    is_head: bool,
    room: &'h mut Room<'b>,
    lower: &'h mut Vec<u8>,
) -> Parsed<ResponseHead<'h, 'b>> {
    let mut response = httparse::Response::new(&mut []);
    let config = httparse::ParserConfig::default();
    let len = match config.parse_response_with_uninit_headers(&mut response, bytes, room) {
        Ok(Status::Complete(len)) => len,
        Ok(Status::Partial) if bytes.len() < SIZE => return Parsed::Partial,
        _ => return Parsed::Irregular,
    };
    let status = response.code.and_then(|code| StatusCode::from_u16(code).ok());
    let Some(status) = status.filter(|status| (200..600).contains(&status.as_u16())) else {
        return Parsed::Irregular;
    };
    if response.version != Some(1)
        || response.reason != status.canonical_reason()
        || !bytes.starts_with(b"HTTP/1.1 ")
    {
        return Parsed::Irregular;
    }
    let lines = Lines::new(&bytes[..len], lower);
    if !lines.are_plain {
        return Parsed::Irregular;
    }
    let fields: &'h [Header<'b>] = response.headers;
    let (mut said, mut is_chunked, mut closes) = (None, false, false);
    let (mut has_date, mut has_cookie) = (false, false);
    let names = lines.names;
    for field in fields {
        let value = field.value;
        match about(names.lower(field), value, &lines) {
            About::Nothing | About::MaxForwards => {}
            // hyper joins several.
            About::Cookie if !has_cookie => has_cookie = true,
            About::Length(length) if said.is_none() => said = Some((length, value)),
            About::Chunked if !is_chunked => is_chunked = true,
            About::Closes => closes = true,
            About::Date if !has_date => has_date = true,
            _ => return Parsed::Irregular,
        }
    }
    let has_none = is_head || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let length = match (has_none, said, is_chunked) {
        (_, Some(_), true) | (true, _, true) | (false, None, false) => return Parsed::Irregular,
        // hyper would say how long a body is that nobody knows.
        (true, None, _) if is_head => return Parsed::Irregular,
        (true, ..) if status == StatusCode::NO_CONTENT && said.is_some() => {
            return Parsed::Irregular;
        }
        (true, ..) => Length::None,
        (false, Some((length, _)), false) => Length::Known(length),
        (false, None, true) => Length::Chunked,
    };
    // hyper leaves it out, too.
    let said = said.map(|(_, text)| text).filter(|_| status != StatusCode::NOT_MODIFIED);
    let head = ResponseHead { status, fields, names, length, said, closes, has_date, len };
    Parsed::Regular(head)
}
