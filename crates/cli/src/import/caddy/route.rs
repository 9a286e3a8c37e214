//! A route for each matcher of a site.
//!
//! In Caddy a request passes all directives whose matchers fit, in an order that is built in. Here
//! a route has everything for its requests. So each matcher of a block makes a route. The route has
//! the action of the first directive that answers such requests, and the rules of all other
//! directives that fit.

use std::cmp::Reverse;

use superpoll_gateway::config::PasswordHash;

use super::super::directive::{Directive, Outcome};
use super::super::output::caddy_text as text;
use super::super::output::{Action, HostTables, Output, Table, Value, json, push};
use super::super::source::is_among;
use super::super::upstreams::{Protocol, Upstreams, is_forwarded};
use super::matcher::{Matcher, of_word, path_length, split};

/// Directives that answer, in the order in which Caddy tries them.
const ANSWERS: [&str; 7] =
    ["redir", "abort", "error", "respond", "reverse_proxy", "php_fastcgi", "file_server"];

/// Directives with blocks for some requests, in the order in which Caddy tries them; it takes
/// `handle_path` for `handle`.
const GROUPS: [&str; 2] = ["handle", "route"];

/// Directives that add something to an answer.
const RULES: &str = "root header request_header encode basic_auth basicauth forward_auth rewrite \
                     uri try_files request_body";

/// A directive with the matchers that it has.
#[derive(Clone)]
struct Fitted<'a> {
    directive: &'a Directive,
    /// Empty for all requests of the block.
    matchers: Vec<Matcher>,
    words: &'a [String],
    /// The number of blocks around it.
    depth: usize,
    /// The length of its path, if it has one.
    path: usize,
}

impl Fitted<'_> {
    /// Whether Caddy tries it before another directive of its name: a longer path comes first, and
    /// a matcher before none.
    fn is_before(&self, other: &Fitted<'_>) -> bool {
        match (self.path, other.path) {
            (0, _) | (_, 0) => !self.matchers.is_empty() && other.matchers.is_empty(),
            (own, other) => own > other,
        }
    }

    fn fits(&self, slot: &Matcher) -> bool {
        self.matchers.is_empty() || self.matchers.iter().any(|matcher| matcher.covers(slot))
    }
}

/// The state of the translation of routes.
pub(super) struct Routes<'b> {
    pub(super) upstreams: &'b mut Upstreams,
    /// The number of pairs of matchers that may still be compared.
    pub(super) looks_left: usize,
}

/// The most pairs of matchers of one import that are compared.
pub(super) const MOST_LOOKS: usize = 20_000_000;

/// The directives and settings that a block inherits from the blocks around it.
#[derive(Clone, Default)]
struct Around<'a> {
    rules: Vec<Fitted<'a>>,
    named: Vec<&'a Directive>,
    depth: usize,
    /// The path that is taken off.
    stripped: Option<String>,
    /// Whether directives count in their own order, as in `route`.
    is_ordered: bool,
}

impl Routes<'_> {
    /// Returns the routes of a site, and writes the rest to its host.
    pub(super) fn of_site(
        &mut self,
        block: &[Directive],
        host: &mut Table,
        output: &mut Output,
    ) -> Vec<Table> {
        for directive in block {
            match directive.name.as_str() {
                "log" => access_log(directive, output),
                "handle_errors" => error_pages(directive, block, host),
                _ => {}
            }
        }
        let mut tables = HostTables::new();
        self.of_block(block, &Matcher::all(), &Around::default(), &mut tables.routes, host);
        // One route of a path has no match.
        let mut known: Vec<(Option<Value>, Option<Value>)> = Vec::new();
        tables.routes.retain(|route| {
            let key = (route.get("path").cloned(), route.get("match").cloned());
            let is_new = !known.contains(&key);
            known.push(key);
            is_new
        });
        tables.routes
    }

    fn of_block<'a>(
        &mut self,
        block: &'a [Directive],
        base: &Matcher,
        around: &Around<'a>,
        routes: &mut Vec<Table>,
        host: &mut Table,
    ) {
        let inherited = around.rules.len();
        let mut around = around.clone();
        around.depth += 1;
        around.named.extend(block.iter().filter(|one| one.name.starts_with('@')));
        let (mut answers, mut slots, mut groups) = (Vec::new(), Vec::new(), Vec::new());
        for directive in block {
            let name = directive.name.as_str();
            let group = GROUPS.iter().position(|group| name.trim_end_matches("_path") == *group);
            if group.is_none() && !ANSWERS.contains(&name) && !is_among(RULES, name) {
                other(directive, host);
                continue;
            }
            let (word, words) = split(directive);
            let (mut matchers, mut path) = (Vec::new(), 0);
            if let Some(word) = word.filter(|word| *word != "*") {
                path = path_length(word, &around.named);
                match of_word(word, &around.named) {
                    Ok(found) => matchers = found,
                    Err(why) => {
                        leave_out(directive, words, &why, host);
                        continue;
                    }
                }
                around.named.iter().filter(|one| one.name == word).for_each(|one| {
                    one.note_all(Outcome::Imported);
                    host.comment(&format!("{}: {} is match of routes", one.place, one.name));
                });
                // Only one of the two may have more than a path.
                let is_in_other = *base != Matcher::all();
                let within = |one: &Matcher| {
                    base.table.is_null() && (one.path.starts_with(&base.path) || one.path == "/")
                };
                if is_in_other && (!matchers.iter().all(within) || around.stripped.is_some()) {
                    let why = "a route has one path, and the matchers around have another";
                    leave_out(directive, words, why, host);
                    continue;
                }
                for matcher in matchers.iter_mut().filter(|one| is_in_other && one.path == "/") {
                    matcher.path.clone_from(&base.path);
                }
            }
            if let Some(order) = group {
                let depth = around.depth;
                groups.push((order, Fitted { directive, matchers, words, depth, path }));
                continue;
            }
            for matcher in &matchers {
                if !slots.contains(matcher) {
                    slots.push(matcher.clone());
                }
            }
            let fitted = Fitted { directive, matchers, words, depth: around.depth, path };
            match ANSWERS.iter().position(|answer| *answer == name) {
                Some(order) => answers.push((order, fitted)),
                None => around.rules.push(fitted),
            }
        }
        if !slots.contains(base) {
            slots.push(base.clone());
        }
        if !around.is_ordered {
            for directives in [&mut answers, &mut groups] {
                insertion_sort(directives, |(order, one), (other_order, other)| {
                    order < other_order || (order == other_order && one.is_before(other))
                });
            }
            insertion_sort(&mut around.rules[inherited..], Fitted::is_before);
        }
        let bases = |group: &Fitted<'_>| match group.matchers.is_empty() {
            true => vec![base.clone()],
            false => group.matchers.clone(),
        };
        // Caddy redirects before it looks at blocks.
        let is_before = |one: &&Fitted<'_>| one.directive.name == "redir" && !around.is_ordered;
        let redirects: Vec<&Fitted<'a>> =
            answers.iter().map(|(_, answer)| answer).filter(is_before).collect();
        for redirect in &redirects {
            let has_part = |other: Matcher| {
                let mut meets = redirect.matchers.iter().map(|own| (own, own.meet(&other)));
                meets.any(|(own, meet)| match meet {
                    Ok(None) => false,
                    Ok(Some(meet)) => meet != *own && meet != other,
                    Err(_) => true,
                })
            };
            if groups.iter().flat_map(|(_, group)| bases(group)).any(has_part) {
                host.remark(
                    redirect.directive,
                    "a block for some of its requests comes first here",
                );
            }
        }
        for (index, (_, group)) in groups.iter().enumerate() {
            let directive = group.directive;
            let mut own = bases(group);
            let mut before =
                redirects.iter().copied().chain(groups[..index].iter().map(|(_, before)| before));
            let first = before.find(|before| {
                own.retain(|one| !bases(before).iter().any(|base| base.covers(one)));
                own.is_empty()
            });
            if let Some(first) = first {
                let line = first.directive.place.line;
                host.not_imported(directive, &format!("line {line} has its requests before"));
                continue;
            }
            host.comment(&format!("{}: {}", directive.place, directive.head()));
            directive.note(Outcome::Imported);
            for matcher in own {
                let mut around = around.clone();
                around.is_ordered = directive.name == "route";
                if directive.name == "handle_path" {
                    around.stripped = Some(matcher.path.trim_end_matches('/').to_owned());
                }
                self.of_block(directive.children(), &matcher, &around, routes, host);
                // Caddy has the requests of two groups in the first.
                let later = groups[index + 1..].iter().flat_map(|(_, later)| bases(later));
                let later: Vec<Matcher> = later.collect();
                for meet in later.iter().filter_map(|later| matcher.meet(later).ok().flatten()) {
                    if !self.may_look(later.len()) {
                        return;
                    }
                    if meet != matcher {
                        self.of_block(directive.children(), &meet, &around, routes, host);
                    }
                }
            }
        }
        let slots = self.with_meets(slots, &answers, &around.rules);
        for slot in &slots {
            let all = answers.iter().map(|(_, answer)| answer);
            let own: Vec<&Fitted<'a>> = all.clone().filter(|answer| answer.fits(slot)).collect();
            let Some(first) = own.first() else { continue };
            let mut rules: Vec<Fitted<'a>> =
                around.rules.iter().filter(|rule| rule.fits(slot)).cloned().collect();
            // Of the rewrites of a block, Caddy takes the first that fits.
            let mut rewritten = Vec::new();
            rules.retain(|rule| {
                let is_other = rule.directive.name != "rewrite";
                let is_first = is_other || !rewritten.contains(&rule.depth);
                rewritten.extend(Some(rule.depth).filter(|_| !is_other));
                is_first
            });
            let stripped = around.stripped.as_deref();
            let mut route = Table::new("[[hosts.routes]]");
            if slot.path != "/" {
                route.set("path", text(&slot.path), &[]);
            }
            if !slot.table.is_null() {
                route.set("match", slot.table.clone(), &[]);
            }
            if stripped.is_some_and(|path| path != slot.path.trim_end_matches('/')) {
                let why = "a route takes its own path off, and a matcher around has a longer one";
                route.act(first.directive, Err(why.to_owned()));
            } else {
                self.route(slot, &own, &rules, stripped, &mut route);
            }
            let before = all.take_while(|one| !std::ptr::eq(*one, *first)).chain(&around.rules);
            for lost in before.filter(|one| keeps_out(one.directive, one.words)) {
                if !lost.fits(slot) && lost.matchers.iter().any(|one| one.meet(slot).is_err()) {
                    route.close(lost.directive, "its matcher and that of a route may both fit");
                }
            }
            routes.push(route);
        }
        for rule in &around.rules[inherited..] {
            match rule.directive.outcome() {
                Outcome::Unknown if keeps_out(rule.directive, rule.words) => {
                    host.close(rule.directive, "no route here is for its requests");
                }
                Outcome::Unknown => host.not_needed(rule.directive, "no route has a use for it"),
                _ => {}
            }
        }
    }

    /// Adds the requests that two matchers have in common, before those of each, if they need
    /// routes of their own.
    fn with_meets(
        &mut self,
        slots: Vec<Matcher>,
        answers: &[(usize, Fitted<'_>)],
        rules: &[Fitted<'_>],
    ) -> Vec<Matcher> {
        let answers = || answers.iter().map(|(_, answer)| answer);
        let mut all = Vec::new();
        for matcher in answers().chain(rules).flat_map(|one| &one.matchers) {
            for slot in &slots {
                if !self.may_look(1) {
                    return slots;
                }
                if let Ok(Some(meet)) = matcher.meet(slot)
                    && !slots.contains(&meet)
                    && !all.contains(&meet)
                {
                    all.push(meet);
                }
            }
        }
        let meets = all.len();
        all.extend(slots);
        // The directives that count for a slot.
        let uses = |slot: &Matcher| -> (Option<usize>, Vec<bool>) {
            let first = answers().position(|answer| answer.fits(slot));
            (first, rules.iter().map(|rule| rule.fits(slot)).collect())
        };
        let has_own = |meet: &Matcher| {
            let others = all.iter().rev().filter(|one| *one != meet && one.covers(meet));
            let next = others.max_by_key(|one| (one.path.len(), !one.table.is_null()));
            next.is_none_or(|next| uses(next) != uses(meet))
        };
        let mut needed = Vec::new();
        for (index, slot) in all.iter().enumerate() {
            needed.push(index >= meets || (self.may_look(all.len()) && has_own(slot)));
        }
        let mut needed = needed.into_iter();
        all.retain(|_| needed.next().unwrap_or(true));
        all
    }

    /// Counts comparisons of matchers; `false` if there were too many.
    fn may_look(&mut self, count: usize) -> bool {
        self.looks_left = self.looks_left.saturating_sub(count);
        self.looks_left > 0
    }

    /// Writes the action and the rules of a route.
    fn route<'a>(
        &mut self,
        slot: &Matcher,
        answers: &[&Fitted<'a>],
        rules: &[Fitted<'a>],
        stripped: Option<&str>,
        table: &mut Table,
    ) {
        let own = |name: &'static str| rules.iter().filter(move |rule| rule.directive.name == name);
        let root = own("root").min_by_key(|rule| Reverse(rule.depth));
        let root =
            root.map(|rule| (rule.words.first().cloned().unwrap_or_default(), rule.directive));
        let has_files = answers.iter().find(|answer| answer.directive.name == "file_server");
        let first = answers[0];
        let directive = first.directive;
        match directive.name.as_str() {
            "redir" => table.act(directive, redirect(first.words)),
            "respond" | "error" | "abort" => {
                let action = respond(first, table);
                table.act(directive, action);
            }
            "reverse_proxy" => {
                let mut action = self.proxy(first.words, directive, table);
                if let Ok((_, proxy)) = &mut action {
                    let headers = &mut proxy["request_headers"];
                    for rule in own("request_header") {
                        change(rule.words, "proxy", headers, rule.directive, table);
                    }
                    compress(own("encode"), proxy, "proxy", table);
                    if stripped.is_some() {
                        proxy["strip_path"] = true.into();
                    }
                }
                table.act(directive, action);
            }
            "php_fastcgi" => {
                let mut action = self.scripts(first, has_files.copied(), root, table);
                if let Ok((_, fastcgi)) = &mut action {
                    compress(own("encode"), fastcgi, "fastcgi", table);
                }
                table.act(directive, action);
            }
            _ => {
                let action = files(first, root, own("try_files"), table);
                table.act(directive, action);
            }
        }
        let is_shifted = slot.path != "/" && stripped.is_none();
        let is_rewritten = own("rewrite").chain(own("uri")).next().is_some();
        let has_folder = table.get("files").is_some() || table.get("fastcgi").is_some();
        if is_shifted && has_folder && !is_rewritten {
            table.set("rewrite", "{path}", &[]);
        }
        for rule in rules {
            self.rule(rule, slot, table);
        }
    }

    /// Writes a directive that adds something to the answer of a route.
    fn rule(&mut self, rule: &Fitted<'_>, slot: &Matcher, table: &mut Table) {
        let (directive, words) = (rule.directive, rule.words);
        let key = match directive.name.as_str() {
            "rewrite" | "uri" => "rewrite",
            "basic_auth" | "basicauth" => "basic_auth",
            "forward_auth" => "auth_request",
            "request_body" => "body_bytes",
            _ => "",
        };
        if table.get(key).is_some() {
            let why = format!("a route has one {key}");
            return leave_out(directive, words, &why, table);
        }
        let is_forwarded = ["files", "proxy", "fastcgi"].iter().any(|key| table.get(key).is_some());
        match (directive.name.as_str(), words) {
            ("encode", _) if table.get("proxy").or(table.get("fastcgi")).is_none() => {
                table.not_needed(directive, "files that are text are compressed by default");
            }
            ("header", _) => {
                let mut headers = table.get("headers").cloned().unwrap_or_default();
                change(words, "headers", &mut headers, directive, table);
                if !headers.is_null() {
                    table.set("headers", headers, &[]);
                }
            }
            ("request_header", _) if table.get("proxy").is_none() => {
                table.not_imported(directive, "request_headers is a key of proxy");
            }
            ("basic_auth" | "basicauth", _) => passwords(directive, words, table),
            ("forward_auth", _) => self.forward_auth(directive, words, table),
            ("rewrite", [to]) if is_forwarded => match rewritten(to, slot) {
                Ok(to) => table.set("rewrite", to, &[directive]),
                Err(why) => table.not_imported(directive, &why),
            },
            ("uri", [kind, prefix])
                if kind == "strip_prefix" && slot.path.trim_end_matches('/') == prefix =>
            {
                table.set("rewrite", "{below}", &[directive]);
            }
            ("request_body", _) => {
                for child in directive.children() {
                    let size = text(child.first());
                    match child.name.as_str() {
                        "max_size" => table.set("body_bytes", size, &[directive, child]),
                        _ => table.not_imported(child, "body_bytes is the only limit of a body"),
                    }
                }
            }
            ("try_files", _) if directive.outcome() == Outcome::Unknown => {
                let why = "files have fallback, or otherwise next to proxy or fastcgi";
                table.not_imported(directive, why);
            }
            ("rewrite" | "uri", _) => table.not_imported(directive, "rewrite of the route"),
            _ => {}
        }
    }

    fn proxy(&mut self, addresses: &[String], directive: &Directive, table: &mut Table) -> Action {
        let mut to: Vec<String> = addresses.to_vec();
        for child in directive.children().iter().filter(|one| one.name == "to") {
            to.extend(child.words.iter().cloned());
            table.cite("proxy", &[child]);
        }
        let transport = directive.children().iter().filter(|one| one.name == "transport");
        let mut settings = transport.take(1).flat_map(Directive::children);
        let scheme = to.first().and_then(|first| first.split_once("://"));
        let protocol = match scheme.map(|(scheme, _)| scheme) {
            _ if settings.any(|one| one.name.starts_with("tls")) => Protocol::Https,
            Some("https") => Protocol::Https,
            Some("h2c") => Protocol::Http2,
            _ => Protocol::Http,
        };
        for address in &mut to {
            let rest = address.split_once("://").map_or(address.as_str(), |(_, rest)| rest);
            let host = if rest.starts_with(':') { "127.0.0.1" } else { "" };
            *address = format!("{host}{rest}");
        }
        let name = self.upstreams.of_addresses(&to, protocol, directive)?;
        let mut proxy = json!({ "upstream": name.as_str() });
        if protocol.has_tls() {
            let tls = json!({ "ca": "/etc/ssl/certs/ca-certificates.crt" });
            table.remark(directive, "servers prove who they are by the authorities of the system");
            self.upstreams.set(&name, "tls", tls, &[directive]);
        }
        if protocol.has_http2() {
            self.upstreams.set(&name, "h2", true, &[directive]);
        }
        let mut health = Value::Null;
        let mut checks = Vec::new();
        for child in directive.children() {
            match (child.name.as_str(), child.first()) {
                ("to", _) => {}
                ("lb_policy", "least_conn" | "ip_hash" | "client_ip_hash") => {
                    let is_hash = child.first() != "least_conn";
                    let balance = if is_hash { "hash" } else { "least-connections" };
                    self.upstreams.set(&name, "balance", balance, &[child]);
                }
                ("lb_policy", "round_robin") => table.not_needed(child, "it is the default"),
                ("health_uri", path) => {
                    health["path"] = text(path);
                    checks.push(child);
                }
                ("health_interval" | "health_timeout", time) => {
                    health[child.name.trim_start_matches("health_")] = text(time);
                    checks.push(child);
                }
                ("header_up", field) if field.eq_ignore_ascii_case("host") => {
                    let server = to.first().map_or("", String::as_str);
                    let host = match child.second().replace("http.request.", "").as_str() {
                        "{host}" | "{hostport}" => {
                            let why = "servers get the host that the client asked for";
                            table.not_needed(child, why);
                            continue;
                        }
                        "{upstream_hostport}" | "{http.reverse_proxy.upstream.hostport}" => server,
                        host if host.is_empty() || host.contains('{') => {
                            let why = "the host is that of the client, or one text";
                            table.not_imported(child, why);
                            continue;
                        }
                        _ => child.second(),
                    };
                    proxy["host"] = host.into();
                    table.cite("proxy", &[child]);
                }
                ("header_up", field) if is_forwarded(field.trim_start_matches(['+', '-'])) => {
                    table.not_needed(child, "servers get it by themselves");
                }
                ("header_up", _) => {
                    change(&child.words, "proxy", &mut proxy["request_headers"], child, table)
                }
                ("header_down", _) => {
                    let mut headers = table.get("headers").cloned().unwrap_or_default();
                    change(&child.words, "headers", &mut headers, child, table);
                    table.set("headers", headers, &[]);
                }
                ("flush_interval" | "request_buffers" | "response_buffers", _) => {
                    table.not_needed(child, "bodies and responses are always streamed");
                }
                ("transport", _) => self.transport(child, &name, table),
                _ => table.not_imported(child, "the upstream, or proxy, has no such key"),
            }
        }
        if !checks.is_empty() {
            self.upstreams.set(&name, "health", health, &checks);
        }
        Ok(("proxy", proxy))
    }

    fn transport(&mut self, transport: &Directive, name: &str, table: &mut Table) {
        table.remark(transport, "the upstream has it");
        for child in transport.children() {
            match (child.name.as_str(), child.first()) {
                ("tls", _) => child.note(Outcome::Imported),
                ("tls_server_name", host) => {
                    let tls =
                        json!({ "ca": "/etc/ssl/certs/ca-certificates.crt", "server_name": host });
                    self.upstreams.set(name, "tls", tls, &[child]);
                }
                ("tls_insecure_skip_verify", _) => {
                    table.not_imported(child, "servers always have to prove who they are");
                }
                ("versions", _)
                    if child.words.iter().any(|one| one.starts_with('2') || one == "h2c") =>
                {
                    self.upstreams.set(name, "h2", true, &[child]);
                }
                ("keepalive", time) if time != "off" => {
                    self.upstreams.set(name, "idle", time, &[child])
                }
                _ => table.not_imported(child, "[timeouts] is for all upstreams"),
            }
        }
    }

    fn scripts(
        &mut self,
        answer: &Fitted<'_>,
        file_server: Option<&Fitted<'_>>,
        root: Option<(String, &Directive)>,
        table: &mut Table,
    ) -> Action {
        let directive = answer.directive;
        let name = self.upstreams.of_addresses(answer.words, Protocol::FastCgi, directive)?;
        let mut fastcgi = json!({ "upstream": name });
        let mut folder = ".".to_owned();
        if let Some((root, directive)) = root {
            folder = root;
            table.cite("fastcgi", &[directive]);
        }
        for child in directive.children() {
            match (child.name.as_str(), &child.words[..]) {
                ("root", [root]) => folder.clone_from(root),
                ("index", [index]) if index.ends_with(".php") => {
                    fastcgi["index"] = index.as_str().into()
                }
                ("split", [split]) => fastcgi["split"] = split.as_str().into(),
                ("env", [name, value]) if !has_placeholder(value) => {
                    fastcgi["params"][name] = text(value);
                }
                _ => {
                    table.not_imported(child, "fastcgi has no such key");
                    continue;
                }
            }
            table.cite("fastcgi", &[child]);
        }
        fastcgi["root"] = plain_folder(&folder)?;
        if let Some(files) = file_server {
            let value = json!({ "root": text(&folder), "otherwise": "fastcgi" });
            table.set("files", value, &[files.directive]);
            for one in files.directive.children() {
                table.not_imported(one, "files has no such key here");
            }
        }
        Ok(("fastcgi", fastcgi))
    }

    fn forward_auth(&mut self, directive: &Directive, words: &[String], table: &mut Table) {
        let words: Vec<String> =
            words.iter().map(|one| one.trim_start_matches("http://").to_owned()).collect();
        let Ok(name) = self.upstreams.of_addresses(&words, Protocol::Http, directive) else {
            return table.close(directive, "auth_request asks a server of an upstream");
        };
        let mut auth = json!({ "upstream": name });
        let mut from = vec![directive];
        let mut copied: Vec<String> = Vec::new();
        for child in directive.children() {
            match child.name.as_str() {
                "uri" => auth["path"] = child.first().split('?').next().unwrap_or("/").into(),
                "copy_headers" => {
                    copied.extend(child.words.iter().cloned());
                    copied.extend(child.children().iter().map(|one| one.name.clone()));
                    from.extend(child.children());
                }
                _ => {
                    table.not_imported(child, "auth_request has no such key");
                    continue;
                }
            }
            from.push(child);
        }
        if copied.iter().any(|name| name.contains('>')) {
            table.comment("copy keeps the names of fields.");
            copied.iter_mut().for_each(|name| name.truncate(name.find('>').unwrap_or(name.len())));
        }
        if !copied.is_empty() {
            auth["copy"] = copied.into();
        }
        table.set("auth_request", auth, &from);
    }
}

/// Whether a text has a variable that is known with a request alone.
fn has_placeholder(text: &str) -> bool {
    text.split('{').skip(1).any(|rest| {
        let name = rest.split_once('}').map_or("", |(name, _)| name);
        let is_json = name.contains(|one: char| one == '"' || one.is_whitespace());
        !(name.is_empty() || name.starts_with('$') || is_json)
    })
}

/// Returns the folder of files or scripts.
fn plain_folder(folder: &str) -> Result<Value, String> {
    match has_placeholder(folder) {
        true => Err("a folder has one name, without variables".to_owned()),
        false => Ok(text(folder)),
    }
}

/// Says that an answer is compressed, if there is a directive for it.
fn compress<'f>(
    encode: impl Iterator<Item = &'f Fitted<'f>>,
    action: &mut Value,
    key: &str,
    table: &mut Table,
) {
    for rule in encode {
        action["compress"] = true.into();
        table.cite(key, &[rule.directive]);
        rule.directive.children().iter().for_each(|one| one.note(Outcome::NotNeeded));
    }
}

/// Sorts by an order that not all pairs have, as Caddy does: a later one passes its neighbors while
/// it comes before them.
fn insertion_sort<T>(all: &mut [T], is_before: impl Fn(&T, &T) -> bool) {
    for end in 1..all.len() {
        let mut at = end;
        while at > 0 && is_before(&all[at], &all[at - 1]) {
            all.swap(at, at - 1);
            at -= 1;
        }
    }
}

/// Says that a directive cannot be expressed. Without one that refuses clients, all are refused.
fn leave_out(directive: &Directive, words: &[String], why: &str, table: &mut Table) {
    match keeps_out(directive, words) {
        true => table.close(directive, why),
        false => table.not_imported(directive, why),
    }
}

/// Whether a directive refuses clients, which would be served without it.
fn keeps_out(directive: &Directive, words: &[String]) -> bool {
    match directive.name.as_str() {
        "abort" | "error" | "basic_auth" | "basicauth" | "forward_auth" => true,
        "handle" | "handle_path" | "route" => {
            directive.children().iter().any(|child| keeps_out(child, &child.words))
        }
        "respond" => words.last().is_some_and(|code| code.starts_with('4') && code.len() == 3),
        _ => false,
    }
}

/// Writes the lines of a directive that changes fields.
fn change(
    words: &[String],
    key: &str,
    headers: &mut Value,
    directive: &Directive,
    table: &mut Table,
) {
    let mut lines: Vec<(&Directive, Vec<&str>)> = Vec::new();
    if !words.is_empty() {
        lines.push((directive, words.iter().map(String::as_str).collect()));
    }
    for child in directive.children() {
        let words = std::iter::once(&child.name).chain(&child.words).map(String::as_str).collect();
        lines.push((child, words));
    }
    for (line, words) in lines {
        let (name, value) = match &words[..] {
            ["defer"] => {
                table.not_needed(line, "fields are changed when the answer is there");
                continue;
            }
            [name] if name.starts_with('-') && !name.contains('*') => (*name, Ok(Value::Null)),
            [name, text] => (*name, variables(text)),
            _ => ("?", Ok(Value::Null)),
        };
        let lower = |name: &str| name.to_ascii_lowercase();
        match (name.split_at_checked(1), value) {
            (_, Err(why)) => {
                table.not_imported(line, &why);
                continue;
            }
            (Some(("-", name)), Ok(Value::Null)) => push(&mut headers["remove"], lower(name)),
            (Some(("+", name)), Ok(text)) => headers["add"][&lower(name)] = text,
            (Some(("?" | "-", _)), _) => {
                table.not_imported(line, "a field is set, added or removed");
                continue;
            }
            (_, Ok(text)) => headers["set"][&lower(name.trim_start_matches('>'))] = text,
        }
        table.cite(key, &[line]);
    }
    if directive.block.is_some() {
        table.cite(key, &[directive]);
    }
}

/// Returns a value of a field with the variables of this server.
fn variables(word: &str) -> Result<Value, String> {
    let mut all = String::new();
    let mut rest = word;
    let mut is_expanded = false;
    while let Some((before, after)) = rest.split_once('{') {
        all.push_str(before);
        let Some((name, behind)) =
            after.split_once('}').filter(|(name, _)| !name.contains([' ', '"']))
        else {
            all.push('{');
            rest = after;
            continue;
        };
        if name.starts_with('$') {
            is_expanded = true;
            all.push_str(&format!("{{{name}}}"));
        } else {
            let name = name.trim_start_matches("http.request.");
            all.push_str(match name {
                "remote_host" | "client_ip" | "remote.host" => "{client}",
                "remote_port" | "remote.port" => "{client_port}",
                "host" | "hostport" => "{host}",
                "method" => "{method}",
                "path" | "uri.path" => "{path}",
                "query" | "uri.query" => "{query}",
                "uri" => "{uri}",
                "scheme" => "{scheme}",
                "tls_version" => "{tls.version}",
                "tls_cipher" => "{tls.cipher}",
                other => return Err(format!("{{{other}}} has no counterpart here")),
            });
        }
        rest = behind;
    }
    all.push_str(rest);
    Ok(if is_expanded { text(&all) } else { all.into() })
}

fn redirect(words: &[String]) -> Action {
    let word = |index: usize| words.get(index).map_or("", String::as_str);
    let status = match word(1) {
        "" | "temporary" => 302,
        "permanent" => 301,
        code => code.parse().unwrap_or(0),
    };
    let to = word(0).replace("{uri}", "{path}{query}").replace("{?query}", "{query}");
    let known = ["{host}", "{path}", "{query}", "{$"];
    let rest = known.iter().fold(to.clone(), |rest, known| rest.replace(known, ""));
    if rest.contains('{') || status == 0 {
        return Err("a redirect has {host}, {path} and {query}, and a status".to_owned());
    }
    Ok(("redirect", json!({ "to": text(&to), "status": status })))
}

fn respond(answer: &Fitted<'_>, table: &mut Table) -> Action {
    let (directive, words) = (answer.directive, answer.words);
    let is_status = |word: &str| word.len() == 3 && word.bytes().all(|one| one.is_ascii_digit());
    let (mut body, code) = match (directive.name.as_str(), words) {
        ("abort", _) => (None, "444"),
        ("error", [code]) if is_status(code) => (None, code.as_str()),
        ("error", [_, code]) => (None, code.as_str()),
        ("error", [] | [_]) => (None, "500"),
        ("respond", [code]) if is_status(code) => (Some(""), code.as_str()),
        ("respond", [body, code]) => (Some(body.as_str()), code.as_str()),
        ("respond", [] | [_]) => (Some(words.first().map_or("", String::as_str)), "200"),
        _ => return Err("expected a text and a status".to_owned()),
    };
    for child in directive.children() {
        match child.name.as_str() {
            "body" => body = Some(child.first()),
            _ => {
                table.not_imported(child, "444 closes the connection");
                continue;
            }
        }
        table.cite("respond", &[child]);
    }
    let status: u16 = code.parse().map_err(|_| format!("{code} is no status"))?;
    let mut respond = json!({ "status": status });
    if let Some(body) = body.filter(|_| !matches!(status, 204 | 205 | 304 | 444)) {
        if has_placeholder(body) {
            return Err("the body of a fixed answer has no variables".to_owned());
        }
        respond["body"] = text(body);
    }
    Ok(("respond", respond))
}

fn files<'f>(
    answer: &Fitted<'_>,
    root: Option<(String, &Directive)>,
    tried: impl Iterator<Item = &'f Fitted<'f>>,
    table: &mut Table,
) -> Action {
    let mut files = json!({ "root": "." });
    if let Some((folder, root)) = root {
        files["root"] = plain_folder(&folder)?;
        table.cite("files", &[root]);
    }
    if answer.words.iter().any(|word| word == "browse") {
        files["listing"] = true.into();
    }
    for child in answer.directive.children() {
        match (child.name.as_str(), &child.words[..]) {
            ("root", [folder]) => files["root"] = plain_folder(folder)?,
            ("index", names) => files["index"] = names.to_vec().into(),
            ("browse", []) => files["listing"] = true.into(),
            (name, _) => {
                match name {
                    "precompressed" => {
                        table.not_needed(child, "compressed files are sent by default");
                    }
                    "hide" => {
                        let why = "files whose names begin with a dot are hidden, and no others";
                        table.not_imported(child, why);
                    }
                    _ => table.not_imported(child, "files has no such key"),
                }
                continue;
            }
        }
        table.cite("files", &[child]);
    }
    for rule in tried {
        match rule.words {
            [rest @ .., last]
                if last.starts_with('/')
                    && !last.contains(['{', '?'])
                    && rest.iter().all(|one| one == "{path}" || one == "{path}/") =>
            {
                files["fallback"] = last.as_str().into();
                table.cite("files", &[rule.directive]);
            }
            _ => table
                .not_imported(rule.directive, "files have fallback for all paths without a file"),
        }
    }
    Ok(("files", files))
}

fn passwords(directive: &Directive, words: &[String], table: &mut Table) {
    let mut auth = Value::Null;
    let realm = words.iter().find(|word| !matches!(word.as_str(), "bcrypt" | "argon2id"));
    if let Some(realm) = realm {
        auth["realm"] = text(realm);
    }
    let mut from = vec![directive];
    for user in directive.children() {
        match PasswordHash::parse(user.first()) {
            Ok(_) => auth["users"][&user.name] = user.first().into(),
            Err(why) => {
                table.not_imported(user, &why.to_string());
                continue;
            }
        }
        from.push(user);
    }
    if from.len() == 1 {
        return table.close(directive, "it has no user with a password");
    }
    table.set("basic_auth", auth, &from);
}

/// Returns the new path of `rewrite`.
fn rewritten(to: &str, slot: &Matcher) -> Result<String, String> {
    let has_expression = slot.table.get("path_regex").is_some();
    let mut all = String::new();
    let mut rest = to;
    while let Some((before, after)) = rest.split_once('{') {
        all.push_str(before);
        let (name, behind) = after.split_once('}').unwrap_or((after, ""));
        let group = name.trim_start_matches("http.regexp.").trim_start_matches("re.");
        match (name, group.rsplit('.').next()) {
            ("path" | "http.request.uri.path", _) => all.push_str("{path}"),
            ("uri" | "http.request.uri", _) if behind.is_empty() && !before.contains('?') => {
                all.push_str("{path}")
            }
            ("query" | "http.request.uri.query", _) => all.push_str("{query}"),
            (_, Some(group)) if has_expression && group != name => {
                all.push_str(&format!("{{{group}}}"))
            }
            _ => return Err(format!("{{{name}}} has no counterpart here")),
        }
        rest = behind;
    }
    Ok(all + rest)
}

fn access_log(directive: &Directive, output: &mut Output) {
    let table = output.single("access_log");
    let mut path = "stderr";
    let mut from = vec![directive];
    for child in directive.children() {
        match (child.name.as_str(), &child.words[..]) {
            ("output", [kind, file]) if kind == "file" => path = file,
            ("output", [kind]) if kind == "stderr" || kind == "stdout" => path = "stderr",
            ("format", [kind]) if kind == "json" => {}
            ("level", _) => {
                table.not_needed(child, "all requests are in the access log");
                continue;
            }
            _ => {
                table.not_imported(child, "[access_log] has path, format and fields");
                continue;
            }
        }
        for one in child.children() {
            table.not_imported(one, "logrotate and superpoll reopen-logs do this");
        }
        from.push(child);
    }
    if table.get("path").is_some_and(|known| *known != text(path)) {
        let why = "there is one access log for all hosts, and another line has it";
        return table.not_imported(directive, why);
    }
    table.set("path", text(path), &from);
    table.set("format", "json", &[]);
}

fn error_pages(directive: &Directive, block: &[Directive], host: &mut Table) {
    let root = block.iter().find(|one| one.name == "root").and_then(|root| root.words.last());
    let children = directive.children();
    let page = children.iter().find(|one| one.name == "rewrite").and_then(|one| one.words.last());
    let is_simple = children.iter().all(|one| is_among("rewrite file_server", &one.name));
    let (Some(root), Some(page), true) = (root, page, is_simple) else {
        return host.not_imported(directive, "errors = { 404 = FILE } of the host or of a route");
    };
    let kinds = match directive.words.is_empty() {
        true => "4xx 5xx".to_owned(),
        false => directive.words.join(" "),
    };
    let page = page.replace("{http.error.status_code}", "{err.status_code}");
    let rest = page.replace("{err.status_code}", "");
    if rest.contains('{') || (rest != page && kinds.contains('x')) {
        return host.not_imported(directive, "errors names a file for each status");
    }
    let mut pages = host.get("errors").cloned().unwrap_or_default();
    let root = root.trim_end_matches('/');
    for kind in kinds.split(' ') {
        pages[kind] = text(&format!("{root}{}", page.replace("{err.status_code}", kind)));
    }
    let mut from = vec![directive];
    from.extend(children);
    host.set("errors", pages, &from);
}

/// Writes a comment for a directive that is no part of a route.
fn other(directive: &Directive, host: &mut Table) {
    let why = match directive.name.as_str() {
        "log" | "handle_errors" | "tls" => return,
        name if name.starts_with('@') => return,
        "push" => return host.not_needed(directive, "browsers take no pushes any more"),
        "import" => "neither a snippet nor a file has this name",
        "bind" => "address of [[listeners]]",
        "metrics" => "[metrics] has a path of its own",
        "templates" | "vars" | "map" => "the application has to do it",
        "log_skip" | "skip_log" => "all requests are in the access log",
        _ => "there is no such directive here",
    };
    host.not_imported(directive, why);
}
