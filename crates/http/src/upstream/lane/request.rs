//! Reading the head of a request, if it is plainly regular.
//!
//! The lane takes a request only if every reader of HTTP reads it in the same way. Whatever is
//! unusual is irregular here, also where the standard allows it; hyper reads that.

use std::mem::MaybeUninit;

use http::Method;
use httparse::{Header, Status};
use memchr::memchr;

use super::MOST_FIELDS;
use super::body::Length;
use super::field::{About, Lines, Names, about};
use crate::upstream::strict;

/// The longest head that the lane takes.
pub(crate) const LONGEST_HEAD: usize = 8 << 10;

/// Room for the fields of a head. It needs no value before.
pub(crate) type Room<'b> = [MaybeUninit<Header<'b>>; MOST_FIELDS];

/// Returns room for the fields of a head.
pub const fn room<'b>() -> Room<'b> {
    [const { MaybeUninit::uninit() }; MOST_FIELDS]
}

/// The head of a regular request.
#[derive(Clone, Debug)]
pub struct RequestHead<'h, 'b> {
    /// The method.
    pub method: Method,
    /// In origin form, with its query.
    pub target: &'b str,
    path_len: usize,
    /// It may be no authority.
    pub host: &'b [u8],
    /// All fields in their order, `Host` among them.
    pub fields: &'h [Header<'b>],
    pub(super) names: Names<'h>,
    pub(crate) length: Length,
    /// The client wants no further request on its connection.
    pub closes: bool,
    /// The bytes of the head, to the end of its empty line.
    pub len: usize,
}

impl<'b> RequestHead<'_, 'b> {
    /// Returns the target without its query.
    pub fn path(&self) -> &'b str {
        &self.target[..self.path_len]
    }

    /// Whether it asks for all of something, whatever the client has of it.
    pub fn is_unconditional(&self) -> bool {
        let is_condition = |name: &str| {
            let start = name.as_bytes().first_chunk::<3>();
            start.is_some_and(|start| start.eq_ignore_ascii_case(b"if-"))
                || name.eq_ignore_ascii_case("range")
        };
        !self.fields.iter().any(|field| is_condition(field.name))
    }

    /// Returns the values of a field.
    pub fn values(&self, name: &str) -> impl Iterator<Item = &'b [u8]> {
        let fields = self.fields.iter().filter(move |field| field.name.eq_ignore_ascii_case(name));
        fields.map(|field| field.value)
    }
}

/// The first bytes of a connection, or those after a request.
#[derive(Clone, Copy, Debug)]
pub enum Parsed<T> {
    /// It may still become a regular head.
    Partial,
    /// hyper reads it.
    Irregular,
    /// The lane takes it.
    Regular(T),
}

/// Whether a target may have that byte: those of RFC 3986 (sections 3.3 and 3.4), and those that
/// clients send although they should encode them, as nginx and HAProxy pass them to servers. hyper
/// refuses some of the second kind.
const fn is_of_target(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || is_unencoded(byte)
        || matches!(
            byte,
            b'-' | b'.'
                | b'_'
                | b'~'
                | b'!'
                | b'$'
                | b'&'
                | b'\''
                | b'('
                | b')'
                | b'*'
                | b'+'
                | b','
                | b';'
                | b'='
                | b':'
                | b'@'
                | b'/'
                | b'?'
                | b'%'
        )
}

/// Whether a target should have that byte in an encoded form only, but may have it as it is.
pub const fn is_unencoded(byte: u8) -> bool {
    matches!(byte, b'"' | b'<' | b'>' | b'^' | b'`' | b'{' | b'}' | b'|' | b'[' | b']')
}

static OF_TARGET: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = is_of_target(byte as u8);
        byte += 1;
    }
    table
};

/// Returns the method, if the lane takes requests of it, and whether they may have a body. A body
/// of another method is unusual, and some servers do not read it.
fn method(name: &str) -> Option<(Method, bool)> {
    Some(match name {
        "GET" => (Method::GET, false),
        "HEAD" => (Method::HEAD, false),
        "POST" => (Method::POST, true),
        "PUT" => (Method::PUT, true),
        "PATCH" => (Method::PATCH, true),
        "DELETE" => (Method::DELETE, false),
        "OPTIONS" => (Method::OPTIONS, false),
        _ => return None,
    })
}

/// Whether some bytes may be the beginning of a head that the lane takes.
fn may_become_regular(bytes: &[u8]) -> bool {
    let starts_so = |start: &&[u8]| {
        let length = bytes.len().min(start.len());
        bytes[..length] == start[..length]
    };
    let starts: [&[u8]; 7] =
        [b"GET /", b"HEAD /", b"POST /", b"PUT /", b"PATCH /", b"DELETE /", b"OPTIONS /"];
    bytes.len() < LONGEST_HEAD && starts.iter().any(starts_so)
}

/// Reads the head at the beginning of some bytes. `lower` is for the names of its fields, and
/// empty.
pub fn parse<'h, 'b>(
    bytes: &'b [u8],
    room: &'h mut Room<'b>,
    lower: &'h mut Vec<u8>,
) -> Parsed<RequestHead<'h, 'b>> {
    let mut request = httparse::Request::new(&mut []);
    let len = match request.parse_with_uninit_headers(bytes, room) {
        Ok(Status::Complete(len)) => len,
        Ok(Status::Partial) if may_become_regular(bytes) => return Parsed::Partial,
        _ => return Parsed::Irregular,
    };
    let (Some(name), Some(target)) = (request.method, request.path) else {
        return Parsed::Irregular;
    };
    let Some((method, has_body)) = method(name) else { return Parsed::Irregular };
    let path_len = memchr(b'?', target.as_bytes()).unwrap_or(target.len());
    if len > LONGEST_HEAD
        || request.version != Some(1)
        || !target.starts_with('/')
        || !target.bytes().all(|byte| OF_TARGET[usize::from(byte)])
        || strict::has_dots(&target[..path_len])
        // An empty line may come before the request.
        || !bytes.starts_with(name.as_bytes())
    {
        return Parsed::Irregular;
    }
    let lines = Lines::new(&bytes[..len], lower);
    if !lines.are_plain {
        return Parsed::Irregular;
    }
    let fields: &'h [Header<'b>] = request.headers;
    let (mut host, mut closes, mut has_cookie) = (None, false, false);
    let (mut length, mut is_chunked) = (None, false);
    let names = lines.names;
    for field in fields {
        let value = field.value;
        match about(names.lower(field), value, &lines) {
            About::Nothing | About::Date => {}
            About::Host if host.is_none() => host = Some(value),
            About::Closes => closes = true,
            About::Cookie if !has_cookie => has_cookie = true,
            About::Length(said) if has_body && length.is_none() => length = Some(said),
            About::Chunked if has_body && !is_chunked => is_chunked = true,
            About::MaxForwards if method != Method::OPTIONS => {}
            _ => return Parsed::Irregular,
        }
    }
    let length = match (length, is_chunked) {
        (Some(_), true) => return Parsed::Irregular,
        (Some(length), false) => Length::Known(length),
        (None, true) => Length::Chunked,
        (None, false) => Length::None,
    };
    let Some(host) = host else { return Parsed::Irregular };
    Parsed::Regular(RequestHead {
        method,
        target,
        path_len,
        host,
        fields,
        names,
        length,
        closes,
        len,
    })
}
