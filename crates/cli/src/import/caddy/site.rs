//! Sites of a Caddyfile: hosts, and listeners with their certificates.

use std::net::IpAddr;

use super::super::directive::{Directive, Outcome};
use super::super::output::caddy_text as text;
use super::super::output::{HostTables, Output, Table, Value, add_certificates, json};
use super::super::upstreams::Upstreams;
use super::route::{MOST_LOOKS, Routes};

/// The global options that sites look at.
pub(super) struct Settings<'a> {
    pub(super) email: Option<&'a Directive>,
    pub(super) directory: Option<&'a Directive>,
    pub(super) is_local: Option<&'a Directive>,
    pub(super) without_redirects: Option<&'a Directive>,
    pub(super) http_port: String,
    pub(super) https_port: String,
}

impl Default for Settings<'_> {
    fn default() -> Self {
        let (http_port, https_port) = ("80".to_owned(), "443".to_owned());
        let (email, directory, is_local, without_redirects) = (None, None, None, None);
        Settings { email, directory, is_local, without_redirects, http_port, https_port }
    }
}

/// Where the certificates of a site come from.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Certificates {
    Acme(String),
    Files(String, String),
    Internal,
}

/// A listener, with the certificates that its sites want.
#[derive(Default)]
struct Listener<'a> {
    address: String,
    wanted: Vec<(Certificates, &'a Directive)>,
    min_version: Option<&'a Directive>,
    from: Vec<&'a Directive>,
}

/// An address of a site.
struct Address {
    name: String,
    port: String,
    is_encrypted: bool,
}

fn read(word: &str, settings: &Settings<'_>) -> Result<Address, String> {
    let (scheme, rest) =
        word.split_once("://").map_or((None, word), |(scheme, rest)| (Some(scheme), rest));
    if rest.contains('/') {
        return Err("a host has no path; its routes have".to_owned());
    }
    // A variable may have colons.
    let colon = rest
        .rfind(':')
        .filter(|at| !rest[*at..].contains([']', '}']) || rest[*at..].starts_with(":{$"));
    let colon = rest.find(":{$").or(colon);
    let (name, port) = colon.map_or((rest, ""), |at| (&rest[..at], &rest[at + 1..]));
    let is_encrypted = match scheme {
        Some("http") => false,
        Some("https") => true,
        Some(_) => return Err("expected http:// or https://".to_owned()),
        None => port == settings.https_port || (!name.is_empty() && port != settings.http_port),
    };
    let port = match (port, is_encrypted) {
        ("", true) => &settings.https_port,
        ("", false) => &settings.http_port,
        (port, _) => port,
    };
    let name = name.trim_matches(['[', ']']);
    // The name of a variable stays.
    let name = if name.contains("{$") { name.to_owned() } else { name.to_ascii_lowercase() };
    Ok(Address { name, port: port.to_owned(), is_encrypted })
}

/// Whether Caddy makes a certificate for a name by itself.
fn is_local(name: &str) -> bool {
    let ends = [".localhost", ".local", ".internal", ".home.arpa"];
    name.is_empty()
        || !name.contains('.')
        || name.parse::<IpAddr>().is_ok()
        || ends.iter().any(|end| name.ends_with(end))
}

/// Adds all sites to the output.
pub(super) fn add_sites<'a>(
    sites: &[&'a Directive],
    settings: &Settings<'a>,
    upstreams: &mut Upstreams,
    output: &mut Output,
) -> Result<(), &'static str> {
    let mut looks_left = MOST_LOOKS;
    let mut listeners: Vec<Listener<'a>> = Vec::new();
    let mut hosts: Vec<(HostTables, Vec<String>)> = Vec::new();
    let mut taken: Vec<String> = Vec::new();
    for site in sites {
        if site.name == "import" {
            let what = "neither a snippet nor a file has this name";
            match site.first().contains('*') {
                true => output.top.not_needed(site, "no file has such a name"),
                false => output.top.not_imported(site, what),
            }
            continue;
        }
        let Some(block) = &site.block else {
            output.top.not_imported(site, "a site has a block");
            continue;
        };
        let mut tables = HostTables::new();
        tables.host.comes_from(site);
        let (mut names, mut own, mut redirects) = (Vec::new(), Vec::new(), false);
        let certificates = certificates(block, &mut tables.host);
        let words = std::iter::once(&site.name).chain(&site.words).flat_map(|word| word.split(','));
        let all: Vec<&str> = words.map(str::trim).filter(|word| !word.is_empty()).collect();
        for word in &all {
            let is_new = |one: &Address| !one.name.is_empty() && !names.contains(&one.name);
            let address = match read(word, settings) {
                Ok(address) if is_new(&address) && taken.contains(&address.name) => {
                    Err("another site has this name, and a name has one host".to_owned())
                }
                address => address,
            };
            let address = match address {
                Ok(address) => address,
                Err(why) => {
                    tables.host.comment(&format!("{}: NOT IMPORTED \"{word}\": {why}", site.place));
                    site.note(Outcome::NotImported);
                    continue;
                }
            };
            if is_new(&address) {
                taken.push(address.name.clone());
                names.push(address.name.clone());
            }
            let version = certificates.1;
            let mut add = |port: &str, certificates: Option<Certificates>| {
                let address = format!(":{port}");
                let at =
                    listeners.iter().position(|one| one.address == address).unwrap_or_else(|| {
                        listeners
                            .push(Listener { address: address.clone(), ..Listener::default() });
                        listeners.len() - 1
                    });
                listeners[at].from.push(site);
                if let Some(wanted) = certificates {
                    listeners[at].wanted.push((wanted, site));
                    listeners[at].min_version = listeners[at].min_version.or(version);
                }
                if !own.contains(&address) {
                    own.push(address);
                }
            };
            if !address.is_encrypted {
                add(&address.port, None);
                continue;
            }
            let email = settings.email.map_or("", Directive::first);
            let default = match settings.is_local.is_some() || is_local(&address.name) {
                true => Certificates::Internal,
                false => Certificates::Acme(email.to_owned()),
            };
            let wanted = certificates.0.clone().unwrap_or(default);
            add(&address.port, Some(wanted));
            let has_plain = all.iter().any(|other| *other == format!("http://{}", address.name));
            if address.port == settings.https_port
                && settings.without_redirects.is_none()
                && !has_plain
                && !address.name.is_empty()
            {
                redirects = true;
                add(&settings.http_port, None);
            }
        }
        if own.is_empty() {
            output.top.not_imported(site, "no address of it could be imported");
            continue;
        }
        if !names.is_empty() {
            let names: Vec<Value> = names.iter().map(|name| text(name)).collect();
            tables.host.set("names", names, &[site]);
        }
        if redirects {
            tables.host.set("https", "always", &[]);
            tables.host.set("hsts", "off", &[]);
        }
        let mut routes = Routes { upstreams, looks_left };
        tables.routes = routes.of_site(block, &mut tables.host, output);
        looks_left = routes.looks_left;
        if looks_left == 0 {
            return Err("the sites have too many matchers");
        }
        if tables.routes.is_empty() {
            let mut route = Table::new("[[hosts.routes]]");
            route.comment("Caddy answers with 200 where nothing else does.");
            route.set("respond", json!({ "status": 200, "body": "" }), &[site]);
            tables.routes.push(route);
        }
        tables.share_rules();
        hosts.push((tables, own));
    }
    let count = listeners.len();
    for listener in listeners {
        output.listeners.push(table(&listener, settings));
    }
    for (mut tables, own) in hosts {
        if own.len() < count {
            tables.host.set("listeners", own.iter().map(|one| text(one)).collect::<Vec<_>>(), &[]);
        }
        tables.host.lead_with(&["names", "listeners"]);
        output.hosts.push(tables);
    }
    let Settings { email, directory, is_local, without_redirects, .. } = *settings;
    for option in [email, directory, is_local, without_redirects].into_iter().flatten() {
        let why = match option.name.as_str() {
            "auto_https" => "https = \"always\" of a host redirects, and it is left out",
            _ => "no certificate comes by ACME",
        };
        if option.outcome() == Outcome::Unknown {
            output.top.not_needed(option, why);
        }
    }
    if output.has_route_with("proxy") || output.has_route_with("fastcgi") {
        let what = "Caddy has no limit of the bodies of requests; here body_bytes is 16 MiB.";
        output.single("limits").comment(what);
    }
    Ok(())
}

fn table<'a>(listener: &Listener<'a>, settings: &Settings<'a>) -> Table {
    let mut table = Table::new("[[listeners]]");
    table.set("address", text(&listener.address), &listener.from);
    let mut wanted: Vec<&(Certificates, &Directive)> = listener.wanted.iter().collect();
    // One source for a listener: ACME comes first.
    wanted.sort_by_key(|(certificates, _)| certificates.clone());
    let Some((first, _)) = wanted.first() else { return table };
    let mut tls = Value::Null;
    let mut from: Vec<&Directive> = Vec::new();
    for (certificates, site) in &wanted {
        if std::mem::discriminant(certificates) != std::mem::discriminant(first) {
            site.note(Outcome::NotImported);
            let (place, head) = (&site.place, site.head());
            let what = format!("{place}: NOT IMPORTED certificates of \"{head}\"");
            table.comment(&format!("{what}: a listener has one source of them"));
        }
    }
    match first {
        Certificates::Acme(email) => {
            tls["acme"] = text(email);
            from.extend(settings.email);
            if let Some(directory) = settings.directory {
                tls["directory"] = text(directory.first());
                from.push(directory);
            }
        }
        Certificates::Internal => {
            tls["internal"] = true.into();
            from.extend(settings.is_local);
        }
        Certificates::Files(..) => {
            let pairs = wanted.iter().filter_map(|(certificates, _)| match certificates {
                Certificates::Files(certificate, key) => Some((text(certificate), text(key))),
                _ => None,
            });
            add_certificates(&mut tls, pairs.collect());
        }
    }
    if let Some(version) = listener.min_version {
        tls["min_version"] = "1.3".into();
        from.push(version);
    }
    table.set("tls", tls, &from);
    table
}

/// Returns where the certificates of a site come from, if it says so, and a line about versions.
fn certificates<'a>(
    block: &'a [Directive],
    host: &mut Table,
) -> (Option<Certificates>, Option<&'a Directive>) {
    let (mut found, mut version) = (None, None);
    for tls in block.iter().filter(|one| one.name == "tls") {
        found = match &tls.words[..] {
            [one] if one == "internal" => Some(Certificates::Internal),
            [mail] if mail.contains('@') => Some(Certificates::Acme(mail.clone())),
            [certificate, key] => Some(Certificates::Files(certificate.clone(), key.clone())),
            [] => None,
            _ => {
                host.not_imported(tls, "tls of a listener has files, acme or internal");
                continue;
            }
        };
        host.remark(tls, "the listener has it");
        for child in tls.children() {
            match (child.name.as_str(), child.first()) {
                ("protocols", "tls1.3") => version = Some(child),
                ("protocols", _) => host.not_needed(child, "TLS 1.2 and 1.3 are the default"),
                _ => host.not_imported(child, "tls of a listener has no such key"),
            }
        }
    }
    (found, version)
}
