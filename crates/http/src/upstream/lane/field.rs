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
pub(super) fn about(name: &[u8], value: &[u8], lines: &Lines<'_>) -> About {
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
#[derive(Clone, Copy, Debug)]
pub(super) struct Names<'h> {
    lower: &'h [u8],
    /// The address of the head.
    head: usize,
}

impl<'h> Names<'h> {
    /// Returns the name of one of the head's fields in lower case.
    pub(super) fn lower(&self, field: &Header<'_>) -> &'h [u8] {
        let start = field.name.as_ptr().addr().wrapping_sub(self.head);
        let found = self.lower.get(start..start.wrapping_add(field.name.len()));
        // A name that is not of this head is no name.
        found.unwrap_or(b"connection")
    }
}

/// The bytes of a head that are handled at once.
const BLOCK: usize = 16;

/// The lines of a head.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lines<'h> {
    /// All end with CR and LF, and there is no other CR or LF.
    pub(super) are_plain: bool,
    pub(super) have_underscore: bool,
    pub(super) names: Names<'h>,
}

impl<'h> Lines<'h> {
    /// Looks at a head, which ends with its last LF, and writes it in lower case to `lower`, which
    /// is empty.
    ///
    /// There is no branch for each byte, so that the compiler handles many at once, and the last
    /// block overlaps the one before. That takes less time than the names one by one.
    pub(super) fn new(head: &[u8], lower: &'h mut Vec<u8>) -> Lines<'h> {
        lower.extend_from_slice(head);
        let mut found = [0_u8; BLOCK];
        // No head is so short.
        let last = head.len().checked_sub(BLOCK + 1);
        let mut at = last.map(|_| 0);
        while let (Some(start), Some(last)) = (at, last)
            && let Some(bytes) = head[start..].first_chunk::<BLOCK>()
            && let Some(behind) = head[start + 1..].first_chunk::<BLOCK>()
            && let Some(lower) = lower[start..].first_chunk_mut::<BLOCK>()
        {
            for place in 0..BLOCK {
                let is_split = (bytes[place] == b'\r') != (behind[place] == b'\n');
                let is_underscore = bytes[place] == b'_';
                found[place] |= u8::from(is_split) | u8::from(is_underscore) << 1;
                lower[place] = bytes[place].to_ascii_lowercase();
            }
            at = (start < last).then(|| (start + BLOCK).min(last));
        }
        let found = found.iter().fold(0, |all, one| all | one);
        let has_ends = last.is_some() && !head.starts_with(b"\n") && head.ends_with(b"\n");
        Lines {
            are_plain: found & 1 == 0 && has_ends,
            have_underscore: found & 2 != 0,
            names: Names { lower, head: head.as_ptr().addr() },
        }
    }
}
