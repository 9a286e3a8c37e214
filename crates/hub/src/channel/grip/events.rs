//! The events of a WebSocket, as its application is told of them and tells of its own
//! (`application/websocket-events`).

use bytes::Bytes;
use superpoll_http::held::FrameKind;

/// The media type of events.
pub(super) const MEDIA_TYPE: &str = "application/websocket-events";

/// An event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Event {
    Open,
    Message(FrameKind, Bytes),
    /// The end: a code in two bytes and a reason, or nothing.
    Close(Bytes),
    Disconnect,
}

impl Event {
    fn name(&self) -> &'static str {
        match self {
            Event::Open => "OPEN",
            Event::Message(FrameKind::Text, _) => "TEXT",
            Event::Message(FrameKind::Binary, _) => "BINARY",
            Event::Message(FrameKind::Ping, _) => "PING",
            Event::Message(FrameKind::Pong, _) => "PONG",
            Event::Close(_) => "CLOSE",
            Event::Disconnect => "DISCONNECT",
        }
    }

    /// Appends the event.
    pub(super) fn write(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(self.name().as_bytes());
        let content = match self {
            Event::Open | Event::Disconnect => None,
            Event::Close(content) => Some(content).filter(|content| !content.is_empty()),
            Event::Message(_, content) => Some(content),
        };
        if let Some(content) = content {
            to.extend_from_slice(format!(" {:x}\r\n", content.len()).as_bytes());
            to.extend_from_slice(content);
        }
        to.extend_from_slice(b"\r\n");
    }

    /// Returns about how many bytes it takes.
    pub(super) fn cost(&self) -> usize {
        let content = match self {
            Event::Open | Event::Disconnect => 0,
            Event::Close(content) | Event::Message(_, content) => content.len(),
        };
        content + size_of::<Event>()
    }
}

/// Reads events; `None`: they are malformed.
pub(super) fn read(body: &Bytes) -> Option<Vec<Event>> {
    let (mut events, mut at) = (Vec::new(), 0);
    while at < body.len() {
        let line = body[at..].windows(2).position(|pair| pair == b"\r\n")?;
        let head = std::str::from_utf8(&body[at..at + line]).ok()?;
        at += line + 2;
        let (name, content) = match head.split_once(' ') {
            None => (head, Bytes::new()),
            Some((name, length)) => {
                // It is no number with a sign.
                let is_hex = length.bytes().all(|byte| byte.is_ascii_hexdigit());
                let length = usize::from_str_radix(length, 16).ok().filter(|_| is_hex)?;
                let end = at.checked_add(length)?;
                if body.get(end..end.checked_add(2)?)? != b"\r\n" {
                    return None;
                }
                let content = body.slice(at..end);
                at = end + 2;
                (name, content)
            }
        };
        events.push(match name {
            "OPEN" => Event::Open,
            "TEXT" => Event::Message(FrameKind::Text, content),
            "BINARY" => Event::Message(FrameKind::Binary, content),
            "PING" => Event::Message(FrameKind::Ping, content),
            "PONG" => Event::Message(FrameKind::Pong, content),
            "CLOSE" => Event::Close(content),
            "DISCONNECT" => Event::Disconnect,
            _ => return None,
        });
    }
    Some(events)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_round_trip_and_have_the_form_of_the_protocol() {
        let events = [
            Event::Open,
            Event::Message(FrameKind::Text, "hello".into()),
            Event::Message(FrameKind::Binary, Bytes::from_static(b"\r\n\x00")),
            Event::Message(FrameKind::Text, Bytes::new()),
            Event::Close(Bytes::from_static(b"\x0b\xb9bye")),
            Event::Close(Bytes::new()),
            Event::Disconnect,
        ];
        let mut bytes = Vec::new();
        events.iter().for_each(|event| event.write(&mut bytes));
        let expected: &[u8] = b"OPEN\r\nTEXT 5\r\nhello\r\nBINARY 3\r\n\r\n\x00\r\nTEXT 0\r\n\r\n\
            CLOSE 5\r\n\x0b\xb9bye\r\nCLOSE\r\nDISCONNECT\r\n";
        assert_eq!(bytes, expected);
        assert_eq!(read(&bytes.into()), Some(events.to_vec()));
    }

    #[test]
    fn malformed_events_are_refused() {
        for text in [
            "OPEN",
            "OPEN\n",
            "TEXT 5\r\nhell\r\n",
            "TEXT 5\r\nhello",
            "TEXT 6\r\nhello\r\n",
            "TEXT -1\r\n\r\n",
            "TEXT +5\r\nhello\r\n",
            "TEXT ffffffffffffffff\r\nx\r\n",
            "NOPE\r\n",
            "TEXT \r\n\r\n",
            " 5\r\nhello\r\n",
        ] {
            assert_eq!(read(&Bytes::from_static(text.as_bytes())), None, "{text:?}");
        }
        assert_eq!(read(&Bytes::new()), Some(Vec::new()));
    }

    #[test]
    fn bytes_of_any_kind_are_read_without_a_panic() {
        let mut state = 1_u32;
        for _ in 0..20_000 {
            let mut bytes = Vec::new();
            for _ in 0..state % 40 {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let part: &[u8] = match state >> 28 {
                    0..4 => b"TEXT",
                    4..7 => b"\r\n",
                    7..9 => b" ",
                    9..11 => b"5",
                    11 => b"CLOSE",
                    _ => b"x",
                };
                bytes.extend_from_slice(part);
            }
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            if let Some(events) = read(&bytes.clone().into()) {
                let mut again = Vec::new();
                events.iter().for_each(|event| event.write(&mut again));
                assert_eq!(read(&again.into()), Some(events));
            }
        }
    }
}
