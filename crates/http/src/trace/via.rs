//! The servers on the way of a message (RFC 9110, section 7.6.3).
//!
//! Each server adds the version of HTTP that the message came with, and a name. The line is a field
//! of its own after the fields of the servers before, which are passed on as they are: several
//! fields mean the same as one list. A request whose list has this server's name was here before,
//! and is not forwarded again.

use http::header::VIA;
use http::{HeaderMap, HeaderValue, Version};

/// The name of this server in `Via`, with the versions before it.
#[derive(Debug)]
pub(super) struct Via {
    name: String,
    /// For HTTP/1.0, 1.1 and 2.
    values: [HeaderValue; 3],
}

impl Via {
    /// Creates the values for a name, which the check of the configuration has found valid.
    pub(super) fn new(name: &str) -> Via {
        let value = |version: &str| {
            let value = HeaderValue::from_str(&format!("{version} {name}"));
            value.unwrap_or_else(|_| HeaderValue::from_static("1.1 superpoll"))
        };
        Via { name: name.to_owned(), values: [value("1.0"), value("1.1"), value("2.0")] }
    }

    /// Returns the name.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the value for a message that came with a version.
    pub(super) fn value(&self, version: Version) -> &HeaderValue {
        let place = match version {
            Version::HTTP_09 | Version::HTTP_10 => 0,
            Version::HTTP_2 => 2,
            _ => 1,
        };
        &self.values[place]
    }

    /// Adds this server to the fields of a message that came with a version.
    pub(super) fn append(&self, version: Version, headers: &mut HeaderMap) {
        headers.append(VIA, self.value(version).clone());
    }

    /// Whether the values of the field have this server.
    pub(super) fn is_in<'a>(&self, mut values: impl Iterator<Item = &'a [u8]>) -> bool {
        values.any(|value| {
            let plain = without_comments(value);
            // Without its end a comment could hide the servers behind it, where a proxy has joined
            // several fields.
            let value = plain.as_deref().unwrap_or(value);
            value.split(|byte| *byte == b',').any(|server| self.is(server))
        })
    }

    /// Whether a part of the list is this server: a version, and the whole name.
    fn is(&self, server: &[u8]) -> bool {
        let is_space = |byte: &u8| matches!(byte, b' ' | b'\t');
        let mut words = server.split(is_space).filter(|word| !word.is_empty());
        words.nth(1).is_some_and(|name| name.eq_ignore_ascii_case(self.name.as_bytes()))
    }
}

/// Returns a value with a space for each comment; `None` if a comment does not end. Comments may
/// contain commas and further comments.
fn without_comments(value: &[u8]) -> Option<Vec<u8>> {
    let (mut plain, mut depth, mut is_escaped) = (Vec::with_capacity(value.len()), 0_usize, false);
    for byte in value {
        match (byte, depth) {
            _ if is_escaped => is_escaped = false,
            (b'\\', 1..) => is_escaped = true,
            (b'(', _) => {
                depth += 1;
                plain.push(b' ');
            }
            (b')', 1..) => depth -= 1,
            (_, 1..) => {}
            (other, 0) => plain.push(*other),
        }
    }
    (depth == 0).then_some(plain)
}
