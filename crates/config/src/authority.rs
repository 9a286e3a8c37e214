//! The host and port that a request is for, or that an operator has written: one parser for all of
//! them.
//!
//! An authority comes from the `Host` field, from a target in absolute form, from the `:authority`
//! of HTTP/2, from `CONNECT`, and from the configuration. Each of them chooses the host that
//! answers and reaches the servers that requests are forwarded to, so that each is read by the same
//! rules: `host [ ":" port ]` (RFC 9110, section 7.2). User information (`user:password@`) is
//! refused wherever it stands: some readers take the part before the `@` for the host, and other
//! readers the part after it (RFC 9110, section 4.2.4).

use std::net::{IpAddr, Ipv6Addr};

/// A host and perhaps a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Authority<'a> {
    /// A name, or an IP address without brackets; never empty.
    pub host: &'a str,
    /// The port, if it is given.
    pub port: Option<u16>,
}

impl<'a> Authority<'a> {
    /// Reads an authority; `None` if it is malformed.
    #[inline]
    #[must_use]
    pub fn parse(bytes: &'a [u8]) -> Option<Authority<'a>> {
        let text = std::str::from_utf8(bytes).ok()?;
        if let Some(rest) = text.strip_prefix('[') {
            let (host, rest) = rest.split_once(']')?;
            host.parse::<Ipv6Addr>().ok()?;
            return Some(Authority { host, port: port(rest)? });
        }
        let end = text.find(':').unwrap_or(text.len());
        let (host, rest) = text.split_at(end);
        let is_name = !host.is_empty() && host.bytes().all(is_of_name);
        let port = port(rest)?;
        is_name.then_some(Authority { host, port })
    }

    /// Returns the address that the host is, if it is no name.
    #[inline]
    #[must_use]
    pub fn address(&self) -> Option<IpAddr> {
        self.host.parse().ok()
    }

    /// Whether the host is one that browsers are told to reach over encrypted connections only.
    /// Addresses are none (RFC 6797, section 8.1.1). Neither is `localhost`, whose servers share
    /// the name and come and go.
    #[inline]
    #[must_use]
    pub fn may_have_hsts(&self) -> bool {
        self.address().is_none() && !self.is_loopback()
    }

    /// Whether it names the machine that asks, whatever its resolver says: `localhost`, a name
    /// below it (RFC 6761, section 6.3) or a loopback address.
    #[inline]
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        let name = self.host.strip_suffix('.').unwrap_or(self.host);
        let ends_so = |end: &str| {
            let at = name.len().checked_sub(end.len());
            let rest = at.and_then(|at| name.as_bytes().get(at..));
            rest.is_some_and(|rest| rest.eq_ignore_ascii_case(end.as_bytes()))
        };
        name.eq_ignore_ascii_case("localhost")
            || ends_so(".localhost")
            || self.address().is_some_and(|address| address.to_canonical().is_loopback())
    }
}

/// Reads the text after a host: nothing, or a colon and a port, which may be empty (RFC 3986,
/// section 3.2.3).
fn port(rest: &str) -> Option<Option<u16>> {
    let Some(digits) = rest.strip_prefix(':') else {
        return rest.is_empty().then_some(None);
    };
    if digits.is_empty() {
        return Some(None);
    }
    // `parse` would take a sign.
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| is_number).map(Some)
}

/// Whether a registered name may have that byte (RFC 3986, section 3.2.2). No name that can be
/// looked up has an escape or a comma; an escape would be another way to write the same name, and
/// `X-Forwarded-Host` is a list to many readers.
fn is_of_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()*+;=".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_ports_are_read() {
        for (text, host, port) in [
            ("a", "a", None),
            ("a.example", "a.example", None),
            ("A.example.:80", "A.example.", Some(80)),
            ("a_b:", "a_b", None),
            ("a:0", "a", Some(0)),
            ("a:00080", "a", Some(80)),
            ("127.0.0.1:65535", "127.0.0.1", Some(65535)),
            ("[::1]", "::1", None),
            ("[::ffff:127.0.0.1]:80", "::ffff:127.0.0.1", Some(80)),
        ] {
            assert_eq!(Authority::parse(text.as_bytes()), Some(Authority { host, port }), "{text}");
        }
    }

    #[test]
    fn ambiguous_authorities_are_refused() {
        for text in [
            "",
            ":80",
            "a:b",
            "a:+1",
            "a:-1",
            "a: 1",
            "a:65536",
            "a:99999",
            "a:1:2",
            "::1",
            "a:1x",
            "u@a",
            "u:p@a",
            "u:p@a:80",
            "a@",
            "@a",
            "a:1@b",
            "[::1",
            "::1]",
            "[::1]a",
            "[::1]:",
            "[a]",
            "[::1%25lo]",
            "[v1.a]",
            "[]",
            "a/b",
            "a?b",
            "a#b",
            "a\\b",
            "a b",
            " a",
            "a\t",
            "a,b",
            "%61",
            "a%00",
            "a\"",
            "<a>",
            "é",
        ] {
            let expected = text == "[::1]:";
            assert_eq!(Authority::parse(text.as_bytes()).is_some(), expected, "{text:?}");
        }
        assert_eq!(Authority::parse(b"a\xff"), None);
    }

    #[test]
    fn the_machine_itself_has_few_names() {
        let is = |text: &str| Authority::parse(text.as_bytes()).unwrap().is_loopback();
        for text in [
            "localhost",
            "LocalHost:80",
            "localhost.",
            "a.localhost",
            "127.0.0.1",
            "127.9.9.9:1",
            "[::1]:80",
            "[::ffff:127.0.0.1]",
        ] {
            assert!(is(text), "{text}");
        }
        for text in [
            "a.example",
            "localhost.example",
            "alocalhost",
            "127.0.0.1.example",
            "127.1",
            "0.0.0.0",
            "[::]",
            "[::ffff:10.0.0.1]",
            "10.0.0.1",
            "2130706433",
            "localhost.localdomain",
        ] {
            assert!(!is(text), "{text}");
        }
    }
}
