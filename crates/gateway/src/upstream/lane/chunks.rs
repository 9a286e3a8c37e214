//! Reading a body in chunks (RFC 9112, section 7.1), if it is plainly regular.
//!
//! A chunk's size is hexadecimal digits alone. Extensions, trailers and anything but CR LF at the end
//! of a line are irregular: behind the head of a response there is no way back, so that the
//! response is cut off.
//!
//! ```text
//!            size, not 0                     all of it
//!   SIZE ------------------> DATA ---------------------------> DATA END
//!    ^ \                                                          |
//!    |  \ 0 CR LF                                 CR LF           |
//!    |   +---------> LAST ---- CR LF ---> OVER                    |
//!    +------------------------------------------------------------+
//! ```

use std::ops::Range;

/// The place in a body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Before the line with the size of a chunk.
    Size,
    /// So many bytes of the chunk follow.
    Data(u64),
    /// Behind the data of a chunk.
    DataEnd,
    /// Behind the size of the last chunk, which has none.
    Last,
    Over,
}

/// The longest line with a size, with its end: no chunk has 2^60 bytes.
const LONGEST_SIZE: usize = 17;

/// A reader of chunks.
#[derive(Debug)]
pub(crate) struct Chunks(State);

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

impl Chunks {
    pub(crate) const fn new() -> Chunks {
        Chunks(State::Size)
    }

    /// Reads some bytes.
    pub(crate) fn next(&mut self, bytes: &[u8]) -> Next {
        let mut at = 0;
        loop {
            let rest = &bytes[at..];
            let line = |wanted: State| match rest {
                [b'\r', b'\n', ..] => Ok(wanted),
                [] | [b'\r'] => Err(Next::More(at)),
                _ => Err(Next::Irregular),
            };
            match self.0 {
                State::Size => match size(rest) {
                    Size::Partial => return Next::More(at),
                    Size::Irregular => return Next::Irregular,
                    Size::Of(0, length) => (self.0, at) = (State::Last, at + length),
                    Size::Of(size, length) => (self.0, at) = (State::Data(size), at + length),
                },
                State::Data(_) if rest.is_empty() => return Next::More(at),
                State::Data(left) => {
                    let count =
                        usize::try_from(left).map_or(rest.len(), |left| left.min(rest.len()));
                    let left = left - count as u64;
                    self.0 = if left == 0 { State::DataEnd } else { State::Data(left) };
                    return Next::Data(at..at + count);
                }
                State::DataEnd => match line(State::Size) {
                    Ok(next) => (self.0, at) = (next, at + 2),
                    Err(outcome) => return outcome,
                },
                State::Last => match line(State::Over) {
                    Ok(next) => (self.0, at) = (next, at + 2),
                    Err(outcome) => return outcome,
                },
                State::Over => return Next::Over(at),
            }
        }
    }
}

enum Size {
    Partial,
    Irregular,
    /// The size, and the length of its line.
    Of(u64, usize),
}

/// Reads the line with a size.
fn size(bytes: &[u8]) -> Size {
    let mut size = 0;
    for (index, byte) in bytes.iter().take(LONGEST_SIZE).enumerate() {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            b'A'..=b'F' => byte - b'A' + 10,
            b'\r' if index > 0 => {
                return match bytes.get(index + 1) {
                    Some(b'\n') => Size::Of(size, index + 2),
                    Some(_) => Size::Irregular,
                    None => Size::Partial,
                };
            }
            _ => return Size::Irregular,
        };
        if index == LONGEST_SIZE - 2 {
            return Size::Irregular;
        }
        size = size << 4 | u64::from(digit);
    }
    Size::Partial
}
