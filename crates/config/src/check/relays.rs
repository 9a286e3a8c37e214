//! The rules of relays.

use std::collections::BTreeSet;
use std::ops::Range;

use toml::Spanned;

use super::{Check, host_name};
use crate::address::Address;
use crate::raw;
use crate::relay::{Relay, RelayEnd, RelayRoute};

/// The longest name of a protocol in ALPN (RFC 7301, section 3.1).
const LONGEST_PROTOCOL: usize = 255;

impl Check<'_> {
    pub(super) fn relay(&mut self, relay: Spanned<raw::Relay>, has_tls: bool) -> Option<Relay> {
        let place = relay.span();
        let raw::Relay { to, upstream, routes, names, idle, proxy_protocol } = relay.into_inner();
        let has_end = to.is_some() || upstream.is_some();
        let to = self.end(to, upstream);
        if !has_end && routes.is_empty() {
            let what = "the relay has no other end, expected to = ADDRESS or upstream = NAME";
            self.missing(place, what);
            return None;
        }
        if let (Some(names), false) = (&names, has_tls) {
            let what =
                "names are for the certificates of the listener, expected them only with tls";
            self.wrong(names.span(), what);
        }
        let (mut own, mut known) = (Vec::new(), BTreeSet::new());
        for name in names.map_or_else(Vec::new, Spanned::into_inner) {
            own.extend(self.server_name(name, &mut known));
        }
        let mut known = BTreeSet::new();
        let routes = routes.into_iter().filter_map(|route| self.relay_route(route, &mut known));
        let routes = routes.collect();
        Some(Relay { to, routes, names: own, idle, proxy_protocol: proxy_protocol.0 })
    }

    /// Checks the other end of a relay or of a route.
    fn end(
        &mut self,
        to: Option<Spanned<Address>>,
        upstream: Option<Spanned<String>>,
    ) -> Option<RelayEnd> {
        if let (Some(_), Some(upstream)) = (&to, &upstream) {
            let what = "a second other end, expected either to or upstream";
            self.wrong(upstream.span(), what);
        }
        if let Some(upstream) = upstream {
            self.known_upstream(upstream.span(), upstream.get_ref());
            return Some(RelayEnd::Upstream(upstream.into_inner()));
        }
        let to = to?;
        let place = to.span();
        let to = to.into_inner();
        if let Address::Tcp { port: 0, .. } = to {
            self.wrong(place.clone(), "port 0 cannot be connected to, expected 1 to 65535");
        }
        Some(RelayEnd::Address(self.address(place, to)))
    }

    fn relay_route(
        &mut self,
        route: Spanned<raw::RelayRoute>,
        known: &mut BTreeSet<String>,
    ) -> Option<RelayRoute> {
        let place = route.span();
        let raw::RelayRoute { server_names, to, upstream } = route.into_inner();
        if server_names.is_empty() {
            let what = "the route has no names, expected server_names = [\"example.org\"]";
            self.missing(place.clone(), what);
        }
        let names = server_names.into_iter().filter_map(|name| self.server_name(name, known));
        let server_names = names.collect();
        let has_end = to.is_some() || upstream.is_some();
        let to = self.end(to, upstream);
        if !has_end {
            let what = "the route has no other end, expected to = ADDRESS or upstream = NAME";
            self.missing(place, what);
        }
        Some(RelayRoute { server_names, to: to? })
    }

    /// Checks a name that clients ask for, and returns it in lower case.
    fn server_name(
        &mut self,
        name: Spanned<String>,
        known: &mut BTreeSet<String>,
    ) -> Option<String> {
        let place = name.span();
        let name = name.into_inner().to_ascii_lowercase();
        let what = match host_name(&name) {
            Err(what) => what,
            // RFC 6066, section 3.
            Ok(()) if name.contains(':') || name.parse::<std::net::Ipv4Addr>().is_ok() => {
                "clients ask for no address, expected a name as \"example.org\""
            }
            Ok(()) if known.insert(name.clone()) => return Some(name),
            Ok(()) => "it repeats another, expected each name once",
        };
        self.wrong(place, format!("{name:?} is no server name: {what}"));
        None
    }

    /// Checks the names of protocols for ALPN.
    pub(super) fn protocols(&mut self, protocols: Vec<Spanned<String>>) -> Vec<String> {
        for protocol in &protocols {
            let length = protocol.get_ref().len();
            if length == 0 || length > LONGEST_PROTOCOL {
                let what = format!("{:?} is no protocol of ALPN", protocol.get_ref());
                let expected = "expected one as \"postgresql\", of 1 to 255 bytes";
                self.wrong(protocol.span(), format!("{what}, {expected}"));
            }
        }
        protocols.into_iter().map(Spanned::into_inner).collect()
    }

    /// Refuses protocols for ALPN on a listener of HTTP, which has its own.
    pub(super) fn no_protocols_of_http(&mut self, place: Range<usize>) {
        let what = "a listener of HTTP offers h2 and http/1.1, expected alpn only with relay";
        self.wrong(place, what);
    }
}
