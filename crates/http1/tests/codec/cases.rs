//! Odd messages, with the outcome of each. The first table has a line for each decision of the
//! module essay.

use http::StatusCode;
use superpoll_http1::{After, Asked, Form, Framing, Limits, MOST_FIELDS, Refusal, Version};

use crate::message::{Kind, Request, WIDE, read_body, read_request, read_response};

const ASKED: Asked = Asked { is_head: false, is_connect: false, has_upgrade: false };

fn accepted(text: &str) -> Request {
    match read_request(text.as_bytes(), &WIDE) {
        Ok(Some(head)) => head,
        other => panic!("{text:?}: {other:?}"),
    }
}

fn refused(text: &str) -> Refusal {
    read_request(text.as_bytes(), &WIDE).expect_err(text)
}

/// A request with another line in its head.
fn with(line: &str) -> String {
    format!("POST /a HTTP/1.1\r\nHost: a\r\n{line}\r\n\r\n")
}

fn value<'r>(head: &'r Request, name: &str) -> Vec<&'r [u8]> {
    let same = |pair: &&(Vec<u8>, Vec<u8>)| pair.0 == name.as_bytes();
    head.fields.iter().filter(same).map(|pair| &pair.1[..]).collect()
}

/// The outcome of a case: the status of a refusal and its name.
type Refused = (u16, &'static str);

#[test]
fn each_odd_request_is_decided() {
    let cases: &[(&str, Result<Framing, Refused>)] = &[
        // Versions.
        ("GET / HTTP/1.0\r\n\r\n", Ok(Framing::None)),
        ("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", Ok(Framing::None)),
        ("GET / HTTP/1.2\r\nHost: a\r\n\r\n", Ok(Framing::None)),
        ("GET / HTTP/1.9\r\nHost: a\r\n\r\n", Ok(Framing::None)),
        ("GET / HTTP/2.0\r\nHost: a\r\n\r\n", Err((505, "version-unsupported"))),
        ("GET / HTTP/0.9\r\nHost: a\r\n\r\n", Err((505, "version-unsupported"))),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Err((505, "version-unsupported"))),
        ("GET / HTTP/2\r\nHost: a\r\n\r\n", Err((400, "version"))),
        ("GET / HTTP/1.10\r\nHost: a\r\n\r\n", Err((400, "line-end"))),
        ("GET / HTTP/1.20\r\nHost: a\r\n\r\n", Err((400, "line-end"))),
        ("GET / http/1.1\r\nHost: a\r\n\r\n", Err((400, "version"))),
        ("GET /\r\nHost: a\r\n\r\n", Err((400, "target"))),
        // Bare line feeds.
        ("GET / HTTP/1.1\nHost: a\n\n", Ok(Framing::None)),
        ("GET / HTTP/1.1\r\nHost: a\nX: b\r\n\n", Ok(Framing::None)),
        // Bare CR, NUL and other control characters.
        ("GET / HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n", Err((400, "field-value"))),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n", Err((400, "field-value"))),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: a\u{1}b\r\n\r\n", Err((400, "field-value"))),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: a\u{7f}b\r\n\r\n", Err((400, "field-value"))),
        ("GET / HTTP/1.1\r\nHost: a\r\nX\0: a\r\n\r\n", Err((400, "field-name"))),
        ("GET / HTTP/1.1\rHost: a\r\n\r\n", Err((400, "line-end"))),
        ("GET /\u{1} HTTP/1.1\r\nHost: a\r\n\r\n", Err((400, "target"))),
        // Folded lines, and blanks before a colon.
        ("GET / HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\n\r\n", Err((400, "field-name"))),
        ("GET / HTTP/1.1\r\n X: a\r\nHost: a\r\n\r\n", Err((400, "field-name"))),
        ("GET / HTTP/1.1\r\nHost : a\r\n\r\n", Err((400, "field-name"))),
        ("GET / HTTP/1.1\r\nHost: a\r\nContent-Length : 3\r\n\r\n", Err((400, "field-name"))),
        ("GET / HTTP/1.1\r\nHost: a\r\n: a\r\n\r\n", Err((400, "field-name"))),
        ("GET / HTTP/1.1\r\nHost: a\r\nX\r\n\r\n", Err((400, "field-name"))),
        // Hosts.
        ("GET / HTTP/1.1\r\n\r\n", Err((400, "host-missing"))),
        ("GET http://a/ HTTP/1.1\r\n\r\n", Err((400, "host-missing"))),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", Err((400, "host-repeated"))),
        ("GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n", Err((400, "host-repeated"))),
        ("GET / HTTP/1.1\r\nHost:\r\n\r\n", Err((400, "host-invalid"))),
        ("GET / HTTP/1.1\r\nHost: a b\r\n\r\n", Err((400, "host-invalid"))),
        ("GET / HTTP/1.1\r\nHost: a, b\r\n\r\n", Err((400, "host-invalid"))),
        ("GET / HTTP/1.1\r\nHost: u@a\r\n\r\n", Err((400, "host-invalid"))),
        ("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", Err((400, "host-invalid"))),
        ("GET / HTTP/1.1\r\nHost: a:x\r\n\r\n", Err((400, "host-invalid"))),
        ("GET / HTTP/1.1\r\nHost: a:+8\r\n\r\n", Err((400, "host-invalid"))),
        ("GET / HTTP/1.1\r\nHost: a:65536\r\n\r\n", Err((400, "host-invalid"))),
        ("GET / HTTP/1.1\r\nHost: [::1\r\n\r\n", Err((400, "host-invalid"))),
        ("GET / HTTP/1.1\r\nHost: [::g]\r\n\r\n", Err((400, "host-invalid"))),
        ("GET / HTTP/1.1\r\nHost: [::1]:8080\r\n\r\n", Ok(Framing::None)),
        ("GET / HTTP/1.1\r\nHost: a_b.example:\r\n\r\n", Ok(Framing::None)),
        // Targets.
        ("GET http://b:80/c?d HTTP/1.1\r\nHost: a\r\n\r\n", Ok(Framing::None)),
        ("GET http://u@b/ HTTP/1.1\r\nHost: a\r\n\r\n", Err((400, "target-form"))),
        ("GET ftp://b/ HTTP/1.1\r\nHost: a\r\n\r\n", Err((400, "target-form"))),
        ("GET http:///a HTTP/1.1\r\nHost: a\r\n\r\n", Err((400, "target-form"))),
        ("GET http://b/ HTTP/1.1\r\nHost: a,b\r\n\r\n", Err((400, "host-invalid"))),
        ("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", Ok(Framing::None)),
        ("GET * HTTP/1.1\r\nHost: a\r\n\r\n", Err((400, "target-form"))),
        ("CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n", Ok(Framing::None)),
        ("CONNECT a HTTP/1.1\r\nHost: a\r\n\r\n", Err((400, "target-form"))),
        ("CONNECT /a HTTP/1.1\r\nHost: a\r\n\r\n", Err((400, "target-form"))),
        ("GET a:443 HTTP/1.1\r\nHost: a\r\n\r\n", Err((400, "target-form"))),
        ("TRACE / HTTP/1.1\r\nHost: a\r\n\r\n", Ok(Framing::None)),
        ("GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n", Err((400, "fragment"))),
        ("GET /a?b#c HTTP/1.1\r\nHost: a\r\n\r\n", Err((400, "fragment"))),
        ("GET /# HTTP/1.1\r\nHost: a\r\n\r\n", Err((400, "fragment"))),
        ("GET /<a>|\\^`{}\"?<[] HTTP/1.1\r\nHost: a\r\n\r\n", Ok(Framing::None)),
        ("GET /\u{e4} HTTP/1.1\r\nHost: a\r\n\r\n", Ok(Framing::None)),
        ("GET  /a HTTP/1.1\r\nHost: a\r\n\r\n", Err((400, "target"))),
        ("GET /a  HTTP/1.1\r\nHost: a\r\n\r\n", Err((400, "version"))),
        ("GET /a b HTTP/1.1\r\nHost: a\r\n\r\n", Err((400, "version"))),
        // Lengths.
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n", Ok(Framing::Length(3))),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\ncontent-length: 03\r\n\r\n",
            Ok(Framing::Length(3)),
        ),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n",
            Err((400, "lengths-differ")),
        ),
        // Length with coding.
        (
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
            Err((400, "length-and-coding")),
        ),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n",
            Err((400, "length-and-coding")),
        ),
        // Codings.
        (
            "POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
            Err((400, "coding-in-old-version")),
        ),
        ("PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n", Ok(Framing::Chunked)),
        ("GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", Ok(Framing::Chunked)),
        // Methods that no standard has, bodies of any method, and empty lines before a request.
        ("purge /a HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n", Ok(Framing::Length(1))),
        ("GET /a HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n", Ok(Framing::Length(1))),
        ("G(T /a HTTP/1.1\r\nHost: a\r\n\r\n", Err((400, "method"))),
        (" GET /a HTTP/1.1\r\nHost: a\r\n\r\n", Err((400, "method"))),
        ("\r\n\r\nGET /a HTTP/1.1\r\nHost: a\r\n\r\n", Ok(Framing::None)),
        ("\nGET /a HTTP/1.1\r\nHost: a\r\n\r\n", Ok(Framing::None)),
        ("\rGET /a HTTP/1.1\r\nHost: a\r\n\r\n", Err((400, "line-end"))),
        // Names that other names may stand for are the caller's to judge.
        ("GET / HTTP/1.1\r\nHost: a\r\nTransfer_Encoding: chunked\r\n\r\n", Ok(Framing::None)),
    ];
    for (text, expected) in cases {
        let outcome = read_request(text.as_bytes(), &WIDE);
        let seen = outcome.map(|head| head.expect(text).framing);
        let seen = seen.map_err(|refusal| (refusal.status().as_u16(), refusal.name()));
        assert_eq!(seen, *expected, "{text:?}");
    }
}

#[test]
fn a_length_is_one_plain_number() {
    for text in ["3, 3", "3,4", "+3", "-3", "0x3", "3 3", "3.0", "", "\u{b2}", "\"3\""] {
        assert_eq!(refused(&with(&format!("Content-Length: {text}"))), Refusal::LengthInvalid);
    }
    let most = i64::MAX as u64;
    let head = accepted(&with(&format!("Content-Length: {most}")));
    assert_eq!(head.framing, Framing::Length(most));
}

/// A planted bug that this catches: the arithmetic of lengths or sizes wraps.
#[test]
fn no_size_wraps() {
    for text in [
        "9223372036854775808",
        "18446744073709551615",
        "18446744073709551616",
        "18446744073709551619",
        "36893488147419103235",
        "100000000000000000000000000000000003",
    ] {
        assert_eq!(refused(&with(&format!("Content-Length: {text}"))), Refusal::LengthInvalid);
    }
    for size in ["1000000000000003", "10000000000000003", "fffffffffffffffff", "100000000000000003"]
    {
        let body = format!("{size}\r\nabc\r\n0\r\n\r\n");
        let read = read_body(Framing::Chunked, body.as_bytes(), 1, false);
        assert_eq!(read, Err(Refusal::ChunkTooLarge), "{size}");
    }
}

/// A planted bug that this catches: a length with a coding passes.
#[test]
fn a_request_with_length_and_coding_is_refused() {
    let (length, coding) = ("Content-Length: 5", "Transfer-Encoding: chunked");
    for lines in [
        format!("{length}\r\n{coding}"),
        format!("{coding}\r\n{length}"),
        format!("{coding}\r\nContent-Length: 0"),
        format!("{length}\r\nX: a\r\ntransfer-encoding:\tCHUNKED "),
    ] {
        assert_eq!(refused(&with(&lines)), Refusal::LengthAndCoding, "{lines:?}");
    }
}

/// A planted bug that this catches: a second `Host` passes.
#[test]
fn a_second_host_is_refused() {
    for lines in ["Host: b", "host: a", "HOST:", "X: a\r\nhOsT: a"] {
        assert_eq!(refused(&with(lines)), Refusal::HostRepeated, "{lines:?}");
    }
    let absolute = "GET http://a/ HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n";
    assert_eq!(refused(absolute), Refusal::HostRepeated);
}

#[test]
fn only_chunked_alone_is_a_coding() {
    for (lines, expected) in [
        ("Transfer-Encoding: gzip", Refusal::CodingNotChunked),
        ("Transfer-Encoding: identity", Refusal::CodingNotChunked),
        ("Transfer-Encoding:", Refusal::CodingNotChunked),
        ("Transfer-Encoding: chunked, gzip", Refusal::CodingNotChunked),
        ("Transfer-Encoding: chunked, identity", Refusal::CodingNotChunked),
        ("Transfer-Encoding: chunked,", Refusal::CodingNotChunked),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: x", Refusal::CodingNotChunked),
        ("Transfer-Encoding: \"chunked\"", Refusal::CodingNotChunked),
        ("Transfer-Encoding: chunked;q=1", Refusal::CodingNotChunked),
        ("Transfer-Encoding: xchunked", Refusal::CodingNotChunked),
        ("Transfer-Encoding: chun\u{212a}ed", Refusal::CodingNotChunked),
        ("Transfer-Encoding: gzip, chunked", Refusal::CodingUnsupported),
        ("Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked", Refusal::CodingUnsupported),
        ("Transfer-Encoding: chunked, chunked", Refusal::CodingUnsupported),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", Refusal::CodingUnsupported),
        ("Transfer-Encoding: ,chunked", Refusal::CodingUnsupported),
    ] {
        assert_eq!(refused(&with(lines)), expected, "{lines:?}");
    }
    assert_eq!(Refusal::CodingUnsupported.status(), StatusCode::NOT_IMPLEMENTED);
}

#[test]
fn a_target_in_absolute_form_names_the_host() {
    let head = accepted("GET HTTP://b.example:81/c/d?e=/ HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!((head.form, head.host.as_deref()), (Form::Absolute, Some("b.example:81")));
    assert_eq!((&*head.path, head.query.as_deref()), ("/c/d", Some("e=/")));
    let head = accepted("GET https://[::1]?e HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!((&*head.path, head.query.as_deref()), ("/", Some("e")));
    assert_eq!(head.host.as_deref(), Some("[::1]"));
    let head = accepted("GET http://b HTTP/1.0\r\n\r\n");
    assert_eq!((&*head.path, head.query, head.host.as_deref()), ("/", None, Some("b")));
    let head = accepted("CONNECT b:443 HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!((head.form, head.host.as_deref()), (Form::Authority, Some("b:443")));
    let head = accepted("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!((head.form, &*head.path, head.host.as_deref()), (Form::Asterisk, "*", Some("a")));
}

#[test]
fn the_version_and_connection_decide_about_the_next_request() {
    let after = |version: &str, lines: &str| {
        accepted(&format!("GET / HTTP/{version}\r\nHost: a\r\n{lines}\r\n")).after
    };
    for (version, lines, expected) in [
        ("1.1", "", After::Stays),
        ("1.2", "", After::Stays),
        ("1.0", "", After::Closes),
        ("1.0", "Connection: Keep-Alive\r\n", After::Stays),
        ("1.0", "Connection: x, keep-alive\r\n", After::Stays),
        ("1.1", "Connection: close\r\n", After::Closes),
        ("1.1", "Connection: x ,\tClose\r\n", After::Closes),
        ("1.1", "Connection: close\r\nConnection: keep-alive\r\n", After::Closes),
        ("1.1", "Connection: keep-alive\r\nConnection: close\r\n", After::Closes),
        ("1.0", "Connection: close\r\nConnection: keep-alive\r\n", After::Closes),
        ("1.1", "Connection: closed\r\n", After::Stays),
        ("1.1", "Proxy-Connection: close\r\n", After::Stays),
    ] {
        assert_eq!(after(version, lines), expected, "{version} {lines:?}");
    }
}

#[test]
fn wishes_are_read_in_the_new_version_only() {
    let lines = "Expect: 100-Continue\r\nUpgrade: websocket\r\nConnection: x, Upgrade\r\nTE: gzip, Trailers";
    let head = accepted(&with(lines));
    assert_eq!(head.wants, (true, Some(b"websocket".to_vec()), true));
    let old = format!("GET / HTTP/1.0\r\nHost: a\r\n{lines}\r\n\r\n");
    assert_eq!(accepted(&old).wants, (false, None, false));
    for lines in [
        "Upgrade: websocket",
        "Upgrade: a\r\nUpgrade: b\r\nConnection: upgrade",
        "Upgrade:\r\nConnection: upgrade",
    ] {
        assert_eq!(accepted(&with(lines)).wants.1, None, "{lines:?}");
    }
    for lines in [
        "Expect: more",
        "Expect:",
        "Expect: 100-continue, more",
        "Expect: 100-continue\r\nExpect: x",
    ] {
        assert_eq!(refused(&with(lines)), Refusal::Expectation, "{lines:?}");
    }
    assert_eq!(Refusal::Expectation.status().as_u16(), 417);
}

#[test]
fn fields_keep_their_order_and_lose_their_case_and_blanks() {
    let head = accepted(&with("X-AbC_d:  e \t\r\nx-abc_d: F\r\nY:\r\nCookie: \u{e4}=Ö"));
    assert_eq!(value(&head, "x-abc_d"), [b"e", b"F"]);
    assert_eq!(value(&head, "y"), [b""]);
    assert_eq!(value(&head, "cookie"), ["\u{e4}=Ö".as_bytes()]);
    assert_eq!(head.fields.len(), 5);
    // Names of all lengths and places, as the copy in lower case is made of blocks.
    for length in 1..40 {
        for before in 0..20 {
            let text =
                format!("GET /{} HTTP/1.0\n{}: X\n\n", "a".repeat(before), "A".repeat(length));
            assert_eq!(value(&accepted(&text), &"a".repeat(length)), [b"X"], "{text:?}");
        }
    }
}

#[test]
fn limits_have_the_statuses_of_the_standard() {
    let limits = Limits { head: 200, target: 100, fields: 5 };
    let status = |text: &str| match read_request(text.as_bytes(), &limits) {
        Ok(head) => head.map_or(0, |_| 200),
        Err(refusal) => refusal.status().as_u16(),
    };
    let filled = |length: usize| with(&format!("X: {}", "a".repeat(length)));
    let fits = 200 - filled(0).len();
    assert_eq!(status(&filled(fits)), 200);
    assert_eq!(status(&filled(fits + 1)), 431);
    let partial = filled(fits + 1);
    assert_eq!((status(&partial[..199]), status(&partial[..200])), (0, 431));
    let target = |length: usize| format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(length));
    assert_eq!(status(&target(99)), 200);
    assert_eq!(status(&target(100)), 414);
    assert_eq!(status(&target(1000)), 414);
    assert_eq!(status(&"\r\n".repeat(100)), 431);
    let many = |count: usize| with(&vec!["X: a"; count].join("\r\n"));
    assert_eq!(status(&many(4)), 200);
    assert_eq!(status(&many(5)), 431);
    assert!(read_request(many(MOST_FIELDS - 1).as_bytes(), &WIDE).is_ok());
    let beyond = Limits { fields: 1000, ..WIDE };
    assert_eq!(read_request(many(MOST_FIELDS).as_bytes(), &beyond), Err(Refusal::TooManyFields));
}

#[test]
fn each_odd_response_is_decided() {
    let head = Asked { is_head: true, ..ASKED };
    let connect = Asked { is_connect: true, ..ASKED };
    let upgrade = Asked { has_upgrade: true, ..ASKED };
    let (last, stays) = (After::Closes, After::Stays);
    type Outcome = Result<(Kind, Framing, After), &'static str>;
    let cases: &[(Asked, &str, Outcome)] = &[
        (
            ASKED,
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n",
            Ok((Kind::Final, Framing::Length(3), stays)),
        ),
        (
            ASKED,
            "HTTP/1.1 200\r\nContent-Length: 3\r\n\r\n",
            Ok((Kind::Final, Framing::Length(3), stays)),
        ),
        (
            ASKED,
            "HTTP/1.1 200 Fine\nContent-Length: 3\n\n",
            Ok((Kind::Final, Framing::Length(3), stays)),
        ),
        (
            ASKED,
            "HTTP/1.2 200 OK\r\nContent-Length: 3\r\n\r\n",
            Ok((Kind::Final, Framing::Length(3), stays)),
        ),
        (
            ASKED,
            "HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\n",
            Ok((Kind::Final, Framing::Length(3), last)),
        ),
        (
            ASKED,
            "HTTP/1.0 200 OK\r\nContent-Length: 3\r\nConnection: keep-alive\r\n\r\n",
            Ok((Kind::Final, Framing::Length(3), stays)),
        ),
        (
            ASKED,
            "HTTP/1.1 200 OK\r\nContent-Length : 3\r\n\r\n",
            Ok((Kind::Final, Framing::Length(3), stays)),
        ),
        (
            ASKED,
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\n",
            Ok((Kind::Final, Framing::Length(3), last)),
        ),
        (
            ASKED,
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\n",
            Ok((Kind::Final, Framing::Length(3), stays)),
        ),
        (ASKED, "HTTP/1.1 200 OK\r\n\r\n", Ok((Kind::Final, Framing::UntilClose, last))),
        (
            ASKED,
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            Ok((Kind::Final, Framing::Chunked, stays)),
        ),
        (
            ASKED,
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n",
            Ok((Kind::Final, Framing::Chunked, last)),
        ),
        (
            ASKED,
            "HTTP/1.1 999 \r\nContent-Length: 3\r\n\r\n",
            Ok((Kind::Final, Framing::Length(3), stays)),
        ),
        (head, "HTTP/1.1 200 OK\r\n\r\n", Ok((Kind::Final, Framing::None, stays))),
        (
            head,
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n",
            Ok((Kind::Final, Framing::None, stays)),
        ),
        (
            head,
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            Ok((Kind::Final, Framing::None, stays)),
        ),
        (
            ASKED,
            "HTTP/1.1 304 Not Modified\r\nContent-Length: 3\r\n\r\n",
            Ok((Kind::Final, Framing::None, stays)),
        ),
        (ASKED, "HTTP/1.1 204 No Content\r\n\r\n", Ok((Kind::Final, Framing::None, stays))),
        (
            ASKED,
            "HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n",
            Ok((Kind::Final, Framing::None, stays)),
        ),
        (
            ASKED,
            "HTTP/1.1 204 No Content\r\nContent-Length: 3\r\n\r\n",
            Ok((Kind::Final, Framing::None, last)),
        ),
        (
            ASKED,
            "HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n",
            Ok((Kind::Final, Framing::None, last)),
        ),
        (ASKED, "HTTP/1.1 100 Continue\r\n\r\n", Ok((Kind::Interim, Framing::None, stays))),
        (
            ASKED,
            "HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n",
            Ok((Kind::Interim, Framing::None, stays)),
        ),
        (ASKED, "HTTP/1.1 103 Early Hints\r\nContent-Length: 3\r\n\r\n", Err("interim-body")),
        (
            ASKED,
            "HTTP/1.1 103 Early Hints\r\nTransfer-Encoding: chunked\r\n\r\n",
            Err("interim-body"),
        ),
        (
            upgrade,
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: a\r\n\r\n",
            Ok((Kind::Switches, Framing::None, last)),
        ),
        (ASKED, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: a\r\n\r\n", Err("upgrade-unasked")),
        (
            connect,
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n",
            Ok((Kind::Switches, Framing::None, last)),
        ),
        (
            connect,
            "HTTP/1.1 403 Forbidden\r\nContent-Length: 3\r\n\r\n",
            Ok((Kind::Final, Framing::Length(3), stays)),
        ),
        (ASKED, "HTTP/1.1 200 OK\r\nContent-Length: 3, 3\r\n\r\n", Err("length-invalid")),
        (
            ASKED,
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n",
            Err("lengths-differ"),
        ),
        (head, "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", Err("length-invalid")),
        (ASKED, "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", Err("coding-not-chunked")),
        (
            ASKED,
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
            Err("coding-unsupported"),
        ),
        (
            ASKED,
            "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            Err("coding-in-old-version"),
        ),
        (ASKED, "HTTP/1.1 200 OK\r\nX: a\r\n b\r\n\r\n", Err("field-name")),
        (ASKED, "HTTP/1.1 200 OK\r\nX: a\0\r\n\r\n", Err("field-value")),
        (ASKED, "HTTP/1.1 200 O\u{1}K\r\n\r\n", Err("status-line")),
        (ASKED, "HTTP/1.1 20 OK\r\n\r\n", Err("status-line")),
        (ASKED, "HTTP/1.1 099 OK\r\n\r\n", Err("status-line")),
        (ASKED, "HTTP/1.1 2000 OK\r\n\r\n", Err("status-line")),
        (ASKED, "HTTP/2.0 200 OK\r\n\r\n", Err("version-unsupported")),
        (ASKED, "ICY 200 OK\r\n\r\n", Err("status-line")),
        (ASKED, "\r\nHTTP/1.1 200 OK\r\n\r\n", Err("status-line")),
        (ASKED, "HTTP/1.1  200 OK\r\n\r\n", Err("status-line")),
    ];
    for (asked, text, expected) in cases {
        let outcome = read_response(text.as_bytes(), *asked, &WIDE);
        let seen = outcome.map(|head| head.expect(text));
        let seen = seen.map(|head| (head.kind, head.framing, head.after)).map_err(Refusal::name);
        assert_eq!(seen, *expected, "{text:?}");
    }
}

#[test]
fn the_length_of_a_response_without_a_body_is_known() {
    let head = Asked { is_head: true, ..ASKED };
    let text = "HTTP/1.1 200 Fine enough\r\nContent-Length: 3\r\n\r\n";
    let answer = read_response(text.as_bytes(), head, &WIDE).unwrap().unwrap();
    assert_eq!((answer.length, answer.framing), (Some(3), Framing::None));
    assert_eq!((&answer.reason[..], answer.version), (&b"Fine enough"[..], Version::Http11));
}

#[test]
fn each_refusal_has_a_name_of_its_own() {
    let mut names: Vec<&str> = Refusal::ALL.iter().map(|refusal| refusal.name()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), Refusal::ALL.len());
    let is_plain = |name: &&str| name.bytes().all(|byte| byte == b'-' || byte.is_ascii_lowercase());
    assert!(names.iter().all(is_plain), "{names:?}");
    assert!(Refusal::ALL.iter().all(|refusal| refusal.status().as_u16() >= 400));
}
