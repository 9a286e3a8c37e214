//! The rules of a location in addition to its action: fields, clients, passwords, limits, errors.

use super::super::directive::{Directive, Outcome};
use super::super::output::{ALL_CLIENTS, Table, Value, json, push};
use super::super::upstreams::{Protocol, is_forwarded};
use super::location::Kind;
use super::route::{Routes, module};
use super::scope::Scope;
use super::value;

/// Writes the rules of a scope to its route.
pub(super) fn add<'a>(scope: &Scope<'a>, table: &mut Table, routes: &mut Routes<'a, '_>) {
    response_fields(scope, table);
    access(scope, table);
    passwords(scope, table, routes);
    auth_request(scope, table, routes);
    rate(scope, table);
    if let Some(size) = scope.last("client_max_body_size") {
        match value::size(size.first()) {
            Some((_, 0)) => table.set("body_bytes", "1024TiB", &[size]),
            Some((text, _)) => table.set("body_bytes", text, &[size]),
            None => table.not_imported(size, "it is no size"),
        }
    }
    error_pages(scope, table, routes);
}

/// Adds a value to those of a field, which may come several times.
fn add_field(fields: &mut Value, name: &str, text: String) {
    match &mut fields[name.to_ascii_lowercase()] {
        none @ Value::Null => *none = text.into(),
        Value::Array(list) => list.push(text.into()),
        one => *one = json!([one, text]),
    }
}

fn response_fields(scope: &Scope<'_>, table: &mut Table) {
    let mut headers = Value::Null;
    let mut from = Vec::new();
    for directive in scope.all(&["add_header"]) {
        let text = directive.second();
        match value::field(text) {
            Ok(text) if text.trim().is_empty() => {
                table.not_needed(directive, "a field without a value is not added");
            }
            Ok(text) => {
                add_field(&mut headers["add"], directive.first(), text.trim().to_owned());
                from.push(directive);
            }
            Err(why) => table.not_imported(directive, &why),
        }
    }
    let is_files = table.get("files").is_some();
    if let Some(expires) = scope.last("expires").filter(|one| !is_files && one.first() != "off") {
        let time = if expires.first() == "max" { "10y" } else { expires.first() };
        let text = match (value::duration(time), expires.first()) {
            (Some((_, time)), _) => Some(format!("max-age={}", time / 1000)),
            (None, "-1" | "epoch" | "0") => Some("no-cache".to_owned()),
            _ => None,
        };
        match text {
            Some(text) => {
                add_field(&mut headers["add"], "cache-control", text);
                from.push(expires);
            }
            None => table.not_imported(expires, "cache-control in headers has one value"),
        }
    }
    let hidden =
        ["proxy_hide_header", "grpc_hide_header", "fastcgi_hide_header", "more_clear_headers"];
    let is_forwarded = table.get("proxy").is_some() || table.get("fastcgi").is_some();
    let hidden = if is_forwarded { scope.all(&hidden) } else { Vec::new() };
    if !hidden.is_empty() {
        let mut names: Vec<String> =
            hidden.iter().map(|one| one.first().to_ascii_lowercase()).collect();
        names.dedup();
        headers["remove"] = names.into();
        from.extend(hidden);
    }
    if !headers.is_null() {
        table.set("headers", headers, &from);
    }
}

fn access(scope: &Scope<'_>, table: &mut Table) {
    if let Some(methods) = scope.own_first("limit_except") {
        return table.close(methods, "match = { methods = [...] } of a route tells methods apart");
    }
    let rules = scope.all(&["allow", "deny"]);
    let is_refused = table.get("respond").is_some() && rules.len() == 1;
    if rules.is_empty() || (is_refused && rules[0].text() == "deny all") {
        return;
    }
    let (mut allowed, mut denied) = (Vec::new(), Vec::new());
    let mut rest = None;
    for rule in &rules {
        let client = match rule.first() {
            "unix:" => "unix",
            client => client,
        };
        match (rule.name.as_str(), client) {
            _ if rest.is_some() => {}
            ("allow", "all") => rest = Some(true),
            ("deny", "all") => rest = Some(false),
            ("allow", client) => allowed.push(client),
            // The network might have clients that were allowed before.
            (_, client) if allowed.is_empty() => denied.push(client),
            _ => {
                return table.close(rule, "deny counts before allow here, whatever their order");
            }
        }
    }
    match (rest, allowed.is_empty()) {
        (Some(false), true) => denied = ALL_CLIENTS.to_vec(),
        (Some(false), false) => table.set("allow", allowed, &rules),
        // Those that are allowed are no others than the rest.
        _ => {}
    }
    match denied.is_empty() {
        false => table.set("deny", denied, &rules),
        true if table.get("allow").is_none() => {
            rules.iter().for_each(|rule| table.not_needed(rule, "all clients are served"));
        }
        true => {}
    }
    if scope.last("satisfy").is_some_and(|one| one.first() == "any") {
        table.comment("Of satisfy any, both rules hold here: the address and the password.");
    }
}

fn passwords<'a>(scope: &Scope<'a>, table: &mut Table, routes: &Routes<'a, '_>) {
    let Some(realm) = scope.last("auth_basic") else { return };
    if realm.first() == "off" {
        return table.not_needed(realm, "no password is asked for here");
    }
    let Some(file) = scope.last("auth_basic_user_file") else {
        return table.close(realm, "there is no file of users");
    };
    if value::has_variables(realm.first()) || value::has_variables(file.first()) {
        return table.close(file, "the users of a route are in one file");
    }
    table.remark(
        file,
        "its passwords have to be hashed by bcrypt, Argon2 or SHA-crypt: htpasswd -B",
    );
    let auth = json!({ "realm": realm.first(), "file": routes.path(file.first()) });
    table.set("basic_auth", auth, &[realm, file]);
}

fn auth_request<'a>(scope: &Scope<'a>, table: &mut Table, routes: &mut Routes<'a, '_>) {
    let Some(directive) = scope.last("auth_request").filter(|one| one.first() != "off") else {
        return;
    };
    let why = "auth_request asks a server of an upstream";
    let target = routes.locations.find(directive.first()).cloned();
    let pass = target.as_ref().and_then(|target| target.scope.own_first("proxy_pass"));
    let (Some(target), Some(pass)) = (&target, pass) else { return table.close(directive, why) };
    let rest = pass.first().strip_prefix("http://").filter(|rest| !value::has_variables(rest));
    let Some(rest) = rest else { return table.close(pass, &format!("{why} by http://")) };
    let (server, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let is_whole = path.len() > 1 || (path == "/" && matches!(target.kind, Kind::Exact));
    let path = if is_whole { path } else { directive.first() };
    let Ok(upstream) = routes.upstreams.of(server, Protocol::Http, pass) else {
        return table.close(pass, why);
    };
    let mut from = vec![directive, pass];
    // A field of the answer that a variable has goes to the server by the same name.
    let mut copied: Vec<String> = Vec::new();
    for set in scope.all(&["auth_request_set"]) {
        let source = set.second().strip_prefix("$upstream_http_");
        let mut fields = scope.all(&["proxy_set_header"]).into_iter();
        let sent = fields.find(|field| field.second() == set.first());
        if let (Some(source), Some(field)) = (source, sent)
            && source.replace('_', "-").eq_ignore_ascii_case(field.first())
        {
            copied.push(field.first().to_owned());
            from.extend([set, field]);
        }
    }
    let mut auth = json!({ "upstream": upstream, "path": path });
    if !copied.is_empty() {
        auth["copy"] = copied.into();
    }
    if let Some(location) = target.directive.filter(|_| target.is_internal()) {
        from.push(location);
        from.extend(location.children().iter().filter(|one| one.name == "internal"));
        for field in target.scope.own("proxy_set_header") {
            let why = "the server gets the fields of the request, and its method and path";
            table.not_needed(field, why);
        }
        for off in target.scope.own("proxy_pass_request_body") {
            table.not_needed(off, "the body stays here");
        }
    }
    table.set("auth_request", auth, &from);
}

fn rate(scope: &Scope<'_>, table: &mut Table) {
    let limits = scope.all(&["limit_req"]);
    for (index, limit) in limits.iter().enumerate() {
        let word = |key: &str| limit.words.iter().find_map(|word| word.strip_prefix(key));
        let zones = scope.all(&["limit_req_zone"]);
        let zone = zones.into_iter().find(|zone| {
            let own = zone.words.iter().find_map(|word| word.strip_prefix("zone="));
            own.and_then(|own| own.split(':').next()) == word("zone=")
        });
        let Some(zone) = zone.filter(|_| index == 0) else {
            table.not_imported(limit, "a route has one rate, of a zone that the file has");
            continue;
        };
        let by = match zone.first() {
            "$binary_remote_addr" | "$remote_addr" => None,
            key => match key.strip_prefix("$http_") {
                Some(name) => Some(format!("header:{}", name.replace('_', "-"))),
                None => {
                    table.not_imported(limit, "a rate counts by the client or by a field");
                    continue;
                }
            },
        };
        let rate = zone.words.iter().find_map(|word| word.strip_prefix("rate="));
        let rate = rate.unwrap_or("1r/s").replace("r/", "/");
        let burst = word("burst=").and_then(|burst| burst.parse::<u64>().ok()).unwrap_or(0) + 1;
        let text = format!("{rate} burst {burst}");
        if burst > 1 && !limit.words.iter().any(|word| word == "nodelay") {
            table.remark(limit, "requests of a burst are not delayed here");
        }
        let rate = match by {
            None => text.into(),
            Some(by) => json!({ "limit": text, "by": by }),
        };
        let status = scope.last("limit_req_status");
        if let Some(status) = status {
            let what = "further requests are answered with 429";
            match status.first() {
                "429" => table.not_needed(status, what),
                _ => table.not_imported(status, what),
            }
        }
        table.set("rate", rate, &[limit, zone]);
    }
}

fn error_pages<'a>(scope: &Scope<'a>, table: &mut Table, routes: &Routes<'a, '_>) {
    let mut pages = Value::Null;
    let mut from = Vec::new();
    for directive in scope.all(&["error_page"]) {
        let Some((page, codes)) = directive.words.split_last() else { continue };
        let changes = codes.iter().any(|code| code.starts_with('='));
        let location = routes.locations.find(page);
        let around = location.map_or(scope, |location| &location.scope);
        let root = around.own_first("alias").or_else(|| around.last("root"));
        let (Some(root), false, true) =
            (root, changes || value::has_variables(page), page.starts_with('/'))
        else {
            table.not_imported(directive, "a page of errors is a file, and the status stays");
            continue;
        };
        let file = match root.name == "alias" {
            true if matches!(location.map(|one| &one.kind), Some(Kind::Exact)) => {
                routes.path(root.first())
            }
            _ => format!("{}{page}", routes.path(root.first()).trim_end_matches('/')),
        };
        for code in codes {
            match code.parse::<u16>() {
                Ok(code @ 400..=599) if !(494..=499).contains(&code) => {
                    pages[&code.to_string()] = file.as_str().into();
                }
                _ => table.not_imported(directive, &format!("{code} is no error of a server here")),
            }
        }
        from.extend([directive, root]);
        if let Some(internal) = location.and_then(|location| location.scope.own_first("internal")) {
            from.push(internal);
            from.extend(location.and_then(|location| location.directive));
        }
    }
    if !pages.is_null() {
        table.set("errors", pages, &from);
    }
}

/// Writes the fields that servers get.
pub(super) fn request_fields(
    scope: &Scope<'_>,
    pass: &Directive,
    (proxy, server): (&mut Value, &str),
    table: &mut Table,
) {
    let mut has_host = false;
    let copied: Vec<&str> =
        scope.all(&["auth_request_set"]).iter().map(|set| set.first()).collect();
    let set_header = format!("{}_set_header", module(pass));
    for directive in scope.all(&[&set_header]) {
        let name = directive.first().to_ascii_lowercase();
        let text = directive.second();
        if name == "host" {
            has_host = true;
            let host = match text {
                "$host" | "$http_host" | "$host:$server_port" | "$host:$proxy_port" => {
                    table.not_needed(directive, "servers get the host that the client asked for");
                    continue;
                }
                "$proxy_host" => server,
                text if !value::has_variables(text) => text,
                _ => {
                    table.not_imported(directive, "the host is that of the client, or one text");
                    continue;
                }
            };
            proxy["host"] = host.into();
            table.cite("proxy", &[directive]);
            continue;
        }
        if is_forwarded(&name) {
            match name == "x-forwarded-proto" && text == "https" {
                true => table.not_imported(
                    directive,
                    "it is the scheme of the connection, or that of trusted_proxies in [server]",
                ),
                false => table.not_needed(directive, "servers get it by themselves"),
            }
            continue;
        }
        if copied.contains(&text) {
            // `copy` of auth_request has it, if the names agree.
            if directive.outcome() == Outcome::Unknown {
                table.not_imported(directive, "copy of auth_request passes a field on by its name");
            }
            continue;
        }
        match value::field(text) {
            Ok(text) if text.is_empty() => push(&mut proxy["request_headers"]["remove"], name),
            Ok(text) => proxy["request_headers"]["set"][&name] = text.into(),
            Err(why) => {
                table.not_imported(directive, &why);
                continue;
            }
        }
        table.cite("proxy", &[directive]);
    }
    if !has_host && !server.starts_with("unix:") {
        table.remark(pass, &format!("nginx sends this host unless {set_header} names another"));
        proxy["host"] = server.into();
    }
}

/// Writes how responses of servers are treated, from the directives of a module of nginx; `kind` is
/// the key of the route.
pub(super) fn responses(
    scope: &Scope<'_>,
    module: &str,
    kind: &str,
    action: &mut Value,
    table: &mut Table,
) {
    if let Some(gzip) = scope.is_on("gzip") {
        action["compress"] = true.into();
        table.cite(kind, &[gzip]);
    }
    if let Some(replaced) = scope.is_on(&format!("{module}_intercept_errors")) {
        action["replace_errors"] = true.into();
        table.cite(kind, &[replaced]);
    }
    if kind != "proxy" {
        return;
    }
    match scope.last(&format!("{module}_next_upstream")) {
        Some(next) if next.first() == "off" => {
            action["retries"] = 0.into();
            table.cite(kind, &[next]);
        }
        Some(next) => {
            table.not_imported(next, "a request is tried again if that can do no harm; retries")
        }
        None => {}
    }
    if module != "proxy" {
        return;
    }
    for (name, key) in [
        ("proxy_redirect", "rewrite_location"),
        ("proxy_cookie_path", "rewrite_cookie_path"),
        ("proxy_cookie_domain", "rewrite_cookie_domain"),
    ] {
        for directive in scope.all(&[name]) {
            match &directive.words[..] {
                [one] if one == "off" || one == "default" => {
                    table.not_needed(directive, "nothing is replaced unless a key says so");
                }
                [from, to]
                    if !from.contains('$') && !to.contains('$') && !from.starts_with('~') =>
                {
                    action[key][from] = to.as_str().into();
                    table.cite(kind, &[directive]);
                }
                _ => table
                    .not_imported(directive, &format!("{key} replaces texts without variables")),
            }
        }
    }
}
