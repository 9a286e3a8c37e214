//! A client that writes frames byte by byte, and a connection whose events are kept.

use superpoll_http2::{
    Config, Connection, ConnectionError, ErrorCode, Event, Scratch, Step, StreamError, StreamKey,
};

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const PRIORITY: u8 = 2;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PUSH_PROMISE: u8 = 5;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;
pub(crate) const PRIORITY_UPDATE: u8 = 16;

pub(crate) const END_STREAM: u8 = 1;
pub(crate) const ACK: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;
pub(crate) const PADDED: u8 = 8;
pub(crate) const WITH_PRIORITY: u8 = 32;

/// The flags of a whole request.
pub(crate) const WHOLE: u8 = END_HEADERS | END_STREAM;

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// A block of literals that no table keeps.
pub(crate) fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, value) in fields {
        bytes.push(0);
        for text in [name, value] {
            match text.len() {
                short @ ..127 => bytes.push(short as u8),
                long => {
                    bytes.push(127);
                    let mut rest = long - 127;
                    while rest >= 128 {
                        bytes.push((rest % 128 + 128) as u8);
                        rest /= 128;
                    }
                    bytes.push(rest as u8);
                }
            }
            bytes.extend(text.bytes());
        }
    }
    bytes
}

pub(crate) const GET: [(&str, &str); 4] =
    [(":method", "GET"), (":scheme", "https"), (":path", "/"), (":authority", "a.test")];

pub(crate) const POST: [(&str, &str); 4] =
    [(":method", "POST"), (":scheme", "https"), (":path", "/"), (":authority", "a.test")];

/// The pseudo-header fields of a request, and other fields.
pub(crate) fn with(first: &[(&str, &str)], more: &[(&str, &str)]) -> Vec<u8> {
    block(&[first, more].concat())
}

pub(crate) fn get(stream: u32) -> Vec<u8> {
    frame(HEADERS, WHOLE, stream, &block(&GET))
}

pub(crate) fn post(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_HEADERS, stream, &block(&POST))
}

pub(crate) fn settings(all: &[(u16, u32)]) -> Vec<u8> {
    let mut payload = Vec::new();
    for (name, value) in all {
        payload.extend(name.to_be_bytes());
        payload.extend(value.to_be_bytes());
    }
    frame(SETTINGS, 0, 0, &payload)
}

/// The preface and the settings of a client.
pub(crate) fn preface() -> Vec<u8> {
    [superpoll_http2::PREFACE, &settings(&[])].concat()
}

pub(crate) fn window_update(stream: u32, by: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, stream, &by.to_be_bytes())
}

pub(crate) fn rst(stream: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes())
}

pub(crate) type Pairs = Vec<(String, String)>;

/// A request that is kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Request {
    pub(crate) id: u32,
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) host: String,
    pub(crate) scheme: Option<String>,
    pub(crate) protocol: Option<String>,
    pub(crate) fields: Pairs,
    pub(crate) length: Option<u64>,
    pub(crate) wants: (bool, bool),
    pub(crate) is_over: bool,
}

/// An event that is kept. Pieces of one frame's data are joined.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Kept {
    Request(Request),
    Refused(u32, StreamError),
    Data(u32, Vec<u8>, bool),
    Trailers(u32, Pairs),
    Reset(u32, ErrorCode),
    Failed(u32, StreamError),
    Opened(Option<u32>),
    GoAway(ErrorCode),
    Error(ConnectionError),
}

fn pairs(fields: superpoll_http1::Fields<'_>) -> Pairs {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    fields.iter().map(|it| (text(it.name.as_bytes()), text(it.value.as_bytes()))).collect()
}

/// Keeps an event whose data is in some bytes; `None` if it says nothing.
pub(crate) fn keep(event: &Event<'_>, bytes: &[u8]) -> Option<Kept> {
    let owned = |text: Option<&str>| text.map(str::to_owned);
    Some(match event {
        Event::Nothing | Event::Full => return None,
        Event::Request { stream, head, is_over } => Kept::Request(Request {
            id: stream.id(),
            method: head.method.to_string(),
            target: head.target.as_str().to_owned(),
            host: head.host.as_str().to_owned(),
            scheme: owned(head.scheme),
            protocol: owned(head.protocol),
            fields: pairs(head.fields),
            length: head.length,
            wants: (head.wants.continues, head.wants.trailers),
            is_over: *is_over,
        }),
        Event::Refused { id, error } => Kept::Refused(*id, *error),
        Event::Data { stream, data, is_over } => {
            Kept::Data(stream.id(), bytes[data.clone()].to_vec(), *is_over)
        }
        Event::Trailers { stream, fields } => Kept::Trailers(stream.id(), pairs(*fields)),
        Event::Reset { stream, code } => Kept::Reset(stream.id(), *code),
        Event::Failed { stream, error } => Kept::Failed(stream.id(), *error),
        Event::WindowOpened { stream } => Kept::Opened(stream.map(StreamKey::id)),
        Event::GoAway { code } => Kept::GoAway(*code),
    })
}

/// A connection with the events that it has returned, and the bytes that it has written.
pub(crate) struct Driver {
    pub(crate) connection: Connection,
    pub(crate) scratch: Scratch,
    pub(crate) out: Vec<u8>,
    pub(crate) kept: Vec<Kept>,
    pub(crate) keys: Vec<StreamKey>,
}

impl Driver {
    pub(crate) fn new(config: Config) -> Driver {
        let mut out = Vec::new();
        let connection = Connection::new(config, &mut out);
        Driver { connection, scratch: Scratch::new(), out, kept: Vec::new(), keys: Vec::new() }
    }

    /// A connection after its preface, whose first bytes are gone.
    pub(crate) fn begun(config: Config) -> Driver {
        let mut driver = Driver::new(config);
        driver.feed(&preface());
        driver.feed(&frame(SETTINGS, ACK, 0, &[]));
        driver.out.clear();
        driver
    }

    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        self.feed_in(bytes, usize::MAX);
    }

    /// Feeds bytes in pieces.
    pub(crate) fn feed_in(&mut self, bytes: &[u8], piece: usize) {
        for piece in bytes.chunks(piece.min(bytes.len().max(1))) {
            let mut rest = piece;
            while !rest.is_empty() {
                if matches!(self.kept.last(), Some(Kept::Error(_))) {
                    return;
                }
                let step = self.connection.receive(rest, 0, &mut self.scratch, &mut self.out);
                let (used, kept) = match &step {
                    Ok(Step { used, event }) => {
                        if let Event::Request { stream, .. } = event {
                            self.keys.push(*stream);
                        }
                        (*used, keep(event, rest))
                    }
                    Err(error) => (0, Some(Kept::Error(*error))),
                };
                self.add(kept);
                rest = &rest[used..];
            }
        }
    }

    fn add(&mut self, kept: Option<Kept>) {
        match (self.kept.last_mut(), kept) {
            (Some(Kept::Data(id, before, over @ false)), Some(Kept::Data(next, data, is_over)))
                if *id == next =>
            {
                before.extend(data);
                *over = is_over;
            }
            (_, kept) => self.kept.extend(kept),
        }
    }

    pub(crate) fn key(&self, id: u32) -> StreamKey {
        *self.keys.iter().rfind(|key| key.id() == id).unwrap()
    }

    /// The frames that were written since the last call.
    pub(crate) fn frames(&mut self) -> Vec<Frame> {
        frames(&std::mem::take(&mut self.out))
    }
}

/// A frame of the server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

impl Frame {
    /// A number in the payload.
    pub(crate) fn number(&self, at: usize) -> u32 {
        u32::from_be_bytes(*self.payload[at..].first_chunk().unwrap())
    }
}

/// Splits bytes into frames, which must be whole.
pub(crate) fn frames(mut bytes: &[u8]) -> Vec<Frame> {
    let mut found = Vec::new();
    while let Some((head, rest)) = bytes.split_first_chunk::<9>() {
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let stream = u32::from_be_bytes(*head[5..].first_chunk().unwrap());
        let payload = rest[..length].to_vec();
        found.push(Frame { kind: head[3], flags: head[4], stream, payload });
        bytes = &rest[length..];
    }
    assert!(bytes.is_empty(), "{bytes:?}");
    found
}
