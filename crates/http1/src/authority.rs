//! Hosts with ports.

use std::net::Ipv6Addr;

use crate::field::{FieldValue, alphanumeric_and};

/// The bytes of a host's name (RFC 3986, section 3.2.2). No name that can be looked up has an
/// escape or a comma; an escape would be another way to write the same name, and a comma would make
/// a list of it in fields like `X-Forwarded-Host`.
static OF_HOST: [bool; 256] = alphanumeric_and(b"-._~!$&'()*+;=");

/// A host with an optional port (RFC 3986, section 3.2), without the name of a user (RFC 9110,
/// section 4.2.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Authority<'b> {
    /// Both are ASCII.
    text: &'b [u8],
    host: &'b [u8],
    port: Option<u16>,
}

impl<'b> Authority<'b> {
    /// Reads an authority; `None` if it is malformed.
    #[must_use]
    pub fn new(bytes: &'b [u8]) -> Option<Authority<'b>> {
        let (host, rest) = match bytes {
            [b'[', rest @ ..] => {
                let end = rest.iter().position(|byte| *byte == b']')?;
                std::str::from_utf8(&rest[..end]).ok()?.parse::<Ipv6Addr>().ok()?;
                (&rest[..end], &rest[end + 1..])
            }
            _ => {
                let end = bytes.iter().position(|byte| !OF_HOST[usize::from(*byte)]);
                bytes.split_at(end.unwrap_or(bytes.len()))
            }
        };
        if host.is_empty() {
            return None;
        }
        let port = match rest {
            [] | [b':'] => None,
            [b':', digits @ ..] => Some(port(digits)?),
            _ => return None,
        };
        Some(Authority { text: bytes, host, port })
    }

    /// Returns the authority as it came.
    #[must_use]
    pub fn as_str(&self) -> &'b str {
        std::str::from_utf8(self.text).unwrap_or_default()
    }

    /// Returns the bytes of the authority as it came.
    #[must_use]
    pub const fn as_bytes(&self) -> &'b [u8] {
        self.text
    }

    /// Returns the host: a name, or an address without brackets.
    #[must_use]
    pub fn host(&self) -> &'b str {
        std::str::from_utf8(self.host).unwrap_or_default()
    }

    /// Returns the port, if there is one.
    #[must_use]
    pub const fn port(&self) -> Option<u16> {
        self.port
    }

    /// Returns the authority as the value of a field, `Host` for example.
    #[must_use]
    pub const fn to_value(self) -> FieldValue<'b> {
        FieldValue::from_checked(self.text)
    }
}

/// Reads a port: digits alone, which may begin with zeros.
fn port(digits: &[u8]) -> Option<u16> {
    let add = |port: u16, digit: &u8| {
        let digit = digit.is_ascii_digit().then(|| digit - b'0')?;
        port.checked_mul(10)?.checked_add(u16::from(digit))
    };
    digits.iter().try_fold(0, add)
}
