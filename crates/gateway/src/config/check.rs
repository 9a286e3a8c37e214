//! What types cannot say: from what is written to what is meant, or to the list of what is wrong with it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::num::NonZeroU32;
use std::ops::Range;

use futures_rustls::rustls::pki_types::ServerName;
use toml::Spanned;

use super::model::{
    Action, Config, Host, Listener, Proxy, Redirect, Relay, Route, Server, Tls, Upstream,
    UpstreamTls,
};
use super::raw;
use crate::Address;

/// A mistake and its place in the text, in bytes.
pub(super) type Found = (Range<usize>, String);

/// Stands for the whole text where tables are told by their beginning: a table may begin at 0.
pub(super) const ROOT: usize = usize::MAX;

/// Turns what is written into what is meant, and writes down what is wrong.
pub(super) struct Check<'a> {
    /// The names of all upstreams, those with mistakes too.
    pub(super) upstreams: &'a BTreeSet<String>,
    /// Where the tables begin that lack a key or an element only since a mistake was taken out of them.
    pub(super) holes: &'a BTreeSet<usize>,
    /// What is wrong.
    pub(super) found: Vec<Found>,
}

impl Check<'_> {
    fn wrong(&mut self, place: Range<usize>, what: impl Into<String>) {
        self.found.push((place, what.into()));
    }

    /// Says what is missing in a table, unless a mistake has been told that explains it.
    fn missing(&mut self, table: Range<usize>, what: impl Into<String>) {
        if !self.holes.contains(&table.start) {
            self.wrong(table, what);
        }
    }

    pub(super) fn config(&mut self, raw: raw::Config) -> Config {
        let is_whole = !self.holes.contains(&ROOT);
        if raw.listeners.is_empty() && is_whole {
            self.wrong(0..0, "no listener, expected [[listeners]] with an address");
        }
        let has_hosts = !raw.hosts.is_empty();
        let mut seen = HashMap::new();
        let mut listeners = Vec::new();
        for listener in raw.listeners {
            let place = listener.span();
            if let Some(address) = &listener.get_ref().address {
                let any = matches!(address.get_ref().0, Address::Tcp { port: 0, .. });
                let before = seen.insert(address.get_ref().0.to_string(), ());
                if before.is_some() && !any {
                    let what = format!("another listener has the address {}", address.get_ref().0);
                    self.wrong(address.span(), format!("{what}, expected each address once"));
                }
            }
            if listener.get_ref().relay.is_none() && !has_hosts && is_whole {
                let what = "the listener has nothing to serve, expected [[hosts]] or relay = { to = ADDRESS }";
                self.missing(place.clone(), what);
            }
            listeners.extend(self.listener(place, listener.into_inner()));
        }
        let hosts = self.hosts(raw.hosts);
        let mut upstreams = BTreeMap::new();
        for (name, upstream) in raw.upstreams {
            let upstream = self.upstream(&name, upstream);
            upstreams.insert(name.into_inner(), upstream);
        }
        if let Some(metrics) = &raw.metrics {
            self.path(metrics.span(), &metrics.get_ref().path);
        }
        Config {
            listeners,
            hosts,
            upstreams,
            timeouts: raw.timeouts,
            limits: raw.limits,
            access_log: raw.access_log,
            metrics: raw.metrics.map(Spanned::into_inner),
        }
    }

    fn listener(&mut self, place: Range<usize>, raw: raw::Listener) -> Option<Listener> {
        if let (Some(tls), Some(_)) = (&raw.tls, &raw.relay) {
            let what =
                "a listener that relays passes TLS on as it is, expected tls or relay, not both";
            self.wrong(tls.span(), what);
        }
        let tls = raw.tls.and_then(|tls| self.tls(tls));
        let relay = raw.relay.and_then(|relay| {
            let place = relay.span();
            let to = relay.into_inner().to;
            if to.is_none() {
                self.missing(place, "the relay has no other end, expected to = ADDRESS");
            }
            to.map(|to| Relay { to: to.0 })
        });
        let Some(address) = raw.address else {
            self.missing(place, "the listener has no address, expected address = \"HOST:PORT\"");
            return None;
        };
        let address = address.into_inner().0;
        Some(Listener { address, tls, proxy_protocol: raw.proxy_protocol, relay })
    }

    fn tls(&mut self, tls: Spanned<raw::Tls>) -> Option<Tls> {
        let place = tls.span();
        match tls.into_inner() {
            raw::Tls { certificate: Some(certificate), key: Some(key) } => {
                return Some(Tls { certificate, key });
            }
            raw::Tls { certificate: Some(_), key: None } => {
                self.missing(place, "a certificate without a key, expected key = FILE beside it");
            }
            raw::Tls { certificate: None, key: Some(_) } => {
                self.missing(
                    place,
                    "a key without a certificate, expected certificate = FILE beside it",
                );
            }
            raw::Tls { certificate: None, key: None } => {
                self.missing(
                    place,
                    "tls without files, expected certificate = FILE and key = FILE",
                );
            }
        }
        None
    }

    fn hosts(&mut self, raw: Vec<Spanned<raw::Host>>) -> Vec<Host> {
        let mut names = BTreeSet::new();
        let mut has_default = false;
        let mut hosts = Vec::new();
        for host in raw {
            let place = host.span();
            let host = host.into_inner();
            let mut own = Vec::new();
            // A host whose only name was wrong is no default host for that.
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
            if default && has_default {
                let place = said.map_or(place.clone(), |(_, place)| place);
                let what =
                    "a second default host, expected names, or default = true on one host only";
                self.wrong(place, what);
            }
            has_default |= default;
            if host.routes.is_empty() {
                self.missing(place, "the host has no routes, expected [[hosts.routes]]");
            }
            let routes = self.routes(host.routes);
            hosts.push(Host { names: own, default, routes });
        }
        hosts
    }

    fn routes(&mut self, raw: Vec<Spanned<raw::Route>>) -> Vec<Route> {
        let mut paths = BTreeSet::new();
        let mut routes = Vec::new();
        for route in raw {
            let place = route.span();
            let mut route = route.into_inner();
            let path = route.path.take();
            let path_place = path.as_ref().map_or(place.clone(), Spanned::span);
            let path = path.map_or_else(|| "/".to_owned(), Spanned::into_inner);
            self.path(path_place.clone(), &path);
            // `/a` and `/a/` stand for the same requests but one.
            let same = path.trim_end_matches('/').to_owned();
            if !paths.insert(same) && !self.holes.contains(&place.start) {
                let what = format!("the path {path:?} repeats that of another route of this host");
                self.wrong(path_place, format!("{what}, expected each path once"));
            }
            if let Some(action) = self.action(place, route) {
                routes.push(Route { path, action });
            }
        }
        routes
    }

    fn action(&mut self, place: Range<usize>, route: raw::Route) -> Option<Action> {
        let spans = [
            route.files.as_ref().map(Spanned::span),
            route.redirect.as_ref().map(Spanned::span),
            route.channel.as_ref().map(Spanned::span),
            route.proxy.as_ref().map(Spanned::span),
        ];
        let mut given: Vec<_> = spans.into_iter().flatten().collect();
        given.sort_by_key(|span| span.start);
        let kinds = "files, redirect, channel or proxy";
        if let Some(second) = given.get(1) {
            self.wrong(
                second.clone(),
                format!("a second action of one route, expected one of {kinds}"),
            );
        } else if given.is_empty() {
            self.missing(place, format!("the route does nothing, expected one of {kinds}"));
        }
        let files = route.files.and_then(|files| self.files(files));
        let redirect = route.redirect.and_then(|redirect| self.redirect(redirect));
        let proxy = route.proxy.and_then(|proxy| self.proxy(proxy));
        let channel = route.channel.map(Spanned::into_inner).map(Action::Channel);
        files.map(Action::Files).or(redirect.map(Action::Redirect)).or(channel).or(proxy)
    }

    fn files(&mut self, files: Spanned<super::model::Files>) -> Option<super::model::Files> {
        let place = files.span();
        let files = files.into_inner();
        if files.root.as_os_str().is_empty() {
            self.missing(place, "files without a folder, expected root = FOLDER");
            return None;
        }
        if let Some(name) =
            files.index.iter().find(|name| name.is_empty() || name.contains(['/', '\0']))
        {
            let what = format!("the index file {name:?} is no name of a file");
            self.wrong(place, format!("{what}, expected one as \"index.html\""));
        }
        Some(files)
    }

    fn redirect(&mut self, redirect: Spanned<raw::Redirect>) -> Option<Redirect> {
        let place = redirect.span();
        let redirect = redirect.into_inner();
        let status = redirect.status.map_or(308, |status| {
            if !matches!(status.get_ref(), 301 | 302 | 303 | 307 | 308) {
                let what = format!("{} is no status of a redirect", status.get_ref());
                self.wrong(status.span(), format!("{what}, expected 301, 302, 303, 307 or 308"));
            }
            status.into_inner()
        });
        let Some(to) = redirect.to else {
            self.missing(place, "a redirect to nowhere, expected to = URL");
            return None;
        };
        if to.get_ref().is_empty() || http::HeaderValue::from_str(to.get_ref()).is_err() {
            let what = format!("{:?} is no URL", to.get_ref());
            self.wrong(
                to.span(),
                format!("{what}, expected one as \"https://example.org/\" or \"/path\""),
            );
        }
        Some(Redirect { to: to.into_inner(), status })
    }

    fn proxy(&mut self, proxy: Spanned<raw::Proxy>) -> Option<Action> {
        let place = proxy.span();
        let proxy = proxy.into_inner();
        let Some(upstream) = proxy.upstream else {
            self.missing(place, "a proxy to nobody, expected upstream = NAME");
            return None;
        };
        if !self.upstreams.contains(upstream.get_ref()) {
            let known: Vec<_> = self.upstreams.iter().map(String::as_str).collect();
            let known = match known.as_slice() {
                [] => format!("[upstreams.{}]", upstream.get_ref()),
                known => known.join(", "),
            };
            let what = format!("the upstream {:?} is not defined", upstream.get_ref());
            self.wrong(upstream.span(), format!("{what}, expected {known}"));
        }
        if let Some(host) = &proxy.host
            && !is_authority(host.get_ref())
        {
            let what = format!("{:?} is no host", host.get_ref());
            self.wrong(host.span(), format!("{what}, expected one as \"example.org\""));
        }
        Some(Action::Proxy(Proxy {
            upstream: upstream.into_inner(),
            strip_path: proxy.strip_path,
            retries: proxy.retries.unwrap_or(1),
            host: proxy.host.map(Spanned::into_inner),
            trust_forwarded: proxy.trust_forwarded,
        }))
    }

    fn upstream(&mut self, name: &Spanned<String>, upstream: Spanned<raw::Upstream>) -> Upstream {
        let place = upstream.span();
        let upstream = upstream.into_inner();
        if upstream.servers.is_empty() && !self.holes.contains(&place.start) {
            let what = format!("the upstream {:?} has no servers", name.get_ref());
            self.wrong(
                name.span(),
                format!("{what}, expected servers = [{{ address = ADDRESS }}]"),
            );
        }
        let mut addresses = BTreeSet::new();
        let mut servers = Vec::new();
        for server in upstream.servers {
            let place = server.span();
            let raw::Server { address, weight } = server.into_inner();
            let Some(address) = address else {
                self.missing(place, "the server has no address, expected address = \"HOST:PORT\"");
                continue;
            };
            let place = address.span();
            let address = address.into_inner().0;
            if matches!(address, Address::Tcp { port: 0, .. }) {
                self.wrong(place.clone(), "nothing connects to port 0, expected 1 to 65535");
            }
            if !addresses.insert(address.to_string()) {
                let what = format!("another server of this upstream has the address {address}");
                self.wrong(place, format!("{what}, expected each once, with a weight"));
            }
            servers.push(Server { address, weight: weight.unwrap_or(NonZeroU32::MIN) });
        }
        let tls = upstream.tls.and_then(|tls| self.upstream_tls(tls, &servers));
        if let Some(health) = &upstream.health {
            self.path(health.span(), &health.get_ref().path);
        }
        Upstream {
            servers,
            balance: upstream.balance,
            health: upstream.health.map(Spanned::into_inner),
            proxy_protocol: upstream.proxy_protocol.0,
            keep_alive: upstream.keep_alive.unwrap_or(32),
            h2: upstream.h2,
            tls,
        }
    }

    fn upstream_tls(
        &mut self,
        tls: Spanned<raw::UpstreamTls>,
        servers: &[Server],
    ) -> Option<UpstreamTls> {
        let place = tls.span();
        let raw::UpstreamTls { ca, server_name } = tls.into_inner();
        match &server_name {
            Some(name) if ServerName::try_from(name.get_ref().as_str()).is_err() => {
                let what = format!("{:?} is no name of a server", name.get_ref());
                self.wrong(name.span(), format!("{what}, expected one as \"example.org\""));
            }
            None if servers.iter().any(|server| matches!(server.address, Address::Unix(_))) => {
                let what = "a server in the Unix domain has no name that a certificate could have";
                self.missing(place.clone(), format!("{what}, expected server_name = NAME"));
            }
            _ => {}
        }
        let Some(ca) = ca else {
            let what = "tls without certificates that vouch for the servers";
            self.missing(place, format!("{what}, expected ca = FILE"));
            return None;
        };
        Some(UpstreamTls { ca, server_name: server_name.map(Spanned::into_inner) })
    }

    fn path(&mut self, place: Range<usize>, path: &str) {
        let is_path = path.starts_with('/') && path.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_path || path.contains(['?', '#']) {
            let what = format!("{path:?} is no path of a URL");
            self.wrong(place, format!("{what}, expected one as \"/images\", percent-encoded"));
        }
    }
}

fn host_name(name: &str) -> Result<(), &'static str> {
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

fn is_authority(text: &str) -> bool {
    text.parse::<http::uri::Authority>().is_ok() && !text.contains('@')
}
