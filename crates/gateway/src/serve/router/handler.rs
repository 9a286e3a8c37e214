//! The handlers of routes, after the rules of their routes.

use std::cell::RefCell;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use http::header::SET_COOKIE;
use http::uri::PathAndQuery;
use http::{Request, StatusCode, Uri};
use superpoll_http::exchange::Exchange;
use superpoll_http::files::{Embedded, Site, to_folder};
use superpoll_http::fixed::FixedAnswer;
use superpoll_http::head::Head;
use superpoll_http::log::Entry;
use superpoll_http::peer::Peer;
use superpoll_http::reply;
use superpoll_http::rules::{self, Admission, JoinedRates, RouteRules, Verification};
use superpoll_http::scripts::{Found, Scripts};
use superpoll_http::telemetry::durations::RequestDurations;
use superpoll_http::upload::Upload;
use superpoll_http::upstream::Forwarder;
use superpoll_http1::Method;
use superpoll_hub::channel::{
    Also, Ask, Channels, GripKey, HeldRoute, LocalRoute, Way, publish_items,
};

use super::auth_request::AuthRequest;
use super::{Decision, Reply, Routes};
use crate::config::{RedirectTarget, Rewrite, RouteTable, TableRoute};
use crate::serve::https;

/// The handler of the requests below a path.
pub(super) enum Handler {
    Channels(Rc<LocalRoute>),
    Demo(Rc<Embedded>),
    Files(Rc<Site>),
    Redirect(RedirectTarget, StatusCode),
    Fixed(FixedAnswer),
    Forwards(Rc<Forwards>),
    /// Files, and the servers that get the requests for which there is none.
    FilesFirst(Rc<Site>, Rc<Forwards>),
    /// The logs that applications publish items to, with their keys.
    Items(Rc<[(Arc<GripKey>, Arc<Channels>)]>),
}

/// The servers that requests are forwarded to, as they are or as calls of scripts.
pub(super) struct Forwards {
    pub(super) forwarder: Rc<Forwarder>,
    pub(super) scripts: Option<Rc<Scripts>>,
    /// The way of requests for which the servers may hold connections.
    pub(super) held: Option<Rc<HeldRoute>>,
}

/// The handler of a route, and the rules that come before it.
pub(super) struct Target {
    pub(super) handler: Handler,
    pub(super) rules: Option<Arc<RouteRules>>,
    /// The path and query in place of those of its requests.
    pub(super) rewrite: Option<Rewrite>,
    /// The server that is asked whether its requests may pass.
    pub(super) auth: Option<Rc<AuthRequest>>,
    /// The durations of its requests on this engine.
    pub(super) durations: Arc<RequestDurations>,
}

impl Target {
    /// Whether the route has still the rules that it began with; channels outlive a reload that
    /// changes them.
    fn has_its_rules(&self) -> bool {
        match &self.handler {
            Handler::Channels(channels) => channels.has_rules(self.rules.as_ref()),
            _ => true,
        }
    }
}

/// Finds the answer of a route, if the rules of the route admit the client.
pub(super) fn decide(
    routes: &Routes,
    route: &TableRoute<Target>,
    head: Head<'_>,
    client: Option<IpAddr>,
    entry: Option<&Rc<Entry>>,
) -> Decision {
    let rules = route.handler.rules.as_deref();
    let admission = match (rules, joined_rates(&routes.table, route, head, client)) {
        (None, None) => Admission::Allowed,
        (Some(rules), None) => rules.admit(client, head.fields),
        (rules, Some(joined)) => joined.admit(rules, client, head.fields),
    };
    let user = match (entry, &route.handler.rules) {
        (Some(_), Some(rules)) if rules.has_users() => rules::user(head.fields),
        _ => None,
    };
    if let (Admission::Allowed, Some(entry)) = (&admission, entry) {
        entry.note(|record| record.user = user.clone());
    }
    match admission {
        Admission::Allowed if route.handler.auth.is_none() => {
            decide_by(&routes.table, route, head, client)
        }
        Admission::Allowed => later(routes, route, head, (client, user), None),
        Admission::Refused(refused) => route.handler.durations.refused(*refused).into(),
        Admission::Verifies(verification) => {
            later(routes, route, head, (client, user), Some(verification))
        }
    }
}

/// Finds the answer of a route once a password is verified, and a server has let the request pass.
fn later(
    routes: &Routes,
    route: &TableRoute<Target>,
    head: Head<'_>,
    (client, user): (Option<IpAddr>, Option<Box<str>>),
    verification: Option<Verification>,
) -> Decision {
    let (routes, rules) = (routes.clone(), route.handler.rules.clone());
    let (durations, auth) = (route.handler.durations.clone(), route.handler.auth.clone());
    // The table is the same then, whatever the request looks like: a server may have changed its
    // fields, which matchers look at.
    let place = routes.table.place_of(route);
    let is_elsewhere = routes.table.leads_elsewhere(route, head.path, &head);
    // That of the request may be encoded.
    let path = head.path.to_owned();
    let answer = async move |mut request: Request<Upload>, exchange: Exchange| {
        if let (Some(rules), Some(verification)) = (rules, verification)
            && let Err(refused) = rules.verify(verification).await
        {
            return durations.refused(*refused);
        }
        if let Some(entry) = &exchange.entry {
            entry.note(|record| record.user = user);
        }
        let asked = match &auth {
            None => Ok(Vec::new()),
            Some(auth) => auth.ask(&mut request, &exchange).await,
        };
        let cookies = match asked {
            Ok(cookies) => cookies,
            Err(response) => return response,
        };
        let mut response = match place.and_then(|place| routes.table.at_place(place)) {
            // A reload may have taken the user away meanwhile. Whoever comes again is asked again.
            Some(route) if !route.handler.has_its_rules() => {
                reply::status(StatusCode::SERVICE_UNAVAILABLE)
            }
            Some(_) if is_elsewhere => reply::status(StatusCode::BAD_REQUEST),
            Some(route) => {
                let head = Head { path: &path, ..Head::from(&request) };
                let decision = act(&routes.table, route, head, client);
                decision.answer(request, exchange).into_response().await
            }
            None => reply::status(StatusCode::NOT_FOUND),
        };
        response.headers_mut().extend(cookies.into_iter().map(|cookie| (SET_COOKIE, cookie)));
        response
    };
    Decision::handle(move |request, exchange| Reply::Later(Box::pin(answer(request, exchange))))
}

/// Finds the answer to a request for a path without a route: 404, if the rules of the host admit
/// the client.
pub(super) fn without_route(
    routes: &Routes,
    head: Head<'_>,
    peer: &Peer,
    durations: &Arc<RequestDurations>,
) -> Decision {
    let Some(rules) = &routes.clients else { return StatusCode::NOT_FOUND.into() };
    match rules.admit(peer.client.map(|client| client.ip()), head.fields) {
        Admission::Allowed => StatusCode::NOT_FOUND.into(),
        Admission::Refused(refused) => durations.refused(*refused).into(),
        Admission::Verifies(verification) => {
            let (rules, durations) = (rules.clone(), durations.clone());
            Decision::handle(move |request, _| {
                Reply::Later(Box::pin(async move {
                    let _kept = request;
                    match rules.verify(verification).await {
                        Ok(()) => reply::status(StatusCode::NOT_FOUND),
                        Err(refused) => durations.refused(*refused),
                    }
                }))
            })
        }
    }
}

/// Finds the answer of a route, whose rules admit the client.
fn decide_by(
    table: &RouteTable<Target>,
    route: &TableRoute<Target>,
    head: Head<'_>,
    client: Option<IpAddr>,
) -> Decision {
    // Behind the rules: a client that they refuse does not learn which routes there are.
    if table.leads_elsewhere(route, head.path, &head) {
        return StatusCode::BAD_REQUEST.into();
    }
    act(table, route, head, client)
}

/// Finds the answer of a route to a request whose path is no other route's.
fn act(
    table: &RouteTable<Target>,
    route: &TableRoute<Target>,
    head: Head<'_>,
    client: Option<IpAddr>,
) -> Decision {
    let rules = route.handler.rules.as_deref();
    let below = route.path.trim_end_matches('/').len();
    let target = match &route.handler.rewrite {
        None => None,
        Some(rewrite) => match rewrite.of(head.path, head.query) {
            Some(target) => Some(target),
            None => return StatusCode::BAD_REQUEST.into(),
        },
    };
    // A path with parameters may be longer than that of its requests.
    let own = || head.path.get(below..).unwrap_or_default();
    let path = target.as_ref().map_or_else(own, PathAndQuery::path);
    match &route.handler.handler {
        Handler::Items(logs) => {
            let logs = logs.clone();
            Decision::handle(move |request, _| {
                Reply::Later(Box::pin(async move { publish_items(&logs, request).await }))
            })
        }
        Handler::Redirect(to, status) => https::redirect(to, *status, head).into(),
        Handler::Fixed(answer) => answer.response().into(),
        Handler::Channels(channels) => {
            let also =
                Also::find(head.query, |path| channels_at(table, (path, head), client, rules));
            let channels = channels.clone();
            Decision::handle(move |request, mut exchange| {
                exchange.may_have_hsts = channels.may_have_hsts(&request, exchange.peer());
                let answer = async move { channels.answer(request, &exchange, also).await };
                Reply::Later(Box::pin(answer))
            })
        }
        Handler::Files(site) => {
            if let Some(ready) = site.answer_now(head, path) {
                return Decision::Ready(ready);
            }
            let (site, path) = (site.clone(), path.to_owned());
            Decision::handle(move |request, _| {
                let answer = async move { site.answer(Head::from(&request), &path).await };
                Reply::Later(Box::pin(answer))
            })
        }
        Handler::Demo(demo) => {
            let (demo, path) = (demo.clone(), head.path[below..].to_owned());
            Decision::handle(move |request, _| {
                let answer = async move { demo.answer(Head::from(&request), &path).await };
                Reply::Later(Box::pin(answer))
            })
        }
        Handler::Forwards(forwards) => {
            let user = rules.filter(|rules| rules.has_users()).and_then(|_| user_of(head));
            forwards.decide(head, path, (target.clone(), user))
        }
        Handler::FilesFirst(site, forwards) => {
            let user = rules.filter(|rules| rules.has_users()).and_then(|_| user_of(head));
            files_first(site, forwards, head, path, (target.clone(), user))
        }
    }
}

/// Returns the user whose password was verified.
fn user_of(head: Head<'_>) -> Option<String> {
    rules::user(head.fields).map(|user| user.to_string())
}

/// The path and query in place of those of a request, and the user whose password was verified.
type Changed = (Option<PathAndQuery>, Option<String>);

impl Forwards {
    /// Returns the way to ask the servers of a route on behalf of held connections. If the path of
    /// the route is taken off, the paths of links get it first.
    pub(super) fn asks(self: Rc<Forwards>, route: String, strips: bool) -> Ask {
        Rc::new(move |mut request, exchange, is_link| {
            if is_link && strips {
                let path = request.uri().path_and_query().map_or("/", PathAndQuery::as_str);
                if let Ok(uri) = Uri::try_from(format!("{route}{path}")) {
                    *request.uri_mut() = uri;
                }
            }
            let Way { rewritten, user } = request.extensions_mut().remove().unwrap_or_default();
            let target = rewritten.and_then(|target| PathAndQuery::try_from(&*target).ok());
            let own = request.uri().path();
            let below = own.strip_prefix(&*route).unwrap_or(own);
            let path = target.as_ref().map_or(below, PathAndQuery::path).to_owned();
            let changed = (target, user.map(String::from));
            let decision = self.decide(Head::from(&request), &path, changed);
            let reply = decision.answer(request, exchange);
            Box::pin(async move { reply.into_response().await })
        })
    }

    /// Finds the answer to a request for a path below the route.
    fn decide(&self, head: Head<'_>, path: &str, (target, user): Changed) -> Decision {
        // TRACE would show a page's script fields that only the server is to know.
        if head.method == Method::Trace {
            return StatusCode::NOT_IMPLEMENTED.into();
        }
        if let Some(held) = &self.held {
            let held = held.clone();
            return Decision::handle(move |mut request, exchange| {
                let rewritten = target.map(|target| target.as_str().into());
                let user = user.map(String::into_boxed_str);
                request.extensions_mut().insert(Way { rewritten, user });
                Reply::Later(Box::pin(held.answer(request, exchange)))
            });
        }
        let forwarder = self.forwarder.clone();
        let Some(scripts) = &self.scripts else {
            return Decision::Forward(forwarder, target, None);
        };
        if let Some(found) = scripts.find_now(path) {
            return call(found, forwarder, head, (target, user));
        }
        let (scripts, path) = (scripts.clone(), path.to_owned());
        Decision::handle(move |request, exchange| {
            Reply::Later(Box::pin(async move {
                let found = scripts.find(&path).await;
                let decision = call(found, forwarder, Head::from(&request), (target, user));
                decision.answer(request, exchange).into_response().await
            }))
        })
    }
}

/// Calls a script, if there is one.
fn call(
    found: Found,
    forwarder: Rc<Forwarder>,
    head: Head<'_>,
    (target, user): Changed,
) -> Decision {
    match found {
        Found::Script(mut script) => {
            script.user = user;
            script.target = match head.query {
                None => head.path.to_owned(),
                Some(query) => [head.path, "?", query].concat(),
            };
            Decision::Forward(forwarder, target, Some(script))
        }
        Found::Folder => to_folder(head).into(),
        Found::Nothing(status) => status.into(),
    }
}

/// Finds the answer to a request that a file answers, if there is one.
fn files_first(
    site: &Rc<Site>,
    forwards: &Rc<Forwards>,
    head: Head<'_>,
    path: &str,
    changed: Changed,
) -> Decision {
    // The text of a script is for nobody.
    let is_script = forwards.scripts.as_ref().is_some_and(|scripts| scripts.names_script(path));
    if is_script || !head.is_read() {
        return forwards.decide(head, path, changed);
    }
    match site.find_now(head, path) {
        Some(Some(ready)) => return Decision::Ready(ready),
        Some(None) => return forwards.decide(head, path, changed),
        None => {}
    }
    let (site, forwards, path) = (site.clone(), forwards.clone(), path.to_owned());
    Decision::handle(move |request, exchange| {
        Reply::Later(Box::pin(async move {
            match site.find(Head::from(&request), &path).await {
                Some(response) => response,
                None => {
                    let decision = forwards.decide(Head::from(&request), &path, changed);
                    decision.answer(request, exchange).into_response().await
                }
            }
        }))
    })
}

/// Returns the rates of all routes whose channels a request is for; `None` if it is for one
/// channel, or for none.
fn joined_rates(
    table: &RouteTable<Target>,
    route: &TableRoute<Target>,
    head: Head<'_>,
    client: Option<IpAddr>,
) -> Option<JoinedRates> {
    let Handler::Channels(channels) = &route.handler.handler else { return None };
    if channels.is_hub() || head.method != Method::Get {
        return None;
    }
    let (own, others) = (route.handler.rules.as_deref(), RefCell::new(Vec::new()));
    Also::find(head.query, |path| {
        let joined = table.find_for(path, &head).and_then(|route| route.handler.rules.as_deref());
        let channels = channels_at(table, (path, head), client, own)?;
        others.borrow_mut().extend(joined);
        Some(channels)
    })?;
    Some(JoinedRates::of(own, others.into_inner().into_iter()))
}

/// Returns the route that a request would have at a path, if it has channels, of which a hub of
/// Mercure has none, and admits a client that the rules of another route have admitted.
fn channels_at(
    table: &RouteTable<Target>,
    (path, head): (&str, Head<'_>),
    client: Option<IpAddr>,
    admitted: Option<&RouteRules>,
) -> Option<Rc<LocalRoute>> {
    let route = table.find_for(path, &head);
    let route = route.filter(|route| !table.leads_elsewhere(route, path, &head))?;
    let rules = route.handler.rules.as_ref();
    if rules.is_some_and(|rules| !rules.allow_with(client, admitted)) {
        return None;
    }
    match &route.handler.handler {
        Handler::Channels(channels) if !channels.is_hub() => Some(channels.clone()),
        _ => None,
    }
}
