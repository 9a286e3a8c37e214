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
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use http::header::{CONNECTION, HOST, REFERER, USER_AGENT};
use http::{HeaderName, HeaderValue, Method, Request, Response, Uri, Version};
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;

use super::handshake::{self, Handshake};
use super::listener_context::ListenerContext;
use super::router::Reply;
use crate::body::Body;
use crate::exchange::{Exchange, LocalFuture, Plan, Waited};
use crate::io_activity::IoActivity;
use crate::log::{AccessLogWriter, Record};
use crate::parking_lot::ResponseEntry;
use crate::peer::Peer;
use crate::peer::RequestForm;
use crate::telemetry::durations::RequestTimer;
use crate::trace::RequestTrace;
use crate::upload::Upload;
use crate::upstream::lane::RequestHead;

/// The logged status of a request whose client did not wait for the answer, as in nginx; analysers
/// know it.
const CLIENT_GONE: u16 = 499;

/// The most bytes of the first line of a refused request that are logged.
const LONGEST_LINE: usize = 1024;

/// The state that the requests of a connection share.
pub(super) struct ConnectionState {
    pub context: Rc<ListenerContext>,
    pub peer: Rc<Peer>,
    pub io_activity: Rc<IoActivity>,
    pub plan: Rc<RefCell<Option<Plan>>>,
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
    /// All of the body of the request under way had come with its head.
    is_here: Cell<bool>,
    /// hyper has had no turn yet since the last request's body was given up.
    is_finishing_upload: Cell<bool>,
    /// The answer to the first request, if it is known already.
    pub first: RefCell<Option<Response<Body>>>,
    /// The first request is given up when the client ends its side.
    pub aborts_first: Cell<bool>,
    /// Requests in a row that hyper has answered though they might have passed it.
    pub lane_misses: Cell<u32>,
    /// The log entry of the request under way, on a connection with one request at a time.
    pub entry: RefCell<Option<Box<Entry>>>,
    /// The id of that request and its trace.
    pub trace: RefCell<Option<Rc<RequestTrace>>>,
}

impl ConnectionState {
    pub(super) fn new(
        context: Rc<ListenerContext>,
        peer: Rc<Peer>,
        allowed: (bool, bool),
    ) -> ConnectionState {
        ConnectionState {
            context,
            peer,
            io_activity: Rc::default(),
            plan: Rc::default(),
            can_park: allowed.0,
            can_take_over: allowed.1,
            running: Cell::new(0),
            requests: Cell::new(0),
            earlier: Cell::new(0),
            form: Cell::default(),
            is_here: Cell::new(false),
            is_finishing_upload: Cell::new(false),
            first: RefCell::new(None),
            aborts_first: Cell::new(false),
            lane_misses: Cell::new(0),
            entry: RefCell::new(None),
            trace: RefCell::new(None),
        }
    }

    /// Counts a response and adds the fields that every response has.
    fn finish(
        &self,
        running: Running,
        version: Version,
        (entry, trace): (Option<Box<Entry>>, Option<Rc<RequestTrace>>),
        mut response: Response<Body>,
    ) -> Response<Answer> {
        let worker = &self.context.worker;
        let (mut entry, trace) = match self.can_park {
            true => (self.entry.take(), self.trace.take()),
            false => (entry, trace),
        };
        if let Some(trace) = &trace {
            trace.mark(response.headers_mut());
        }
        if let Some(entry) = &mut entry {
            entry.answered(response.status().as_u16());
        }
        let is_last = self.is_last(self.requests());
        // HTTP/2 has no such field; its connection is told to go away.
        if version < Version::HTTP_2 && (is_last || self.is_cut()) {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        worker.counters.count_response(response.status().as_u16());
        response.map(|body| Answer { body, running, bytes: 0, entry })
    }

    /// Whether the connection ends with the response to its request of this number.
    pub(super) fn is_last(&self, number: u32) -> bool {
        let worker = &self.context.worker;
        let most = worker.limits.get().requests_per_connection;
        worker.is_draining() || most.is_some_and(|most| number >= most.get())
    }

    /// Whether some of the body of the request under way will not be read, so that no other request
    /// can follow.
    ///
    /// When the service has dropped the body, hyper throws away the bytes that it has read already,
    /// and reads no more.
    fn is_cut(&self) -> bool {
        let io_activity = &self.io_activity;
        let is_left = io_activity.uploads.get() == 0 && !self.is_here.get();
        io_activity.unused.get()
            && io_activity.has_upload.get()
            && (is_left || io_activity.given_up.get())
    }

    /// Logs a request that was refused before it was understood: the part of its first line that
    /// has come.
    pub(super) fn refused(&self, status: u16, read: &Bytes) {
        let Some(access_log) = self.context.worker.access_log() else { return };
        let is_end = |byte: &u8| matches!(byte, b'\r' | b'\n');
        let start = read.iter().position(|byte| !is_end(byte)).unwrap_or(read.len());
        let rest = read.slice(start..);
        let end = rest.iter().position(is_end).unwrap_or(rest.len()).min(LONGEST_LINE);
        access_log.write(&Record {
            at: SystemTime::now(),
            client: self.peer.client,
            method: Method::GET,
            uri: Uri::default(),
            version: Version::HTTP_11,
            host: None,
            referer: None,
            agent: None,
            status,
            bytes: 0,
            is_whole: true,
            took: Duration::ZERO,
            raw: Some(rest.slice(..end)),
            request_id: None,
            trace_id: None,
        });
    }

    /// Forgets the rest of the last request's body when hyper has thrown it away, which it does
    /// with the turn after the body was dropped. If hyper cannot, it ends the connection behind the
    /// response.
    pub(super) fn finish_upload(&self, cx: &Context<'_>) {
        let io_activity = &self.io_activity;
        let is_over = self.running.get() == 0 && io_activity.uploads.get() == 0;
        if !is_over
            || !io_activity.has_upload.get()
            || io_activity.stuck.get()
            || io_activity.unflushed.get()
        {
            return;
        }
        if self.is_finishing_upload.replace(true) {
            self.is_finishing_upload.set(false);
            io_activity.has_upload.set(false);
            io_activity.unused.set(false);
            io_activity.arrived.set(0);
        } else {
            cx.waker().wake_by_ref();
        }
    }

    /// Whether there is no request, and no byte of a next request that hyper has read.
    pub(super) fn is_idle(&self) -> bool {
        let io_activity = &self.io_activity;
        let is_written = !io_activity.unflushed.get() && !io_activity.stuck.get();
        self.running.get() == 0
            && !io_activity.unused.get()
            && is_written
            && io_activity.waits.get()
    }

    /// Whether there is no request, no body of one, and no byte that is under way, on a connection
    /// whose bytes may be more than requests.
    pub(super) fn is_between_streams(&self) -> bool {
        let io_activity = &self.io_activity;
        let is_written = !io_activity.unflushed.get() && !io_activity.stuck.get();
        self.running.get() == 0
            && io_activity.uploads.get() == 0
            && is_written
            && io_activity.waits.get()
            && !io_activity.is_busy.get()
    }

    /// Whether regular requests for some route pass hyper. The admin listener has no routes.
    pub(super) fn has_lane(&self) -> bool {
        !self.context.is_admin && self.context.worker.router().has_lane()
    }

    /// Returns the number of requests so far.
    pub(super) fn requests(&self) -> u32 {
        self.earlier.get().wrapping_add(self.requests.get())
    }
}

/// A request that has not been answered to the end.
pub(super) struct Running(Rc<ConnectionState>);

impl Running {
    fn new(state: &Rc<ConnectionState>) -> Running {
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
        // Later bytes belong to another request, and hyper reads them.
        self.0.io_activity.ends_with_client.set(false);
    }
}

/// The body of a response, which knows when it is over.
pub(super) struct Answer {
    body: Body,
    running: Running,
    bytes: u64,
    entry: Option<Box<Entry>>,
}

/// The log entry to be written when the response is over.
pub(super) struct Entry {
    access_log: Rc<AccessLogWriter>,
    record: Record,
    begun: Instant,
    /// Nothing is written.
    is_void: bool,
    /// The id of the request and its trace.
    pub trace: Option<Rc<RequestTrace>>,
}

impl Entry {
    fn new(
        access_log: Rc<AccessLogWriter>,
        state: &ConnectionState,
        request: &Request<Incoming>,
    ) -> Entry {
        let (uri, version) = (request.uri().clone(), request.version());
        let line = (request.method().clone(), uri, version);
        Entry::of(access_log, &state.peer, line, |name| request.headers().get(name).cloned())
    }

    /// Creates the entry of a request that passes hyper.
    pub(super) fn of_lane(
        access_log: Rc<AccessLogWriter>,
        peer: &Peer,
        head: &RequestHead<'_, '_>,
    ) -> Entry {
        let uri = head.target.parse().unwrap_or_default();
        Entry::of(access_log, peer, (head.method.clone(), uri, Version::HTTP_11), |wanted| {
            let is_wanted = |name: &str| name.eq_ignore_ascii_case(wanted.as_str());
            let found = head.fields.iter().find(|field| is_wanted(field.name));
            found.and_then(|field| HeaderValue::from_bytes(field.value).ok())
        })
    }

    fn of(
        access_log: Rc<AccessLogWriter>,
        peer: &Peer,
        (method, uri, version): (Method, Uri, Version),
        field: impl Fn(HeaderName) -> Option<HeaderValue>,
    ) -> Entry {
        let record = Record {
            at: SystemTime::now(),
            client: peer.client,
            method,
            uri,
            version,
            host: field(HOST),
            referer: field(REFERER),
            agent: field(USER_AGENT),
            status: 0,
            bytes: 0,
            is_whole: false,
            took: Duration::ZERO,
            raw: None,
            request_id: None,
            trace_id: None,
        };
        Entry { access_log, record, begun: Instant::now(), is_void: false, trace: None }
    }

    /// Notes the end of a response that passed hyper.
    pub(super) fn passed(&mut self, status: u16, bytes: u64, is_whole: bool) {
        (self.record.status, self.record.bytes, self.record.is_whole) = (status, bytes, is_whole);
    }

    /// Writes nothing: the request is answered in another way.
    pub(super) fn void(mut self) {
        self.is_void = true;
    }

    /// Notes the status of the response.
    pub(super) fn answered(&mut self, status: u16) {
        self.record.status = status;
    }

    /// Copies the parts of the request that it has, which otherwise keep hyper's buffer as long as
    /// the request waits.
    pub(super) fn detach(&mut self) {
        let record = &mut self.record;
        for field in [&mut record.host, &mut record.referer, &mut record.agent] {
            if let Some(copy) =
                field.as_ref().and_then(|field| HeaderValue::from_bytes(field.as_bytes()).ok())
            {
                *field = Some(copy);
            }
        }
        if let Ok(copy) = Uri::try_from(record.uri.to_string()) {
            record.uri = copy;
        }
    }
}

impl ResponseEntry for Entry {
    fn add(&mut self, bytes: u64) {
        self.record.bytes += bytes;
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if self.is_void {
            return;
        }
        if self.record.status == 0 {
            self.record.status = CLIENT_GONE;
        }
        self.record.took = self.begun.elapsed();
        if let Some(trace) = &self.trace {
            // Only now is it known which id counts.
            self.record.request_id = trace.id();
            self.record.trace_id = trace.trace_id();
        }
        self.access_log.write(&self.record);
    }
}

impl Answer {
    /// Limits each read of a file to this many bytes.
    pub(super) fn limit_reads(&mut self, most: usize) {
        self.body.limit_reads(most);
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.running.0.context.worker.counters.body_bytes.add(self.bytes);
        if let Some(entry) = &mut self.entry {
            entry.record.bytes = self.bytes;
            entry.record.is_whole = self.body.is_end_stream();
        }
    }
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &frame
            && let Some(data) = frame.data_ref()
        {
            self.bytes += data.len() as u64;
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

/// Returns the parts of a request that its response depends on.
fn form(request: &Request<Incoming>) -> RequestForm {
    let is_1_0 = request.version() == Version::HTTP_10;
    let says = |token: &str| {
        let fields = request.headers().get_all(CONNECTION).into_iter();
        let mut tokens = fields.flat_map(|field| field.to_str().unwrap_or("").split(','));
        tokens.any(|said| said.trim().eq_ignore_ascii_case(token))
    };
    let closes = if is_1_0 { !says("keep-alive") } else { says("close") };
    RequestForm { is_1_0, closes, may_have_hsts: false }
}

/// Whether the bytes that came with a request's head contain all of its body. The length of the
/// head is computed for the usual spelling, with one space behind each colon. For a pipelined
/// request the answer may be a wrong "no", which costs the client a connection and no data.
fn has_come(request: &Request<Incoming>, arrived: usize) -> bool {
    // A body in chunks does not say how long it is.
    let Some(body) = request.body().size_hint().exact() else { return false };
    let state = request.method().as_str().len() + " HTTP/1.1\r\n".len() + 1;
    let target = request.uri().to_string().len();
    let field = |(name, value): (&HeaderName, &HeaderValue)| {
        name.as_str().len() + ": \r\n".len() + value.len()
    };
    let fields = request.headers().iter().map(field).sum::<usize>() + "\r\n".len();
    let rest = arrived.saturating_sub(state + target + fields);
    rest as u64 >= body
}

/// The response of a request. A response that is known at once costs no future of its own.
pub(super) enum Serving {
    Now(Option<Response<Answer>>),
    Later { response: LocalFuture<Response<Body>>, rest: Option<Rest> },
}

/// The parts of a request that its response needs after hyper has lost the request.
#[derive(Default)]
pub(super) struct Note {
    pub entry: Option<Box<Entry>>,
    pub trace: Option<Rc<RequestTrace>>,
}

/// The state of a request that is left once its response has come.
pub(super) struct Rest {
    running: Running,
    version: Version,
    timer: RequestTimer,
    entry: Option<Box<Entry>>,
    trace: Option<Rc<RequestTrace>>,
    /// The proof that belongs to the request, if it asks for a WebSocket on a stream.
    accept: Option<String>,
}

impl Rest {
    fn finish(self, response: Response<Body>) -> Response<Answer> {
        let Rest { running, version, timer, entry, trace, accept } = self;
        let response = match accept {
            Some(accept) => handshake::response(response, &accept),
            None => response,
        };
        // How long a request waits for messages says nothing about the server.
        if response.extensions().get::<Waited>().is_none() {
            timer.answered(response.status().as_u16());
        }
        let state = running.0.clone();
        state.finish(running, version, (entry, trace), response)
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

/// Answers one request, which may be the handshake of a WebSocket on a stream.
pub(super) fn serve_one(
    state: &Rc<ConnectionState>,
    request: Request<Incoming>,
    handshake: Option<&Handshake>,
) -> Serving {
    let running = Running::new(state);
    let worker = &state.context.worker;
    let (version, is_empty) = (request.version(), request.body().is_end_stream());
    // On a connection with one request at a time, the unread rest of the request is known.
    let is_alone = version < Version::HTTP_2;
    if state.can_park {
        state.form.set(form(&request));
    }
    if is_alone {
        state.is_finishing_upload.set(false);
        state.io_activity.has_upload.set(!is_empty);
        state.io_activity.unused.set(!is_empty);
        state.io_activity.given_up.set(false);
        state.io_activity.to_lane.set(state.can_park && state.has_lane());
        let arrived = state.io_activity.arrived.replace(0);
        state.is_here.set(is_empty || has_come(&request, arrived));
    }
    if let Some(response) = state.first.take() {
        state.io_activity.unused.set(false);
        state.io_activity.ends_with_client.set(state.aborts_first.take());
        return Serving::Now(Some(state.finish(running, version, (None, None), response)));
    }
    let mut entry =
        worker.access_log().map(|access_log| Box::new(Entry::new(access_log, state, &request)));
    let router = worker.router();
    let trace = router.tracing().filter(|_| !state.context.is_admin).map(|rules| {
        let client = state.peer.client.map(|client| client.ip());
        let headers = request.headers();
        let values = |name: &str| headers.get_all(name).into_iter().map(HeaderValue::as_bytes);
        rules.begin(client, version, values)
    });
    if let Some(entry) = &mut entry {
        entry.trace = trace.clone();
    }
    if state.can_park {
        // A request that waits takes its entry along.
        state.entry.replace(entry.take());
        state.trace.replace(trace.clone());
    }
    if let Some(entry) = entry.as_mut().filter(|_| handshake.is_some()) {
        entry.record.method = Method::CONNECT;
    }
    let plan = handshake.map_or(&state.plan, |handshake| &handshake.plan);
    let prepare = |request: Request<Incoming>| {
        let io_activity = is_alone.then(|| state.io_activity.clone());
        let exchange = Exchange {
            peer: state.peer.clone(),
            can_take_over: handshake.is_some()
                || (state.can_take_over && version == Version::HTTP_11),
            can_wait: state.can_park && is_empty,
            is_private: state.context.is_private,
            may_have_hsts: false,
            plan: plan.clone(),
            io_activity: io_activity.clone(),
            trace: trace.clone(),
        };
        let (limit, patience) = (worker.limits.get().body_bytes, worker.timeouts.get().body);
        (request.map(|body| Upload::new(body, limit, patience, io_activity)), exchange)
    };
    let accept = handshake.map(|handshake| handshake.accept.clone());
    let on = &state.context.address;
    let mut timer = router.timer();
    let reply = match state.context.is_admin {
        false => router.respond(request, &state.peer, on, &mut timer, prepare),
        true => router.administer(request, &state.peer, prepare),
    };
    let rest = Rest { running, version, timer, entry, trace, accept };
    match reply {
        Reply::Now(response) => Serving::Now(Some(rest.finish(response))),
        Reply::Later(response) => Serving::Later { response, rest: Some(rest) },
    }
}
