//! Arbitrary messages: a grammar with changes.

use http::StatusCode;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use superpoll_http1::{
    Asked, BodyWriter, Field, FieldName, FieldValue, Framing, Limits, Method, Refusal, Room,
    Target, Version, Writer, has_end, request,
};

use crate::message::{
    Answer, Body, Kind, Pairs, Request, WIDE, read_body, read_request, read_response,
};
use crate::oracle::{End, compare_request, compare_response};

const METHODS: [&str; 8] = ["GET", "HEAD", "POST", "PUT", "OPTIONS", "CONNECT", "TRACE", "purge"];

const TARGETS: [&str; 14] = [
    "/",
    "/a?b=c",
    "/a%20b/./c",
    "*",
    "a:443",
    "http://b/",
    "http://b:80?c",
    "HTTPS://[::1]/a?b",
    "http://b",
    "http://u@b/",
    "/a#b",
    "/<a>?`",
    "/\u{e4}",
    "a",
];

const VERSIONS: [&str; 9] = [
    "HTTP/1.1",
    "HTTP/1.1",
    "HTTP/1.1",
    "HTTP/1.0",
    "HTTP/1.2",
    "HTTP/2.0",
    "HTTP/1",
    "http/1.1",
    "HTTP/1.1 ",
];

const STATUSES: [&str; 12] = [
    "200 OK",
    "200 OK",
    "200 ",
    "200",
    "404 Fine enough",
    "304 Not Modified",
    "204 No Content",
    "100 Continue",
    "103 Early Hints",
    "101 Switching Protocols",
    "500 \u{e4}",
    "999 Odd",
];

/// Lines that make no head odd, if there are not too many.
const USUAL: [&str; 10] = [
    "Accept: */*",
    "X-A:  b\t",
    "x-a: c",
    "Date: x",
    "X: \u{e4}",
    "Connection: keep-alive",
    "Y:",
    "X_A: b",
    "Cookie: a=b",
    "TE: trailers",
];

const ODD: [&str; 22] = [
    "Host: b",
    "Host: ",
    "host: [::1]:80",
    "Connection: close",
    "connection: Upgrade, x",
    "Upgrade: a",
    "Expect: 100-continue",
    "Expect: x",
    "Content-Length: 3",
    "content-length: 03",
    "Content-Length: 3, 3",
    "Content-Length: 9223372036854775808",
    "Content-Length: 4",
    "Transfer-Encoding: chunked",
    "transfer-encoding: gzip, chunked",
    "Transfer-Encoding: gzip",
    " folded",
    "X : a",
    "X: a\u{1}",
    "Trailer: x",
    "",
    "no colon",
];

const BODIES: [&str; 12] = [
    "",
    "abc",
    "abcGET /b HTTP/1.1\r\n",
    "3\r\nabc\r\n00A;a=\"b\"\r\n0123456789\r\n0\r\n\r\nGET",
    "3 \r\nabc\r\n0\r\nx: y\r\nServer-Timing:\t a \r\n\r\nHTTP/1.1",
    "3\nabc\r\n0\r\n\r\n",
    "3\r\nabc\n0\r\n\r\n",
    "3\r\nabc\r\n0\r\nx: y\nz: a\r\n\r\n",
    "3\r\nabc\r\n0\r\nx : y\r\n\r\n",
    "fffffffffffffff\r\nabc",
    "1000000000000000\r\nabc",
    "3;\u{1}\r\nabc\r\n0\r\n\r\n",
];

fn select<const N: usize>(
    texts: &'static [&'static str; N],
) -> impl Strategy<Value = &'static str> {
    prop::sample::select(&texts[..])
}

/// The fields and body of a message, with changed bytes.
fn rest() -> impl Strategy<Value = (String, Vec<(prop::sample::Index, u8, u8)>)> {
    let end = prop_oneof![60 => Just("\r\n"), 2 => Just("\n"), 1 => Just("\r"), 1 => Just("")];
    let line = prop_oneof![5 => select(&USUAL), 1 => select(&ODD)];
    let lines =
        prop::collection::vec((line, end).prop_map(|(line, end)| [line, end].concat()), 0..6);
    let framing = prop_oneof![
        2 => Just("Content-Length: 3\r\n"),
        3 => Just("Transfer-Encoding: chunked\r\n"),
        1 => Just(""),
    ];
    let change = (any::<prop::sample::Index>(), any::<u8>(), 0..4_u8);
    let changes = prop_oneof![
        2 => Just(Vec::new()),
        1 => prop::collection::vec(change, 1..3),
    ];
    (framing, lines, select(&BODIES), changes).prop_map(|(framing, lines, body, changes)| {
        (format!("{framing}{}\r\n{body}", lines.concat()), changes)
    })
}

fn changed(text: String, changes: Vec<(prop::sample::Index, u8, u8)>) -> Vec<u8> {
    let mut bytes = text.into_bytes();
    for (place, byte, kind) in changes {
        let at = place.index(bytes.len());
        match kind {
            0 => bytes[at] = byte,
            1 => bytes.insert(at, byte),
            2 => drop(bytes.remove(at)),
            _ => bytes.truncate(at.max(1)),
        }
    }
    bytes
}

fn requests() -> impl Strategy<Value = Vec<u8>> {
    let host = prop_oneof![10 => Just("Host: a\r\n"), 1 => Just("Host: a:80\r\n"), 1 => Just("")];
    let first = prop_oneof![20 => Just(""), 1 => Just("\r\n"), 1 => Just("\n")];
    let target = prop_oneof![3 => Just("/a?b"), 1 => select(&TARGETS)];
    let line = (first, select(&METHODS), target, select(&VERSIONS), host);
    (line, rest()).prop_map(|((first, method, target, version, host), (rest, changes))| {
        changed(format!("{first}{method} {target} {version}\r\n{host}{rest}"), changes)
    })
}

fn responses() -> impl Strategy<Value = Vec<u8>> {
    let first = prop_oneof![
        8 => Just(""),
        1 => Just("HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n"),
        1 => Just("\r\n"),
    ];
    (first, select(&VERSIONS), select(&STATUSES), rest()).prop_map(
        |(first, version, status, (rest, changes))| {
            changed(format!("{first}{version} {status}\r\n{rest}"), changes)
        },
    )
}

fn asked() -> impl Strategy<Value = Asked> {
    prop::sample::select(vec![
        Asked::default(),
        Asked::default(),
        Asked { is_head: true, ..Asked::default() },
        Asked { is_connect: true, ..Asked::default() },
        Asked { has_upgrade: true, ..Asked::default() },
    ])
}

/// The number of cases; `SUPERPOLL_CASES` makes it another one.
fn cases() -> ProptestConfig {
    let cases = std::env::var("SUPERPOLL_CASES").ok().and_then(|text| text.parse().ok());
    ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(cases.unwrap_or(3000))
    }
}

/// A codec that accepts nothing is nearly always right, so it has to accept a good part.
#[test]
fn a_good_part_of_the_messages_is_accepted() {
    let mut runner = TestRunner::deterministic();
    let (mut accepted, mut refused) = ([0; 2], [0; 2]);
    for _ in 0..2000 {
        let bytes = requests().new_tree(&mut runner).unwrap().current();
        let request = compare_request(&bytes, 9);
        let bytes = responses().new_tree(&mut runner).unwrap().current();
        let response = compare_response(&bytes, Asked::default(), false, 9);
        for (place, end) in [request, response].into_iter().enumerate() {
            accepted[place] += u32::from(end == End::Accepted);
            refused[place] += u32::from(end == End::Refused);
        }
    }
    let all = [accepted, refused].concat();
    assert!(all.iter().all(|count| *count > 200), "{all:?}");
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn requests_are_read_as_hyper_reads_them(bytes in requests(), piece in 1..64_usize) {
        compare_request(&bytes, piece);
    }

    #[test]
    fn responses_are_read_as_hyper_reads_them(
        bytes in responses(),
        asked in asked(),
        closes in any::<bool>(),
        piece in 1..64_usize,
    ) {
        compare_response(&bytes, asked, closes, piece);
    }
}
