//! Frames of HTTP/2 (RFC 9113, section 4.1): where one ends and the next begins.

/// The length of a frame's head.
pub(super) const HEAD: usize = 9;

/// The longest payload that a server accepts which has not asked for more.
pub(super) const LONGEST: usize = 16_384;

/// The bytes that a client sends before its first frame.
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The kinds of frames.
pub(super) mod kind {
    pub(crate) const DATA: u8 = 0;
    pub(crate) const HEADERS: u8 = 1;
    pub(crate) const SETTINGS: u8 = 4;
    pub(crate) const PUSH_PROMISE: u8 = 5;
    pub(crate) const PING: u8 = 6;
    pub(crate) const WINDOW_UPDATE: u8 = 8;
    pub(crate) const CONTINUATION: u8 = 9;
}

/// The flag of an answer to `SETTINGS` and to `PING`.
pub(super) const ACK: u8 = 1;

/// The flag of the last frame of a block of fields.
const END_HEADERS: u8 = 4;

/// The head of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct FrameHead {
    pub length: usize,
    pub kind: u8,
    pub flags: u8,
    /// 0 for a frame of the connection.
    pub stream: u32,
}

impl FrameHead {
    fn parse([a, b, c, kind, flags, rest @ ..]: [u8; HEAD]) -> FrameHead {
        let length = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
        // The first bit is reserved, and a receiver does not look at it.
        let stream = u32::from_be_bytes(rest) & (u32::MAX >> 1);
        FrameHead { length, kind, flags, stream }
    }

    pub(super) fn is_ack(&self) -> bool {
        self.flags & ACK > 0
    }

    /// Whether it is a frame of this kind, for the connection.
    pub(super) fn is_for_all(&self, kind: u8) -> bool {
        self.kind == kind && self.stream == 0
    }

    /// Appends a frame of this head.
    pub(super) fn put(&self, payload: &[u8], to: &mut Vec<u8>) {
        let length = u32::try_from(self.length).unwrap_or(u32::MAX);
        to.extend_from_slice(&length.to_be_bytes()[1..]);
        to.extend_from_slice(&[self.kind, self.flags]);
        to.extend_from_slice(&self.stream.to_be_bytes());
        to.extend_from_slice(payload);
    }
}

/// Appends a frame of the connection.
pub(super) fn put(kind: u8, flags: u8, payload: &[u8], to: &mut Vec<u8>) {
    FrameHead { length: payload.len(), kind, flags, stream: 0 }.put(payload, to);
}

/// Returns the increment of a `WINDOW_UPDATE`.
pub(super) fn increment(payload: &[u8]) -> u32 {
    payload.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes) & (u32::MAX >> 1))
}

/// Finds the frames in a sequence of bytes that comes in pieces.
#[derive(Default)]
pub(super) struct FrameCutter {
    head: [u8; HEAD],
    /// How much of the next head is known.
    filled: usize,
    /// The bytes of the payload that are still to come.
    pub left: usize,
    /// More frames of a block of fields follow, and nothing may come between them.
    is_in_block: bool,
}

impl FrameCutter {
    /// Whether the last frame is over and any other may come next.
    pub(super) fn is_between(&self) -> bool {
        self.filled == 0 && self.left == 0 && !self.is_in_block
    }

    /// How much of the next head is still to come.
    pub(super) fn missing(&self) -> usize {
        HEAD - self.filled
    }

    /// Takes bytes of the next head. Returns their number, and the head if it is known then.
    pub(super) fn push(&mut self, bytes: &[u8]) -> (usize, Option<FrameHead>) {
        let count = bytes.len().min(self.missing());
        self.head[self.filled..self.filled + count].copy_from_slice(&bytes[..count]);
        self.filled += count;
        if self.filled < HEAD {
            return (count, None);
        }
        let head = FrameHead::parse(self.head);
        (self.filled, self.left) = (0, head.length);
        if matches!(head.kind, kind::HEADERS | kind::PUSH_PROMISE | kind::CONTINUATION) {
            self.is_in_block = head.flags & END_HEADERS == 0;
        }
        (count, Some(head))
    }

    /// Takes the beginning of a head whose rest does not come.
    pub(super) fn take_part(&mut self) -> Vec<u8> {
        self.head[..std::mem::take(&mut self.filled)].to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_found_however_they_are_split() {
        let frames: [(u8, u8, u32, usize); 6] = [
            (kind::SETTINGS, 0, 0, 12),
            (kind::HEADERS, 1, 1, 70_000),
            (kind::CONTINUATION, 0, 1, 1),
            (kind::CONTINUATION, END_HEADERS, 1, 0),
            (kind::DATA, 1, u32::MAX >> 1, 300),
            (kind::PING, ACK, 0, 8),
        ];
        let mut bytes = Vec::new();
        for (kind, flags, stream, length) in frames {
            FrameHead { length, kind, flags, stream }.put(&vec![0xff; length], &mut bytes);
        }
        for piece in [1, 2, 8, 9, 10, 1000, bytes.len()] {
            let (mut cutter, mut found, mut between) = (FrameCutter::default(), Vec::new(), 0);
            for mut rest in bytes.chunks(piece) {
                while !rest.is_empty() {
                    let count = match cutter.left {
                        0 => {
                            let (count, head) = cutter.push(rest);
                            found.extend(head);
                            count
                        }
                        left => {
                            let count = left.min(rest.len());
                            cutter.left -= count;
                            count
                        }
                    };
                    rest = &rest[count..];
                    between += usize::from(cutter.is_between());
                }
            }
            let found: Vec<_> = found
                .iter()
                .map(|head| (head.kind, head.flags, head.stream, head.length))
                .collect();
            assert_eq!(found, frames, "{piece}");
            // Between frames of one block it is not.
            assert_eq!(between, 4, "{piece}");
        }
    }

    #[test]
    fn a_reserved_bit_is_not_looked_at() {
        let mut bytes = Vec::new();
        put(kind::WINDOW_UPDATE, 0, &[0x80, 0, 1, 0], &mut bytes);
        bytes[5] |= 0x80;
        let (_, head) = FrameCutter::default().push(&bytes);
        assert!(head.unwrap().is_for_all(kind::WINDOW_UPDATE));
        assert_eq!(increment(&bytes[HEAD..]), 256);
    }
}
