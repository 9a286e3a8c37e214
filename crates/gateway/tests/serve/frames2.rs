//! A client that speaks HTTP/2 frame by frame (RFC 9113), for behaviour that no library offers.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use futures_rustls::rustls::pki_types::ServerName;
use futures_rustls::rustls::{ClientConfig, ClientConnection, StreamOwned};

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const PRIORITY: u8 = 2;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

/// The first bytes of a client (RFC 9113, section 3.4).
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The largest window.
pub(crate) const LARGEST: u32 = 0x7fff_ffff;

/// A stream that is encrypted.
type Encrypted<S> = StreamOwned<ClientConnection, S>;

pub(crate) struct Frames2<S = Encrypted<TcpStream>>(pub S);

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Frame {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub payload: Vec<u8>,
}

impl Frame {
    pub(crate) fn new(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Frame {
        Frame { kind, flags, stream, payload: payload.to_vec() }
    }

    /// A request without a body.
    pub(crate) fn get(stream: u32, path: &str) -> Frame {
        Frame::request(stream, "GET", path)
    }

    /// The same of another method.
    pub(crate) fn request(stream: u32, method: &str, path: &str) -> Frame {
        // The scheme by its index, and the others by their names' (RFC 7541).
        let mut head = vec![0x87];
        for (name, value) in [(0x02, method), (0x01, "a"), (0x04, path)] {
            head.extend_from_slice(&[name, u8::try_from(value.len()).unwrap()]);
            head.extend_from_slice(value.as_bytes());
        }
        Frame::new(HEADERS, 0b101, stream, &head)
    }

    /// Adds a field to a request, whose name has no index.
    pub(crate) fn with(mut self, name: &str, value: &str) -> Frame {
        self.payload.push(0);
        for text in [name, value] {
            self.payload.push(u8::try_from(text.len()).unwrap());
            self.payload.extend_from_slice(text.as_bytes());
        }
        self
    }

    /// The same request without encryption: its scheme is another one.
    pub(crate) fn by_http(mut self) -> Frame {
        self.payload[0] = 0x86;
        self
    }

    pub(crate) fn window_update(stream: u32, more: u32) -> Frame {
        Frame::new(WINDOW_UPDATE, 0, stream, &more.to_be_bytes())
    }
}

/// Returns the bytes of some frames.
pub(crate) fn bytes_of(frames: &[Frame]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for frame in frames {
        bytes.extend_from_slice(&u32::try_from(frame.payload.len()).unwrap().to_be_bytes()[1..]);
        bytes.extend_from_slice(&[frame.kind, frame.flags]);
        bytes.extend_from_slice(&frame.stream.to_be_bytes());
        bytes.extend_from_slice(&frame.payload);
    }
    bytes
}

impl Frames2 {
    /// Connects, with a window for each stream and the largest window for the connection. The
    /// client's kernel takes little, so that unread bytes stay with the server.
    pub(crate) fn connect(port: u16, config: &ClientConfig, window: u32) -> Frames2 {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        socket2::SockRef::from(&stream).set_recv_buffer_size(4096).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        // A server may end the connection while neither kernel has room: that is not seen then.
        stream.set_write_timeout(Some(Duration::from_secs(4))).unwrap();
        Frames2::over(stream, config, window)
    }
}

impl<S: Read + Write> Frames2<Encrypted<S>> {
    /// The same over an existing connection.
    pub(crate) fn over(stream: S, config: &ClientConfig, window: u32) -> Frames2<Encrypted<S>> {
        let name = ServerName::try_from("localhost").unwrap();
        let client = ClientConnection::new(Arc::new(config.clone()), name).unwrap();
        Frames2::begin(StreamOwned::new(client, stream), window)
    }

    /// Ends the encryption and keeps the stream below.
    #[allow(dead_code, reason = "only the tests of memory forget it")]
    pub(crate) fn into_inner(self) -> S {
        self.0.sock
    }
}

impl<S: Read + Write> Frames2<S> {
    /// Begins to speak HTTP/2 at once.
    pub(crate) fn begin(stream: S, window: u32) -> Frames2<S> {
        let mut client = Frames2(stream);
        client.0.write_all(PREFACE).unwrap();
        let initial = [&[0, 4][..], &window.to_be_bytes()].concat();
        client.send(&[
            Frame::new(SETTINGS, 0, 0, &initial),
            Frame::window_update(0, LARGEST - 65_535),
        ]);
        client
    }

    pub(crate) fn send(&mut self, frames: &[Frame]) {
        self.try_send(frames).unwrap();
    }

    pub(crate) fn try_send(&mut self, frames: &[Frame]) -> io::Result<()> {
        self.0.write_all(&bytes_of(frames))?;
        self.0.flush()
    }

    /// Returns the next frame; `None` at the end.
    pub(crate) fn next(&mut self) -> Option<Frame> {
        let mut head = [0; 9];
        self.0.read_exact(&mut head).ok()?;
        let [a, b, c, kind, flags, d, e, f, g] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        self.0.read_exact(&mut payload).ok()?;
        Some(Frame { kind, flags, stream: u32::from_be_bytes([d, e, f, g]), payload })
    }
}
