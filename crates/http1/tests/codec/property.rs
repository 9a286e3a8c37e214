//! Arbitrary messages: a grammar with changes.

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use superpoll_http1::{Asked, Framing, Limits, has_end};

use crate::again::{assert_request_again, assert_response_again};
use crate::message::{WIDE, read_body, read_request, read_response};
use crate::oracle::{End, compare_request, compare_response};
use crate::simple::simple_chunks;

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
        1 => Just("HTTP/1.1 100 Continue\r\n\r\n\r\n"),
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
pub(crate) fn cases() -> ProptestConfig {
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

fn bodies() -> impl Strategy<Value = Vec<u8>> {
    let size = prop_oneof![
        6 => Just("1\r\na\r\n"),
        6 => Just("3\r\nabc\r\n"),
        6 => Just("00B\r\n0123456789\n\r\n"),
        2 => Just("1;a=\"b\"\r\n\r\r\n"),
        2 => Just("1 \t;\r\n\n\r\n"),
        2 => Just("2\t\r\n\r\n\r\n"),
        1 => Just("1\na\r\n"),
        1 => Just("1;\n1\r\na\r\n"),
        1 => Just("0x1\r\na\r\n"),
        1 => Just("1 1\r\na\r\n"),
        1 => Just("\r\n"),
        1 => Just("2\r\na\r\n"),
    ];
    let trailer = prop_oneof![
        6 => Just("x: y\r\n"),
        2 => Just("Content-Length:5\r\n"),
        2 => Just("X-\u{e4}: y\r\n"),
        1 => Just("x\r\n"),
        1 => Just("x: y\n"),
        1 => Just(" x: y\r\n"),
    ];
    let parts = (
        prop::collection::vec(size, 0..4),
        prop_oneof![4 => Just("0\r\n"), 1 => Just("000;a\r\n"), 1 => Just("0\n")],
        prop::collection::vec(trailer, 0..2),
        prop::sample::select(vec!["\r\n", "\r\n", "\r\nGET / HTTP/1.1\r\n", "\n", ""]),
        prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..4_u8), 0..2),
    );
    parts.prop_map(|(chunks, last, trailers, end, changes)| {
        changed([&chunks.concat(), last, &trailers.concat(), end].concat(), changes)
    })
}

proptest! {
    #![proptest_config(cases())]

    /// A head has the same outcome in whatever pieces it arrives: none before that, and the same
    /// with any bytes after it.
    #[test]
    fn requests_do_not_depend_on_pieces(bytes in requests(), small in any::<bool>()) {
        let limits = if small { Limits { head: 60, target: 12, fields: 4 } } else { WIDE };
        let whole = read_request(&bytes, &limits);
        for end in 0..bytes.len() {
            match read_request(&bytes[..end], &limits) {
                Ok(None) => {}
                early => prop_assert_eq!(&early, &whole),
            }
            if matches!(&whole, Ok(Some(head)) if head.len > end) {
                prop_assert_eq!(read_request(&bytes[..end], &limits), Ok(None));
            }
        }
        if let Ok(Some(head)) = &whole {
            prop_assert!(has_end(&bytes, 0) && !has_end(&bytes[..head.len - 1], 0));
            for seen in 0..head.len {
                prop_assert!(has_end(&bytes[..head.len], seen));
            }
        }
    }

    #[test]
    fn responses_do_not_depend_on_pieces(
        bytes in responses(),
        asked in asked(),
        small in any::<bool>(),
    ) {
        let limits = if small { Limits { head: 60, target: 12, fields: 4 } } else { WIDE };
        let whole = read_response(&bytes, asked, &limits);
        for end in 0..bytes.len() {
            match read_response(&bytes[..end], asked, &limits) {
                Ok(None) => {}
                early => prop_assert_eq!(&early, &whole),
            }
        }
    }

    #[test]
    fn bodies_do_not_depend_on_pieces(bytes in bodies()) {
        let whole = read_body(Framing::Chunked, &bytes, usize::MAX, false);
        for piece in 1..bytes.len() {
            prop_assert_eq!(&read_body(Framing::Chunked, &bytes, piece, false), &whole);
        }
    }

    #[test]
    fn chunks_are_read_as_a_simple_reader_does(bytes in bodies(), piece in 1..20_usize) {
        let ours = read_body(Framing::Chunked, &bytes, piece, false);
        let ours = ours.ok().filter(|body| body.end.is_some());
        prop_assert_eq!(ours, simple_chunks(&bytes));
    }

    #[test]
    fn a_request_that_is_written_again_is_the_same(bytes in requests()) {
        assert_request_again(&bytes);
    }

    #[test]
    fn a_response_that_is_written_again_is_the_same(bytes in responses(), asked in asked()) {
        assert_response_again(&bytes, asked);
    }
}
