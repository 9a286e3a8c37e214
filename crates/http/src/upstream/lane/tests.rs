//! The accept list, by named cases and by arbitrary bytes that hyper reads as well.

use proptest::prelude::*;
use proptest::strategy::ValueTree;

use super::body;
use super::chunks::{Chunks, Next};
use super::oracle::{compare_request, compare_response};
use super::request::{self, LONGEST_HEAD, Parsed, room};
use super::response;

/// Whether the lane takes a request, waits for more of it, or leaves it to hyper.
fn request(bytes: &str) -> &'static str {
    let (mut room, mut lower) = (room(), Vec::new());
    let parsed = match request::parse(bytes.as_bytes(), &mut room, &mut lower) {
        Parsed::Regular(head) => body::whole(head.length, &bytes.as_bytes()[head.len..], |_| {}),
        Parsed::Partial => Parsed::Partial,
        Parsed::Irregular => Parsed::Irregular,
    };
    match parsed {
        Parsed::Regular(_) => "regular",
        Parsed::Partial => "partial",
        Parsed::Irregular => "irregular",
    }
}

fn response(bytes: &str, is_head: bool) -> &'static str {
    let (mut room, mut lower) = (room(), Vec::new());
    match response::parse(bytes.as_bytes(), is_head, &mut room, &mut lower) {
        Parsed::Regular(_) => "regular",
        Parsed::Partial => "partial",
        Parsed::Irregular => "irregular",
    }
}

#[test]
fn usual_requests_are_taken() {
    for text in [
        "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "HEAD /a/b?c=d&e=%20 HTTP/1.1\r\nhost: a.example:8080\r\nConnection: keep-alive\r\n\r\n",
        "GET /a HTTP/1.1\r\nHost: [::1]:80\r\nAccept: */*\r\nCookie: a=b\r\nconnection: close\r\n\r\n",
        "GET /?../ HTTP/1.1\r\nX-A: \r\nHost: a\r\nX-B:\tc \r\n\r\n",
        "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
        "PUT /a HTTP/1.1\r\nHost: a\r\ncontent-length: 0\r\n\r\n",
        "PATCH /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n3\r\nabc\r\n00A\r\n0123456789\r\n0\r\n\r\n",
        "POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST /a HTTP/1.1\r\nHost: a\r\n\r\n",
        "DELETE /a HTTP/1.1\r\nHost: a\r\nMax-Forwards: 1\r\n\r\n",
        "OPTIONS /a HTTP/1.1\r\nHost: a\r\n\r\n",
    ] {
        assert_eq!(request(text), "regular", "{text:?}");
        for length in 1..text.len() {
            assert_eq!(request(&text[..length]), "partial", "{:?}", &text[..length]);
        }
        assert!(compare_request(text.as_bytes(), 7), "{text:?}");
    }
}

/// A request with another line in its head.
fn with(line: &str) -> String {
    format!("GET /a HTTP/1.1\r\nHost: a\r\n{line}\r\n\r\n")
}

#[test]
fn a_line_that_ends_with_a_line_feed_alone_is_irregular() {
    for text in [
        "GET /a HTTP/1.1\nHost: a\r\n\r\n",
        "GET /a HTTP/1.1\r\nHost: a\n\r\n",
        "GET /a HTTP/1.1\r\nHost: a\r\n\n",
        "GET /a HTTP/1.1\r\nHost: a\r\nX: b\nY: c\r\n\r\n",
        "GET /a HTTP/1.1\r\nHost: a\r\nX: b\rc\r\n\r\n",
        "\r\nGET /a HTTP/1.1\r\nHost: a\r\n\r\n",
        "\nGET /a HTTP/1.1\r\nHost: a\r\n\r\n",
    ] {
        assert_eq!(request(text), "irregular", "{text:?}");
    }
}

/// Lines about a body, or about the connection, that some reader of HTTP may read differently.
const AMBIGUOUS: [&str; 21] = [
    "content-length: 5, 5",
    "Content-Length: 5\r\nContent-Length: 5",
    "Content-Length: +5",
    "Content-Length: 05",
    "CONTENT-LENGTH:",
    "Content-Length : 5",
    "transfer-encoding: identity",
    "Transfer-Encoding: gzip, chunked",
    "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
    "Transfer-Encoding: \"chunked\"",
    "Transfer-Encoding : chunked",
    "Transfer-Encoding: chunked\r\nContent-Length: 5",
    "Content-Length: 5\r\nTransfer-Encoding: chunked",
    "Transfer_Encoding: chunked",
    "Content_Length: 5",
    "Trailer: a",
    "TE: trailers",
    "Expect: 100-continue",
    "Upgrade: websocket",
    "HTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA",
    "Proxy-Connection: keep-alive",
];

/// 0.CL, CL.0, TE.0 and TE.CL: a length that is not plain, or of a method that has no body, is
/// hyper's.
#[test]
fn a_request_with_any_unusual_sign_of_a_body_is_irregular() {
    for method in ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] {
        let with =
            |line: &str| format!("{method} /a HTTP/1.1\r\nHost: a\r\n{line}\r\n\r\n0\r\n\r\n");
        for line in AMBIGUOUS {
            assert_eq!(request(&with(line)), "irregular", "{method} {line:?}");
        }
        for line in ["Connection: upgrade", "Connection: close, te", "Connection: x"] {
            assert_eq!(request(&with(line)), "irregular", "{method} {line:?}");
        }
        for line in ["Content-Length: 0", "Content-Length: 5", "Transfer-Encoding: chunked"] {
            let expected = if method.starts_with('P') { "regular" } else { "irregular" };
            assert_eq!(request(&with(line)), expected, "{method} {line:?}");
        }
    }
    let limited = "OPTIONS /a HTTP/1.1\r\nHost: a\r\nMax-Forwards: 1\r\n\r\n";
    assert_eq!(request(limited), "irregular");
    for method in ["CONNECT", "TRACE", "get", "GETS", "G", "PROPFIND"] {
        let text = format!("{method} /a HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(request(&text), "irregular", "{method}");
    }
}

/// Extensions and trailers of a request, which hyper reads over, have been read in two ways.
#[test]
fn a_request_with_unusual_chunks_is_irregular() {
    for body in [
        "3;a=b\r\nabc\r\n0\r\n\r\n",
        "3;\nabc\r\n0\r\n\r\n",
        "3 \r\nabc\r\n0\r\n\r\n",
        "3\r\nabc\r\n0;a\r\n\r\n",
        "3\r\nabc\r\n0\r\nx: y\r\n\r\n",
        "3\r\nabcXX0\r\n\r\n",
        "3\nabc\r\n0\r\n\r\n",
        "0x3\r\nabc\r\n0\r\n\r\n",
    ] {
        let text =
            format!("POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{body}");
        assert_eq!(request(&text), "irregular", "{text:?}");
    }
}

#[test]
fn a_field_that_servers_may_read_in_two_ways_is_irregular() {
    for line in [
        " folded",
        "X: a\r\n b",
        "X: a\r\n\tb",
        "Host: b",
        "X_Forwarded_For: a",
        "my_field: a",
        "Cookie: a=b\r\nCookie: c=d",
        "X: a\0b",
        "X\0: a",
        "X: a\u{7f}",
        ": a",
        "X",
        "X Y: a",
        "(X): a",
    ] {
        assert_eq!(request(&with(line)), "irregular", "{line:?}");
    }
    assert_eq!(request("GET /a HTTP/1.1\r\nX: a\r\n\r\n"), "irregular");
}

#[test]
fn an_unusual_target_or_version_is_irregular() {
    for line in [
        "GET http://a/ HTTP/1.1",
        "GET * HTTP/1.1",
        "GET a HTTP/1.1",
        "GET /a#b HTTP/1.1",
        "GET /a\\b HTTP/1.1",
        "GET /\u{e4} HTTP/1.1",
        "GET /a/../b HTTP/1.1",
        "GET /a/%2e%2E/b HTTP/1.1",
        "GET /. HTTP/1.1",
        "GET /a  HTTP/1.1",
        "GET  /a HTTP/1.1",
        "GET /a HTTP/1.0",
        "GET /a HTTP/1.2",
        "GET /a HTTP/2.0",
        "GET /a",
        "GET /a http/1.1",
    ] {
        let text = format!("{line}\r\nHost: a\r\n\r\n");
        assert_eq!(request(&text), "irregular", "{line:?}");
    }
}

#[test]
fn a_head_that_is_too_large_is_irregular() {
    let filled = |length: usize| with(&format!("X: {}", "a".repeat(length)));
    let fits = LONGEST_HEAD - filled(0).len();
    assert_eq!(request(&filled(fits)), "regular");
    assert_eq!(request(&filled(fits + 1)), "irregular");
    let endless = format!("GET /{}", "a".repeat(LONGEST_HEAD));
    assert_eq!(request(&endless), "irregular");
    let many = |count: usize| with(&vec!["X: a"; count].join("\r\n"));
    assert_eq!(request(&many(63)), "regular");
    assert_eq!(request(&many(64)), "irregular");
}

#[test]
fn usual_responses_are_taken() {
    for (text, is_head) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", false),
        ("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", false),
        (
            "HTTP/1.1 404 Not Found\r\ntransfer-encoding: Chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
            false,
        ),
        ("HTTP/1.1 204 No Content\r\nx: y\r\n\r\n", false),
        ("HTTP/1.1 304 Not Modified\r\ncontent-length: 3\r\n\r\n", false),
        ("HTTP/1.1 200 OK\r\nContent-Length: 3\r\nconnection: close\r\n\r\n", true),
    ] {
        assert_eq!(response(text, is_head), "regular", "{text:?}");
        for piece in [1, 2, 5, 100] {
            assert!(compare_response(text.as_bytes(), is_head, piece), "{text:?}");
        }
    }
}

#[test]
fn unusual_responses_are_irregular() {
    for text in [
        "HTTP/1.1 100 Continue\r\n\r\n",
        "HTTP/1.1 103 Early Hints\r\nlink: a\r\n\r\n",
        "HTTP/1.1 100 Continue\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 103 Early Hints\r\nContent-Length: 3\r\n\r\nabc",
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: a\r\n\r\n",
        "HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\n\r\nuntil the end",
        "HTTP/1.1 200 Fine\r\nContent-Length: 3\r\n\r\nabc",
        "HTTP/1.1 200\r\nContent-Length: 3\r\n\r\nabc",
        "HTTP/1.1 200 OK\nContent-Length: 3\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nContent-Length: 3\n\r\nabc",
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nContent-Length: 3, 3\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nContent-Length: +3\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nContent-Length: 0x3\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nContent-Length: 03\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nContent-Length: 9999999999999999999\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 204 No Content\r\nContent-Length: 3\r\n\r\nabc",
        "HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nX: a\r\n b\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent_Length: 5\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTrailer: a\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: x\r\n\r\nabc",
        "HTTP/1.1 600 \r\nContent-Length: 3\r\n\r\nabc",
        "ICY 200 OK\r\nContent-Length: 3\r\n\r\nabc",
    ] {
        assert_eq!(response(text, false), "irregular", "{text:?}");
    }
    for text in ["HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"]
    {
        assert_eq!(response(text, true), "irregular", "{text:?}");
    }
}

/// Reads a body in chunks that comes whole; the data, and how many bytes it takes.
fn chunked(bytes: &[u8]) -> Option<(Vec<u8>, usize)> {
    let (mut chunks, mut data, mut at) = (Chunks::new(), Vec::new(), 0);
    loop {
        match chunks.next(&bytes[at..]) {
            Next::Data(place) => {
                data.extend_from_slice(&bytes[at..][place.clone()]);
                at += place.end;
            }
            Next::Over(used) => return Some((data, at + used)),
            Next::More(_) | Next::Irregular => return None,
        }
    }
}

/// CVE-2025-22871 and its like: bytes after the wrong end are the next response to another client.
#[test]
fn chunks_with_anything_unusual_are_irregular() {
    for bytes in [
        &b"3\r\nabc\r\n0\r\n\r\n"[..],
        b"3;a=b\r\nabc\r\n0\r\n\r\n",
        b"3 ; a=\"b\"\r\nabc\r\n0\r\n\r\n",
        b"3 \r\nabc\r\n0;x\r\n\r\n",
        b"0000000000000000003\r\nabc\r\n000\r\n\r\n",
        b"1\r\na\r\n2\r\nbc\r\n0\r\nx: y\r\nServer-Timing: a\r\n\r\n",
    ] {
        let whole = [bytes, b"rest"].concat();
        assert_eq!(chunked(&whole), Some((b"abc".to_vec(), bytes.len())), "{whole:?}");
    }
    assert_eq!(chunked(b"00A\r\n0123456789\r\n000\r\n\r\n"), Some((b"0123456789".to_vec(), 24)));
    for bytes in [
        &b"3\nabc\r\n0\r\n\r\n"[..],
        b"3;a=b\nabc\r\n0\r\n\r\n",
        b"3;a\rb\r\nabc\r\n0\r\n\r\n",
        b"3 x\r\nabc\r\n0\r\n\r\n",
        b"3;\nabc\r\n0\r\n\r\n",
        b" 3\r\nabc\r\n0\r\n\r\n",
        b"+3\r\nabc\r\n0\r\n\r\n",
        b"0x3\r\nabc\r\n0\r\n\r\n",
        b"-3\r\nabc\r\n0\r\n\r\n",
        b"\r\nabc\r\n0\r\n\r\n",
        b"3\r\nabcXX0\r\n\r\n",
        b"3\r\nabc\n0\r\n\r\n",
        b"3\r\nabc\r0\r\n\r\n",
        b"3\r\nabc0\r\n\r\n",
        b"3\r\nabc\r\n0\r\nx: y\n\r\n",
        b"3\r\nabc\r\n0\r\nx\r\n\r\n",
        b"3\r\nabc\r\n0\r\nx : y\r\n\r\n",
        b"3\r\nabc\r\n0\r\n: y\r\n\r\n",
        b"3\r\nabc\r\n0\r\nx: y \x0c\r\n\r\n",
        b"3\r\nabc\r\n0\r\nx:\x0cy\r\n\r\n",
        b"3\x0c;a\r\nabc\r\n0\r\n\r\n",
        b"3\x0c\r\nabc\r\n0\r\n\r\n",
        b"3\r\nabc\r\n0\r\nx: y\r\n z\r\n\r\n",
        b"3\r\nabc\r\n0\r\nx: y\r\n\n",
        b"3\r\nabc\r\n0\r\n\n",
        b"3\r\nabc\r\n0\r\r\n",
        b"10000000000000003\r\nabc\r\n0\r\n\r\n",
        b"fffffffffffffffff\r\nabc\r\n0\r\n\r\n",
    ] {
        assert_eq!(chunked(bytes), None, "{:?}", String::from_utf8_lossy(bytes));
    }
    // What is read over has a limit.
    let endless = |extension: &str, chunks: usize| {
        let chunk = format!("1;{extension}\r\na\r\n");
        format!("{}0\r\n\r\n", chunk.repeat(chunks))
    };
    assert!(chunked(endless(&"x".repeat(100), 100).as_bytes()).is_some());
    assert_eq!(chunked(endless(&"x".repeat(100), 200).as_bytes()), None);
    assert_eq!(chunked(endless(&"x".repeat(9000), 1).as_bytes()), None);
}

/// Lines that heads and bodies are put together from.
const LINES: [&str; 42] = [
    "GET / HTTP/1.1",
    "GET /a?b=c HTTP/1.1",
    "HEAD /a%20b HTTP/1.1",
    "GET /a/./b HTTP/1.1",
    "POST /a HTTP/1.1",
    "PUT /a HTTP/1.1",
    "PATCH /a?b HTTP/1.1",
    "GET /a HTTP/1.0",
    "GET http://a/ HTTP/1.1",
    "HTTP/1.1 200 OK",
    "HTTP/1.1 304 Not Modified",
    "HTTP/1.1 204 No Content",
    "HTTP/1.1 100 Continue",
    "HTTP/1.1 500 Internal Server Error",
    "HTTP/1.0 200 OK",
    "HTTP/1.1 200 ",
    "Host: a",
    "host: b.example:80",
    "Host:a",
    "Host: ",
    "Accept: */*",
    "X-A:  b\t",
    "x-a: c",
    "X_A: b",
    "Cookie: a=b",
    "Cookie: c=d; e=f",
    "Connection: close",
    "Connection: keep-alive",
    "connection: Close, x",
    "Content-Length: 3",
    "Content-Length: 10",
    "content-length: 3, 3",
    "Transfer-Encoding: chunked",
    "transfer-encoding: gzip, chunked",
    "Upgrade: a",
    "Date: x",
    "X: \u{e4}",
    " folded",
    "3",
    "abc",
    "0",
    "a;b",
];

/// Lines that make no head irregular, if there are not too many.
const USUAL: [&str; 8] = [
    "Accept: */*",
    "X-A:  b\t",
    "x-a: c",
    "Date: x",
    "X: \u{e4}",
    "Connection: keep-alive",
    "Host:a",
    "",
];

/// Trailers, of which some are no fields.
const TRAILERS: [&str; 8] = [
    "",
    "x: y\r\n",
    "x:\t y \r\nServer-Timing: a\r\n",
    "x: \u{e4}\r\n",
    "x\r\n",
    "x : y\r\n",
    ": y\r\n",
    "x: y\u{c}\r\n",
];

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let end = prop_oneof![60 => Just("\r\n"), 1 => Just("\n"), 1 => Just("\r"), 1 => Just("")];
    // Most lines are usual ones, so that many heads are.
    let place = prop_oneof![6 => prop::sample::select(&USUAL), 1 => prop::sample::select(&LINES)];
    let line = (place, end).prop_map(|(line, end)| format!("{line}{end}"));
    let change = (any::<prop::sample::Index>(), any::<u8>(), 0..3_u8);
    let first = prop::sample::select(&LINES[..16]);
    let parts = (
        (first, prop::sample::select(&TRAILERS)),
        any::<bool>(),
        prop::collection::vec(line, 0..6),
        prop::collection::vec(change, 0..2),
    );
    parts.prop_map(|((first, trailer), is_chunked, lines, changes)| {
        let chunked = format!("3;a\r\nabc\r\n00a\r\n0123456789\r\n0\r\n{trailer}\r\nX");
        let (own, body) = match (first.starts_with("HTTP"), is_chunked) {
            (false, false) if first.starts_with('P') => {
                ("Host: a\r\nContent-Length: 3", "abcGET /b HTTP/1.1\r\n")
            }
            (false, true) if first.starts_with('P') => (
                "Host: a\r\nTransfer-Encoding: chunked",
                "3\r\nabc\r\n00a\r\n0123456789\r\n0\r\n\r\nPOST",
            ),
            (false, _) => ("Host: a", "GET /b HTTP/1.1\r\n"),
            (true, false) => ("Content-Length: 3", "abcHTTP/1.1 200 OK\r\n"),
            (true, true) => ("Transfer-Encoding: chunked", &*chunked),
        };
        let lines = lines.concat();
        let mut bytes = format!("{first}\r\n{own}\r\n{lines}\r\n{body}").into_bytes();
        for (place, byte, kind) in changes {
            let at = place.index(bytes.len());
            match kind {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                _ => drop(bytes.remove(at)),
            }
        }
        bytes
    })
}

/// The number of cases; `SUPERPOLL_CASES` makes it another one.
fn cases() -> ProptestConfig {
    let cases = std::env::var("SUPERPOLL_CASES").ok().and_then(|text| text.parse().ok());
    ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(cases.unwrap_or(4000))
    }
}

/// A lane that takes nothing is always right, so it has to take a good part of the cases.
#[test]
fn a_good_part_of_the_bytes_is_taken() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let (mut requests, mut responses) = (0, 0);
    for _ in 0..4000 {
        let bytes = bytes().new_tree(&mut runner).unwrap().current();
        requests += u32::from(compare_request(&bytes, 9));
        responses += u32::from(compare_response(&bytes, false, 9));
    }
    assert!(requests > 200 && responses > 200, "{requests} requests, {responses} responses");
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn a_request_that_is_taken_is_read_as_hyper_reads_it(bytes in bytes(), piece in 1..64_usize) {
        compare_request(&bytes, piece);
    }

    #[test]
    fn a_response_that_is_taken_is_read_as_hyper_reads_it(
        bytes in bytes(),
        is_head in any::<bool>(),
        piece in 1..64_usize,
    ) {
        compare_response(&bytes, is_head, piece);
    }
}
