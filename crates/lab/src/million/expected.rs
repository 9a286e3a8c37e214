//! The bytes that a connection has to receive, and the judgement on those that came.

use crate::http::BODY;
use crate::million::{CHANNEL, Kind};

/// The key of the handshake in RFC 6455, section 1.3, and the server's answer to it.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const ACCEPTED: &[u8] = b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

/// The end of a head.
const END: &[u8] = b"\r\n\r\n";

/// The first byte of a frame with a whole text message, and the largest length that the second byte
/// can say.
const TEXT: u8 = 0x81;
const MOST: usize = 125;

/// An answer with a longer head is wrong.
const LONGEST: usize = 2048;

/// Returns the request that opens a connection of a kind; a kept one sends it again later.
pub(super) fn request(kind: Kind) -> Vec<u8> {
    let text = match kind {
        Kind::KeepAlive => "GET / HTTP/1.1\r\nhost: localhost\r\n\r\n".to_owned(),
        Kind::WebSocket => format!(
            "GET {CHANNEL} HTTP/1.1\r\nhost: localhost\r\nupgrade: websocket\r\n\
             connection: Upgrade\r\nsec-websocket-version: 13\r\nsec-websocket-key: {KEY}\r\n\r\n"
        ),
    };
    text.into_bytes()
}

/// The next bytes of a connection.
#[derive(Clone, Debug)]
pub(super) enum Expected {
    /// The answer to a request.
    Response,
    /// The answer to the handshake of a WebSocket.
    Handshake,
    /// The frame of a message.
    Frame(Vec<u8>),
}

/// The judgement on the bytes that have come so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// They are the beginning.
    Begun,
    /// They are all.
    Complete,
    /// They are something else.
    Wrong,
}

impl Expected {
    /// Returns the answer to the request that opens a connection.
    pub(super) fn answer(kind: Kind) -> Expected {
        match kind {
            Kind::KeepAlive => Expected::Response,
            Kind::WebSocket => Expected::Handshake,
        }
    }

    /// Returns the frame of a short message.
    pub(super) fn message(text: &str) -> Expected {
        debug_assert!(text.len() <= MOST);
        Expected::Frame([&[TEXT, text.len() as u8], text.as_bytes()].concat())
    }

    /// Judges all bytes since the connection was idle.
    pub(super) fn judge(&self, bytes: &[u8]) -> Verdict {
        let (status, is_complete) = match self {
            Expected::Frame(frame) if bytes == frame => return Verdict::Complete,
            Expected::Frame(frame) if frame.starts_with(bytes) => return Verdict::Begun,
            Expected::Frame(_) => return Verdict::Wrong,
            Expected::Response => {
                let head = bytes.windows(END.len()).position(|window| window == END);
                let body = head.map(|head| &bytes[head + END.len()..]);
                if body.is_some_and(|body| !BODY.starts_with(body)) {
                    return Verdict::Wrong;
                }
                (&b"HTTP/1.1 200 "[..], body == Some(BODY))
            }
            Expected::Handshake => {
                let mut lines = bytes.split(|byte| *byte == b'\n');
                let is_accepted = lines.any(|line| line.trim_ascii_end().ends_with(ACCEPTED));
                if bytes.ends_with(END) && !is_accepted {
                    return Verdict::Wrong;
                }
                (&b"HTTP/1.1 101 "[..], bytes.ends_with(END))
            }
        };
        let known = bytes.len().min(status.len());
        match is_complete {
            _ if bytes[..known] != status[..known] || bytes.len() > LONGEST => Verdict::Wrong,
            true => Verdict::Complete,
            false => Verdict::Begun,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn each_prefix(expected: &Expected, all: &[u8]) {
        for end in 0..all.len() {
            assert_eq!(expected.judge(&all[..end]), Verdict::Begun, "{end} of {all:?}");
        }
        assert_eq!(expected.judge(all), Verdict::Complete);
    }

    #[test]
    fn answers_are_complete_at_their_last_byte() {
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 13\r\n\r\nHello, World!";
        each_prefix(&Expected::answer(Kind::KeepAlive), answer);
        let twice = [&answer[..], b"H"].concat();
        for wrong in [&twice[..], b"HTTP/1.1 404 No", b"no", &[b'x'; 4000]] {
            assert_eq!(Expected::Response.judge(wrong), Verdict::Wrong);
        }
        let endless = [&b"HTTP/1.1 200 OK\r\n"[..], &[b'x'; LONGEST]].concat();
        assert_eq!(Expected::Response.judge(&endless), Verdict::Wrong);
    }

    #[test]
    fn handshakes_must_have_the_answer_to_the_key() {
        let answer = b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\n\
            sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
        each_prefix(&Expected::answer(Kind::WebSocket), answer);
        let other = b"HTTP/1.1 101 Switching Protocols\r\nsec-websocket-accept: x\r\n\r\n";
        assert_eq!(Expected::Handshake.judge(other), Verdict::Wrong);
    }

    #[test]
    fn a_message_that_comes_twice_or_is_another_is_wrong() {
        let frame = Expected::message("7");
        each_prefix(&frame, b"\x81\x017");
        for wrong in [&b"\x81\x018"[..], b"\x81\x017\x81\x017", b"\x89\x00"] {
            assert_eq!(frame.judge(wrong), Verdict::Wrong);
        }
    }
}
