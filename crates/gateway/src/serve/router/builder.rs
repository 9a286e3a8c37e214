//! From a configuration to the routes of an engine.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use http::{HeaderValue, StatusCode};
use superpoll_http::files::{Embedded, Folder, Site};
use superpoll_http::fixed::FixedAnswer;
use superpoll_http::rules::RouteRules;
use superpoll_http::scripts::Scripts;
use superpoll_http::telemetry::durations::RequestDurations;
use superpoll_http::trace::TraceRules;
use superpoll_http::trusted_proxies::TrustedProxies;
use superpoll_http::upstream::{Forwarder, Pages};
use superpoll_hub::channel::{ChannelEngine, Channels, HeldRoute, LocalRoute, Rights};
use superpoll_rt::blocking;

use super::auth_request::AuthRequest;
use super::handler::{Forwards, Handler, Target};
use super::{HostRoutes, Router, Routes, release};
use crate::config::{
    self, Files, Host, HostTable, RedirectTarget, Rewrite, RouteTable, TableRoute,
};
use crate::serve::admin::AdminService;
use crate::serve::generation::{EngineTables, Generation};
use crate::serve::https::HttpsRule;
use crate::serve::shared::Shared;

/// The routes of an engine while they are built, on the engine that they are for: some at a time,
/// so that requests need not wait for all of them.
pub(in crate::serve) struct RouterBuilder {
    generation: Arc<Generation>,
    router: Router,
    engine: Rc<ChannelEngine>,
    folders: std::vec::IntoIter<Folder>,
    durations: std::vec::IntoIter<Arc<RequestDurations>>,
    /// How many channels have got their rights.
    placed_rights: usize,
    /// The channels of the router before, by their address.
    known: HashMap<*const Channels, Rc<LocalRoute>>,
    changes: Vec<ChannelChange>,
    /// The routes whose servers hold connections.
    held: Vec<Rc<HeldRoute>>,
    /// The host that is at work, how many of its routes are begun, those that are built, whether
    /// some of them have matchers, and its rule for encryption.
    host: usize,
    routes_begun: usize,
    routes: Vec<TableRoute<Target>>,
    has_matchers: bool,
    https: Option<HttpsRule>,
}

/// A change of the channels that a router has in common with the one before.
struct ChannelChange {
    route: Rc<LocalRoute>,
    /// `None`: the channels are new, and have theirs.
    rights: Option<Rc<Rights>>,
    rules: Option<Arc<RouteRules>>,
    hsts: Option<HeaderValue>,
}

/// The routes of an engine, before they are in use.
pub(in crate::serve) struct BuiltRouter {
    router: Router,
    changes: Vec<ChannelChange>,
    held: Vec<Rc<HeldRoute>>,
}

impl BuiltRouter {
    /// Returns the router, to be used from now on. Channels that it has in common with the one
    /// before get their rights and rules.
    pub(in crate::serve) fn put_to_use(self) -> Router {
        for ChannelChange { route, rights, rules, hsts } in self.changes {
            if let Some(rights) = rights {
                route.change(rights);
            }
            route.change_rules(rules, hsts);
        }
        HeldRoute::put_to_use(&self.held, &self.router.channel_routes);
        self.router
    }
}

impl RouterBuilder {
    /// Begins to build the routes of a generation, on the engine that they are for. Channels that
    /// `before` has as well continue.
    pub(in crate::serve) fn new(
        shared: &Arc<Shared>,
        generation: &Arc<Generation>,
        tables: EngineTables,
        engine: &Rc<ChannelEngine>,
        before: Option<&Router>,
    ) -> RouterBuilder {
        let EngineTables { folders, mut durations } = tables;
        // There is at least that of requests without a route.
        let without_route = durations.pop().unwrap_or_default();
        let Generation { config, rules, .. } = &**generation;
        let admin = config.admin.as_ref().map(|admin| {
            // The last rules, after those of the hosts.
            let rules = rules.last().and_then(|rules| rules.routes.first()?.clone());
            let logs =
                config.grips().into_iter().filter_map(|grip| generation.grip(grip)).collect();
            Rc::new(AdminService::new(admin, rules, logs, shared.clone()))
        });
        let names = config.hosts.iter().map(|host| host.names.len()).sum();
        let router = Router {
            shared: shared.clone(),
            config: config.clone(),
            hosts: HostTable::with_capacity(names),
            depends_on_listener: config.hosts.iter().any(|host| !host.listeners.is_empty()),
            last: RefCell::default(),
            channel_routes: Vec::new(),
            admin,
            // Making it cannot fail; without it there would be 404.
            client: Embedded::client().ok().map(Rc::new),
            durations: without_route,
            tracing: config.tracing.is_on().then(|| TraceRules::new(&config.tracing)),
            trusted_proxies: TrustedProxies::new(&config.server.trusted_proxies),
        };
        // Requests without a route meet the rules of their hosts.
        let of_hosts = rules.iter().filter_map(|rules| rules.clients.as_ref());
        router.durations.expect_refusals(of_hosts.flat_map(|rules| rules.reasons()));
        let known = before.into_iter().flat_map(|before| &before.channel_routes);
        let known = known.map(|route| (Arc::as_ptr(route.channels()), route.clone())).collect();
        RouterBuilder {
            generation: generation.clone(),
            router,
            engine: engine.clone(),
            folders: folders.into_iter(),
            durations: durations.into_iter(),
            placed_rights: 0,
            known,
            changes: Vec::new(),
            held: Vec::new(),
            host: 0,
            routes_begun: 0,
            routes: Vec::new(),
            has_matchers: false,
            https: None,
        }
    }

    /// Builds at most so many routes and hosts. Returns whether all are built.
    pub(in crate::serve) fn step(&mut self, most: usize) -> bool {
        let config = self.generation.config.clone();
        for _ in 0..most {
            let Some(host) = config.hosts.get(self.host) else { return true };
            let next = self.routes_begun;
            match host.routes.get(next) {
                Some(route) => {
                    if next == 0 {
                        self.https = HttpsRule::for_host(host, &self.generation.encrypted);
                        self.routes.reserve(host.routes.len());
                        self.has_matchers = host.routes.iter().any(|it| it.matcher.is_some());
                    }
                    self.routes_begun += 1;
                    let target = self.target(host, route, next);
                    let path = route.path.clone();
                    // Each engine has memory of its own for an expression.
                    let matcher = route.matcher.clone().map(Box::new);
                    let route = target.map(|handler| TableRoute { path, matcher, handler });
                    self.routes.extend(route);
                }
                None => {
                    self.finish_host(host);
                    (self.host, self.routes_begun) = (self.host + 1, 0);
                }
            }
        }
        self.host == config.hosts.len()
    }

    /// Frees what was built, some of it at a time, and the rest on another thread.
    pub(in crate::serve) fn give_up(self) {
        let RouterBuilder { routes, folders, durations, generation, .. } = self;
        release(routes);
        blocking::unblock(move || drop((folders, durations, generation))).detach();
    }

    /// Returns the routes, all of which are built.
    pub(in crate::serve) fn finish(mut self) -> BuiltRouter {
        self.router.hosts.finish();
        BuiltRouter { router: self.router, changes: self.changes, held: self.held }
    }

    /// Builds the route that has this place in its host; `None`: it has no part that can serve.
    fn target(&mut self, host: &Host, route: &config::Route, place: usize) -> Option<Target> {
        let rules = self.generation.rules.get(self.host)?.routes.get(place)?.clone();
        let durations = self.durations.next().unwrap_or_default();
        let handler = self.handler(host, route, &route.action, &rules)?;
        // The check of the configuration has done the same.
        durations.expect_refusals(rules.iter().flat_map(|rules| rules.reasons()));
        if self.has_matchers {
            self.expect_refusals_at(host, route, &durations);
        }
        let expression = route.matcher.as_ref().and_then(|matcher| matcher.path_regex.as_ref());
        let rewrite = route.rules.rewrite.as_deref();
        let rewrite = rewrite.and_then(|text| Rewrite::parse(text, &route.path, expression).ok());
        let auth = route.rules.auth_request.as_ref();
        let auth = match auth {
            None => None,
            Some(rule) => {
                let Generation { groups, config, .. } = &*self.generation;
                let group = groups.get(&rule.upstream)?;
                Some(Rc::new(AuthRequest::new(group, rule, &config.timeouts)))
            }
        };
        Some(Target { handler, rules, rewrite, auth, durations })
    }

    /// Expects the refusals of all routes with the path of a route: they count together.
    fn expect_refusals_at(&self, host: &Host, route: &config::Route, counts: &RequestDurations) {
        let Some(all) = self.generation.rules.get(self.host) else { return };
        let with_rules = host.routes.iter().zip(&all.routes);
        let at_path = with_rules.filter(|(other, _)| other.path == route.path);
        let rules = at_path.filter_map(|(_, rules)| rules.as_ref());
        counts.expect_refusals(rules.flat_map(|rules| rules.reasons()));
    }

    /// Builds the handler of an action; `None`: it has no part that can serve.
    fn handler(
        &mut self,
        host: &Host,
        route: &config::Route,
        action: &config::Action,
        rules: &Option<Arc<RouteRules>>,
    ) -> Option<Handler> {
        Some(match action {
            config::Action::Files(files) => {
                let folder = self.folders.next()?;
                Handler::Files(Rc::new(Site::new(folder, files.clone())))
            }
            config::Action::FilesFirst(files, rest) => {
                let site = Rc::new(Site::new(self.folders.next()?, files.clone()));
                Handler::FilesFirst(site, self.forwards(host, rest, route, rules)?)
            }
            config::Action::Proxy(_) | config::Action::FastCgi(_) => {
                Handler::Forwards(self.forwards(host, action, route, rules)?)
            }
            // Making it succeeded when the configuration was checked.
            config::Action::Demo => Handler::Demo(Rc::new(Embedded::demo().ok()?)),
            config::Action::Redirect(redirect) => {
                // The check of the configuration has done the same.
                let to = RedirectTarget::parse(&redirect.to).ok()?;
                let status = StatusCode::from_u16(redirect.status);
                Handler::Redirect(to, status.unwrap_or(StatusCode::PERMANENT_REDIRECT))
            }
            config::Action::Respond(respond) => Handler::Fixed(FixedAnswer::new(respond)),
            config::Action::Channel(_) => {
                Handler::Channels(self.channels_of(host, &route.path, rules)?)
            }
            config::Action::Grip(grip) => {
                let log = self.generation.grip(grip)?;
                self.log_of(&log.1);
                Handler::Items(Rc::new([log]))
            }
        })
    }

    /// Returns this engine's part of a log of items: that of before, if there is one.
    fn log_of(&mut self, channels: &Arc<Channels>) -> Rc<LocalRoute> {
        let mut here = self.router.channel_routes.iter();
        if let Some(known) = here.find(|route| route.is_of(channels)) {
            return known.clone();
        }
        let log = match self.known.get(&Arc::as_ptr(channels)) {
            Some(known) => known.clone(),
            None => {
                let report = &self.router.shared.report;
                let rights = Rights::of_log(channels, report);
                LocalRoute::new(channels.clone(), rights, None, self.engine.clone())
            }
        };
        self.router.channel_routes.push(log.clone());
        log
    }

    /// Makes the servers of a route hold connections, if the configuration lets them.
    fn held(
        &mut self,
        host: &Host,
        route: &config::Route,
        grip: &config::Grip,
        (forwards, strips): (&Rc<Forwards>, bool),
        rules: &Option<Arc<RouteRules>>,
    ) -> Option<Rc<HeldRoute>> {
        let (key, channels) = self.generation.grip(grip)?;
        let log = self.log_of(&channels);
        // A host without names is known by its listeners: there may be one for each.
        let at: Vec<String> = host.listeners.iter().map(ToString::to_string).collect();
        let unnamed = host.names.is_empty().then(|| format!("[{}]", at.join(",")));
        let mut hosts: Vec<String> = host.names.iter().cloned().chain(unnamed).collect();
        hosts.sort_unstable();
        let matcher = route.matcher.as_ref().map_or_else(String::new, |it| format!(" {it:?}"));
        let named = |host: String| format!("{host} {}{matcher}", route.path).into();
        let names = hosts.into_iter().map(named).collect();
        let path = route.path.trim_end_matches('/');
        let ask = forwards.clone().asks(path.to_owned(), strips);
        let prefix = if strips { path.into() } else { "".into() };
        let hsts = self.https.as_ref().and_then(HttpsRule::hsts);
        let report = self.router.shared.report.clone();
        let rules = (rules.clone(), hsts);
        let held = HeldRoute::new(names, (ask, prefix), (key, log), rules, report);
        self.held.push(held.clone());
        Some(held)
    }

    /// Builds the handler of an action that forwards requests.
    fn forwards(
        &mut self,
        host: &Host,
        action: &config::Action,
        route: &config::Route,
        rules: &Option<Arc<RouteRules>>,
    ) -> Option<Rc<Forwards>> {
        let (forwarder, scripts) = match action {
            config::Action::Proxy(proxy) => (self.forwarder(proxy, route, rules)?, None),
            config::Action::FastCgi(fastcgi) => {
                let folder = match fastcgi.root {
                    Some(_) => Some(self.folders.next()?),
                    None => None,
                };
                let forwarder = self.forwarder(&fastcgi.proxy, route, rules)?;
                let prefix = if route.rules.rewrite.is_some() { "" } else { &*route.path };
                let scripts = Scripts::new(folder, fastcgi, prefix);
                (forwarder.with_scripts(fastcgi), Some(Rc::new(scripts)))
            }
            // The check of the configuration lets no other one through.
            _ => return None,
        };
        let mut forwarder = forwarder;
        let proxy = match action {
            config::Action::FastCgi(fastcgi) => Some(&fastcgi.proxy),
            config::Action::Proxy(proxy) => Some(proxy),
            _ => None,
        };
        let sent = proxy.into_iter().flat_map(|proxy| &proxy.send_files);
        let sent = sent.filter_map(|(path, root)| {
            let files = Files {
                root: root.clone(),
                hidden: true,
                index: Vec::new(),
                precompressed: false,
                cache_bytes: 0,
                ..Files::default()
            };
            let site = Site::new(self.folders.next()?, files);
            Some((path.clone(), root.clone(), site))
        });
        forwarder.send_files(sent);
        let forwarder = Rc::new(forwarder);
        let Some(grip) = action.grip() else {
            return Some(Rc::new(Forwards { forwarder, scripts, held: None }));
        };
        let plain = Rc::new(Forwards { forwarder, scripts, held: None });
        let strips = proxy.is_some_and(|proxy| proxy.strip_path);
        let held = self.held(host, route, grip, (&plain, strips), rules)?;
        let Forwards { forwarder, scripts, .. } = &*plain;
        let (forwarder, scripts) = (forwarder.clone(), scripts.clone());
        Some(Rc::new(Forwards { forwarder, scripts, held: Some(held) }))
    }

    fn forwarder(
        &self,
        proxy: &config::Proxy,
        route: &config::Route,
        rules: &Option<Arc<RouteRules>>,
    ) -> Option<Forwarder> {
        let group = self.generation.groups.get(&proxy.upstream)?;
        let (path, timeouts) = (&route.path, &self.generation.config.timeouts);
        let mut forwarder = Forwarder::new(group, proxy, path, timeouts);
        let answers = rules.as_ref().and_then(|rules| rules.answers.as_ref());
        let has_pages = answers.is_some_and(|answers| answers.has_pages());
        forwarder.pages = match (has_pages, proxy.replace_errors) {
            (false, _) => Pages::None,
            (true, false) => Pages::Own,
            (true, true) => Pages::All,
        };
        Some(forwarder)
    }

    /// Returns this engine's part of a route of channels: that of before, if there is one.
    fn channels_of(
        &mut self,
        host: &Host,
        path: &str,
        rules: &Option<Arc<RouteRules>>,
    ) -> Option<Rc<LocalRoute>> {
        let Generation { config, groups, channels, rights, .. } = &*self.generation;
        let channels = channels.channels_at(host, path)?;
        let rights = rights.get(self.placed_rights)?;
        self.placed_rights += 1;
        let rights = Rights::new(rights, groups, config);
        let (route, rights) = match self.known.get(&Arc::as_ptr(channels)) {
            Some(known) => (known.clone(), Some(rights)),
            None => {
                let (rules, engine) = (rules.clone(), self.engine.clone());
                (LocalRoute::new(channels.clone(), rights, rules, engine), None)
            }
        };
        let hsts = self.https.as_ref().and_then(HttpsRule::hsts);
        // Until the router is in use, requests meet the rules of before.
        let (rules, changed) = (rules.clone(), route.clone());
        self.changes.push(ChannelChange { route: changed, rights, rules, hsts });
        self.router.channel_routes.push(route.clone());
        Some(route)
    }

    /// Gives the routes that are built to the names of their host.
    fn finish_host(&mut self, host: &Host) {
        let names_hub = host.routes.iter().any(|route| match &route.action {
            config::Action::Channel(options) => options.mercure.is_some_and(|hub| hub.discovery),
            _ => false,
        });
        let rules = &self.generation.rules[self.host];
        let https = match host.routes.is_empty() {
            true => HttpsRule::for_host(host, &self.generation.encrypted),
            false => self.https.take(),
        };
        let routes: Routes = Rc::new(HostRoutes {
            table: RouteTable::new(std::mem::take(&mut self.routes)),
            names_hub,
            answers: rules.answers.clone(),
            clients: rules.clients.clone(),
            listeners: host.listeners.clone(),
            https,
        });
        self.router.hosts.add(host, &routes);
    }
}
