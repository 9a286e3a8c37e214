//! From a request to its handler: by host, by path.

mod blueprint;
mod handler;

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use http::header::ACCESS_CONTROL_ALLOW_ORIGIN;
use http::uri::PathAndQuery;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use superpoll_http::answers::{Additions, AnswerRules};
use superpoll_http::authority;
use superpoll_http::body::Body;
use superpoll_http::exchange::{Exchange, LocalFuture};
use superpoll_http::files::{Embedded, Representation};
use superpoll_http::log::Entry;
use superpoll_http::peer::Peer;
use superpoll_http::reply;
use superpoll_http::rules::RouteRules;
use superpoll_http::telemetry::durations::{RequestDurations, RequestTimer};
use superpoll_http::telemetry::guard;
use superpoll_http::trace::TraceRules;
use superpoll_http::trusted_proxies::TrustedProxies;
use superpoll_http::upload::{RequestBody, Upload};
use superpoll_http::upstream::Forwarder;
use superpoll_http::upstream::lane::is_unconditional;
use superpoll_http1::{FieldValue, Method as Http1Method, RequestHead};
use superpoll_hub::channel::mercure::answer::DISCOVERY;
use superpoll_hub::channel::{LocalRoute, LocalSubscribers, LocatedChannel};
use superpoll_rt::{Handle, next_turn, spawn};

use super::admin::AdminService;
use super::https::{self, HttpsRule};
use super::route_table::RouteTable;
use crate::acme::Challenges;
use crate::config;
use crate::config::{Address, Authority};
use crate::telemetry::overview::{Overview, PAGE};
pub(super) use blueprint::{Blueprint, BuiltRouter, open};
use handler::{Handler, Target};

/// The answer to clients that the metrics are not for.
const METRICS_ARE_LOCAL: &str = "403 Forbidden: these metrics are for programs on this machine, \
                                 without a proxy between; public = true in [metrics] opens them\n";

/// The routes of a virtual host.
type Routes = Rc<HostRoutes>;

struct HostRoutes {
    table: RouteTable<Target>,
    /// Whether responses name the host's hub of Mercure.
    names_hub: bool,
    /// The rules for answers that no route gives.
    answers: Option<Arc<AnswerRules>>,
    /// The rules for clients that ask for a path without a route.
    clients: Option<Arc<RouteRules>>,
    /// The listeners that serve the host; all, if there are none.
    listeners: Vec<Address>,
    /// The rule of a host that is served over encrypted connections only.
    https: Option<HttpsRule>,
}

impl HostRoutes {
    fn is_on(&self, listener: &Address) -> bool {
        self.listeners.is_empty() || self.listeners.contains(listener)
    }
}

/// The handler of a request that takes the lane.
pub(super) enum LaneHandler {
    /// With the largest body, if the route has a limit of its own.
    Proxy(Rc<Forwarder>, Option<u64>),
    /// A representation in memory.
    File(Rc<Representation>),
}

/// The hosts and routes that one engine serves.
pub(super) struct Router {
    names: HashMap<String, Routes>,
    /// The part after the `*` of a wildcard, the longest first.
    wildcards: Vec<(String, Routes)>,
    /// The hosts for all other names: first those of some listeners, and last that of the rest.
    defaults: Vec<Routes>,
    /// For IP addresses and for requests that name no host.
    addresses: Option<Routes>,
    /// Whether some host is served on some listeners only.
    depends_on_listener: bool,
    /// The Host field of the last request, and its routes; unused if those depend on the listener.
    last: RefCell<Option<(HeaderValue, Routes)>>,
    channel_routes: Vec<Rc<LocalRoute>>,
    overview: Arc<Overview>,
    /// The answers to certificate authorities that verify a name.
    challenges: Arc<Challenges>,
    /// The path of the counters, if they are served.
    metrics: Option<config::Metrics>,
    /// Whether all clients may see the live page, or none; `None`: programs on this machine.
    page: Option<bool>,
    /// The client of channels, for pages.
    client: Option<Rc<Embedded>>,
    /// Whether plain requests for some route take the lane.
    has_lane: bool,
    /// The answers of the admin listener, if there is one.
    admin: Option<Rc<AdminService>>,
    /// The durations of requests that no route answers.
    durations: Arc<RequestDurations>,
    /// How requests are followed, if they are.
    tracing: Option<Rc<TraceRules>>,
    trusted_proxies: TrustedProxies,
}

impl Drop for HostRoutes {
    fn drop(&mut self) {
        release(self.table.take_routes());
    }
}

impl Drop for Router {
    /// The last request that began with a router frees it. Other requests need not wait for that.
    fn drop(&mut self) {
        release(self.names.drain().collect());
    }
}

/// The route of a request that takes the lane, with everything that its response needs.
pub(super) struct LaneRoute {
    pub(super) handler: LaneHandler,
    /// The fields that its response gets.
    pub(super) additions: Additions,
    pub(super) durations: Arc<RequestDurations>,
    /// The rules by which it is counted.
    pub(super) counting: Option<Arc<RouteRules>>,
    /// Whether it has shown the password of a user.
    pub(super) has_user: bool,
}

/// The client of a request, and whether it may see pages without a host of their own.
#[derive(Clone, Copy)]
struct Requester<'a> {
    peer: &'a Peer,
    /// Whether it is a program on this machine.
    is_local: bool,
    /// The metrics, if the request is for them.
    metrics: Option<&'a config::Metrics>,
}

/// The records that the way of a request is noted in.
struct RequestNotes<'a> {
    additions: &'a mut Additions,
    timer: &'a mut RequestTimer,
    entry: Option<&'a Rc<Entry>>,
}

impl Router {
    fn routes(&self, name: &str, on: &Address) -> Option<&Routes> {
        let name = name.trim_end_matches('.');
        let lower;
        let name = if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
            lower = name.to_ascii_lowercase();
            &lower
        } else {
            name
        };
        let fits = |rest: &str| name.len() > rest.len() && name.ends_with(rest);
        let is_served = |routes: &&Routes| routes.is_on(on);
        self.names
            .get(name)
            .filter(is_served)
            .or_else(|| {
                let fitting = self.wildcards.iter().filter(|(rest, _)| fits(rest));
                fitting.map(|(_, routes)| routes).find(is_served)
            })
            .or_else(|| self.defaults.iter().find(is_served))
            .or_else(|| {
                let is_address = || name.is_empty() || name.parse::<IpAddr>().is_ok();
                self.addresses.as_ref().filter(|_| is_address()).filter(is_served)
            })
    }

    /// Returns the subscribers that a channel has on this engine.
    pub(super) fn local_subscribers(
        &self,
        (channels, hub): &LocatedChannel,
    ) -> Option<Rc<LocalSubscribers>> {
        let route = self.channel_routes.iter().find(|route| route.is_of(channels))?;
        Some(route.subscribers(hub))
    }

    /// Ends the channels that another does not have.
    pub(super) fn retire(&self, after: Option<&Router>) {
        let kept = after.into_iter().flat_map(|after| &after.channel_routes);
        let kept: HashSet<_> = kept.map(Rc::as_ptr).collect();
        let ended = self.channel_routes.iter().filter(|route| !kept.contains(&Rc::as_ptr(route)));
        ended.for_each(|route| route.retire());
    }

    /// Returns the routes of the host that a request is for; the last host is remembered.
    fn routes_for<B>(
        &self,
        request: &Request<B>,
        peer: &Peer,
        on: &Address,
    ) -> Result<Routes, StatusCode> {
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
        let found = self.routes(host.map_or("", |host| host.host), on).cloned();
        let routes = found.ok_or(StatusCode::MISDIRECTED_REQUEST)?;
        if let Some(field) = field.filter(|_| !self.depends_on_listener) {
            self.last.replace(Some((field.clone(), routes.clone())));
        }
        Ok(routes)
    }

    /// Returns the client of channels if a path is that of one of its files, on a host that has
    /// channels. Unlike the live page it is for all clients: it tells nothing about this server.
    fn client_at(&self, routes: &Routes, path: &str) -> Option<&Rc<Embedded>> {
        let name = path.strip_prefix(PAGE)?;
        let client = self.client.as_ref().filter(|client| client.has(name))?;
        let has_channel = routes
            .table
            .iter()
            .any(|route| matches!(route.handler.handler, Handler::Channels(_) | Handler::Demo(_)));
        // A configuration without the page may have routes of its own there.
        let is_taken =
            routes.table.iter().any(|route| route.path.starts_with(PAGE.trim_end_matches('/')));
        (has_channel && !is_taken).then_some(client)
    }

    /// Returns the route of a plain request of HTTP/1 that takes the lane.
    pub(super) fn lane_for(
        &self,
        head: &RequestHead<'_>,
        peer: &Peer,
        on: &Address,
    ) -> Option<LaneRoute> {
        let path = head.target.path();
        let host = head.host?;
        let is_own = path.starts_with(PAGE)
            || self.metrics.as_ref().is_some_and(|metrics| metrics.has(path))
            || self.challenges.answer(path).is_some();
        if is_own {
            return None;
        }
        let known = match &*self.last.borrow() {
            Some((last, routes)) if last.as_bytes() == host.as_bytes() => Some(routes.clone()),
            _ => None,
        };
        let is_known = known.is_some();
        let found = || self.routes(Authority::parse(host.as_bytes())?.host, on).cloned();
        let routes = known.or_else(found)?;
        let route = routes.table.find(path)?;
        if (routes.https.is_some() && !peer.is_encrypted)
            || routes.table.leads_elsewhere(route, path)
        {
            return None;
        }
        if route.handler.rewrite.is_some() {
            return None;
        }
        let values = |name: &'static str| head.fields.values(name).map(FieldValue::as_bytes);
        let rules = route.handler.rules.as_ref();
        if let Some(rules) = rules {
            let client = peer.client.map(|client| client.ip());
            if !rules.allow_lane(client, values("authorization")) {
                return None;
            }
        }
        let handler = match &route.handler.handler {
            Handler::Proxy(forwarder) if forwarder.has_lane() => {
                let most = rules.and_then(|rules| rules.body_bytes);
                LaneHandler::Proxy(forwarder.clone(), most)
            }
            Handler::Files(site) if site.has_lane() => {
                let is_read = matches!(head.method, Http1Method::Get | Http1Method::Head);
                if !is_read || !is_unconditional(head) {
                    return None;
                }
                let below = &path[route.path.trim_end_matches('/').len()..];
                LaneHandler::File(site.whole_now(below, values("accept-encoding"))?)
            }
            _ => return None,
        };
        let mut additions = Additions {
            rules: rules.and_then(|rules| rules.answers.clone()),
            is_head: head.method == Http1Method::Head,
            ..Additions::default()
        };
        if let Some(rule) = &routes.https {
            let host = Authority::parse(host.as_bytes());
            additions.hsts = host.and_then(|host| rule.hsts_of(&host));
        }
        additions.link = routes.names_hub.then_some(DISCOVERY);
        let durations = route.handler.durations.clone();
        let counting = rules.filter(|rules| rules.has_limits()).cloned();
        let has_user = rules.is_some_and(|rules| rules.has_users());
        if !is_known && !self.depends_on_listener {
            let field = HeaderValue::from_str(host.as_str()).ok()?;
            self.last.replace(Some((field, routes)));
        }
        Some(LaneRoute { handler, additions, durations, counting, has_user })
    }

    /// Returns how requests are followed, if they are.
    pub(super) fn tracing(&self) -> Option<&Rc<TraceRules>> {
        self.tracing.as_ref()
    }

    /// Returns the proxies that name the clients of their requests.
    pub(super) fn trusted_proxies(&self) -> &TrustedProxies {
        &self.trusted_proxies
    }

    /// Begins to time a request, which has no route yet.
    pub(super) fn timer(&self) -> RequestTimer {
        RequestTimer::begin(&self.durations)
    }

    /// Whether there is a route for which plain requests take the lane.
    pub(super) fn has_lane(&self) -> bool {
        self.has_lane
    }

    /// Whether the admin listener admits connections of a client, whose address is unknown in the
    /// Unix domain.
    pub(super) fn admits_admin(&self, client: Option<IpAddr>) -> bool {
        self.admin.as_ref().is_none_or(|admin| admin.admits(client))
    }

    /// Answers a request to the admin listener.
    pub(super) fn respond_to_admin(
        &self,
        request: Request<RequestBody>,
        peer: &Peer,
        prepare: impl FnOnce(Request<RequestBody>) -> (Request<Upload>, Exchange),
    ) -> Reply {
        match &self.admin {
            Some(admin) => admin.clone().respond(request, peer, prepare),
            // Its connection is from before a change of the configuration.
            None => StatusCode::NOT_FOUND.into(),
        }
    }

    /// Answers a request. `prepare` is called if that needs the request's body or its connection.
    /// The request counts for its route from then on.
    pub(super) fn respond(
        &self,
        request: Request<RequestBody>,
        peer: &Peer,
        on: &Address,
        timer: &mut RequestTimer,
        entry: Option<&Rc<Entry>>,
        prepare: impl FnOnce(Request<RequestBody>) -> (Request<Upload>, Exchange),
    ) -> Reply {
        // A tunnel has no route.
        if *request.method() == Method::CONNECT {
            return StatusCode::NOT_IMPLEMENTED.into();
        }
        // A target is visible ASCII (RFC 3986, section 2). Programs differ in how they read other
        // bytes, and so might the server that a request is forwarded to.
        let target = request.uri().path_and_query().map_or("", PathAndQuery::as_str);
        if !target.bytes().all(|byte| byte.is_ascii_graphic()) {
            return StatusCode::BAD_REQUEST.into();
        }
        let path = request.uri().path();
        if !path.starts_with('/') {
            return match (path, request.method()) {
                ("*", &Method::OPTIONS) => Reply::Now(reply::options()),
                _ => StatusCode::BAD_REQUEST.into(),
            };
        }
        if let Some(answer) = self.challenges.answer(path) {
            return Reply::Now(reply::text(StatusCode::OK, answer));
        }
        if self.metrics.as_ref().is_some_and(|metrics| metrics.ready.as_deref() == Some(path)) {
            return match *request.method() {
                Method::GET | Method::HEAD => Reply::Now(self.overview.readiness()),
                _ => Reply::Now(reply::not_allowed("GET, HEAD")),
            };
        }
        let metrics = self.metrics.as_ref().filter(|metrics| metrics.path == path);
        let is_page = path.starts_with(PAGE) && self.page != Some(false);
        // A program on this machine sees them by any name of the machine, whether or not a host has
        // that name.
        let is_local = (metrics.is_some() || is_page) && guard::is_local(&request, peer);
        let routes = match self.routes_for(&request, peer, on) {
            Ok(routes) => Some(routes),
            Err(_) if is_local => None,
            Err(StatusCode::MISDIRECTED_REQUEST) => return misdirected(),
            Err(status) => return status.into(),
        };
        let is_head = *request.method() == Method::HEAD;
        let mut additions = Additions { is_head, ..Additions::default() };
        let rule = routes.as_ref().and_then(|routes| routes.https.as_ref());
        if let Some(rule) = rule
            && !peer.is_encrypted
            && !is_local
            && !https::is_validation(path)
        {
            additions.rules = routes.as_ref().and_then(|routes| routes.answers.clone());
            return rule.redirect(&request).with(additions);
        }
        additions.hsts =
            rule.filter(|_| peer.is_encrypted).and_then(|rule| rule.hsts_for(&request));
        let requester = Requester { peer, is_local, metrics };
        let notes = RequestNotes { additions: &mut additions, timer, entry };
        let reply = self.respond_as(request, routes.as_ref(), &requester, notes, prepare);
        reply.with(additions)
    }

    /// Answers a request for a host, which may be none for programs on this machine. Returns the
    /// additions to the response, too.
    fn respond_as(
        &self,
        request: Request<RequestBody>,
        routes: Option<&Routes>,
        requester: &Requester<'_>,
        notes: RequestNotes<'_>,
        prepare: impl FnOnce(Request<RequestBody>) -> (Request<Upload>, Exchange),
    ) -> Reply {
        let Requester { peer, is_local, metrics } = *requester;
        let RequestNotes { additions, timer, entry } = notes;
        let path = request.uri().path();
        let is_page = path.starts_with(PAGE) && self.page != Some(false);
        if let Some(metrics) = metrics {
            if !metrics.public && !is_local {
                return Reply::Now(reply::text(StatusCode::FORBIDDEN, METRICS_ARE_LOCAL));
            }
            if !matches!(*request.method(), Method::GET | Method::HEAD) {
                return Reply::Now(reply::not_allowed("GET, HEAD"));
            }
            return Reply::Later(self.overview.prometheus(request.headers()));
        }
        if let Some(client) = routes.and_then(|routes| self.client_at(routes, path)) {
            additions.rules = routes.and_then(|routes| routes.answers.clone());
            let ((head, _), client) = (request.into_parts(), client.clone());
            return Reply::Later(Box::pin(async move { script(&client, &head).await }));
        }
        if is_page && (self.page == Some(true) || is_local) {
            let overview = self.overview.clone();
            let (request, exchange) = prepare(request);
            return Reply::Later(Box::pin(async move { overview.page(request, &exchange).await }));
        }
        let Some(routes) = routes else { return misdirected() };
        additions.rules = routes.answers.clone();
        let Some(route) = routes.table.find(path) else {
            return handler::without_route(routes, request, peer, &self.durations, prepare);
        };
        timer.counts_in(&route.handler.durations);
        let rules = route.handler.rules.as_ref();
        additions.rules = rules.and_then(|rules| rules.answers.clone());
        let names_hub = routes.names_hub && !matches!(route.handler.handler, Handler::Channels(_));
        additions.link = names_hub.then_some(DISCOVERY);
        let client = peer.client.map(|client| client.ip());
        handler::respond(routes, route, request, client, entry, prepare)
    }
}

/// Answers with a file of the client of channels, which pages of all sites may load.
async fn script(client: &Embedded, head: &http::request::Parts) -> Response<Body> {
    let path = &head.uri.path()[PAGE.len() - 1..];
    let mut response = client.answer(head, path).await;
    response.headers_mut().insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    response
}

/// Returns the answer to a request for a host that is not served.
fn misdirected() -> Reply {
    let text = "421 Misdirected Request: this server does not serve that host here; names in [[hosts]], or --name \
                where there is no configuration, say what it serves\n";
    Reply::Now(reply::text(StatusCode::MISDIRECTED_REQUEST, text))
}

// Freeing the routes of a former configuration, without a pause of the engine that has them.
//
// They are the engine's own, so that no other thread can free them. Thousands of them take
// milliseconds.

/// How many hosts or routes an engine builds or frees in one turn of its event loop: a fraction of
/// a millisecond.
pub(in crate::serve) const SLICE: usize = 64;

/// Frees values, in some turns of this engine's event loop if there are many.
fn release<T: 'static>(mut values: Vec<T>) {
    // An engine that ends has no requests that would wait.
    if values.len() <= SLICE || Handle::current().is_err() {
        return;
    }
    let task = async move {
        while !values.is_empty() {
            values.truncate(values.len().saturating_sub(SLICE));
            next_turn().await;
        }
    };
    spawn(task).detach();
}

// The answer of a route, at once or later.

/// A response, or a future of one. Most are of the first kind, and cost no future.
pub(in crate::serve) enum Reply {
    Now(Response<Body>),
    Later(LocalFuture<Response<Body>>),
}

impl Reply {
    /// Changes the response.
    fn map(self, change: impl FnOnce(Response<Body>) -> Response<Body> + 'static) -> Reply {
        match self {
            Reply::Now(response) => Reply::Now(change(response)),
            Reply::Later(response) => Reply::Later(Box::pin(async { change(response.await) })),
        }
    }

    /// Adds fields to the response, or puts a page in its place.
    fn with(self, additions: Additions) -> Reply {
        match additions.are_none() {
            true => self,
            false => self.map(|response| additions.apply_to(response)),
        }
    }

    /// Waits for the response.
    async fn into_response(self) -> Response<Body> {
        match self {
            Reply::Now(response) => response,
            Reply::Later(response) => response.await,
        }
    }
}

impl From<Response<Body>> for Reply {
    fn from(response: Response<Body>) -> Reply {
        Reply::Now(response)
    }
}

impl From<StatusCode> for Reply {
    fn from(status: StatusCode) -> Reply {
        Reply::Now(reply::status(status))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use superpoll_rt::Runtime;

    use super::*;

    /// Counts itself when it is freed.
    struct Counted(Rc<Cell<usize>>);

    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
        }
    }

    fn counted(count: usize) -> (Vec<Counted>, Rc<Cell<usize>>) {
        let freed = Rc::new(Cell::new(0));
        ((0..count).map(|_| Counted(freed.clone())).collect(), freed)
    }

    #[test]
    fn many_values_are_freed_in_several_turns_and_a_few_at_once() {
        Runtime::new().unwrap().block_on(async {
            let (few, freed) = counted(SLICE);
            release(few);
            assert_eq!(freed.get(), SLICE);
            let all = 10 * SLICE + 1;
            let (many, freed) = counted(all);
            release(many);
            let mut before = freed.get();
            assert_eq!(before, 0);
            while before < all {
                next_turn().await;
                let now = freed.get();
                // Another task is not kept waiting for more than two slices.
                assert!(now - before <= 2 * SLICE, "{now} after {before}");
                before = now;
            }
        });
        let (many, freed) = counted(3 * SLICE);
        release(many);
        assert_eq!(freed.get(), 3 * SLICE);
    }
}
