//! Writers of heads and bodies, by named cases.

use http::StatusCode;
use superpoll_http1::{
    After, Asked, Field, FieldName, FieldValue, Form, Framing, Method, Refusal, Target, TooLong,
    Version, Writer, chunk,
};

const ASKED: Asked = Asked { is_head: false, is_connect: false, has_upgrade: false };
const X: FieldName<'_> = FieldName::from_static("x");
const Y: FieldValue<'_> = FieldValue::from_static("y");

/// Writes a response with a body; the bytes, and the connection's fate.
fn response(
    version: Version,
    status: u16,
    asked: Asked,
    (framing, after): (Framing, After),
    body: &[u8],
) -> (String, After) {
    let mut to = Vec::new();
    let status = StatusCode::from_u16(status).unwrap();
    let mut writer = Writer::response(&mut to, version, status, None, asked);
    writer.field(X, Y);
    let mut writer = writer.body(framing, after);
    writer.piece(body, &mut to).unwrap();
    let after = writer.end(&mut to);
    (String::from_utf8(to).unwrap(), after)
}

#[test]
fn each_response_has_one_framing() {
    let (new, old) = (Version::Http11, Version::Http10);
    let (stays, closes) = (After::Stays, After::Closes);
    let head = Asked { is_head: true, ..ASKED };
    let connect = Asked { is_connect: true, ..ASKED };
    for (version, status, asked, framing, after, expected, fate) in [
        (
            new,
            200,
            ASKED,
            Framing::Length(3),
            stays,
            "HTTP/1.1 200 OK\r\nx: y\r\ncontent-length: 3\r\n\r\nabc",
            stays,
        ),
        (
            new,
            200,
            ASKED,
            Framing::Length(3),
            closes,
            "HTTP/1.1 200 OK\r\nx: y\r\ncontent-length: 3\r\nconnection: close\r\n\r\nabc",
            closes,
        ),
        (
            new,
            404,
            ASKED,
            Framing::Chunked,
            stays,
            "HTTP/1.1 404 Not Found\r\nx: y\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
            stays,
        ),
        (
            new,
            999,
            ASKED,
            Framing::UntilClose,
            stays,
            "HTTP/1.1 999 \r\nx: y\r\nconnection: close\r\n\r\nabc",
            closes,
        ),
        (
            old,
            200,
            ASKED,
            Framing::Length(3),
            stays,
            "HTTP/1.0 200 OK\r\nx: y\r\ncontent-length: 3\r\nconnection: keep-alive\r\n\r\nabc",
            stays,
        ),
        (
            old,
            200,
            ASKED,
            Framing::Length(3),
            closes,
            "HTTP/1.0 200 OK\r\nx: y\r\ncontent-length: 3\r\n\r\nabc",
            closes,
        ),
        (old, 200, ASKED, Framing::Chunked, stays, "HTTP/1.0 200 OK\r\nx: y\r\n\r\nabc", closes),
        (
            new,
            200,
            head,
            Framing::Length(9),
            stays,
            "HTTP/1.1 200 OK\r\nx: y\r\ncontent-length: 9\r\n\r\n",
            stays,
        ),
        (new, 200, head, Framing::Chunked, stays, "HTTP/1.1 200 OK\r\nx: y\r\n\r\n", stays),
        (new, 200, head, Framing::None, stays, "HTTP/1.1 200 OK\r\nx: y\r\n\r\n", stays),
        (
            old,
            200,
            head,
            Framing::UntilClose,
            stays,
            "HTTP/1.0 200 OK\r\nx: y\r\nconnection: keep-alive\r\n\r\n",
            stays,
        ),
        (
            new,
            304,
            ASKED,
            Framing::Length(9),
            stays,
            "HTTP/1.1 304 Not Modified\r\nx: y\r\ncontent-length: 9\r\n\r\n",
            stays,
        ),
        (
            new,
            204,
            ASKED,
            Framing::Length(3),
            stays,
            "HTTP/1.1 204 No Content\r\nx: y\r\n\r\n",
            stays,
        ),
        (new, 204, head, Framing::Chunked, stays, "HTTP/1.1 204 No Content\r\nx: y\r\n\r\n", stays),
        (new, 200, connect, Framing::Chunked, stays, "HTTP/1.1 200 OK\r\nx: y\r\n\r\n", stays),
    ] {
        let written = response(version, status, asked, (framing, after), b"abc");
        assert_eq!(written, (expected.to_owned(), fate), "{version:?} {status} {framing:?}");
    }
    let empty = response(new, 200, ASKED, (Framing::None, stays), b"");
    assert_eq!(empty.0, "HTTP/1.1 200 OK\r\nx: y\r\ncontent-length: 0\r\n\r\n");
    let empty = response(new, 200, ASKED, (Framing::Chunked, stays), b"");
    assert!(empty.0.ends_with("\r\n\r\n0\r\n\r\n"));
}

#[test]
fn an_interim_response_has_no_framing() {
    let mut to = Vec::new();
    let hints = StatusCode::from_u16(103).unwrap();
    let mut writer = Writer::response(&mut to, Version::Http11, hints, None, ASKED);
    writer.field(FieldName::from_static("Content-Length"), FieldValue::from_static("3"));
    writer.field(X, Y);
    writer.interim();
    assert_eq!(to, b"HTTP/1.1 103 Early Hints\r\nx: y\r\n\r\n");
}

#[test]
fn no_copied_field_changes_the_framing_or_the_host() {
    let mut to = Vec::new();
    let target = Target::new(Method::Get, "/a").unwrap();
    let mut writer = Writer::request(&mut to, Method::Get, target, FieldValue::from_static("a"));
    for name in ["Content-Length", "transfer-ENCODING", "HOST", "host", "content-length"] {
        writer.field(FieldName::from_static(name), FieldValue::from_static("3"));
    }
    let after = writer.body(Framing::None, After::Closes).end(&mut to);
    assert_eq!(to, b"GET /a HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
    assert_eq!(after, After::Closes);
}

#[test]
fn a_body_cannot_exceed_its_length_and_says_when_it_is_shorter() {
    let mut to = Vec::new();
    let writer = || {
        Writer::response(&mut Vec::new(), Version::Http11, StatusCode::OK, None, ASKED)
            .body(Framing::Length(3), After::Stays)
    };
    let mut body = writer();
    assert_eq!((body.piece(b"ab", &mut to), body.left()), (Ok(()), Some(1)));
    assert_eq!(body.after(), After::Closes);
    assert_eq!((body.piece(b"cd", &mut to), &to[..]), (Err(TooLong), &b"ab"[..]));
    assert_eq!(body.begin_piece(2, &mut to), Err(TooLong));
    assert_eq!((body.piece(b"c", &mut to), &to[..]), (Ok(()), &b"abc"[..]));
    assert_eq!(body.piece(b"d", &mut to), Err(TooLong));
    assert_eq!((body.after(), body.end(&mut to)), (After::Stays, After::Stays));
    assert_eq!(writer().end(&mut to), After::Closes);
    assert_eq!(to, b"abc");
}

#[test]
fn data_may_be_sent_by_the_caller() {
    let mut to = Vec::new();
    let writer = Writer::response(&mut to, Version::Http11, StatusCode::OK, None, ASKED);
    let mut body = writer.body(Framing::Chunked, After::Stays);
    to.clear();
    body.begin_piece(0x1_0000, &mut to).unwrap();
    to.extend_from_slice(b"...");
    to.extend_from_slice(body.end_piece());
    body.begin_piece(0, &mut to).unwrap();
    to.extend_from_slice(body.end_piece());
    assert_eq!(to, b"10000\r\n...\r\n");
    // The end of a piece is not lost.
    body.begin_piece(1, &mut to).unwrap();
    to.push(b'.');
    let _ = body.end(&mut to);
    assert_eq!(to, b"10000\r\n...\r\n1\r\n.\r\n0\r\n\r\n");
    let writer = Writer::response(&mut to, Version::Http11, StatusCode::NO_CONTENT, None, ASKED);
    let mut body = writer.body(Framing::Chunked, After::Stays);
    to.clear();
    assert_eq!((body.drops_data(), body.begin_piece(1, &mut to)), (true, Err(TooLong)));
}

#[test]
fn a_chunk_has_its_length() {
    for length in [1, 15, 16, 255, 256, 70_000] {
        let mut bytes = b"before".to_vec();
        chunk(&mut bytes, |to| to.resize(to.len() + length, b'x'));
        let size = format!("before{length:x}\r\n");
        assert!(bytes.starts_with(size.as_bytes()) && bytes.ends_with(b"x\r\n"), "{length}");
        assert_eq!(bytes.len(), size.len() + length + 2);
    }
    let mut last = Vec::new();
    chunk(&mut last, |_| ());
    assert_eq!(last, b"0\r\n\r\n");
}

/// A planted bug that this catches: a trailer about the message is passed on, which a recipient may
/// merge.
#[test]
fn trailers_about_the_message_are_left_out() {
    let mut to = Vec::new();
    let writer = Writer::response(&mut to, Version::Http11, StatusCode::OK, None, ASKED);
    let body = writer.body(Framing::Chunked, After::Stays);
    to.clear();
    let names = [
        "Content-Length",
        "transfer-encoding",
        "Host",
        "X",
        "Set-Cookie",
        "Authorization",
        "Trailer",
    ];
    let trailers = names.map(|name| Field { name: FieldName::from_static(name), value: Y });
    let _ = body.end_with(trailers, &mut to);
    assert_eq!(to, b"0\r\nX: y\r\n\r\n");
    let writer = Writer::response(&mut to, Version::Http11, StatusCode::OK, None, ASKED);
    let body = writer.body(Framing::Length(0), After::Stays);
    to.clear();
    let _ = body.end_with([Field { name: X, value: Y }], &mut to);
    assert_eq!(to, b"");
}

#[test]
fn nothing_that_ends_a_line_can_be_written() {
    for text in ["a\r\nb", "a\nb", "a\rb", "a\0b", "\u{7f}"] {
        assert_eq!(FieldValue::new(text.as_bytes()), None);
        assert_eq!(FieldName::new(text.as_bytes()), None);
        assert_eq!(Method::new(text), None);
        assert_eq!(Target::new(Method::Get, &format!("/{text}")), Err(Refusal::Target));
    }
    for text in ["", "a b", "a:", "\u{e4}", "a\t"] {
        assert_eq!(FieldName::new(text.as_bytes()), None);
        assert_eq!(Method::new(text), None);
    }
    assert_eq!(Target::new(Method::Get, "/a b"), Err(Refusal::Target));
    assert_eq!(Target::new(Method::Get, ""), Err(Refusal::Target));
    assert_eq!(Target::new(Method::Get, "/a#"), Err(Refusal::Fragment));
    assert!(FieldValue::new("\u{e4}\t b".as_bytes()).is_some());
}

#[test]
fn targets_are_written_for_origin_servers() {
    let origin = |method: Method<'static>, text: &'static str, prefix: Option<&str>| {
        let target = Target::new(method, text).unwrap().to_origin(method);
        let target = prefix.map_or(Some(target), |prefix| target.without_prefix(prefix))?;
        let mut to = Vec::new();
        let _ = Writer::request(&mut to, method, target, Y);
        let line = String::from_utf8(to).unwrap();
        let written = line.split(' ').nth(1).unwrap().to_owned();
        // What is written is what the target says of itself.
        assert_eq!(written.split('?').next(), Some(target.path()));
        assert_eq!(written.split_once('?').map(|parts| parts.1), target.query());
        Some(written)
    };
    let of = |text, prefix| origin(Method::Get, text, prefix);
    assert_eq!(of("http://a/b?c", None).as_deref(), Some("/b?c"));
    assert_eq!(of("http://a?c", None).as_deref(), Some("/?c"));
    assert_eq!(of("http://a", None).as_deref(), Some("/"));
    assert_eq!(of("/a/b?c", Some("/a")).as_deref(), Some("/b?c"));
    assert_eq!(of("/a?c", Some("/a")).as_deref(), Some("/?c"));
    assert_eq!(of("/a", Some("/a")).as_deref(), Some("/"));
    assert_eq!(of("/b", Some("/a")), None);
    assert_eq!(of("/a?b", Some("/a?")), None);
    assert_eq!(origin(Method::Options, "http://a", None).as_deref(), Some("*"));
    assert_eq!(origin(Method::Options, "http://a/", None).as_deref(), Some("/"));
    let target = Target::new(Method::Connect, "a:443").unwrap();
    assert_eq!((target.form(), target.path()), (Form::Authority, ""));
    let authority = target.authority().unwrap();
    assert_eq!((authority.as_str(), authority.host(), authority.port()), ("a:443", "a", Some(443)));
    assert!(Target::new(Method::Get, "HttpS://a/").unwrap().is_https());
    assert!(!Target::new(Method::Get, "http://a/").unwrap().is_https());
}
