//! The rules of a route in addition to its action, and the rules of a host for all of its answers.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue, StatusCode};
use ipnet::IpNet;
use serde::{Deserialize, Deserializer};

use super::rate::Rate;
use super::scalar;
use crate::password::PasswordHash;
use crate::template::Template;

/// The largest page for errors, in bytes.
pub const LARGEST_PAGE: u64 = 1 << 20;

/// The longest name of a user, in bytes.
const LONGEST_USER: usize = 255;

/// The rules of a route in addition to its action. By default there are none.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Rules {
    /// The fields of responses that are set, added and removed, behind those of the host.
    pub headers: HeaderChanges,
    /// The pages for errors, before those of the host.
    pub errors: ErrorPages,
    /// The clients that are served. Default: all.
    pub access: Access,
    /// The most requests of one client, in addition to those of the host. Default: no limit.
    pub rate: Option<RequestRate>,
    /// The users that are served, by their passwords. Default: those of the host; if there are
    /// none, no password is asked for.
    pub basic_auth: Option<Arc<BasicAuth>>,
    /// The server that is asked whether a request may pass. Default: none.
    pub auth_request: Option<Arc<AuthRequest>>,
    /// The largest body of a request. Default: that of the limits.
    pub body_bytes: Option<u64>,
    /// The path, and maybe the query, that files are looked for at or that a server is asked for,
    /// in place of those of the request: `/v2{path}`. Default: those of the request.
    pub rewrite: Option<String>,
}

/// The server that is asked whether requests may pass.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AuthRequest {
    /// The name of one of the upstreams in the configuration.
    pub upstream: String,
    /// The path that is requested by GET; 2xx lets the request pass. Default: `/`.
    pub path: String,
    /// How long the answer may take. Default: 5 s.
    pub timeout: Duration,
    /// The fields of the answer that the request gets, in place of its own. Default: none.
    pub copy: Vec<HeaderName>,
    /// How long an answer that lets a request pass is known. Default: not at all.
    pub cache: Option<Duration>,
    /// The fields of requests that an answer is known by. Default: `Cookie` and `Authorization`.
    pub cache_by: Vec<HeaderName>,
}

/// Fields of a message that are removed and added.
///
/// To set a field is to remove it and to add it.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct HeaderChanges {
    /// The fields that are removed, whatever their value.
    pub removed: Vec<HeaderName>,
    /// The fields that are added then.
    pub added: Vec<(HeaderName, HeaderValue)>,
    /// Those that are added with values that depend on the request, after the others.
    pub templates: Vec<(HeaderName, Template)>,
}

impl HeaderChanges {
    /// Whether nothing is changed.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.removed.is_empty() && self.added.is_empty() && self.templates.is_empty()
    }

    /// Returns the changes that have the effect of these and then others.
    #[must_use]
    pub fn then(&self, other: &HeaderChanges) -> HeaderChanges {
        let mut all = self.clone();
        all.added.retain(|(name, _)| !other.removed.contains(name));
        all.templates.retain(|(name, _)| !other.removed.contains(name));
        all.removed.extend(other.removed.iter().cloned());
        all.added.extend(other.added.iter().cloned());
        all.templates.extend(other.templates.iter().cloned());
        all
    }
}

/// The errors that a page is for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ErrorKind {
    /// One status, 400 to 599.
    Status(u16),
    /// All statuses that begin with this digit, 4 or 5, and have no page of their own.
    Class(u16),
}

impl ErrorKind {
    /// Returns the kinds of a status, the one that counts first.
    #[inline]
    #[must_use]
    pub fn of_status(status: StatusCode) -> [ErrorKind; 2] {
        let status = status.as_u16();
        [ErrorKind::Status(status), ErrorKind::Class(status / 100)]
    }

    /// Reads a kind as `404` or `5xx`.
    pub fn parse(text: &str) -> Option<ErrorKind> {
        match text {
            "4xx" => Some(ErrorKind::Class(4)),
            "5xx" => Some(ErrorKind::Class(5)),
            text if text.len() == 3 => {
                let status = text.parse().ok().filter(|status| (400..600).contains(status));
                status.map(ErrorKind::Status)
            }
            _ => None,
        }
    }
}

/// The pages for errors: files, by the errors that they are for. A page is read when the
/// configuration is taken on.
pub type ErrorPages = BTreeMap<ErrorKind, PathBuf>;

/// The clients that are served, by their addresses.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Access {
    /// The clients that are served; all, if there are none.
    pub allow: Vec<ClientRange>,
    /// The clients that are refused, also if they are allowed.
    pub deny: Vec<ClientRange>,
}

/// Some clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClientRange {
    /// The clients with an address of this network.
    Network(IpNet),
    /// The clients without an address: those of Unix sockets.
    Unix,
}

impl ClientRange {
    /// Whether a client, by its address, is of some range.
    #[inline]
    #[must_use]
    pub fn any_has(ranges: &[ClientRange], client: Option<IpAddr>) -> bool {
        // A listener on all addresses sees IPv4 clients as IPv6 clients.
        let client = client.map(|client| client.to_canonical());
        ranges.iter().any(|range| range.has(client))
    }

    fn has(self, client: Option<IpAddr>) -> bool {
        match (self, client) {
            (ClientRange::Network(network), Some(client)) => network.contains(&client),
            (ClientRange::Unix, None) => true,
            _ => false,
        }
    }

    /// Reads a range as `10.0.0.0/8`, `::1` or `unix`; the error says why it is wrong.
    pub fn parse(text: &str) -> Result<ClientRange, String> {
        if text == "unix" {
            return Ok(ClientRange::Unix);
        }
        let expected =
            "expected one as \"10.0.0.0/8\", \"2001:db8::/32\", \"127.0.0.1\" or \"unix\"";
        let network = match text.parse::<IpAddr>() {
            Ok(address) => IpNet::from(address.to_canonical()),
            Err(_) => text.parse().map_err(|_| format!("{text:?} is no network, {expected}"))?,
        };
        if let IpNet::V6(network) = network
            && network.addr().to_ipv4_mapped().is_some()
        {
            return Err(format!("{text:?} is a network of IPv4 in the form of IPv6, {expected}"));
        }
        let whole = network.trunc();
        if whole != network {
            return Err(format!("{text:?} is an address in a network, expected \"{whole}\""));
        }
        Ok(ClientRange::Network(network))
    }
}

/// Reads the proxies that are trusted: ranges of clients, or `local` for this machine.
pub(super) fn trusted_proxies<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<ClientRange>, D::Error> {
    /// The ranges of one text.
    struct Ranges(Vec<ClientRange>);

    fn read(text: &str) -> Result<Ranges, String> {
        let parsed: Result<Vec<ClientRange>, String> = match text {
            "local" => ["127.0.0.0/8", "::1", "unix"].into_iter().map(ClientRange::parse).collect(),
            text => ClientRange::parse(text).map(|range| vec![range]),
        };
        let ranges = parsed
            .map_err(|what| format!("{what}, or \"local\" for the proxies of this machine"))?;
        let is_all = |range: &ClientRange| matches!(range, ClientRange::Network(network) if network.prefix_len() == 0);
        if ranges.iter().any(is_all) {
            return Err(format!(
                "{text:?} trusts every client to name another client, expected the networks of the \
                 proxies in front"
            ));
        }
        Ok(Ranges(ranges))
    }

    impl<'de> Deserialize<'de> for Ranges {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Ranges, D::Error> {
            scalar::text(deserializer, "a string as \"10.0.0.0/8\" or \"local\"", read)
        }
    }

    let texts = Vec::<Ranges>::deserialize(deserializer)?;
    Ok(texts.into_iter().flat_map(|Ranges(ranges)| ranges).collect())
}

impl Access {
    /// Whether a client is served, by its address.
    #[inline]
    #[must_use]
    pub fn allows(&self, client: Option<IpAddr>) -> bool {
        let is_in = |ranges: &[ClientRange]| ClientRange::any_has(ranges, client);
        !is_in(&self.deny) && (self.allow.is_empty() || is_in(&self.allow))
    }
}

/// The most requests of one client. Further ones are answered with 429.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct RequestRate {
    /// The rate.
    pub rate: Rate,
    /// The property that the requests of one client share.
    pub by: RateKey,
}

/// The property that the requests of one client share.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum RateKey {
    /// The address of the client, or its network of IPv6 (`/64`).
    Client,
    /// The value of a field. Requests without the field count by address.
    Header(HeaderName),
}

impl RateKey {
    /// Reads a key as `client` or `header:X-Api-Key`; the error says why it is wrong.
    pub fn parse(text: &str) -> Result<RateKey, String> {
        if text == "client" {
            return Ok(RateKey::Client);
        }
        let name = text.strip_prefix("header:").map(|name| HeaderName::from_bytes(name.as_bytes()));
        match name {
            Some(Ok(name)) => Ok(RateKey::Header(name)),
            _ => {
                let expected = "expected \"client\" or one as \"header:X-Api-Key\"";
                Err(format!("{text:?} does not say whose requests count together, {expected}"))
            }
        }
    }
}

/// A text that is no name of a user.
#[derive(Clone, PartialEq, Eq, thiserror::Error, Debug)]
#[error("{0:?} is no name of a user, expected 1 to {LONGEST_USER} bytes without a colon")]
pub struct UserNameError(String);

/// Checks the name of a user.
///
/// # Errors
///
/// It is none.
pub fn check_user(user: &str) -> Result<(), UserNameError> {
    let is_usable = !user.is_empty() && user.len() <= LONGEST_USER;
    match is_usable && !user.contains(|one: char| one == ':' || one.is_control()) {
        true => Ok(()),
        false => Err(UserNameError(user.to_owned())),
    }
}

/// Users and their passwords, which clients send with each request.
#[derive(Clone, PartialEq, Debug)]
pub struct BasicAuth {
    /// The name of the protected area, which browsers show. Default: `Restricted`.
    pub realm: String,
    /// The hashes of passwords, by user.
    pub users: BTreeMap<String, PasswordHash>,
    /// A file with further users, as `htpasswd` writes it. It is read when the configuration is
    /// taken on.
    pub file: Option<PathBuf>,
    /// The most wrong passwords of one client address; further passwords that are not known are
    /// answered with 429. Default: 20 a minute, and at once.
    pub failures: Option<Rate>,
    /// Whether clients of this machine and of Unix sockets, which are proxies as a rule, may send
    /// any number of wrong passwords. Default: yes, unless the configuration says how many.
    pub spares_local: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn denied_clients_are_refused_even_if_they_are_allowed() {
        let range = |text: &&str| ClientRange::parse(text).unwrap();
        let access = |allow: &[&str], deny: &[&str]| Access {
            allow: allow.iter().map(range).collect(),
            deny: deny.iter().map(range).collect(),
        };
        for (allow, deny, client, expected) in [
            (&[][..], &[][..], Some("1.2.3.4"), true),
            (&[], &[], None, true),
            (&["10.0.0.0/8"], &[], Some("10.1.2.3"), true),
            (&["10.0.0.0/8"], &[], Some("::ffff:10.1.2.3"), true),
            (&["10.0.0.0/8"], &[], Some("11.1.2.3"), false),
            (&["10.0.0.0/8"], &[], None, false),
            (&["10.0.0.0/8", "unix"], &[], None, true),
            (&["10.0.0.0/8"], &["10.1.0.0/16"], Some("10.1.2.3"), false),
            (&["10.0.0.0/8"], &["10.1.0.0/16"], Some("10.2.2.3"), true),
            (&[], &["2001:db8::/32"], Some("2001:db8::1"), false),
            (&[], &["2001:db8::/32"], Some("2001:db9::1"), true),
            (&[], &["127.0.0.1"], Some("::ffff:127.0.0.1"), false),
            (&["::ffff:127.0.0.1"], &[], Some("127.0.0.1"), true),
            (&["0.0.0.0/0"], &[], Some("::1"), false),
            (&[], &["unix"], None, false),
            (&[], &["unix"], Some("::1"), true),
        ] {
            let client = client.map(|client| client.parse().unwrap());
            assert_eq!(
                access(allow, deny).allows(client),
                expected,
                "{allow:?} {deny:?} {client:?}"
            );
        }
        for text in ["", "10.0.0.1/8", "10.0.0.0/33", "10.0.0", "::ffff:10.0.0.0/104", "localhost"]
        {
            let error = ClientRange::parse(text).unwrap_err();
            assert!(error.contains("expected"), "{error}");
        }
    }

    #[test]
    fn later_changes_count() {
        let name = |name: &'static str| HeaderName::from_static(name);
        let added = |field: &'static str, value: &'static str| {
            (name(field), HeaderValue::from_static(value))
        };
        let host = HeaderChanges {
            removed: vec![name("a"), name("b")],
            added: vec![added("a", "1"), added("c", "1")],
            templates: Vec::new(),
        };
        let route = HeaderChanges {
            removed: vec![name("a")],
            added: vec![added("c", "2")],
            templates: Vec::new(),
        };
        let both = host.then(&route);
        assert_eq!(both.removed, [name("a"), name("b"), name("a")]);
        assert_eq!(both.added, [added("c", "1"), added("c", "2")]);
    }

    #[test]
    fn errors_are_statuses_or_classes() {
        assert_eq!(ErrorKind::parse("404"), Some(ErrorKind::Status(404)));
        assert_eq!(ErrorKind::parse("5xx"), Some(ErrorKind::Class(5)));
        for text in ["", "200", "304", "600", "3xx", "40", "+44", "4XX", "4040"] {
            assert_eq!(ErrorKind::parse(text), None, "{text}");
        }
    }
}
