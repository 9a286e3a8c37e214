//! From a request to its handler: by host, by path.

mod auth_request;
mod builder;
mod handler;

use std::cell::RefCell;
use std::collections::HashSet;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use http::header::ACCESS_CONTROL_ALLOW_ORIGIN;
use http::uri::PathAndQuery;
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri, Version};
use superpoll_http::answers::{Additions, AnswerRules};
use superpoll_http::authority;
use superpoll_http::body::Body;
use superpoll_http::exchange::{Exchange, LocalFuture};
use superpoll_http::files::Embedded;
use superpoll_http::head::Head;
use superpoll_http::log::Entry;
use superpoll_http::peer::Peer;
use superpoll_http::ready::Ready;
use superpoll_http::reply;
use superpoll_http::rules::RouteRules;
use superpoll_http::telemetry::durations::{RequestDurations, RequestTimer};
use superpoll_http::telemetry::guard;
use superpoll_http::trace::TraceRules;
use superpoll_http::trusted_proxies::TrustedProxies;
use superpoll_http::upload::Upload;
use superpoll_http::upstream::{Forwarder, OriginalTarget, Script};
use superpoll_http1::Method as Http1Method;
use superpoll_hub::channel::mercure::answer::DISCOVERY;
use superpoll_hub::channel::{LocalRoute, LocalSubscribers, LocatedChannel};
use superpoll_rt::{Handle, blocking, next_turn, spawn};

use super::admin::AdminService;
use super::https::{self, HttpsRule};
use super::shared::Shared;
use crate::config;
use crate::config::{Address, Config, HostTable, RouteTable, is_served_on};
use crate::telemetry::overview::PAGE;
pub(super) use builder::{BuiltRouter, RouterBuilder};
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
        is_served_on(&self.listeners, listener)
    }
}

/// The hosts and routes that one engine serves.
pub(super) struct Router {
    shared: Arc<Shared>,
    /// The configuration that the routes are of.
    config: Arc<Config>,
    hosts: HostTable<Routes>,
    /// Whether some host is served on some listeners only.
    depends_on_listener: bool,
    /// The Host field of the last request, and its routes; unused if those depend on the listener.
    last: RefCell<Option<(HeaderValue, Routes)>>,
    channel_routes: Vec<Rc<LocalRoute>>,
    /// The client of channels, for pages.
    client: Option<Rc<Embedded>>,
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
        release(self.hosts.take_named());
        if Handle::current().is_ok() {
            let config = std::mem::take(&mut self.config);
            blocking::unblock(move || drop(config)).detach();
        }
    }
}

/// The way in which a request is answered.
pub(super) struct Routed {
    pub(super) decision: Decision,
    /// The fields that the response gets.
    pub(super) additions: Additions,
    /// The largest body of the request, if the route has a limit of its own.
    pub(super) body_bytes: Option<u64>,
}

/// The answer of such a handler.
type AnswerAll = Box<dyn FnOnce(Request<Upload>, Exchange) -> Reply>;

/// The answer to a request, as far as its head tells.
pub(super) enum Decision {
    /// It is there.
    Ready(Ready),
    /// Its server's response is passed on. A target may stand in place of its own, and the call of
    /// a script.
    Forward(Rc<Forwarder>, Option<PathAndQuery>, Option<Box<Script>>),
    /// By a handler that needs all of the request.
    Handle(AnswerAll),
}

impl Decision {
    fn handle(handle: impl FnOnce(Request<Upload>, Exchange) -> Reply + 'static) -> Decision {
        Decision::Handle(Box::new(handle))
    }

    /// Answers the request.
    pub(super) fn answer(self, request: Request<Upload>, exchange: Exchange) -> Reply {
        match self {
            Decision::Ready(ready) => {
                Reply::Now(ready.into_response(*request.method() == Method::HEAD))
            }
            Decision::Forward(forwarder, target, script) => {
                let request = match target {
                    None => Ok(request),
                    Some(target) => with_target(request, target),
                };
                let answer =
                    request.and_then(|request| forwarder.answer(request, script, exchange));
                answer.map_or_else(Reply::from, Reply::Later)
            }
            Decision::Handle(handle) => handle(request, exchange),
        }
    }
}

/// Puts a path and query in place of those of a request.
fn with_target(
    mut request: Request<Upload>,
    target: PathAndQuery,
) -> Result<Request<Upload>, StatusCode> {
    let mut parts = std::mem::take(request.uri_mut()).into_parts();
    if let Some(own) = parts.path_and_query.replace(target) {
        request.extensions_mut().insert(OriginalTarget(own));
    }
    *request.uri_mut() = Uri::from_parts(parts).map_err(|_| StatusCode::BAD_REQUEST)?;
    Ok(request)
}

impl From<Response<Body>> for Decision {
    fn from(response: Response<Body>) -> Decision {
        Decision::Ready(response.into())
    }
}

impl From<StatusCode> for Decision {
    fn from(status: StatusCode) -> Decision {
        Decision::Ready(status.into())
    }
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
    body_bytes: &'a mut Option<u64>,
    timer: &'a mut RequestTimer,
    entry: Option<&'a Rc<Entry>>,
}

impl Router {
    fn routes(&self, name: &str, on: &Address) -> Option<&Routes> {
        self.hosts.find(name, |routes| routes.is_on(on)).map(|(routes, _)| routes)
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
    fn routes_for(&self, head: Head<'_>, peer: &Peer, on: &Address) -> Result<Routes, StatusCode> {
        let is_secured = peer.is_encrypted || peer.is_proxied;
        let field = match (head.authority, head.version) {
            (None, _) => authority::field(head)?,
            // The codec lets no other host through.
            (Some(_), Version::HTTP_2) => {
                let is_known = match head.scheme {
                    Some("https") => is_secured,
                    scheme => scheme == Some("http"),
                };
                head.host.filter(|_| is_known).map(str::as_bytes)
            }
            (Some(_), _) => None,
        };
        if let (Some(field), Some((last, routes))) = (field, &*self.last.borrow())
            && field == last.as_bytes()
        {
            return Ok(routes.clone());
        }
        let host = authority::of_request(head, is_secured)?;
        let found = self.routes(host.map_or("", |host| host.host), on).cloned();
        let routes = found.ok_or(StatusCode::MISDIRECTED_REQUEST)?;
        if let Some(field) = field.filter(|_| !self.depends_on_listener) {
            let field = HeaderValue::from_bytes(field).ok();
            self.last.replace(field.map(|field| (field, routes.clone())));
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

    /// Returns the configuration that the routes are of.
    pub(super) fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the setting of the counters, if they are served.
    fn metrics(&self) -> Option<&config::Metrics> {
        self.config.metrics.as_ref()
    }

    /// Whether all clients may see the live page, or none; `None`: programs on this machine.
    fn page(&self) -> Option<bool> {
        self.config.server.page
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

    /// Whether the admin listener admits connections of a client, whose address is unknown in the
    /// Unix domain.
    pub(super) fn admits_admin(&self, client: Option<IpAddr>) -> bool {
        self.admin.as_ref().is_none_or(|admin| admin.admits(client))
    }

    /// Finds the answer to a request to the admin listener.
    pub(super) fn route_of_admin(&self, head: Head<'_>) -> Routed {
        let decision = match &self.admin {
            Some(admin) => {
                let admin = admin.clone();
                Decision::handle(move |request, exchange| admin.respond(request, exchange))
            }
            // Its connection is from before a change of the configuration.
            None => StatusCode::NOT_FOUND.into(),
        };
        let additions = Additions { is_head: head.is_head(), ..Additions::default() };
        Routed { decision, additions, body_bytes: None }
    }

    /// Finds the answer to a request, which counts for its route from then on.
    pub(super) fn route(
        &self,
        head: Head<'_>,
        peer: &Peer,
        on: &Address,
        timer: &mut RequestTimer,
        entry: Option<&Rc<Entry>>,
    ) -> Routed {
        let mut additions = Additions { is_head: head.is_head(), ..Additions::default() };
        let mut body_bytes = None;
        let (adds, body) = (&mut additions, &mut body_bytes);
        let notes = RequestNotes { additions: adds, body_bytes: body, timer, entry };
        let decision = self.decide(head, peer, on, notes);
        Routed { decision, additions, body_bytes }
    }

    fn decide(
        &self,
        head: Head<'_>,
        peer: &Peer,
        on: &Address,
        notes: RequestNotes<'_>,
    ) -> Decision {
        // A tunnel has no route.
        if head.method == Http1Method::Connect {
            return StatusCode::NOT_IMPLEMENTED.into();
        }
        // A target is visible ASCII (RFC 3986, section 2). Programs differ in how they read other
        // bytes, and so might the server that a request is forwarded to.
        let is_visible = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_visible(head.path) || !head.query.is_none_or(is_visible) {
            return StatusCode::BAD_REQUEST.into();
        }
        let path = head.path;
        if !path.starts_with('/') {
            return match (path, head.method) {
                ("*", Http1Method::Options) => reply::options().into(),
                _ => StatusCode::BAD_REQUEST.into(),
            };
        }
        if let Some(answer) = self.shared.challenges.answer(path) {
            return reply::text(StatusCode::OK, answer).into();
        }
        if self.metrics().is_some_and(|metrics| metrics.ready.as_deref() == Some(path)) {
            return match head.is_read() {
                true => self.shared.overview.readiness().into(),
                false => reply::not_allowed("GET, HEAD").into(),
            };
        }
        let metrics = self.metrics().filter(|metrics| metrics.path == path);
        let is_page = path.starts_with(PAGE) && self.page() != Some(false);
        // A program on this machine sees them by any name of the machine, whether or not a host has
        // that name.
        let is_local = (metrics.is_some() || is_page) && guard::is_local(head, peer);
        let routes = match self.routes_for(head, peer, on) {
            Ok(routes) => Some(routes),
            Err(_) if is_local => None,
            Err(StatusCode::MISDIRECTED_REQUEST) => return misdirected(),
            Err(status) => return status.into(),
        };
        let rule = routes.as_ref().and_then(|routes| routes.https.as_ref());
        if let Some(rule) = rule
            && !peer.is_encrypted
            && !is_local
            && !https::is_validation(path)
        {
            notes.additions.rules = routes.as_ref().and_then(|it| it.answers.clone());
            return rule.redirect(head).into();
        }
        notes.additions.hsts =
            rule.filter(|_| peer.is_encrypted).and_then(|rule| rule.hsts_for(head));
        let requester = Requester { peer, is_local, metrics };
        self.decide_as(head, routes.as_ref(), &requester, notes)
    }

    /// Finds the answer to a request for a host, which may be none for programs on this machine.
    fn decide_as(
        &self,
        head: Head<'_>,
        routes: Option<&Routes>,
        requester: &Requester<'_>,
        notes: RequestNotes<'_>,
    ) -> Decision {
        let Requester { peer, is_local, metrics } = *requester;
        let RequestNotes { additions, body_bytes, timer, entry } = notes;
        let path = head.path;
        let is_page = path.starts_with(PAGE) && self.page() != Some(false);
        if let Some(metrics) = metrics {
            if !metrics.public && !is_local {
                return reply::text(StatusCode::FORBIDDEN, METRICS_ARE_LOCAL).into();
            }
            if !head.is_read() {
                return reply::not_allowed("GET, HEAD").into();
            }
            let overview = self.shared.overview.clone();
            return Decision::handle(move |request, _| {
                Reply::Later(overview.prometheus(request.headers()))
            });
        }
        if let Some(client) = routes.and_then(|routes| self.client_at(routes, path)) {
            additions.rules = routes.and_then(|routes| routes.answers.clone());
            let client = client.clone();
            return Decision::handle(move |request, _| {
                Reply::Later(Box::pin(async move { script(&client, Head::from(&request)).await }))
            });
        }
        if is_page && (self.page() == Some(true) || is_local) {
            let overview = self.shared.overview.clone();
            return Decision::handle(|request, exchange| {
                Reply::Later(Box::pin(async move { overview.page(request, &exchange).await }))
            });
        }
        let Some(routes) = routes else { return misdirected() };
        additions.rules = routes.answers.clone();
        let Some(route) = routes.table.find_for(path, &head) else {
            return handler::without_route(routes, head, peer, &self.durations);
        };
        timer.counts_in(&route.handler.durations);
        let rules = route.handler.rules.as_ref();
        additions.rules = rules.and_then(|rules| rules.answers.clone());
        *body_bytes = rules.and_then(|rules| rules.body_bytes);
        let names_hub = routes.names_hub && !matches!(route.handler.handler, Handler::Channels(_));
        additions.link = names_hub.then_some(DISCOVERY);
        let client = peer.client.map(|client| client.ip());
        handler::decide(routes, route, head, client, entry)
    }
}

/// Answers with a file of the client of channels, which pages of all sites may load.
async fn script(client: &Embedded, head: Head<'_>) -> Response<Body> {
    let path = &head.path[PAGE.len() - 1..];
    let mut response = client.answer(head, path).await;
    response.headers_mut().insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    response
}

/// Returns the answer to a request for a host that is not served.
fn misdirected() -> Decision {
    let text = "421 Misdirected Request: this server does not serve that host here; names in [[hosts]], or --name \
                where there is no configuration, say what it serves\n";
    reply::text(StatusCode::MISDIRECTED_REQUEST, text).into()
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
