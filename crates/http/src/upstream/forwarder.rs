//! From a request to the response of a server.
//!
//! The servers that get it, one after another, are chosen in `attempts`.

mod ask;

use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{CONNECTION, CONTENT_LENGTH, SET_COOKIE, UPGRADE};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderValue, Method, Request, Response, StatusCode, Version};
use http_body::Body as _;
use superpoll_config::{HeaderChanges, Proxy, Timeouts};
use superpoll_http1::{FieldLines, FieldValue, Framing, Method as Http1Method, Target};

use super::attempts::{Attempts, RequestFacts};
use super::dial::{ClientAddresses, Dialled, dial};
use super::fault::{FailedAttempt, Fault, Outcome};
use super::fields;
use super::form::ServerRequest;
use super::group::Group;
use super::heads::{Changes, ClientFacts, ClientHead};
use super::http1::{Http1Connection, SendFailure};
use super::http2::Http2Connection;
use super::incoming::{Incoming, Relayed};
use super::outgoing::Outgoing;
use super::pool::{Lease, Pool};
use super::sticky::ClientCookie;
use super::{strict, tunnel};
use crate::answers::{self, FromServer};
use crate::body::Body;
use crate::exchange::{Exchange, LocalFuture};
use crate::head::Fields;
use crate::interim::InterimResponses;
use crate::log::Entry;
use crate::message::recycle;
use crate::peer::Peer;
use crate::reply;
use crate::trace::RequestTrace;
use crate::upload::{Upload, UploadError};

/// The largest body that is read before its request is forwarded.
pub(super) const KEPT_BODY: u64 = 64 << 10;

/// Forwards the requests of one route on one engine.
pub struct Forwarder {
    pub(super) pool: Rc<Pool>,
    /// The route's path.
    pub(super) route: Rc<str>,
    pub(super) retries: u32,
    pub(super) trusts: bool,
    /// Whether a request is given up when its client ends its side of the connection.
    pub aborts: bool,
    /// The host that servers are told, if it is not the client's.
    pub(super) host: Option<HeaderValue>,
    /// The prefix that is taken off paths.
    prefix: Option<String>,
    /// The changes of requests' fields, and the fields that they add, as lines.
    fields: Option<(HeaderChanges, FieldLines)>,
    /// Whether responses of the servers are marked, so that they get no pages for errors.
    pub marks: bool,
    /// Whether responses are compressed.
    pub compresses: bool,
    pub(super) connect: Duration,
    pub(super) response: Duration,
    pub(super) body: Duration,
    tunnel: Duration,
}

/// The facts about a request in addition to the request itself.
#[derive(Default)]
pub(super) struct RequestContext {
    /// It may be sent again.
    repeats: bool,
    /// The protocols, instead of HTTP, that it asks for.
    upgrade: Option<Box<HeaderValue>>,
    addresses: ClientAddresses,
    client: Option<IpAddr>,
    /// The client speaks HTTP/2, which has trailers of its own.
    is_h2: bool,
    /// It reads trailers of HTTP/1.1.
    takes_trailers: bool,
    /// The cookie that it has, if the upstream gives one.
    sticky: Option<Box<ClientCookie>>,
    /// Its id and its trace.
    trace: Option<Rc<RequestTrace>>,
    /// Its line of the access log, if there is a log.
    entry: Option<Rc<Entry>>,
    /// The interim responses for the client, if it understands them.
    pub(super) interim: Option<Rc<InterimResponses>>,
}

impl RequestContext {
    fn facts(&self) -> RequestFacts<'_> {
        RequestFacts {
            sticky: self.sticky.as_deref(),
            client: self.client,
            addresses: self.addresses,
            trace: self.trace.as_ref(),
            entry: self.entry.as_ref(),
        }
    }
}

impl Forwarder {
    /// Creates the forwarder of a route.
    pub fn new(group: &Arc<Group>, proxy: &Proxy, path: &str, timeouts: &Timeouts) -> Forwarder {
        let prefix = path.trim_end_matches('/');
        let prefix = (proxy.strip_path && !prefix.is_empty()).then(|| prefix.to_owned());
        let (host, fields) = (proxy.host.as_deref(), &proxy.request_headers);
        Forwarder {
            pool: Pool::for_group(group),
            route: path.into(),
            retries: proxy.retries,
            trusts: proxy.trust_forwarded,
            aborts: proxy.abort_on_close,
            host: host.and_then(|host| HeaderValue::from_str(host).ok()),
            prefix,
            fields: (!fields.is_empty()).then(|| (fields.clone(), answers::lines(fields))),
            marks: false,
            compresses: proxy.compress,
            connect: timeouts.connect,
            response: timeouts.response,
            body: timeouts.body,
            tunnel: timeouts.tunnel,
        }
    }

    /// Whether plain requests of clients take the lane.
    pub fn has_lane(&self) -> bool {
        !self.pool.group.config().h2
    }

    /// Returns the addresses that a server is told by the PROXY protocol.
    pub(super) fn addresses_of(&self, peer: &Peer) -> ClientAddresses {
        self.pool.group.config().proxy_protocol.and_then(|_| peer.client.zip(peer.local))
    }

    /// Returns the changes that it makes in a regular request.
    pub(super) fn changes<'a>(
        &'a self,
        trusts: bool,
        trace: Option<&'a RequestTrace>,
    ) -> Changes<'a> {
        let prefix = self.prefix.as_deref();
        let fields = self.fields.as_ref().map(|(fields, lines)| (fields, lines));
        Changes { host: self.host.as_ref(), prefix, trusts, fields, trace }
    }

    /// Whether the fields about earlier proxies are believed, the id of a request among them.
    pub(super) fn believes(&self, peer: &Peer, trace: Option<&RequestTrace>) -> bool {
        let trusts = self.trusts || peer.is_of_trusted_proxy();
        if trusts {
            trace.into_iter().for_each(RequestTrace::believe);
        }
        trusts
    }

    /// Returns the cookie of a client, if the upstream gives one.
    pub(super) fn sticky(
        &self,
        fields: Fields<'_>,
        peer: &Peer,
        trusts: bool,
    ) -> Option<Box<ClientCookie>> {
        let sticky = self.pool.group.rules.sticky.as_ref()?;
        let is_encrypted = peer.is_encrypted || (trusts && fields::was_encrypted(fields));
        Some(Box::new(sticky.client(fields, is_encrypted)))
    }

    /// Answers a request with a server's response, or at once if it is not forwarded.
    pub fn answer(
        self: Rc<Forwarder>,
        request: Request<Upload>,
        exchange: Exchange,
    ) -> Result<LocalFuture<Response<Body>>, StatusCode> {
        let (mut head, upload) = request.into_parts();
        let trusts = self.believes(exchange.peer(), exchange.trace.as_deref());
        strict::check(&head)?;
        if upload.is_too_large() {
            return Err(StatusCode::PAYLOAD_TOO_LARGE);
        }
        if head.method == Method::OPTIONS && fields::ends_here(&mut head.headers) {
            return Ok(Box::pin(async { reply::options() }));
        }
        if let Some(trace) = exchange.trace.as_ref().filter(|trace| trace.is_loop()) {
            self.pool.group.came_back(&self.route, trace);
            return Err(StatusCode::LOOP_DETECTED);
        }
        if self.aborts {
            exchange.end_with_client();
        }
        let peer = exchange.peer();
        let upgrade = match exchange.can_take_over() && upload.is_end_stream() {
            true => fields::upgrade(&head.headers),
            false => None,
        };
        let expects = head.headers.contains_key(http::header::EXPECT);
        let is_empty = upload.is_end_stream();
        let repeats = is_idempotent(&head.method);
        let is_kept = !is_empty && repeats && !expects && is_small(&upload);
        let context = RequestContext {
            repeats,
            upgrade: upgrade.map(Box::new),
            addresses: self.addresses_of(peer),
            client: peer.client.map(|client| client.ip()),
            is_h2: head.version == Version::HTTP_2,
            takes_trailers: takes_trailers(&head),
            sticky: self.sticky(Fields::Map(&head.headers), peer, trusts),
            trace: exchange.trace.clone(),
            entry: exchange.entry.clone(),
            interim: exchange.interim.clone(),
        };
        Ok(Box::pin(async move {
            let body = match is_kept {
                true => match kept(upload).await {
                    Ok(body) => body,
                    Err(error) => return reply::status(error.status()),
                },
                false if is_empty => Outgoing::empty(),
                false => Outgoing::upload(upload),
            };
            let made = {
                let facts = ClientFacts::from_peer(exchange.peer().connection());
                let changes = self.changes(trusts, context.trace.as_deref());
                let host = fields::host(&head.uri, &head.headers);
                let head = (&head, host.as_ref(), context.upgrade.as_deref());
                self.request_for(head, &facts, changes, body)
            };
            recycle(head.headers);
            match made {
                None => reply::status(StatusCode::BAD_REQUEST),
                made => self.relay(made, &context, &exchange).await,
            }
        }))
    }

    /// Returns a client's request as the servers get it; `None` if its target cannot be written.
    fn request_for(
        &self,
        (head, host, upgrade): (&Parts, Option<&HeaderValue>, Option<&HeaderValue>),
        facts: &ClientFacts,
        changes: Changes<'_>,
        body: Outgoing,
    ) -> Option<ServerRequest> {
        let method = Http1Method::new(head.method.as_str())?;
        let target = head.uri.path_and_query().map_or("/", PathAndQuery::as_str);
        let with_path;
        let target = match target.starts_with('?') {
            // It may have a query behind its host.
            true => {
                with_path = format!("/{target}");
                &with_path
            }
            false => target,
        };
        let framing = body.framing(head.headers.contains_key(CONTENT_LENGTH));
        let is_h2 = self.pool.group.config().h2;
        let head = ClientHead {
            method,
            target: Target::new(method, target).ok()?,
            host: host.map(FieldValue::from),
            fields: Fields::Map(&head.headers),
            framing,
            // By HTTP/2 they may follow any body.
            may_have_trailers: framing == Framing::Chunked || (is_h2 && framing != Framing::None),
            takes_trailers: takes_trailers(head),
            names_fields: head.headers.contains_key(CONNECTION),
            upgrade,
        };
        Some(ServerRequest::from_client(&head, facts, changes, body))
    }

    /// Forwards a request and passes the response on.
    async fn relay(
        &self,
        mut request: Option<ServerRequest>,
        context: &RequestContext,
        exchange: &Exchange,
    ) -> Response<Body> {
        match self.forward(&mut request, context).await {
            Ok((mut response, lease)) => {
                if let (Some(sticky), Some(client)) =
                    (&self.pool.group.rules.sticky, &context.sticky)
                {
                    let cookie = sticky.given(&lease.server, client);
                    let headers = response.headers_mut();
                    headers.extend(cookie.map(|cookie| (SET_COOKIE, cookie)));
                }
                let mut answered = Some((response, lease));
                poll_fn(|cx| match answered.take() {
                    Some((response, lease)) => {
                        Poll::Ready(self.pass(cx, response, lease, context, Some(exchange)))
                    }
                    None => Poll::Pending,
                })
                .await
            }
            Err(response) => response,
        }
    }

    /// Finds a server that answers.
    async fn forward(
        &self,
        request: &mut Option<ServerRequest>,
        context: &RequestContext,
    ) -> Result<(Response<Incoming>, Lease), Response<Body>> {
        let mut attempts = Attempts::new(self, context.facts());
        if let Some(lookup) = attempts.lookup() {
            lookup.await;
            attempts.choose();
        }
        loop {
            let mut lease = attempts.lease().map_err(|response| *response)?;
            let report = request.as_ref().and_then(|request| request.body.report());
            let must_dial = attempts.must_dial;
            let failed = match self.attempt(&mut lease, request, context, must_dial).await {
                Ok(response) => {
                    lease.answered(response.status());
                    return Ok((response, lease));
                }
                Err(failed) => failed,
            };
            if let Some(fault) = report.and_then(|report| report.fault.take()) {
                return Err(reply::status(fault.status()));
            }
            attempts.failed(failed, request.is_some()).map_err(|response| *response)?;
        }
    }

    /// Sends a request to a server, on an idle connection or on another one.
    async fn attempt(
        &self,
        lease: &mut Lease,
        request: &mut Option<ServerRequest>,
        context: &RequestContext,
        must_dial: bool,
    ) -> Result<Response<Incoming>, FailedAttempt> {
        if !must_dial && let Some(connection) = lease.server.take_usable(lease.addresses).await {
            lease.connection = Some(connection);
            return self.send(lease, request, context, true).await;
        }
        // Rare cases are kept out of the future that each request has.
        Box::pin(self.attempt_elsewhere(lease, request, context, must_dial)).await
    }

    /// Sends a request to a server on a connection that is shared, or new.
    async fn attempt_elsewhere(
        &self,
        lease: &mut Lease,
        request: &mut Option<ServerRequest>,
        context: &RequestContext,
        must_dial: bool,
    ) -> Result<Response<Incoming>, FailedAttempt> {
        let (pool, server, addresses) = (&self.pool, lease.server.clone(), lease.addresses);
        let lost = |lost, was_idle| FailedAttempt::lost(lost, was_idle, self.response);
        let shared = if must_dial { None } else { server.shared(addresses) };
        let was_idle = shared.is_some();
        let mut connection = match shared {
            Some(shared) => shared,
            None => {
                let dialled = dial(&pool.group, &server, addresses, self.connect).await;
                let Dialled { stream, is_h2 } = dialled.map_err(FailedAttempt::unsent)?;
                lease.dialled();
                if !is_h2 {
                    lease.connection = Some(Box::new(Http1Connection::new(stream)));
                    return self.send(lease, request, context, false).await;
                }
                let opened = Http2Connection::open(stream).await;
                let opened = opened.map_err(|_| lost(SendFailure::Unsent, false))?;
                pool.share(&server, addresses, &opened);
                opened
            }
        };
        let sent = connection.send(request, context.repeats, self.response).await;
        Ok(sent.map_err(|failure| lost(failure, was_idle))?.map(Incoming::Http2))
    }

    /// Sends a request on the connection of a lease.
    async fn send(
        &self,
        lease: &mut Lease,
        request: &mut Option<ServerRequest>,
        context: &RequestContext,
        was_idle: bool,
    ) -> Result<Response<Incoming>, FailedAttempt> {
        let lost = |lost| FailedAttempt::lost(lost, was_idle, self.response);
        let Some(connection) = &mut lease.connection else {
            return Err(lost(SendFailure::Unsent));
        };
        if let Some(request) = request {
            request.head.name_server(lease.server.named_address());
        }
        let interim = context.interim.as_deref();
        let sent = connection.send(request, context.repeats, self.response, interim).await;
        Ok(sent.map_err(lost)?.map(|()| Incoming::Http1))
    }

    /// Answers in place of a server whose response cannot be passed on.
    fn refuse(&self, lease: &Lease, why: &str) -> Response<Body> {
        self.refuse_for(lease, Fault::Head(why.to_owned()))
    }

    pub(super) fn refuse_for(&self, lease: &Lease, fault: Fault) -> Response<Body> {
        let (group, status) = (&lease.pool.group, StatusCode::BAD_GATEWAY);
        lease.failed();
        let (outcome, trace) = (Outcome::Answered(status), lease.trace.as_ref());
        group.report_failure(&lease.server, &self.route, &fault, outcome, trace);
        reply::status(status)
    }

    /// Passes a response on. Without an exchange the protocol cannot be changed.
    pub(super) fn pass(
        &self,
        cx: &mut Context<'_>,
        response: Response<Incoming>,
        mut lease: Lease,
        context: &RequestContext,
        exchange: Option<&Exchange>,
    ) -> Response<Body> {
        let (mut head, incoming) = response.into_parts();
        let asked = context.upgrade.as_deref();
        let protocol = asked.and_then(|asked| fields::agreed(asked, &head.headers));
        // Clients of HTTP/1.1 have to accept trailers (RFC 9110, section 6.5.1).
        let reads_trailers = context.is_h2 || context.takes_trailers;
        if let Err(why) = fields::response(&mut head, (reads_trailers, context.is_h2)) {
            return self.refuse(&lease, why);
        }
        if let Some(trace) = &lease.trace {
            trace.add_via(head.version, &mut head.headers);
        }
        head.version = Version::HTTP_11;
        if head.status == StatusCode::SWITCHING_PROTOCOLS {
            let connection = lease.connection.take();
            let stream = connection.map(|connection| connection.into_stream());
            let (Some(protocol), Some((stream, before)), Some(exchange)) =
                (protocol, stream, exchange)
            else {
                return self
                    .refuse(&lease, "it changes to a protocol that the request did not ask for");
            };
            head.headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
            head.headers.insert(UPGRADE, protocol);
            head.extensions.clear();
            drop(incoming);
            let (mut lease, limit) = (lease, self.tunnel);
            // A tunnel may last for days, and nothing is told of its request any more.
            lease.trace = None;
            let io_activity = exchange.io_activity.clone();
            exchange.take_over(move |client, read| {
                Box::pin(tunnel::run(client, read, (stream, before), lease, limit, io_activity))
            });
            return Response::from_parts(head, Body::empty());
        }
        if self.marks {
            head.extensions.insert(FromServer);
        }
        match Relayed::new(incoming, lease, self.body).into_body(cx) {
            Ok(body) => Response::from_parts(head, body),
            Err(_) => reply::status(StatusCode::BAD_GATEWAY),
        }
    }
}

/// Whether a client reads fields that follow the body of a response. HTTP/1.0 knows none.
fn takes_trailers(head: &Parts) -> bool {
    head.version > Version::HTTP_10 && Fields::Map(&head.headers).has_element("te", b"trailers")
}

fn is_small(upload: &Upload) -> bool {
    upload.size_hint().exact().is_some_and(|length| length <= KEPT_BODY)
}

/// Reads a whole body, so that it can be sent again.
async fn kept(mut upload: Upload) -> Result<Outgoing, UploadError> {
    let mut bytes = Bytes::new();
    let mut trailers = None;
    while let Some(frame) = poll_fn(|cx| Pin::new(&mut upload).poll_frame(cx)).await {
        match frame?.into_data() {
            Ok(data) if bytes.is_empty() => bytes = data,
            Ok(data) => {
                let mut all = BytesMut::from(bytes);
                all.extend_from_slice(&data);
                bytes = all.freeze();
            }
            Err(other) => trailers = other.into_trailers().ok().map(Box::new),
        }
    }
    Ok(Outgoing::Memory { bytes, trailers })
}

pub(super) fn is_idempotent(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS | Method::PUT | Method::DELETE)
        || *method == Method::TRACE
}
