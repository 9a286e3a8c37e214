//! Reading the head of a request, if it is plainly regular.
//!
//! The lane takes a request only if every reader of HTTP reads it in the same way. Whatever is
//! unusual is irregular here, also where the standard allows it; hyper reads that.

use std::mem::MaybeUninit;

use httparse::{Header, Status};
use memchr::memchr_iter;

use super::MOST_FIELDS;
use crate::authority::Authority;
use crate::upstream::strict;

/// The longest head that the lane takes.
pub(crate) const LONGEST_HEAD: usize = 8 << 10;

/// Room for the fields of a head. It needs no value before.
pub(crate) type Room<'b> = [MaybeUninit<Header<'b>>; MOST_FIELDS];

/// Returns room for the fields of a head.
pub(crate) const fn room<'b>() -> Room<'b> {
    [const { MaybeUninit::uninit() }; MOST_FIELDS]
}

/// The head of a regular request, which has no body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestHead<'h, 'b> {
    /// HEAD; otherwise it is GET.
    pub(crate) is_head: bool,
    /// In origin form, with its query.
    pub(crate) target: &'b str,
    pub(crate) host: &'b [u8],
    /// All fields in their order, `Host` among them.
    pub(crate) fields: &'h [Header<'b>],
    /// The client wants no further request on its connection.
    pub(crate) closes: bool,
    /// The bytes of the head, to the end of its empty line.
    pub(crate) len: usize,
}

impl<'b> RequestHead<'_, 'b> {
    /// Returns the target without its query.
    pub(crate) fn path(&self) -> &'b str {
        path(self.target)
    }
}

fn path(target: &str) -> &str {
    target.split_once('?').map_or(target, |(path, _)| path)
}

/// The first bytes of a connection, or those behind a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Parsed<T> {
    /// It may still become a regular head.
    Partial,
    /// hyper reads it.
    Irregular,
    Regular(T),
}

/// Whether a target may have that byte (RFC 3986, section 3.3 and 3.4).
const fn is_of_target(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
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

static OF_TARGET: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = is_of_target(byte as u8);
        byte += 1;
    }
    table
};

/// Whether all lines of a head end with CR and LF, and there is no other CR, LF or NUL.
pub(super) fn has_plain_lines(head: &[u8]) -> bool {
    let mut lines = 0;
    for end in memchr_iter(b'\n', head) {
        if end == 0 || head[end - 1] != b'\r' {
            return false;
        }
        lines += 1;
    }
    memchr_iter(b'\r', head).count() == lines && !head.contains(&0)
}

/// Whether some bytes may be the beginning of a head that the lane takes.
fn may_become_regular(bytes: &[u8]) -> bool {
    let starts_so = |start: &[u8]| {
        let length = bytes.len().min(start.len());
        bytes[..length] == start[..length]
    };
    bytes.len() < LONGEST_HEAD && (starts_so(b"GET /") || starts_so(b"HEAD /"))
}

/// Reads the head at the beginning of some bytes.
pub(crate) fn parse<'h, 'b>(
    bytes: &'b [u8],
    room: &'h mut Room<'b>,
) -> Parsed<RequestHead<'h, 'b>> {
    let mut request = httparse::Request::new(&mut []);
    let len = match request.parse_with_uninit_headers(bytes, room) {
        Ok(Status::Complete(len)) => len,
        Ok(Status::Partial) if may_become_regular(bytes) => return Parsed::Partial,
        _ => return Parsed::Irregular,
    };
    let is_head = match request.method {
        Some("GET") => false,
        Some("HEAD") => true,
        _ => return Parsed::Irregular,
    };
    let Some(target) = request.path else { return Parsed::Irregular };
    if len > LONGEST_HEAD
        || request.version != Some(1)
        || !target.starts_with('/')
        || !target.bytes().all(|byte| OF_TARGET[usize::from(byte)])
        || strict::has_dots(path(target))
        || !has_plain_lines(&bytes[..len])
        // An empty line may come before the request.
        || !bytes.starts_with(if is_head { b"HEAD " } else { b"GET " })
    {
        return Parsed::Irregular;
    }
    let fields: &'h [Header<'b>] = request.headers;
    let (mut host, mut closes, mut has_cookie) = (None, false, false);
    for Header { name, value } in fields {
        match about(name.as_bytes(), value) {
            About::Nothing => {}
            About::Host if host.is_none() => host = Some(*value),
            About::Closes => closes = true,
            About::Cookie if !has_cookie => has_cookie = true,
            About::Host | About::Cookie | About::Irregular => return Parsed::Irregular,
        }
    }
    match host.filter(|host| Authority::parse(host).is_some()) {
        Some(host) => Parsed::Regular(RequestHead { is_head, target, host, fields, closes, len }),
        None => Parsed::Irregular,
    }
}

/// The importance of a field to the lane.
enum About {
    Nothing,
    Host,
    Cookie,
    /// `Connection: close`.
    Closes,
    Irregular,
}

/// Looks at a field. A name with an underscore may stand for another field to a server.
fn about(name: &[u8], value: &[u8]) -> About {
    let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
    match name.len() {
        2 if is(b"te") => About::Irregular,
        4 if is(b"host") => About::Host,
        6 if is(b"cookie") => About::Cookie,
        6 if is(b"expect") => About::Irregular,
        7 if is(b"upgrade") || is(b"trailer") => About::Irregular,
        10 if is(b"connection") => match value {
            value if value.eq_ignore_ascii_case(b"keep-alive") => About::Nothing,
            value if value.eq_ignore_ascii_case(b"close") => About::Closes,
            _ => About::Irregular,
        },
        14 if is(b"content-length") || is(b"http2-settings") => About::Irregular,
        16 if is(b"proxy-connection") => About::Irregular,
        17 if is(b"transfer-encoding") => About::Irregular,
        _ if name.contains(&b'_') => About::Irregular,
        _ => About::Nothing,
    }
}
