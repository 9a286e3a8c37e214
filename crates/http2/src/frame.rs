//! Frames (RFC 9113, sections 4 and 6): their heads, and the short ones as a whole.

use crate::error::ErrorCode;

/// The length of a frame's head.
pub const HEAD: usize = 9;

/// The longest payload that this side accepts, as it does not ask for more, and the longest that
/// each peer accepts.
pub(crate) const LONGEST_FRAME: usize = 16_384;

/// The bytes that a client sends before its first frame (RFC 9113, section 3.4).
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The types of frames.
pub(crate) mod kind {
    pub(crate) const DATA: u8 = 0x0;
    pub(crate) const HEADERS: u8 = 0x1;
    pub(crate) const PRIORITY: u8 = 0x2;
    pub(crate) const RST_STREAM: u8 = 0x3;
    pub(crate) const SETTINGS: u8 = 0x4;
    pub(crate) const PUSH_PROMISE: u8 = 0x5;
    pub(crate) const PING: u8 = 0x6;
    pub(crate) const GOAWAY: u8 = 0x7;
    pub(crate) const WINDOW_UPDATE: u8 = 0x8;
    pub(crate) const CONTINUATION: u8 = 0x9;
    /// RFC 9218, section 7.1.
    pub(crate) const PRIORITY_UPDATE: u8 = 0x10;
}

/// The flags of frames.
pub(crate) mod flag {
    /// Of `SETTINGS` and `PING`.
    pub(crate) const ACK: u8 = 0x1;
    /// Of `DATA` and `HEADERS`.
    pub(crate) const END_STREAM: u8 = 0x1;
    /// Of `HEADERS` and `CONTINUATION`.
    pub(crate) const END_HEADERS: u8 = 0x4;
    /// Of `DATA` and `HEADERS`.
    pub(crate) const PADDED: u8 = 0x8;
    /// Of `HEADERS`.
    pub(crate) const PRIORITY: u8 = 0x20;
}

/// The head of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FrameHead {
    pub(crate) length: u32,
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    /// 0 for a frame of the connection.
    pub(crate) stream: u32,
}

impl FrameHead {
    #[inline]
    pub(crate) fn parse([a, b, c, kind, flags, rest @ ..]: [u8; HEAD]) -> FrameHead {
        FrameHead { length: u32::from_be_bytes([0, a, b, c]), kind, flags, stream: number(rest) }
    }

    #[inline]
    pub(crate) const fn has(&self, flag: u8) -> bool {
        self.flags & flag > 0
    }

    /// Whether the length is one that the type may have.
    #[inline]
    pub(crate) const fn has_valid_size(&self) -> bool {
        match self.kind {
            kind::RST_STREAM | kind::WINDOW_UPDATE => self.length == 4,
            kind::PING => self.length == 8,
            kind::SETTINGS if self.has(flag::ACK) => self.length == 0,
            kind::SETTINGS => self.length.is_multiple_of(6),
            kind::GOAWAY => self.length >= 8,
            kind::PRIORITY_UPDATE => self.length >= 4,
            kind::DATA => self.length > 0 || !self.has(flag::PADDED),
            _ => true,
        }
    }

    /// Whether the stream is one that the type may be about. Those of clients have odd numbers.
    #[inline]
    pub(crate) const fn has_valid_stream(&self) -> bool {
        let is_of_client = self.stream % 2 == 1;
        match self.kind {
            kind::HEADERS | kind::DATA | kind::RST_STREAM => is_of_client,
            kind::PRIORITY | kind::CONTINUATION => self.stream > 0,
            kind::SETTINGS | kind::PING | kind::GOAWAY | kind::PRIORITY_UPDATE => self.stream == 0,
            kind::WINDOW_UPDATE => self.stream == 0 || is_of_client,
            _ => true,
        }
    }

    /// Whether the frame is collected until it is whole: all but bodies and what is not looked at.
    #[inline]
    pub(crate) const fn is_collected(&self) -> bool {
        match self.kind {
            kind::DATA => false,
            // The field of a priority is short.
            kind::PRIORITY_UPDATE => self.length <= 64,
            kind => kind <= kind::CONTINUATION,
        }
    }

    #[inline]
    pub(crate) const fn to_bytes(self) -> [u8; HEAD] {
        let [_, a, b, c] = self.length.to_be_bytes();
        let [d, e, f, g] = self.stream.to_be_bytes();
        [a, b, c, self.kind, self.flags, d, e, f, g]
    }
}

/// Reads a number of 31 bits. The bit before it is reserved, and a receiver does not look at it.
#[inline]
pub(crate) fn number(bytes: [u8; 4]) -> u32 {
    u32::from_be_bytes(bytes) & (u32::MAX >> 1)
}

/// Appends a short frame. Its payload is at most some settings.
pub(crate) fn put(kind: u8, flags: u8, stream: u32, payload: &[u8], out: &mut Vec<u8>) {
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    out.extend_from_slice(&FrameHead { length, kind, flags, stream }.to_bytes());
    out.extend_from_slice(payload);
}

pub(crate) fn put_reset(stream: u32, code: ErrorCode, out: &mut Vec<u8>) {
    put(kind::RST_STREAM, 0, stream, &code.0.to_be_bytes(), out);
}

pub(crate) fn put_window_update(stream: u32, increment: u32, out: &mut Vec<u8>) {
    put(kind::WINDOW_UPDATE, 0, stream, &increment.to_be_bytes(), out);
}

pub(crate) fn put_go_away(last: u32, code: ErrorCode, out: &mut Vec<u8>) {
    let [a, b, c, d] = last.to_be_bytes();
    let [e, f, g, h] = code.0.to_be_bytes();
    put(kind::GOAWAY, 0, 0, &[a, b, c, d, e, f, g, h], out);
}
