//! The rules of upstreams.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::time::Duration;

use toml::Spanned;

use super::Check;
use crate::address::Address;
use crate::dns::{Dns, ServerAddress};
use crate::model::{Balance, HealthKind, Server, Upstream};
use crate::raw;
use crate::rights::is_cookie_name;
use crate::scalar::ProxyProtocol;
use crate::sticky::{RawSticky, Sticky};

/// For how long an idle connection is kept: less than most servers do.
const USUAL_IDLE: Duration = Duration::from_secs(50);

/// The same for servers of FastCGI, and the age of their connections: each has a process of the
/// server, which requests without a connection wait for meanwhile.
const SCRIPTS_IDLE: Duration = Duration::from_millis(200);

/// The least length of a secret, in bytes.
const LEAST_SECRET: usize = 32;

impl Check<'_> {
    pub(super) fn upstream(
        &mut self,
        name: &Spanned<String>,
        upstream: Spanned<raw::Upstream>,
    ) -> Upstream {
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
            let raw::Server { address, weight, backup } = server.into_inner();
            let Some(address) = address else {
                self.missing(place, "the server has no address, expected address = \"HOST:PORT\"");
                continue;
            };
            let place = address.span();
            let address = match address.into_inner() {
                ServerAddress::Address(address) => {
                    ServerAddress::Address(self.address(place.clone(), address))
                }
                service @ ServerAddress::Service(_) => service,
            };
            if matches!(address, ServerAddress::Address(Address::Tcp { port: 0, .. })) {
                self.wrong(place.clone(), "nothing connects to port 0, expected 1 to 65535");
            }
            if !addresses.insert(address.to_string()) {
                let what = format!("another server of this upstream has the address {address}");
                self.wrong(place, format!("{what}, expected each once, with a weight"));
            }
            servers.push(Server { address, weight: weight.unwrap_or(NonZeroU32::MIN), backup });
        }
        if !servers.is_empty() && servers.iter().all(|server| server.backup) {
            let what = format!("all servers of the upstream {:?} are backups", name.get_ref());
            self.wrong(name.span(), format!("{what}, expected one that is none"));
        }
        let dns = self.dns(upstream.dns, &servers);
        if let (Some(eject), 1) = (&upstream.eject, servers.len())
            && !servers[0].address.is_looked_up()
        {
            let what = "the only server of an upstream is never left out, so eject has no effect";
            self.warn(eject.span(), what.to_owned());
        }
        if let (Some(slow_start), Balance::Hash) = (&upstream.slow_start, upstream.balance) {
            let what = "the server of a client follows from its address at once";
            let expected = "expected slow_start only with another balance than \"hash\"";
            self.wrong(slow_start.span(), format!("{what}, {expected}"));
        }
        let sticky = upstream.sticky.and_then(|sticky| self.sticky(sticky));
        let tls = upstream.tls.and_then(|tls| self.upstream_tls(tls, &servers));
        if let Some(health) = &upstream.health {
            let place = self.within(&health.span(), &["path"]);
            if health.get_ref().kind == HealthKind::Http {
                self.path(health.span(), &health.get_ref().path);
            } else if place != health.span() {
                let what = "a check by a connection asks for no path, expected path only with \
                            kind = \"http\"";
                self.wrong(place, what);
            }
        }
        let fastcgi = self.script_upstreams.contains(name.get_ref());
        if fastcgi {
            self.script_upstream(name, &upstream.proxy_protocol, upstream.h2, tls.is_some());
        }
        let idle = upstream.idle.unwrap_or(if fastcgi { SCRIPTS_IDLE } else { USUAL_IDLE });
        Upstream {
            servers,
            balance: upstream.balance,
            health: upstream.health.map(Spanned::into_inner),
            proxy_protocol: upstream.proxy_protocol.0,
            keep_alive: upstream.keep_alive.unwrap_or(if fastcgi { 4 } else { 1024 }),
            idle,
            lifetime: upstream.lifetime.or(fastcgi.then_some(SCRIPTS_IDLE)),
            fastcgi,
            h2: upstream.h2,
            tls,
            dns,
            eject: upstream.eject.map(Spanned::into_inner),
            sticky,
            slow_start: upstream.slow_start.map(Spanned::into_inner),
        }
    }

    /// Checks an upstream whose servers speak FastCGI.
    fn script_upstream(
        &mut self,
        name: &Spanned<String>,
        proxy_protocol: &ProxyProtocol,
        h2: bool,
        has_tls: bool,
    ) {
        let name_text = name.get_ref();
        if self.other_upstreams.contains(name_text) {
            let what =
                format!("the upstream {name_text:?} is for FastCGI and for another protocol");
            self.wrong(name.span(), format!("{what}, expected one upstream for each"));
        }
        let other = [(h2, "h2"), (has_tls, "tls"), (proxy_protocol.0.is_some(), "proxy_protocol")];
        for (_, key) in other.into_iter().filter(|(is_set, _)| *is_set) {
            let what = format!("the servers of the upstream {name_text:?} speak FastCGI");
            self.wrong(name.span(), format!("{what}, expected no {key}"));
        }
    }

    fn sticky(&mut self, sticky: Spanned<RawSticky>) -> Option<Sticky> {
        let (place, sticky) = (sticky.span(), sticky.into_inner());
        let Some(cookie) = sticky.cookie else {
            self.missing(place, "sticky without a cookie, expected cookie = NAME");
            return None;
        };
        if !is_cookie_name(&cookie) {
            let what = format!("{cookie:?} is no name of a cookie");
            let place = self.within(&place, &["cookie"]);
            self.wrong(place, format!("{what}, expected one as \"server\""));
        }
        let Some(secret) = sticky.secret else {
            let what = "sticky without a secret for the values of its cookies";
            self.missing(place, format!("{what}, expected secret = TEXT"));
            return None;
        };
        if secret.len() < LEAST_SECRET {
            let what = format!("the secret has {} bytes", secret.len());
            let place = self.within(&place, &["secret"]);
            self.wrong(place, format!("{what}, expected at least {LEAST_SECRET}"));
        }
        let path = sticky.path.unwrap_or_else(|| "/".to_owned());
        let path_place = self.within(&place, &["path"]);
        self.path(path_place.clone(), &path);
        if path.contains(';') {
            let what = format!("the path {path:?} of a cookie has a semicolon");
            self.wrong(path_place, format!("{what}, expected a path without one"));
        }
        let (same_site, max_age) = (sticky.same_site, sticky.max_age);
        Some(Sticky { cookie, secret, same_site, path, max_age })
    }

    fn dns(&mut self, dns: Option<Spanned<Dns>>, servers: &[Server]) -> Dns {
        let Some(dns) = dns else { return Dns::default() };
        let (place, dns) = (dns.span(), dns.into_inner());
        if dns.min_ttl > dns.max_ttl {
            let [least, most] = [dns.min_ttl, dns.max_ttl].map(humantime::format_duration);
            let what = format!("min_ttl is {least} and max_ttl {most}");
            let place = self.within(&place, &["min_ttl"]);
            self.wrong(place, format!("{what}, expected min_ttl to be at most max_ttl"));
        }
        if !servers.is_empty() && !servers.iter().any(|server| server.address.is_looked_up()) {
            let what = "no server of this upstream has a name that is looked up";
            self.warn(place, format!("{what}, so dns has no effect"));
        }
        dns
    }
}
