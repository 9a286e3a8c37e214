//! The extent of a body, and reading it.

use std::cell::Cell;
use std::io::Write as _;

use super::buffer::ReadBuffer;
use super::chunks::{Chunks, Next};
use super::request::Parsed;

/// The extent of a body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Length {
    /// There is none, whatever the fields say.
    None,
    Known(u64),
    Chunked,
}

/// Reads a length: digits alone, without zeros at the beginning, and not so many that they could
/// wrap.
pub(super) fn length(value: &[u8]) -> Option<u64> {
    let is_plain = (1..=18).contains(&value.len())
        && value.iter().all(u8::is_ascii_digit)
        && (value[0] != b'0' || value.len() == 1);
    is_plain.then(|| value.iter().fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0')))
}

/// Appends a piece of a body in chunks.
pub(super) fn chunk(data: &[u8], to: &mut Vec<u8>) {
    // Writing to memory does not fail.
    let _ = write!(to, "{:x}\r\n", data.len());
    to.extend_from_slice(data);
    to.extend_from_slice(b"\r\n");
}

/// The end of a body in chunks.
pub(super) const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// The part of a body that has not arrived.
pub(super) enum Rest {
    Known(u64),
    Chunked(Chunks),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// The body has ended.
    Over,
    /// There may be more in the same bytes.
    Again,
    /// More bytes are needed.
    More,
    Irregular,
}

impl Rest {
    pub(super) fn from_length(length: Length) -> Rest {
        match length {
            Length::None => Rest::Known(0),
            Length::Known(length) => Rest::Known(length),
            Length::Chunked => Rest::Chunked(Chunks::new()),
        }
    }

    /// Takes the next data of some bytes, if there are any. Returns how many bytes are used up.
    pub(super) fn step(&mut self, bytes: &[u8], mut data: impl FnMut(&[u8])) -> (usize, Step) {
        match self {
            Rest::Known(left) => {
                let length =
                    usize::try_from(*left).map_or(bytes.len(), |left| left.min(bytes.len()));
                if length > 0 {
                    data(&bytes[..length]);
                }
                *left -= length as u64;
                (length, if *left == 0 { Step::Over } else { Step::More })
            }
            Rest::Chunked(chunks) => match chunks.next(bytes) {
                Next::Data(place) => {
                    data(&bytes[place.clone()]);
                    (place.end, Step::Again)
                }
                Next::More(used) => (used, Step::More),
                Next::Over(used) => (used, Step::Over),
                Next::Irregular => (0, Step::Irregular),
            },
        }
    }

    /// Whether fields have followed the body.
    pub(super) fn has_trailers(&self) -> bool {
        matches!(self, Rest::Chunked(chunks) if chunks.has_trailers())
    }

    /// Takes what has come to be written to the client, up to some bytes, and counts its data.
    pub(super) fn take(
        &mut self,
        from: &mut ReadBuffer,
        to: &mut Vec<u8>,
        most: usize,
        count: &Cell<u64>,
    ) -> Step {
        let is_chunked = matches!(self, Rest::Chunked(_));
        loop {
            let (used, step) = self.step(from.bytes(), |data| {
                match is_chunked {
                    true => chunk(data, to),
                    false => to.extend_from_slice(data),
                }
                count.set(count.get() + data.len() as u64);
            });
            from.consume(used);
            match step {
                Step::Again if to.len() < most => {}
                Step::Over if is_chunked => {
                    to.extend_from_slice(LAST_CHUNK);
                    return step;
                }
                _ => return step,
            }
        }
    }
}

/// Reads the body of a request, which has to come whole, without extensions and trailers. Returns
/// how many bytes it takes.
pub(super) fn whole(length: Length, bytes: &[u8], mut data: impl FnMut(&[u8])) -> Parsed<usize> {
    let (mut rest, mut at) = (Rest::from_length(length), 0);
    loop {
        let (used, step) = rest.step(&bytes[at..], &mut data);
        at += used;
        match (step, &rest) {
            (_, Rest::Chunked(chunks)) if chunks.has_extra() => return Parsed::Irregular,
            (Step::Again, _) => {}
            (Step::More, _) => return Parsed::Partial,
            (Step::Over, _) => return Parsed::Regular(at),
            (Step::Irregular, _) => return Parsed::Irregular,
        }
    }
}
