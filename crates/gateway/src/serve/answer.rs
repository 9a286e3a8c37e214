//! Requests of a connection, and their responses until the last byte.
//!
//! The state that the requests of a connection share is counted and noted here; the connection's
//! task looks at it.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri, Version};
use http_body::{Body as _, SizeHint};
use superpoll_http::answers::Additions;
use superpoll_http::body::Body;
use superpoll_http::body::PollFrame;
use superpoll_http::exchange::{Exchange, LocalFuture, Plan, Waited};
use superpoll_http::head::Head;
use superpoll_http::interim::InterimResponses;
use superpoll_http::io_activity::IoActivity;
use superpoll_http::log::{AccessLogWriter, BrokenBy, Entry, RequestRecord};
use superpoll_http::parking_lot::Note;
use superpoll_http::peer::Peer;
use superpoll_http::peer::RequestForm;
use superpoll_http::telemetry::durations::RequestTimer;
use superpoll_http::trace::RequestTrace;
use superpoll_http::upload::{RequestBody, Upload};
use superpoll_http::upstream::{ClientFacts, ClientHead, ServerRequest};
use superpoll_http1::BodyWriter;

use super::handshake::{self, Handshake};
use super::listener_context::ListenerContext;
use super::router::{Decision, Reply, Routed};

/// The most bytes of the first line of a refused request that are logged.
const LONGEST_LINE: usize = 1024;

/// The state that the requests of a connection share.
pub(super) struct ConnectionState {
    pub context: Rc<ListenerContext>,
    pub peer: Rc<Peer>,
    pub io_activity: Rc<IoActivity>,
    /// The plan of a service for the request whose future is being polled.
    pub plan: Rc<RefCell<Option<Plan>>>,
    /// The interim responses of the request under way.
    pub interim: Rc<InterimResponses>,
    /// Whether the socket below has no further state in this process.
    pub can_park: bool,
    /// Whether the connection speaks HTTP/1, which has one request at a time.
    can_take_over: bool,
    /// Requests under way.
    pub running: Cell<u32>,
    /// Requests since the connection was last parked.
    pub requests: Cell<u32>,
    /// Requests before.
    pub earlier: Cell<u32>,
    pub form: Cell<RequestForm>,
    /// An operator has closed the connection.
    pub is_closed_here: Cell<bool>,
    /// The line of the access log of the request under way, on a connection with one request at a
    /// time.
    pub entry: RefCell<Option<Rc<Entry>>>,
    /// The id of that request and its trace.
    pub trace: RefCell<Option<Rc<RequestTrace>>>,
}

impl ConnectionState {
    pub(super) fn new(
        context: Rc<ListenerContext>,
        peer: Rc<Peer>,
        allowed: (bool, bool),
    ) -> ConnectionState {
        let counters = context.worker.counters.clone();
        ConnectionState {
            context,
            io_activity: Rc::new(IoActivity::new(peer.clone(), counters)),
            peer,
            plan: Rc::default(),
            interim: Rc::default(),
            can_park: allowed.0,
            can_take_over: allowed.1,
            running: Cell::new(0),
            requests: Cell::new(0),
            earlier: Cell::new(0),
            form: Cell::default(),
            is_closed_here: Cell::new(false),
            entry: RefCell::new(None),
            trace: RefCell::new(None),
        }
    }

    /// Counts a response and adds the fields that every response has.
    pub(super) fn finish(
        &self,
        running: Running,
        Note { entry, trace }: Note,
        mut response: Response<Body>,
    ) -> Response<Answer> {
        let worker = &self.context.worker;
        let (entry, trace) = match self.can_park {
            true => (self.entry.take(), self.trace.take()),
            false => (entry, trace),
        };
        if let Some(trace) = &trace {
            trace.mark(response.headers_mut());
        }
        if let Some(entry) = &entry {
            // A response of a server that broke off before the client had any of it is replaced.
            entry.note(|record| record.broken_by = None);
            entry.answered(response.status().as_u16());
        }
        worker.counters.count_response(response.status().as_u16());
        response.map(|body| Answer::new(running, entry, body))
    }

    /// Whether the connection ends with the response to its request of this number.
    pub(super) fn is_last(&self, number: u32) -> bool {
        let worker = &self.context.worker;
        let most = worker.limits.get().requests_per_connection;
        worker.is_draining() || most.is_some_and(|most| number >= most.get())
    }

    /// Logs a request that was refused before it was understood: the part of its first line that
    /// has arrived. Its answer has a body of so many bytes.
    pub(super) fn refused(&self, status: u16, body: usize, read: &Bytes) {
        let Some(access_log) = self.context.worker.access_log() else { return };
        let is_end = |byte: &u8| matches!(byte, b'\r' | b'\n');
        let start = read.iter().position(|byte| !is_end(byte)).unwrap_or(read.len());
        let rest = read.slice(start..);
        let end = rest.iter().position(is_end).unwrap_or(rest.len()).min(LONGEST_LINE);
        let client = self.peer.client_end();
        let mut record = RequestRecord::new(client, Method::GET, Uri::default(), Version::HTTP_11);
        (record.status, record.is_whole) = (status, true);
        record.bytes = body as u64;
        record.number = self.requests().wrapping_add(1);
        record.raw = Some(Box::new(rest.slice(..end)));
        drop(Entry::new(access_log, record));
    }

    /// Returns the number of requests so far.
    pub(super) fn requests(&self) -> u32 {
        self.earlier.get().wrapping_add(self.requests.get())
    }
}

/// A request that has not been answered to the end.
pub(super) struct Running(Rc<ConnectionState>);

impl Running {
    pub(super) fn new(state: &Rc<ConnectionState>) -> Running {
        state.requests.set(state.requests.get().wrapping_add(1));
        Running::again(state)
    }

    /// Counts a request for longer than its response takes.
    pub(super) fn again(state: &Rc<ConnectionState>) -> Running {
        state.running.set(state.running.get() + 1);
        let running = &state.context.worker.counters.running;
        running.set(running.get() + 1);
        Running(state.clone())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.set(self.0.running.get() - 1);
        let running = &self.0.context.worker.counters.running;
        running.set(running.get() - 1);
        // Later bytes belong to another request.
        self.0.io_activity.ends_with_client.set(false);
    }
}

/// The body of a response, which knows when it is over.
pub(super) struct Answer {
    body: Body,
    running: Running,
    bytes: u64,
    /// The body has said that nothing follows.
    has_ended: bool,
    /// Bytes of the body that were read and will not be sent.
    unsent: u64,
    /// The end was not sent.
    is_broken: bool,
    entry: Option<Rc<Entry>>,
}

/// Begins the line of the access log of a request.
fn begin_entry(
    access_log: Rc<AccessLogWriter>,
    state: &ConnectionState,
    peer: &Peer,
    head: Head<'_>,
    head_bytes: usize,
) -> Rc<Entry> {
    let target = head.target();
    let uri = target.parse().ok().or_else(|| encoded(&target)).unwrap_or_default();
    let method = Method::from(head.method);
    let mut record = RequestRecord::new(peer.client_end(), method, uri, head.version);
    record.head_bytes_in = u32::try_from(head_bytes).unwrap_or(u32::MAX);
    record.number = state.requests();
    let field = |name| HeaderValue::from_bytes(head.fields.value(name)?).ok();
    // HTTP/2 has another place for the host.
    let authority = || HeaderValue::from_str(head.authority?).ok();
    record.host = field("host").or_else(authority);
    (record.referer, record.agent) = (field("referer"), field("user-agent"));
    let (earlier, number) = (state.earlier.get(), record.number);
    // It is the first request since then.
    record.was_parked = earlier > 0 && number.wrapping_sub(earlier) == 1;
    Entry::new(access_log, record)
}

/// Returns a target of which a byte should have been encoded, with all such bytes encoded, for the
/// access log; `None` if it is too long then.
#[cold]
fn encoded(target: &str) -> Option<Uri> {
    let mut text = String::new();
    for byte in target.bytes() {
        match b"\"<>^`{}|[]\\".contains(&byte) {
            true => text.push_str(&format!("%{byte:02X}")),
            false => text.push(char::from(byte)),
        }
    }
    text.parse().ok()
}

impl Answer {
    fn new(running: Running, entry: Option<Rc<Entry>>, body: Body) -> Answer {
        let (bytes, has_ended, unsent, is_broken) = (0, false, 0, false);
        Answer { body, running, bytes, has_ended, unsent, is_broken, entry }
    }

    /// Continues with a body that was parked.
    pub(super) fn again(
        state: &Rc<ConnectionState>,
        body: Body,
        entry: Option<Rc<Entry>>,
    ) -> Answer {
        Answer::new(Running::again(state), entry, body)
    }

    /// Whether the body waits for the next thing to say, and can be parked.
    pub(super) fn can_rest(&self) -> bool {
        self.body.can_rest()
    }

    /// Returns a body to be parked, and its line of the access log.
    pub(super) fn into_resting(mut self) -> (Body, Option<Rc<Entry>>) {
        let (body, entry) = (std::mem::take(&mut self.body), self.entry.take());
        if let Some(entry) = &entry {
            entry.note(|record| record.bytes += self.bytes);
        }
        (body, entry)
    }

    /// Limits each read of a file to so many bytes.
    pub(super) fn limit_reads(&mut self, most: usize) {
        self.body.limit_reads(most);
    }

    /// Drops the body. Nothing of it was read.
    pub(super) fn clear(&mut self) {
        self.body = Body::empty();
    }

    /// Notes that so many bytes of the body were read and will not be sent.
    pub(super) fn cut(&mut self, unsent: u64) {
        self.unsent = unsent;
    }

    /// Notes the same of a response that ends before its end.
    pub(super) fn break_off(&mut self, unsent: u64) {
        self.unsent = unsent;
        self.is_broken = true;
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        let state = &self.running.0;
        let sent = self.bytes.saturating_sub(self.unsent);
        state.context.worker.counters.body_bytes.add(sent);
        if let Some(entry) = &self.entry {
            // A stream need not know that it is at its end before it is asked.
            let is_over = self.has_ended || self.body.is_end_stream();
            let is_over = is_over && self.unsent == 0 && !self.is_broken;
            entry.note(|record| {
                record.bytes += sent;
                // There is nothing to send of the body of a response to HEAD.
                record.is_whole = is_over || record.method == Method::HEAD;
                if !record.is_whole && state.is_closed_here.get() {
                    record.broken_by(BrokenBy::Server);
                }
            });
        }
    }
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> PollFrame {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        match &frame {
            Poll::Ready(Some(Ok(frame))) => match frame.data_ref() {
                Some(data) => self.bytes += data.len() as u64,
                // Trailers are the last frame.
                None => self.has_ended = true,
            },
            Poll::Ready(None) => self.has_ended = true,
            Poll::Ready(Some(Err(_))) | Poll::Pending => {}
        }
        if let (Poll::Ready(Some(Err(_))), Some(entry)) = (&frame, &self.entry) {
            // Unless it is known that a server behind was the reason.
            entry.note(|record| record.broken_by(BrokenBy::Server));
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The response of a request. A response that is known at once costs no future of its own.
pub(super) enum Serving {
    Now(Option<Response<Answer>>),
    Later { response: LocalFuture<Response<Body>>, rest: Option<Rest> },
}

/// The state of a request that is left once its response has arrived.
pub(super) struct Rest {
    running: Running,
    timer: RequestTimer,
    note: Note,
    additions: Additions,
    /// The proof that belongs to the request, if it asks for a WebSocket on a stream.
    accept: Option<String>,
}

impl Rest {
    fn finish(self, response: Response<Body>) -> Response<Answer> {
        let Rest { running, timer, note, additions, accept } = self;
        let is_head = additions.is_head;
        let mut response = additions.apply_to(response);
        if is_head {
            // HTTP/2 would send it.
            *response.body_mut() = Body::empty();
        }
        let response = match accept {
            Some(accept) => handshake::response(response, &accept),
            None => response,
        };
        // How long a request waits for messages says nothing about the server.
        if response.extensions().get::<Waited>().is_none() {
            timer.answered(response.status().as_u16());
        }
        let state = running.0.clone();
        state.finish(running, note, response)
    }
}

impl Serving {
    /// Takes the rest of a request that waits without its head from now on.
    pub(super) fn take_rest(&mut self) -> Option<(Running, Note)> {
        match self {
            Serving::Later { rest, .. } => rest.take().map(|rest| (rest.running, rest.note)),
            Serving::Now(_) => None,
        }
    }
}

impl Future for Serving {
    type Output = Result<Response<Answer>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut() {
            Serving::Now(response) => {
                response.take().map_or(Poll::Pending, |it| Poll::Ready(Ok(it)))
            }
            Serving::Later { response, rest } => {
                let response = ready!(response.as_mut().poll(cx));
                let Some(rest) = rest.take() else { return Poll::Pending };
                Poll::Ready(Ok(rest.finish(response)))
            }
        }
    }
}

/// A request for the one that answers it.
pub(super) enum Source<F> {
    /// Made if it is needed; `None` if that cannot be done of its target.
    Head(F),
    /// One of HTTP/2, prepared for its server.
    Prepared(Box<ServerRequest>),
}

/// A request whose way to an answer is known.
pub(super) struct Begun {
    pub running: Running,
    pub timer: RequestTimer,
    pub entry: Option<Rc<Entry>>,
    pub trace: Option<Rc<RequestTrace>>,
    pub peer: Rc<Peer>,
    pub routed: Routed,
}

impl Begun {
    /// Begins to answer a request, whose head has so many bytes.
    pub(super) fn new(
        state: &Rc<ConnectionState>,
        head: Head<'_>,
        head_bytes: impl FnOnce() -> usize,
    ) -> Begun {
        let running = Running::new(state);
        let (worker, is_admin) = (&state.context.worker, state.context.is_admin);
        let router = worker.router();
        let trace = router.tracing().filter(|_| !is_admin).map(|rules| {
            // The peer of the connection has sent the id.
            let client = state.peer.client.map(|client| client.ip());
            rules.begin(client, head.version, head.fields)
        });
        let peer = match is_admin {
            false => router.trusted_proxies().peer_of(&state.peer, |name| head.fields.values(name)),
            true => state.peer.clone(),
        };
        let entry = worker
            .access_log()
            .map(|access_log| begin_entry(access_log, state, &peer, head, head_bytes()));
        let mut timer = router.timer();
        let mut routed = match is_admin {
            true => router.route_of_admin(head),
            false => router.route(head, &peer, &state.context.address, &mut timer, entry.as_ref()),
        };
        let rules = routed.additions.rules.as_ref();
        routed.additions.filled =
            rules.and_then(|rules| rules.filled(head, &peer, trace.as_deref()));
        if let Some(entry) = &entry {
            entry.note(|record| {
                (record.route, record.trace) = (timer.route().clone(), trace.clone());
            });
        }
        Begun { running, timer, entry, trace, peer, routed }
    }

    /// Answers it with a status that was written, and a body.
    pub(super) fn answered(self, status: StatusCode, body: Body) -> Answer {
        let Begun { running, timer, entry, .. } = self;
        timer.answered(status.as_u16());
        if let Some(entry) = &entry {
            entry.answered(status.as_u16());
        }
        running.0.context.worker.counters.count_response(status.as_u16());
        Answer::new(running, entry, body)
    }

    /// Prepares it for its server, if it has one and is plain. Returns what the server gets, and
    /// the length of its body at `behind`, if that is whole, or how to write it.
    pub(super) fn prepare(
        &self,
        head: ClientHead<'_>,
        behind: &[u8],
        facts: &ClientFacts,
    ) -> Option<(ServerRequest, Result<usize, BodyWriter>)> {
        let Decision::Forward(forwarder, target, script) = &self.routed.decision else {
            return None;
        };
        let target = target.as_ref().map(PathAndQuery::as_str);
        let (about, io_activity) = ((facts, &*self.peer), &self.running.0.io_activity);
        let body = (behind, self.most_body());
        let script = script.as_deref();
        forwarder.prepare((head, target), script, body, about, io_activity, self.trace.as_deref())
    }

    /// Returns its body within its limits.
    pub(super) fn upload(&self, body: RequestBody) -> Upload {
        let patience = self.running.0.context.worker.timeouts.get().body;
        Upload::new(body, self.most_body(), patience).noted_in(self.entry.as_ref())
    }

    fn most_body(&self) -> u64 {
        let limits = &self.running.0.context.worker.limits;
        self.routed.body_bytes.unwrap_or_else(|| limits.get().body_bytes)
    }

    /// Answers it by its handler or its server. It may be the handshake of a WebSocket on a stream.
    ///
    /// A server's interim responses go into their place, if the client understands them.
    pub(super) fn serve(
        self,
        request: Source<impl FnOnce() -> Option<Request<Upload>>>,
        interim: Option<&Rc<InterimResponses>>,
        handshake: Option<&Handshake>,
    ) -> Serving {
        let Begun { running, timer, entry, trace, peer, routed } = self;
        let Routed { decision, additions, .. } = routed;
        let state = running.0.clone();
        if state.can_park {
            // A request that waits takes its entry along.
            state.entry.replace(entry.clone());
            state.trace.replace(trace.clone());
        }
        if let Some(entry) = entry.as_ref().filter(|_| handshake.is_some()) {
            entry.note(|record| record.method = Method::CONNECT);
        }
        let exchange = |version, is_empty| {
            let interim = interim.cloned();
            if let Some(interim) = &interim {
                interim.set_rules(additions.rules.clone());
            }
            let plan = handshake.map_or(&state.plan, |handshake| &handshake.plan);
            let is_stream = version == Version::HTTP_2 && handshake.is_none();
            Exchange {
                peer,
                can_take_over: handshake.is_some()
                    || (state.can_take_over && version == Version::HTTP_11 && is_empty),
                // On a connection with several requests each waits on its own stream.
                can_wait: (state.can_park || is_stream) && is_empty,
                is_private: state.context.is_private,
                may_have_hsts: false,
                plan: plan.clone(),
                is_alone: version < Version::HTTP_2,
                interim,
                io_activity: state.io_activity.clone(),
                trace: trace.clone(),
                entry: entry.clone(),
            }
        };
        let reply = match (decision, request) {
            (Decision::Ready(ready), _) => Reply::Now(ready.into_response(additions.is_head)),
            (Decision::Forward(forwarder, ..), Source::Prepared(request)) => {
                let exchange = exchange(Version::HTTP_2, false);
                Reply::Later(forwarder.respond(request, exchange))
            }
            (decision, Source::Head(request)) => match request() {
                None => StatusCode::URI_TOO_LONG.into(),
                Some(request) => {
                    let exchange = exchange(request.version(), request.body().is_end_stream());
                    decision.answer(request, exchange)
                }
            },
            // No other one was prepared.
            (Decision::Handle(_), Source::Prepared(_)) => StatusCode::INTERNAL_SERVER_ERROR.into(),
        };
        // One that can be parked is in the state.
        let entry = entry.filter(|_| !state.can_park);
        let accept = handshake.map(|handshake| handshake.accept.clone());
        let rest = Rest { running, timer, note: Note { entry, trace }, additions, accept };
        match reply {
            Reply::Now(response) => Serving::Now(Some(rest.finish(response))),
            Reply::Later(response) => Serving::Later { response, rest: Some(rest) },
        }
    }
}
