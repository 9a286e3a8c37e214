//! HTTP/2 as a client of servers that are measured speaks it: bytes in, bytes out.
//!
//! Like a browser, the client puts the fields that all its requests share into the server's table
//! (HPACK) and sends an index for each from then on, follows the server's `SETTINGS`, and grants
//! large windows. A load shares a machine with its server, so the client does no more than it must:
//! of an answer's fields it looks at the status alone, which comes first and has an entry of its
//! own in the static table. The body shows whether the answer is that of its request.

use std::io::Write;

/// The first bytes of a connection.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The largest window.
const WINDOW: u32 = (1 << 31) - 1;

/// How much arrives before the connection's window is opened again.
const REOPEN: u32 = 1 << 30;

/// The window of a connection at its begin.
const FIRST_WINDOW: u32 = 65_535;

/// The size of the server's table unless it sets another one, and the largest that is used.
const TABLE: u32 = 4096;

/// Without so much room in the table, fields are sent as they are.
const LEAST_TABLE: u32 = 1024;

/// The longest frame that a server may send.
const LONGEST_FRAME: usize = 1 << 14;

const FRAME_HEAD: usize = 9;

mod kind {
    pub(super) const DATA: u8 = 0;
    pub(super) const HEADERS: u8 = 1;
    pub(super) const RST_STREAM: u8 = 3;
    pub(super) const SETTINGS: u8 = 4;
    pub(super) const PUSH_PROMISE: u8 = 5;
    pub(super) const PING: u8 = 6;
    pub(super) const GOAWAY: u8 = 7;
    pub(super) const WINDOW_UPDATE: u8 = 8;
}

mod flag {
    pub(super) const ACK: u8 = 0x1;
    pub(super) const END_STREAM: u8 = 0x1;
    pub(super) const END_HEADERS: u8 = 0x4;
    pub(super) const PADDED: u8 = 0x8;
    pub(super) const PRIORITY: u8 = 0x20;
}

mod setting {
    pub(super) const HEADER_TABLE_SIZE: u16 = 1;
    pub(super) const ENABLE_PUSH: u16 = 2;
    pub(super) const INITIAL_WINDOW_SIZE: u16 = 4;
}

// Fields (RFC 7541): entries of the static table, and the kinds of a field's first byte.

const METHOD_GET: u8 = 0x82;
const SCHEME_HTTPS: u8 = 0x87;
const STATUS_200: u8 = 0x88;
const STATIC: [(&str, u8); 4] =
    [(":authority", 1), (":path", 4), ("accept", 19), ("user-agent", 58)];

/// The index of the newest entry in the table.
const NEWEST: usize = 62;

const TABLE_SIZE: u8 = 0x20;
const INDEXED: u8 = 0x80;
const ADDED: u8 = 0x40;
const PLAIN: u8 = 0x00;

/// Appends an integer whose first byte has other bits as well.
fn put_integer(first: u8, bits: u32, value: usize, to: &mut Vec<u8>) {
    let most = (1 << bits) - 1;
    if value < most {
        return to.push(first | value as u8);
    }
    to.push(first | most as u8);
    let mut rest = value - most;
    while rest >= 0x80 {
        to.push(0x80 | (rest % 0x80) as u8);
        rest /= 0x80;
    }
    to.push(rest as u8);
}

fn put_text(text: &str, to: &mut Vec<u8>) {
    put_integer(0, 7, text.len(), to);
    to.extend_from_slice(text.as_bytes());
}

/// Appends a field, which is added to the table or not.
fn put_field(first: u8, bits: u32, (name, value): (&str, &str), to: &mut Vec<u8>) {
    match STATIC.iter().find(|(known, _)| *known == name) {
        Some(&(_, index)) => put_integer(first, bits, usize::from(index), to),
        None => {
            to.push(first);
            put_text(name, to);
        }
    }
    put_text(value, to);
}

fn put_frame_head(length: usize, kind: u8, flags: u8, stream: u32, to: &mut Vec<u8>) {
    to.extend_from_slice(&(length as u32).to_be_bytes()[1..]);
    to.extend_from_slice(&[kind, flags]);
    to.extend_from_slice(&stream.to_be_bytes());
}

fn put_window(increment: u32, to: &mut Vec<u8>) {
    put_frame_head(4, kind::WINDOW_UPDATE, 0, 0, to);
    to.extend_from_slice(&increment.to_be_bytes());
}

/// A field of requests.
pub(crate) type Field<'a> = (&'a str, &'a str);

/// The fields of a request: those of its own, and those that all requests of a connection share.
/// The path is one of these or those; it comes before all fields that are no pseudo-fields.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Request<'a> {
    /// The path, unless it is shared.
    pub path: &'a str,
    /// Those that all requests share, pseudo-fields first.
    pub shared: &'a [Field<'a>],
    /// The other fields.
    pub own: &'a [Field<'a>],
}

/// A part of an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part<'a> {
    /// The head, with the status 200.
    Head,
    /// More of the body.
    Data(&'a [u8]),
    /// The end.
    End,
}

/// A function that takes a part of the answer on a stream.
pub(crate) type Take<'a> = dyn FnMut(u32, Part<'_>) -> Result<(), String> + 'a;

/// The server's table, as far as the client may use it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Table {
    /// The server's `SETTINGS` have not arrived, so fields are sent as they are.
    Unknown,
    /// It has this size, which it has to be told before the next request.
    Resized(u32),
    /// It has this size and no entries.
    Empty(u32),
    /// It has the shared fields.
    Filled(u32),
}

/// A frame whose payload arrives.
#[derive(Clone, Copy, Debug)]
struct Frame {
    kind: u8,
    flags: u8,
    stream: u32,
    /// How much of its payload is missing.
    left: usize,
}

/// The client's end of a connection.
#[derive(Debug)]
pub(crate) struct Http2 {
    frame: Option<Frame>,
    /// The part of a frame's head, or of the payload of a frame without data, that has arrived.
    held: Vec<u8>,
    next_stream: u32,
    table: Table,
    /// Bytes of data since the connection's window was opened.
    arrived: u32,
}

impl Http2 {
    /// Creates the client's end. The bytes with which it begins are appended.
    pub(crate) fn begin(to: &mut Vec<u8>) -> Http2 {
        to.extend_from_slice(PREFACE);
        put_frame_head(12, kind::SETTINGS, 0, 0, to);
        for (name, value) in [(setting::ENABLE_PUSH, 0), (setting::INITIAL_WINDOW_SIZE, WINDOW)] {
            to.extend_from_slice(&name.to_be_bytes());
            to.extend_from_slice(&value.to_be_bytes());
        }
        put_window(WINDOW - FIRST_WINDOW, to);
        Http2 { frame: None, held: Vec::new(), next_stream: 1, table: Table::Unknown, arrived: 0 }
    }

    /// Appends a request and returns its stream.
    pub(crate) fn ask(&mut self, request: Request<'_>, to: &mut Vec<u8>) -> u32 {
        let stream = self.next_stream;
        self.next_stream += 2;
        let begin = to.len();
        put_frame_head(0, kind::HEADERS, flag::END_STREAM | flag::END_HEADERS, stream, to);
        if let Table::Resized(size) = self.table {
            // First no size at all, so that the table has no entries in any case.
            to.push(TABLE_SIZE);
            if size > 0 {
                put_integer(TABLE_SIZE, 5, size as usize, to);
            }
            self.table = Table::Empty(size);
        }
        to.extend_from_slice(&[METHOD_GET, SCHEME_HTTPS]);
        if !request.path.is_empty() {
            put_field(PLAIN, 4, (":path", request.path), to);
        }
        let count = request.shared.len();
        for (place, &field) in request.shared.iter().enumerate() {
            match self.table {
                Table::Filled(_) => put_integer(INDEXED, 7, NEWEST + count - 1 - place, to),
                Table::Empty(LEAST_TABLE..) => put_field(ADDED, 6, field, to),
                _ => put_field(PLAIN, 4, field, to),
            }
        }
        if let Table::Empty(size @ LEAST_TABLE..) = self.table {
            self.table = Table::Filled(size);
        }
        request.own.iter().for_each(|&field| put_field(PLAIN, 4, field, to));
        let length = (to.len() - begin - FRAME_HEAD) as u32;
        to[begin..begin + 3].copy_from_slice(&length.to_be_bytes()[1..]);
        stream
    }

    /// Takes bytes that arrived, and calls `take` with each part of an answer among them. Appends
    /// the bytes to send, which are often none.
    pub(crate) fn take(
        &mut self,
        mut bytes: &[u8],
        take: &mut Take<'_>,
        reply: &mut Vec<u8>,
    ) -> Result<(), String> {
        while !bytes.is_empty() {
            bytes = match self.frame {
                None => self.frame_head(bytes)?,
                Some(frame) => {
                    let (part, rest) = bytes.split_at(frame.left.min(bytes.len()));
                    self.frame = Some(Frame { left: frame.left - part.len(), ..frame });
                    match frame.kind {
                        kind::DATA => take(frame.stream, Part::Data(part))?,
                        _ => self.held.extend_from_slice(part),
                    }
                    rest
                }
            };
            if let Some(frame @ Frame { left: 0, .. }) = self.frame {
                self.frame = None;
                let payload = std::mem::take(&mut self.held);
                self.end_of_frame(frame, &payload, take, reply)?;
                self.held = payload;
                self.held.clear();
            }
        }
        Ok(())
    }

    /// Takes bytes of a frame's head; returns those after it.
    fn frame_head<'a>(&mut self, bytes: &'a [u8]) -> Result<&'a [u8], String> {
        let (part, rest) = bytes.split_at((FRAME_HEAD - self.held.len()).min(bytes.len()));
        self.held.extend_from_slice(part);
        if let &[a, b, c, kind, flags, d, e, f, g] = &self.held[..] {
            let left = u32::from_be_bytes([0, a, b, c]) as usize;
            let stream = u32::from_be_bytes([d & 0x7f, e, f, g]);
            self.held.clear();
            if left > LONGEST_FRAME {
                return Err(format!("a frame of {left} bytes came"));
            }
            if kind == kind::DATA {
                if flags & flag::PADDED != 0 {
                    return Err("data with padding came".to_owned());
                }
                self.arrived += left as u32;
            }
            self.frame = Some(Frame { kind, flags, stream, left });
        }
        Ok(rest)
    }

    fn end_of_frame(
        &mut self,
        Frame { kind, flags, stream, .. }: Frame,
        payload: &[u8],
        take: &mut Take<'_>,
        reply: &mut Vec<u8>,
    ) -> Result<(), String> {
        match kind {
            kind::HEADERS => {
                check_status(flags, payload)?;
                take(stream, Part::Head)?;
            }
            kind::SETTINGS if flags & flag::ACK == 0 => {
                self.settings(payload);
                put_frame_head(0, kind::SETTINGS, flag::ACK, 0, reply);
            }
            kind::PING if flags & flag::ACK == 0 => {
                put_frame_head(payload.len(), kind::PING, flag::ACK, 0, reply);
                // Writing to a vector cannot fail.
                let _ = reply.write_all(payload);
            }
            kind::RST_STREAM | kind::GOAWAY | kind::PUSH_PROMISE => {
                return Err(format!("a frame of the kind {kind} came: {payload:?}"));
            }
            _ => {}
        }
        if matches!(kind, kind::DATA | kind::HEADERS) && flags & flag::END_STREAM != 0 {
            take(stream, Part::End)?;
        }
        if self.arrived >= REOPEN {
            put_window(std::mem::take(&mut self.arrived), reply);
        }
        Ok(())
    }

    fn settings(&mut self, payload: &[u8]) {
        let mut sizes = payload.chunks_exact(6).filter_map(|one| match *one {
            [a, b, c, d, e, f] if u16::from_be_bytes([a, b]) == setting::HEADER_TABLE_SIZE => {
                Some(u32::from_be_bytes([c, d, e, f]).min(TABLE))
            }
            _ => None,
        });
        self.table = match (self.table, sizes.next_back()) {
            (_, Some(size)) => Table::Resized(size),
            (Table::Unknown, None) => Table::Empty(TABLE),
            (table, None) => table,
        };
    }
}

/// Checks that the fields of an answer begin with the status 200.
fn check_status(flags: u8, payload: &[u8]) -> Result<(), String> {
    let mut at = usize::from(flags & flag::PADDED != 0);
    at += if flags & flag::PRIORITY != 0 { 5 } else { 0 };
    let mut fields = payload.get(at..).unwrap_or_default();
    // A change of the table's size is an integer of five bits, and further bytes if it is large.
    while let &[first, ref rest @ ..] = fields
        && first & 0xe0 == TABLE_SIZE
    {
        let more = rest.iter().take_while(|&&byte| byte & 0x80 != 0).count() + 1;
        fields = rest.get(if first & 0x1f == 0x1f { more } else { 0 }..).unwrap_or_default();
    }
    match fields {
        [STATUS_200, ..] => Ok(()),
        _ => {
            let shown = &fields[..fields.len().min(16)];
            Err(format!("an answer did not begin with the status 200 but with {shown:x?}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHARED: &[Field<'static>] = &[(":path", "/a"), (":authority", "localhost")];

    fn client() -> Http2 {
        let mut to = Vec::new();
        let client = Http2::begin(&mut to);
        assert!(to.starts_with(PREFACE) && to.len() == PREFACE.len() + 21 + 13);
        client
    }

    fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let mut frame = Vec::new();
        put_frame_head(payload.len(), kind, flags, stream, &mut frame);
        frame.extend_from_slice(payload);
        frame
    }

    /// The fields of the next request.
    fn asked(client: &mut Http2) -> Vec<u8> {
        let mut to = Vec::new();
        client.ask(Request { shared: SHARED, ..Request::default() }, &mut to);
        assert_eq!(usize::from(to[2]), to.len() - FRAME_HEAD);
        to.split_off(FRAME_HEAD)
    }

    fn taken(client: &mut Http2, bytes: &[u8]) -> Result<Vec<u8>, String> {
        let mut reply = Vec::new();
        client.take(bytes, &mut |_, _| Ok(()), &mut reply).map(|()| reply)
    }

    const ACK: [u8; FRAME_HEAD] = [0, 0, 0, kind::SETTINGS, flag::ACK, 0, 0, 0, 0];

    #[test]
    fn shared_fields_are_sent_once_if_the_server_has_a_table() {
        let mut client = client();
        let plain = b"\x82\x87\x04\x02/a\x01\x09localhost";
        assert_eq!(asked(&mut client), plain);
        assert_eq!(taken(&mut client, &frame(kind::SETTINGS, 0, 0, &[])).unwrap(), ACK);
        assert_eq!(asked(&mut client), b"\x82\x87\x44\x02/a\x41\x09localhost");
        assert_eq!(asked(&mut client), [0x82, 0x87, 0x80 | 63, 0x80 | 62]);
        // The server has none from now on, and has to be told so once.
        let none = frame(kind::SETTINGS, 0, 0, &[0, 1, 0, 0, 0, 0]);
        assert_eq!(taken(&mut client, &none).unwrap(), ACK);
        assert_eq!(asked(&mut client), [&b"\x20"[..], plain].concat());
        assert_eq!(asked(&mut client), plain);
        // Now it has a table again.
        taken(&mut client, &frame(kind::SETTINGS, 0, 0, &[0, 1, 0, 0, 16, 0])).unwrap();
        assert!(asked(&mut client).starts_with(&[0x20, 0x3f, 0xe1, 0x1f, 0x82, 0x87, 0x44]));
        assert_eq!(asked(&mut client).len(), 4);
    }

    #[test]
    fn a_request_has_its_own_fields_after_the_shared_ones() {
        let (mut client, mut to) = (client(), Vec::new());
        let shared = [(":authority", "h")];
        let request = Request { path: "/7", shared: &shared, own: &[("x-check", "1")] };
        assert_eq!(client.ask(request, &mut to), 1);
        assert_eq!(to[FRAME_HEAD..], *b"\x82\x87\x04\x02/7\x01\x01h\x00\x07x-check\x011");
        assert_eq!(client.ask(request, &mut to), 3);
    }

    #[test]
    fn answers_arrive_in_parts_of_any_size() {
        let answer = [
            frame(kind::HEADERS, flag::END_HEADERS, 1, &[0x3f, 0xe1, 0x1f, STATUS_200, 0x5c]),
            frame(kind::WINDOW_UPDATE, 0, 0, &[0, 0, 0, 9]),
            frame(kind::DATA, 0, 1, b"hello"),
            frame(kind::PING, 0, 0, b"12345678"),
            frame(kind::DATA, flag::END_STREAM, 1, b" world"),
            frame(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, 3, &[STATUS_200]),
        ]
        .concat();
        for size in 1..answer.len() {
            let (mut client, mut reply) = (client(), Vec::new());
            let (mut body, mut heads, mut ends) = (Vec::new(), Vec::new(), Vec::new());
            let mut take = |stream, part: Part<'_>| {
                match part {
                    Part::Head => heads.push(stream),
                    Part::Data(part) => body.extend_from_slice(part),
                    Part::End => ends.push(stream),
                }
                Ok(())
            };
            for part in answer.chunks(size) {
                client.take(part, &mut take, &mut reply).unwrap();
            }
            assert_eq!(
                (&heads[..], &body[..], &ends[..]),
                (&[1, 3][..], &b"hello world"[..], &[1, 3][..])
            );
            assert_eq!(reply, frame(kind::PING, flag::ACK, 0, b"12345678"));
        }
    }

    #[test]
    fn the_window_is_opened_again_and_anything_else_is_found_out() {
        let mut client = client();
        client.arrived = REOPEN - 1;
        let reply = taken(&mut client, &frame(kind::DATA, 0, 1, b"x")).unwrap();
        assert_eq!(reply, frame(kind::WINDOW_UPDATE, 0, 0, &REOPEN.to_be_bytes()));
        for (bad, why) in [
            (frame(kind::HEADERS, flag::END_HEADERS, 1, &[0x8d]), "status 200"),
            (frame(kind::HEADERS, flag::END_HEADERS, 1, &[]), "status 200"),
            (frame(kind::DATA, flag::PADDED, 1, b"\x01ab"), "padding"),
            (frame(kind::RST_STREAM, 0, 1, &[0, 0, 0, 2]), "kind 3"),
            (frame(kind::GOAWAY, 0, 0, &[0; 8]), "kind 7"),
            (vec![0xff; FRAME_HEAD], "16777215 bytes"),
        ] {
            assert!(taken(&mut self::client(), &bad).unwrap_err().contains(why), "{bad:?}");
        }
    }
}
