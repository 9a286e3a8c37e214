//! Secrets in URLs, which belong into no log.
//!
//! A browser's WebSocket and EventSource cannot set a field, so pages put their token into the URL.
//! It must not be readable for everyone who reads the log, nor for the services that logs are sent
//! to. The name of the parameter stays, its value does not. This is for requests of any kind: those
//! that were refused before they were understood, and URLs in `Referer`, included. The user and the
//! password before a host are left out as well.

use std::borrow::Cow;
use std::io::Write;
use std::ops::Range;

/// The parameters whose values are left out.
const PARAMETERS: [&[u8]; 3] = [b"token", b"access_token", b"authorization"];

/// The text in the place of a value.
const LEFT_OUT: &[u8] = b"***";

/// Returns a text with URLs without the secrets in it. A blank ends a URL.
pub(super) fn leave_out(text: &[u8]) -> Cow<'_, [u8]> {
    redact(text, |byte| byte.is_ascii_whitespace())
}

/// Returns the target of a request without the secrets in it. A refused one may have blanks.
pub(super) fn leave_out_of_target(target: &[u8]) -> Cow<'_, [u8]> {
    redact(target, |_| false)
}

/// Returns a text without secrets. `ends_url` tells the bytes that are in no URL.
fn redact(text: &[u8], ends_url: impl Fn(u8) -> bool) -> Cow<'_, [u8]> {
    let mut out = Vec::new();
    let mut kept_to = 0;
    for (at, separator) in text.iter().enumerate() {
        if at < kept_to {
            continue;
        }
        let rest = &text[at + 1..];
        let secret = match separator {
            b'?' | b'&' => secret_value(rest, &ends_url),
            b'/' if text[..at].ends_with(b":/") => user_information(rest, &ends_url),
            _ => None,
        };
        let Some(secret) = secret else { continue };
        out.extend_from_slice(&text[kept_to..at + 1 + secret.start]);
        out.extend_from_slice(LEFT_OUT);
        kept_to = at + 1 + secret.end;
    }
    if kept_to == 0 {
        return Cow::Borrowed(text);
    }
    out.extend_from_slice(&text[kept_to..]);
    Cow::Owned(out)
}

/// Returns the place of a parameter's value that is left out.
fn secret_value(text: &[u8], ends_url: impl Fn(u8) -> bool) -> Option<Range<usize>> {
    let start = PARAMETERS.iter().find_map(|name| behind_name(text, name))?;
    let ends = |&byte: &u8| matches!(byte, b'&' | b'#') || ends_url(byte);
    let length = text[start..].iter().position(ends);
    Some(start..length.map_or(text.len(), |length| start + length))
}

/// Returns the place after a parameter's name and `=`, if it has this name.
fn behind_name(text: &[u8], name: &[u8]) -> Option<usize> {
    let mut at = 0;
    for &expected in name {
        let (byte, length) = decoded(&text[at..])?;
        if byte != expected {
            return None;
        }
        at += length;
    }
    (text.get(at) == Some(&b'=')).then_some(at + 1)
}

/// Returns the first character, which may be percent-encoded, and the bytes that it takes.
fn decoded(text: &[u8]) -> Option<(u8, usize)> {
    let digit = |at: usize| char::from(*text.get(at)?).to_digit(16);
    let first = *text.first()?;
    let encoded = (first == b'%').then(|| Some(digit(1)? * 16 + digit(2)?)).flatten();
    match encoded.and_then(|byte| u8::try_from(byte).ok()) {
        Some(byte) => Some((byte, 3)),
        None => Some((first, 1)),
    }
}

/// Returns the place of the user and the password at the beginning of an authority.
fn user_information(text: &[u8], ends_url: impl Fn(u8) -> bool) -> Option<Range<usize>> {
    let end = text.iter().position(|&byte| byte == b'/' || ends_url(byte));
    let authority = &text[..end.unwrap_or(text.len())];
    authority.iter().rposition(|&byte| byte == b'@').map(|end| 0..end)
}

// Text from clients in a line: without secrets, without bytes that end a field or a line, and
// bounded.

/// The most bytes of a text from a client that a line has, before they are escaped.
pub(super) const LONGEST: usize = 4096;

/// Stands for the rest of a text.
const REST: &[u8] = b"...";

/// Returns text from a client without the secrets of URLs in it, and not too long.
fn bounded(bytes: &[u8], most: usize) -> Cow<'_, [u8]> {
    // First, since they are not part of the text that is measured.
    let text = leave_out(bytes);
    match text.len() > most {
        false => text,
        true => Cow::Owned([&text[..most], REST].concat()),
    }
}

/// Appends text from a client without any byte that ends a field or a line, or that a terminal
/// obeys.
pub(super) fn quote(out: &mut Vec<u8>, bytes: &[u8]) {
    escape(out, bytes, b"");
}

/// Appends a word from a client: as [`quote`], and a blank ends no field either.
pub(super) fn word(out: &mut Vec<u8>, bytes: &[u8]) {
    escape(out, bytes, b" ");
}

/// Appends a field from a client without quotes around it: as [`word`], and no bracket begins the
/// date.
pub(super) fn field(out: &mut Vec<u8>, bytes: &[u8]) {
    escape(out, bytes, b" []");
}

fn escape(out: &mut Vec<u8>, bytes: &[u8], others: &[u8]) {
    for &byte in bounded(bytes, LONGEST).iter() {
        if matches!(byte, b'"' | b'\\' | 0..=0x1f | 0x7f..) || others.contains(&byte) {
            // Writing to a vector cannot fail.
            let _ = write!(out, "\\x{byte:02X}");
        } else {
            out.push(byte);
        }
    }
}

/// Appends text from a client as a string of JSON. Bytes that are no UTF-8 become U+FFFD, and so do
/// the characters that a terminal obeys, beyond those that JSON escapes.
pub(super) fn string(out: &mut Vec<u8>, bytes: &[u8]) {
    let text = bounded(bytes, LONGEST);
    let text = String::from_utf8_lossy(&text);
    let is_hidden = |character: char| matches!(character, '\u{7f}'..='\u{9f}');
    // Neither a vector nor a string refuses.
    let _ = match text.contains(is_hidden) {
        false => serde_json::to_writer(&mut *out, &*text),
        true => serde_json::to_writer(&mut *out, &text.replace(is_hidden, "\u{fffd}")),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_secrets_are_left_out_and_nothing_else() {
        for (text, expected) in [
            ("/news", "/news"),
            ("/news?after=3", "/news?after=3"),
            ("/news?token=a.b-c_d", "/news?token=***"),
            ("/news?after=3&token=a.b&x=1", "/news?after=3&token=***&x=1"),
            ("/news?token=&x", "/news?token=***&x"),
            ("/news?token=a&token=b", "/news?token=***&token=***"),
            ("/news?authorization=a", "/news?authorization=***"),
            ("/news?access_token=a.b&x=1", "/news?access_token=***&x=1"),
            ("/news?access%5Ftoken=a&access_tokens=b", "/news?access%5Ftoken=***&access_tokens=b"),
            ("/token=a?mytoken=b&tokens=c", "/token=a?mytoken=b&tokens=c"),
            ("GET /a?token=x.y HTTP/1.1", "GET /a?token=*** HTTP/1.1"),
            ("https://a/b?token=x#top", "https://a/b?token=***#top"),
            ("/a?x=?token=b", "/a?x=?token=***"),
            ("/c?token=\"eyJ.x\"&y=1", "/c?token=***&y=1"),
            ("/c?%74oke%6E=x&%74=y&%zz=1&%7", "/c?%74oke%6E=***&%74=y&%zz=1&%7"),
            ("/c?token", "/c?token"),
            ("http://joe:secret@a/", "http://***@a/"),
            ("https://joe:se@cret@a.test/b@c?token=x", "https://***@a.test/b@c?token=***"),
            ("https://a.test:80/joe@b", "https://a.test:80/joe@b"),
            ("(+https://a.test) joe@b", "(+https://a.test) joe@b"),
            ("http://", "http://"),
        ] {
            let found = leave_out(text.as_bytes());
            assert_eq!(String::from_utf8_lossy(&found), expected);
        }
    }

    #[test]
    fn a_blank_ends_no_value_in_a_target() {
        for (text, expected) in [
            ("/c?token=a b\"c&x=1", "/c?token=***&x=1"),
            ("http://joe:se cret@a/ b", "http://***@a/ b"),
        ] {
            let found = leave_out_of_target(text.as_bytes());
            assert_eq!(String::from_utf8_lossy(&found), expected);
        }
    }
}
