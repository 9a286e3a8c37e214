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

use super::listener_context::Home;
use super::router::Reply;
use crate::body::Body;
use crate::exchange::{Exchange, LocalFuture, Plan};
use crate::io_activity::Tally;
use crate::log::{Pad, Record};
use crate::peer::Form;
use crate::peer::Peer;
use crate::upload::Upload;

/// The logged status of a request whose client did not wait for the answer, as in nginx; analysers
/// know it.
const CLIENT_GONE: u16 = 499;

/// The most bytes of the first line of a refused request that are logged.
const LONGEST_LINE: usize = 1024;

/// The state that the requests of a connection share.
pub(super) struct Line {
    pub home: Rc<Home>,
    pub peer: Rc<Peer>,
    pub tally: Rc<Tally>,
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
    pub form: Cell<Form>,
    /// All of the body of the request under way had come with its head.
    is_here: Cell<bool>,
    /// hyper has had no turn yet since the last request's body was given up.
    settles: Cell<bool>,
    /// The answer to the first request, if it is known already.
    pub first: RefCell<Option<Response<Body>>>,
    /// The log entry of the request under way, on a connection with one request at a time.
    pub entry: RefCell<Option<Box<Entry>>>,
}

impl Line {
    pub fn new(home: Rc<Home>, peer: Rc<Peer>, allowed: (bool, bool)) -> Line {
        Line {
            home,
            peer,
            tally: Rc::default(),
            plan: Rc::default(),
            can_park: allowed.0,
            can_take_over: allowed.1,
            running: Cell::new(0),
            requests: Cell::new(0),
            earlier: Cell::new(0),
            form: Cell::new(Form { is_1_0: false, closes: false }),
            is_here: Cell::new(false),
            settles: Cell::new(false),
            first: RefCell::new(None),
            entry: RefCell::new(None),
        }
    }

    /// Counts a response and adds the fields that every response has.
    fn finish(
        &self,
        running: Running,
        version: Version,
        entry: Option<Box<Entry>>,
        mut response: Response<Body>,
    ) -> Response<Answer> {
        let worker = &self.home.worker;
        let mut entry = if self.can_park { self.entry.take() } else { entry };
        if let Some(entry) = &mut entry {
            entry.record.status = response.status().as_u16();
        }
        let most = worker.limits.get().requests_per_connection;
        let is_last =
            worker.is_draining() || most.is_some_and(|most| self.requests() >= most.get());
        // HTTP/2 has no such field; its connection is told to go away.
        if version < Version::HTTP_2 && (is_last || self.is_cut()) {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        let class = usize::from(response.status().as_u16() / 100).clamp(1, 5);
        worker.counters.responses[class - 1].add(1);
        response.map(|body| Answer { body, running, bytes: 0, entry })
    }

    /// Whether some of the body of the request under way will not be read, so that no other request
    /// can follow.
    ///
    /// When the service has dropped the body, hyper throws away the bytes that it has read already,
    /// and reads no more.
    fn is_cut(&self) -> bool {
        let tally = &self.tally;
        let is_left = tally.uploads.get() == 0 && !self.is_here.get();
        tally.unused.get() && tally.has_upload.get() && (is_left || tally.given_up.get())
    }

    /// Logs a request that was refused before it was understood: the part of its first line that
    /// has come.
    pub fn refused(&self, status: u16, read: &Bytes) {
        let Some(pad) = self.home.worker.pad() else { return };
        let is_end = |byte: &u8| matches!(byte, b'\r' | b'\n');
        let start = read.iter().position(|byte| !is_end(byte)).unwrap_or(read.len());
        let rest = read.slice(start..);
        let end = rest.iter().position(is_end).unwrap_or(rest.len()).min(LONGEST_LINE);
        pad.write(&Record {
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
        });
    }

    /// Forgets the rest of the last request's body when hyper has thrown it away, which it does
    /// with the turn after the body was dropped. If hyper cannot, it ends the connection behind the
    /// response.
    pub fn settle_upload(&self, cx: &Context<'_>) {
        let tally = &self.tally;
        let is_over = self.running.get() == 0 && tally.uploads.get() == 0;
        if !is_over || !tally.has_upload.get() || tally.stuck.get() || tally.unflushed.get() {
            return;
        }
        if self.settles.replace(true) {
            self.settles.set(false);
            tally.has_upload.set(false);
            tally.unused.set(false);
            tally.arrived.set(0);
        } else {
            cx.waker().wake_by_ref();
        }
    }

    /// Whether there is no request, and no byte of a next request that hyper has read.
    pub fn is_idle(&self) -> bool {
        let tally = &self.tally;
        let is_written = !tally.unflushed.get() && !tally.stuck.get();
        self.running.get() == 0 && !tally.unused.get() && is_written && tally.waits.get()
    }

    /// Returns the number of requests so far.
    pub fn requests(&self) -> u32 {
        self.earlier.get().wrapping_add(self.requests.get())
    }
}

/// A request that has not been answered to the end.
struct Running(Rc<Line>);

impl Running {
    fn new(line: &Rc<Line>) -> Running {
        line.running.set(line.running.get() + 1);
        line.requests.set(line.requests.get().wrapping_add(1));
        let running = &line.home.worker.counters.running;
        running.set(running.get() + 1);
        Running(line.clone())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.set(self.0.running.get() - 1);
        let running = &self.0.home.worker.counters.running;
        running.set(running.get() - 1);
        // Later bytes belong to another request, and hyper reads them.
        self.0.tally.ends_with_client.set(false);
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
    pad: Rc<Pad>,
    record: Record,
    begun: Instant,
}

impl Entry {
    fn new(pad: Rc<Pad>, line: &Line, request: &Request<Incoming>) -> Entry {
        let field = |name| request.headers().get(name).cloned();
        let record = Record {
            at: SystemTime::now(),
            client: line.peer.client,
            method: request.method().clone(),
            uri: request.uri().clone(),
            version: request.version(),
            host: field(HOST),
            referer: field(REFERER),
            agent: field(USER_AGENT),
            status: 0,
            bytes: 0,
            is_whole: false,
            took: Duration::ZERO,
            raw: None,
        };
        Entry { pad, record, begun: Instant::now() }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if self.record.status == 0 {
            self.record.status = CLIENT_GONE;
        }
        self.record.took = self.begun.elapsed();
        self.pad.write(&self.record);
    }
}

impl Answer {
    /// Limits each read of a file to this many bytes.
    pub fn limit_reads(&mut self, most: usize) {
        self.body.limit_reads(most);
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.running.0.home.worker.counters.body_bytes.add(self.bytes);
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
fn form(request: &Request<Incoming>) -> Form {
    let is_1_0 = request.version() == Version::HTTP_10;
    let says = |token: &str| {
        let fields = request.headers().get_all(CONNECTION).into_iter();
        let mut tokens = fields.flat_map(|field| field.to_str().unwrap_or("").split(','));
        tokens.any(|said| said.trim().eq_ignore_ascii_case(token))
    };
    Form { is_1_0, closes: if is_1_0 { !says("keep-alive") } else { says("close") } }
}

/// Whether the bytes that came with a request's head contain all of its body. The length of the
/// head is computed for the usual spelling, with one space behind each colon. For a pipelined
/// request the answer may be a wrong "no", which costs the client a connection and no data.
fn has_come(request: &Request<Incoming>, arrived: usize) -> bool {
    // A body in chunks does not say how long it is.
    let Some(body) = request.body().size_hint().exact() else { return false };
    let line = request.method().as_str().len() + " HTTP/1.1\r\n".len() + 1;
    let target = request.uri().to_string().len();
    let field = |(name, value): (&HeaderName, &HeaderValue)| {
        name.as_str().len() + ": \r\n".len() + value.len()
    };
    let fields = request.headers().iter().map(field).sum::<usize>() + "\r\n".len();
    let rest = arrived.saturating_sub(line + target + fields);
    rest as u64 >= body
}

/// The response of a request. A response that is known at once costs no future of its own.
pub(super) enum Serving {
    Now(Option<Response<Answer>>),
    Later { response: LocalFuture<Response<Body>>, rest: Option<Rest> },
}

/// The state of a request that is left once its response has come.
pub(super) struct Rest {
    running: Running,
    version: Version,
    entry: Option<Box<Entry>>,
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
                let Some(Rest { running, version, entry }) = rest.take() else {
                    return Poll::Pending;
                };
                let line = running.0.clone();
                Poll::Ready(Ok(line.finish(running, version, entry, response)))
            }
        }
    }
}

/// Answers one request.
pub(super) fn serve_one(line: &Rc<Line>, request: Request<Incoming>) -> Serving {
    let running = Running::new(line);
    let worker = &line.home.worker;
    let (version, is_empty) = (request.version(), request.body().is_end_stream());
    // On a connection with one request at a time, the unread rest of the request is known.
    let is_alone = version < Version::HTTP_2;
    if line.can_park {
        line.form.set(form(&request));
    }
    if is_alone {
        line.settles.set(false);
        line.tally.has_upload.set(!is_empty);
        line.tally.unused.set(!is_empty);
        line.tally.given_up.set(false);
        let arrived = line.tally.arrived.replace(0);
        line.is_here.set(is_empty || has_come(&request, arrived));
    }
    if let Some(response) = line.first.take() {
        line.tally.unused.set(false);
        return Serving::Now(Some(line.finish(running, version, None, response)));
    }
    let mut entry = worker.pad().map(|pad| Box::new(Entry::new(pad, line, &request)));
    if line.can_park {
        // A request that waits takes its entry along.
        line.entry.replace(entry.take());
    }
    let prepare = |request: Request<Incoming>| {
        let tally = is_alone.then(|| line.tally.clone());
        let exchange = Exchange {
            peer: line.peer.clone(),
            can_take_over: line.can_take_over && version == Version::HTTP_11,
            can_wait: line.can_park && is_empty,
            plan: line.plan.clone(),
            tally: tally.clone(),
        };
        let (limit, patience) = (worker.limits.get().body_bytes, worker.timeouts.get().body);
        (request.map(|body| Upload::new(body, limit, patience, tally)), exchange)
    };
    match worker.router().respond(request, &line.peer, prepare) {
        Reply::Now(response) => Serving::Now(Some(line.finish(running, version, entry, response))),
        Reply::Later(response) => {
            Serving::Later { response, rest: Some(Rest { running, version, entry }) }
        }
    }
}
