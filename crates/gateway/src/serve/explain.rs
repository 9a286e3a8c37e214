//! Which route of a configuration answers a request, and why (`superpoll explain`).
//!
//! Nothing is served or opened. The host and the route are chosen by the tables that the server has
//! ([`HostTable`](crate::config::HostTable), [`RouteTable`]), and the
//! new path of a request is made by the functions that make it there. Two things are not known: the
//! address of the client, so that rules for clients are listed, and which files there are.

use std::fmt::Write;

use http::header::{HOST, LOCATION};
use http::uri::PathAndQuery;
use http::{Request, Response, StatusCode, Uri};
use superpoll_http::authority;
use superpoll_http::files::path_below;
use superpoll_http::head::Head;
use superpoll_http::reply;
use superpoll_http1::Target;

use super::https::{self, HttpsRule};
use crate::config::{
    Access, Action, Address, BasicAuth, ClientRange, Config, Files, Host, HostPlaces, HostReason,
    Listener, Proxy, RateKey, RedirectTarget, RequestRate, Respond, Rewrite, Route, RouteTable,
    TableRoute, is_served_on,
};
use crate::telemetry::overview::PAGE;

/// An explanation of an answer, in lines of a key and a text.
#[derive(Debug, Default)]
struct Explanation(String);

impl Explanation {
    fn say(&mut self, key: &str, text: impl std::fmt::Display) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "{key:<9} {text}");
    }
}

/// Explains which route of a configuration answers a request for a URL with a scheme and a host.
/// `places` are those of its hosts, for the text. A field `Host` of the request takes the place of
/// the host in the URL.
#[must_use]
pub fn explain(config: &Config, places: &[HostPlaces], request: &Request<()>) -> String {
    let mut out = Explanation::default();
    let is_https = request.uri().scheme_str() == Some("https");
    let Some(listener) = listener(config, request.uri(), is_https, &mut out) else {
        out.say("answer", "none: no listener speaks HTTP there");
        return out.0;
    };
    // As a client sends it: the host is a field.
    let mut sent = Request::new(());
    *sent.method_mut() = request.method().clone();
    *sent.headers_mut() = request.headers().clone();
    if let Some(authority) = request.uri().authority()
        && let Ok(value) = authority.as_str().parse()
    {
        sent.headers_mut().entry(HOST).or_insert(value);
    }
    let path = request.uri().path_and_query().map_or("/", PathAndQuery::as_str);
    *sent.uri_mut() = path.parse().unwrap_or_default();
    let question = Question { config, places, listener, head: Head::from(&sent) };
    question.explain(&mut out);
    out.0
}

/// Finds the listener that a client of a URL connects to, or one that is like it.
fn listener<'a>(
    config: &'a Config,
    url: &Uri,
    is_https: bool,
    out: &mut Explanation,
) -> Option<&'a Listener> {
    let port = url.port_u16().unwrap_or(if is_https { 443 } else { 80 });
    let has_port =
        |one: &&Listener| matches!(one.address, Address::Tcp { port: at, .. } if at == port);
    let serves = |one: &&Listener| one.relay.is_none() && !one.is_admin;
    let http = || config.listeners.iter().filter(serves);
    let is_like = |one: &&Listener| one.tls.is_some() == is_https;
    let address = |one: &&Listener| match (&one.address, url.host()) {
        (Address::Tcp { host: Some(of), .. }, Some(host)) => of == host.trim_matches(['[', ']']),
        _ => false,
    };
    let there = || http().filter(has_port).filter(is_like);
    if let Some(listener) = there().find(address).or_else(|| there().next()) {
        out.say("listener", listener.front(&listener.address));
        return Some(listener);
    }
    if let Some(other) = config.listeners.iter().filter(has_port).find(|one| !serves(one)) {
        out.say("listener", other.front(&other.address));
        return None;
    }
    let listener = http().find(is_like).or_else(|| http().next())?;
    let kind = if is_https { "an encrypted" } else { "a plain" };
    let front = listener.front(&listener.address);
    out.say("listener", format!("{front}, as there is not {kind} one at port {port}"));
    Some(listener)
}

/// A request at a listener.
struct Question<'a> {
    config: &'a Config,
    places: &'a [HostPlaces],
    listener: &'a Listener,
    head: Head<'a>,
}

impl Question<'_> {
    fn explain(&self, out: &mut Explanation) {
        let path = self.head.path;
        if let Some(metrics) = &self.config.metrics {
            if metrics.ready.as_deref() == Some(path) {
                return out.say("answer", "whether the server is ready ([metrics])");
            }
            if metrics.path == path {
                return out.say("answer", "the metrics ([metrics])");
            }
        }
        if path.starts_with(PAGE) && self.config.server.page != Some(false) {
            let of = match self.config.server.page {
                Some(true) => "all clients",
                _ => "programs on this machine, without a proxy between",
            };
            out.say("page", format!("the live page and its parts are below {PAGE}, for {of}"));
        }
        let name = match authority::of_request(self.head, self.listener.tls.is_some()) {
            Ok(authority) => authority.map_or("", |authority| authority.host),
            Err(status) => return out.say("answer", format!("{status}: the host is malformed")),
        };
        let table = self.config.host_table();
        let is_served = |host: &&Host| is_served_on(&host.listeners, &self.listener.address);
        let Some((host, why)) = table.find(name, is_served) else {
            return out.say("answer", "421 Misdirected Request: no host has the name here");
        };
        let index = self.config.hosts.iter().position(|one| std::ptr::eq(one, *host));
        let places = index.and_then(|index| self.places.get(index));
        let at = places.map(|places| format!(" ({})", places.host)).unwrap_or_default();
        let why = match why {
            HostReason::Name => format!("it has the name {}", name.to_ascii_lowercase()),
            HostReason::Wildcard(rest) => format!("it has the name *{rest}"),
            HostReason::Default => "it is the default host, and no other has the name".to_owned(),
            HostReason::Address => "it answers for addresses".to_owned(),
        };
        out.say("host", format!("{}{at}: {why}", host_name(host)));
        if self.is_redirected(host, out) {
            return;
        }
        self.explain_in(host, places, out);
    }

    /// Explains a redirect to an encrypted connection, if the host has that rule.
    fn is_redirected(&self, host: &Host, out: &mut Explanation) -> bool {
        let listeners = self.config.listeners.iter().filter(|one| one.tls.is_some());
        let encrypted: Vec<(Address, u16)> = listeners
            .filter_map(|one| match &one.address {
                Address::Tcp { port, .. } => Some((one.address.clone(), *port)),
                Address::Unix(_) => None,
            })
            .collect();
        let rule = HttpsRule::for_host(host, &encrypted);
        let rule = rule.filter(|_| self.listener.tls.is_none());
        let Some(rule) = rule.filter(|_| !https::is_validation(self.head.path)) else {
            return false;
        };
        out.say("answer", format!("{} (https = \"always\")", target_of(&rule.redirect(self.head))));
        true
    }

    fn explain_in(&self, host: &Host, places: Option<&HostPlaces>, out: &mut Explanation) {
        let table = host.route_table();
        let place = |route: &TableRoute<&Route>| {
            let index = host.routes.iter().position(|one| std::ptr::eq(one, route.handler));
            let index = index.unwrap_or_default();
            let known = places.and_then(|places| places.routes.get(index)).cloned();
            known.unwrap_or_else(|| format!("route {} of the host", index + 1))
        };
        let mut found = None;
        for (route, mismatch) in table.tried(self.head.path, &self.head) {
            let (path, at) = (&route.path, place(route));
            let Some(mismatch) = mismatch else {
                out.say("route", format!("{path} ({at}) answers"));
                found = Some(route);
                break;
            };
            out.say("route", format!("{path} ({at}) does not fit: {mismatch}"));
        }
        list_rules("host", (&host.access, host.rate.as_ref(), None), out);
        let Some(route) = found else {
            list_rules("host", (&Access::default(), None, host.basic_auth.as_deref()), out);
            return out.say("answer", "404 Not Found: no route is for the request");
        };
        let rules = &route.handler.rules;
        list_rules("route", (&rules.access, rules.rate.as_ref(), rules.basic_auth.as_deref()), out);
        if let Some(auth) = &rules.auth_request {
            let what = format!("{} at {} has to answer with 2xx", auth.path, auth.upstream);
            out.say("rules", format!("{what}, by auth_request of the route"));
        }
        self.explain_route(&table, route, out);
    }

    fn explain_route(
        &self,
        table: &RouteTable<&Route>,
        route: &TableRoute<&Route>,
        out: &mut Explanation,
    ) {
        let bad = "400 Bad Request";
        if table.leads_elsewhere(route, self.head.path, &self.head) {
            let why = "in its usual spelling the path belongs to another route";
            return out.say("answer", format!("{bad}: {why}"));
        }
        let config = route.handler;
        let expression = route.matcher.as_ref().and_then(|matcher| matcher.path_regex.as_ref());
        let rewrite = config.rules.rewrite.as_deref();
        let rewrite = rewrite.and_then(|text| Rewrite::parse(text, &route.path, expression).ok());
        let target = match rewrite.map(|rewrite| rewrite.of(self.head.path, self.head.query)) {
            Some(None) => return out.say("answer", format!("{bad}: the new path would lead up")),
            target => target.flatten(),
        };
        if let Some(target) = &target {
            out.say("rewrite", target);
        }
        let below = route.path.trim_end_matches('/').len();
        // That of a path with parameters may be longer than the request's.
        let own = || self.head.path.get(below..).unwrap_or_default();
        let path = target.as_ref().map_or_else(own, PathAndQuery::path);
        self.explain_action(&config.action, (&route.path, path), target.as_ref(), out);
    }

    fn explain_action(
        &self,
        action: &Action,
        (route, path): (&str, &str),
        target: Option<&PathAndQuery>,
        out: &mut Explanation,
    ) {
        let rest = (route, path);
        match action {
            Action::Files(files) if !self.head.is_read() => {
                let root = files.root.display();
                let what = "405 Method Not Allowed: files have GET and HEAD";
                out.say("answer", format!("{what} ({root})"));
            }
            Action::Files(files) => out.say("files", file_of(files, path)),
            Action::FilesFirst(files, next) => {
                if self.head.is_read() {
                    out.say("files", file_of(files, path));
                    out.say("else", "if there is no such file:");
                }
                self.explain_action(next, rest, target, out);
            }
            Action::Demo => out.say("demo", "the built-in demonstration"),
            Action::Redirect(redirect) => {
                let status = StatusCode::from_u16(redirect.status).unwrap_or_default();
                let to = RedirectTarget::parse(&redirect.to);
                let answer = to.map_or_else(
                    |_| reply::status(StatusCode::BAD_REQUEST),
                    |to| https::redirect(&to, status, self.head),
                );
                out.say("redirect", target_of(&answer));
            }
            Action::Respond(respond) => out.say("respond", answer_of(respond)),
            Action::Channel(channel) if channel.mercure.is_some() => {
                out.say("mercure", format!("the hub at {route}"));
            }
            Action::Channel(_) => out.say("channel", self.head.path),
            Action::Grip(_) => out.say("grip", "items that applications publish"),
            Action::Proxy(proxy) => out.say("proxy", self.forwarded(proxy, route, target)),
            Action::FastCgi(fastcgi) => {
                let forwarded = self.forwarded(&fastcgi.proxy, route, target);
                let script = match &fastcgi.root {
                    Some(root) => format!("scripts below {}, path {path}", root.display()),
                    None => "one program for all paths".to_owned(),
                };
                out.say("fastcgi", format!("{forwarded}; {script}"));
            }
        }
    }

    /// Returns the upstream of a proxy, and the path that it is asked for.
    fn forwarded(&self, proxy: &Proxy, route: &str, target: Option<&PathAndQuery>) -> String {
        let sent = match self.head.query {
            None => self.head.path.to_owned(),
            Some(query) => format!("{}?{query}", self.head.path),
        };
        let target = target.map_or(sent, ToString::to_string);
        let prefix = route.trim_end_matches('/');
        let whole = Target::new(self.head.method, &target).ok().filter(|_| proxy.strip_path);
        let rest = whole.and_then(|whole| whole.without_prefix(prefix));
        let rest = rest.map(|rest| match rest.as_str() {
            rest if rest.starts_with('/') => rest.to_owned(),
            // The server is asked for a path in any case.
            rest => format!("/{rest}"),
        });
        let target = rest.unwrap_or(target);
        let upstream = &proxy.upstream;
        let servers = self.config.upstreams.get(upstream).into_iter().flat_map(|it| &it.servers);
        let servers: Vec<String> = servers.map(|server| server.address.to_string()).collect();
        format!("{} {target} at {upstream} ({})", self.head.method.as_str(), servers.join(", "))
    }
}

fn host_name(host: &Host) -> String {
    match host.names.is_empty() {
        true => "a host without names".to_owned(),
        false => host.names.join(", "),
    }
}

/// Returns the status of a response, and its target if it is a redirect.
fn target_of(response: &Response<superpoll_http::body::Body>) -> String {
    let to = response.headers().get(LOCATION).and_then(|to| to.to_str().ok());
    to.map_or_else(
        || response.status().to_string(),
        |to| format!("{} to {to}", response.status().as_u16()),
    )
}

/// Returns the file for a path below a route.
fn file_of(files: &Files, path: &str) -> String {
    let found = match path_below(path, files.hidden) {
        Ok(found) => found,
        Err(status) => return format!("{status}: such a path is not looked for"),
    };
    let mut text = files.root.join(&found).display().to_string();
    if found.is_empty() || found.ends_with('/') {
        let _ = write!(text, ", by {}", files.index.join(" or "));
    }
    if let Some(fallback) = &files.fallback {
        let fallback = files.root.join(fallback.trim_start_matches('/'));
        let _ = write!(text, "; if there is none, {}", fallback.display());
    }
    text
}

/// Returns an answer that the configuration has.
fn answer_of(respond: &Respond) -> String {
    let Ok(status) = StatusCode::from_u16(respond.status) else { return String::new() };
    match (&respond.body, respond.has_body()) {
        _ if respond.is_silent() => {
            "444: the connection is closed, or the stream is reset".to_owned()
        }
        (Some(body), true) => format!("{status}, with a body of {} bytes", body.len()),
        _ => status.to_string(),
    }
}

/// Lists the rules for clients of a host or of a route.
fn list_rules(
    of: &str,
    (access, rate, users): (&Access, Option<&RequestRate>, Option<&BasicAuth>),
    out: &mut Explanation,
) {
    let list = |ranges: &[ClientRange]| {
        let texts = ranges.iter().map(|range| match range {
            ClientRange::Network(network) => network.to_string(),
            ClientRange::Unix => "unix".to_owned(),
        });
        texts.collect::<Vec<_>>().join(", ")
    };
    let mut rules = Vec::new();
    if !access.deny.is_empty() {
        rules.push(format!("deny {}", list(&access.deny)));
    }
    if !access.allow.is_empty() {
        rules.push(format!("allow {}", list(&access.allow)));
    }
    if let Some(RequestRate { rate, by }) = rate {
        let by = match by {
            RateKey::Client => "client".to_owned(),
            RateKey::Header(name) => format!("header:{name}"),
        };
        rules.push(format!("rate {rate} burst {} by {by}", rate.burst()));
    }
    if let Some(users) = users {
        rules.push(format!("password of {:?}", users.realm));
    }
    if !rules.is_empty() {
        out.say("rules", format!("{} of the {of}", rules.join("; ")));
    }
}
