//! Secrets in URLs, which belong into no log.
//!
//! A browser's WebSocket and EventSource cannot set a field, so pages put their token into the URL.
//! It must not be readable for everyone who reads the log, nor for the services that logs are sent
//! to. The name of the parameter stays, its value does not. This is for requests of any kind: those
//! that were refused before they were understood, and URLs in `Referer`, included.

use std::borrow::Cow;

/// The parameters whose values are left out.
const PARAMETERS: [&[u8]; 2] = [b"token=", b"authorization="];

/// The text in the place of a value.
const LEFT_OUT: &[u8] = b"***";

/// Whether a byte ends a parameter's value.
fn ends_value(byte: u8) -> bool {
    matches!(byte, b'&' | b'#' | b'"') || byte.is_ascii_whitespace()
}

/// Returns a text with URLs without the secrets in it.
pub(super) fn leave_out(text: &[u8]) -> Cow<'_, [u8]> {
    let mut out = Vec::new();
    let mut kept_to = 0;
    for (at, separator) in text.iter().enumerate() {
        if !matches!(separator, b'?' | b'&') || at < kept_to {
            continue;
        }
        let rest = &text[at + 1..];
        let Some(name) = PARAMETERS.iter().find(|name| rest.starts_with(name)) else { continue };
        let start = at + 1 + name.len();
        let value = &text[start..];
        let length = value.iter().position(|&byte| ends_value(byte)).unwrap_or(value.len());
        out.extend_from_slice(&text[kept_to..start]);
        out.extend_from_slice(LEFT_OUT);
        kept_to = start + length;
    }
    if kept_to == 0 {
        return Cow::Borrowed(text);
    }
    out.extend_from_slice(&text[kept_to..]);
    Cow::Owned(out)
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
            ("/token=a?mytoken=b&tokens=c", "/token=a?mytoken=b&tokens=c"),
            ("GET /a?token=x.y HTTP/1.1", "GET /a?token=*** HTTP/1.1"),
            ("https://a/b?token=x#top", "https://a/b?token=***#top"),
            ("/a?x=?token=b", "/a?x=?token=***"),
        ] {
            let found = leave_out(text.as_bytes());
            assert_eq!(String::from_utf8_lossy(&found), expected);
        }
    }
}
