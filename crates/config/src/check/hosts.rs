//! The rules of virtual hosts: names, listeners and encryption.

use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;

use toml::Spanned;

use super::Check;
use super::rules::Of;
use crate::address::Address;
use crate::encryption::Https;
use crate::model::{Host, Listener};
use crate::raw;
use crate::raw_rules::ClientRules;
use crate::scalar::HstsText;

/// How long browsers use encrypted connections without asking again, if the configuration does not
/// say: a year, as the lists of browsers want it.
const HSTS: Duration = Duration::from_secs(365 * 24 * 60 * 60);

impl Check<'_> {
    pub(super) fn hosts(&mut self, raw: Vec<Spanned<raw::Host>>, served: &[Listener]) -> Vec<Host> {
        let mut names = BTreeSet::new();
        // The listeners of the default hosts so far; an empty list stands for the listeners that no
        // other default host has.
        let mut defaults: Vec<Vec<Address>> = Vec::new();
        let mut hosts = Vec::new();
        for host in raw {
            let place = host.span();
            let start = place.start;
            let host = host.into_inner();
            let mut own = Vec::new();
            // A host whose only name was wrong does not become the default host by that.
            let nameless = host.names.is_empty() && !self.holes.contains(&place.start);
            for name in host.names {
                let place = name.span();
                let name = name.into_inner().to_ascii_lowercase();
                if let Err(what) = host_name(&name) {
                    self.wrong(place, format!("{name:?} is no host name: {what}"));
                } else if !names.insert(name.clone()) {
                    let what =
                        format!("the host name {name:?} repeats another, expected each name once");
                    self.wrong(place, what);
                } else {
                    own.push(name);
                }
            }
            let said = host.default.as_ref().map(|default| (*default.get_ref(), default.span()));
            let default = nameless || said.as_ref().is_some_and(|(said, _)| *said);
            if nameless && let Some((false, place)) = &said {
                let what =
                    "a host without names is the default host, expected names or default = true";
                self.wrong(place.clone(), what);
            }
            if host.routes.is_empty() {
                self.missing(place.clone(), "the host has no routes, expected [[hosts.routes]]");
            }
            let listeners = self.host_listeners(host.listeners, served);
            if default {
                let is_shared = |other: &&Vec<Address>| match other.is_empty() {
                    true => listeners.is_empty(),
                    false => other.iter().any(|one| listeners.contains(one)),
                };
                if let Some(other) = defaults.iter().find(is_shared) {
                    let place = said.map_or(place, |(_, place)| place);
                    let shared = other.iter().find(|one| listeners.contains(one));
                    let of = shared.map_or_else(String::new, |one| format!(" of {one}"));
                    let what = format!(
                        "a second default host{of}, expected names, other listeners, or default = \
                         true on one host only"
                    );
                    self.wrong(place, what);
                }
                defaults.push(listeners.clone());
            }
            let https = self.https(host.https, host.hsts, &listeners, served);
            self.unencrypted = match https {
                Some(_) => None,
                None => unencrypted(&listeners, served),
            };
            let rules = ClientRules {
                allow: host.allow,
                deny: host.deny,
                rate: host.rate,
                basic_auth: host.basic_auth,
            };
            let (access, rate, basic_auth) = self.client_rules(rules, None);
            hosts.push(Host {
                names: own,
                default,
                addresses: false,
                listeners,
                https,
                headers: self.headers(host.headers, Of::Responses),
                errors: self.error_pages(host.errors),
                routes: self.routes(host.routes, (basic_auth.as_ref(), start)),
                access,
                rate,
                basic_auth,
            });
        }
        hosts
    }

    /// Checks the addresses of the listeners that serve a host.
    fn host_listeners(
        &mut self,
        asked: Option<Spanned<Vec<Spanned<Address>>>>,
        served: &[Listener],
    ) -> Vec<Address> {
        let Some(asked) = asked else { return Vec::new() };
        let place = asked.span();
        let mut addresses = Vec::new();
        for address in asked.into_inner() {
            let place = address.span();
            let address = self.address(place.clone(), address.into_inner());
            let known = served.iter().filter(|listener| listener.relay.is_none());
            if known.clone().all(|listener| listener.address != address) {
                let known: Vec<String> = known.map(|one| one.address.to_string()).collect();
                let known = known.join(", ");
                let what = format!("no listener of HTTP has the address {address}");
                self.missing(place, format!("{what}, expected one of {known}"));
            }
            addresses.push(address);
        }
        if addresses.is_empty() {
            let what = "a host on no listener, expected addresses of [[listeners]], or no such key";
            self.missing(place, what);
        }
        addresses
    }

    fn https(
        &mut self,
        https: Option<Spanned<raw::HttpsText>>,
        hsts: Option<Spanned<HstsText>>,
        on: &[Address],
        served: &[Listener],
    ) -> Option<Https> {
        let place: Range<usize> = https.as_ref().map(Spanned::span).unwrap_or_default();
        if https.is_none_or(|https| https.into_inner() == raw::HttpsText::Optional) {
            if let Some(hsts) = hsts {
                let what = "hsts is for hosts that are served over encrypted connections only";
                self.missing(
                    hsts.span(),
                    format!("{what}, expected https = \"always\" next to it"),
                );
            }
            return None;
        }
        let serves = |one: &&Listener| on.is_empty() || on.contains(&one.address);
        if !served.iter().filter(serves).any(|listener| listener.tls.is_some()) {
            let what = "no listener of this host is encrypted";
            self.missing(
                place.clone(),
                format!("{what}, expected tls = {{ ... }} on one of [[listeners]]"),
            );
        }
        let decrypted = |one: &Listener| one.tls.is_none() && one.proxy_protocol;
        if let Some(listener) = served.iter().filter(serves).find(|one| decrypted(one)) {
            let what = format!(
                "all requests to {} are redirected, although the proxy in front of it may have \
                 decrypted them, expected https = \"optional\" or other listeners of this host",
                listener.address
            );
            self.warn(place, what);
        }
        let hsts = hsts.map_or(Some(HSTS), |hsts| hsts.into_inner().0);
        Some(Https { hsts })
    }
}

/// Returns the first of the listeners of a host that clients on other machines use without
/// encryption.
fn unencrypted(on: &[Address], served: &[Listener]) -> Option<Address> {
    let is_plain = |one: &&Listener| one.tls.is_none() && one.relay.is_none();
    let is_far = |one: &&Listener| {
        let is_unix = matches!(one.address, Address::Unix(_));
        !is_unix && !one.proxy_protocol && !one.address.is_loopback()
    };
    let mut serving = served.iter().filter(|one| on.is_empty() || on.contains(&one.address));
    serving.find(|one| is_plain(one) && is_far(one)).map(|one| one.address.clone())
}

/// Checks the name of a host, in lower case; the error says why it is wrong.
pub(crate) fn host_name(name: &str) -> Result<(), &'static str> {
    let rest = name.strip_prefix("*.").unwrap_or(name);
    if rest.contains('*') {
        return Err("a wildcard stands at the start only, expected one as \"*.example.org\"");
    }
    if rest.contains(':') && rest.parse::<std::net::Ipv6Addr>().is_err() {
        return Err("it has a port, expected a name or an address alone");
    }
    let known = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:".contains(&byte);
    if rest.is_empty() || rest.len() > 253 || !rest.bytes().all(known) {
        return Err("expected letters, digits, hyphens and dots, other letters as xn--");
    }
    Ok(())
}
