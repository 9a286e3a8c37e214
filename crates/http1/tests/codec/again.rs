//! Messages that are read, written, and read again.

use http::StatusCode;
use superpoll_http1::{
    Asked, BodyWriter, Field, FieldName, FieldValue, Framing, Room, Version, Writer, request,
};

use crate::message::{
    Answer, Body, Kind, Pairs, Request, WIDE, read_body, read_request, read_response,
};
use crate::oracle::{End, compare_request, compare_response};

/// Writes a request that was read once more.
fn rewritten(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut scratch = Vec::new();
    let mut room = Room::new(&mut scratch);
    let head = request(bytes, &WIDE, &mut room).ok()??;
    let body = read_body(head.framing, &bytes[head.len..], usize::MAX, false).ok()?;
    body.end?;
    let mut out = Vec::new();
    let host = head.host.map_or(FieldValue::from_static("a"), |host| host.to_value());
    let mut writer = Writer::request(&mut out, head.method, head.target, host);
    for Field { name, value } in head.fields.iter() {
        // These are of the connection, which the writer has its own field about.
        if !matches!(name.as_bytes(), b"connection") {
            writer.field(name, value);
        }
    }
    if head.wants.upgrade.is_some() {
        writer.field(FieldName::from_static("connection"), FieldValue::from_static("upgrade"));
    }
    let writer = writer.body(head.framing, head.after);
    write_body(writer, &body, &mut out);
    Some(out)
}

fn write_body(mut writer: BodyWriter, body: &Body, out: &mut Vec<u8>) {
    for piece in body.data.chunks(4) {
        writer.piece(piece, out).unwrap();
    }
    let field = |(name, value): &'_ (Vec<u8>, Vec<u8>)| (name.clone(), value.clone());
    let trailers: Pairs = body.trailers.iter().map(field).collect();
    let trailers = trailers.iter().map(|(name, value)| Field {
        name: FieldName::new(name).unwrap(),
        value: FieldValue::new(value).unwrap(),
    });
    let _ = writer.end_with(trailers, out);
}

/// The parts of a request that stay when it is written again.
fn lasting_request(head: Request) -> Request {
    let fields = lasting_fields(head.fields);
    let host = head.host.or(Some("a".to_owned()));
    Request { fields, host, len: 0, version: Version::Http11, ..head }
}

fn lasting_fields(fields: Pairs) -> Pairs {
    let is_lasting = |pair: &(Vec<u8>, Vec<u8>)| {
        !matches!(&pair.0[..], b"connection" | b"content-length" | b"transfer-encoding" | b"host")
    };
    fields.into_iter().filter(is_lasting).collect()
}

fn lasting_answer(answer: Answer) -> Answer {
    Answer { fields: lasting_fields(answer.fields), len: 0, ..answer }
}

/// The trailers that may be passed on: none about the end, the routing or the meaning of the
/// message (RFC 9110, section 6.5.1).
fn lasting_trailers(trailers: Pairs) -> Pairs {
    const OTHERS: &str = " authorization cache-control connection content-encoding content-length \
                          content-range content-type expect host max-forwards set-cookie te \
                          trailer transfer-encoding ";
    let is_lasting = |(name, _): &(Vec<u8>, Vec<u8>)| {
        std::str::from_utf8(name).is_ok_and(|name| !OTHERS.contains(&format!(" {name} ")))
    };
    trailers.into_iter().filter(is_lasting).collect()
}

/// If these bytes are a request, it is the same when it is written again.
pub(crate) fn assert_request_again(bytes: &[u8]) {
    let Some(written) = rewritten(bytes) else { return };
    let before = read_request(bytes, &WIDE).unwrap().unwrap();
    let after = read_request(&written, &WIDE).unwrap().unwrap();
    let body = |head: &Request, bytes: &[u8]| {
        let body = read_body(head.framing, &bytes[head.len..], 7, false).unwrap();
        (body.data, lasting_trailers(body.trailers))
    };
    assert_eq!(body(&before, bytes), body(&after, &written));
    assert!(!written[..after.len].windows(2).any(|two| two == b"\n\n"));
    // The second time, no byte changes.
    assert_eq!(rewritten(&written).as_ref(), Some(&written));
    assert_eq!(compare_request(&written, 5), End::Accepted);
    let wants = before.wants.clone();
    let before = lasting_request(before);
    let mut after = lasting_request(after);
    if before.wants != after.wants {
        // HTTP/1.0 has no wishes.
        after.wants = wants;
    }
    assert_eq!(before, after);
}

/// If these bytes are a response, it is the same when it is written again.
pub(crate) fn assert_response_again(bytes: &[u8], asked: Asked) {
    let Ok(Some(before)) = read_response(bytes, asked, &WIDE) else { return };
    let is_odd = (before.version, before.framing) == (Version::Http10, Framing::Chunked);
    if before.kind != Kind::Final || is_odd {
        return;
    }
    let Ok(body) = read_body(before.framing, &bytes[before.len..], 7, true) else { return };
    let mut written = Vec::new();
    let status = StatusCode::from_u16(before.status).unwrap();
    let reason = FieldValue::new(&before.reason);
    let mut writer = Writer::response(&mut written, before.version, status, reason, asked);
    for (name, value) in &before.fields {
        if name != b"connection" {
            writer.field(FieldName::new(name).unwrap(), FieldValue::new(value).unwrap());
        }
    }
    let framing = before.length.filter(|_| before.framing == Framing::None);
    let writer = writer.body(framing.map_or(before.framing, Framing::Length), before.after);
    write_body(writer, &body, &mut written);
    let after = read_response(&written, asked, &WIDE).unwrap().unwrap();
    let again = read_body(after.framing, &written[after.len..], 7, true).unwrap();
    let trailers = lasting_trailers(body.trailers);
    assert_eq!((body.data, trailers), (again.data, again.trailers));
    assert_eq!(compare_response(&written, asked, true, 5), End::Accepted);
    let length = after.length;
    let before = lasting_answer(before);
    assert_eq!(Answer { length, ..before }, lasting_answer(after));
}
