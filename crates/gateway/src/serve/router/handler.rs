//! The handlers of routes, after the rules of their routes.

use std::cell::RefCell;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use http::uri::PathAndQuery;
use http::{Request, StatusCode};
use superpoll_http::exchange::Exchange;
use superpoll_http::files::{Embedded, Site};
use superpoll_http::head::Head;
use superpoll_http::log::Entry;
use superpoll_http::peer::Peer;
use superpoll_http::reply;
use superpoll_http::rules::{self, Admission, JoinedRates, RouteRules};
use superpoll_http::telemetry::durations::RequestDurations;
use superpoll_http::upload::Upload;
use superpoll_http::upstream::Forwarder;
use superpoll_http1::Method;
use superpoll_hub::channel::{Also, LocalRoute};

use super::{Decision, Reply, Routes};
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

/// Finds the answer of a route, if the rules of the route admit the client.
pub(super) fn decide(
    routes: &Routes,
    route: &Route<Target>,
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
        Admission::Allowed => decide_by(&routes.table, route, head, client),
        Admission::Refused(refused) => route.handler.durations.refused(*refused).into(),
        Admission::Verifies(verification) => {
            let (routes, rules) = (routes.clone(), route.handler.rules.clone());
            let durations = route.handler.durations.clone();
            // That of the request may be encoded.
            let path = head.path.to_owned();
            let verify = async move |request: Request<Upload>, exchange: Exchange| {
                if let Some(rules) = rules
                    && let Err(refused) = rules.verify(verification).await
                {
                    return durations.refused(*refused);
                }
                if let Some(entry) = &exchange.entry {
                    entry.note(|record| record.user = user);
                }
                match routes.table.find(&path) {
                    // A reload may have taken the user away meanwhile. Whoever comes again is asked
                    // again.
                    Some(route) if !route.handler.has_its_rules() => {
                        reply::status(StatusCode::SERVICE_UNAVAILABLE)
                    }
                    Some(route) => {
                        let head = Head { path: &path, ..Head::from(&request) };
                        let decision = decide_by(&routes.table, route, head, client);
                        decision.answer(request, exchange).into_response().await
                    }
                    None => reply::status(StatusCode::NOT_FOUND),
                }
            };
            Decision::handle(move |request, exchange| {
                Reply::Later(Box::pin(verify(request, exchange)))
            })
        }
    }
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

/// Finds the answer of a route.
fn decide_by(
    table: &RouteTable<Target>,
    route: &Route<Target>,
    head: Head<'_>,
    client: Option<IpAddr>,
) -> Decision {
    // Behind the rules: a client that they refuse does not learn which routes there are.
    if table.leads_elsewhere(route, head.path) {
        return StatusCode::BAD_REQUEST.into();
    }
    let rules = route.handler.rules.as_deref();
    let below = route.path.trim_end_matches('/').len();
    let target = match &route.handler.rewrite {
        None => None,
        Some(rewrite) => match rewrite.of(head.path, head.query) {
            Some(target) => Some(target),
            None => return StatusCode::BAD_REQUEST.into(),
        },
    };
    match &route.handler.handler {
        Handler::Redirect(to, status) => https::redirect(to, *status, head).into(),
        Handler::Channels(channels) => {
            let also = Also::find(head.query, |path| channels_at(table, path, client, rules));
            let channels = channels.clone();
            Decision::handle(move |request, mut exchange| {
                exchange.may_have_hsts = channels.may_have_hsts(&request, exchange.peer());
                let answer = async move { channels.answer(request, &exchange, also).await };
                Reply::Later(Box::pin(answer))
            })
        }
        Handler::Files(site) => {
            let path = target.as_ref().map_or_else(|| &head.path[below..], PathAndQuery::path);
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
        // TRACE would show a page's script fields that only the server is to know.
        Handler::Proxy(_) if head.method == Method::Trace => StatusCode::NOT_IMPLEMENTED.into(),
        Handler::Proxy(forwarder) => Decision::Forward(forwarder.clone(), target),
    }
}

/// Returns the rates of all routes whose channels a request is for; `None` if it is for one
/// channel, or for none.
fn joined_rates(
    table: &RouteTable<Target>,
    route: &Route<Target>,
    head: Head<'_>,
    client: Option<IpAddr>,
) -> Option<JoinedRates> {
    let Handler::Channels(channels) = &route.handler.handler else { return None };
    if channels.is_hub() || head.method != Method::Get {
        return None;
    }
    let (own, others) = (route.handler.rules.as_deref(), RefCell::new(Vec::new()));
    Also::find(head.query, |path| {
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
