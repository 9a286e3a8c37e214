//! WebSocket frames: those that are sent, and the ends of those that come.
//!
//! tungstenite writes and reads headers. It does not tell whether it is in the middle of a frame or
//! of a message, and parking depends on that. So this module follows the bytes that tungstenite
//! reads as well.

use std::io::Cursor;

use tungstenite::protocol::frame::coding::{Data, OpCode};
use tungstenite::protocol::frame::{Frame, FrameHeader};

use super::message::Message;

/// A ping without data.
pub(super) const PING: &[u8] = &[0x89, 0];

/// The longest header of a frame.
const LONGEST_HEADER: usize = 14;

/// Returns the most bytes of a message's frame.
pub(super) fn room(message: &Message) -> usize {
    LONGEST_HEADER + message.data.len()
}

/// Appends a message as a frame.
pub(super) fn write(message: &Message, to: &mut Vec<u8>) {
    let kind = if message.is_text { Data::Text } else { Data::Binary };
    to.reserve(room(message));
    // Writing to memory cannot fail.
    let _ = Frame::message(message.data.clone(), OpCode::Data(kind), true).format(to);
}

/// Appends the header of a message's frame.
pub(super) fn write_header(message: &Message, to: &mut Vec<u8>) {
    let kind = if message.is_text { Data::Text } else { Data::Binary };
    let header = FrameHeader { opcode: OpCode::Data(kind), ..FrameHeader::default() };
    // Writing to memory cannot fail.
    let _ = header.format(message.data.len() as u64, to);
}

/// Follows a stream of frames.
#[derive(Default)]
pub(super) struct Track {
    header: [u8; LONGEST_HEADER],
    /// The bytes of a header that have arrived.
    length: usize,
    /// The bytes of a frame's data that have not arrived yet.
    left: u64,
    /// A message has begun and not ended.
    in_message: bool,
    /// The bytes are not a frame.
    is_lost: bool,
}

impl Track {
    /// Whether every message that has begun has ended.
    pub(super) fn is_between_messages(&self) -> bool {
        self.length == 0 && self.left == 0 && !self.in_message && !self.is_lost
    }

    /// Follows the bytes that were read.
    pub(super) fn follow(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && !self.is_lost {
            if self.left > 0 {
                let step = usize::try_from(self.left).unwrap_or(usize::MAX).min(bytes.len());
                self.left -= step as u64;
                bytes = &bytes[step..];
                continue;
            }
            let before = self.length;
            let step = (LONGEST_HEADER - before).min(bytes.len());
            self.header[before..before + step].copy_from_slice(&bytes[..step]);
            let mut cursor = Cursor::new(&self.header[..before + step]);
            match FrameHeader::parse(&mut cursor) {
                Ok(None) => {
                    // A whole header is understood, so the bytes were its rest.
                    self.length += step;
                    return;
                }
                Ok(Some((header, length))) => {
                    let used = cursor.position() as usize - before;
                    bytes = &bytes[used..];
                    self.length = 0;
                    self.left = length;
                    if let OpCode::Data(_) = header.opcode {
                        self.in_message = !header.is_final;
                    }
                }
                Err(_) => self.is_lost = true,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Frames as clients send them, and where a message ends.
    fn stream() -> (Vec<u8>, Vec<usize>) {
        let mut bytes = Vec::new();
        let mut ends = Vec::new();
        let frame = |code: u8, length: usize| {
            let mut frame = vec![code];
            match length {
                0..126 => frame.push(0x80 | length as u8),
                126..65536 => {
                    frame.push(0x80 | 126);
                    frame.extend((length as u16).to_be_bytes());
                }
                _ => {
                    frame.push(0x80 | 127);
                    frame.extend((length as u64).to_be_bytes());
                }
            }
            frame.extend([1, 2, 3, 4]);
            frame.resize(frame.len() + length, 0x55);
            frame
        };
        for (code, length, ends_here) in [
            (0x81, 5, true),
            (0x81, 0, true),
            (0x01, 3, false),
            (0x89, 4, false),
            (0x00, 0, false),
            (0x80, 130, true),
            (0x8a, 0, true),
            (0x82, 70_000, true),
            (0x88, 2, true),
        ] {
            bytes.extend(frame(code, length));
            if ends_here {
                ends.push(bytes.len());
            }
        }
        (bytes, ends)
    }

    #[test]
    fn ends_of_messages_are_found_however_the_stream_is_cut() {
        let (bytes, ends) = stream();
        for size in [1, 2, 3, 7, 13, 14, 15, 100, 4096] {
            let mut track = Track::default();
            let mut at = 0;
            for piece in bytes.chunks(size) {
                track.follow(piece);
                at += piece.len();
                assert_eq!(track.is_between_messages(), ends.contains(&at), "{size} {at}");
            }
        }
    }

    #[test]
    fn an_invalid_frame_never_completes() {
        let mut track = Track::default();
        track.follow(&[0x83, 0x80, 0, 0, 0, 0]);
        track.follow(&[0x81, 0x80, 0, 0, 0, 0]);
        assert!(!track.is_between_messages());
    }
}
