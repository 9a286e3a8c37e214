//! The importance of a field to the lane, and the lines of a head.

use httparse::Header;

use super::body::length;

/// The importance of a field.
pub(super) enum About {
    Nothing,
    Host,
    Cookie,
    Date,
    /// `Content-Length`, one plain number.
    Length(u64),
    /// `Transfer-Encoding: chunked`.
    Chunked,
    /// `Connection: close`.
    Closes,
    /// It bounds how often OPTIONS may be forwarded.
    MaxForwards,
    Irregular,
}

/// Looks at a field, whose name is in lower case.
pub(super) fn about(name: &[u8], value: &[u8], lines: &Lines) -> About {
    match name {
        b"host" => About::Host,
        b"date" => About::Date,
        b"cookie" => About::Cookie,
        b"te" | b"expect" | b"upgrade" | b"trailer" | b"http2-settings" | b"proxy-connection" => {
            About::Irregular
        }
        b"connection" => match value {
            value if value.eq_ignore_ascii_case(b"keep-alive") => About::Nothing,
            value if value.eq_ignore_ascii_case(b"close") => About::Closes,
            _ => About::Irregular,
        },
        b"max-forwards" => About::MaxForwards,
        b"content-length" => length(value).map_or(About::Irregular, About::Length),
        b"transfer-encoding" => match value {
            value if value.eq_ignore_ascii_case(b"chunked") => About::Chunked,
            _ => About::Irregular,
        },
        // Such a name may stand for another field to a server.
        _ if lines.have_underscore && name.contains(&b'_') => About::Irregular,
        _ => About::Nothing,
    }
}

/// A head in lower case, which has the names of its fields at the same places.
///
/// All of a head at once takes less time than its names one by one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Names<'h> {
    lower: &'h [u8],
    /// The address of the head.
    head: usize,
}

impl<'h> Names<'h> {
    /// Writes the head in lower case to `lower`, which is empty.
    pub(super) fn of(head: &[u8], lower: &'h mut Vec<u8>) -> Names<'h> {
        lower.extend(head.iter().map(u8::to_ascii_lowercase));
        Names { lower, head: head.as_ptr().addr() }
    }

    /// Returns the name of one of the head's fields in lower case.
    pub(super) fn lower(&self, field: &Header<'_>) -> &'h [u8] {
        let start = field.name.as_ptr().addr().wrapping_sub(self.head);
        let found = self.lower.get(start..start.wrapping_add(field.name.len()));
        // A name that is not of this head is no name.
        found.unwrap_or(b"connection")
    }
}

/// The lines of a head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Lines {
    /// All end with CR and LF, and there is no other CR, LF or NUL.
    pub(super) are_plain: bool,
    pub(super) have_underscore: bool,
}

impl Lines {
    /// Looks at a head, which ends with its last LF.
    ///
    /// There is no branch for each byte, so that the compiler compares many at once.
    pub(super) fn of(head: &[u8]) -> Lines {
        let Some((first, behind)) = head.split_first() else {
            return Lines { are_plain: false, have_underscore: false };
        };
        let found = head.iter().zip(behind).fold(0_u8, |found, (byte, next)| {
            let is_split = (*byte == b'\r') != (*next == b'\n');
            found | u8::from(is_split | (*byte == 0)) | u8::from(*byte == b'_') << 1
        });
        Lines {
            are_plain: found & 1 == 0 && *first != b'\n' && head.ends_with(b"\n"),
            have_underscore: found & 2 != 0,
        }
    }
}
