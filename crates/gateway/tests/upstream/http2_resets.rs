//! The ends of streams of HTTP/2, on both sides at once and frame by frame.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use futures_rustls::rustls::pki_types::ServerName;
use futures_rustls::rustls::{ClientConnection, StreamOwned};
use superpoll_rt::BackendKind;

use crate::gateway::{Gateway, LIMIT, MOST, whole};
use crate::http2::{certificate, frame, front_of, head_of, trusting};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// `:status: 200`.
const OK: [u8; 1] = [0x88];

/// A connection, as one of its ends sees it.
struct Frames<S> {
    stream: S,
    pings: usize,
}

impl<S: Read + Write> Frames<S> {
    fn new(stream: S) -> Frames<S> {
        let mut frames = Frames { stream, pings: 0 };
        frames.send(SETTINGS, 0, 0, &[]);
        frames
    }

    fn send(&mut self, kind: u8, flags: u8, stream: u8, payload: &[u8]) {
        self.stream.write_all(&frame(kind, flags, stream, payload)).unwrap();
        self.stream.flush().unwrap();
    }

    /// Returns the payload of the next frame of a kind, and its stream.
    fn next(&mut self, kind: u8) -> (u8, Vec<u8>) {
        loop {
            let mut head = [0; 9];
            self.stream.read_exact(&mut head).unwrap();
            let mut payload = vec![0; usize::from(head[1]) << 8 | usize::from(head[2])];
            self.stream.read_exact(&mut payload).unwrap();
            match (head[3], head[4] & 1) {
                (SETTINGS, 0) => self.send(SETTINGS, 1, 0, &[]),
                (PING, 0) => {
                    self.pings += 1;
                    self.send(PING, 1, 0, &payload);
                }
                (found, _) if found == kind => return (head[8], payload),
                (RST_STREAM, _) => panic!("reset with {payload:?}"),
                _ => {}
            }
        }
    }
}

type TlsFrames = Frames<StreamOwned<ClientConnection, TcpStream>>;

/// Returns a gateway, and a connection of a client to it and of it to a server: there was one
/// request, for stream 1 of both.
fn chain(backend: BackendKind, rest: &str) -> (Gateway, TlsFrames, Frames<TcpStream>) {
    let folder = tempfile::tempdir().unwrap();
    certificate(folder.path());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let servers = format!("servers = [{{ address = \"{address}\" }}]\nh2 = true");
    let gateway = front_of(backend, folder.path(), &whole(&servers, "", rest));
    let stream = TcpStream::connect(&gateway.address).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let tls = ClientConnection::new(Arc::new(trusting(folder.path())), name).unwrap();
    let mut stream = StreamOwned::new(tls, stream);
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
    let mut client = Frames::new(stream);
    client.send(HEADERS, END_HEADERS | END_STREAM, 1, &head_of("GET", None));
    let (mut stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream.read_exact(&mut [0; 24]).unwrap();
    let mut server = Frames::new(stream);
    assert_eq!(server.next(HEADERS).0, 1);
    server.send(HEADERS, END_HEADERS | END_STREAM, 1, &OK);
    assert_eq!(client.next(HEADERS).0, 1);
    (gateway, client, server)
}

/// The server of a gRPC call ends it so, for example.
#[test]
fn a_reset_of_a_response_has_the_same_code_for_the_client() {
    for backend in MOST {
        let (_gateway, mut client, mut server) = chain(backend, "");
        let mut stream = 1;
        // The last is about the connection to the server.
        for (code, told) in [(8, 8), (7, 7), (11, 11), (2, 2), (3, 2)] {
            for flags in [END_HEADERS, END_HEADERS | END_STREAM] {
                stream += 2;
                client.send(HEADERS, flags, stream, &head_of("POST", None));
                assert_eq!(server.next(HEADERS).0, stream);
                server.send(HEADERS, END_HEADERS, stream, &OK);
                assert_eq!(client.next(HEADERS).0, stream);
                server.send(DATA, 0, stream, b"some");
                assert_eq!(client.next(DATA), (stream, b"some".to_vec()));
                server.send(RST_STREAM, 0, stream, &[0, 0, 0, code]);
                assert_eq!(client.next(RST_STREAM), (stream, vec![0, 0, 0, told]), "{code}");
            }
        }
    }
}

#[test]
fn a_request_that_its_client_resets_is_cancelled_at_the_server() {
    for backend in MOST {
        let (_gateway, mut client, mut server) = chain(backend, "");
        let mut stream = 1;
        for is_begun in [false, true] {
            for flags in [END_HEADERS, END_HEADERS | END_STREAM] {
                stream += 2;
                client.send(HEADERS, flags, stream, &head_of("POST", None));
                assert_eq!(server.next(HEADERS).0, stream);
                if flags == END_HEADERS {
                    client.send(DATA, 0, stream, b"some");
                    assert_eq!(server.next(DATA), (stream, b"some".to_vec()));
                }
                if is_begun {
                    server.send(HEADERS, END_HEADERS, stream, &OK);
                    assert_eq!(client.next(HEADERS).0, stream);
                }
                client.send(RST_STREAM, 0, stream, &[0, 0, 0, 8]);
                let cancelled = (stream, vec![0, 0, 0, 8]);
                assert_eq!(server.next(RST_STREAM), cancelled, "{flags} {is_begun}");
            }
        }
    }
}

/// Servers of gRPC close a connection on which more than two pings come within five minutes.
#[test]
fn a_quiet_stream_is_not_asked_after_within_five_minutes() {
    let rest = "[timeouts]\nbody = \"1h\"\n";
    let (gateway, mut client, mut server) = chain(BackendKind::Epoll, rest);
    client.send(HEADERS, END_HEADERS, 3, &head_of("POST", None));
    assert_eq!(server.next(HEADERS).0, 3);
    server.send(HEADERS, END_HEADERS, 3, &OK);
    assert_eq!(client.next(HEADERS).0, 3);
    gateway.elapse(Duration::from_secs(290));
    client.send(DATA, END_STREAM, 3, b"late");
    assert_eq!(server.next(DATA), (3, b"late".to_vec()));
    assert_eq!(server.pings, 0);
    server.send(DATA, END_STREAM, 3, b"later");
    assert_eq!(client.next(DATA), (3, b"later".to_vec()));
}
