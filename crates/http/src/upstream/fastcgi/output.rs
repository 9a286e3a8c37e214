//! The head of a script's output (RFC 3875, section 6), as lines of HTTP/1.1.
//!
//! The fields that frame a message or belong to a connection are not the script's. `Status` tells
//! the status; without it a `Location` is a redirect. What the lines mean is for the parser of
//! HTTP.

use crate::upstream::fields::{About, about};

/// The most bytes of a head.
pub(super) const LONGEST: usize = 64 << 10;

/// The reason for which an output has no head that can be passed on.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NoHead {
    #[error("the head of the script's output has more than {LONGEST} bytes")]
    TooLong,
    #[error("the script's output does not begin with fields: a line of its head has no name")]
    NoField,
    #[error("the script's output has a Status that is no final status of HTTP")]
    Status,
}

/// Returns where the head ends, and the body begins. Bytes before `seen` were looked at before.
pub(super) fn end_of_head(output: &[u8], seen: usize) -> Option<usize> {
    let mut at = seen.saturating_sub(3);
    // It may have no field at all.
    if output.starts_with(b"\n") {
        return Some(1);
    }
    if output.starts_with(b"\r\n") {
        return Some(2);
    }
    while let Some(found) = memchr::memchr(b'\n', &output[at..]) {
        let after = at + found + 1;
        match &output[after..] {
            [b'\n', ..] => return Some(after + 1),
            [b'\r', b'\n', ..] => return Some(after + 2),
            _ => at = after,
        }
    }
    None
}

/// Appends a head, with its empty line, as HTTP/1.1 writes it. Returns the status. Fields that are
/// for this server are left out, except those that ask for a file, if it may.
///
/// # Errors
///
/// It is none.
pub(super) fn to_http(head: &[u8], may_ask: bool, to: &mut Vec<u8>) -> Result<u16, NoHead> {
    let lines = || head.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii_end);
    let mut status: Option<&[u8]> = None;
    let mut is_redirect = false;
    for line in lines().filter(|line| !line.is_empty()) {
        let (name, value) = split(line)?;
        if name.eq_ignore_ascii_case(b"status") {
            status = Some(value);
        }
        is_redirect |= name.eq_ignore_ascii_case(b"location");
    }
    let status = status.unwrap_or(if is_redirect { b"302" } else { b"200" });
    let (code, reason) = status.split_at(status.len().min(3));
    let is_apart = reason.first().is_none_or(|byte| *byte == b' ');
    let number = std::str::from_utf8(code).ok().and_then(|code| code.parse().ok());
    let number: u16 = number.filter(|_| is_apart && code.len() == 3).ok_or(NoHead::Status)?;
    // An interim status is not for scripts to send, and 101 would end HTTP.
    if !(200..=599).contains(&number) {
        return Err(NoHead::Status);
    }
    to.extend_from_slice(b"HTTP/1.1 ");
    to.extend_from_slice(code);
    to.push(b' ');
    to.extend_from_slice(reason.trim_ascii());
    to.extend_from_slice(b"\r\n");
    for line in lines().filter(|line| !line.is_empty()) {
        let (name, value) = split(line)?;
        let lower = name.to_ascii_lowercase();
        let stays = match about(&lower) {
            About::Connection | About::Trailer => false,
            _ if matches!(&*lower, b"x-accel-redirect" | b"x-sendfile") => may_ask,
            // These responses have no body, whatever their length.
            _ if &*lower == b"content-length" => !matches!(number, 204 | 205),
            _ => &*lower != b"status" && !lower.starts_with(b"x-accel-"),
        };
        if stays {
            to.extend_from_slice(name);
            to.extend_from_slice(b": ");
            to.extend_from_slice(value);
            to.extend_from_slice(b"\r\n");
        }
    }
    if number == 205 {
        to.extend_from_slice(b"content-length: 0\r\n");
    }
    to.extend_from_slice(b"\r\n");
    Ok(number)
}

fn split(line: &[u8]) -> Result<(&[u8], &[u8]), NoHead> {
    let at = memchr::memchr(b':', line).filter(|at| *at > 0).ok_or(NoHead::NoField)?;
    // A blank before the colon would hide a name from what looks for it.
    let is_name = |byte: &u8| byte.is_ascii_graphic() && !b"()<>@,;:\\\"/[]?={}".contains(byte);
    match line[..at].iter().all(is_name) {
        true => Ok((&line[..at], line[at + 1..].trim_ascii())),
        false => Err(NoHead::NoField),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(head: &str) -> Result<String, NoHead> {
        let mut to = Vec::new();
        to_http(head.as_bytes(), false, &mut to)?;
        Ok(String::from_utf8(to).unwrap())
    }

    #[test]
    fn a_status_is_found_or_follows_from_the_fields() {
        let head = "X-A: b\nStatus: 404 Not Here\nSet-Cookie: a\nset-cookie: b\n\n";
        let expected = "HTTP/1.1 404 Not Here\r\nX-A: b\r\nSet-Cookie: a\r\nset-cookie: b\r\n\r\n";
        assert_eq!(lines(head).unwrap(), expected);
        assert_eq!(lines("Location: /a\r\n\r\n").unwrap(), "HTTP/1.1 302 \r\nLocation: /a\r\n\r\n");
        assert_eq!(lines("A: b\r\n\r\n").unwrap(), "HTTP/1.1 200 \r\nA: b\r\n\r\n");
    }

    #[test]
    fn fields_that_are_not_the_scripts_are_left_out() {
        let head = "Connection: keep-alive\nTransfer-Encoding: chunked\nTrailer: a\n\
                    X-Sendfile: /etc/passwd\nx-accel-redirect: /p\nUpgrade: a\nB: c\n\n";
        assert_eq!(lines(head).unwrap(), "HTTP/1.1 200 \r\nB: c\r\n\r\n");
    }

    #[test]
    fn what_is_no_head_is_refused() {
        for head in ["Status: 101 Switching\n\n", "Status: 099\n\n", "Status: 2000\n\n"] {
            assert_eq!(lines(head), Err(NoHead::Status), "{head}");
        }
        assert_eq!(lines("Status:\n\n"), Err(NoHead::Status));
        assert_eq!(lines("<html>\n\n"), Err(NoHead::NoField));
        for head in [": a\n\n", "X-Sendfile : /etc/passwd\n\n", "Transfer-Encoding\t: chunked\n\n"]
        {
            assert_eq!(lines(head), Err(NoHead::NoField), "{head}");
        }
        let head = "Status: 204\nContent-Length: 3\n\n";
        assert_eq!(lines(head).unwrap(), "HTTP/1.1 204 \r\n\r\n");
    }

    #[test]
    fn the_end_of_a_head_is_found_wherever_it_is_cut() {
        for head in ["A: b\n\n", "A: b\r\n\r\n", "A: b\r\n\n", "\n", "\r\n", "A: b\n\r\n"] {
            let output = format!("{head}body\n\nmore");
            for seen in 0..=head.len() {
                assert_eq!(
                    end_of_head(&output.as_bytes()[..seen], 0).is_some(),
                    seen == head.len()
                );
                let found = end_of_head(output.as_bytes(), seen.min(head.len() - 1));
                assert_eq!(found, Some(head.len()), "{head:?} {seen}");
            }
        }
    }
}
