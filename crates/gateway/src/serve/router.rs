//! From a request to its handler: by host, by path.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use http::header::LOCATION;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Incoming;

use crate::authority;
use crate::body::Body;
use crate::channel::{LocalSubscribers, Registry};
use crate::config::{self, Config};
use crate::exchange::{Exchange, LocalFuture};
use crate::files::{Embedded, Folder, Site};
use crate::parking_lot::ParkingLot;
use crate::peer::Peer;
use crate::reply;
use crate::telemetry::guard;
use crate::telemetry::overview::{Overview, PAGE};
use crate::upload::Upload;
use crate::upstream::{Forwarder, Group};

/// A configuration after every step that can fail, for one engine.
pub(super) struct Blueprint {
    config: Arc<Config>,
    overview: Arc<Overview>,
    /// The folders, in the order in which the configuration names them.
    folders: Vec<Folder>,
    channels: Registry,
    groups: BTreeMap<String, Arc<Group>>,
}

/// The answer to clients that the metrics are not for.
const METRICS_ARE_LOCAL: &str = "403 Forbidden: these metrics are for programs on this machine, \
                                 without a proxy between; public = true in [metrics] opens them\n";

/// The handler of the requests below a path.
enum Handler {
    Channel(Rc<LocalSubscribers>),
    Demo(Rc<Embedded>),
    Files(Rc<Site>),
    Redirect(config::Redirect),
    Proxy(Rc<Forwarder>),
}

struct Route {
    path: String,
    handler: Handler,
}

/// The routes of a virtual host, the longest path first.
type Routes = Rc<[Route]>;

/// The hosts and routes that one engine serves.
pub(super) struct Router {
    names: HashMap<String, Routes>,
    /// The part after the `*` of a wildcard, the longest first.
    wildcards: Vec<(String, Routes)>,
    default: Option<Routes>,
    /// For IP addresses and for requests that name no host.
    addresses: Option<Routes>,
    /// The Host field of the last request, and its routes.
    last: RefCell<Option<(HeaderValue, Routes)>>,
    desks: Vec<Rc<LocalSubscribers>>,
    overview: Arc<Overview>,
    /// The path of the counters, if they are served.
    metrics: Option<config::Metrics>,
    /// Whether all clients may see the live page, or none; `None`: programs on this machine.
    page: Option<bool>,
}

impl Blueprint {
    /// Opens everything that a configuration names.
    pub(super) fn new(
        config: &Arc<Config>,
        overview: &Arc<Overview>,
        channels: &Registry,
        groups: &BTreeMap<String, Arc<Group>>,
    ) -> Result<Blueprint, String> {
        let (config, overview, channels) = (config.clone(), overview.clone(), channels.clone());
        let groups = groups.clone();
        Ok(Blueprint { folders: open(&config)?, config, overview, channels, groups })
    }

    /// Builds the routes, on the engine that they are for. Channels that `before` has as well go
    /// on.
    pub(super) fn build(self, parking_lot: &Rc<ParkingLot>, before: Option<&Router>) -> Router {
        let mut folders = self.folders.into_iter();
        let mut router = Router {
            names: HashMap::new(),
            wildcards: Vec::new(),
            default: None,
            addresses: None,
            last: RefCell::default(),
            desks: Vec::new(),
            overview: self.overview,
            metrics: self.config.metrics.clone(),
            page: self.config.server.page,
        };
        for host in &self.config.hosts {
            let mut routes = Vec::new();
            for route in &host.routes {
                let handler = match &route.action {
                    config::Action::Files(files) => match folders.next() {
                        Some(folder) => Handler::Files(Rc::new(Site::new(folder, files.clone()))),
                        None => continue,
                    },
                    config::Action::Demo => match Embedded::demo() {
                        Ok(demo) => Handler::Demo(Rc::new(demo)),
                        // Making it succeeded when the configuration was checked.
                        Err(_) => continue,
                    },
                    config::Action::Redirect(redirect) => Handler::Redirect(redirect.clone()),
                    config::Action::Channel(_) => match self.channels.of(host, &route.path) {
                        Some(hub) => {
                            let mut desks = before.into_iter().flat_map(|before| &before.desks);
                            let local_subscribers = desks
                                .find(|local_subscribers| Arc::ptr_eq(local_subscribers.hub(), hub))
                                .cloned();
                            let local_subscribers = local_subscribers.unwrap_or_else(|| {
                                LocalSubscribers::new(hub.clone(), parking_lot.clone())
                            });
                            router.desks.push(local_subscribers.clone());
                            Handler::Channel(local_subscribers)
                        }
                        None => continue,
                    },
                    config::Action::Proxy(proxy) => {
                        let Some(group) = self.groups.get(&proxy.upstream) else { continue };
                        let (path, timeouts) = (&route.path, &self.config.timeouts);
                        Handler::Proxy(Rc::new(Forwarder::new(group, proxy, path, timeouts)))
                    }
                };
                routes.push(Route { path: route.path.clone(), handler });
            }
            routes.sort_by_key(|route| std::cmp::Reverse(route.path.len()));
            let routes: Routes = routes.into();
            for name in &host.names {
                match name.strip_prefix('*') {
                    Some(rest) => router.wildcards.push((rest.to_owned(), routes.clone())),
                    None => drop(router.names.insert(name.clone(), routes.clone())),
                }
            }
            if host.default {
                router.default = Some(routes.clone());
            }
            if host.addresses {
                router.addresses = Some(routes);
            }
        }
        router.wildcards.sort_by_key(|(rest, _)| std::cmp::Reverse(rest.len()));
        router
    }
}

/// Opens the folders that a configuration names.
pub(super) fn open(config: &Config) -> Result<Vec<Folder>, String> {
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

/// A response, or a future of one. Most are of the first kind, and cost no future.
pub(super) enum Reply {
    Now(Response<Body>),
    Later(LocalFuture<Response<Body>>),
}

impl From<StatusCode> for Reply {
    fn from(status: StatusCode) -> Reply {
        Reply::Now(reply::status(status))
    }
}

impl Router {
    fn routes(&self, name: &str) -> Option<&Routes> {
        let name = name.trim_end_matches('.');
        let lower;
        let name = if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
            lower = name.to_ascii_lowercase();
            &lower
        } else {
            name
        };
        let fits = |rest: &str| name.len() > rest.len() && name.ends_with(rest);
        self.names
            .get(name)
            .or_else(|| {
                let found = self.wildcards.iter().find(|(rest, _)| fits(rest));
                found.map(|(_, routes)| routes)
            })
            .or(self.default.as_ref())
            .or_else(|| {
                let is_address = || name.is_empty() || name.parse::<IpAddr>().is_ok();
                self.addresses.as_ref().filter(|_| is_address())
            })
    }

    /// Returns the subscribers of the channel that is recorded under this number.
    pub(super) fn local_subscribers(&self, space: u64) -> Option<Rc<LocalSubscribers>> {
        self.desks
            .iter()
            .find(|local_subscribers| local_subscribers.hub().space() == Some(space))
            .cloned()
    }

    /// Ends the channels that another does not have.
    pub(super) fn retire(&self, after: Option<&Router>) {
        for local_subscribers in &self.desks {
            let mut desks = after.into_iter().flat_map(|after| &after.desks);
            if !desks.any(|other| Rc::ptr_eq(local_subscribers, other)) {
                local_subscribers.retire();
            }
        }
    }

    /// Returns the routes of the host that a request is for; the last host is remembered.
    fn routes_for<B>(&self, request: &Request<B>, peer: &Peer) -> Result<Routes, StatusCode> {
        let is_origin_form = request.uri().authority().is_none();
        let field = match is_origin_form {
            true => authority::field(request.headers(), request.version())?,
            false => None,
        };
        if let (Some(field), Some((last, routes))) = (field, &*self.last.borrow())
            && field == last
        {
            return Ok(routes.clone());
        }
        let host = authority::of_request(request, peer.is_encrypted || peer.is_proxied)?;
        let found = self.routes(host.map_or("", |host| host.host)).cloned();
        let routes = found.ok_or(StatusCode::MISDIRECTED_REQUEST)?;
        if let Some(field) = field {
            self.last.replace(Some((field.clone(), routes.clone())));
        }
        Ok(routes)
    }

    /// Answers a request. `prepare` is called if that needs the request's body or its connection.
    pub(super) fn respond(
        &self,
        request: Request<Incoming>,
        peer: &Peer,
        prepare: impl FnOnce(Request<Incoming>) -> (Request<Upload>, Exchange),
    ) -> Reply {
        // TRACE would show a page's script fields that only its server is to know, and a tunnel has
        // no route.
        if matches!(*request.method(), Method::CONNECT | Method::TRACE) {
            return StatusCode::NOT_IMPLEMENTED.into();
        }
        let path = request.uri().path();
        if !path.starts_with('/') {
            return match (path, request.method()) {
                ("*", &Method::OPTIONS) => Reply::Now(reply::options()),
                _ => StatusCode::BAD_REQUEST.into(),
            };
        }
        let metrics = self.metrics.as_ref().filter(|metrics| metrics.path == path);
        let is_page = path.starts_with(PAGE) && self.page != Some(false);
        // A program on this machine sees them by any name of the machine, whether or not a host has
        // that name.
        let is_local = (metrics.is_some() || is_page) && guard::is_local(&request, peer);
        let routes = match self.routes_for(&request, peer) {
            Ok(routes) => Some(routes),
            Err(_) if is_local => None,
            Err(StatusCode::MISDIRECTED_REQUEST) => return misdirected(),
            Err(status) => return status.into(),
        };
        if let Some(metrics) = metrics {
            if !metrics.public && !is_local {
                return Reply::Now(reply::text(StatusCode::FORBIDDEN, METRICS_ARE_LOCAL));
            }
            if !matches!(*request.method(), Method::GET | Method::HEAD) {
                return Reply::Now(reply::not_allowed("GET, HEAD"));
            }
            return Reply::Later(self.overview.prometheus(request.headers()));
        }
        if is_page && (self.page == Some(true) || is_local) {
            let overview = self.overview.clone();
            let (request, exchange) = prepare(request);
            return Reply::Later(Box::pin(async move { overview.page(request, &exchange).await }));
        }
        let Some(routes) = routes else { return misdirected() };
        let Some(route) = find(&routes, path) else {
            return StatusCode::NOT_FOUND.into();
        };
        if routes.len() > 1 && leads_elsewhere(&routes, route, path) {
            return StatusCode::BAD_REQUEST.into();
        }
        let below = route.path.trim_end_matches('/').len();
        match &route.handler {
            Handler::Redirect(redirect) => Reply::Now(to(redirect)),
            // There is nothing below a channel.
            Handler::Channel(_) if !matches!(&path[below..], "" | "/") => {
                StatusCode::NOT_FOUND.into()
            }
            Handler::Channel(local_subscribers) => {
                let (local_subscribers, (request, exchange)) =
                    (local_subscribers.clone(), prepare(request));
                Reply::Later(Box::pin(
                    async move { local_subscribers.answer(request, &exchange).await },
                ))
            }
            Handler::Files(site) => {
                let (head, _) = request.into_parts();
                if let Some(response) = site.answer_now(&head, &head.uri.path()[below..]) {
                    return Reply::Now(response);
                }
                let site = site.clone();
                Reply::Later(Box::pin(async move {
                    site.answer(&head, &head.uri.path()[below..]).await
                }))
            }
            Handler::Demo(demo) => {
                let ((head, _), demo) = (request.into_parts(), demo.clone());
                Reply::Later(Box::pin(async move {
                    demo.answer(&head, &head.uri.path()[below..]).await
                }))
            }
            Handler::Proxy(forwarder) => {
                let (request, exchange) = prepare(request);
                forwarder.clone().answer(request, exchange).map_or_else(Reply::from, Reply::Later)
            }
        }
    }
}

/// Returns the route that a path is at or below.
fn find<'a>(routes: &'a [Route], path: &str) -> Option<&'a Route> {
    let fits = |route: &&Route| {
        let rest = path.strip_prefix(route.path.as_str());
        rest.is_some_and(|rest| {
            rest.is_empty() || rest.starts_with('/') || route.path.ends_with('/')
        })
    };
    routes.iter().find(fits)
}

/// Whether a path belongs to another route in its usual spelling: without empty and `.` components,
/// and without needless escapes. The target of `route`, a folder or a server, may read the path so,
/// and would answer in the place of the other route.
fn leads_elsewhere(routes: &[Route], route: &Route, path: &str) -> bool {
    if !path.contains('%') && !path.contains("//") && !path.contains("/.") {
        return false;
    }
    let mut usual = String::with_capacity(path.len());
    for part in path.split('/').filter(|part| !part.is_empty()) {
        let before = usual.len();
        usual.push('/');
        unescape(part, &mut usual);
        if &usual[before..] == "/." {
            usual.truncate(before);
        }
    }
    if usual.is_empty() || path.ends_with('/') {
        usual.push('/');
    }
    find(routes, &usual).is_none_or(|found| !std::ptr::eq(found, route))
}

/// Adds a part of a path without the escapes of bytes that need none (RFC 3986, section 6.2.2.2).
fn unescape(part: &str, out: &mut String) {
    let mut rest = part;
    while let Some((before, after)) = rest.split_once('%') {
        out.push_str(before);
        let byte = after.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        let is_usual = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~".contains(byte);
        rest = match byte.filter(is_usual) {
            Some(byte) => {
                out.push(char::from(byte));
                &after[2..]
            }
            None => {
                out.push('%');
                after
            }
        };
    }
    out.push_str(rest);
}

/// Returns the answer to a request for a host that is not served.
fn misdirected() -> Reply {
    let text = "421 Misdirected Request: this server does not serve that host here; names in [[hosts]], or --name \
                where there is no configuration, say what it serves\n";
    Reply::Now(reply::text(StatusCode::MISDIRECTED_REQUEST, text))
}

/// Redirects a client.
fn to(redirect: &config::Redirect) -> Response<Body> {
    let status = StatusCode::from_u16(redirect.status).unwrap_or(StatusCode::PERMANENT_REDIRECT);
    let mut response = reply::status(status);
    if let Ok(to) = HeaderValue::from_str(&redirect.to) {
        response.headers_mut().insert(LOCATION, to);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_normalizes_to_another_route_is_found() {
        let route = |path: &str| {
            let to = config::Redirect { to: path.to_owned(), status: 308 };
            Route { path: path.to_owned(), handler: Handler::Redirect(to) }
        };
        let routes = [route("/private/deep"), route("/private"), route("/")];
        for (path, expected) in [
            ("/private", false),
            ("/x", false),
            ("/./x", false),
            ("//x//y/.", false),
            ("/a%2Fb", false),
            ("/.well-known/x", false),
            ("/%zz%", false),
            ("/private/./x", false),
            ("/%2Fprivate", false),
            ("/./private", true),
            ("//private/x", true),
            ("/%70rivate/x", true),
            ("/%2e/private", true),
            ("/private//deep", true),
            ("/private/%64eep/x", true),
        ] {
            let route = find(&routes, path).unwrap();
            assert_eq!(leads_elsewhere(&routes, route, path), expected, "{path}");
        }
    }
}
