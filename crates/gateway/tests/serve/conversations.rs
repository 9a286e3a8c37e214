//! Pipelined requests of all kinds on one connection, in arbitrary pieces: each gets its own
//! response, in order, whatever the pieces are.

use std::io::{Read, Write};

use proptest::prelude::*;
use superpoll_rt::BackendKind;

use crate::stage::{Stage, folder};

/// A request, and the status of its response.
#[derive(Clone, Copy, Debug)]
enum Ask {
    /// A file, by the lane.
    Small,
    /// A file that the server has not in memory as a whole.
    Range,
    /// A condition, which a handler judges.
    Unchanged,
    Head,
    /// One that a handler answers.
    HeadRange,
    Missing,
    /// A body that the handler does not read, of so many bytes.
    Unwanted {
        body: usize,
        is_chunked: bool,
    },
    /// A body that the handler reads.
    Publish {
        body: usize,
        is_chunked: bool,
        expects: bool,
        chunk: usize,
    },
}

/// The bytes of a request, and what its response is to be.
struct Sent {
    bytes: Vec<u8>,
    status: u16,
    body: Option<&'static [u8]>,
    is_head: bool,
}

fn with_body(to: &mut Vec<u8>, size: usize, is_chunked: bool, chunk: usize, more: &str) {
    let body = vec![b'x'; size];
    if !is_chunked {
        to.extend_from_slice(format!("content-length: {size}\r\n{more}\r\n").as_bytes());
        to.extend_from_slice(&body);
        return;
    }
    to.extend_from_slice(format!("transfer-encoding: chunked\r\n{more}\r\n").as_bytes());
    for piece in body.chunks(chunk) {
        // All extensions together have a limit.
        let extension = if chunk > 100 { ";a=\"b\"" } else { "" };
        to.extend_from_slice(format!("{:x}{extension}\r\n", piece.len()).as_bytes());
        to.extend_from_slice(piece);
        to.extend_from_slice(b"\r\n");
    }
    to.extend_from_slice(b"0\r\nx-sum: 1\r\n\r\n");
}

impl Ask {
    fn sent(self) -> Sent {
        let get = |line: &str, more: &str| format!("{line} HTTP/1.1\r\nhost: a\r\n{more}\r\n");
        let (bytes, status, body) = match self {
            Ask::Small => (get("GET /small.txt", ""), 200, Some(&b"hello\n"[..])),
            Ask::Range => (get("GET /small.txt", "range: bytes=1-2\r\n"), 206, Some(&b"el"[..])),
            Ask::Unchanged => (get("GET /small.txt", "if-none-match: *\r\n"), 304, Some(&b""[..])),
            Ask::Head => (get("HEAD /small.txt", ""), 200, Some(&b""[..])),
            Ask::HeadRange => (get("HEAD /small.txt", "if-match: *\r\n"), 200, Some(&b""[..])),
            Ask::Missing => (get("GET /none", ""), 404, None),
            Ask::Unwanted { .. } => {
                ("POST /small.txt HTTP/1.1\r\nhost: a\r\n".to_owned(), 405, None)
            }
            Ask::Publish { .. } => ("POST /c HTTP/1.1\r\nhost: a\r\n".to_owned(), 201, None),
        };
        let mut bytes = bytes.into_bytes();
        match self {
            Ask::Unwanted { body, is_chunked } => {
                with_body(&mut bytes, body, is_chunked, 7, "");
            }
            Ask::Publish { body, is_chunked, expects, chunk } => {
                let more = if expects { "expect: 100-continue\r\n" } else { "" };
                with_body(&mut bytes, body, is_chunked, chunk, more);
            }
            _ => {}
        }
        Sent { bytes, status, body, is_head: matches!(self, Ask::Head | Ask::HeadRange) }
    }
}

fn asks() -> impl Strategy<Value = Ask> {
    prop_oneof![
        3 => Just(Ask::Small),
        1 => Just(Ask::Range),
        1 => Just(Ask::Unchanged),
        1 => Just(Ask::Head),
        1 => Just(Ask::HeadRange),
        1 => Just(Ask::Missing),
        1 => (0..200_usize, any::<bool>())
            .prop_map(|(body, is_chunked)| Ask::Unwanted { body, is_chunked }),
        3 => (1..40_000_usize, any::<bool>(), any::<bool>(), 1..9_000_usize).prop_map(
            |(body, is_chunked, expects, chunk)| Ask::Publish { body, is_chunked, expects, chunk }
        ),
    ]
}

/// Reads a response at the beginning of some bytes, past interim ones. Returns its length, status
/// and body, and whether it is the last one.
fn read(bytes: &[u8], is_head: bool) -> Option<(usize, u16, Vec<u8>, bool)> {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let head = std::str::from_utf8(&bytes[..end]).unwrap().to_ascii_lowercase();
    let status: u16 = head.split(' ').nth(1).unwrap().parse().unwrap();
    if status == 100 {
        let (length, status, body, is_last) = read(&bytes[end..], is_head)?;
        return Some((end + length, status, body, is_last));
    }
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let length = match is_head || status == 304 {
        true => 0,
        false => length.expect("a length").trim().parse::<usize>().unwrap(),
    };
    let body = bytes.get(end..end + length)?.to_vec();
    Some((end + length, status, body, head.contains("\r\nconnection: close\r\n")))
}

/// Sends requests in pieces, and checks the responses. A response may be the last one if the rest
/// of its request's body had not arrived.
fn check(stage: &Stage, asks: &[Ask], cuts: &[prop::sample::Index]) {
    let sent: Vec<Sent> = asks.iter().map(|ask| ask.sent()).collect();
    let all: Vec<u8> = sent.iter().flat_map(|sent| sent.bytes.iter().copied()).collect();
    let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(all.len())).collect();
    at.extend([0, all.len()]);
    at.sort_unstable();
    let mut stream = stage.connect().0.into_inner();
    stream.set_nodelay(true).unwrap();
    let mut writing = stream.try_clone().unwrap();
    let pieces: Vec<Vec<u8>> = at.windows(2).map(|two| all[two[0]..two[1]].to_vec()).collect();
    let writer = std::thread::spawn(move || {
        // The server may have ended the connection.
        for piece in pieces {
            if writing.write_all(&piece).is_err() {
                return;
            }
            std::thread::yield_now();
        }
        let _ = writing.shutdown(std::net::Shutdown::Write);
    });
    let mut seen = Vec::new();
    let _ = stream.read_to_end(&mut seen);
    writer.join().unwrap();
    let mut rest = &seen[..];
    for (number, (sent, ask)) in sent.iter().zip(asks).enumerate() {
        let (length, status, body, is_last) = read(rest, sent.is_head).unwrap_or_else(|| {
            panic!("request {number}, {ask:?}: {:?}", String::from_utf8_lossy(rest))
        });
        assert_eq!(status, sent.status, "request {number}, {ask:?}");
        if let Some(expected) = sent.body {
            assert_eq!(body, expected, "request {number}, {ask:?}");
        }
        rest = &rest[length..];
        if is_last {
            assert!(matches!(ask, Ask::Unwanted { .. }), "request {number}, {ask:?}");
            break;
        }
    }
    assert!(rest.is_empty(), "{}", String::from_utf8_lossy(rest));
}

#[test]
fn each_request_gets_its_response() {
    let folder = folder();
    let text = format!(
        "[[listeners]]\naddress = \"127.0.0.1:0\"\n[[hosts]]\n[[hosts.routes]]\n\
         files.root = {:?}\n[[hosts.routes]]\npath = \"/c\"\nchannel = {{}}\n",
        folder.path()
    );
    let stage = Stage::new(BackendKind::Epoll, 1, &text);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(300));
    let conversations = (
        prop::collection::vec(asks(), 1..12),
        prop::collection::vec(any::<prop::sample::Index>(), 0..9),
    );
    runner
        .run(&conversations, |(asks, cuts)| {
            check(&stage, &asks, &cuts);
            Ok(())
        })
        .unwrap();
    assert_eq!(stage.count(|engine| &engine.broken), 0);
}
