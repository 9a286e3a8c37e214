//! The servers of `stream`: listeners that relay.
//!
//! A `map` of `$ssl_preread_server_name` becomes the routes of a relay. The end for all other names
//! is left out if a line of the map cannot be expressed: clients that the line is about would come
//! there.

use std::net::Ipv4Addr;
use std::path::Path;

use super::super::directive::{Directive, Outcome};
use super::super::output::{Output, RELAY_HEADER, Table, Value, json};
use super::super::upstreams::{Protocol, server_address};
use super::http::listen_address;
use super::scope::Scope;
use super::upstream::NamedUpstreams;
use super::value;
use super::verdict::sweep;

/// The name of a client, which nginx reads from the first message of TLS.
const SERVER_NAME: &str = "$ssl_preread_server_name";

/// A server that a relay connects to: a key of the relay, and its value.
type End = (&'static str, String);

/// The ends of a relay.
#[derive(Default)]
struct Ends<'a> {
    /// The end for clients whose names no route has.
    other: Option<(End, &'a Directive)>,
    /// The ends by server names, with the lines that they come from.
    routes: Vec<(End, Vec<String>, Vec<&'a Directive>)>,
    /// The directives that say how names are read.
    from: Vec<&'a Directive>,
    /// The lines that cannot be expressed, with the reason.
    refused: Vec<(&'a Directive, String)>,
}

/// Adds the servers of a level to the output.
pub(super) fn add_relays<'a>(
    level: &'a [Directive],
    folder: &Path,
    upstreams: &mut NamedUpstreams<'a>,
    output: &mut Output,
) {
    let scope = Scope::new(level);
    for server in level.iter().filter(|one| one.name == "server") {
        let scope = scope.below(server.children());
        if scope.own("listen").iter().all(|one| one.words.iter().any(|word| word == "udp")) {
            output.top.not_imported(server, "there are no relays of UDP");
            continue;
        }
        let pass = scope.own_first("proxy_pass").ok_or("a relay has another end, as proxy_pass");
        let ends = pass.map_err(str::to_owned);
        let ends = match ends.and_then(|pass| read_ends(pass, &scope, upstreams)) {
            Ok(ends) => ends,
            Err(why) => {
                output.top.not_imported(server, &why);
                continue;
            }
        };
        // A second `listen` is a second listener; the first one has the comments.
        scope.own("listen").iter().for_each(|one| one.note(Outcome::Imported));
        for listen in scope.own("listen") {
            match listener(server, listen, &scope, folder) {
                Ok(table) => add_relay(table, server, &ends, &scope, output),
                Err(why) => output.top.not_imported(listen, &why),
            }
        }
    }
}

/// Returns the ends of a relay, from its `proxy_pass`.
fn read_ends<'a>(
    pass: &'a Directive,
    scope: &Scope<'a>,
    upstreams: &mut NamedUpstreams<'a>,
) -> Result<Ends<'a>, String> {
    let is_map = |one: &&Directive| one.words == [SERVER_NAME, pass.first()];
    let map = scope.all(&["map"]).into_iter().find(is_map);
    match (map, scope.is_on("ssl_preread")) {
        (Some(map), Some(preread)) => {
            let mut ends = read_map(map, upstreams)?;
            ends.from.extend([pass, map, preread]);
            Ok(ends)
        }
        _ => {
            let other = Some((end(pass.first(), pass, upstreams)?, pass));
            Ok(Ends { other, ..Ends::default() })
        }
    }
}

/// Returns the end of a relay that a word stands for.
fn end(text: &str, from: &Directive, upstreams: &mut NamedUpstreams<'_>) -> Result<End, String> {
    if upstreams.has(text) {
        return upstreams.of(text, Protocol::Http, from).map(|name| ("upstream", name));
    }
    let address = server_address(text, Protocol::Http)?;
    match address == text || text.starts_with("unix:") {
        true => Ok(("to", address)),
        false => Err("the address has no port".to_owned()),
    }
}

/// Reads a map from server names to ends.
fn read_map<'a>(
    map: &'a Directive,
    upstreams: &mut NamedUpstreams<'a>,
) -> Result<Ends<'a>, String> {
    let mut ends = Ends::default();
    let has_wildcards = map.children().iter().any(|line| line.name == "hostnames");
    for line in map.children() {
        if line.words.is_empty() && matches!(line.name.as_str(), "hostnames" | "volatile") {
            ends.from.push(line);
            continue;
        }
        let names = server_names(line, has_wildcards);
        let found = names.and_then(|names| Ok((end(line.first(), line, upstreams)?, names)));
        match found {
            Err(why) => ends.refused.push((line, why)),
            Ok((end, names)) if names.is_empty() => ends.other = Some((end, line)),
            Ok((end, names)) => match ends.routes.iter_mut().find(|(known, ..)| *known == end) {
                Some((_, all, from)) => {
                    all.extend(names);
                    from.push(line);
                }
                None => ends.routes.push((end, names, vec![line])),
            },
        }
    }
    if let Some((_, line)) = ends.other.take_if(|_| !ends.refused.is_empty()) {
        let why = "clients of lines that cannot be expressed would come here; to of the relay";
        ends.refused.push((line, why.to_owned()));
    }
    match ends.other.is_none() && ends.routes.is_empty() {
        true => Err("no line of the map can be expressed".to_owned()),
        false => Ok(ends),
    }
}

/// Returns the names of a line of a map, in lower case; no name stands for the default.
fn server_names(line: &Directive, has_wildcards: bool) -> Result<Vec<String>, String> {
    let name = line.name.to_ascii_lowercase();
    let (names, plain) = match (name.as_str(), name.strip_prefix('.'), name.strip_prefix("*.")) {
        ("default", ..) => return Ok(Vec::new()),
        (_, Some(rest), _) if has_wildcards => (vec![rest.to_owned(), format!("*.{rest}")], rest),
        (_, _, Some(rest)) if has_wildcards => (vec![name.clone()], rest),
        _ => (vec![name.clone()], name.as_str()),
    };
    let is_label = |label: &str| {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        !label.is_empty() && label.bytes().all(is_plain)
    };
    let is_name = plain.split('.').all(is_label) && plain.parse::<Ipv4Addr>().is_err();
    match is_name {
        true => Ok(names),
        false => Err("server_names are names and wildcards, and no expressions".to_owned()),
    }
}

/// Returns the listener of a `listen`, without its relay.
fn listener(
    server: &Directive,
    listen: &Directive,
    scope: &Scope<'_>,
    folder: &Path,
) -> Result<Table, String> {
    let has = |option: &str| listen.words.iter().any(|word| word == option);
    let mut table = Table::new("[[listeners]]");
    table.comes_from(server);
    if has("udp") {
        return Err("there are no relays of UDP".to_owned());
    }
    table.set("address", listen_address(listen.first())?, &[listen]);
    if has("proxy_protocol") {
        table.set("proxy_protocol", true, &[listen]);
    }
    if has("ssl") {
        let (Some(certificate), Some(private)) =
            (scope.last("ssl_certificate"), scope.last("ssl_certificate_key"))
        else {
            return Err("there is no ssl_certificate".to_owned());
        };
        let path = |one: &Directive| Value::from(folder.join(one.first()).display().to_string());
        let tls = json!({ "certificate": path(certificate), "key": path(private) });
        table.set("tls", tls, &[certificate, private]);
    }
    Ok(table)
}

/// Adds a listener with its relay.
fn add_relay(
    mut listener: Table,
    server: &Directive,
    ends: &Ends<'_>,
    scope: &Scope<'_>,
    output: &mut Output,
) {
    let mut keys: Vec<(&str, Value, &Directive)> = Vec::new();
    if let Some(((key, end), from)) = &ends.other {
        keys.push((key, end.as_str().into(), from));
    }
    if let Some(idle) = scope.last("proxy_timeout")
        && let Some((time, _)) = value::duration(idle.first())
    {
        keys.push(("idle", time.into(), idle));
    }
    if let Some(header) = scope.is_on("proxy_protocol") {
        keys.push(("proxy_protocol", true.into(), header));
    }
    if let Some(encrypted) = scope.is_on("proxy_ssl") {
        let why = "tls of an upstream encrypts; relay = { upstream = NAME }";
        listener.not_imported(encrypted, why);
    }
    if let Some(connect) = scope.last("proxy_connect_timeout") {
        listener.not_imported(connect, "connect of [timeouts] is for all servers");
    }
    let mut tables = Vec::new();
    if ends.from.is_empty() {
        let mut relay = Value::Null;
        let from: Vec<&Directive> = keys.iter().map(|(.., from)| *from).collect();
        keys.into_iter().for_each(|(key, value, _)| relay[key] = value);
        listener.set("relay", relay, &from);
    } else {
        let mut relay = Table::new(RELAY_HEADER);
        ends.from.iter().for_each(|from| relay.comes_from(from));
        keys.into_iter().for_each(|(key, value, from)| relay.set(key, value, &[from]));
        ends.refused.iter().for_each(|(line, why)| relay.not_imported(line, why));
        tables.push(relay);
    }
    for ((key, end), names, from) in &ends.routes {
        let mut route = Table::new("[[listeners.relay.routes]]");
        route.set("server_names", names.clone(), from);
        route.set(key, end.as_str(), from);
        tables.push(route);
    }
    sweep(server.children(), &mut listener);
    output.listeners.push(listener);
    output.listeners.extend(tables);
}
