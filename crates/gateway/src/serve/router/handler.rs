//! The handlers of routes, after the rules of their routes.

use std::cell::RefCell;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use http::request::Parts;
use http::uri::PathAndQuery;
use http::{Method, Request, StatusCode, Uri};
use superpoll_http::answers::Compression;
use superpoll_http::exchange::Exchange;
use superpoll_http::files::{Embedded, Site};
use superpoll_http::log::Entry;
use superpoll_http::message::recycle;
use superpoll_http::peer::Peer;
use superpoll_http::rules::{self, Admission, JoinedRates, RouteRules};
use superpoll_http::telemetry::durations::RequestDurations;
use superpoll_http::upload::{RequestBody, Upload};
use superpoll_http::upstream::Forwarder;
use superpoll_hub::channel::{Also, LocalRoute};

use super::{Reply, Routes};
use crate::config::{RedirectTarget, Rewrite};
use crate::serve::https;
use crate::serve::route_table::{Route, RouteTable};

/// The handler of the requests below a path.
pub(super) enum Handler {
    Channels(Rc<LocalRoute>),
    Demo(Rc<Embedded>),
    Files(Rc<Site>),
    Redirect(RedirectTarget, StatusCode),
    Proxy(Rc<Forwarder>),
}

/// The handler of a route, and the rules that come before it.
pub(super) struct Target {
    pub(super) handler: Handler,
    pub(super) rules: Option<Arc<RouteRules>>,
    /// The path and query in place of those of its requests.
    pub(super) rewrite: Option<Rewrite>,
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

/// Answers a request by its route, if the rules of the route admit the client.
pub(super) fn respond(
    routes: &Routes,
    route: &Route<Target>,
    request: Request<RequestBody>,
    client: Option<IpAddr>,
    entry: Option<&Rc<Entry>>,
    prepare: impl FnOnce(Request<RequestBody>) -> (Request<Upload>, Exchange),
) -> Reply {
    let rules = route.handler.rules.as_deref();
    let admission = match (rules, joined_rates(&routes.table, route, &request, client)) {
        (None, None) => Admission::Allowed,
        (Some(rules), None) => rules.admit(client, request.headers()),
        (rules, Some(joined)) => joined.admit(rules, client, request.headers()),
    };
    let user = match (entry, &route.handler.rules) {
        (Some(_), Some(rules)) if rules.has_users() => rules::user(request.headers()),
        _ => None,
    };
    if let (Admission::Allowed, Some(entry)) = (&admission, entry) {
        entry.note(|record| record.user = user.clone());
    }
    match admission {
        Admission::Allowed => respond_by(&routes.table, route, request, client, prepare),
        Admission::Refused(refused) => route.handler.durations.refused(*refused).into(),
        Admission::Verifies(verification) => {
            let (routes, rules) = (routes.clone(), route.handler.rules.clone());
            let durations = route.handler.durations.clone();
            let (request, exchange) = prepare(request);
            Reply::Later(Box::pin(async move {
                if let Some(rules) = rules
                    && let Err(refused) = rules.verify(verification).await
                {
                    return durations.refused(*refused);
                }
                if let Some(entry) = &exchange.entry {
                    entry.note(|record| record.user = user);
                }
                let prepare = |request| (request, exchange);
                match routes.table.find(request.uri().path()) {
                    // A reload may have taken the user away meanwhile. Whoever comes again is asked
                    // again.
                    Some(route) if !route.handler.has_its_rules() => {
                        superpoll_http::reply::status(StatusCode::SERVICE_UNAVAILABLE)
                    }
                    Some(route) => {
                        let reply = respond_by(&routes.table, route, request, client, prepare);
                        reply.into_response().await
                    }
                    None => superpoll_http::reply::status(StatusCode::NOT_FOUND),
                }
            }))
        }
    }
}

/// Answers a request for a path without a route: with 404, if the rules of the host admit the
/// client.
pub(super) fn without_route(
    routes: &Routes,
    request: Request<RequestBody>,
    peer: &Peer,
    durations: &Arc<RequestDurations>,
    prepare: impl FnOnce(Request<RequestBody>) -> (Request<Upload>, Exchange),
) -> Reply {
    let Some(rules) = &routes.clients else { return StatusCode::NOT_FOUND.into() };
    match rules.admit(peer.client.map(|client| client.ip()), request.headers()) {
        Admission::Allowed => StatusCode::NOT_FOUND.into(),
        Admission::Refused(refused) => durations.refused(*refused).into(),
        Admission::Verifies(verification) => {
            let (rules, kept, durations) = (rules.clone(), prepare(request), durations.clone());
            Reply::Later(Box::pin(async move {
                let _kept = kept;
                match rules.verify(verification).await {
                    Ok(()) => superpoll_http::reply::status(StatusCode::NOT_FOUND),
                    Err(refused) => durations.refused(*refused),
                }
            }))
        }
    }
}

/// Answers a request by its route.
fn respond_by<B>(
    table: &RouteTable<Target>,
    route: &Route<Target>,
    request: Request<B>,
    client: Option<IpAddr>,
    prepare: impl FnOnce(Request<B>) -> (Request<Upload>, Exchange),
) -> Reply {
    // Behind the rules: a client that they refuse does not learn which routes there are.
    if table.leads_elsewhere(route, request.uri().path()) {
        return StatusCode::BAD_REQUEST.into();
    }
    let rules = route.handler.rules.as_deref();
    let prepare = |request| {
        let (mut request, exchange) = prepare(request);
        if let Some(most) = rules.and_then(|rules| rules.body_bytes) {
            request.body_mut().limit(most);
        }
        (request, exchange)
    };
    let below = route.path.trim_end_matches('/').len();
    let target = match &route.handler.rewrite {
        None => None,
        Some(rewrite) => match rewrite.of(request.uri()) {
            Some(target) => Some(target),
            None => return StatusCode::BAD_REQUEST.into(),
        },
    };
    match &route.handler.handler {
        Handler::Redirect(to, status) => https::redirect(to, *status, &request),
        Handler::Channels(channels) => {
            let also = Also::find(request.uri(), |path| channels_at(table, path, client, rules));
            let (channels, (request, mut exchange)) = (channels.clone(), prepare(request));
            exchange.may_have_hsts = channels.may_have_hsts(&request, exchange.peer());
            Reply::Later(Box::pin(async move { channels.answer(request, &exchange, also).await }))
        }
        Handler::Files(site) => {
            let (head, _) = request.into_parts();
            if let Some(response) = site.answer_now(&head, path_of(&head, target.as_ref(), below)) {
                recycle(head.headers);
                return Reply::Now(response);
            }
            let site = site.clone();
            Reply::Later(Box::pin(async move {
                site.answer(&head, path_of(&head, target.as_ref(), below)).await
            }))
        }
        Handler::Demo(demo) => {
            let ((head, _), demo) = (request.into_parts(), demo.clone());
            Reply::Later(Box::pin(
                async move { demo.answer(&head, &head.uri.path()[below..]).await },
            ))
        }
        // TRACE would show a page's script fields that only the server is to know.
        Handler::Proxy(_) if *request.method() == Method::TRACE => {
            StatusCode::NOT_IMPLEMENTED.into()
        }
        Handler::Proxy(forwarder) => {
            let (mut request, exchange) = prepare(request);
            if let Some(target) = target {
                let mut parts = std::mem::take(request.uri_mut()).into_parts();
                parts.path_and_query = Some(target);
                match Uri::from_parts(parts) {
                    Ok(uri) => *request.uri_mut() = uri,
                    Err(_) => return StatusCode::BAD_REQUEST.into(),
                }
            }
            if let Some(interim) = &exchange.interim {
                interim.set_rules(rules.and_then(|rules| rules.answers.clone()));
            }
            let compression = forwarder.compresses.then(|| Compression::from_request(&request));
            let reply = forwarder.clone().answer(request, exchange);
            let reply = reply.map_or_else(Reply::from, Reply::Later);
            match compression {
                Some(compression) => reply.map(move |response| compression.apply(response)),
                None => reply,
            }
        }
    }
}

/// Returns the path of a request below the folder of its route, whose own path has so many bytes.
fn path_of<'a>(head: &'a Parts, target: Option<&'a PathAndQuery>, below: usize) -> &'a str {
    target.map_or_else(|| &head.uri.path()[below..], PathAndQuery::path)
}

/// Returns the rates of all routes whose channels a request is for; `None` if it is for one
/// channel, or for none.
fn joined_rates<B>(
    table: &RouteTable<Target>,
    route: &Route<Target>,
    request: &Request<B>,
    client: Option<IpAddr>,
) -> Option<JoinedRates> {
    let Handler::Channels(channels) = &route.handler.handler else { return None };
    if channels.is_hub() || *request.method() != Method::GET {
        return None;
    }
    let (own, others) = (route.handler.rules.as_deref(), RefCell::new(Vec::new()));
    Also::find(request.uri(), |path| {
        let joined = table.find(path).and_then(|route| route.handler.rules.as_deref());
        let channels = channels_at(table, path, client, own)?;
        others.borrow_mut().extend(joined);
        Some(channels)
    })?;
    Some(JoinedRates::of(own, others.into_inner().into_iter()))
}

/// Returns the route of a path, if it has channels, of which a hub of Mercure has none, and admits
/// a client that the rules of another route have admitted.
fn channels_at(
    table: &RouteTable<Target>,
    path: &str,
    client: Option<IpAddr>,
    admitted: Option<&RouteRules>,
) -> Option<Rc<LocalRoute>> {
    let route = table.find(path).filter(|route| !table.leads_elsewhere(route, path))?;
    let rules = route.handler.rules.as_ref();
    if rules.is_some_and(|rules| !rules.allow_with(client, admitted)) {
        return None;
    }
    match &route.handler.handler {
        Handler::Channels(channels) if !channels.is_hub() => Some(channels.clone()),
        _ => None,
    }
}
