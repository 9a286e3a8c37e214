//! Reading a body in chunks (RFC 9112, section 7.1).
//!
//! Extensions and trailers are read over, as hyper does, and bounded as there; neither is passed
//! on. Behind the head of a response there is no way back, so that anything else that is unusual
//! cuts the response off: a line that does not end with CR LF, a size that is not hexadecimal
//! digits alone, and anything but CR LF after a chunk.
//!
//! ```text
//!            size, not 0                     all of it
//!   SIZE ------------------> DATA ---------------------------> DATA END
//!    ^ \                                                          |
//!    |  \ 0                                       CR LF           |
//!    |   +---------> TRAILERS ---- empty line ---> OVER           |
//!    +------------------------------------------------------------+
//! ```

use std::ops::Range;

use http::{HeaderName, HeaderValue};
use memchr::memchr;

use super::MOST_FIELDS;

/// The place in a body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Before the line with the size of a chunk.
    Size,
    /// So many bytes of the chunk follow.
    Data(u64),
    /// Behind the data of a chunk.
    DataEnd,
    /// Behind the size of the last chunk: lines up to an empty one.
    Trailers,
    Over,
}

/// The most digits of a size, zeros at its beginning aside: no chunk has 2^60 bytes.
const MOST_DIGITS: usize = 15;

/// The most bytes of all extensions and trailers of a body, as hyper allows of each.
const MOST_EXTRA: usize = 16 << 10;

/// The longest line with a size or in the trailers; it has to fit into a buffer.
const LONGEST_LINE: usize = 8 << 10;

/// A reader of chunks.
#[derive(Debug)]
pub(crate) struct Chunks {
    state: State,
    /// The bytes of extensions and trailers so far.
    extra: usize,
    /// The trailers so far.
    trailers: usize,
}

/// The next thing in some bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    /// Data, at this place; bytes before it need no further look.
    Data(Range<usize>),
    /// More bytes are needed; so many need no further look.
    More(usize),
    /// The body has ended; so many bytes belong to it.
    Over(usize),
    /// The bytes are irregular.
    Irregular,
}

/// A line without its end.
enum Line<'b> {
    Whole(&'b [u8]),
    Partial,
    Irregular,
}

/// Reads a line, which ends with CR LF and has no other CR, LF or NUL.
fn line(bytes: &[u8]) -> Line<'_> {
    let Some(end) = memchr(b'\n', bytes) else {
        let has_wrong_end = memchr(b'\r', bytes).is_some_and(|at| at + 1 < bytes.len());
        let is_bad = bytes.len() > LONGEST_LINE || has_wrong_end || memchr(0, bytes).is_some();
        return if is_bad { Line::Irregular } else { Line::Partial };
    };
    match bytes[..end].split_last() {
        Some((b'\r', text))
            if end <= LONGEST_LINE
                && memchr(b'\r', text).is_none()
                && memchr(0, text).is_none() =>
        {
            Line::Whole(text)
        }
        _ => Line::Irregular,
    }
}

impl Chunks {
    pub(crate) const fn new() -> Chunks {
        Chunks { state: State::Size, extra: 0, trailers: 0 }
    }

    /// Whether fields have followed the body.
    pub(crate) fn has_trailers(&self) -> bool {
        self.trailers > 0
    }

    /// Whether there was an extension or a trailer.
    pub(crate) fn has_extra(&self) -> bool {
        self.extra > 0
    }

    /// Reads some bytes.
    pub(crate) fn next(&mut self, bytes: &[u8]) -> Next {
        let mut at = 0;
        loop {
            let rest = &bytes[at..];
            match self.state {
                State::Size => {
                    let text = match line(rest) {
                        Line::Whole(text) => text,
                        Line::Partial => return Next::More(at),
                        Line::Irregular => return Next::Irregular,
                    };
                    let Some((size, extension)) = size(text) else { return Next::Irregular };
                    self.extra += extension;
                    self.state = if size == 0 { State::Trailers } else { State::Data(size) };
                    at += text.len() + 2;
                }
                State::Data(_) if rest.is_empty() => return Next::More(at),
                State::Data(left) => {
                    let count =
                        usize::try_from(left).map_or(rest.len(), |left| left.min(rest.len()));
                    let left = left - count as u64;
                    self.state = if left == 0 { State::DataEnd } else { State::Data(left) };
                    return Next::Data(at..at + count);
                }
                State::DataEnd => match rest {
                    [b'\r', b'\n', ..] => (self.state, at) = (State::Size, at + 2),
                    [] | [b'\r'] => return Next::More(at),
                    _ => return Next::Irregular,
                },
                State::Trailers => match line(rest) {
                    Line::Whole([]) => (self.state, at) = (State::Over, at + 2),
                    Line::Whole(text) if is_field(text) && self.trailers < MOST_FIELDS => {
                        self.trailers += 1;
                        self.extra += text.len() + 2;
                        at += text.len() + 2;
                    }
                    Line::Whole(_) => return Next::Irregular,
                    Line::Partial => return Next::More(at),
                    Line::Irregular => return Next::Irregular,
                },
                State::Over => return Next::Over(at),
            }
            if self.extra > MOST_EXTRA {
                return Next::Irregular;
            }
        }
    }
}

/// Takes blanks off both ends. HTTP has two of them, fewer than ASCII (RFC 9110, section 5.6.3).
fn without_blanks(text: &[u8]) -> &[u8] {
    let is_text = |byte: &u8| !matches!(byte, b' ' | b'\t');
    let Some(start) = text.iter().position(is_text) else { return b"" };
    let end = text.iter().rposition(is_text).map_or(start, |last| last + 1);
    &text[start..end]
}

/// Whether a line is a field with a name and a value.
fn is_field(line: &[u8]) -> bool {
    let Some(colon) = memchr(b':', line) else { return false };
    let (name, value) = (&line[..colon], without_blanks(&line[colon + 1..]));
    HeaderName::from_bytes(name).is_ok() && HeaderValue::from_bytes(value).is_ok()
}

/// Returns the size at the beginning of a line, and the length of its extension. Blanks may stand
/// between the two.
fn size(line: &[u8]) -> Option<(u64, usize)> {
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let zeros = line.iter().take_while(|byte| **byte == b'0').count();
    if digits == 0 || digits - zeros > MOST_DIGITS {
        return None;
    }
    let extension = &line[digits..];
    let is_fit = match without_blanks(extension) {
        [] => true,
        [first, ..] => *first == b';',
    };
    let digit = |byte: u8| u64::from((byte as char).to_digit(16).unwrap_or(0));
    let size = line[..digits].iter().fold(0, |size, byte| size << 4 | digit(*byte));
    is_fit.then_some((size, extension.len()))
}
