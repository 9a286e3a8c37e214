//! Reading bodies (RFC 9112, sections 6 and 7).
//!
//! Extensions of chunks are read over, and bounded. Trailers are returned one by one; they never
//! become fields of the head. A line that does not end with CR LF, a size that is not hexadecimal
//! digits alone, and anything but CR LF after a chunk end the message: bytes after them could be
//! read as another message.
//!
//! ```text
//!            size, not 0         all of it              CR LF
//!   SIZE ------------------> DATA ---------> DATA END ---------> SIZE
//!     \
//!      \ 0                  empty line
//!       +-----> TRAILERS --------------> OVER
//! ```

use std::ops::Range;

use memchr::memchr;

use crate::field::{Field, FieldName, FieldValue, is_visible, trim_blanks};
use crate::head::{Framing, MOST_FIELDS};
use crate::refusal::Refusal;

/// The most digits of a chunk's size, zeros at its beginning aside: no chunk has 2^60 bytes.
const MOST_DIGITS: u8 = 15;

/// The most bytes of extensions and trailers of a body, and of zeros before sizes, beyond as many
/// as it has data: some servers pad the size of each chunk, however long the body is.
pub const MOST_EXTRA: usize = 16 << 10;

/// The longest line of a trailer. A caller's buffer has to hold one.
pub const LONGEST_TRAILER: usize = 8 << 10;

/// The place in a body in chunks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    /// In a size, after so many digits; zeros at its beginning count as none.
    Size {
        size: u64,
        digits: u8,
        has_digit: bool,
    },
    /// In the blanks after a size.
    Blanks(u64),
    /// In an extension.
    Extension(u64),
    /// Before the line feed that ends the line with a size.
    SizeEnd(u64),
    /// So many bytes of the chunk follow.
    Data(u64),
    /// Before the carriage return after the data.
    DataEnd,
    /// Before the line feed after the data.
    DataFeed,
    /// Before a line of the trailers or the empty line, after so many trailers.
    Trailers(usize),
    Over,
}

const START: Place = Place::Size { size: 0, digits: 0, has_digit: false };

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Length(u64),
    /// With the bytes that count for [`MOST_EXTRA`].
    Chunks {
        place: Place,
        extra: usize,
    },
    UntilClose,
    Over,
}

/// A reader of one body.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BodyReader(State);

/// The progress after a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// There may be more in the same bytes.
    Again,
    /// More bytes are needed.
    More,
    /// The body has ended.
    Over,
}

/// The next part of a body.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Piece<'b> {
    /// The place of data in the bytes of the step; it may be empty.
    pub data: Range<usize>,
    /// A field that follows the body (RFC 9112, section 7.1.2). It is for those who asked for
    /// trailers, and must not be merged into the fields of the head (RFC 9110, section 6.5.1).
    pub trailer: Option<Field<'b>>,
    /// The bytes that belong to the body, data among them. The next step begins after them.
    pub used: usize,
    /// Whether more follows.
    pub progress: Progress,
}

impl<'b> Piece<'b> {
    fn new(used: usize, progress: Progress) -> Piece<'b> {
        Piece { data: used..used, trailer: None, used, progress }
    }
}

impl BodyReader {
    /// Returns a reader of a body of an extent.
    #[must_use]
    #[inline]
    pub const fn new(framing: Framing) -> BodyReader {
        BodyReader(match framing {
            Framing::None | Framing::Length(0) => State::Over,
            Framing::Length(length) => State::Length(length),
            Framing::Chunked => State::Chunks { place: START, extra: 0 },
            Framing::UntilClose => State::UntilClose,
        })
    }

    /// Whether the whole body was read.
    #[must_use]
    #[inline]
    pub const fn is_over(&self) -> bool {
        matches!(self.0, State::Over)
    }

    /// Returns how much data follows; `None` if that is not known.
    #[must_use]
    pub const fn left(&self) -> Option<u64> {
        match self.0 {
            State::Length(left) => Some(left),
            State::Over => Some(0),
            State::Chunks { .. } | State::UntilClose => None,
        }
    }

    /// Returns how many bytes of data follow at least, without a line between them: so many may
    /// bypass the reader if [`skip`](BodyReader::skip) is told.
    #[must_use]
    pub const fn run(&self) -> u64 {
        match self.0 {
            State::Length(left) | State::Chunks { place: Place::Data(left), .. } => left,
            State::UntilClose => u64::MAX,
            _ => 0,
        }
    }

    /// Counts data that did not pass through [`step`](BodyReader::step), up to
    /// [`run`](BodyReader::run). Returns how many bytes were counted.
    pub fn skip(&mut self, count: u64) -> u64 {
        let count = count.min(self.run());
        match &mut self.0 {
            State::Length(left) => {
                *left -= count;
                if *left == 0 {
                    self.0 = State::Over;
                }
            }
            State::Chunks { place, extra } => {
                if let Place::Data(left) = *place {
                    *extra = extra.saturating_sub(usize::try_from(count).unwrap_or(usize::MAX));
                    *place = if left == count { Place::DataEnd } else { Place::Data(left - count) };
                }
            }
            State::UntilClose | State::Over => {}
        }
        count
    }

    /// Reads the next part of a body from the bytes that follow those used before.
    ///
    /// # Errors
    ///
    /// The reason for which the body is refused. It is unknown where it ends.
    #[inline]
    pub fn step<'b>(&mut self, bytes: &'b [u8]) -> Result<Piece<'b>, Refusal> {
        match &mut self.0 {
            State::Over => Ok(Piece::new(0, Progress::Over)),
            State::Length(_) | State::UntilClose => {
                let count = self.skip(bytes.len() as u64) as usize;
                let progress = if self.is_over() { Progress::Over } else { Progress::More };
                Ok(Piece { data: 0..count, ..Piece::new(count, progress) })
            }
            State::Chunks { place, extra } => {
                let piece = chunks(place, extra, bytes)?;
                if *place == Place::Over {
                    self.0 = State::Over;
                }
                Ok(piece)
            }
        }
    }

    /// Ends a body together with its connection.
    ///
    /// # Errors
    ///
    /// [`Refusal::Incomplete`], if the body was to end otherwise and has not.
    pub fn end(&mut self) -> Result<(), Refusal> {
        match self.0 {
            State::UntilClose | State::Over => {
                self.0 = State::Over;
                Ok(())
            }
            State::Length(_) | State::Chunks { .. } => Err(Refusal::Incomplete),
        }
    }
}

/// Reads a part of a body in chunks.
fn chunks<'b>(place: &mut Place, extra: &mut usize, bytes: &'b [u8]) -> Result<Piece<'b>, Refusal> {
    let mut at = 0;
    loop {
        let Some(&byte) = bytes.get(at) else {
            return Ok(Piece::new(at, Progress::More));
        };
        match *place {
            Place::Data(left) => {
                let rest = bytes.len() - at;
                let count = usize::try_from(left).map_or(rest, |left| left.min(rest));
                let left = left - count as u64;
                *extra = extra.saturating_sub(count);
                *place = if left == 0 { Place::DataEnd } else { Place::Data(left) };
                let used = at + count;
                return Ok(Piece { data: at..used, ..Piece::new(used, Progress::Again) });
            }
            Place::Trailers(count) => {
                let Some(text) = trailer_line(&bytes[at..])? else {
                    return Ok(Piece::new(at, Progress::More));
                };
                at += text.len() + 2;
                if text.is_empty() {
                    *place = Place::Over;
                    return Ok(Piece::new(at, Progress::Over));
                }
                *extra += text.len() + 2;
                if *extra > MOST_EXTRA || count == MOST_FIELDS {
                    return Err(Refusal::ExtraTooLarge);
                }
                *place = Place::Trailers(count + 1);
                let trailer = Some(field(text).ok_or(Refusal::Trailer)?);
                return Ok(Piece { trailer, ..Piece::new(at, Progress::Again) });
            }
            Place::Over => return Ok(Piece::new(at, Progress::Over)),
            line => *place = line_byte(line, byte, extra)?,
        }
        at += 1;
    }
}

/// Reads one byte between the data of two chunks.
///
/// Byte by byte, a line may be split anywhere and needs no room in a buffer; it is short as a rule.
fn line_byte(place: Place, byte: u8, extra: &mut usize) -> Result<Place, Refusal> {
    let mut count_extra = || {
        *extra += 1;
        if *extra > MOST_EXTRA { Err(Refusal::ExtraTooLarge) } else { Ok(()) }
    };
    Ok(match (place, byte) {
        (Place::Size { size, digits, has_digit }, byte) => {
            let Some(digit) = (byte as char).to_digit(16) else {
                return match byte {
                    _ if !has_digit => Err(Refusal::ChunkSize),
                    b'\r' => Ok(Place::SizeEnd(size)),
                    b' ' | b'\t' => count_extra().map(|()| Place::Blanks(size)),
                    b';' => count_extra().map(|()| Place::Extension(size)),
                    b'\n' => Err(Refusal::ChunkLine),
                    _ => Err(Refusal::ChunkSize),
                };
            };
            if digits == 0 && digit == 0 {
                count_extra()?;
            }
            if digits == MOST_DIGITS {
                return Err(Refusal::ChunkTooLarge);
            }
            let digits = if digits == 0 && digit == 0 { 0 } else { digits + 1 };
            Place::Size { size: size << 4 | u64::from(digit), digits, has_digit: true }
        }
        (Place::Blanks(size) | Place::Extension(size), b'\r') => Place::SizeEnd(size),
        (Place::Blanks(_) | Place::Extension(_), b'\n') => return Err(Refusal::ChunkLine),
        (Place::Blanks(size), b' ' | b'\t') => {
            count_extra()?;
            Place::Blanks(size)
        }
        (Place::Blanks(size), b';') => {
            count_extra()?;
            Place::Extension(size)
        }
        (Place::Blanks(_), _) => return Err(Refusal::ChunkSize),
        (Place::Extension(size), byte) if is_visible(byte) => {
            count_extra()?;
            Place::Extension(size)
        }
        (Place::Extension(_), _) => return Err(Refusal::ChunkExtension),
        (Place::SizeEnd(0), b'\n') => Place::Trailers(0),
        (Place::SizeEnd(size), b'\n') => Place::Data(size),
        (Place::SizeEnd(_), _) => return Err(Refusal::ChunkLine),
        (Place::DataEnd, b'\r') => Place::DataFeed,
        (Place::DataFeed, b'\n') => START,
        (Place::DataEnd | Place::DataFeed, _) => return Err(Refusal::ChunkEnd),
        (place @ (Place::Data(_) | Place::Trailers(_) | Place::Over), _) => place,
    })
}

/// Returns a line of the trailers without its CR LF, if it is there. The line has no other control
/// character than tabs.
fn trailer_line(bytes: &[u8]) -> Result<Option<&[u8]>, Refusal> {
    let end = memchr(b'\n', bytes);
    let text = match &bytes[..end.unwrap_or(bytes.len())] {
        [text @ .., b'\r'] => text,
        text if end.is_none() => text,
        _ => return Err(Refusal::Trailer),
    };
    // The order of the two makes no difference between a line and its pieces.
    if !text[..text.len().min(LONGEST_TRAILER)].iter().all(|byte| is_visible(*byte)) {
        return Err(Refusal::Trailer);
    }
    if text.len() > LONGEST_TRAILER {
        return Err(Refusal::ExtraTooLarge);
    }
    Ok(end.map(|_| text))
}

/// Reads a line as a field.
fn field(line: &[u8]) -> Option<Field<'_>> {
    let colon = memchr(b':', line)?;
    let (name, value) = (&line[..colon], trim_blanks(&line[colon + 1..]));
    Some(Field { name: FieldName::new(name)?, value: FieldValue::new(value)? })
}
