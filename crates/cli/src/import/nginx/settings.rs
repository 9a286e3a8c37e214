//! The settings that all hosts share here: limits, timeouts, logs and trusted proxies.

use super::super::directive::Directive;
use super::super::output::Output;
use super::value::{self, milliseconds_text};

/// The time that nginx waits for an answer by default, in milliseconds.
pub(super) const DEFAULT_RESPONSE: u64 = 60_000;

/// The settings of locations that are those of the whole server here.
#[derive(Default)]
pub(super) struct Totals<'a> {
    /// The timeouts for answers and for connections, in milliseconds.
    pub(super) response: Vec<(u64, Option<&'a Directive>)>,
    pub(super) connect: Vec<(u64, &'a Directive)>,
    /// The places of locations that nginx has for more paths.
    pub(super) without_slash: Vec<String>,
    /// The places of locations to which nginx sends clients that leave the slash out.
    pub(super) redirected: Vec<String>,
}

/// Returns the directives of a name in a level and in its servers.
fn everywhere<'a>(level: &'a [Directive], name: &str) -> Vec<&'a Directive> {
    let servers = level.iter().filter(|one| one.name == "server");
    let of_servers = servers.flat_map(|server| server.children());
    level.iter().chain(of_servers).filter(|one| one.name == name).collect()
}

/// Why a second value of a setting is left out.
const ONE_FOR_ALL: &str = "there is one for all hosts, and another line has it";

/// Writes the settings of a level and of its servers.
pub(super) fn add(level: &[Directive], output: &mut Output) {
    for (name, key) in [
        ("keepalive_timeout", "idle"),
        ("client_header_timeout", "header"),
        ("client_body_timeout", "body"),
    ] {
        let all = everywhere(level, name);
        let times = || all.iter().filter_map(|one| value::duration(one.first()));
        for directive in all.iter().filter(|one| value::duration(one.first()).is_none()) {
            output.single("timeouts").not_imported(directive, "it is no time");
        }
        if let Some((text, longest)) = times().max_by_key(|(_, time)| *time) {
            let table = output.single("timeouts");
            if times().any(|(_, time)| time != longest) {
                table.comment("The longest, as there is one for all hosts.");
            }
            table.set(key, text, &all);
        }
    }
    for directive in everywhere(level, "send_timeout") {
        let why = "body is the time for reading and writing more of a body";
        output.single("timeouts").not_needed(directive, why);
    }
    first(level, "keepalive_requests", "requests_per_connection", output, |directive| {
        directive.first().parse().ok()
    });
    first(level, "large_client_header_buffers", "header_bytes", output, |directive| {
        let (_, size) = value::size(directive.second())?;
        directive.first().parse::<u64>().ok()?.checked_mul(size)
    });
    connections(level, output);
    access_log(level, output);
    real_ip(level, output);
}

/// Sets a key of the limits to the number of the first directive of a name.
fn first(
    level: &[Directive],
    name: &str,
    key: &str,
    output: &mut Output,
    number: impl Fn(&Directive) -> Option<u64>,
) {
    for (index, directive) in everywhere(level, name).into_iter().enumerate() {
        let limits = output.single("limits");
        match number(directive) {
            Some(number) if index == 0 => limits.set(key, number, &[directive]),
            _ => limits.not_imported(directive, ONE_FOR_ALL),
        }
    }
}

/// Writes the most connections of a client.
fn connections(level: &[Directive], output: &mut Output) {
    let zone_of = |text: &str| text.split(':').next().unwrap_or_default().to_owned();
    let by_client = |name: &str| {
        everywhere(level, "limit_conn_zone").into_iter().find(|zone| {
            let own = zone.words.iter().find_map(|word| word.strip_prefix("zone="));
            own.is_some_and(|own| zone_of(own) == name)
                && matches!(zone.first(), "$binary_remote_addr" | "$remote_addr")
        })
    };
    for (index, directive) in everywhere(level, "limit_conn").into_iter().enumerate() {
        let limits = output.single("limits");
        let number = directive.second().parse::<u64>().ok();
        match (by_client(directive.first()), number) {
            (Some(zone), Some(number)) if index == 0 => {
                limits.comment("It counts for all hosts, and for idle connections as well.");
                limits.set("connections_per_client", number, &[directive, zone]);
            }
            _ => {
                limits.not_imported(directive, "there is one limit of the connections of a client")
            }
        }
    }
}

fn access_log(level: &[Directive], output: &mut Output) {
    let logs = everywhere(level, "access_log");
    let first = logs.iter().find(|one| one.first() != "off").map(|one| one.first().to_owned());
    for log in logs {
        let table = output.single("access_log");
        if log.first() == "off" {
            match first {
                None => output.top.not_needed(log, "without [access_log] there is none"),
                Some(_) => table.not_imported(log, "the requests of all hosts are in the log"),
            }
            continue;
        }
        if first.as_deref() != Some(log.first()) {
            table.not_imported(log, ONE_FOR_ALL);
            continue;
        }
        let path = if log.first() == "/dev/stdout" { "stderr" } else { log.first() };
        table.set("path", path, &[log]);
        if !matches!(log.second(), "" | "combined") {
            table.not_imported(log, "the format is \"combined\" or \"json\"");
        }
    }
}

/// Writes the log of events.
pub(super) fn event_log(level: &[Directive], output: &mut Output) {
    for log in everywhere(level, "error_log") {
        let table = output.single("log");
        let path = match log.first() {
            "stderr" | "/dev/stderr" | "/dev/null" => "stderr",
            path => path,
        };
        if table.get("path").is_some_and(|known| known != path) {
            table.not_imported(log, ONE_FOR_ALL);
            continue;
        }
        let level = match log.second() {
            "debug" | "info" => "info",
            "notice" => "notice",
            "warn" => "warning",
            _ => "error",
        };
        table.set("path", path, &[log]);
        if table.get("level").is_none() {
            table.set("level", level, &[log]);
        }
    }
}

fn real_ip(level: &[Directive], output: &mut Output) {
    let proxies = everywhere(level, "set_real_ip_from");
    for field in everywhere(level, "real_ip_header") {
        let server = output.single("server");
        match field.first().to_ascii_lowercase().as_str() {
            "x-forwarded-for" => server.not_needed(field, "it is the field that counts"),
            _ => {
                let why = "X-Forwarded-For and Forwarded count, or proxy_protocol of the listener";
                server.not_imported(field, why);
            }
        }
    }
    for recursive in everywhere(level, "real_ip_recursive") {
        let why = "the last address that is no proxy is the client";
        output.single("server").not_needed(recursive, why);
    }
    let mut networks: Vec<&str> = proxies.iter().map(|one| one.first()).collect();
    networks.iter_mut().filter(|one| **one == "unix:").for_each(|one| *one = "unix");
    networks.dedup();
    if !networks.is_empty() {
        output.single("server").set("trusted_proxies", networks, &proxies);
    }
}

/// Writes the settings that the locations of all servers have together.
pub(super) fn finish(totals: &Totals<'_>, output: &mut Output) {
    if !totals.without_slash.is_empty() {
        let places = totals.without_slash.join(", ");
        let what = "A path is for itself and the paths below it: /a is not for /ab, as in nginx.";
        output.top.comment(&format!("{what} {places}"));
    }
    if !totals.redirected.is_empty() {
        let places = totals.redirected.join(", ");
        let what = "nginx sends clients of /a to /a/ where a location /a/ has a server behind it.";
        output.top.comment(&format!("{what} {places}"));
    }
    if output.has_route_with("files") {
        let what = "Files whose names begin with a dot are not served, except .well-known; \
                    hidden = true of files serves them.";
        output.top.comment(what);
    }
    output.share_body_size();
    let has_hosts = !output.hosts.is_empty();
    let limits = output.single("limits");
    if limits.get("body_bytes").is_none() && has_hosts {
        limits.comment("The default of nginx.");
        limits.set("body_bytes", "1MiB", &[]);
    }
    let longest = totals.response.iter().map(|(time, _)| *time).max().unwrap_or(DEFAULT_RESPONSE);
    let from: Vec<&Directive> = totals.response.iter().filter_map(|(_, one)| *one).collect();
    let timeouts = output.single("timeouts");
    if longest != DEFAULT_RESPONSE {
        timeouts.comment("The longest of all locations, as there is one for all routes.");
        timeouts.set("response", milliseconds_text(longest), &from);
        if longest > 3_600_000 {
            timeouts.set("tunnel", milliseconds_text(longest), &[]);
        }
    } else {
        for directive in from {
            timeouts.not_needed(directive, "the longest of all routes is the default");
        }
    }
    if let Some((time, _)) = totals.connect.iter().max_by_key(|(time, _)| *time) {
        let from: Vec<&Directive> = totals.connect.iter().map(|(_, one)| *one).collect();
        timeouts.set("connect", milliseconds_text(*time), &from);
    }
}
