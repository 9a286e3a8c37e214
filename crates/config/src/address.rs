//! The addresses to listen on and to connect to, as operators write them.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::de::{Deserialize, Deserializer};

use crate::scalar;

/// The most bytes that the path of a Unix socket may have: `sun_path` less its final zero
/// (`unix(7)`).
pub(crate) const LONGEST_PATH: usize = 107;

/// An address to listen on or to connect to.
///
/// It is written `HOST:PORT`, `[IPV6]:PORT` or `:PORT`, or `unix:PATH`; a path that begins with `/`
/// needs no `unix:`. [`Display`](fmt::Display) writes it in a way that can be read again.
///
/// ```
/// use superpoll_config::Address;
///
/// let address: Address = "localhost:8080".parse()?;
/// assert_eq!(address, Address::Tcp { host: Some("localhost".into()), port: 8080 });
/// assert_eq!("unix:/run/app.sock".parse::<Address>()?.to_string(), "unix:/run/app.sock");
/// # Ok::<(), superpoll_config::AddressError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Address {
    /// A TCP port.
    Tcp {
        /// A name, or an IP address without brackets. `None`: all addresses of this machine to
        /// listen on, and the loopback address to connect to.
        host: Option<String>,
        /// The port; 0 lets the kernel choose one to listen on.
        port: u16,
    },
    /// A stream socket in the file system.
    Unix(PathBuf),
}

impl Address {
    /// Returns the one address that connections to this one have at this end, if that is known.
    #[must_use]
    pub fn only(&self) -> Option<SocketAddr> {
        let Address::Tcp { host: Some(host), port } = self else { return None };
        let host: IpAddr = host.parse().ok()?;
        (!host.is_unspecified()).then_some(SocketAddr::new(host, *port))
    }

    /// Whether only programs on this machine can connect to it. A Unix socket is not included: it
    /// has no address.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        let Address::Tcp { host: Some(host), .. } = self else { return false };
        match host.parse::<IpAddr>() {
            Ok(host) => host.to_canonical().is_loopback(),
            // Resolvers do not ask others about it (RFC 6761, section 6.3).
            Err(_) => host.trim_end_matches('.').eq_ignore_ascii_case("localhost"),
        }
    }

    /// Whether a connection to `to` arrives at this address.
    #[must_use]
    pub fn covers(&self, to: SocketAddr) -> bool {
        let Address::Tcp { host, port } = self else { return false };
        let fits = |host: &String| {
            let host = host.parse::<IpAddr>().map(|host| host.to_canonical());
            host.is_ok_and(|host| host.is_unspecified() || host == to.ip().to_canonical())
        };
        *port == to.port() && host.as_ref().is_none_or(fits)
    }
}

/// The reason for which a text is not an address.
#[derive(Clone, PartialEq, Eq, thiserror::Error, Debug)]
#[error("{text:?} is no address: {reason}")]
pub struct AddressError {
    text: String,
    reason: &'static str,
}

fn unix(path: &str) -> Result<Address, &'static str> {
    match path {
        "" => Err("the path of the socket is missing after unix:"),
        _ if path.len() > LONGEST_PATH => Err("the path of a Unix socket has at most 107 bytes"),
        _ if path.contains('\0') => Err("the path of a Unix socket contains no zero byte"),
        _ => Ok(Address::Unix(Path::new(path).to_path_buf())),
    }
}

fn tcp(text: &str) -> Result<Address, &'static str> {
    let missing = "write HOST:PORT, [IPV6]:PORT, :PORT or unix:PATH";
    let (host, port) = text.rsplit_once(':').ok_or(missing)?;
    let port = match port {
        "" => return Err("the port is missing after the colon"),
        _ if port.bytes().all(|byte| byte.is_ascii_digit()) => {
            port.parse().map_err(|_| "a port is at most 65535")?
        }
        _ => return Err("the port is not a number"),
    };
    let host = match host.strip_prefix('[').map(|rest| rest.strip_suffix(']')) {
        Some(Some(inner)) => {
            let is_v6 = inner.parse::<Ipv6Addr>().is_ok();
            is_v6.then_some(inner).ok_or("the text in brackets is not an IPv6 address")?
        }
        Some(None) => return Err("the bracket of the IPv6 address is not closed"),
        None if host.contains(':') => return Err("an IPv6 address needs brackets, as in [::1]:80"),
        None if host.contains(|c: char| c.is_whitespace() || c.is_control() || c == '/') => {
            return Err("the host has a character that no host name has");
        }
        None => host,
    };
    let host = (!host.is_empty()).then(|| host.to_owned());
    Ok(Address::Tcp { host, port })
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Address, AddressError> {
        let parsed = match text.strip_prefix("unix:") {
            Some(path) => unix(path),
            None if text.starts_with('/') => unix(text),
            None => tcp(text),
        };
        parsed.map_err(|reason| AddressError { text: text.to_owned(), reason })
    }
}

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Address, D::Error> {
        let expected = "an address as \"HOST:PORT\" or \"unix:PATH\"";
        scalar::text(deserializer, expected, Address::from_str)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
            Address::Tcp { host: None, port } => write!(f, ":{port}"),
            Address::Tcp { host: Some(host), port } if host.contains(':') => {
                write!(f, "[{host}]:{port}")
            }
            Address::Tcp { host: Some(host), port } => write!(f, "{host}:{port}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tcp(host: Option<&str>, port: u16) -> Address {
        Address::Tcp { host: host.map(str::to_owned), port }
    }

    #[test]
    fn wildcard_addresses_cover_others_and_are_not_unique() {
        let to: SocketAddr = "127.0.0.1:80".parse().unwrap();
        let mapped: SocketAddr = "[::ffff:127.0.0.1]:80".parse().unwrap();
        for (host, covers, only) in [
            (Some("127.0.0.1"), true, true),
            (Some("127.0.0.2"), false, true),
            (Some("0.0.0.0"), true, false),
            (Some("::"), true, false),
            (Some("localhost"), false, false),
            (None, true, false),
        ] {
            let address = tcp(host, 80);
            assert_eq!((address.covers(to), address.covers(mapped)), (covers, covers), "{host:?}");
            assert_eq!(address.only().is_some(), only, "{host:?}");
            assert!(!tcp(host, 81).covers(to));
        }
        assert_eq!(tcp(Some("127.0.0.1"), 80).only(), Some(to));
        let unix = Address::Unix("x".into());
        assert!(!unix.covers(to) && unix.only().is_none());
    }

    #[test]
    fn each_form_is_read() {
        for (text, address) in [
            ("127.0.0.1:80", tcp(Some("127.0.0.1"), 80)),
            ("backend.example:65535", tcp(Some("backend.example"), 65535)),
            ("[::1]:0", tcp(Some("::1"), 0)),
            (":8080", tcp(None, 8080)),
            ("unix:relative.sock", Address::Unix("relative.sock".into())),
            ("unix:/run/a:b", Address::Unix("/run/a:b".into())),
            ("/run/x.sock", Address::Unix("/run/x.sock".into())),
        ] {
            assert_eq!(text.parse(), Ok(address), "{text}");
        }
    }

    #[test]
    fn wrong_addresses_are_explained() {
        let long = format!("unix:{}", "x".repeat(108));
        for (text, reason) in [
            ("", "write HOST:PORT"),
            ("localhost", "write HOST:PORT"),
            ("localhost:", "port is missing"),
            ("localhost:http", "not a number"),
            ("localhost:+1", "not a number"),
            ("localhost:65536", "at most 65535"),
            ("::1:80", "needs brackets"),
            ("[::1:80", "not closed"),
            ("[localhost]:80", "not an IPv6 address"),
            ("a b:80", "a character that no host name has"),
            ("http://a:80", "needs brackets"),
            ("unix:", "missing after unix:"),
            (&long, "at most 107"),
            ("unix:a\0b", "zero byte"),
        ] {
            let error = text.parse::<Address>().unwrap_err().to_string();
            assert!(error.contains(reason) && !error.contains('\n'), "{text:?}: {error}");
        }
    }

    proptest! {
        #[test]
        fn parsing_never_panics_and_addresses_round_trip(text in "\\PC{0,20}|[a-c:/\\[\\]0-9.]{0,12}") {
            if let Ok(address) = text.parse::<Address>() {
                prop_assert_eq!(address.to_string().parse::<Address>(), Ok(address));
            }
        }
    }
}
