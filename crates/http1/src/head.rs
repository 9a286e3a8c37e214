//! The parts that the heads of requests and responses share: limits, room, versions and framing.

use std::mem::MaybeUninit;

use httparse::Header;
use memchr::memchr_iter;

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
