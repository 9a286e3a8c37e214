//! A connection on which HTTP/1 is spoken, from its first byte until it is closed, parked or taken over.
//!
//! hyper does the protocol. What is done here is what hyper leaves to others: time. One timer of the connection
//! ticks a few times within the shortest of its limits, and looks what has happened since: so a request costs no timer,
//! and a limit is kept to a quarter of the shortest one.
//!
//! A connection on which nothing happens for a while is taken from hyper and parked, see [`park`](crate::park). Whether
//! hyper has nothing of it is known from what it did with the transport, see [`Watched`]; should the beginning of
//! another request be among what it gives back, the connection goes on with that instead.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant, SystemTime};

use bytes::{Bytes, BytesMut};
use futures_io::AsyncWrite;
use http::header::{CONNECTION, HOST, REFERER, USER_AGENT};
use http::{HeaderValue, Method, Request, Response, Uri, Version};
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::service::service_fn;
use superpoll_rt::time::{sleep, timeout};

use super::home::Home;
use super::linger::linger;
use super::router::Reply;
use super::watched::Watched;
use super::worker::Working;
use crate::body::Body;
use crate::exchange::{Exchange, LocalFuture, Peer, Plan};
use crate::log::{Pad, Record};
use crate::park::{Form, Parked, Resume, Resumes, Waiting};
use crate::tally::Tally;
use crate::transport::{Plain, Transport};
use crate::upload::Upload;

/// For how long an encrypted connection may take to say that it ends.
const GOODBYE: Duration = Duration::from_secs(2);

/// How a request is written down whose client did not wait for the answer, as nginx does and analysers know.
const CLIENT_GONE: u16 = 499;

/// How much of the first line of a request that was refused is written down.
const LONGEST_LINE: usize = 1024;

/// The longest target that hyper takes; it refuses a longer one by 414.
const LONGEST_TARGET: usize = 65_534;

/// What is told to who takes too long to say what they want.
const TOO_SLOW: &[u8] =
    b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";

/// What the requests of a connection have in common.
pub(super) struct Line {
    pub home: Rc<Home>,
    pub peer: Rc<Peer>,
    pub tally: Rc<Tally>,
    pub plan: Rc<RefCell<Option<Plan>>>,
    /// Whether there is a socket without state of ours below.
    can_park: bool,
    /// Whether it speaks HTTP/1, which has one request at a time.
    can_take_over: bool,
    /// Requests under way.
    pub running: Cell<u32>,
    /// Requests since it was last parked.
    pub requests: Cell<u32>,
    /// Requests before.
    earlier: Cell<u32>,
    form: Cell<Form>,
    /// hyper has had no turn yet since the last request's body was given up.
    settles: Cell<bool>,
    /// The answer to the first request, where it is known already.
    first: RefCell<Option<Response<Body>>>,
    /// What is to be written down of the request under way, where there is one at a time.
    entry: RefCell<Option<Box<Entry>>>,
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
            settles: Cell::new(false),
            first: RefCell::new(None),
            entry: RefCell::new(None),
        }
    }
}

impl Line {
    /// What is to be counted and said of every response.
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
        // What is left of a body is not read, and no other request can follow it.
        let is_cut =
            matches!(response.status().as_u16(), 400 | 408 | 413 | 417) && self.tally.unused.get();
        if version < Version::HTTP_2 && (is_last || is_cut) {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        let class = usize::from(response.status().as_u16() / 100).clamp(1, 5);
        worker.counters.responses[class - 1].add(1);
        response.map(|body| Answer { body, running, bytes: 0, entry })
    }

    /// Writes down a request that was refused before it was understood: what has come of its first line.
    fn refused(&self, status: u16, read: &Bytes) {
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

    /// Forgets what was left of the last request's body when hyper has thrown it away, which it does with the turn after
    /// nobody has the body any more. Where it cannot, it ends the connection behind the response.
    fn settle_upload(&self, cx: &Context<'_>) {
        let tally = &self.tally;
        let is_over = self.running.get() == 0 && tally.uploads.get() == 0;
        if !is_over || !tally.has_upload.get() || tally.stuck.get() || tally.unflushed.get() {
            return;
        }
        if self.settles.replace(true) {
            self.settles.set(false);
            tally.has_upload.set(false);
            tally.unused.set(false);
        } else {
            cx.waker().wake_by_ref();
        }
    }

    /// Whether there is no request, nor anything of one that hyper has read since the one before.
    fn is_idle(&self) -> bool {
        let tally = &self.tally;
        let is_written = !tally.unflushed.get() && !tally.stuck.get();
        self.running.get() == 0 && !tally.unused.get() && is_written && tally.waits.get()
    }

    /// Requests so far.
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
        // What comes from here on is another request, and hyper's to read.
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

/// What is to be written down when it is over.
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
    /// Has so many bytes at most read of a file at a time.
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

/// What its response depends on, of a request.
fn form(request: &Request<Incoming>) -> Form {
    let is_1_0 = request.version() == Version::HTTP_10;
    let says = |token: &str| {
        let fields = request.headers().get_all(CONNECTION).into_iter();
        let mut tokens = fields.flat_map(|field| field.to_str().unwrap_or("").split(','));
        tokens.any(|said| said.trim().eq_ignore_ascii_case(token))
    };
    Form { is_1_0, closes: if is_1_0 { !says("keep-alive") } else { says("close") } }
}

/// The response of a request. What is known at once costs no future of its own.
pub(super) enum Serving {
    Now(Option<Response<Answer>>),
    Later { response: LocalFuture<Response<Body>>, rest: Option<Rest> },
}

/// What is there of a request when its response is.
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
    // Of one request at a time it is known what is still to be read of it.
    let is_alone = version < Version::HTTP_2;
    if line.can_park {
        line.form.set(form(&request));
    }
    if is_alone {
        line.settles.set(false);
        line.tally.has_upload.set(!is_empty);
        line.tally.unused.set(!is_empty);
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

/// Why a connection leaves hyper.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// It is over, or broken.
    Closed,
    /// The service has taken it over.
    TakenOver,
    /// Its request waits without a task.
    Waits,
    /// Nothing happens on it.
    Idle,
    /// A request's head did not come in time.
    TooSlow,
    /// The client does not read.
    Stalled,
}

/// What a connection's timer has seen.
pub(super) struct Clock {
    moved: u32,
    /// What was written when the connection was last seen not to be stuck, or to write, and when that was.
    written: u32,
    unstuck: Instant,
    requests: u32,
    /// When something was last seen to have happened, give or take a tick.
    since: Instant,
    /// When the head that is being read was first seen.
    head: Option<Instant>,
}

impl Clock {
    pub fn new(line: &Line) -> Clock {
        let (moved, requests) = (line.tally.moved.get(), line.requests.get());
        let (written, now) = (line.tally.written.get(), Instant::now());
        Clock { moved, written, unstuck: now, requests, since: now, head: None }
    }

    /// Looks what has happened since the last time.
    pub fn tick(&mut self, line: &Line, now: Instant) -> Option<End> {
        let timeouts = line.home.worker.timeouts.get();
        let tally = &line.tally;
        if (tally.moved.get(), line.requests.get()) != (self.moved, self.requests) {
            if line.requests.get() != self.requests {
                self.head = None;
            }
            (self.moved, self.requests) = (tally.moved.get(), line.requests.get());
            self.since = now;
        }
        let quiet = now.saturating_duration_since(self.since);
        if !tally.stuck.get() || tally.written.get() != self.written {
            (self.written, self.unstuck) = (tally.written.get(), now);
        }
        // A client that goes on sending and does not read is no better than one that does neither.
        if now.saturating_duration_since(self.unstuck) >= timeouts.body {
            return Some(End::Stalled);
        }
        if line.running.get() > 0 || tally.stuck.get() {
            // Who waits for an answer in vain may have gone.
            tally.doubted.set(!quiet.is_zero());
            self.head = None;
            return None;
        }
        if tally.unused.get() || tally.unflushed.get() {
            let head = *self.head.get_or_insert(now);
            let took = now.saturating_duration_since(head);
            return (took >= timeouts.header).then_some(End::TooSlow);
        }
        self.head = None;
        let limit = limit_of_idleness(line);
        if line.can_park && quiet >= timeouts.park && tally.waits.get() {
            return Some(End::Idle);
        }
        (quiet >= limit).then_some(End::Closed)
    }
}

/// For how long nothing may happen now.
fn limit_of_idleness(line: &Line) -> Duration {
    let timeouts = line.home.worker.timeouts.get();
    if line.requests.get() == 0 { timeouts.header } else { timeouts.idle }
}

/// What a connection had before it was given a task.
#[derive(Default)]
pub(super) struct Past {
    /// What was read and not used.
    pub before: Bytes,
    /// Requests so far.
    pub requests: u32,
    /// The client has said something, which is to be answered even if the server is about to end.
    pub speaks: bool,
    /// The answer to the first request that comes, and what is to be written down with it.
    pub first: Option<(Response<Body>, Option<Box<Entry>>)>,
}

/// Speaks HTTP/1 with a client.
pub(super) async fn serve(home: Rc<Home>, mut transport: Transport, peer: Rc<Peer>, past: Past) {
    let Past { mut before, requests, speaks, first } = past;
    let working = home.worker.begin();
    let can_park = matches!(transport, Transport::Plain(_));
    let line = Rc::new(Line::new(home.clone(), peer, (can_park, true)));
    line.earlier.set(requests);
    if let Some((response, entry)) = first {
        line.first.replace(Some(response));
        line.entry.replace(entry);
    }
    loop {
        line.tally.unused.set(!before.is_empty());
        let service = {
            let line = line.clone();
            // hyper can give back only what can be moved, as this is.
            service_fn(move |request| serve_one(&line, request))
        };
        let io = Watched { transport, before, tally: line.tally.clone() };
        let mut connection = home.http1.serve_connection(io, service);
        let mut clock = Clock::new(&line);
        let period = home.worker.tick();
        let mut timer = pin!(sleep(period));
        let mut refusal = None;
        let end = poll_fn(|cx| {
            if let Poll::Ready(outcome) = connection.poll_without_shutdown(cx) {
                let taken = matches!(*line.plan.borrow(), Some(Plan::TakeOver(_)));
                if let Err(error) = &outcome {
                    home.worker.counters.broken.add(1);
                    // hyper has answered it.
                    refusal = error.is_parse().then(|| error.is_parse_too_large());
                }
                return Poll::Ready(if outcome.is_ok() && taken {
                    End::TakenOver
                } else {
                    End::Closed
                });
            }
            working.remember(cx.waker());
            line.settle_upload(cx);
            let tally = &line.tally;
            let waits = matches!(*line.plan.borrow(), Some(Plan::Wait(_)));
            // A request that can wait was read to its end, and hyper gives back what follows it.
            if waits && !tally.unflushed.get() && !tally.stuck.get() {
                return Poll::Ready(End::Waits);
            }
            // A request of which something has come is answered before the end, and its response says that it is the
            // last one. hyper's own way to end gracefully would throw the beginning of a head away.
            let is_awaited = speaks && line.requests() == requests;
            if home.worker.is_draining() && !is_awaited && line.is_idle() {
                return Poll::Ready(End::Idle);
            }
            if home.worker.is_resting() {
                let now = Instant::now();
                // The first look notes what has moved since the last.
                let end = clock.tick(&line, now).or_else(|| clock.tick(&line, now));
                if let Some(end) = end {
                    return Poll::Ready(end);
                }
            }
            while timer.as_mut().poll(cx).is_ready() {
                let now = Instant::now();
                if let Some(end) = clock.tick(&line, now) {
                    return Poll::Ready(end);
                }
                timer.as_mut().get_mut().reset(now + period);
            }
            Poll::Pending
        })
        .await;
        let parts = connection.into_parts();
        let Watched { transport: below, before: rest, .. } = parts.io;
        let read = joined(parts.read_buf, rest);
        if let Some(is_too_large) = refusal {
            line.refused(status_of_refusal(is_too_large, &read), &read);
        }
        match (end, below) {
            (End::TakenOver, below) => {
                if let Some(Plan::TakeOver(then)) = line.plan.take() {
                    // The task of the connection goes on as that of the other protocol.
                    drop(parts.service);
                    then(below, read).await;
                }
                return;
            }
            (End::Waits, Transport::Plain(plain)) => {
                let Some(Plan::Wait(then)) = line.plan.take() else { return };
                let (socket, ahead) = plain.into_parts();
                let before = joined(read, ahead.into());
                let before = (!before.is_empty()).then(|| Box::new(before));
                let note = line.entry.take().map(|entry| entry as Box<dyn Any>);
                let (form, requests) = (line.form.get(), line.requests());
                let resume = Some(Resume { by: home, form, before, requests, note });
                let peer = line.peer.clone();
                then(Waiting { parked: Parked { socket, peer, token: 0, resume } });
                return;
            }
            (End::Idle, Transport::Plain(plain)) if read.is_empty() => {
                let (socket, ahead) = plain.into_parts();
                if ahead.is_empty() {
                    let quiet = clock.since.elapsed();
                    let limit = limit_of_idleness(&line).saturating_sub(quiet);
                    let peer = line.peer.clone();
                    let token = u64::from(line.requests());
                    home.park(Parked { socket, peer, token, resume: None }, limit);
                    return;
                }
                let Ok(plain) = Plain::new(socket) else { return };
                transport = Transport::Plain(plain);
                before = ahead.into();
            }
            // What is encrypted is not parked: the server is about to end.
            (End::Idle, below) if read.is_empty() => return close(below, &line, &working).await,
            (End::Idle, below) => {
                transport = below;
                before = read;
            }
            (End::TooSlow, below) => {
                home.worker.counters.timed_out.add(1);
                line.refused(408, &read);
                return too_slow(below, &home, &working).await;
            }
            (End::Stalled, _) => return home.worker.counters.timed_out.add(1),
            (End::Closed | End::Waits, below) => return close(below, &line, &working).await,
        }
    }
}

/// The status by which hyper has refused a head.
fn status_of_refusal(is_too_large: bool, read: &[u8]) -> u16 {
    let target = read.split(|&byte| byte == b' ').nth(1);
    match (is_too_large, target) {
        (false, _) => 400,
        (true, Some(target)) if target.len() > LONGEST_TARGET => 414,
        (true, _) => 431,
    }
}

/// One after the other, without a copy where one of them is empty.
fn joined(first: Bytes, second: Bytes) -> Bytes {
    if first.is_empty() {
        return second;
    }
    if second.is_empty() {
        return first;
    }
    let mut all = BytesMut::with_capacity(first.len() + second.len());
    all.extend_from_slice(&first);
    all.extend_from_slice(&second);
    all.freeze()
}

async fn too_slow(mut transport: Transport, home: &Home, working: &Working) {
    // It may not be read either, so this is one try.
    let write = poll_fn(|cx| match Pin::new(&mut transport).poll_write(cx, TOO_SLOW) {
        Poll::Pending => Poll::Ready(Ok(0)),
        outcome => outcome,
    });
    let _ = write.await;
    linger(transport, home, working).await;
}

/// Closes a connection so that the last response arrives.
async fn close(mut transport: Transport, line: &Line, working: &Working) {
    if line.tally.unused.get() {
        linger(transport, &line.home, working).await;
    } else if let Transport::Tls(_) = transport {
        let closed = poll_fn(|cx| Pin::new(&mut transport).poll_close(cx));
        let _ = timeout(GOODBYE, closed).await;
    }
}

/// Heads of requests that have the same effect on their response as the ones that waited for it.
fn stand_in(form: Form) -> &'static [u8] {
    match form {
        Form { is_1_0: false, closes: false } => b"GET / HTTP/1.1\r\nhost: a\r\n\r\n",
        Form { is_1_0: false, closes: true } => {
            b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"
        }
        Form { is_1_0: true, closes: false } => b"GET / HTTP/1.0\r\nconnection: keep-alive\r\n\r\n",
        Form { is_1_0: true, closes: true } => b"GET / HTTP/1.0\r\n\r\n",
    }
}

impl Resumes for Home {
    /// hyper is given a request like the one that was taken from it, and the response at once.
    fn answer(self: Rc<Home>, parked: Parked, resume: Resume, response: Response<Body>) {
        let Resume { form, before, note, requests, .. } = resume;
        let Parked { socket, peer, .. } = parked;
        let Ok(plain) = Plain::new(socket) else { return };
        let head = Bytes::from_static(stand_in(form));
        let before = joined(head, before.map_or_else(Bytes::new, |before| *before));
        let transport = Transport::Plain(plain);
        let first = Some((response, note.and_then(|note| note.downcast().ok())));
        let past = Past { before, requests, speaks: false, first };
        superpoll_rt::spawn(serve(self, transport, peer, past)).detach();
    }
}
