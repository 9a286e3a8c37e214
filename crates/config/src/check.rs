//! The rules that types cannot express: turns the text as written into a configuration, or into the
//! list of its mistakes.

mod admin;
mod auth_request;
mod automatic;
mod broker;
mod fastcgi;
mod grip;
mod hosts;
mod logs;
mod matchers;
mod processes;
mod redirects;
mod relays;
mod respond;
mod rights;
mod rules;
mod tls;
mod tracing;
mod upstreams;

pub(crate) use self::hosts::host_name;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use http::HeaderValue;
use mime_guess2::Mime;
use superpoll::BackendKind;
use toml::Spanned;
use toml::de::DeTable;

use self::matchers::KnownPaths;
use super::logs::Log;
use super::model::{
    Action, Config, Grip, Keeper, KeeperKind, Listener, Process, Proxy, Redirect, Route,
};
use super::overlap::overlap;
use super::rules::BasicAuth;
use super::{place, raw};
use crate::address::Address;
use crate::mistake::LocatedMistake;
use crate::model::SocketPath;
use crate::redirect_target::RedirectTarget;
use crate::resource::{Place, Resource};
use crate::route_path::has_parameters;

/// Stands for the whole text where tables are named by their beginning: a table may begin at 0.
pub(super) const ROOT: usize = usize::MAX;

/// The path of the live page.
const PAGE: &str = "/_superpoll";

/// Turns the text as written into a configuration, and collects its mistakes.
pub(super) struct Check<'a> {
    /// The text as it was parsed.
    tree: &'a DeTable<'a>,
    /// The names of all upstreams, those with mistakes too.
    pub(super) upstreams: &'a BTreeSet<String>,
    /// Where the tables begin that lack a key or an element only since a mistake was taken out of
    /// them.
    pub(super) holes: &'a BTreeSet<usize>,
    /// The folder that relative paths are relative to; `None` if paths are not checked.
    base: Option<&'a Path>,
    /// The paths of the counters and of readiness, normalized like the paths of routes.
    metrics: Vec<String>,
    /// Whether the live page takes its path.
    has_page: bool,
    /// Whether there is a broker.
    pub(super) has_broker: bool,
    /// The first listener of HTTP that clients on other machines, or a proxy, can use.
    open: Option<Address>,
    /// The first listener of the host that is being checked on which passwords are sent in plain
    /// text.
    unencrypted: Option<Address>,
    /// Where the hosts begin, and their routes.
    pub(super) places: Vec<(usize, Vec<usize>)>,
    /// The places of the destinations of redirects, in their order.
    redirects: Vec<Range<usize>>,
    /// The upstreams that a route uses.
    used: BTreeSet<String>,
    /// Those that routes call scripts of, and those that are for another protocol.
    script_upstreams: BTreeSet<String>,
    other_upstreams: BTreeSet<String>,
    /// The secrets by which applications hold connections, and whether their items are those of the
    /// broker.
    grips: Vec<Grip>,
    /// The upstreams that may hold connections, and the places of those of routes where they cannot
    /// and clients may send what only this server is to send.
    holding: BTreeSet<String>,
    not_holding: Vec<Spanned<String>>,
    /// The places of the listeners whose certificates come by ACME.
    acme: Vec<Range<usize>>,
    /// The mistakes.
    pub(super) found: Vec<LocatedMistake>,
    /// Settings that are no mistakes, and probably not meant.
    pub(super) warnings: Vec<LocatedMistake>,
    /// The things outside of the text that the server looks at.
    pub(super) resources: Vec<(Place, Resource)>,
}

impl<'a> Check<'a> {
    pub(super) fn new(
        tree: &'a DeTable<'a>,
        upstreams: &'a BTreeSet<String>,
        holes: &'a BTreeSet<usize>,
        base: Option<&'a Path>,
        found: Vec<LocatedMistake>,
    ) -> Check<'a> {
        Check {
            tree,
            upstreams,
            holes,
            base,
            metrics: Vec::new(),
            has_page: true,
            has_broker: false,
            open: None,
            unencrypted: None,
            grips: Vec::new(),
            holding: BTreeSet::new(),
            not_holding: Vec::new(),
            acme: Vec::new(),
            places: Vec::new(),
            redirects: Vec::new(),
            used: BTreeSet::new(),
            script_upstreams: BTreeSet::new(),
            other_upstreams: BTreeSet::new(),
            found,
            warnings: Vec::new(),
            resources: Vec::new(),
        }
    }

    /// Returns the place of a value in the table at another place; that place, if the table has no
    /// such value.
    pub(super) fn within(&self, table: &Range<usize>, keys: &[&str]) -> Range<usize> {
        place::within(self.tree, table, keys)
    }

    /// Returns the first listener of HTTP that clients on other machines, or a proxy, can use.
    pub(super) fn open_listener(&self) -> Option<Address> {
        self.open.clone()
    }

    /// Returns a path as the process can use it.
    pub(super) fn resolved(&self, path: PathBuf) -> PathBuf {
        self.base.map_or_else(|| path.clone(), |base| base.join(&path))
    }

    fn address(&mut self, place: Range<usize>, address: Address) -> Address {
        let Address::Unix(path) = address else { return address };
        Address::Unix(self.socket_path(place, path))
    }

    /// Returns the path of a Unix socket, which has a bound.
    fn socket_path(&mut self, place: Range<usize>, path: PathBuf) -> PathBuf {
        let path = self.resolved(path);
        let longest = crate::address::LONGEST_PATH;
        if path.as_os_str().len() > longest {
            let what = format!("the path of the socket is {} in full", path.display());
            self.wrong(place, format!("{what}, expected at most {longest} bytes"));
        }
        path
    }

    /// Notes a thing that the server has to look at, if the text came from a file.
    pub(super) fn needs(&mut self, place: Range<usize>, resource: Resource) {
        if self.base.is_some() {
            self.resources.push((Place(place), resource));
        }
    }

    pub(super) fn wrong(&mut self, place: Range<usize>, what: impl Into<String>) {
        self.found.push((place, what.into()));
    }

    pub(super) fn warn(&mut self, place: Range<usize>, what: String) {
        self.warnings.push((place, what));
    }

    /// Reports a missing part of a table, unless a reported mistake explains it.
    pub(super) fn missing(&mut self, table: Range<usize>, what: impl Into<String>) {
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
        let has_http = raw.listeners.iter().any(|listener| listener.get_ref().relay.is_none());
        if let (Some(host), false, false) = (raw.hosts.first(), has_http, raw.listeners.is_empty())
            && is_whole
        {
            let what = "no listener serves the hosts, expected one without relay";
            self.missing(host.span(), what);
        }
        self.has_page = raw.server.page != Some(false);
        self.has_broker = raw.broker.is_some();
        if let Some(metrics) = raw.metrics.as_ref().map(Spanned::get_ref) {
            self.metrics.push(same(&metrics.path));
            self.metrics.extend(metrics.ready.as_deref().map(same));
        }
        let mut seen: Vec<Address> = Vec::new();
        let mut listeners = Vec::new();
        for listener in raw.listeners {
            let place = listener.span();
            if let Some(address) = &listener.get_ref().address {
                let (place, address) = (address.span(), address.get_ref());
                if let Some(other) = seen.iter().find(|other| overlap(other, address)) {
                    let what = if other == address {
                        format!("another listener has the address {address}, expected each once")
                    } else {
                        let what = format!("{address} cannot be listened on together with {other}");
                        format!("{what}, expected addresses that do not overlap")
                    };
                    self.wrong(place, what);
                }
                seen.push(address.clone());
            }
            if listener.get_ref().relay.is_none() && !has_hosts && is_whole {
                let what = "the listener has nothing to serve, expected [[hosts]] or relay = { to = ADDRESS }";
                self.missing(place.clone(), what);
            }
            listeners.extend(self.listener(place, listener.into_inner()));
        }
        let is_open = |one: &&Listener| one.relay.is_none() && !one.is_private();
        self.open = listeners.iter().find(is_open).map(|one| one.address.clone());
        let hosts = self.hosts(raw.hosts, &listeners);
        self.automatic_names(&listeners, &hosts);
        let admin = self.admin(raw.admin, &mut listeners);
        let mut upstreams = BTreeMap::new();
        for (name, upstream) in raw.upstreams {
            if !self.used.contains(name.get_ref()) {
                let what =
                    format!("no route or relay forwards to the upstream {:?}", name.get_ref());
                self.warn(name.span(), what);
            }
            let upstream = self.upstream(&name, upstream);
            upstreams.insert(name.into_inner(), upstream);
        }
        if let Some(metrics) = &raw.metrics {
            self.path(metrics.span(), &metrics.get_ref().path);
            if let Some(ready) = &metrics.get_ref().ready {
                self.path(metrics.span(), ready);
            }
            if let [path, ready] = &self.metrics[..]
                && path == ready
            {
                let what = format!("the path {path:?} is that of the metrics and of readiness");
                self.wrong(metrics.span(), format!("{what}, expected two"));
            }
        }
        let config = Config {
            server: self.process(raw.server),
            engine: raw.engine,
            listeners,
            hosts,
            upstreams,
            timeouts: raw.timeouts,
            limits: raw.limits,
            log: raw.log.map_or_else(Log::default, |log| self.error_log(log)),
            access_log: raw.access_log.map(|log| self.access_log(log)),
            metrics: raw.metrics.map(Spanned::into_inner),
            tracing: self.tracing(raw.tracing),
            admin,
            keeper: raw.keeper.map(|keeper| self.keeper(keeper)),
            broker: raw.broker.and_then(|broker| self.broker(broker)),
            warnings: Vec::new(),
        };
        if let (Some(_), Some(backend)) = (config.engine.policy, config.server.backend)
            && !matches!(backend, BackendKind::Adaptive | BackendKind::Auto)
        {
            let place = place::of(self.tree, &["engine", "policy"]);
            let what =
                format!("the back-end {backend} has no policy, expected backend = \"adaptive\"");
            self.wrong(place, what);
        }
        if config.server.processes.get() > 1
            && let Some(what) = config.conflict_with_processes()
        {
            let place = place::of(self.tree, &["server", "processes"]);
            self.wrong(place, what);
        }
        self.redirects(&config.hosts);
        self.routes_without_grip();
        config
    }

    fn keeper(&mut self, raw: raw::Keeper) -> Keeper {
        let raw::Keeper { kind, socket, profile, tls } = raw;
        let kind = match kind {
            raw::KeeperKind::Thread => KeeperKind::Thread,
            raw::KeeperKind::Process => KeeperKind::Process { socket: self.resolved(socket) },
        };
        if let (Some(tls), KeeperKind::Thread) = (&tls, &kind) {
            let what = "a keeper in a thread ends with the server, expected tls only with \
                        kind = \"process\"";
            self.wrong(tls.span(), what);
        }
        Keeper { kind, profile, tls: tls.is_some_and(Spanned::into_inner) }
    }

    fn process(&self, mut process: Process) -> Process {
        if let SocketPath::At(path) = process.stats {
            process.stats = SocketPath::At(self.resolved(path));
        }
        process
    }

    /// Returns the path of a log.
    fn log(&mut self, place: Range<usize>, path: PathBuf) -> PathBuf {
        if path == Path::new("stderr") {
            return path;
        }
        let path = self.resolved(path);
        self.needs(place, Resource::Log(path.clone()));
        path
    }

    fn listener(&mut self, place: Range<usize>, raw: raw::Listener) -> Option<Listener> {
        let (has_tls, is_relay) = (raw.tls.is_some(), raw.relay.is_some());
        let tls = raw.tls.and_then(|tls| self.tls(tls, is_relay));
        let relay = raw.relay.and_then(|relay| self.relay(relay, has_tls));
        let Some(address) = raw.address else {
            self.missing(place, "the listener has no address, expected address = \"HOST:PORT\"");
            return None;
        };
        let address_place = address.span();
        let address = self.address(address_place.clone(), address.into_inner());
        self.needs(address_place, Resource::Listen(address.clone()));
        if let (Some(mode), Address::Tcp { .. }) = (&raw.mode, &address) {
            let what = "a TCP port has no permissions, expected mode only with unix:PATH";
            self.wrong(mode.span(), what);
        }
        let mode = raw.mode.map(|mode| mode.into_inner().0);
        let proxy_protocol = raw.proxy_protocol;
        Some(Listener { address, tls, proxy_protocol, relay, mode, is_admin: false })
    }

    fn routes(
        &mut self,
        raw: Vec<Spanned<raw::Route>>,
        (users, host_start): (Option<&Arc<BasicAuth>>, usize),
    ) -> Vec<Route> {
        let mut paths = KnownPaths::new();
        let mut patterns = matchit::Router::new();
        let (mut routes, mut starts) = (Vec::new(), Vec::new());
        for route in raw {
            let place = route.span();
            let start = place.start;
            let mut route = route.into_inner();
            let path = route.path.take();
            let path_place = path.as_ref().map_or(place.clone(), Spanned::span);
            let path = path.map_or_else(|| "/".to_owned(), Spanned::into_inner);
            self.path(path_place.clone(), &path);
            let matcher = route.r#match.take();
            if let Some(matcher) = &matcher
                && (route.channel.is_some() || route.mercure.is_some())
            {
                let what = "a channel has all requests to its path, expected match in other routes";
                self.wrong(matcher.span(), what);
            }
            let is_hole = self.holes.contains(&place.start);
            let is_new = is_hole
                || self.repeated_path(path_place.clone(), &path, matcher.is_some(), &mut paths);
            if has_parameters(&path) && is_new {
                let may_have = route.channel.is_some() || route.rewrite.is_some();
                self.pattern(path_place.clone(), &path, may_have, &mut patterns);
                if route.channel.is_some() && (path.contains("{{") || path.contains("}}")) {
                    let what = format!("the path {path:?} has a brace, as no channel's name has");
                    self.wrong(path_place.clone(), format!("{what}, expected another character"));
                }
            }
            let same = same(&path);
            if self.metrics.contains(&same) {
                let what = format!("the path {path:?} is that of the metrics");
                self.wrong(path_place.clone(), format!("{what}, expected another here or there"));
            }
            if self.has_page && (same == PAGE || same.starts_with(&format!("{PAGE}/"))) {
                let what = format!("the path {path:?} is that of the live page");
                let expected = "expected another, or page = false in [server]";
                self.wrong(path_place.clone(), format!("{what}, {expected}"));
            }
            let matcher = matcher.map(|matcher| self.matcher(matcher));
            let rules = rules::take(&mut route);
            let action = self.action(place, (&path, rules.rewrite.is_some()), route);
            let expression = matcher.as_ref().and_then(|matcher| matcher.path_regex.as_ref());
            let rules = self.rules(rules, action.as_ref(), (&path, expression), users);
            if let Some(action) = action {
                starts.push(start);
                routes.push(Route { path, matcher, action, rules });
            }
        }
        self.places.push((host_start, starts));
        routes
    }

    fn action(
        &mut self,
        place: Range<usize>,
        (path, is_rewritten): (&str, bool),
        route: raw::Route,
    ) -> Option<Action> {
        let spans = [
            route.files.as_ref().map(Spanned::span),
            route.redirect.as_ref().map(Spanned::span),
            route.respond.as_ref().map(Spanned::span),
            route.channel.as_ref().map(Spanned::span),
            route.mercure.as_ref().map(Spanned::span),
            route.proxy.as_ref().map(Spanned::span),
            route.fastcgi.as_ref().map(Spanned::span),
            route.grip.as_ref().map(Spanned::span),
        ];
        let otherwise = self.otherwise(&route);
        let mut given: Vec<_> = spans.into_iter().flatten().collect();
        given.sort_by_key(|span| span.start);
        if otherwise {
            given.truncate(1);
        }
        let kinds = "files, redirect, respond, channel, mercure, proxy, fastcgi or grip";
        if let Some(second) = given.get(1) {
            self.wrong(
                second.clone(),
                format!("a second action of one route, expected one of {kinds}"),
            );
        } else if given.is_empty() {
            self.missing(place, format!("the route does nothing, expected one of {kinds}"));
        }
        let files = route.files.and_then(|files| {
            let place = self.within(&files.span(), &["root"]);
            let files = self.files(files)?;
            if let Some(file) = file_of_route(path, &files.root).filter(|_| !is_rewritten) {
                self.needs(place, Resource::FileOfRoute { path: path.to_owned(), file });
            }
            Some(files)
        });
        let redirect = route.redirect.and_then(|redirect| self.redirect(redirect));
        let respond = route.respond.map(|respond| Action::Respond(self.respond(respond)));
        let proxy = route.proxy.and_then(|proxy| self.proxy(proxy));
        let channel = route.channel.map(|channel| {
            let (place, mut channel) = (channel.span(), channel.into_inner());
            self.rights(&place, path, &mut channel);
            if channel.broker {
                self.shared_channel(&place);
            }
            Action::Channel(channel)
        });
        let hub = route.mercure.map(|hub| {
            let place = hub.span();
            Action::Channel(self.mercure(&place, path, hub.into_inner()))
        });
        let grip = route.grip.and_then(|grip| self.grip(grip)).map(Action::Grip);
        let channel = channel.or(hub).or(grip);
        let fastcgi = route.fastcgi.and_then(|fastcgi| self.fastcgi(fastcgi));
        let forwarded = proxy.or(fastcgi);
        match (files, forwarded) {
            (Some(files), Some(rest)) if otherwise => {
                Some(Action::FilesFirst(files, Box::new(rest)))
            }
            (files, forwarded) => {
                let files = files.map(Action::Files);
                let redirect = redirect.map(Action::Redirect);
                files.or(redirect).or(respond).or(channel).or(forwarded)
            }
        }
    }

    fn files(&mut self, files: Spanned<super::model::Files>) -> Option<super::model::Files> {
        let place = files.span();
        let mut files = files.into_inner();
        if files.root.as_os_str().is_empty() {
            self.missing(place, "files without a folder, expected root = FOLDER");
            return None;
        }
        if let Some(name) =
            files.index.iter().find(|name| name.is_empty() || name.contains(['/', '\0']))
        {
            let what = format!("the index file {name:?} is no name of a file");
            self.wrong(place.clone(), format!("{what}, expected one as \"index.html\""));
        }
        if let Some(fallback) = &files.fallback {
            self.path(self.within(&place, &["fallback"]), fallback);
        }
        let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"-._+:".contains(&byte);
        if files.lane.take().is_some() {
            let what = "files have one way to be answered, so lane has no effect";
            self.warn(place.clone(), what.to_owned());
        }
        if files.charset.is_empty() || !files.charset.bytes().all(is_token) {
            let what = format!("{:?} is no name of a character encoding", files.charset);
            let place = self.within(&place, &["charset"]);
            self.wrong(place, format!("{what}, expected one as \"utf-8\", or \"off\""));
        }
        for (extension, kind) in &files.types {
            let place = self.within(&place, &["types", extension]);
            let is_other = |byte: u8| byte.is_ascii_uppercase() || b"./\0".contains(&byte);
            if extension.is_empty() || extension.bytes().any(is_other) {
                let what = format!("{extension:?} is no extension of names of files");
                let expected = "expected one in lower case and without a dot, as \"geojson\"";
                self.wrong(place, format!("{what}, {expected}"));
            } else if kind.parse::<Mime>().is_err() || HeaderValue::from_str(kind).is_err() {
                let what = format!("{kind:?} is no media type");
                self.wrong(place, format!("{what}, expected one as \"application/geo+json\""));
            }
        }
        if !(1..=9).contains(&files.gzip_level) {
            let what = format!("gzip has no level {}, expected 1 to 9", files.gzip_level);
            self.wrong(place.clone(), what);
        }
        if files.brotli_level > 11 {
            let what = format!("Brotli has no level {}, expected 0 to 11", files.brotli_level);
            self.wrong(place.clone(), what);
        }
        if !(1..=19).contains(&files.zstd_level) {
            let what = format!("Zstandard has no level {}, expected 1 to 19", files.zstd_level);
            self.wrong(place.clone(), what);
        }
        files.root = self.resolved(files.root);
        self.needs(place, Resource::Folder(files.root.clone()));
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
        self.redirects.push(to.span());
        if let Err(what) = RedirectTarget::parse(to.get_ref()) {
            self.wrong(to.span(), what);
        }
        Some(Redirect { to: to.into_inner(), status })
    }

    fn proxy(&mut self, proxy: Spanned<raw::Proxy>) -> Option<Action> {
        let place = proxy.span();
        let proxy = proxy.into_inner();
        let Some(upstream) = proxy.upstream else {
            self.missing(place, "a proxy without an upstream, expected upstream = NAME");
            return None;
        };
        self.known_upstream(upstream.span(), upstream.get_ref());
        if let Some(host) = &proxy.host
            && !is_authority(host.get_ref())
        {
            let what = format!("{:?} is no host", host.get_ref());
            self.wrong(host.span(), format!("{what}, expected one as \"example.org\""));
        }
        if proxy.lane.is_some() {
            let what = "requests have one way to their servers, so lane has no effect";
            self.warn(place, what.to_owned());
        }
        let of_upstream = upstream.span();
        let proxy = Proxy {
            upstream: upstream.into_inner(),
            strip_path: proxy.strip_path,
            retries: proxy.retries.unwrap_or(1),
            host: proxy.host.map(Spanned::into_inner),
            trust_forwarded: proxy.trust_forwarded,
            abort_on_close: proxy.abort_on_close.unwrap_or(true),
            request_headers: self.headers(proxy.request_headers, rules::Of::Requests),
            replace_errors: proxy.replace_errors,
            compress: proxy.compress,
            rewrite_location: self.replacements(proxy.rewrite_location),
            rewrite_cookie_path: self.replacements(proxy.rewrite_cookie_path),
            rewrite_cookie_domain: self.replacements(proxy.rewrite_cookie_domain),
            send_files: self.send_files(proxy.send_files),
            grip: proxy.grip.and_then(|grip| self.grip(grip)),
        };
        self.may_hold(of_upstream, &proxy);
        Some(Action::Proxy(proxy))
    }

    /// Checks that an upstream is defined.
    pub(super) fn known_upstream(&mut self, place: Range<usize>, upstream: &str) {
        self.other_upstreams.insert(upstream.to_owned());
        self.defined_upstream(place, upstream);
    }

    fn defined_upstream(&mut self, place: Range<usize>, upstream: &str) {
        self.used.insert(upstream.to_owned());
        if !self.upstreams.contains(upstream) {
            let known: Vec<_> = self.upstreams.iter().map(String::as_str).collect();
            let known = match known.as_slice() {
                [] => format!("[upstreams.{upstream}]"),
                known => known.join(", "),
            };
            let what = format!("the upstream {upstream:?} is not defined");
            self.wrong(place, format!("{what}, expected {known}"));
        }
    }

    /// Checks a path with parameters, next to the others of its host.
    fn pattern(
        &mut self,
        place: Range<usize>,
        path: &str,
        may_have: bool,
        others: &mut matchit::Router<()>,
    ) {
        if !may_have {
            let what = format!("the path {path:?} has parameters");
            self.wrong(place, format!("{what}, expected them only for a channel, or with rewrite"));
        } else if let Err(error) = others.insert(path, ()) {
            let what = format!("the path {path:?} is no pattern that can stand here: {error}");
            self.wrong(place, format!("{what}, expected one as \"/rooms/{{room}}\""));
        }
    }

    pub(super) fn path(&mut self, place: Range<usize>, path: &str) {
        let is_path = path.starts_with('/') && path.bytes().all(|byte| byte.is_ascii_graphic());
        // Clients leave such components out, so that no request would ever match.
        let is_resolved = !path.split('/').any(|part| matches!(part, "." | ".."));
        if !is_path || !is_resolved || path.contains(['?', '#']) {
            let what = format!("{path:?} is no path of a URL");
            self.wrong(place, format!("{what}, expected one as \"/images\", percent-encoded"));
        }
    }
}

/// Returns a path without the differences that do not matter to routes.
fn same(path: &str) -> String {
    path.trim_end_matches('/').to_owned()
}

fn is_authority(text: &str) -> bool {
    crate::authority::Authority::parse(text.as_bytes()).is_some()
}

/// Returns the file that a route, whose path looks like that of one file, is probably for.
fn file_of_route(path: &str, root: &Path) -> Option<PathBuf> {
    let (_, name) = path.rsplit_once('/')?;
    let is_plain = name.contains('.') && name != "." && name != ".." && !name.contains(['{', '%']);
    is_plain.then(|| root.join(name))
}
