//! Streams of HTTP/2 and their ends, on both sides at once and frame by frame.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use futures_rustls::rustls::pki_types::ServerName;
use futures_rustls::rustls::{ClientConnection, StreamOwned};
use superpoll_rt::BackendKind;
use superpoll_test_support::find;

use crate::gateway::{Gateway, LIMIT, MOST, config, whole};
use crate::http2::{certificate, frame, front_of, head_of, trusting};
use crate::origin::Client;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;

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

    /// Returns the kind, the flags, the stream and the payload of the next frame.
    #[track_caller]
    fn read(&mut self) -> (u8, u8, u8, Vec<u8>) {
        let mut head = [0; 9];
        let read = self.stream.read_exact(&mut head);
        assert!(read.is_ok(), "no frame: {read:?}");
        let mut payload = vec![0; usize::from(head[1]) << 8 | usize::from(head[2])];
        self.stream.read_exact(&mut payload).unwrap();
        (head[3], head[4], head[8], payload)
    }

    /// Returns the stream of the next frame of a kind, and its payload.
    #[track_caller]
    fn next(&mut self, kind: u8) -> (u8, Vec<u8>) {
        loop {
            let (found, flags, stream, payload) = self.read();
            match (found, flags & 1) {
                (SETTINGS, 0) => self.send(SETTINGS, 1, 0, &[]),
                (PING, 0) => {
                    self.pings += 1;
                    self.send(PING, 1, 0, &payload);
                }
                _ if found == kind => return (stream, payload),
                (RST_STREAM, _) => panic!("reset with {payload:?}"),
                _ => {}
            }
        }
    }
}

impl Frames<TcpStream> {
    /// Returns the next connection of the gateway to a server.
    #[track_caller]
    fn accept(listener: &TcpListener) -> Frames<TcpStream> {
        listener.set_nonblocking(true).unwrap();
        let (mut stream, _) = find("the gateway connects", || listener.accept().ok());
        stream.set_nonblocking(false).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream.read_exact(&mut [0; 24]).unwrap();
        Frames::new(stream)
    }
}

type TlsFrames = Frames<StreamOwned<ClientConnection, TcpStream>>;

/// Returns a gateway, and a connection of a client to it and of it to a server: there was one
/// request, for stream 1 of both.
fn chain(backend: BackendKind, rest: &str) -> (Gateway, TlsFrames, Frames<TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    chain_to(&listener, backend, rest)
}

/// The same with a server that takes further connections.
fn chain_to(
    listener: &TcpListener,
    backend: BackendKind,
    rest: &str,
) -> (Gateway, TlsFrames, Frames<TcpStream>) {
    let folder = tempfile::tempdir().unwrap();
    certificate(folder.path());
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
    let mut server = Frames::accept(listener);
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

/// A server that is silent while something is waited for is asked whether it is there, and given up
/// if it does not say so.
#[test]
fn a_server_that_does_not_answer_a_ping_is_given_up() {
    let rest = "[timeouts]\nbody = \"1h\"\n";
    for answers in [true, false] {
        let (gateway, mut client, mut server) = chain(BackendKind::Epoll, rest);
        client.send(HEADERS, END_HEADERS | END_STREAM, 3, &head_of("GET", None));
        assert_eq!(server.next(HEADERS).0, 3);
        server.send(HEADERS, END_HEADERS, 3, &OK);
        assert_eq!(client.next(HEADERS).0, 3);
        gateway.elapse(Duration::from_secs(622));
        let ping = loop {
            let (kind, _, _, payload) = server.read();
            if kind == PING {
                break payload;
            }
        };
        if answers {
            server.send(PING, 1, 0, &ping);
        }
        // A frame of the server is read before the time goes on.
        server.send(PING, 0, 0, b"are read");
        while server.read().0 != PING {}
        gateway.elapse(Duration::from_secs(15));
        if answers {
            server.send(DATA, END_STREAM, 3, b"some");
            assert_eq!(client.next(DATA), (3, b"some".to_vec()));
        } else {
            assert_eq!(client.next(RST_STREAM).0, 3);
        }
    }
}

/// A head with a status that has no index of its own, and a link.
fn early_hints(link: &str) -> Vec<u8> {
    let text = |text: &str| [&[text.len() as u8], text.as_bytes()].concat();
    [&[0x08], &*text("103"), &[0x00], &*text("link"), &text(link)].concat()
}

#[test]
fn interim_responses_of_servers_of_http2_are_passed_on() {
    let has = |head: &[u8], text: &str| head.windows(text.len()).any(|it| it == text.as_bytes());
    for backend in MOST {
        let (_gateway, mut client, mut server) = chain(backend, "");
        client.send(HEADERS, END_HEADERS | END_STREAM, 3, &head_of("GET", None));
        assert_eq!(server.next(HEADERS).0, 3);
        // Not asked for.
        let mut heads = frame(HEADERS, END_HEADERS, 3, &[0x08, 3, b'1', b'0', b'0']);
        for link in ["</first>", "</second>", "</third>"] {
            heads.extend(frame(HEADERS, END_HEADERS, 3, &early_hints(link)));
        }
        // They come at once.
        server.stream.write_all(&heads).unwrap();
        server.send(HEADERS, END_HEADERS | END_STREAM, 3, &OK);
        for link in ["</first>", "</second>", "</third>"] {
            let (_, head) = client.next(HEADERS);
            assert!(has(&head, "103") && has(&head, link), "{link}: {head:?}");
        }
        assert!(client.next(HEADERS).1.contains(&0x88));
        // There is an end to them.
        client.send(HEADERS, END_HEADERS | END_STREAM, 5, &head_of("GET", None));
        assert_eq!(server.next(HEADERS).0, 5);
        for _ in 0..101 {
            server.send(HEADERS, END_HEADERS, 5, &early_hints("</again>"));
        }
        let last = loop {
            let (_, head) = client.next(HEADERS);
            if !has(&head, "103") {
                break head;
            }
        };
        assert!(has(&last, "502"), "{last:?}");
    }
}

#[test]
fn interim_responses_of_servers_of_http2_have_lines_for_other_clients() {
    for backend in MOST {
        for version in ["1.1", "1.0"] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap().to_string();
            let gateway = Gateway::start(backend, &config(&[&address], "h2 = true", ""));
            let mut client = Client::connect(&gateway.address);
            client.send(format!("GET / HTTP/{version}\r\nHost: a\r\n\r\n"));
            let mut server = Frames::accept(&listener);
            assert_eq!(server.next(HEADERS).0, 1);
            if version == "1.1" {
                for link in ["</first>", "</second>"] {
                    server.send(HEADERS, END_HEADERS, 1, &early_hints(link));
                    // It is there before the server goes on.
                    let hints = client.head().unwrap();
                    assert_eq!((hints.status, hints.field("link")), (103, Some(link.to_owned())));
                }
            } else {
                server.send(HEADERS, END_HEADERS, 1, &early_hints("</none>"));
            }
            server.send(HEADERS, END_HEADERS, 1, &OK);
            server.send(DATA, END_STREAM, 1, b"final");
            let reply = client.reply();
            assert_eq!((reply.status, reply.text()), (200, "final"), "{version}");
        }
    }
}

/// The server allows one stream at a time.
fn narrow(server: &mut Frames<TcpStream>) {
    server.send(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 1]);
    server.send(PING, 0, 0, b"are read");
    while server.read().0 != PING {}
}

/// Waits until the gateway has read all that the client has sent.
fn settle(client: &mut TlsFrames) {
    client.send(PING, 0, 0, b"are read");
    while client.read().0 != PING {}
}

#[test]
fn uploads_take_turns_where_a_server_allows_few_streams() {
    for backend in MOST {
        let (_gateway, mut client, mut server) = chain(backend, "");
        narrow(&mut server);
        for stream in [3, 5, 7, 9] {
            client.send(HEADERS, END_HEADERS, stream, &head_of("POST", None));
            client.send(DATA, 0, stream, b"some");
        }
        settle(&mut client);
        for stream in [3, 5, 7, 9] {
            assert_eq!(server.next(DATA), (stream, b"some".to_vec()));
            client.send(DATA, END_STREAM, stream, b" more");
            assert_eq!(server.next(DATA), (stream, b" more".to_vec()));
            server.send(HEADERS, END_HEADERS | END_STREAM, stream, &OK);
            assert_eq!(client.next(HEADERS).0, stream);
        }
    }
}

#[test]
fn a_cancelled_request_leaves_its_turn_to_the_next() {
    for backend in MOST {
        let (_gateway, mut client, mut server) = chain(backend, "");
        narrow(&mut server);
        for stream in [3, 5, 7, 9] {
            client.send(HEADERS, END_HEADERS | END_STREAM, stream, &head_of("GET", None));
        }
        assert_eq!(server.next(HEADERS).0, 3);
        settle(&mut client);
        // One of them has a number already, and one has none.
        for stream in [5, 7] {
            client.send(RST_STREAM, 0, stream, &[0, 0, 0, 8]);
        }
        settle(&mut client);
        client.send(RST_STREAM, 0, 3, &[0, 0, 0, 8]);
        assert_eq!(server.next(RST_STREAM), (3, vec![0, 0, 0, 8]));
        // The one with a number is begun and cancelled.
        let (stream, _) = server.next(HEADERS);
        assert_eq!(server.next(RST_STREAM), (stream, vec![0, 0, 0, 8]));
        let (stream, _) = server.next(HEADERS);
        server.send(HEADERS, END_HEADERS | END_STREAM, stream, &OK);
        assert_eq!(client.next(HEADERS).0, 9);
        // The last one is cancelled though no other follows.
        client.send(HEADERS, END_HEADERS | END_STREAM, 11, &head_of("GET", None));
        let (stream, _) = server.next(HEADERS);
        client.send(RST_STREAM, 0, 11, &[0, 0, 0, 8]);
        assert_eq!(server.next(RST_STREAM), (stream, vec![0, 0, 0, 8]));
    }
}

/// They are about the connection of the client.
#[test]
fn fields_behind_an_upload_that_http2_does_not_allow_are_left_out() {
    for backend in MOST {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let gateway = Gateway::start(backend, &config(&[&address], "h2 = true", ""));
        let mut client = Client::connect(&gateway.address);
        client.send(
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
             4\r\nsome\r\n0\r\nKeep-Alive: x\r\nX-Sum: 1\r\n\r\n",
        );
        let mut server = Frames::accept(&listener);
        assert_eq!(server.next(HEADERS).0, 1);
        let mut frames = vec![server.read()];
        while frames.last().unwrap().1 & END_STREAM == 0 || frames.last().unwrap().2 == 0 {
            frames.push(server.read());
        }
        let (kind, _, stream, fields) = frames.pop().unwrap();
        assert_eq!((kind, stream), (HEADERS, 1), "{fields:?}");
        server.send(HEADERS, END_HEADERS | END_STREAM, 1, &OK);
        assert_eq!(client.reply().status, 200);
    }
}

#[test]
fn an_upload_that_waits_for_room_is_cancelled() {
    for backend in MOST {
        let (_gateway, mut client, mut server) = chain(backend, "");
        client.send(HEADERS, END_HEADERS, 3, &head_of("POST", None));
        assert_eq!(server.next(HEADERS).0, 3);
        // The window of the server has room for a part of it, and the gateway takes a piece more.
        let mut sent = 0;
        while sent < 300_000 {
            client.send(DATA, 0, 3, &[b'x'; 250]);
            sent += 250;
        }
        let mut arrived = 0;
        while arrived < 65_535 {
            arrived += server.next(DATA).1.len();
        }
        settle(&mut client);
        client.send(RST_STREAM, 0, 3, &[0, 0, 0, 8]);
        assert_eq!(server.next(RST_STREAM), (3, vec![0, 0, 0, 8]));
    }
}

#[test]
fn an_upload_of_http1_that_breaks_off_is_cancelled() {
    for backend in MOST {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let gateway = Gateway::start(backend, &config(&[&address], "h2 = true", ""));
        let mut client = Client::connect(&gateway.address);
        let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        client.send(format!("{head}4\r\nsome\r\n"));
        let mut server = Frames::accept(&listener);
        assert_eq!(server.next(DATA), (1, b"some".to_vec()));
        // It is answered before its end, which comes malformed.
        server.send(HEADERS, END_HEADERS, 1, &OK);
        server.send(DATA, END_STREAM, 1, b"early");
        assert_eq!(client.reply().text(), "early");
        client.send("no length\r\n");
        assert_eq!(server.next(RST_STREAM), (1, vec![0, 0, 0, 8]));
    }
}

/// They have streams that the server has not begun to work on.
#[test]
fn requests_behind_the_last_stream_of_a_server_are_sent_again() {
    for backend in MOST {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (_gateway, mut client, mut server) = chain_to(&listener, backend, "");
        for stream in [3, 5] {
            client.send(HEADERS, END_HEADERS, stream, &head_of("POST", Some("4")));
            client.send(DATA, END_STREAM, stream, b"body");
            assert_eq!(server.next(DATA), (stream, b"body".to_vec()));
        }
        server.send(GOAWAY, 0, 0, &[0, 0, 0, 3, 0, 0, 0, 0]);
        let mut other = Frames::accept(&listener);
        assert_eq!(other.next(DATA), (1, b"body".to_vec()));
        other.send(HEADERS, END_HEADERS | END_STREAM, 1, &OK);
        assert_eq!(client.next(HEADERS).0, 5);
        server.send(HEADERS, END_HEADERS | END_STREAM, 3, &OK);
        assert_eq!(client.next(HEADERS).0, 3);
    }
}

/// One was refused, one has a stream that the server does not know of, and two wait for one.
#[test]
fn requests_that_a_server_leaves_out_are_sent_again() {
    for backend in MOST {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (_gateway, mut client, mut server) = chain_to(&listener, backend, "");
        narrow(&mut server);
        let post = |client: &mut TlsFrames, stream| {
            client.send(HEADERS, END_HEADERS, stream, &head_of("POST", Some("4")));
            client.send(DATA, END_STREAM, stream, b"body");
        };
        post(&mut client, 3);
        assert_eq!(server.next(HEADERS).0, 3);
        server.send(RST_STREAM, 0, 3, &[0, 0, 0, 7]);
        // It comes again where the server may have less to do now.
        assert_eq!(server.next(HEADERS).0, 5);
        assert_eq!(server.next(DATA), (5, b"body".to_vec()));
        server.send(HEADERS, END_HEADERS | END_STREAM, 5, &OK);
        assert_eq!(client.next(HEADERS).0, 3);
        for stream in [5, 7, 9, 11] {
            post(&mut client, stream);
        }
        assert_eq!(server.next(HEADERS).0, 7);
        settle(&mut client);
        server.send(GOAWAY, 0, 0, &[0, 0, 0, 7, 0, 0, 0, 0]);
        // Each may have a connection of its own, as all look for one at once.
        let others = [7, 9, 11].map(|_| {
            let mut other = Frames::accept(&listener);
            let (stream, body) = other.next(DATA);
            assert_eq!(body, b"body");
            other.send(HEADERS, END_HEADERS | END_STREAM, stream, &OK);
            other
        });
        server.send(HEADERS, END_HEADERS | END_STREAM, 7, &OK);
        let mut answered = [5, 7, 9, 11].map(|_| client.next(HEADERS).0);
        answered.sort();
        assert_eq!(answered, [5, 7, 9, 11]);
        drop(others);
    }
}

/// A server that asks for no more of a request has sent all of its response before.
#[test]
fn a_response_that_is_reset_without_an_error_is_whole_or_broken() {
    for backend in MOST {
        let (_gateway, mut client, mut server) = chain(backend, "");
        let responses = [
            (3, Some("4"), 0, true),
            (5, Some("5"), 0, false),
            (7, None, END_STREAM, true),
            (9, None, 0, false),
        ];
        for (stream, length, flags, is_whole) in responses {
            client.send(HEADERS, END_HEADERS, stream, &head_of("POST", None));
            assert_eq!(server.next(HEADERS).0, stream);
            let length = length.map(|length| [&[0x0f, 0x0d, 1], length.as_bytes()].concat());
            let head = [&OK[..], &length.unwrap_or_default()].concat();
            let mut bytes = frame(HEADERS, END_HEADERS, stream, &head);
            bytes.extend(frame(DATA, flags, stream, b"some"));
            bytes.extend(frame(RST_STREAM, 0, stream, &[0; 4]));
            server.stream.write_all(&bytes).unwrap();
            let mut frames = Vec::new();
            loop {
                let (kind, flags, of, payload) = client.read();
                if of == stream && matches!(kind, DATA | RST_STREAM) {
                    frames.push((kind, flags, payload));
                    if flags & END_STREAM > 0 || kind == RST_STREAM {
                        break;
                    }
                }
            }
            let has_end = frames.iter().any(|(kind, flags, _)| *kind == DATA && flags & 1 > 0);
            let body: Vec<u8> = frames.into_iter().flat_map(|(_, _, payload)| payload).collect();
            assert_eq!(has_end && body == b"some", is_whole, "{body:?}");
        }
    }
}
