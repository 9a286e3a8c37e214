//! Requests that a reverse proxy passes on, and the heads of their answers.
//!
//! A request is `GET /NUMBER` with a field that belongs to the number, and has no body. The answer
//! has the number in its head and the number's part of the pattern as its body. A proxy may add
//! fields in both directions, and may treat the connection's own fields as it likes; everything
//! else must arrive as it was sent.

use std::io::Write;

use httparse::{EMPTY_HEADER, Header, Status};

use super::FoundRequest;
use crate::server::http2::{Http2, Request};

/// The longest head that is read: several times the length that a proxy adds.
pub(super) const ROOM: usize = 4096;

/// The most fields of a head.
const FIELDS: usize = 32;

/// A field that belongs to a number.
const CHECK: &str = "x-check";

/// The number of an answer.
const NUMBER: &str = "x-number";

fn check(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31)
}

pub(super) fn write_request(number: u64, closes: bool, to: &mut Vec<u8>) {
    let end = if closes { "Connection: close\r\n" } else { "" };
    // Writing to a vector cannot fail.
    let _ = write!(
        to,
        "GET /{number} HTTP/1.1\r\nHost: superpoll.test\r\nUser-Agent: superpoll-lab\r\nAccept: */*\r\n\
         X-Check: {:016x}\r\n{end}\r\n",
        check(number)
    );
}

/// Appends the same request over HTTP/2, with the fields that all requests share in the table.
/// Returns its stream.
pub(super) fn write_http2_request(number: u64, http2: &mut Http2, to: &mut Vec<u8>) -> u32 {
    let shared = [(":authority", "localhost"), ("user-agent", "superpoll-lab"), ("accept", "*/*")];
    let (path, check) = (format!("/{number}"), format!("{:016x}", check(number)));
    http2.ask(Request { path: &path, shared: &shared, own: &[(CHECK, &check)] }, to)
}

pub(super) fn write_answer_head(number: u64, bytes: usize, closes: bool, to: &mut Vec<u8>) {
    let end = if closes { "Connection: close\r\n" } else { "" };
    let _ = write!(
        to,
        "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: {bytes}\r\n\
         X-Number: {number}\r\n{end}\r\n"
    );
}

/// Returns the value of a field that may come once; `None` if it does not come.
fn field<'a>(fields: &[Header<'a>], name: &str) -> Result<Option<&'a [u8]>, String> {
    let mut found = fields.iter().filter(|field| field.name.eq_ignore_ascii_case(name));
    match (found.next(), found.next()) {
        (first, None) => Ok(first.map(|field| field.value)),
        _ => Err(format!("{name} more than once")),
    }
}

/// Parses a number in digits, in its only written form.
fn digits(text: &[u8]) -> Option<u64> {
    let number: u64 = str::from_utf8(text).ok()?.parse().ok()?;
    (number.to_string().as_bytes() == text).then_some(number)
}

/// Finds the request that the origin has received, if it is complete.
pub(super) fn find_request(got: &[u8]) -> Result<Option<FoundRequest>, String> {
    let wrong = |what: String| format!("the origin got a wrong request: {what}");
    let mut fields = [EMPTY_HEADER; FIELDS];
    let mut request = httparse::Request::new(&mut fields);
    let length = match request.parse(got) {
        Ok(Status::Complete(length)) => length,
        Ok(Status::Partial) if got.len() < ROOM => return Ok(None),
        Ok(Status::Partial) => return Err(wrong(format!("a head of more than {ROOM} bytes"))),
        Err(error) => return Err(wrong(error.to_string())),
    };
    if (request.method, request.version) != (Some("GET"), Some(1)) {
        return Err(wrong(format!("method {:?}", request.method.unwrap_or_default())));
    }
    let path = request.path.unwrap_or_default();
    let number = path.strip_prefix('/').and_then(|number| digits(number.as_bytes()));
    let Some(number) = number else { return Err(wrong(format!("path {path:?}"))) };
    let of = |name| field(request.headers, name).map_err(wrong);
    if of(CHECK)? != Some(format!("{:016x}", check(number)).as_bytes()) {
        return Err(wrong(format!("{CHECK} of {path}")));
    }
    if of("host")?.is_none() {
        return Err(wrong(format!("no host of {path}")));
    }
    let has_body = of("transfer-encoding")?.is_some()
        || of("content-length")?.is_some_and(|length| length != b"0");
    if has_body || length < got.len() {
        return Err(wrong(format!("a body of {path}")));
    }
    let closes = of("connection")?.is_some_and(|said| said.eq_ignore_ascii_case(b"close"));
    Ok(Some(FoundRequest { number, closes }))
}

/// Returns the length of the head of a client's answer, if the head is complete.
pub(super) fn find_answer(got: &[u8], number: u64, bytes: usize) -> Result<Option<usize>, String> {
    let wrong = |what: String| format!("the head of answer {number} was wrong: {what}");
    let mut fields = [EMPTY_HEADER; FIELDS];
    let mut answer = httparse::Response::new(&mut fields);
    let length = match answer.parse(got) {
        Ok(Status::Complete(length)) => length,
        Ok(Status::Partial) if got.len() < ROOM => return Ok(None),
        Ok(Status::Partial) => return Err(wrong(format!("more than {ROOM} bytes"))),
        Err(error) => return Err(wrong(error.to_string())),
    };
    if answer.code != Some(200) {
        return Err(wrong(format!("status {}", answer.code.unwrap_or_default())));
    }
    if answer.version != Some(1) {
        return Err(wrong("not HTTP/1.1".to_owned()));
    }
    let of = |name| field(answer.headers, name).map_err(wrong);
    if of("content-length")?.and_then(digits) != Some(bytes as u64)
        || of("transfer-encoding")?.is_some()
    {
        return Err(wrong(format!("not a body of {bytes} bytes")));
    }
    match of(NUMBER)? {
        Some(said) if digits(said) == Some(number) => Ok(Some(length)),
        said => {
            let said = String::from_utf8_lossy(said.unwrap_or_default()).into_owned();
            Err(wrong(format!("{NUMBER} {said:?}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(closes: bool) -> String {
        let mut request = Vec::new();
        write_request(70, closes, &mut request);
        String::from_utf8(request).unwrap()
    }

    #[test]
    fn a_request_is_found_with_the_fields_of_a_proxy() {
        for closes in [false, true] {
            let request = request(closes);
            for part in 0..request.len() {
                assert_eq!(find_request(&request.as_bytes()[..part]), Ok(None));
            }
            let added = request.replace("Accept", "X-Forwarded-For: 127.0.0.1\r\nAccept");
            let found = Ok(Some(FoundRequest { number: 70, closes }));
            assert_eq!(find_request(request.as_bytes()), found);
            assert_eq!(find_request(added.as_bytes()), found);
        }
    }

    #[test]
    fn a_changed_request_is_reported() {
        for (from, to, found) in [
            ("GET", "POST", "method \"POST\""),
            ("HTTP/1.1", "HTTP/1.0", "method"),
            ("/70", "/71", "x-check of /71"),
            ("/70", "/070", "path \"/070\""),
            ("/70", "/70/", "path \"/70/\""),
            ("X-Check", "X-Chick", "x-check of /70"),
            ("Host", "Hast", "no host"),
            ("Accept", "X-Check: 1\r\nAccept", "x-check more than once"),
            ("Accept", "Content-Length: 1\r\nAccept", "a body"),
            ("Accept", "Transfer-Encoding: chunked\r\nAccept", "a body"),
            ("\r\n\r\n", "\r\n\r\n.", "a body"),
            ("Accept", "Acc ept", "invalid"),
        ] {
            let spoilt = request(false).replace(from, to);
            let error = find_request(spoilt.as_bytes()).unwrap_err();
            assert!(error.contains("wrong request") && error.contains(found), "{to}: {error}");
        }
        let endless = request(false).replace("Accept", &"A: b\r\n".repeat(1000));
        assert!(find_request(&endless.as_bytes()[..ROOM]).is_err());
    }

    #[test]
    fn an_answer_has_its_number_and_its_length() {
        let mut head = Vec::new();
        write_answer_head(70, 200, false, &mut head);
        for part in 0..head.len() {
            assert_eq!(find_answer(&head[..part], 70, 200), Ok(None));
        }
        let length = head.len();
        assert_eq!(find_answer(&head, 70, 200), Ok(Some(length)));
        let with_body = [&head[..], b"body"].concat();
        assert_eq!(find_answer(&with_body, 70, 200), Ok(Some(length)));
        assert!(find_answer(&head, 71, 200).unwrap_err().contains("x-number \"70\""));
        assert!(find_answer(&head, 70, 20).unwrap_err().contains("not a body of 20 bytes"));
        let head = String::from_utf8(head).unwrap();
        for (from, to, found) in [
            ("200 OK", "502 Bad Gateway", "status 502"),
            ("HTTP/1.1", "HTTP/1.0", "not HTTP/1.1"),
            ("HTTP", "ITTP", "invalid"),
            ("Content-Length: 200", "Transfer-Encoding: chunked", "not a body"),
            ("Content-Type", "Content-Length: 2\r\nContent-Type", "more than once"),
            ("X-Number", "X-Namber", "x-number \"\""),
        ] {
            let spoilt = head.replace(from, to);
            let error = find_answer(spoilt.as_bytes(), 70, 200).unwrap_err();
            assert!(error.contains(found), "{to}: {error}");
        }
    }
}
