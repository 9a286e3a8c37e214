//! The servers of `stream`: listeners that relay.

use std::path::Path;

use super::super::directive::Directive;
use super::super::output::{Output, Table, Value};
use super::super::upstreams::{Protocol, server_address};
use super::http::listen_address;
use super::scope::Scope;
use super::upstream::NamedUpstreams;
use super::value;
use super::verdict::sweep;

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
        let pass = scope.own_first("proxy_pass");
        if scope.own("listen").iter().all(|one| one.words.iter().any(|word| word == "udp")) {
            output.top.not_imported(server, "there are no relays of UDP");
            continue;
        }
        let (Some(pass), false) = (pass, scope.is_on("ssl_preread").is_some()) else {
            output
                .top
                .not_imported(server, "a relay by server names has [[listeners.relay.routes]]");
            continue;
        };
        let relay = match upstreams.has(pass.first()) {
            true => upstreams.of(pass.first(), Protocol::Http, pass).map(|name| ("upstream", name)),
            false => server_address(pass.first(), Protocol::Http).map(|address| ("to", address)),
        };
        let (key, end) = match relay {
            Ok(end) => end,
            Err(why) => {
                output.top.not_imported(server, &why);
                continue;
            }
        };
        // A second `listen` is a second listener.
        for listen in scope.own("listen") {
            let mut table = Table::new("[[listeners]]");
            table.comes_from(server);
            if listen.words.iter().any(|word| word == "udp") {
                output.top.not_imported(listen, "there are no relays of UDP");
                continue;
            }
            match listen_address(listen.first()) {
                Ok(address) => table.set("address", address, &[listen]),
                Err(why) => {
                    output.top.not_imported(listen, &why);
                    continue;
                }
            }
            if listen.words.iter().any(|word| word == "ssl") {
                let (Some(certificate), Some(private)) =
                    (scope.last("ssl_certificate"), scope.last("ssl_certificate_key"))
                else {
                    output.top.not_imported(listen, "there is no ssl_certificate");
                    continue;
                };
                let path =
                    |one: &Directive| Value::from(folder.join(one.first()).display().to_string());
                let tls =
                    Value::table([("certificate", path(certificate)), ("key", path(private))]);
                table.set("tls", tls, &[certificate, private]);
            }
            let mut relay = Value::table([(key, end.as_str().into())]);
            let mut from = vec![pass];
            if let Some(idle) = scope.last("proxy_timeout")
                && let Some((time, _)) = value::duration(idle.first())
            {
                relay.put("idle", time);
                from.push(idle);
            }
            if let Some(header) = scope.is_on("proxy_protocol") {
                relay.put("proxy_protocol", true);
                from.push(header);
            }
            if let Some(encrypted) = scope.is_on("proxy_ssl") {
                table.not_imported(
                    encrypted,
                    "tls of an upstream encrypts; relay = { upstream = NAME }",
                );
            }
            table.set("relay", relay, &from);
            sweep(server.children(), &mut table);
            output.listeners.push(table);
        }
    }
}
