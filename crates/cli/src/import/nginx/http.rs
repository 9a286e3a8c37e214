//! The servers of `http`: listeners, hosts and the settings of all of them.
//!
//! A name has one host here and a server for each port in nginx. So a server that only sends
//! clients to HTTPS becomes `https = "always"` of the host that has the name there.

use std::path::Path;

use super::super::directive::{Directive, Outcome};
use super::super::output::{HostTables, Output, Table, Value, add_certificates};
use super::super::source::{is_among, is_special};
use super::location::{Kind, Location, Locations};
use super::route::{Routes, is_redirect};
use super::scope::Scope;
use super::settings::{self, Totals};
use super::upstream::NamedUpstreams;
use super::verdict::sweep;

/// A `listen` of a server.
struct Listen<'a> {
    /// `None` for the one that nginx has by itself.
    directive: Option<&'a Directive>,
    address: String,
    is_encrypted: bool,
    is_default: bool,
    has_proxy: bool,
}

impl Listen<'_> {
    /// Returns a listener of an address without a directive.
    fn plain(address: String) -> Self {
        let (is_encrypted, is_default, has_proxy) = (false, false, false);
        Listen { directive: None, address, is_encrypted, is_default, has_proxy }
    }
}

/// A server.
struct Site<'a> {
    directive: &'a Directive,
    scope: Scope<'a>,
    listens: Vec<Listen<'a>>,
    names: Vec<String>,
    tables: HostTables,
}

impl<'a> Site<'a> {
    /// Whether all of its clients use encryption, or none.
    fn scheme(&self) -> Option<&'static str> {
        let encrypted = self.listens.iter().filter(|one| one.is_encrypted).count();
        match encrypted {
            _ if encrypted == self.listens.len() => Some("https"),
            0 => Some("http"),
            _ => None,
        }
    }

    /// Returns the directive that sends all clients to HTTPS, if the server has no more to say.
    fn sends_to_https(&self) -> Option<&'a Directive> {
        if self.listens.iter().any(|one| one.is_encrypted) {
            return None;
        }
        let is_away = |one: &&Directive| {
            let target = match one.name.as_str() {
                "return" if one.first().starts_with('3') => one.second(),
                "rewrite" if is_redirect(one) => one.second(),
                _ => return false,
            };
            let ends = ["$request_uri", "$uri", "/$1", "$1"];
            target.starts_with("https://")
                && ends.iter().any(|end| target.trim_end_matches('?').ends_with(end))
        };
        let level = self.directive.children();
        let own = level.iter().find(is_away);
        let in_root = level.iter().find(|one| one.name == "location" && one.first() == "/");
        // As certbot writes it: a condition for each name, and an answer for no name.
        let in_condition = level.iter().find(|one| {
            one.name == "if"
                && one.first().starts_with("($host")
                && one.children().iter().any(|child| is_away(&child))
        });
        own.or_else(|| in_root?.children().iter().find(is_away)).or(in_condition)
    }
}

/// Adds the servers of a level to the output.
pub(super) fn add_servers<'a>(
    level: &'a [Directive],
    folder: &Path,
    upstreams: &mut NamedUpstreams<'a>,
    output: &mut Output,
) -> Scope<'a> {
    let scope = Scope::new(level);
    settings::add(level, output);
    let servers = level.iter().filter(|one| one.name == "server");
    let mut sites: Vec<Site<'_>> = servers.map(|server| read(server, &scope)).collect();
    let mut totals = Totals::default();
    merge_addresses(&mut sites);
    let addresses = add_listeners(&mut sites, folder, output);
    join_names(&mut sites);
    let defaults = defaults(&sites);
    for (index, mut site) in sites.into_iter().enumerate() {
        site.listens.retain(|one| addresses.contains(&one.address));
        if site.directive.outcome() == Outcome::NotImported {
            output.top.not_imported(site.directive, "see below");
            continue;
        }
        if site.listens.is_empty() {
            continue;
        }
        name(&mut site, index, &defaults, &addresses);
        if site.tables.host.get("names").is_none()
            && site.tables.host.get("default").is_none()
            && !is_nameless(&site, index, &defaults)
        {
            output
                .top
                .not_imported(site.directive, "no request comes here: it has no name of its own");
            continue;
        }
        add_routes(&mut site, folder, upstreams, &mut totals);
        site.tables.share_rules();
        site.tables.host.lead_with(&["names", "default", "listeners"]);
        output.hosts.push(site.tables);
    }
    settings::finish(&totals, output);
    scope
}

/// Whether a server is for the names that no server has.
fn is_nameless(site: &Site<'_>, index: usize, defaults: &[(String, usize)]) -> bool {
    site.names.is_empty() && defaults.iter().any(|(_, default)| *default == index)
}

fn read<'a>(server: &'a Directive, scope: &Scope<'a>) -> Site<'a> {
    let scope = scope.below(server.children());
    let mut tables = HostTables::new();
    tables.host.comes_from(server);
    let mut listens = Vec::new();
    for directive in scope.own("listen") {
        match listen(directive) {
            Ok(listen) => listens.push(listen),
            Err(why) => tables.host.not_imported(directive, &why),
        }
    }
    if scope.own("listen").is_empty() {
        listens.push(Listen::plain(":80".to_owned()));
    }
    let mut names = Vec::new();
    for directive in scope.own("server_name") {
        for name in &directive.words {
            let name = name.to_ascii_lowercase();
            let is_wild = |rest: &str| rest.contains(['*', '~', '$', '/']);
            if name.starts_with('~') {
                tables
                    .host
                    .not_imported(directive, "a host has names and wildcards, and no expressions");
            } else if let Some(rest) = name.strip_prefix('.') {
                names.extend([rest.to_owned(), format!("*.{rest}")]);
            } else if is_wild(name.strip_prefix("*.").unwrap_or(&name)) {
                tables.host.not_imported(directive, "a wildcard stands at the start of a name");
            } else if !name.contains(|one: char| one.is_ascii_alphanumeric()) {
                // `_` and the empty name are those that no request has.
                directive.note(Outcome::NotNeeded);
            } else {
                names.push(name);
            }
        }
        if directive.outcome() == Outcome::NotNeeded {
            tables
                .host
                .not_needed(directive, "a host without names, or a default host, has all others");
        }
    }
    names.dedup();
    Site { directive: server, scope, listens, names, tables }
}

fn listen(directive: &Directive) -> Result<Listen<'_>, String> {
    let options = &directive.words[1.min(directive.words.len())..];
    let has = |option: &str| options.iter().any(|one| one == option);
    if has("quic") || has("udp") {
        return Err("HTTP/2 is the newest version here, and TCP the protocol below it".to_owned());
    }
    Ok(Listen {
        directive: Some(directive),
        address: listen_address(directive.first())?,
        is_encrypted: has("ssl"),
        is_default: has("default_server") || has("default"),
        has_proxy: has("proxy_protocol"),
    })
}

/// Returns an address to listen on, as it is written here.
pub(super) fn listen_address(text: &str) -> Result<String, String> {
    let (host, port) = match text.rfind(']').map_or(0, |end| end + 1) {
        _ if text.starts_with("unix:") => return Ok(text.to_owned()),
        _ if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) => ("", text),
        end => match text[end..].rfind(':') {
            Some(colon) => (&text[..end + colon], &text[end + colon + 1..]),
            None => (text, "80"),
        },
    };
    if port.parse::<u16>().is_err() {
        return Err(format!("{port} is no port"));
    }
    Ok(match host {
        "*" | "0.0.0.0" | "[::]" => format!(":{port}"),
        "localhost" => format!("127.0.0.1:{port}"),
        host => format!("{host}:{port}"),
    })
}

/// Leaves out addresses that a listener on all addresses has as well.
fn merge_addresses(sites: &mut [Site<'_>]) {
    let all: Vec<String> =
        sites.iter().flat_map(|site| &site.listens).map(|one| one.address.clone()).collect();
    for site in sites {
        for listen in &mut site.listens {
            let Some((host, port)) = listen.address.rsplit_once(':') else { continue };
            let whole = format!(":{port}");
            if !host.is_empty() && host != "unix" && all.contains(&whole) {
                if let Some(directive) = listen.directive {
                    let what = format!("the listener {whole} has this address as well");
                    site.tables.host.remark(directive, &what);
                }
                listen.address = whole;
            }
        }
    }
}

/// Adds the listeners, and returns their addresses.
fn add_listeners(sites: &mut [Site<'_>], folder: &Path, output: &mut Output) -> Vec<String> {
    let mut addresses: Vec<String> = Vec::new();
    for address in sites.iter().flat_map(|site| &site.listens).map(|one| one.address.clone()) {
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    addresses.retain(|address| {
        let uses = || {
            sites
                .iter()
                .flat_map(|site| site.listens.iter().map(move |one| (site, one)))
                .filter(|(_, one)| one.address == *address)
        };
        let mut table = Table::new("[[listeners]]");
        let from: Vec<&Directive> = uses().filter_map(|(_, one)| one.directive).collect();
        table.set("address", address.as_str(), &from);
        for directive in &from {
            let known = "ssl http2 default_server default proxy_protocol ipv6only ipv6only=* spdy";
            let ignored = |word: &&String| !is_among(known, word);
            for word in directive.words.iter().skip(1).filter(ignored) {
                table.comment(&format!("{}: \"{word}\" of listen is not needed", directive.place));
            }
        }
        if uses().any(|(_, one)| one.has_proxy) {
            table.set("proxy_protocol", true, &[]);
        }
        if uses().any(|(_, one)| one.is_encrypted)
            && !encrypt(uses().map(|(site, one)| (site, one.is_default)), folder, &mut table)
        {
            for directive in from {
                output.top.not_imported(
                    directive,
                    "no ssl_certificate; tls of a listener may have acme = \"MAIL\"",
                );
            }
            return false;
        }
        output.listeners.push(table);
        true
    });
    addresses
}

/// Sets the certificates of a listener; `false` if there are none.
fn encrypt<'s, 'a: 's>(
    sites: impl Iterator<Item = (&'s Site<'a>, bool)>,
    folder: &Path,
    table: &mut Table,
) -> bool {
    let mut sites: Vec<_> = sites.collect();
    // The first certificate is for clients that ask for no name.
    sites.sort_by_key(|(_, is_default)| !is_default);
    let (mut pairs, mut from, mut tls) = (Vec::new(), Vec::new(), Value::Null);
    let path = |one: &Directive| Value::from(folder.join(one.first()).display().to_string());
    for (site, _) in sites {
        let scope = &site.scope;
        let certificates = scope.all(&["ssl_certificate"]);
        for (certificate, key) in certificates.into_iter().zip(scope.all(&["ssl_certificate_key"]))
        {
            from.extend([certificate, key]);
            pairs.push((path(certificate), path(key)));
        }
        if let Some(protocols) = scope.last("ssl_protocols") {
            let has = |version: &str| protocols.words.iter().any(|word| word == version);
            match (has("TLSv1.2"), has("TLSv1.3")) {
                (false, true) => {
                    tls["min_version"] = "1.3".into();
                    from.push(protocols);
                }
                _ if has("TLSv1") || has("TLSv1.1") => {
                    table.not_imported(protocols, "the oldest version is TLS 1.2")
                }
                _ => table.not_needed(protocols, "TLS 1.2 and 1.3 are the default"),
            }
        }
        if let (Some(ca), Some(verify)) =
            (scope.last("ssl_client_certificate"), scope.last("ssl_verify_client"))
            && matches!(verify.first(), "on" | "optional")
        {
            tls["client_ca"] = path(ca);
            let rule = if verify.first() == "on" { "required" } else { "optional" };
            tls["client_certificates"] = rule.into();
            from.extend([ca, verify]);
        }
    }
    let has_certificates = add_certificates(&mut tls, pairs);
    if has_certificates {
        table.set("tls", tls, &from);
    }
    has_certificates
}

/// Gives each name one server. A server that sends clients to HTTPS becomes a part of another.
fn join_names(sites: &mut [Site<'_>]) {
    for index in 0..sites.len() {
        let Some(away) = sites[index].sends_to_https() else { continue };
        let names = sites[index].names.clone();
        let mut joined = Vec::new();
        let plain: Vec<String> =
            sites[index].listens.iter().map(|one| one.address.clone()).collect();
        let sender = (sites[index].directive, sites[index].scope.own("server_name"));
        let from: Vec<_> = sites[index].scope.own("listen");
        for other in sites.iter_mut() {
            let is_encrypted = other.listens.iter().any(|one| one.is_encrypted);
            let shares = other.names.iter().any(|name| names.contains(name));
            if !is_encrypted || !(shares || names.is_empty() && !other.names.is_empty()) {
                continue;
            }
            let host = &mut other.tables.host;
            host.comes_from(sender.0);
            sender.1.iter().for_each(|names| host.cite("https", &[names]));
            host.cite("https", &from);
            host.set("https", "always", &[away]);
            host.set("hsts", "off", &[]);
            host.remark(away, "the status is 308, and the host stays that of the request");
            for address in &plain {
                if other.listens.iter().all(|one| one.address != *address) {
                    other.listens.push(Listen::plain(address.clone()));
                }
            }
            joined.extend(other.names.iter().filter(|name| names.contains(name)).cloned());
        }
        let site = &mut sites[index];
        let has_names = !site.names.is_empty();
        site.names.retain(|name| !joined.contains(name));
        if has_names && site.names.is_empty() {
            // Nothing is left of it but what the other server cannot have.
            let host =
                sites.iter_mut().find(|other| other.names.iter().any(|name| joined.contains(name)));
            if let Some(host) = host {
                let why = "all requests without encryption go to HTTPS; acme in tls \
                           gets certificates";
                for child in sender.0.children() {
                    match (child.outcome(), child.name.as_str()) {
                        (_, "location")
                            if std::ptr::eq(child, away)
                                || child.children().iter().any(|one| std::ptr::eq(one, away)) =>
                        {
                            host.tables.host.cite("https", &[child]);
                            sweep(child.children(), &mut host.tables.host);
                        }
                        (Outcome::Unknown, "location") => host.tables.host.not_imported(child, why),
                        (_, "if") if child.children().iter().all(|one| one.name == "return") => {
                            host.tables.host.not_needed(child, why);
                        }
                        (Outcome::Unknown, "return" | "root" | "server_name") => {
                            host.tables.host.not_needed(child, why)
                        }
                        _ => {}
                    }
                }
                sweep(sender.0.children(), &mut host.tables.host);
            }
            sites[index].listens.clear();
        }
    }
    let mut taken: Vec<String> = Vec::new();
    for site in sites.iter_mut().filter(|site| !site.listens.is_empty()) {
        let all = site.names.len();
        site.names.retain(|name| !taken.contains(name));
        taken.extend(site.names.iter().cloned());
        if site.names.len() < all {
            let why = "a name has one host here, and another server has it";
            if site.names.is_empty() {
                site.directive.note_all(Outcome::NotImported);
                continue;
            }
            for names in site.scope.own("server_name") {
                site.tables.host.not_imported(names, why);
            }
        }
    }
}

/// Returns the server that each address has for names of no server, by its index.
fn defaults(sites: &[Site<'_>]) -> Vec<(String, usize)> {
    let mut defaults: Vec<(String, usize, bool)> = Vec::new();
    for (index, site) in sites.iter().enumerate() {
        for listen in &site.listens {
            match defaults.iter_mut().find(|(address, ..)| *address == listen.address) {
                None => defaults.push((listen.address.clone(), index, listen.is_default)),
                Some((_, default, is_said)) if listen.is_default && !*is_said => {
                    (*default, *is_said) = (index, true)
                }
                Some(_) => {}
            }
        }
    }
    defaults.into_iter().map(|(address, index, _)| (address, index)).collect()
}

/// Writes the names and the listeners of a host.
fn name(site: &mut Site<'_>, index: usize, defaults: &[(String, usize)], addresses: &[String]) {
    let host = &mut site.tables.host;
    let names: Vec<&Directive> = site.scope.own("server_name");
    let is_default_of = |address: &String| defaults.contains(&(address.clone(), index));
    let mut own: Vec<String> = Vec::new();
    for listen in &site.listens {
        if !own.contains(&listen.address)
            && (!site.names.is_empty() || is_default_of(&listen.address))
        {
            own.push(listen.address.clone());
        }
    }
    if !site.names.is_empty() {
        host.set("names", site.names.clone(), &names);
        if own.iter().all(is_default_of) {
            let said = site.listens.iter().find(|one| one.is_default).and_then(|one| one.directive);
            host.set("default", true, said.as_slice());
            if said.is_none() {
                let what = "The first server of an address has all other names; without default they get 421.";
                host.comment(what);
            }
        } else if own.iter().any(is_default_of) {
            host.comment(
                "A host is the default of all its listeners or of none: other names get 421 here.",
            );
        }
    } else {
        names.iter().for_each(|names| host.cite("listeners", &[names]));
    }
    if own.len() < addresses.len() {
        host.set("listeners", own, &[]);
    }
}

fn add_routes<'a>(
    site: &mut Site<'a>,
    folder: &Path,
    upstreams: &mut NamedUpstreams<'a>,
    totals: &mut Totals<'a>,
) {
    let level = site.directive.children();
    let locations = Locations::read(level, &site.scope);
    for (directive, why) in &locations.refused {
        site.tables.host.not_imported(directive, why);
    }
    let scheme = site.scheme();
    let name = site.names.first().cloned().unwrap_or_else(|| "$host".to_owned());
    let mut routes = Routes { locations: &locations, upstreams, totals, scheme, name, folder };
    let kind = Kind::Prefix { is_first: false };
    let whole = Location { kind, path: "/".to_owned(), directive: None, scope: site.scope.clone() };
    let mut made: Vec<Table> = Vec::new();
    if let Some(answer) = site.scope.own_first("return") {
        made.push(routes.route(&whole));
        for location in level.iter().filter(|one| one.name == "location") {
            let why = format!("line {} answers all requests", answer.place.line);
            site.tables.host.not_needed(location, &why);
        }
    } else {
        for rewrite in site.scope.own("rewrite").into_iter().filter(|one| is_redirect(one)) {
            let mut table = Table::new("[[hosts.routes]]");
            table.comes_from(rewrite);
            let action = routes.rewrite_away(rewrite, &mut table);
            table.act(rewrite, action);
            made.push(table);
        }
        let order = |location: &&Location<'_>| match location.kind {
            Kind::Exact => 0,
            Kind::Expression(_) => 1,
            _ => 2,
        };
        let mut all: Vec<&Location<'a>> = locations.all.iter().collect();
        all.sort_by_key(order);
        let mut known: Vec<String> = Vec::new();
        all.retain(|one| !matches!(one.kind, Kind::Named) && !one.is_internal());
        for location in all {
            if matches!(location.kind, Kind::Prefix { .. }) {
                let same = location.path.trim_end_matches('/').to_owned();
                if known.contains(&same) {
                    if let Some(directive) = location.directive {
                        let why = "another location has this path, but for a slash at the end";
                        site.tables.host.not_imported(directive, why);
                    }
                    continue;
                }
                known.push(same);
            }
            let mut table = routes.route(location);
            say_order(location, &locations, &mut table);
            made.push(table);
        }
        if !known.contains(&String::new()) {
            made.push(routes.route(&whole));
        }
    }
    spell_alike(&mut made);
    site.tables.routes = made;
    // What error pages and other locations have asked for is in their routes.
    for location in locations.all.iter().filter_map(|one| one.directive) {
        sweep(location.children(), &mut site.tables.host);
        if location.outcome() == Outcome::Unknown {
            site.tables
                .host
                .not_imported(location, "no other location that is imported asks for it");
        }
    }
    sweep(level, &mut site.tables.host);
}

/// Says where an expression comes first in nginx, and a longer path here.
fn say_order(location: &Location<'_>, locations: &Locations<'_>, table: &mut Table) {
    let is_later =
        matches!(location.kind, Kind::Prefix { is_first: false }) && location.path != "/";
    let Some(directive) = location.directive.filter(|_| is_later) else { return };
    let first = locations.all.iter().filter(|one| match &one.kind {
        Kind::Expression(expression) => {
            one.path == "/" && may_be_below(expression.as_str(), &location.path)
        }
        _ => false,
    });
    let first: Vec<String> =
        first.filter_map(|one| Some(one.directive?.place.line.to_string())).collect();
    if !first.is_empty() {
        let lines = first.join(", ");
        let order = "before; here this path counts first";
        table.remark(directive, &format!("nginx tries the expressions of lines {lines} {order}"));
    }
}

/// Whether an expression may fit a path below another.
fn may_be_below(expression: &str, path: &str) -> bool {
    let Some(rest) = expression.strip_prefix("(?i)").unwrap_or(expression).strip_prefix('^') else {
        return true;
    };
    let literal = rest.split(is_special).next().unwrap_or_default();
    // The last character may be optional.
    let literal = literal.get(..literal.len().saturating_sub(1)).unwrap_or_default();
    literal.starts_with(path) || path.starts_with(literal)
}

/// Gives routes of one path the same spelling, with or without a slash at the end.
fn spell_alike(routes: &mut [Table]) {
    let path = |table: &Table| match table.get("path") {
        Some(Value::String(path)) => path.clone(),
        _ => "/".to_owned(),
    };
    let plain = routes.iter().filter(|one| one.get("match").is_none());
    let mut known: Vec<String> = plain.map(path).collect();
    for table in routes.iter_mut().filter(|one| one.get("match").is_some()) {
        let own = path(table);
        let plain = own.trim_end_matches('/');
        match known.iter().find(|other| other.trim_end_matches('/') == plain) {
            Some(other) if *other != own => table.set("path", other.clone(), &[]),
            Some(_) => {}
            None => known.push(own),
        }
    }
}
