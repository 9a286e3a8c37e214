//! A route whose application may hold connections: asking the application.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::{HashSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{
    ACCEPT_ENCODING, CONNECTION, CONTENT_LENGTH, HOST, HeaderName, STRICT_TRANSPORT_SECURITY, TE,
    TRANSFER_ENCODING, UPGRADE,
};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response, Uri};
use http_body::Frame;
use http_body_util::BodyExt;
use superpoll_http::body::Body;
use superpoll_http::exchange::{Exchange, LocalFuture};
use superpoll_http::held::{HeldRecord, HeldRequest};
use superpoll_http::log::{Event, Level, RateLimited, Report, others};
use superpoll_http::peer::Peer;
use superpoll_http::rules::RouteRules;
use superpoll_http::upload::{RequestBody, Upload, UploadSlot};
use superpoll_http::upstream::Unanswered;
use superpoll_rt::spawn;

use super::key::GripKey;
use crate::channel::local_route::LocalRoute;
use crate::channel::local_subscribers::LocalSubscribers;

/// What the gateway can do, as applications are told.
const FEATURES: HeaderValue = HeaderValue::from_static(
    "status, link:next, link:gone, filter:skip-self, filter:skip-users, \
     filter:require-sub, filter:var-subst",
);

pub(super) const SIGNATURE: HeaderName = HeaderName::from_static("grip-sig");
const FEATURE: HeaderName = HeaderName::from_static("grip-feature");
const LAST: HeaderName = HeaderName::from_static("grip-last");

/// The longest body of a request that is kept to be sent again.
pub(super) const KEPT_BODY: u64 = 64 << 10;

/// The most bytes of a response that are held in memory: the beginning of a stream, its next part,
/// the response to a long-poll, or the events of a WebSocket.
pub(super) const MOST_BODY: usize = 1 << 20;

/// The most requests at a time by which an application is told of clients that have gone.
const MOST_GOODBYES: usize = 32;

/// The most such requests that wait.
const MOST_WORDS: usize = 50_000;

/// How long the body of a request may take, which is in memory.
const PATIENCE: Duration = Duration::from_secs(60);

/// The time between two reports of instructions that were not understood.
const REPORTS: Duration = Duration::from_secs(10);

/// Fields of a request that are about its connection, or about a body that may have changed.
const NOT_KEPT: [HeaderName; 7] = [
    ACCEPT_ENCODING,
    CONNECTION,
    CONTENT_LENGTH,
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
    HeaderName::from_static("keep-alive"),
];

/// What the router has found out about a request on its way to an application.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Way {
    /// The path with its query that stands in the place of the request's.
    pub rewritten: Option<Box<str>>,
    /// The user whose password was verified.
    pub user: Option<Box<str>>,
}

/// Forwards a request to the servers of an application. Its [`Way`] is among its extensions. The
/// last part says that the path is that of a link, which the application has named: the route's own
/// changes of paths do not apply to it.
pub type Ask = Rc<dyn Fn(Request<Upload>, Exchange, bool) -> LocalFuture<Response<Body>>>;

/// The reason for which an application has not answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Unasked {
    /// No server got the request: it may be sent again.
    NotSent,
    /// A server may have got it.
    Lost,
}

/// A route whose application may hold connections, on one engine.
pub struct HeldRoute {
    /// The names of the host, each with the path of the route in the configuration.
    names: Vec<Arc<str>>,
    /// The part of paths that is taken off before an application gets them.
    prefix: Box<str>,
    ask: Ask,
    key: Arc<GripKey>,
    /// The log of the key's items.
    pub(super) log: Rc<LocalRoute>,
    /// The rules of the route and the value of `Strict-Transport-Security` of the host, for answers
    /// that the router does not see.
    rules: Option<Arc<RouteRules>>,
    hsts: Option<HeaderValue>,
    report: Report,
    reports: RateLimited,
    goodbyes: Goodbyes,
}

/// Requests that tell an application of clients that have gone.
#[derive(Default)]
struct Goodbyes {
    words: RefCell<VecDeque<LocalFuture>>,
    tasks: Cell<usize>,
}

impl HeldRoute {
    /// Creates the engine's part of a route.
    pub fn new(
        names: Vec<Arc<str>>,
        (ask, prefix): (Ask, Box<str>),
        (key, log): (Arc<GripKey>, Rc<LocalRoute>),
        (rules, hsts): (Option<Arc<RouteRules>>, Option<HeaderValue>),
        report: Report,
    ) -> Rc<HeldRoute> {
        let reports = RateLimited::new(REPORTS);
        let goodbyes = Goodbyes::default();
        Rc::new(HeldRoute { names, prefix, ask, key, log, rules, hsts, report, reports, goodbyes })
    }

    /// Makes the held connections of some routes find them, in the place of those of the
    /// configuration before. Connections that have no route any more end, and so do those whose
    /// clients the rules of now would not admit.
    pub fn put_to_use(routes: &[Rc<HeldRoute>], logs: &[Rc<LocalRoute>]) {
        for log in logs {
            let mut kept = HashSet::new();
            let mut all: Vec<(Arc<str>, Rc<dyn Any>)> = Vec::new();
            for route in routes.iter().filter(|route| Rc::ptr_eq(&route.log, log)) {
                for name in &route.names {
                    let before =
                        log.held_route(name).and_then(|it| it.downcast::<HeldRoute>().ok());
                    let keeps = before.is_none_or(|before| {
                        RouteRules::keeps_users_of(route.rules.as_deref(), before.rules.as_deref())
                    });
                    if keeps {
                        kept.insert(name.clone());
                    }
                    let route: Rc<dyn Any> = route.clone();
                    all.push((name.clone(), route));
                }
            }
            log.dismiss_held(&kept);
            log.enter_held(all);
        }
    }

    /// Returns the name of the route in records.
    pub(super) fn name(&self) -> Arc<str> {
        self.names.first().cloned().unwrap_or_default()
    }

    /// Does something that nobody waits for, when not too much else of this is under way: many
    /// clients may go at once.
    pub(super) fn say_goodbye(self: &Rc<HeldRoute>, word: LocalFuture) {
        if self.goodbyes.words.borrow().len() >= MOST_WORDS {
            return self.report("too many clients have gone to tell it of all of them");
        }
        self.goodbyes.words.borrow_mut().push_back(word);
        if self.goodbyes.tasks.get() >= MOST_GOODBYES {
            return;
        }
        self.goodbyes.tasks.set(self.goodbyes.tasks.get() + 1);
        let route = self.clone();
        spawn(async move {
            loop {
                let next = route.goodbyes.words.borrow_mut().pop_front();
                let Some(word) = next else { break };
                word.await;
            }
            route.goodbyes.tasks.set(route.goodbyes.tasks.get() - 1);
        })
        .detach();
    }

    /// Whether the answer to a request may have `Strict-Transport-Security`, if the router does not
    /// see it.
    pub(super) fn has_hsts(&self, peer: &Peer) -> bool {
        peer.is_encrypted && self.hsts.is_some()
    }

    /// Changes the fields of an answer as the route says.
    pub(in crate::channel) fn change_fields(&self, fields: &mut HeaderMap, may_have_hsts: bool) {
        if may_have_hsts && let Some(hsts) = &self.hsts {
            fields.entry(STRICT_TRANSPORT_SECURITY).or_insert_with(|| hsts.clone());
        }
        if let Some(answers) = self.rules.as_ref().and_then(|rules| rules.answers.as_ref()) {
            answers.change(fields);
        }
    }

    /// Reports what an application has done wrong.
    pub(super) fn report(&self, what: &str) {
        if let Some(left_out) = self.reports.admit() {
            let name = self.name();
            // The host for all other names and listeners has neither.
            let name = name.strip_prefix("[] ").unwrap_or(&name);
            let message = format!("the application of {name}: {what}{}", others(left_out));
            let event = Event::new(Level::Warning, "grip-failed", message);
            (self.report)(&event.with("route", name).with("left_out", left_out));
        }
    }

    /// Returns the target of a request as its application knows it, which links are relative to.
    pub(super) fn base_of<'a>(&self, request: &'a HeldRequest) -> &'a str {
        let target = request.rewritten.as_deref().unwrap_or(&request.target);
        match target.strip_prefix(&*self.prefix) {
            Some(rest) if rest.starts_with('/') => rest,
            Some("") => "/",
            _ => target,
        }
    }

    /// Adds the fields that tell an application who asks.
    fn sign(&self, fields: &mut HeaderMap) {
        fields.insert(SIGNATURE, self.key.signature());
        fields.insert(FEATURE, FEATURES);
    }

    /// Forwards a client's request.
    pub(super) async fn forward(
        &self,
        mut head: Parts,
        body: Upload,
        exchange: &Exchange,
    ) -> Response<Body> {
        self.sign(&mut head.headers);
        (self.ask)(Request::from_parts(head, body), exchange.clone(), false).await
    }

    /// Sends a kept request again, with the last items that its connection has.
    pub(super) async fn repeat(
        &self,
        request: &HeldRequest,
        last: Vec<HeaderValue>,
        peer: &Rc<Peer>,
    ) -> Result<Response<Body>, Unasked> {
        let mut fields = fields_of(request);
        for value in last {
            fields.append(LAST, value);
        }
        let method = Method::from_bytes(request.method.as_bytes()).unwrap_or(Method::GET);
        let body = request.body.clone().unwrap_or_default();
        let way = Way { rewritten: request.rewritten.clone(), user: request.user.clone() };
        self.send((method, &request.target), (fields, body), (peer, Some(way))).await
    }

    /// Asks for what a link names, with the last items that its connection has.
    pub(super) async fn follow_link(
        &self,
        target: &str,
        host: &str,
        last: Vec<HeaderValue>,
    ) -> Result<Response<Body>, Unasked> {
        let mut fields = HeaderMap::new();
        if let Ok(host) = HeaderValue::from_str(host) {
            fields.insert(HOST, host);
        }
        for value in last {
            fields.append(LAST, value);
        }
        self.send((Method::GET, target), (fields, Bytes::new()), (&Rc::default(), None)).await
    }

    /// Tells the application that the client of a stream has gone.
    pub(super) async fn tell_gone(&self, target: &str, host: &str) {
        let mut fields = HeaderMap::new();
        if let Ok(host) = HeaderValue::from_str(host) {
            fields.insert(HOST, host);
        }
        let parts = (fields, Bytes::new());
        let _ = self.send((Method::POST, target), parts, (&Rc::default(), None)).await;
    }

    /// Sends a request of the gateway's own. Without a way it is a link.
    pub(super) async fn send(
        &self,
        (method, target): (Method, &str),
        (mut fields, body): (HeaderMap, Bytes),
        (peer, way): (&Rc<Peer>, Option<Way>),
    ) -> Result<Response<Body>, Unasked> {
        self.sign(&mut fields);
        let Ok(uri) = Uri::try_from(target) else { return Err(Unasked::Lost) };
        let has_body = !body.is_empty() || method == Method::POST;
        if has_body {
            fields.insert(CONTENT_LENGTH, body.len().into());
        }
        let upload = match body.is_empty() {
            true => Upload::new(RequestBody::Empty, u64::MAX, PATIENCE),
            false => in_memory(body),
        };
        let mut request = Request::new(upload);
        (*request.method_mut(), *request.uri_mut()) = (method, uri);
        *request.headers_mut() = fields;
        let is_link = way.is_none();
        way.into_iter().for_each(|way| drop(request.extensions_mut().insert(way)));
        let response = (self.ask)(request, own_exchange(peer), is_link).await;
        match response.extensions().get::<Unanswered>() {
            None => Ok(response),
            Some(Unanswered { was_sent: false }) => Err(Unasked::NotSent),
            Some(Unanswered { was_sent: true }) => Err(Unasked::Lost),
        }
    }
}

impl LocalSubscribers {
    /// Returns the route of a held connection, if there still is one.
    pub(in crate::channel) fn route_of(&self, held: &HeldRecord) -> Option<Rc<HeldRoute>> {
        self.route.upgrade()?.held_route(&held.route)?.downcast().ok()
    }
}

superpoll::debug_fields!(HeldRoute, it => names: it.names);

/// Returns the exchange of a request of the gateway's own, on behalf of a client.
fn own_exchange(peer: &Rc<Peer>) -> Exchange {
    Exchange {
        peer: peer.clone(),
        can_take_over: false,
        can_wait: false,
        is_private: false,
        may_have_hsts: false,
        plan: Rc::default(),
        interim: None,
        is_alone: false,
        io_activity: Rc::default(),
        trace: None,
        entry: None,
    }
}

/// Returns the body of a request whose bytes are here.
pub(super) fn in_memory(body: Bytes) -> Upload {
    let slot = UploadSlot::new(Some(body.len() as u64));
    slot.fill(Frame::data(body), Some(0), true);
    Upload::new(RequestBody::Arriving(slot), u64::MAX, PATIENCE)
}

/// Removes the fields that a client must not send to an application, and those that would make a
/// body come that cannot be added to.
pub(super) fn clean(fields: &mut HeaderMap) {
    let is_own = |name: &str| {
        // Many programs take an underscore for a hyphen.
        let name = name.trim().to_ascii_lowercase().replace('_', "-");
        name.starts_with("grip-") || name.starts_with("meta-") || name == "connection-id"
    };
    let own = fields.keys().filter(|name| is_own(name.as_str()));
    let names: Vec<HeaderName> = own.cloned().collect();
    names.iter().for_each(|name| drop(fields.remove(name)));
    fields.remove(ACCEPT_ENCODING);
    // What it names is taken off as well: the gateway's own fields are not the client's to name.
    let said = fields.get_all(CONNECTION).iter();
    let elements = said.flat_map(|value| value.to_str().unwrap_or("").split(','));
    let (own, others): (Vec<&str>, Vec<&str>) = elements.partition(|element| is_own(element));
    if !own.is_empty() {
        let others = HeaderValue::from_str(&others.join(","));
        fields.remove(CONNECTION);
        if let Ok(others) = others {
            fields.insert(CONNECTION, others);
        }
    }
}

/// Returns a request to be kept, with the host that its client has asked for.
pub(super) fn kept(head: &Parts, body: Option<Bytes>) -> HeldRequest {
    let is_kept = |name: &HeaderName| !NOT_KEPT.contains(name) && *name != HOST;
    let host = match head.headers.get(HOST) {
        Some(host) => host.as_bytes().to_vec(),
        None => head.uri.authority().map_or_else(Vec::new, |host| host.as_str().into()),
    };
    let mut fields = vec![(Box::from(HOST.as_str()), host.into_boxed_slice())];
    for (name, value) in head.headers.iter().filter(|(name, _)| is_kept(name)) {
        fields.push((name.as_str().into(), value.as_bytes().into()));
    }
    let Way { rewritten, user } = head.extensions.get().cloned().unwrap_or_default();
    let (method, target) = (head.method.as_str().into(), target_of(&head.uri).into());
    HeldRequest { method, target, rewritten, user, fields, body }
}

/// Returns the path and query of a request.
pub(super) fn target_of(uri: &Uri) -> String {
    uri.path_and_query().map_or_else(|| "/".to_owned(), |target| target.as_str().to_owned())
}

/// Returns the fields of a request that was kept.
pub(super) fn fields_of(request: &HeldRequest) -> HeaderMap {
    map_of(&request.fields)
}

/// Returns fields that were kept.
pub(super) fn map_of(fields: &[(Box<str>, Box<[u8]>)]) -> HeaderMap {
    let mut map = HeaderMap::with_capacity(fields.len());
    for (name, value) in fields {
        let name = HeaderName::from_bytes(name.as_bytes());
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(value)) {
            map.append(name, value);
        }
    }
    map
}

/// Reads a body of at most [`MOST_BODY`] bytes.
///
/// # Errors
///
/// The reason for which it cannot be read, in words.
pub(super) async fn collect(mut body: Body) -> Result<Bytes, String> {
    let mut all = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| format!("the body of its response: {error}"))?;
        let Ok(data) = frame.into_data() else { continue };
        if all.len() + data.len() > MOST_BODY {
            return Err(format!("the body of its response has more than {MOST_BODY} bytes"));
        }
        all.extend_from_slice(&data);
    }
    Ok(all.freeze())
}
