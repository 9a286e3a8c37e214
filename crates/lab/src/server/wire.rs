//! The bytes that arrive on a client's connection, up to the answers and messages in them.
//!
//! A unit is a head, a frame, a chunk or a whole answer, by the protocol. Complete units are parsed
//! where they were read; only the beginning of a unit whose rest has not arrived is copied. A
//! message usually arrives as one unit in one read, so thousands of connections have no buffer.

use std::borrow::Cow;

use serde::Deserialize;

use crate::server::http::{self, Head, chunk};
use crate::server::http2::{Http2, Part, Request};

/// The longest unit of which only a part has arrived.
const LONGEST: usize = 1 << 17;

/// Bytes of a request that a server sends back.
pub(crate) const ECHO: usize = 64;

/// A function that takes the text of a message.
pub(crate) type Hear<'a> = dyn FnMut(&[u8]) -> Result<(), String> + 'a;

/// Returns the text of a message: its number, and letters that depend on the number.
pub(crate) fn message(number: u64, bytes: usize) -> String {
    let mut text = format!("{number:012} ");
    let letters = (0..bytes.saturating_sub(text.len()) as u64).map(|place| number + place);
    text.extend(letters.map(|sum| char::from(b'a' + (sum % 26) as u8)));
    text
}

crate::by_name::named! {
    /// The protocol of a subscriber.
    pub(crate) enum Transport {
        /// A connection after the handshake of RFC 6455.
        WebSocket = "websocket",
        /// An answer that does not end, of type `text/event-stream`.
        Events = "sse",
        /// A request for each message.
        LongPoll = "long-poll",
    }
}

/// The request that begins a subscription, and the form of the messages that follow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subscription {
    /// The protocol.
    pub transport: Transport,
    /// The path of the channel.
    pub path: &'static str,
    /// The way to ask for the next message, for long-polls.
    pub form: Form,
}

impl Subscription {
    /// Returns the first request.
    fn request(&self) -> String {
        let fields = match self.transport {
            Transport::WebSocket => FIELDS,
            Transport::Events => "accept: text/event-stream\r\n",
            Transport::LongPoll => "",
        };
        http::request("GET", self.path, fields, None)
    }
}

/// The request of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Opening {
    /// None: the connection is silent.
    Silent,
    /// A message that the server sends back.
    Echo,
    /// A request for the page `/`, which has this body; empty for any body.
    Get(&'static [u8]),
    /// The same over HTTP/2.
    GetByHttp2(&'static [u8]),
    /// A subscription of a channel.
    Subscribe(Subscription),
}

/// A client's connection.
#[derive(Debug)]
pub(crate) struct Wire {
    kind: Kind,
    /// The beginning of a unit.
    partial: Vec<u8>,
}

#[derive(Debug)]
enum Kind {
    /// No request was sent.
    Silent,
    /// A message was sent that comes back: its number, and how many bytes have not come.
    Echo(u64, usize),
    /// A request for a page was sent: the body of its answer, and whether that has not come.
    Page(&'static [u8], bool),
    /// The same over HTTP/2.
    Http2(Box<Http2Page>),
    /// A WebSocket or a stream of events whose head has not come.
    Head(Transport, Form),
    WebSocket(Form),
    Events(Events, Form),
    LongPoll(LongPoll),
}

impl Wire {
    /// Creates a connection without a request.
    pub(crate) fn new() -> Wire {
        Wire { kind: Kind::Silent, partial: Vec::new() }
    }

    /// Returns the request that is to be sent now, empty for a silent connection. `number` tells
    /// the messages of connections apart that come back.
    pub(crate) fn ask(&mut self, opening: &Opening, number: u64) -> Vec<u8> {
        let (kind, request) = match opening {
            Opening::Silent => (Kind::Silent, String::new()),
            Opening::Echo => (Kind::Echo(number, ECHO), message(number, ECHO)),
            Opening::Get(body) => (Kind::Page(body, true), http::request("GET", "/", "", None)),
            Opening::GetByHttp2(body) => return self.ask_by_http2(body),
            Opening::Subscribe(subscription) => {
                let Subscription { transport, path, form } = *subscription;
                let kind = match transport {
                    Transport::LongPoll => Kind::LongPoll(LongPoll { path, form }),
                    transport => Kind::Head(transport, form),
                };
                (kind, subscription.request())
            }
        };
        self.kind = kind;
        request.into_bytes()
    }

    /// Returns the request for a page with this body, on a connection that has begun already or
    /// begins now.
    fn ask_by_http2(&mut self, body: &'static [u8]) -> Vec<u8> {
        let mut request = Vec::new();
        if !matches!(self.kind, Kind::Http2(_)) {
            let client = Http2::begin(&mut request);
            self.kind = Kind::Http2(Box::new(Http2Page { client, body, left: None }));
        }
        if let Kind::Http2(page) = &mut self.kind {
            let shared = [(":path", "/"), (":authority", "localhost")];
            page.client.ask(Request { shared: &shared, ..Request::default() }, &mut request);
            page.left = Some(body);
        }
        request
    }

    /// Whether the server has not answered the request; that a long-poll is accepted does not show.
    pub(crate) fn is_waiting(&self) -> bool {
        match &self.kind {
            Kind::Http2(page) => page.left.is_some(),
            kind => matches!(kind, Kind::Head(..) | Kind::Page(_, true) | Kind::Echo(_, 1..)),
        }
    }

    /// Takes bytes that arrived, and calls `hear` with each message among them. Returns the bytes
    /// to send, which are often none.
    pub(crate) fn take(&mut self, bytes: &[u8], hear: &mut Hear<'_>) -> Result<Vec<u8>, String> {
        let mut reply = Vec::new();
        if let Kind::Http2(page) = &mut self.kind {
            page.take(bytes, &mut reply)?;
        } else if self.partial.is_empty() {
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
            Kind::Silent | Kind::Page(_, false) | Kind::Echo(_, 0) | Kind::Http2(_) => {
                Err("it sent data without a request".to_owned())
            }
            Kind::Echo(number, left) => {
                let sent = message(*number, ECHO);
                let rest = &sent.as_bytes()[ECHO - *left..];
                if !rest.starts_with(bytes) {
                    return Err("a message came back as another, or with more bytes".to_owned());
                }
                *left -= bytes.len();
                Ok(bytes.len())
            }
            Kind::Page(expected, is_waiting) => {
                let Some((head, body, length)) = http::answer(bytes)? else { return Ok(0) };
                if head.code != 200 || !(expected.is_empty() || *body == **expected) {
                    let body = String::from_utf8_lossy(&body);
                    return Err(format!("an answer was {} with the body {body:?}", head.code));
                }
                *is_waiting = false;
                Ok(length)
            }
            &mut Kind::Head(transport, form) => {
                let Some(head) = Head::parse(bytes)? else { return Ok(0) };
                self.kind = match transport {
                    Transport::WebSocket => {
                        check(&head)?;
                        Kind::WebSocket(form)
                    }
                    _ => Kind::Events(Events::new(&head)?, form),
                };
                Ok(head.end)
            }
            Kind::WebSocket(Form::Centrifugo) => {
                frame(bytes, &mut |text| publication(text, hear), reply)
            }
            Kind::WebSocket(_) => frame(bytes, hear, reply),
            Kind::Events(events, Form::Centrifugo) => {
                events.take(bytes, &mut |text| publication(text, hear))
            }
            Kind::Events(events, _) => events.take(bytes, hear),
            Kind::LongPoll(poll) => poll.take(bytes, hear, reply),
        }
    }
}

// A page over HTTP/2.

/// A connection of HTTP/2 that asks for a page.
#[derive(Debug)]
struct Http2Page {
    client: Http2,
    body: &'static [u8],
    /// The part of the body that has not come, if the answer is not complete.
    left: Option<&'static [u8]>,
}

impl Http2Page {
    fn take(&mut self, bytes: &[u8], reply: &mut Vec<u8>) -> Result<(), String> {
        let Http2Page { client, body, left } = self;
        let mut take = |_, part: Part<'_>| {
            let rest = left.ok_or("it sent data without a request")?;
            match part {
                Part::Head => {}
                Part::Data(_) if body.is_empty() => {}
                Part::Data(data) => {
                    *left = Some(rest.strip_prefix(data).ok_or("an answer had another body")?);
                }
                Part::End if rest.is_empty() => *left = None,
                Part::End => return Err(format!("{} bytes of a body did not come", rest.len())),
            }
            Ok(())
        };
        client.take(bytes, &mut take, reply)
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

/// An event: its kind, empty without one, its data, and its id.
pub(crate) type Event<'a> = (&'a [u8], &'a [u8], &'a [u8]);

/// The lines of a stream, up to the event in them, as a page's `EventSource` takes them.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    /// The beginning of a line.
    line: Vec<u8>,
    kind: Vec<u8>,
    /// The data of the event that has begun; `None` without a line of data.
    data: Option<Vec<u8>>,
    /// The last id, with which the stream is resumed; empty before.
    pub last_id: Vec<u8>,
}

impl Lines {
    /// Takes bytes, and calls `hear` with each complete event.
    pub(crate) fn take(
        &mut self,
        bytes: &[u8],
        hear: &mut dyn FnMut(Event<'_>) -> Result<(), String>,
    ) -> Result<(), String> {
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

    fn line(
        &mut self,
        line: &[u8],
        hear: &mut dyn FnMut(Event<'_>) -> Result<(), String>,
    ) -> Result<(), String> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            let heard = match self.data.take() {
                Some(data) => hear((&self.kind, &data, &self.last_id)),
                None => Ok(()),
            };
            self.kind.clear();
            return heard;
        }
        let end = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
        let value = line.get(end + 1..).unwrap_or_default();
        let value = value.strip_prefix(b" ").unwrap_or(value);
        let set = |to: &mut Vec<u8>| {
            to.clear();
            to.extend_from_slice(value);
        };
        match (&line[..end], &mut self.data) {
            (b"data", None) => self.data = Some(value.to_vec()),
            (b"data", Some(all)) => {
                all.push(b'\n');
                all.extend_from_slice(value);
            }
            (b"event", _) => set(&mut self.kind),
            (b"id", _) => set(&mut self.last_id),
            // Comments, and the time to wait before the next connection.
            _ => {}
        }
        Ok(())
    }
}

/// The events of an answer, in chunks or up to the end of the connection.
#[derive(Debug)]
struct Events {
    is_chunked: bool,
    lines: Lines,
}

impl Events {
    /// Creates the stream of an answer with this head.
    fn new(head: &Head<'_>) -> Result<Events, String> {
        match (head.code, head.length) {
            (200, None) => Ok(Events { is_chunked: head.is_chunked, lines: Lines::default() }),
            (code, length) => {
                Err(format!("a stream of events was answered {code} with the length {length:?}"))
            }
        }
    }

    /// Takes the chunk or the bytes at the beginning of some bytes and returns their length; zero
    /// if the chunk is not complete.
    fn take(&mut self, bytes: &[u8], hear: &mut Hear<'_>) -> Result<usize, String> {
        let (data, length) = match self.is_chunked {
            false => (bytes, bytes.len()),
            true => match chunk(bytes)? {
                None => return Ok(0),
                Some((&[], _)) => return Err("it ended a stream of events".to_owned()),
                Some(found) => found,
            },
        };
        self.lines.take(data, &mut |(kind, data, _)| match kind {
            b"" | b"message" => hear(data),
            _ => Err("an event is not of the kind message".to_owned()),
        })?;
        Ok(length)
    }
}

// Long-polls: an answer for each message, after which the next request is sent.

/// The way in which a server is asked for the message after the last one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    /// Superpoll: messages as JSON, with the number that the next request gives in `?after=`.
    Superpoll,
    /// nchan: `If-Modified-Since` and `If-None-Match` with the fields of the last answer.
    Nchan,
    /// The laboratory's own servers: `?after=` with the answer's field `Next`.
    Numbered,
    /// The same request again, after which the server sends only later messages.
    Plain,
    /// Centrifugo, which has no long-poll: messages are in JSON, among others.
    Centrifugo,
}

/// A push of Centrifugo: a publication, or something else.
#[derive(Deserialize)]
struct Push<'a> {
    #[serde(borrow, default, rename = "pub")]
    publication: Option<Publication<'a>>,
}

#[derive(Deserialize)]
struct Publication<'a> {
    #[serde(borrow)]
    data: Cow<'a, str>,
}

/// Takes a push of Centrifugo, and calls `hear` with the message if the push is a publication.
fn publication(text: &[u8], hear: &mut Hear<'_>) -> Result<(), String> {
    let push: Push<'_> =
        serde_json::from_slice(text).map_err(|error| format!("a message is not JSON: {error}"))?;
    push.publication.map_or(Ok(()), |one| hear(one.data.as_bytes()))
}

/// An answer of Superpoll to a long-poll.
#[derive(Deserialize)]
pub(crate) struct Polled<'a> {
    /// The messages, in their order.
    #[serde(borrow)]
    pub messages: Vec<Item<'a>>,
    /// The number of the last one, or of the message before the next one.
    pub next: u64,
    /// When the log began.
    #[serde(borrow, default)]
    pub epoch: Cow<'a, str>,
    /// Whether messages are missing before these.
    #[serde(default)]
    pub missed: bool,
}

/// A message in such an answer.
#[derive(Deserialize)]
pub(crate) struct Item<'a> {
    /// Its number.
    pub id: u64,
    /// Its text.
    #[serde(borrow)]
    pub data: Cow<'a, str>,
}

impl Polled<'_> {
    /// Parses an answer.
    pub(crate) fn parse(body: &[u8]) -> Result<Polled<'_>, String> {
        let text = || String::from_utf8_lossy(body);
        serde_json::from_slice(body).map_err(|error| format!("an answer is {:?}: {error}", text()))
    }
}

/// The long-polls on a connection.
#[derive(Debug)]
struct LongPoll {
    path: &'static str,
    form: Form,
}

impl LongPoll {
    /// Takes the answer at the beginning of some bytes and returns its length; zero if the answer
    /// is not complete. The next request is added to the reply.
    fn take(
        &self,
        bytes: &[u8],
        hear: &mut Hear<'_>,
        reply: &mut Vec<u8>,
    ) -> Result<usize, String> {
        let Some((head, body, length)) = http::answer(bytes)? else { return Ok(0) };
        if head.code != 200 || head.closes {
            return Err(format!(
                "a long-poll was answered {}{}",
                head.code,
                if head.closes { ", and its connection ends" } else { "" }
            ));
        }
        if head.length.is_none() && !head.is_chunked {
            return Err("an answer to a long-poll has no length".to_owned());
        }
        let (path, mut query, mut fields) = (self.path, String::new(), String::new());
        match self.form {
            Form::Superpoll => {
                let answer = Polled::parse(&body)?;
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
            Form::Plain | Form::Centrifugo => hear(&body)?,
        }
        let request = http::request("GET", &format!("{path}{query}"), &fields, None);
        reply.extend_from_slice(request.as_bytes());
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the messages and the reply of bytes that arrive at once after the request, and
    /// checks that they are the same when the bytes arrive one by one.
    fn heard(opening: Opening, bytes: &[u8]) -> Result<(Vec<String>, Vec<u8>), String> {
        let of = |step: usize| {
            let (mut wire, mut all, mut replies) = (Wire::new(), Vec::new(), Vec::new());
            wire.ask(&opening, 7);
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

    #[test]
    fn messages_have_their_length_and_differ() {
        for bytes in [16, 17, 100] {
            assert_eq!(message(7, bytes).len(), bytes);
        }
        assert_eq!(message(7, 16), "000000000007 hij");
        assert_ne!(message(7, 100)[13..], message(8, 100)[13..]);
    }

    fn subscription(transport: Transport, form: Form) -> Opening {
        Opening::Subscribe(Subscription { transport, path: "/channel", form })
    }

    /// Takes all but the last byte, which answers the request.
    fn ends_it(opening: Opening, answer: &[u8]) {
        let (mut wire, quiet) = (Wire::new(), &mut |_: &[u8]| Err("a message".to_owned()));
        assert!(!wire.is_waiting() && !wire.ask(&opening, 7).is_empty());
        let (last, others) = answer.split_last().unwrap();
        wire.take(others, quiet).unwrap();
        assert!(wire.is_waiting());
        assert!(wire.take(&[*last], quiet).unwrap().is_empty() && !wire.is_waiting());
    }

    const PAGE: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 13\r\n\r\nHello, World!";

    #[test]
    fn answers_are_complete_at_their_last_byte_and_others_are_refused() {
        let get = Opening::Get(b"Hello, World!");
        ends_it(get, PAGE);
        ends_it(Opening::Get(b""), PAGE);
        ends_it(Opening::Echo, message(7, ECHO).as_bytes());
        for wrong in [
            &[PAGE, b"H"].concat()[..],
            b"HTTP/1.1 404 No\r\ncontent-length: 13\r\n\r\nHello, World!",
            b"HTTP/1.1 200 OK\r\ncontent-length: 13\r\n\r\nHello, Werld!",
            b"HTTP/1.1 200 OK\r\n\r\n",
            b"no",
        ] {
            assert!(heard(get, wrong).is_err(), "{:?}", String::from_utf8_lossy(wrong));
        }
        let another = message(8, ECHO);
        assert!(heard(Opening::Echo, another.as_bytes()).is_err());
        assert!(heard(Opening::Echo, (message(7, ECHO) + "x").as_bytes()).is_err());
        assert!(heard(Opening::Silent, b"x").unwrap_err().contains("without a request"));
    }

    #[test]
    fn handshakes_must_have_the_answer_to_the_key() {
        let websocket = subscription(Transport::WebSocket, Form::Plain);
        let answer = format!(
            "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\n\
             sec-websocket-accept: {ACCEPTED}\r\n\r\n"
        );
        ends_it(websocket, answer.as_bytes());
        let other = b"HTTP/1.1 101 Switching Protocols\r\nsec-websocket-accept: x\r\n\r\n";
        assert!(heard(websocket, other).is_err());
    }

    #[test]
    fn a_unit_without_an_end_is_given_up() {
        let mut wire = Wire::new();
        wire.ask(&subscription(Transport::LongPoll, Form::Plain), 0);
        let head = b"HTTP/1.1 200 OK\r\ncontent-length: 999999\r\n\r\n";
        wire.take(head, &mut |_| Ok(())).unwrap();
        let mut parts = (0..20).map(|_| wire.take(&[b'x'; 10_000], &mut |_| Ok(())));
        assert!(parts.any(|taken| taken.is_err_and(|why| why.contains("did not end"))));
    }

    fn frames(frames: &[u8]) -> Result<(Vec<String>, Vec<u8>), String> {
        let head = format!("HTTP/1.1 101 X\r\nsec-websocket-accept: {ACCEPTED}\r\n\r\n");
        let websocket = subscription(Transport::WebSocket, Form::Plain);
        heard(websocket, &[head.as_bytes(), frames].concat())
    }

    #[test]
    fn frames_are_taken_wherever_they_are_cut_and_pings_answered() {
        let (texts, reply) = frames(b"\x81\x02hi\x89\x01p\x8a\x00\x81\x02ho").unwrap();
        assert_eq!(texts, ["hi", "ho"]);
        assert_eq!(reply, b"\x8a\x81\0\0\0\0p");
        let long = [&b"\x81\x7e\x01\x00"[..], &[b'x'; 256]].concat();
        assert_eq!(frames(&long).unwrap().0, ["x".repeat(256)]);
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
        for (bytes, part) in [
            (&b"\x88\x02\x03\xf5"[..], "code 1013"),
            (b"\x88\x00", "code 1005"),
            (b"\x82\x01b", "kind 2"),
            (b"\x01\x01b", "kind 1"),
            (b"\x81\x81\0\0\0\0b", "0x81"),
        ] {
            let error = frames(bytes).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
        let refused = b"HTTP/1.1 403 No\r\ncontent-length: 0\r\n\r\n";
        let error = heard(subscription(Transport::WebSocket, Form::Plain), refused).unwrap_err();
        assert!(error.contains("403"), "{error}");
    }

    #[test]
    fn publications_of_centrifugo_are_messages_and_other_pushes_are_not() {
        let pushes = r#"{"connect":{"client":"1","subs":{"a":{}}}} {} {"channel":"a","pub":{"data":"one \"1\""}}"#;
        let [connect, ping, publication] = &pushes.splitn(3, ' ').collect::<Vec<_>>()[..] else {
            panic!("three pushes")
        };
        let stream: String =
            [connect, ping, publication].map(|one| format!("data: {one}\n\n")).concat();
        let events = subscription(Transport::Events, Form::Centrifugo);
        let text = format!("HTTP/1.1 200 OK\r\n\r\n{stream}");
        assert_eq!(heard(events, text.as_bytes()).unwrap().0, [r#"one "1""#]);
        let head = format!("HTTP/1.1 101 X\r\nsec-websocket-accept: {ACCEPTED}\r\n\r\n");
        let frame = |text: &str| format!("\x01{}{text}", char::from(text.len() as u8));
        let frames: Vec<u8> = [connect, ping, publication]
            .map(|one| {
                let mut frame = frame(one).into_bytes();
                frame[0] = 0x81;
                frame
            })
            .concat();
        let websocket = subscription(Transport::WebSocket, Form::Centrifugo);
        let bytes = [head.as_bytes(), &frames].concat();
        assert_eq!(heard(websocket, &bytes).unwrap().0, [r#"one "1""#]);
        let wrong = subscription(Transport::Events, Form::Centrifugo);
        assert!(heard(wrong, b"HTTP/1.1 200 OK\r\n\r\ndata: x\n\n").unwrap_err().contains("JSON"));
    }

    fn events(text: &str) -> Result<Vec<String>, String> {
        let events = subscription(Transport::Events, Form::Plain);
        heard(events, text.as_bytes()).map(|(texts, _)| texts)
    }

    #[test]
    fn events_are_taken_from_chunks_and_from_plain_streams() {
        let plain =
            "HTTP/1.1 200 OK\r\n\r\n: hi\n\nid: 1\ndata: one\n\ndata:two\r\ndata: lines\r\n\r\n";
        assert_eq!(events(plain).unwrap(), ["one", "two\nlines"]);
        let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n\
                       10\r\n[opened]\ndata: o\r\n7\r\nne\n\ndat\r\n8\r\na: two\n\n\r\n";
        // The first chunk has 16 bytes, and an event ends in the second.
        assert_eq!(events(chunked).unwrap(), ["one", "two"]);
        let named = "HTTP/1.1 200 OK\r\n\r\nevent: message\ndata: one\n\n";
        assert_eq!(events(named).unwrap(), ["one"]);
    }

    #[test]
    fn events_come_with_their_ids_wherever_the_stream_is_cut() {
        let text = "retry: 2000\nid: 0-a\n: hi\nevent: missed\nid: 0-a\ndata: true\n\n\
                    id: 1-a\ndata: x\n\nid: 2-a\ndata: y\n";
        for cut in 0..text.len() {
            let (mut lines, mut heard) = (Lines::default(), Vec::new());
            for part in [&text[..cut], &text[cut..]] {
                let hear = &mut |(kind, data, id): Event<'_>| {
                    heard.push(
                        [kind, data, id].map(|part| String::from_utf8_lossy(part).into_owned()),
                    );
                    Ok(())
                };
                lines.take(part.as_bytes(), hear).unwrap();
            }
            assert_eq!(heard, [["missed", "true", "0-a"], ["", "x", "1-a"]]);
            assert_eq!(lines.last_id, b"2-a");
        }
    }

    #[test]
    fn an_end_and_other_events_are_refused() {
        for (text, part) in [
            ("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n", "length"),
            ("HTTP/1.1 503 No\r\n\r\n", "503"),
            ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", "ended"),
            ("HTTP/1.1 200 OK\r\n\r\nevent: missed\ndata: x\n\n", "kind message"),
        ] {
            let error = events(text).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }

    fn polls(form: Form, answer: &str) -> Result<(Vec<String>, String), String> {
        let polls = subscription(Transport::LongPoll, form);
        let (texts, reply) = heard(polls, answer.as_bytes())?;
        Ok((texts, String::from_utf8(reply).unwrap()))
    }

    #[test]
    fn the_next_request_asks_for_what_comes_after_the_answer() {
        let body =
            r#"{"messages":[{"id":4,"data":"a"},{"id":5,"data":"\"b"}],"next":5,"epoch":"x"}"#;
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
        let (texts, request) = polls(Form::Superpoll, &(head + body)).unwrap();
        assert_eq!(texts, ["a", "\"b"]);
        assert_eq!(request, "GET /channel?after=5 HTTP/1.1\r\nhost: localhost\r\n\r\n");

        let answer =
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nLast-Modified: Tue\r\nEtag: 3\r\n\r\na";
        let (texts, request) = polls(Form::Nchan, answer).unwrap();
        assert_eq!(texts, ["a"]);
        assert!(request.contains("\r\nif-modified-since: Tue\r\nif-none-match: 3\r\n\r\n"));

        let answer =
            "HTTP/1.1 200 OK\r\nnext: 9\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n";
        let (texts, request) = polls(Form::Numbered, &answer.repeat(2)).unwrap();
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
            let error = polls(form, answer).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
