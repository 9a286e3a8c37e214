//! The parts that the heads of requests and responses share: limits, framing, and the fields that
//! decide about the message and its connection.

use std::mem::MaybeUninit;

use httparse::Header;
use memchr::memchr_iter;

use crate::field::{Field, FieldValue};
use crate::refusal::Refusal;

/// The most fields that a head may have, whatever the limits say.
pub const MOST_FIELDS: usize = 100;

/// The limits of a head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// The most bytes of a head, empty lines before it and at its end included.
    pub head: usize,
    /// The most bytes of a target.
    pub target: usize,
    /// The most fields of a head, up to [`MOST_FIELDS`].
    pub fields: usize,
}

impl Limits {
    /// 16 KiB for a head, 8 KiB for a target (RFC 9112, section 3, asks for 8,000 bytes at least),
    /// and 100 fields.
    pub const DEFAULT: Limits = Limits { head: 16 << 10, target: 8 << 10, fields: MOST_FIELDS };
}

impl Default for Limits {
    fn default() -> Limits {
        Limits::DEFAULT
    }
}

/// Room for the fields of one head. It belongs on the stack, and costs nothing to make.
#[derive(Debug)]
pub struct Room<'b> {
    pub(crate) headers: [MaybeUninit<Header<'b>>; MOST_FIELDS],
    /// For a second attempt: the compiler cannot see that a refused first one keeps nothing.
    pub(crate) spare: [MaybeUninit<Header<'b>>; MOST_FIELDS],
    pub(crate) scratch: &'b mut Vec<u8>,
}

impl<'b> Room<'b> {
    /// Returns room that writes the names of fields in lower case to `scratch`. The vector is
    /// cleared for each head, so it can serve many.
    #[inline]
    pub fn new(scratch: &'b mut Vec<u8>) -> Room<'b> {
        Room {
            headers: [const { MaybeUninit::uninit() }; MOST_FIELDS],
            spare: [const { MaybeUninit::uninit() }; MOST_FIELDS],
            scratch,
        }
    }
}

/// The version of a message. A later minor version is read as 1.1 (RFC 9110, section 2.5).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Version {
    /// HTTP/1.0.
    Http10,
    /// HTTP/1.1.
    Http11,
}

impl Version {
    /// Returns the version with httparse's minor number.
    pub(crate) fn from_minor(minor: Option<u8>) -> Version {
        match minor {
            Some(0) => Version::Http10,
            _ => Version::Http11,
        }
    }

    pub(crate) const fn as_bytes(self) -> &'static [u8] {
        match self {
            Version::Http10 => b"HTTP/1.0",
            Version::Http11 => b"HTTP/1.1",
        }
    }
}

/// The extent of a body (RFC 9112, section 6.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Framing {
    /// There is none, whatever the fields say.
    None,
    /// So many bytes.
    Length(u64),
    /// Chunks (RFC 9112, section 7.1).
    Chunked,
    /// All bytes until the connection ends. No request has such a body.
    UntilClose,
}

/// The connection's fate after a message (RFC 9112, section 9.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum After {
    /// Another message may follow.
    Stays,
    /// The message is the last one in its direction.
    Closes,
}

/// Whether the end of a head may be among some bytes, of which the first `seen` were looked at
/// before.
///
/// A caller that gets a head byte by byte may ask this first, as reading a partial head again costs
/// as much as reading a whole one. A head that cannot be valid is then refused later.
#[must_use]
pub fn has_end(bytes: &[u8], seen: usize) -> bool {
    // The end may have begun within the last three bytes seen.
    let from = seen.min(bytes.len()).saturating_sub(3);
    memchr_iter(b'\n', &bytes[from..])
        .any(|at| matches!(bytes[from + at + 1..], [b'\n', ..] | [b'\r', b'\n', ..]))
}

/// The name of a version in a line.
pub(crate) enum Named {
    /// Too few bytes to tell.
    Partial,
    Malformed,
    /// A version of another major number.
    Unsupported,
    /// Such a version of HTTP/1 as httparse does not know, whose minor digit is at this place.
    Newer(usize),
}

/// Looks for the version that httparse has refused at a place.
pub(crate) fn named_version(bytes: &[u8], at: usize) -> Named {
    const FORM: &[u8; 8] = b"HTTP/d.d";
    let text = &bytes[at..bytes.len().min(at + FORM.len())];
    let fits = |(byte, form): (&u8, &u8)| match form {
        b'd' => byte.is_ascii_digit(),
        form => byte == form,
    };
    match (text.iter().zip(FORM).all(fits), text) {
        (false, _) => Named::Malformed,
        (true, [_, _, _, _, _, b'1', _, _]) => Named::Newer(at + 7),
        (true, text) if text.len() == FORM.len() => Named::Unsupported,
        (true, _) => Named::Partial,
    }
}

/// Copies a head whose minor version is newer, as HTTP/1.1, twice: to be read, and for the names.
pub(crate) fn as_http11<'b>(
    view: &[u8],
    minor: usize,
    scratch: &'b mut Vec<u8>,
) -> (&'b [u8], &'b mut [u8]) {
    scratch.extend_from_slice(view);
    scratch[minor] = b'1';
    scratch.extend_from_within(..);
    let (head, lower) = scratch.split_at_mut(view.len());
    (head, lower)
}

/// The facts in a head's fields that decide about the message and its connection.
#[derive(Default)]
pub(crate) struct Facts<'b> {
    pub(crate) host: Option<FieldValue<'b>>,
    pub(crate) has_more_hosts: bool,
    pub(crate) length: Option<u64>,
    codings: usize,
    ends_with_chunked: bool,
    closes: bool,
    keeps_alive: bool,
    names_upgrade: bool,
    upgrade: Option<FieldValue<'b>>,
    has_more_upgrades: bool,
    pub(crate) continues: bool,
    pub(crate) has_other_expectation: bool,
    pub(crate) takes_trailers: bool,
}

impl<'b> Facts<'b> {
    /// Takes the next field of a head.
    #[inline]
    pub(crate) fn add(&mut self, Field { name, value }: Field<'b>) -> Result<(), Refusal> {
        let text = value.as_bytes();
        // Most names begin otherwise, and need no comparison.
        if !matches!(name.as_bytes(), [b'c' | b'e' | b'h' | b't' | b'u', ..]) {
            return Ok(());
        }
        match name.as_bytes() {
            b"host" => match self.host {
                None => self.host = Some(value),
                Some(_) => self.has_more_hosts = true,
            },
            b"content-length" => {
                let length = length(text).ok_or(Refusal::LengthInvalid)?;
                if self.length.is_some_and(|before| before != length) {
                    return Err(Refusal::LengthsDiffer);
                }
                self.length = Some(length);
            }
            b"transfer-encoding" => {
                for coding in value.elements() {
                    self.codings = self.codings.saturating_add(1);
                    self.ends_with_chunked = coding.eq_ignore_ascii_case(b"chunked");
                }
            }
            b"connection" => value.elements().for_each(|option| self.add_option(option)),
            b"upgrade" => match self.upgrade {
                None => self.upgrade = Some(value),
                Some(_) => self.has_more_upgrades = true,
            },
            b"expect" => match text.eq_ignore_ascii_case(b"100-continue") {
                true => self.continues = true,
                false => self.has_other_expectation = true,
            },
            b"te" => {
                let mut elements = value.elements();
                self.takes_trailers |=
                    elements.any(|element| element.eq_ignore_ascii_case(b"trailers"));
            }
            _ => {}
        }
        Ok(())
    }

    fn add_option(&mut self, option: &[u8]) {
        self.closes |= option.eq_ignore_ascii_case(b"close");
        self.keeps_alive |= option.eq_ignore_ascii_case(b"keep-alive");
        self.names_upgrade |= option.eq_ignore_ascii_case(b"upgrade");
    }

    /// Whether the message has a transfer coding; `chunked` is the only one that is supported.
    ///
    /// # Errors
    ///
    /// If there are others, or in HTTP/1.0 (RFC 9112, section 6.1).
    pub(crate) fn is_chunked(&self, version: Version) -> Result<bool, Refusal> {
        match (self.codings, self.ends_with_chunked) {
            (0, _) => Ok(false),
            _ if version == Version::Http10 => Err(Refusal::CodingInOldVersion),
            (_, false) => Err(Refusal::CodingNotChunked),
            (1, true) => Ok(true),
            (_, true) => Err(Refusal::CodingUnsupported),
        }
    }

    /// Returns the connection's fate, as far as `Connection` decides; any `close` wins.
    pub(crate) fn after(&self, version: Version) -> After {
        match (self.closes, version, self.keeps_alive) {
            (true, ..) | (false, Version::Http10, false) => After::Closes,
            (false, Version::Http11, _) | (false, Version::Http10, true) => After::Stays,
        }
    }

    /// Returns the one `Upgrade` field, if `Connection` names it (RFC 9110, section 7.8).
    pub(crate) fn upgrade(&self) -> Option<FieldValue<'b>> {
        let is_one = self.names_upgrade && !self.has_more_upgrades;
        self.upgrade.filter(|value| is_one && !value.as_bytes().is_empty())
    }
}

/// Reads a length: digits alone, below 2^63.
fn length(value: &[u8]) -> Option<u64> {
    let add = |sum: u64, digit: &u8| {
        let digit = u64::from(digit.is_ascii_digit().then(|| digit - b'0')?);
        sum.checked_mul(10)?.checked_add(digit).filter(|sum| *sum <= i64::MAX as u64)
    };
    if value.is_empty() { None } else { value.iter().try_fold(0, add) }
}

/// The bytes of a host's name (RFC 3986, section 3.2.2). No name that can be looked up has an
/// escape or a comma; an escape would be another way to write the same name, and a comma would make
/// a list of it in fields like `X-Forwarded-Host`.
static OF_HOST: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        let one = byte as u8;
        table[byte] = one.is_ascii_alphanumeric()
            || matches!(one, b'-' | b'.' | b'_' | b'~' | b'!' | b'$' | b'&' | b'\'')
            || matches!(one, b'(' | b')' | b'*' | b'+' | b';' | b'=');
        byte += 1;
    }
    table
};

/// A host with an optional port (RFC 3986, section 3.2), without the name of a user (RFC 9110,
/// section 4.2.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Authority<'b> {
    text: &'b str,
    host: &'b str,
    port: Option<u16>,
}

impl<'b> Authority<'b> {
    /// Reads an authority; `None` if it is malformed.
    #[must_use]
    pub fn new(bytes: &'b [u8]) -> Option<Authority<'b>> {
        let text = std::str::from_utf8(bytes).ok()?;
        let (host, rest) = match text.strip_prefix('[') {
            Some(rest) => {
                let (address, rest) = rest.split_once(']')?;
                address.parse::<std::net::Ipv6Addr>().ok()?;
                (address, rest)
            }
            None => {
                let end = bytes.iter().position(|byte| !OF_HOST[usize::from(*byte)]);
                text.split_at_checked(end.unwrap_or(bytes.len()))
                    .filter(|(host, _)| !host.is_empty())?
            }
        };
        let port = match rest.as_bytes() {
            [] | [b':'] => None,
            [b':', digits @ ..] => Some(port(digits)?),
            _ => return None,
        };
        Some(Authority { text, host, port })
    }

    /// Returns the authority as it came.
    #[must_use]
    pub const fn as_str(&self) -> &'b str {
        self.text
    }

    /// Returns the host: a name, or an address without brackets.
    #[must_use]
    pub const fn host(&self) -> &'b str {
        self.host
    }

    /// Returns the port, if there is one.
    #[must_use]
    pub const fn port(&self) -> Option<u16> {
        self.port
    }

    /// Returns the authority as the value of a field, `Host` for example.
    #[must_use]
    pub const fn to_value(self) -> FieldValue<'b> {
        FieldValue::from_checked(self.text.as_bytes())
    }
}

/// Reads a port: digits alone, which may begin with zeros.
fn port(digits: &[u8]) -> Option<u16> {
    let add = |port: u16, digit: &u8| {
        let digit = digit.is_ascii_digit().then(|| digit - b'0')?;
        port.checked_mul(10)?.checked_add(u16::from(digit))
    };
    digits.iter().try_fold(0, add)
}
