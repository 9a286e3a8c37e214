//! The client of a request that a trusted proxy has passed on.
//!
//! A proxy in front carries the requests of many clients over one connection, so the client is a
//! fact of the request there, not of the connection. A trusted proxy adds the address of its own
//! client at the end of `X-Forwarded-For`, or of `Forwarded` (RFC 7239). Everything before that may
//! be forged. So the list is read from its end, and the client is the first address that is no
//! trusted proxy: nginx (`real_ip_recursive`) and Caddy (`trusted_proxies_strict`) do the same.
//!
//! | the list has | the client is |
//! |---|---|
//! | an address that is not trusted | that address |
//! | nothing more | the last address that was read |
//! | `unknown`, `_name`, or an item that is no address | the last address that was read |
//! | more than `MOST_HOPS` trusted proxies | the last address that was read |
//!
//! The connection's own peer counts as the first address that is read. Two rules keep a client from
//! gaining rights by a forged list:
//!
//! - A loopback address stands for a program of the *proxy's* machine. A list may name proxies by
//!   one, and the client never gets one from a list: it stays the last other address. So a request
//!   becomes "local" by no list.
//! - `Forwarded` is read only if there is no `X-Forwarded-For`. Most proxies write only one of the
//!   two, and pass the client's value of the other one on.
//!
//! An item is read from its end as well: a quote that a client has left open cannot swallow the
//! item that the proxy has added after it.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::rc::Rc;

use superpoll_config::ClientRange;

use crate::peer::Peer;

/// The most trusted proxies of one list, for a bound on the work for one request.
const MOST_HOPS: usize = 32;

const FORWARDED_FOR: &str = "x-forwarded-for";
const FORWARDED: &str = "forwarded";

/// The proxies whose word about their clients is believed.
#[derive(Debug, Default)]
pub struct TrustedProxies(Vec<ClientRange>);

impl TrustedProxies {
    /// Returns the proxies of a configuration.
    pub fn new(ranges: &[ClientRange]) -> TrustedProxies {
        TrustedProxies(ranges.to_vec())
    }

    fn has(&self, client: Option<IpAddr>) -> bool {
        ClientRange::any_has(&self.0, client)
    }

    /// Returns the peer of a request: that of its connection, or a client of the trusted proxy that
    /// the connection is from. `values` returns the values of a field of the request.
    pub fn peer_of<'a, V>(
        &self,
        connection: &Rc<Peer>,
        values: impl Fn(&'static str) -> V,
    ) -> Rc<Peer>
    where
        V: DoubleEndedIterator<Item = &'a [u8]>,
    {
        if self.0.is_empty() || !self.has(connection.client.map(|client| client.ip())) {
            return connection.clone();
        }
        let mut lists = values(FORWARDED_FOR).rev().peekable();
        if lists.peek().is_some() {
            let found = self.client(lists.flat_map(items_from_end).map(address));
            return Rc::new(Peer::of_request(connection, found, true));
        }
        let mut lists = values(FORWARDED).rev().peekable();
        let is_listed = lists.peek().is_some();
        let found = self.client(lists.flat_map(items_from_end).map(forwarded_for));
        Rc::new(Peer::of_request(connection, found, is_listed))
    }

    /// Returns the client among the addresses of a list, from its end; `None` if the list names no
    /// other client than the peer of the connection.
    fn client(&self, listed: impl Iterator<Item = Option<SocketAddr>>) -> Option<SocketAddr> {
        let mut client = None;
        for address in listed.take(MOST_HOPS) {
            let Some(address) = address else { break };
            if !address.ip().is_loopback() {
                client = Some(address);
            }
            if !self.has(Some(address.ip())) {
                break;
            }
        }
        client
    }
}

/// Returns the items of a list, the last one first and without the empty ones.
fn items_from_end(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    parts_from_end(list, b',').filter(|item| !item.is_empty())
}

/// Returns the parts of a text between separators, the last one first. A separator in quotes
/// separates nothing.
fn parts_from_end(text: &[u8], separator: u8) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let mut is_quoted = false;
        let found = (0..text.len()).rev().find(|&at| match text[at] {
            b'"' => {
                let escapes = text[..at].iter().rev().take_while(|byte| **byte == b'\\').count();
                is_quoted ^= escapes % 2 == 0;
                false
            }
            byte => byte == separator && !is_quoted,
        });
        rest = found.map(|at| &text[..at]);
        Some(text[found.map_or(0, |at| at + 1)..].trim_ascii())
    })
}

/// Reads an address as `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]` or
/// `[2001:db8::1]:80`, also in quotes. The port is 0 if there is none. No host has the unspecified
/// address.
fn address(item: &[u8]) -> Option<SocketAddr> {
    let quoted = item.strip_prefix(b"\"").and_then(|item| item.strip_suffix(b"\""));
    let text = std::str::from_utf8(quoted.unwrap_or(item)).ok()?;
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    let read = match bare {
        Some(bare) => SocketAddr::new(bare.parse::<Ipv6Addr>().ok()?.into(), 0),
        None => match text.parse::<IpAddr>() {
            Ok(ip) => SocketAddr::new(ip, 0),
            Err(_) => text.parse().ok()?,
        },
    };
    let ip = read.ip().to_canonical();
    (!ip.is_unspecified()).then(|| SocketAddr::new(ip, read.port()))
}

/// Reads the address in an element of `Forwarded`, as `for="[2001:db8::1]:80";proto=https`.
fn forwarded_for(element: &[u8]) -> Option<SocketAddr> {
    let mut node = None;
    for parameter in parts_from_end(element, b';') {
        let at = parameter.iter().position(|byte| *byte == b'=')?;
        let (name, value) = (parameter[..at].trim_ascii(), parameter[at + 1..].trim_ascii());
        if name.eq_ignore_ascii_case(b"for") && node.replace(value).is_some() {
            return None;
        }
    }
    address(node?)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn trusting(ranges: &[&str]) -> TrustedProxies {
        TrustedProxies(ranges.iter().map(|range| ClientRange::parse(range).unwrap()).collect())
    }

    fn connection(client: Option<&str>) -> Rc<Peer> {
        let client = client.map(|client| SocketAddr::new(client.parse().unwrap(), 9));
        Rc::new(Peer { client, ..Peer::default() })
    }

    /// Returns the client of a request with these fields, as text.
    fn client(trusted: &TrustedProxies, from: &Rc<Peer>, fields: &[(&str, &[u8])]) -> String {
        let values = |wanted: &'static str| {
            let of: Vec<&[u8]> = fields
                .iter()
                .filter(|(name, _)| *name == wanted)
                .map(|(_, value)| *value)
                .collect();
            of.into_iter()
        };
        let peer = trusted.peer_of(from, values);
        peer.client.map_or_else(|| "unix".to_owned(), |client| client.ip().to_string())
    }

    #[test]
    fn the_client_is_the_last_address_that_is_not_trusted() {
        let trusted = trusting(&["10.0.0.0/8", "2001:db8:1::/48"]);
        let proxy = connection(Some("10.0.0.1"));
        for (list, expected) in [
            (&["203.0.113.1"][..], "203.0.113.1"),
            (&["203.0.113.1, 10.0.0.2"], "203.0.113.1"),
            (&["198.51.100.1, 203.0.113.1,10.0.0.2\t, 10.9.9.9"], "203.0.113.1"),
            (&["198.51.100.1", "203.0.113.1", "10.0.0.2"], "203.0.113.1"),
            (&["203.0.113.1:4711"], "203.0.113.1"),
            (&["[2001:db8::1]:4711"], "2001:db8::1"),
            (&["[2001:db8::1]"], "2001:db8::1"),
            (&["2001:db8::1"], "2001:db8::1"),
            (&["203.0.113.1, 2001:db8:1::7"], "203.0.113.1"),
            (&["\"203.0.113.1:80\""], "203.0.113.1"),
            (&["::ffff:203.0.113.1"], "203.0.113.1"),
            (&["203.0.113.1, ::ffff:10.0.0.2"], "203.0.113.1"),
            // Empty items are none (RFC 9110, section 5.6.1).
            (&[",203.0.113.1, ,, "], "203.0.113.1"),
            (&["203.0.113.1", ""], "203.0.113.1"),
            (&[""], "10.0.0.1"),
            (&[" , ,"], "10.0.0.1"),
            (&[], "10.0.0.1"),
            // All are trusted: the first has sent the request.
            (&["10.0.0.3, 10.0.0.2"], "10.0.0.3"),
            // Reading ends where there is no address.
            (&["203.0.113.1, unknown"], "10.0.0.1"),
            (&["203.0.113.1, unknown, 10.0.0.2"], "10.0.0.2"),
            (&["203.0.113.1, _hidden, 10.0.0.2"], "10.0.0.2"),
            (&["203.0.113.1, 10.0.0.256"], "10.0.0.1"),
            (&["203.0.113.1 10.0.0.2"], "10.0.0.1"),
            (&["203.0.113.1, 0.0.0.0"], "10.0.0.1"),
            (&["203.0.113.1, ::"], "10.0.0.1"),
            (&["203.0.113.1, fe80::1%eth0"], "10.0.0.1"),
            (&["203.0.113.1:99999"], "10.0.0.1"),
            (&["[203.0.113.1]"], "10.0.0.1"),
            (&["\"203.0.113.1"], "10.0.0.1"),
            // Nobody becomes local.
            (&["127.0.0.1"], "10.0.0.1"),
            (&["::1"], "10.0.0.1"),
            (&["::ffff:127.0.0.1"], "10.0.0.1"),
            (&["127.0.0.1, 10.0.0.2"], "10.0.0.2"),
        ] {
            let fields: Vec<_> = list.iter().map(|text| (FORWARDED_FOR, text.as_bytes())).collect();
            assert_eq!(client(&trusted, &proxy, &fields), expected, "{list:?}");
        }
        assert_eq!(client(&trusted, &proxy, &[(FORWARDED_FOR, b"203.0.113.1, \xff")]), "10.0.0.1");
    }

    #[test]
    fn forwarded_is_read_if_there_is_no_other_list() {
        let trusted = trusting(&["10.0.0.0/8"]);
        let proxy = connection(Some("10.0.0.1"));
        for (list, expected) in [
            (&["for=203.0.113.1"][..], "203.0.113.1"),
            (&["For=203.0.113.1;proto=https;by=10.0.0.1"], "203.0.113.1"),
            (&["proto=https ; FOR=\"203.0.113.1:80\""], "203.0.113.1"),
            (&["for=\"[2001:db8::1]:4711\""], "2001:db8::1"),
            (&["for=198.51.100.1, for=203.0.113.1, for=10.0.0.2"], "203.0.113.1"),
            // A proxy may quote the host that the client has asked for.
            (&["for=203.0.113.1;host=\"a\\\", for=198.51.100.1;y=\\\"\""], "203.0.113.1"),
            (&["host=\"a\\\";for=198.51.100.1;y=\\\"\";for=203.0.113.1"], "203.0.113.1"),
            (&["host=\"a\\\\\";for=203.0.113.1"], "203.0.113.1"),
            (&["for=198.51.100.1", "for=203.0.113.1"], "203.0.113.1"),
            (&["for=198.51.100.1;host=\"a,b\", for=10.0.0.2;host=\"a,b\""], "198.51.100.1"),
            (&["for=\"198.51.100.1, for=203.0.113.1"], "203.0.113.1"),
            (&["for=\"198.51.100.1", "for=203.0.113.1"], "203.0.113.1"),
            (&["for=unknown"], "10.0.0.1"),
            (&["for=_secret, for=10.0.0.2"], "10.0.0.2"),
            (&["for=203.0.113.1, proto=https"], "10.0.0.1"),
            (&["for=203.0.113.1;for=203.0.113.2"], "10.0.0.1"),
            (&["203.0.113.1"], "10.0.0.1"),
            (&["for=127.0.0.1"], "10.0.0.1"),
        ] {
            let fields: Vec<_> = list.iter().map(|text| (FORWARDED, text.as_bytes())).collect();
            assert_eq!(client(&trusted, &proxy, &fields), expected, "{list:?}");
        }
        // A proxy that writes the other field passes this one on as the client has sent it.
        for other in ["203.0.113.1", "unknown, 203.0.113.1"] {
            let both = [(FORWARDED, &b"for=198.51.100.1"[..]), (FORWARDED_FOR, other.as_bytes())];
            assert_eq!(client(&trusted, &proxy, &both), "203.0.113.1");
        }
        let both = [(FORWARDED, &b"for=198.51.100.1"[..]), (FORWARDED_FOR, b"unknown")];
        assert_eq!(client(&trusted, &proxy, &both), "10.0.0.1");
    }

    #[test]
    fn only_trusted_peers_are_believed() {
        let fields = [(FORWARDED_FOR, &b"203.0.113.1"[..])];
        for (trusted, from, expected) in [
            (&[][..], Some("10.0.0.1"), "10.0.0.1"),
            (&["10.0.0.0/8"], Some("192.0.2.1"), "192.0.2.1"),
            (&["10.0.0.0/8"], None, "unix"),
            (&["unix"], None, "203.0.113.1"),
            (&["unix"], Some("127.0.0.1"), "127.0.0.1"),
            (&["127.0.0.0/8"], Some("127.0.0.1"), "203.0.113.1"),
            (&["127.0.0.0/8"], Some("::ffff:127.0.0.1"), "203.0.113.1"),
        ] {
            let trusted = trusting(trusted);
            assert_eq!(client(&trusted, &connection(from), &fields), expected, "{from:?}");
        }
    }

    #[test]
    fn proxies_of_this_machine_may_be_in_the_list_and_are_no_clients_of_it() {
        let trusted = trusting(&["127.0.0.0/8", "::1", "unix", "10.0.0.0/8"]);
        for from in [Some("127.0.0.1"), None] {
            let from = connection(from);
            let list = |text: &'static [u8]| client(&trusted, &from, &[(FORWARDED_FOR, text)]);
            assert_eq!(list(b"203.0.113.1, 127.0.0.1"), "203.0.113.1");
            assert_eq!(list(b"203.0.113.1, 10.0.0.1, ::1"), "203.0.113.1");
            assert_eq!(list(b"127.0.0.1, 10.0.0.1"), "10.0.0.1");
            assert_eq!(list(b"::1"), client(&trusted, &from, &[]));
        }
    }

    #[test]
    fn the_length_of_the_way_is_bounded() {
        let trusted = trusting(&["10.0.0.0/8"]);
        let proxy = connection(Some("10.0.0.1"));
        for (hops, expected) in [(MOST_HOPS - 1, "203.0.113.1"), (MOST_HOPS, "10.0.0.2")] {
            let list = format!("203.0.113.1{}", ", 10.0.0.2".repeat(hops));
            assert_eq!(client(&trusted, &proxy, &[(FORWARDED_FOR, list.as_bytes())]), expected);
        }
    }

    #[test]
    fn the_peer_of_a_request_is_of_its_connection_otherwise() {
        let trusted = trusting(&["127.0.0.1"]);
        let from = connection(Some("127.0.0.1"));
        let peer = trusted.peer_of(&from, |_| [&b"203.0.113.1:77"[..]].into_iter());
        assert_eq!(peer.client, Some("203.0.113.1:77".parse().unwrap()));
        assert!(peer.is_proxied && peer.is_of_trusted_proxy());
        assert!(std::ptr::eq(peer.connection(), &*from));
        // Programs of this machine stay such, next to a proxy on it.
        let peer = trusted.peer_of(&from, |_| [].into_iter());
        assert_eq!((peer.client, peer.is_proxied), (from.client, false));
        assert!(!from.is_of_trusted_proxy() && std::ptr::eq(from.connection(), &*from));
    }

    proptest! {
        /// A client can put anything before the address that the proxy adds.
        #[test]
        fn no_forged_field_changes_the_client(
            forged in prop::collection::vec(
                prop_oneof![
                    prop::collection::vec(any::<u8>(), 0..40),
                    "[for=\"\\\\,; \\[\\]:.0-9a-f]{0,40}".prop_map(String::into_bytes),
                    r#"((for=)?"?(127\.0\.0\.1|::1|10\.0\.0\.7|unknown)"?,? ?){0,40}"#
                        .prop_map(String::into_bytes),
                ],
                0..4,
            ),
            is_joined: bool,
            (name, other) in prop_oneof![
                Just((FORWARDED_FOR, FORWARDED)),
                Just((FORWARDED, FORWARDED)),
            ],
            hops in 0_usize..4,
        ) {
            let trusted = trusting(&["10.0.0.0/8", "127.0.0.0/8", "::1", "unix"]);
            let added = |text: &str| match name {
                FORWARDED => format!("for={text}"),
                _ => text.to_owned(),
            };
            let mut lists = forged.clone();
            for address in std::iter::once("203.0.113.9").chain(["127.0.0.1", "10.0.0.2", "10.1.1.1"]).take(hops + 1) {
                match lists.last_mut().filter(|_| is_joined) {
                    Some(last) => {
                        last.extend_from_slice(b", ");
                        last.extend_from_slice(added(address).as_bytes());
                    }
                    None => lists.push(added(address).into_bytes()),
                }
            }
            let mut fields: Vec<(&str, &[u8])> =
                lists.iter().map(|list| (name, list.as_slice())).collect();
            if other != name {
                fields.extend(forged.iter().map(|list| (other, list.as_slice())));
            }
            for from in [Some("10.0.0.1"), Some("127.0.0.1"), None] {
                prop_assert_eq!(client(&trusted, &connection(from), &fields), "203.0.113.9");
            }
        }

        /// Whatever a trusted proxy says, its clients are not of this machine, and the work ends.
        #[test]
        fn nobody_becomes_local(
            list in r#"((for=)?"?(127\.0\.0\.1|::1|10\.0\.0\.7|0\.0\.0\.0|::ffff:127\.0\.0\.1|x)"?,? ?){0,60}"#,
        ) {
            let trusted = trusting(&["10.0.0.0/8", "127.0.0.0/8"]);
            for name in [FORWARDED_FOR, FORWARDED] {
                let client = client(&trusted, &connection(Some("10.0.0.1")), &[(name, list.as_bytes())]);
                // `::1` and another address without a comma between them are these two.
                let joined = ["::110.0.0.7", "::10.0.0.0"].map(|text| text.parse::<IpAddr>().unwrap());
                let is_expected = match client.parse::<IpAddr>().unwrap() {
                    IpAddr::V4(ip) => ip.octets()[0] == 10,
                    ip => joined.contains(&ip),
                };
                prop_assert!(is_expected, "{}", client);
            }
        }
    }
}
