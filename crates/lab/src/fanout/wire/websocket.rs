//! Frames of a WebSocket, as a client receives them.

use super::Hear;
use super::head::Head;

/// The fields of the handshake of RFC 6455, section 1.3.
pub(crate) const FIELDS: &str = "upgrade: websocket\r\nconnection: Upgrade\r\n\
     sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

/// The answer to the key of these fields.
const ACCEPTED: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

const TEXT: u8 = 1;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

/// Checks the answer to the handshake.
pub(crate) fn check(head: &Head<'_>) -> Result<(), String> {
    if (head.code, head.accept) == (101, ACCEPTED) {
        return Ok(());
    }
    Err(format!("a handshake was answered {} with the key {:?}", head.code, head.accept))
}

/// Takes the frame at the beginning of some bytes and returns its length; zero if the frame is not
/// complete.
pub(crate) fn frame(
    bytes: &[u8],
    hear: &mut Hear<'_>,
    reply: &mut Vec<u8>,
) -> Result<usize, String> {
    let &[first, second, ref rest @ ..] = bytes else { return Ok(0) };
    if second & 0x80 != 0 || first & 0x70 != 0 {
        return Err(format!("a frame begins with the bytes {first:#x} {second:#x}"));
    }
    let (begin, length) = match (second, rest) {
        (126, &[a, b, ..]) => (4, usize::from(u16::from_be_bytes([a, b]))),
        (127, &[a, b, c, d, e, f, g, h, ..]) => {
            let length = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
            (10, usize::try_from(length).unwrap_or(usize::MAX))
        }
        (126 | 127, _) => return Ok(0),
        (short, _) => (2, usize::from(short)),
    };
    let end = begin + length.min(super::LONGEST * 2);
    let Some(payload) = bytes.get(begin..end) else { return Ok(0) };
    let is_whole = first & 0x80 != 0;
    match first & 0x0f {
        TEXT if is_whole => hear(payload)?,
        PING => {
            // Masked with zeros, as a client has to.
            reply.extend_from_slice(&[0x80 | PONG, 0x80 | second, 0, 0, 0, 0]);
            reply.extend_from_slice(payload);
        }
        PONG => {}
        CLOSE => {
            let code = payload.first_chunk().map(|code| u16::from_be_bytes(*code));
            return Err(format!("it closed a WebSocket with code {}", code.unwrap_or(1005)));
        }
        kind => return Err(format!("a frame is of kind {kind}, or a part of a message")),
    }
    Ok(end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fanout::Transport;
    use crate::fanout::wire::Form;
    use crate::fanout::wire::tests::{heard, subscription};

    fn of(frames: &[u8]) -> Result<(Vec<String>, Vec<u8>), String> {
        let head = format!("HTTP/1.1 101 X\r\nsec-websocket-accept: {ACCEPTED}\r\n\r\n");
        heard(&subscription(Transport::WebSocket, Form::Plain), &[head.as_bytes(), frames].concat())
    }

    #[test]
    fn frames_are_taken_wherever_they_are_cut_and_pings_answered() {
        let (texts, reply) = of(b"\x81\x02hi\x89\x01p\x8a\x00\x81\x02ho").unwrap();
        assert_eq!(texts, ["hi", "ho"]);
        assert_eq!(reply, b"\x8a\x81\0\0\0\0p");
        let long = [&b"\x81\x7e\x01\x00"[..], &[b'x'; 256]].concat();
        assert_eq!(of(&long).unwrap().0, ["x".repeat(256)]);
        let longer = [&b"\x81\x7f\0\0\0\0\0\x01\0\0"[..], &[b'y'; 65_536]].concat();
        let mut length = 0;
        let hear = &mut |text: &[u8]| {
            length = text.len();
            Ok(())
        };
        frame(&longer, hear, &mut Vec::new()).unwrap();
        assert_eq!(length, 65_536);
    }

    #[test]
    fn other_frames_are_refused() {
        for (frames, part) in [
            (&b"\x88\x02\x03\xf5"[..], "code 1013"),
            (b"\x88\x00", "code 1005"),
            (b"\x82\x01b", "kind 2"),
            (b"\x01\x01b", "kind 1"),
            (b"\x81\x81\0\0\0\0b", "0x81"),
        ] {
            let error = of(frames).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
        let refused = b"HTTP/1.1 403 No\r\ncontent-length: 0\r\n\r\n";
        let error = heard(&subscription(Transport::WebSocket, Form::Plain), refused).unwrap_err();
        assert!(error.contains("403"), "{error}");
    }
}
