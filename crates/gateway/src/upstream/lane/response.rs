//! Reading the head of a response, if it is plainly regular.

use http::StatusCode;
use httparse::{Header, Status};

use super::buffer::SIZE;
use super::request::{Parsed, Room, has_plain_lines};

/// The extent of a body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Length {
    /// There is none, whatever the fields say.
    None,
    Known(u64),
    Chunked,
}

/// The head of a regular response.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResponseHead<'h, 'b> {
    pub(crate) status: StatusCode,
    /// All fields in their order.
    pub(crate) fields: &'h [Header<'b>],
    pub(crate) length: Length,
    /// The length that `Content-Length` says, which a response without a body may have as well.
    pub(crate) said: Option<u64>,
    /// The server wants no further request on its connection.
    pub(crate) closes: bool,
    pub(crate) has_date: bool,
    pub(crate) len: usize,
}

/// Reads the head at the beginning of some bytes, that of the response to a request.
pub(crate) fn parse<'h, 'b>(
    bytes: &'b [u8],
    is_head: bool,
    room: &'h mut Room<'b>,
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
        || !has_plain_lines(&bytes[..len])
    {
        return Parsed::Irregular;
    }
    let fields: &'h [Header<'b>] = response.headers;
    let (mut said, mut is_chunked, mut closes, mut has_date) = (None, false, false, false);
    for Header { name, value } in fields {
        match about(name.as_bytes(), value) {
            About::Nothing => {}
            About::Length(length) if said.is_none() => said = Some(length),
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
        (false, Some(length), false) => Length::Known(length),
        (false, None, true) => Length::Chunked,
    };
    // hyper leaves it out, too.
    let said = said.filter(|_| status != StatusCode::NOT_MODIFIED);
    let head = ResponseHead { status, fields, length, said, closes, has_date, len };
    Parsed::Regular(head)
}

/// The importance of a field to the lane.
enum About {
    Nothing,
    Length(u64),
    Chunked,
    Closes,
    Date,
    Irregular,
}

/// Reads a length: digits alone, and not so many that they could wrap.
pub(super) fn length(value: &[u8]) -> Option<u64> {
    let is_plain = (1..=18).contains(&value.len()) && value.iter().all(u8::is_ascii_digit);
    is_plain.then(|| value.iter().fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0')))
}

fn about(name: &[u8], value: &[u8]) -> About {
    let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
    match name.len() {
        4 if is(b"date") => About::Date,
        7 if is(b"upgrade") || is(b"trailer") => About::Irregular,
        10 if is(b"connection") => match value {
            value if value.eq_ignore_ascii_case(b"keep-alive") => About::Nothing,
            value if value.eq_ignore_ascii_case(b"close") => About::Closes,
            _ => About::Irregular,
        },
        14 if is(b"content-length") => length(value).map_or(About::Irregular, About::Length),
        17 if is(b"transfer-encoding") => match value {
            value if value.eq_ignore_ascii_case(b"chunked") => About::Chunked,
            _ => About::Irregular,
        },
        _ if name.contains(&b'_') => About::Irregular,
        _ => About::Nothing,
    }
}
