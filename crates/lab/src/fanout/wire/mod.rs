//! The bytes that arrive on a subscriber's connection, up to the messages in them.
//!
//! A unit is a head, a frame, a chunk or a whole answer, by the protocol. Complete units are parsed
//! where they were read; only the beginning of a unit whose rest has not arrived is copied. A
//! message usually arrives as one unit in one read, so thousands of subscribers have no buffer.

use std::borrow::Cow;

use serde::Deserialize;

use crate::fanout::Transport;

/// The longest unit of which only a part has arrived.
const LONGEST: usize = 1 << 17;

/// A function that takes the text of a message.
pub(crate) type Hear<'a> = dyn FnMut(&[u8]) -> Result<(), String> + 'a;

/// The request that begins a subscription, and the form of the messages that follow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Subscription {
    /// The protocol.
    pub transport: Transport,
    /// The path of the channel.
    pub path: &'static str,
    /// The way to ask for the next message, for long-polls.
    pub form: Form,
}

impl Subscription {
    /// Returns the first request.
    pub(super) fn request(&self) -> Vec<u8> {
        let path = self.path;
        let fields = match self.transport {
            Transport::WebSocket => FIELDS,
            Transport::Events => "accept: text/event-stream\r\n",
            Transport::LongPoll => "",
        };
        format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n{fields}\r\n").into_bytes()
    }
}

/// A subscriber's connection.
#[derive(Debug)]
pub(super) struct Wire {
    kind: Kind,
    /// The beginning of a unit.
    partial: Vec<u8>,
}

#[derive(Debug)]
enum Kind {
    /// A WebSocket or a stream of events whose head has not come.
    Head(Transport),
    WebSocket,
    Events(Events),
    LongPoll(LongPoll),
}

impl Wire {
    /// Creates the connection of a subscription whose first request was sent.
    pub(super) fn new(subscription: &Subscription) -> Wire {
        let kind = match subscription.transport {
            Transport::LongPoll => {
                Kind::LongPoll(LongPoll::new(subscription.path, subscription.form))
            }
            transport => Kind::Head(transport),
        };
        Wire { kind, partial: Vec::new() }
    }

    /// Whether the server has accepted the subscription; a long-poll's acceptance does not show.
    pub(super) fn has_begun(&self) -> bool {
        !matches!(self.kind, Kind::Head(_))
    }

    /// Takes bytes that arrived, and calls `hear` with each message among them. Returns the bytes
    /// to send, which are often none.
    pub(super) fn take(&mut self, bytes: &[u8], hear: &mut Hear<'_>) -> Result<Vec<u8>, String> {
        let mut reply = Vec::new();
        if self.partial.is_empty() {
            let used = self.units(bytes, hear, &mut reply)?;
            self.partial.extend_from_slice(&bytes[used..]);
        } else {
            let mut all = std::mem::take(&mut self.partial);
            all.extend_from_slice(bytes);
            let used = self.units(&all, hear, &mut reply)?;
            all.drain(..used);
            if !all.is_empty() {
                self.partial = all;
            }
        }
        if self.partial.len() > LONGEST {
            return Err(format!("an answer or a frame did not end within {LONGEST} bytes"));
        }
        Ok(reply)
    }

    /// Parses the complete units at the beginning of some bytes, and returns their length.
    fn units(
        &mut self,
        bytes: &[u8],
        hear: &mut Hear<'_>,
        reply: &mut Vec<u8>,
    ) -> Result<usize, String> {
        let mut used = 0;
        while used < bytes.len() {
            match self.unit(&bytes[used..], hear, reply)? {
                0 => break,
                count => used += count,
            }
        }
        Ok(used)
    }

    /// Parses one unit and returns its length; zero if it is not complete.
    fn unit(
        &mut self,
        bytes: &[u8],
        hear: &mut Hear<'_>,
        reply: &mut Vec<u8>,
    ) -> Result<usize, String> {
        match &mut self.kind {
            Kind::Head(transport) => {
                let Some(head) = Head::parse(bytes)? else { return Ok(0) };
                self.kind = match transport {
                    Transport::WebSocket => {
                        check(&head)?;
                        Kind::WebSocket
                    }
                    _ => Kind::Events(Events::new(&head)?),
                };
                Ok(head.end)
            }
            Kind::WebSocket => frame(bytes, hear, reply),
            Kind::Events(events) => events.take(bytes, hear),
            Kind::LongPoll(poll) => poll.take(bytes, hear, reply),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns the messages and the reply of bytes that arrive at once, and checks that they are
    /// the same when the bytes arrive one by one.
    pub(super) fn heard(
        subscription: &Subscription,
        bytes: &[u8],
    ) -> Result<(Vec<String>, Vec<u8>), String> {
        let of = |step: usize| {
            let (mut wire, mut all, mut replies) =
                (Wire::new(subscription), Vec::new(), Vec::new());
            for part in bytes.chunks(step) {
                let reply = wire.take(part, &mut |text| {
                    all.push(String::from_utf8_lossy(text).into_owned());
                    Ok(())
                })?;
                replies.extend(reply);
            }
            Ok((all, replies))
        };
        let whole: Result<_, String> = of(bytes.len().max(1));
        for step in [1, 2, 7] {
            assert_eq!(of(step).is_ok(), whole.is_ok());
            if let (Ok(parts), Ok(whole)) = (of(step), &whole) {
                assert_eq!(&parts, whole);
            }
        }
        whole
    }

    pub(super) fn subscription(transport: Transport, form: Form) -> Subscription {
        Subscription { transport, path: "/channel", form }
    }

    #[test]
    fn a_unit_without_an_end_is_given_up() {
        let mut wire = Wire::new(&subscription(Transport::LongPoll, Form::Plain));
        let head = b"HTTP/1.1 200 OK\r\ncontent-length: 999999\r\n\r\n";
        wire.take(head, &mut |_| Ok(())).unwrap();
        let mut parts = (0..20).map(|_| wire.take(&[b'x'; 10_000], &mut |_| Ok(())));
        assert!(parts.any(|taken| taken.is_err_and(|why| why.contains("did not end"))));
    }
}

// The head of an answer.

/// The most fields of a head.
const MOST_FIELDS: usize = 32;

/// The fields of an answer's head that matter to a subscriber or a publisher.
#[derive(Debug, Default)]
pub(crate) struct Head<'a> {
    /// The length of the head.
    pub end: usize,
    /// The status.
    pub code: u16,
    /// The length of the body, if the head has it.
    pub length: Option<usize>,
    /// Whether the body comes in chunks.
    pub is_chunked: bool,
    /// Whether the server closes the connection after this answer.
    pub closes: bool,
    /// `Sec-WebSocket-Accept`.
    pub accept: &'a str,
    /// `Etag`.
    pub etag: &'a str,
    /// `Last-Modified`.
    pub last_modified: &'a str,
    /// `Next`, of the laboratory's own servers.
    pub next: &'a str,
}

impl<'a> Head<'a> {
    /// Parses a head; `None` if it is not complete.
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Option<Head<'a>>, String> {
        let mut fields = [httparse::EMPTY_HEADER; MOST_FIELDS];
        let mut answer = httparse::Response::new(&mut fields);
        let end = match answer.parse(bytes) {
            Ok(httparse::Status::Complete(end)) => end,
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(error) => return Err(format!("the head of an answer is none: {error}")),
        };
        let mut head = Head { end, code: answer.code.unwrap_or(0), ..Head::default() };
        for field in &*answer.headers {
            let is = |name: &str| field.name.eq_ignore_ascii_case(name);
            let value = std::str::from_utf8(field.value).unwrap_or_default().trim();
            if is("content-length") {
                let length = value.parse().map_err(|_| format!("an answer's length is {value:?}"));
                head.length = Some(length?);
            } else if is("transfer-encoding") {
                head.is_chunked = value.eq_ignore_ascii_case("chunked");
            } else if is("connection") {
                head.closes = value.eq_ignore_ascii_case("close");
            } else if is("sec-websocket-accept") {
                head.accept = value;
            } else if is("etag") {
                head.etag = value;
            } else if is("last-modified") {
                head.last_modified = value;
            } else if is("next") {
                head.next = value;
            }
        }
        Ok(Some(head))
    }
}

/// Returns the data of the chunk at the beginning of some bytes, and the length of the chunk;
/// `None` if it is not complete.
pub(crate) fn chunk(bytes: &[u8]) -> Result<Option<(&[u8], usize)>, String> {
    let (begin, size) = match httparse::parse_chunk_size(bytes) {
        Ok(httparse::Status::Complete(found)) => found,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(_) => return Err("a chunk has no size".to_owned()),
    };
    let end = usize::try_from(size).ok().and_then(|size| begin.checked_add(size));
    let end = end.ok_or("a chunk is too large")?;
    match bytes.get(end..end.saturating_add(2)) {
        Some(b"\r\n") => Ok(Some((&bytes[begin..end], end + 2))),
        Some(_) => Err("a chunk is longer than its size".to_owned()),
        None => Ok(None),
    }
}

// Frames of a WebSocket, as a client receives them.

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
    let end = begin + length.min(LONGEST * 2);
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

// A stream of server-sent events.

/// The events of an answer, in chunks or up to the end of the connection.
#[derive(Debug)]
struct Events {
    is_chunked: bool,
    /// The beginning of a line.
    line: Vec<u8>,
    /// The data of the event that has begun; `None` without a line of data.
    data: Option<Vec<u8>>,
    /// Whether the event that has begun is of a kind that a page does not take for a message.
    is_other: bool,
}

impl Events {
    /// Creates the stream of an answer with this head.
    fn new(head: &Head<'_>) -> Result<Events, String> {
        match (head.code, head.length) {
            (200, None) => Ok(Events {
                is_chunked: head.is_chunked,
                line: Vec::new(),
                data: None,
                is_other: false,
            }),
            (code, length) => {
                Err(format!("a stream of events was answered {code} with the length {length:?}"))
            }
        }
    }

    /// Takes the chunk or the bytes at the beginning of some bytes and returns their length; zero
    /// if the chunk is not complete.
    fn take(&mut self, bytes: &[u8], hear: &mut Hear<'_>) -> Result<usize, String> {
        if !self.is_chunked {
            self.lines(bytes, hear)?;
            return Ok(bytes.len());
        }
        match chunk(bytes)? {
            None => Ok(0),
            Some((&[], _)) => Err("it ended a stream of events".to_owned()),
            Some((data, length)) => {
                self.lines(data, hear)?;
                Ok(length)
            }
        }
    }

    fn lines(&mut self, bytes: &[u8], hear: &mut Hear<'_>) -> Result<(), String> {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let Some(end) = part.strip_suffix(b"\n") else {
                self.line.extend_from_slice(part);
                continue;
            };
            if self.line.is_empty() {
                self.line(end, hear)?;
            } else {
                let mut line = std::mem::take(&mut self.line);
                line.extend_from_slice(end);
                self.line(&line, hear)?;
            }
        }
        Ok(())
    }

    fn line(&mut self, line: &[u8], hear: &mut Hear<'_>) -> Result<(), String> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            let is_other = std::mem::take(&mut self.is_other);
            return match self.data.take() {
                Some(_) if is_other => Err("an event is not of the kind message".to_owned()),
                Some(data) => hear(&data),
                None => Ok(()),
            };
        }
        if let Some(data) = value(line, b"data:") {
            match &mut self.data {
                None => self.data = Some(data.to_vec()),
                Some(all) => {
                    all.push(b'\n');
                    all.extend_from_slice(data);
                }
            }
        } else if let Some(kind) = value(line, b"event:") {
            self.is_other = kind != b"message";
        }
        // Ids, comments and unknown fields are no part of a message.
        Ok(())
    }
}

/// Returns the value of a line with this field.
fn value<'a>(line: &'a [u8], field: &[u8]) -> Option<&'a [u8]> {
    let value = line.strip_prefix(field)?;
    Some(value.strip_prefix(b" ").unwrap_or(value))
}

// Long-polls: an answer for each message, after which the next request is sent.

/// The way in which a server is asked for the message after the last one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::fanout) enum Form {
    /// Superpoll: messages as JSON, with the number that the next request gives in `?after=`.
    Superpoll,
    /// nchan: `If-Modified-Since` and `If-None-Match` with the fields of the last answer.
    Nchan,
    /// The laboratory's own servers: `?after=` with the answer's field `Next`.
    Numbered,
    /// The same request again, after which the server sends only later messages.
    Plain,
}

/// An answer of Superpoll.
#[derive(Deserialize)]
struct Answer<'a> {
    #[serde(borrow)]
    messages: Vec<Message<'a>>,
    next: u64,
    #[serde(default)]
    missed: bool,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    data: Cow<'a, str>,
}

/// The long-polls on a connection.
#[derive(Debug)]
struct LongPoll {
    path: &'static str,
    form: Form,
}

impl LongPoll {
    /// Creates the long-polls of a connection on which the first request was sent.
    fn new(path: &'static str, form: Form) -> LongPoll {
        LongPoll { path, form }
    }

    /// Takes the answer at the beginning of some bytes and returns its length; zero if the answer
    /// is not complete. The next request is added to the reply.
    fn take(
        &self,
        bytes: &[u8],
        hear: &mut Hear<'_>,
        reply: &mut Vec<u8>,
    ) -> Result<usize, String> {
        let Some(head) = Head::parse(bytes)? else { return Ok(0) };
        if head.code != 200 || head.closes {
            return Err(format!(
                "a long-poll was answered {}{}",
                head.code,
                if head.closes { ", and its connection ends" } else { "" }
            ));
        }
        let rest = &bytes[head.end..];
        let (body, length) = match head.length {
            Some(length) => match rest.get(..length) {
                Some(body) => (Cow::Borrowed(body), length),
                None => return Ok(0),
            },
            None if head.is_chunked => match dechunked(rest)? {
                Some((body, length)) => (Cow::Owned(body), length),
                None => return Ok(0),
            },
            None => return Err("an answer to a long-poll has no length".to_owned()),
        };
        let (path, mut query, mut fields) = (self.path, String::new(), String::new());
        match self.form {
            Form::Superpoll => {
                let text = || String::from_utf8_lossy(&body);
                let answer: Answer<'_> = serde_json::from_slice(&body)
                    .map_err(|error| format!("an answer is {:?}: {error}", text()))?;
                if answer.missed {
                    return Err("messages were missed".to_owned());
                }
                answer.messages.iter().try_for_each(|one| hear(one.data.as_bytes()))?;
                query = format!("?after={}", answer.next);
            }
            Form::Nchan => {
                hear(&body)?;
                let (since, tag) = (head.last_modified, head.etag);
                fields = format!("if-modified-since: {since}\r\nif-none-match: {tag}\r\n");
            }
            Form::Numbered => {
                hear(&body)?;
                query = format!("?after={}", head.next);
            }
            Form::Plain => hear(&body)?,
        }
        let request = format!("GET {path}{query} HTTP/1.1\r\nhost: localhost\r\n{fields}\r\n");
        reply.extend_from_slice(request.as_bytes());
        Ok(head.end + length)
    }
}

/// Returns a body that comes in chunks, and the length of all chunks; `None` if it is not complete.
fn dechunked(bytes: &[u8]) -> Result<Option<(Vec<u8>, usize)>, String> {
    let (mut body, mut used) = (Vec::new(), 0);
    while let Some((data, length)) = chunk(&bytes[used..])? {
        used += length;
        if data.is_empty() {
            return Ok(Some((body, used)));
        }
        body.extend_from_slice(data);
    }
    Ok(None)
}

#[cfg(test)]
mod head_tests {
    use super::*;
    use crate::fanout::Transport;
    use crate::fanout::wire::Form;
    use crate::fanout::wire::tests::{heard, subscription};

    #[test]
    fn heads_and_chunks_are_read_to_their_end() {
        let bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nETag: \"a\"\r\nconnection: close\r\n\r\nhello";
        let head = Head::parse(bytes).unwrap().unwrap();
        assert_eq!((head.code, head.length, head.etag), (200, Some(5), "\"a\""));
        assert!(head.closes && &bytes[head.end..] == b"hello");
        assert!(Head::parse(&bytes[..20]).unwrap().is_none());
        for bad in [&b"HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n"[..], b"SMTP"] {
            assert!(Head::parse(bad).is_err());
        }
        assert_eq!(chunk(b"3\r\nabc\r\nrest").unwrap(), Some((&b"abc"[..], 8)));
        assert_eq!(chunk(b"0\r\n\r\n").unwrap(), Some((&b""[..], 5)));
        assert_eq!(chunk(b"3\r\nabc\r").unwrap(), None);
        for bad in [&b"x\r\n"[..], b"3\r\nabcd\r\n", b"ffffffffffffffff\r\nx"] {
            assert!(chunk(bad).is_err(), "{bad:?}");
        }
    }

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

#[cfg(test)]
mod events_tests {
    use crate::fanout::Transport;
    use crate::fanout::wire::Form;
    use crate::fanout::wire::tests::{heard, subscription};

    fn of(text: &str) -> Result<Vec<String>, String> {
        let subscription = subscription(Transport::Events, Form::Plain);
        heard(&subscription, text.as_bytes()).map(|(texts, _)| texts)
    }

    #[test]
    fn events_are_taken_from_chunks_and_from_plain_streams() {
        let plain =
            "HTTP/1.1 200 OK\r\n\r\n: hi\n\nid: 1\ndata: one\n\ndata:two\r\ndata: lines\r\n\r\n";
        assert_eq!(of(plain).unwrap(), ["one", "two\nlines"]);
        let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n\
                       10\r\n[opened]\ndata: o\r\n7\r\nne\n\ndat\r\n8\r\na: two\n\n\r\n";
        // The first chunk has 16 bytes, and an event ends in the second.
        assert_eq!(of(chunked).unwrap(), ["one", "two"]);
        let named = "HTTP/1.1 200 OK\r\n\r\nevent: message\ndata: one\n\n";
        assert_eq!(of(named).unwrap(), ["one"]);
    }

    #[test]
    fn an_end_and_other_events_are_refused() {
        for (text, part) in [
            ("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n", "length"),
            ("HTTP/1.1 503 No\r\n\r\n", "503"),
            ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", "ended"),
            ("HTTP/1.1 200 OK\r\n\r\nevent: missed\ndata: x\n\n", "kind message"),
        ] {
            let error = of(text).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}

#[cfg(test)]
mod poll_tests {
    use super::*;
    use crate::fanout::Transport;
    use crate::fanout::wire::tests::{heard, subscription};

    fn of(form: Form, answer: &str) -> Result<(Vec<String>, String), String> {
        let subscription = subscription(Transport::LongPoll, form);
        let (texts, reply) = heard(&subscription, answer.as_bytes())?;
        Ok((texts, String::from_utf8(reply).unwrap()))
    }

    #[test]
    fn the_next_request_asks_for_what_comes_after_the_answer() {
        let body =
            r#"{"messages":[{"id":4,"data":"a"},{"id":5,"data":"\"b"}],"next":5,"epoch":"x"}"#;
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
        let (texts, request) = of(Form::Superpoll, &(head + body)).unwrap();
        assert_eq!(texts, ["a", "\"b"]);
        assert_eq!(request, "GET /channel?after=5 HTTP/1.1\r\nhost: localhost\r\n\r\n");

        let answer =
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nLast-Modified: Tue\r\nEtag: 3\r\n\r\na";
        let (texts, request) = of(Form::Nchan, answer).unwrap();
        assert_eq!(texts, ["a"]);
        assert!(request.contains("\r\nif-modified-since: Tue\r\nif-none-match: 3\r\n\r\n"));

        let answer =
            "HTTP/1.1 200 OK\r\nnext: 9\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n";
        let (texts, request) = of(Form::Numbered, &answer.repeat(2)).unwrap();
        assert_eq!(texts, ["a", "a"]);
        assert_eq!(request.matches("GET /channel?after=9 ").count(), 2);
    }

    #[test]
    fn anything_but_messages_is_refused() {
        for (form, answer, part) in [
            (Form::Plain, "HTTP/1.1 204 No\r\n\r\n", "204"),
            (
                Form::Plain,
                "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n",
                "ends",
            ),
            (Form::Plain, "HTTP/1.1 200 OK\r\n\r\n", "no length"),
            (Form::Superpoll, "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}", "messages"),
            (
                Form::Superpoll,
                "HTTP/1.1 200 OK\r\ncontent-length: 40\r\n\r\n{\"messages\":[],\"next\":1,\"missed\":true}  ",
                "missed",
            ),
        ] {
            let error = of(form, answer).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
