//! From a configuration to the routes of an engine.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::Arc;

use http::StatusCode;

use super::handler::{Handler, Target};
use super::{HostRoutes, Router, Routes};
use crate::acme::Challenges;
use crate::address::Address;
use crate::channel::{ChannelEngine, LocalRoute, Registry, Rights, SharedRights};
use crate::config::{self, Config};
use crate::files::{Embedded, Folder, Site};
use crate::redirect::Destination;
use crate::rewrite::Rewrite;
use crate::rules::HostRules;
use crate::serve::admin::AdminService;
use crate::serve::administration::Administration;
use crate::serve::https::HttpsRule;
use crate::serve::route_table::{Route, RouteTable};
use crate::telemetry::durations::RequestDurations;
use crate::telemetry::overview::Overview;
use crate::trace::TraceRules;
use crate::trusted_proxies::TrustedProxies;
use crate::upstream::{Forwarder, Group};

/// A configuration after every step that can fail, for one engine.
pub(in crate::serve) struct Blueprint {
    config: Arc<Config>,
    overview: Arc<Overview>,
    administration: Arc<Administration>,
    /// The folders, in the order in which the configuration names them.
    folders: Vec<Folder>,
    channels: Registry,
    /// The rights of the channels, in the order in which the configuration names them.
    rights: Vec<Arc<SharedRights>>,
    /// The rules of the hosts and their routes, in the order of the configuration.
    rules: Arc<[HostRules]>,
    groups: BTreeMap<String, Arc<Group>>,
    /// The encrypted listeners: their addresses in the configuration, and their ports.
    encrypted: Vec<(Address, u16)>,
    challenges: Arc<Challenges>,
}

impl Blueprint {
    /// Opens everything that a configuration names.
    pub(in crate::serve) fn new(
        config: &Arc<Config>,
        (overview, administration): (&Arc<Overview>, &Arc<Administration>),
        channels: &Registry,
        (rights, rules): (&[Arc<SharedRights>], &Arc<[HostRules]>),
        groups: &BTreeMap<String, Arc<Group>>,
        encrypted: &[(Address, u16)],
        challenges: &Arc<Challenges>,
    ) -> Result<Blueprint, String> {
        let (config, overview, channels) = (config.clone(), overview.clone(), channels.clone());
        let administration = administration.clone();
        let (rights, groups, encrypted) = (rights.to_vec(), groups.clone(), encrypted.to_vec());
        let (folders, rules, challenges) = (open(&config)?, rules.clone(), challenges.clone());
        Ok(Blueprint {
            config,
            overview,
            administration,
            folders,
            channels,
            rights,
            rules,
            groups,
            encrypted,
            challenges,
        })
    }

    /// Builds the routes, on the engine that they are for. Channels that `before` has as well go
    /// on. `durations` are those of the requests on the engine: for each route in the order of the
    /// configuration, and last for requests without a route.
    pub(in crate::serve) fn build(
        self,
        engine: &Rc<ChannelEngine>,
        mut durations: Vec<Arc<RequestDurations>>,
        before: Option<&Router>,
    ) -> Router {
        let mut folders = self.folders.into_iter();
        let mut rights = self.rights.iter();
        // There is at least that of requests without a route.
        let without_route = durations.pop().unwrap_or_default();
        let mut durations = durations.into_iter();
        let admin = self.config.admin.as_ref().map(|admin| {
            // The last rules, behind those of the hosts.
            let rules = self.rules.last().and_then(|rules| rules.routes.first()?.clone());
            let sources = (self.overview.clone(), self.administration);
            Rc::new(AdminService::new(admin, rules, sources))
        });
        let mut router = Router {
            names: HashMap::new(),
            wildcards: Vec::new(),
            defaults: Vec::new(),
            addresses: None,
            depends_on_listener: self.config.hosts.iter().any(|host| !host.listeners.is_empty()),
            last: RefCell::default(),
            channel_routes: Vec::new(),
            overview: self.overview,
            challenges: self.challenges,
            admin,
            metrics: self.config.metrics.clone(),
            page: self.config.server.page,
            // Making it cannot fail; without it there would be 404.
            client: Embedded::client().ok().map(Rc::new),
            has_lane: false,
            durations: without_route,
            tracing: self.config.tracing.is_on().then(|| TraceRules::new(&self.config.tracing)),
            trusted_proxies: TrustedProxies::new(&self.config.server.trusted_proxies),
        };
        // Requests without a route meet the rules of their hosts.
        let of_hosts = self.rules.iter().filter_map(|rules| rules.clients.as_ref());
        router.durations.expect_refusals(of_hosts.flat_map(|rules| rules.reasons()));
        for (host, host_rules) in self.config.hosts.iter().zip(&*self.rules) {
            let https = HttpsRule::of(host, &self.encrypted);
            let mut routes = Vec::new();
            for (route, rules) in host.routes.iter().zip(&host_rules.routes) {
                let durations = durations.next().unwrap_or_default();
                let answers = || rules.as_ref().and_then(|rules| rules.answers.clone());
                let handler = match &route.action {
                    config::Action::Files(files) => match folders.next() {
                        Some(folder) => {
                            router.has_lane |= files.lane;
                            Handler::Files(Rc::new(Site::new(folder, files.clone())))
                        }
                        None => continue,
                    },
                    config::Action::Demo => match Embedded::demo() {
                        Ok(demo) => Handler::Demo(Rc::new(demo)),
                        // Making it succeeded when the configuration was checked.
                        Err(_) => continue,
                    },
                    config::Action::Redirect(redirect) => {
                        // The check of the configuration has done the same.
                        let Ok(to) = Destination::parse(&redirect.to) else { continue };
                        let status = StatusCode::from_u16(redirect.status);
                        Handler::Redirect(to, status.unwrap_or(StatusCode::PERMANENT_REDIRECT))
                    }
                    config::Action::Channel(_) => {
                        let channels = self.channels.of(host, &route.path).zip(rights.next());
                        let Some((channels, rights)) = channels else { continue };
                        let rights = Rights::new(rights, &self.groups, &self.config);
                        let mut kept = before.into_iter().flat_map(|before| &before.channel_routes);
                        let route = match kept.find(|route| route.is_of(channels)) {
                            Some(route) => {
                                route.change(rights);
                                route.clone()
                            }
                            None => {
                                let rules = rules.clone();
                                LocalRoute::new(channels.clone(), rights, rules, engine.clone())
                            }
                        };
                        let hsts = https.as_ref().and_then(HttpsRule::hsts);
                        route.change_rules(rules.clone(), hsts);
                        router.channel_routes.push(route.clone());
                        Handler::Channels(route)
                    }
                    config::Action::Proxy(proxy) => {
                        let Some(group) = self.groups.get(&proxy.upstream) else { continue };
                        let (path, timeouts) = (&route.path, &self.config.timeouts);
                        router.has_lane |= proxy.lane && !proxy.compress;
                        let mut forwarder = Forwarder::new(group, proxy, path, timeouts);
                        let has_pages = answers().is_some_and(|answers| answers.has_pages());
                        forwarder.marks = has_pages && !proxy.replace_errors;
                        Handler::Proxy(Rc::new(forwarder))
                    }
                };
                // The check of the configuration has done the same.
                durations.expect_refusals(rules.iter().flat_map(|rules| rules.reasons()));
                let rewrite = route.rules.rewrite.as_deref();
                let rewrite = rewrite.and_then(|text| Rewrite::parse(text, &route.path).ok());
                let handler = Target { handler, rules: rules.clone(), rewrite, durations };
                routes.push(Route { path: route.path.clone(), handler });
            }
            let names_hub = host.routes.iter().any(|route| match &route.action {
                config::Action::Channel(options) => {
                    options.mercure.is_some_and(|hub| hub.discovery)
                }
                _ => false,
            });
            let routes: Routes = Rc::new(HostRoutes {
                table: RouteTable::new(routes),
                names_hub,
                answers: host_rules.answers.clone(),
                clients: host_rules.clients.clone(),
                listeners: host.listeners.clone(),
                https,
            });
            for name in &host.names {
                match name.strip_prefix('*') {
                    Some(rest) => router.wildcards.push((rest.to_owned(), routes.clone())),
                    None => drop(router.names.insert(name.clone(), routes.clone())),
                }
            }
            if host.default {
                router.defaults.push(routes.clone());
            }
            if host.addresses {
                router.addresses = Some(routes);
            }
        }
        router.defaults.sort_by_key(|routes| routes.listeners.is_empty());
        router.wildcards.sort_by_key(|(rest, _)| std::cmp::Reverse(rest.len()));
        router
    }
}

/// Opens the folders that a configuration names.
pub(in crate::serve) fn open(config: &Config) -> Result<Vec<Folder>, String> {
    let mut folders = Vec::new();
    for route in config.hosts.iter().flat_map(|host| &host.routes) {
        if route.action == config::Action::Demo {
            let unusable = |error| format!("preparing the demonstration: {error}");
            drop(Embedded::demo().map_err(unusable)?);
        }
        if let config::Action::Files(files) = &route.action {
            let path = &files.root;
            folders.push(Folder::open(path).map_err(|error| {
                format!("opening the folder {} to serve its files: {error}", path.display())
            })?);
        }
    }
    Ok(folders)
}
