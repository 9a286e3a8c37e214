//! The requests of a connection of HTTP/1, one after another.
//!
//! The codec reads a head where it lies in the buffer. A plain request that is proxied, or for a
//! file in memory, takes the lane ([`upstream::lane`](superpoll_http::upstream::lane)): its
//! response is written from it without a map of fields. All others go to their handlers, see
//! `respond`.
//!
//! ```text
//!                     refused
//!   NEXT REQUEST -----------------> its answer ----> closed
//!     |  ^   ^ \
//!     |  |   |  \ plain, and its route has the lane
//!     |  |   |   +------------> LANE ----+ nothing was answered
//!     |  |   +------------------/        |
//!     |  +------- RESPONSE <-------------+
//!     |              ^
//!     +--------------+ all others
//! ```

use std::future::{Future, poll_fn};
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, Version};
use superpoll_http::answers::Additions;
use superpoll_http::body::Body;
use superpoll_http::buffer::{ReadBuffer, WriteBuffer};
use superpoll_http::files::Representation;
use superpoll_http::log::{BrokenBy, Entry};
use superpoll_http::message::to_request;
use superpoll_http::parking_lot::Note;
use superpoll_http::peer::RequestForm;
use superpoll_http::rules::{Counted, user_of};
use superpoll_http::telemetry::durations::RequestTimer;
use superpoll_http::transport::Transport;
use superpoll_http::upload::RequestBody;
use superpoll_http::upstream::Forwarder;
use superpoll_http::upstream::lane::{
    ClientFacts, LimitTimer, Parsed, Passed, Progress, Sent, is_plain, pass_file,
};
use superpoll_http1::{
    After, Asked, FieldValue, Framing, Limits, Refusal, RequestHead, Room, Version as Http1Version,
    has_end, request,
};
use superpoll_rt::time::{Sleep, sleep};

use super::answer::{ConnectionState, Running, Serving, encoded, lane_entry, serve_one};
use super::clock::ExitReason;
use super::respond::{ArrivingBody, ResponseForm, poll_read, refuse, respond};
use super::router::{LaneHandler, LaneRoute};
use super::watched::Watched;

/// How long the lane waits for the rest of a request's body. A handler need not have all of it
/// before the server has some.
const BODY_WAIT: Duration = Duration::from_millis(100);

/// After so many requests in a row that a handler had to answer, the lane is looked for in one of
/// so many.
const MOST_MISSES: u32 = 4;

/// The longest target; a longer one is refused with 414.
const LONGEST_TARGET: usize = 65_534;

/// A response that is known before its request is read, to one that was read before.
pub(super) struct KnownResponse {
    pub response: Response<Body>,
    pub note: Note,
    pub form: RequestForm,
}

/// A request that was read.
enum NextRequest {
    Lane(Taken),
    Handler {
        request: Request<RequestBody>,
        head_bytes: usize,
        body: ArrivingBody,
        form: ResponseForm,
    },
    Refused(Refusal),
}

/// A request that was taken.
struct Taken {
    work: Work,
    additions: Additions,
    begun: RequestTimer,
    entry: Option<Rc<Entry>>,
    method: Method,
    closes: bool,
    /// The bytes that it takes.
    len: usize,
    /// It was counted for the rates of its route.
    counted: Option<Counted>,
    /// The address of the client, which need not be that of the connection.
    client: Option<IpAddr>,
}

/// The way to an answer.
enum Work {
    Proxy(Rc<Forwarder>, Sent),
    File(Rc<Representation>),
}

/// Answers the requests of a connection until it ends, is parked, or waits. The bytes that were not
/// used are in `io` then.
pub(super) async fn run(
    state: &Rc<ConnectionState>,
    io: &mut Watched,
    first: Option<KnownResponse>,
    mut check: impl FnMut(&mut Context<'_>) -> Option<ExitReason>,
) -> ExitReason {
    let mut read = ReadBuffer::default();
    let reason = match first {
        None => None,
        Some(first) => answer_known(state, (io, &mut read), first, &mut check).await.err(),
    };
    let reason = match reason {
        Some(reason) => reason,
        None => answer_all(state, io, &mut read, &mut check).await,
    };
    if !read.is_empty() {
        let mut all = Vec::with_capacity(read.bytes().len() + io.before.len());
        all.extend_from_slice(read.bytes());
        all.extend_from_slice(&io.before);
        io.before = Bytes::from(all);
    }
    reason
}

/// Answers a request that was read before.
async fn answer_known(
    state: &Rc<ConnectionState>,
    stream: (&mut Watched, &mut ReadBuffer),
    KnownResponse { response, note, form }: KnownResponse,
    check: &mut impl FnMut(&mut Context<'_>) -> Option<ExitReason>,
) -> Result<(), ExitReason> {
    let version = match form.is_1_0 {
        true => Http1Version::Http10,
        false => Http1Version::Http11,
    };
    let (asked, takes_trailers) = (Asked::default(), false);
    let form = ResponseForm { version, asked, closes: form.closes, takes_trailers };
    respond_now(state, stream, (response, note, form), check).await
}

/// Answers a request without a body whose response is known.
async fn respond_now(
    state: &Rc<ConnectionState>,
    stream: (&mut Watched, &mut ReadBuffer),
    (response, note, form): (Response<Body>, Note, ResponseForm),
    check: &mut impl FnMut(&mut Context<'_>) -> Option<ExitReason>,
) -> Result<(), ExitReason> {
    state.entry.replace(note.entry);
    state.trace.replace(note.trace);
    let response = state.finish(Running::new(state), Note::default(), response);
    let serving = Serving::Now(Some(response));
    // Rare, and kept out of the future that each connection has.
    Box::pin(respond(state, stream, serving, ArrivingBody::none(), form, check)).await
}

/// Answers the requests that come.
async fn answer_all(
    state: &Rc<ConnectionState>,
    io: &mut Watched,
    read: &mut ReadBuffer,
    check: &mut impl FnMut(&mut Context<'_>) -> Option<ExitReason>,
) -> ExitReason {
    let facts = ClientFacts::from_peer(&state.peer);
    let mut timer = LimitTimer::default();
    let (mut may_pass, mut misses) = (true, 0_u32);
    loop {
        // Looking for the lane in vain costs a twentieth of a request.
        let is_tried = may_pass && (misses < MOST_MISSES || misses.is_multiple_of(MOST_MISSES));
        let next = next(state, (io, read), (&facts, is_tried), check).await;
        may_pass = true;
        misses = match &next {
            Ok(NextRequest::Handler { .. }) => misses.wrapping_add(1),
            _ => 0,
        };
        let ended = match next {
            Ok(NextRequest::Lane(taken)) => {
                let passed = pass(state, (io, read), taken, &mut timer, check).await;
                may_pass = !matches!(passed, Ok(false));
                passed.map(drop)
            }
            Ok(NextRequest::Handler { request, head_bytes, body, form }) => {
                let serving = serve_one(state, request, Some(head_bytes), None);
                // Connections of the lane have a smaller future.
                Box::pin(respond(state, (io, read), serving, body, form, check)).await
            }
            Ok(NextRequest::Refused(why)) => {
                state.context.worker.counters.broken.add(1);
                state.io_activity.unused.set(true);
                Err(Box::pin(refuse(state, (io, read), why, check)).await)
            }
            Err(reason) => Err(reason),
        };
        if let Err(reason) = ended {
            return reason;
        }
    }
}

/// Answers a request by the lane. `false` if nothing was answered, and a handler has to.
async fn pass(
    state: &Rc<ConnectionState>,
    (io, read): (&mut Watched, &mut ReadBuffer),
    taken: Taken,
    timer: &mut LimitTimer,
    check: &mut impl FnMut(&mut Context<'_>) -> Option<ExitReason>,
) -> Result<bool, ExitReason> {
    let counters = &state.context.worker.counters;
    let Taken { work, additions, begun, entry, method, closes, len, counted, client } = taken;
    let progress = Progress { entry: entry.clone(), ..Progress::default() };
    let running = Running::again(state);
    let is_last = || closes || state.is_last(state.requests().wrapping_add(1));
    progress.is_last.set(is_last());
    if let Work::Proxy(forwarder, sent) = &work
        && forwarder.aborts
    {
        let is_new = state.requests() == 0 && matches!(io.transport, Transport::Plain(_));
        sent.end_with_client(is_new);
    }
    let is_head = method == Method::HEAD;
    let passed = {
        // Moved once, since it is large.
        let mut answering = pin!(async {
            match &work {
                Work::Proxy(forwarder, sent) => {
                    let way = (sent, &additions, &progress);
                    forwarder.pass_on(way, io, client, timer).await
                }
                Work::File(file) => {
                    let Some(bytes) = file.in_memory() else { return Passed::Undone };
                    pass_file((file.lines(), bytes), is_head, &additions, &progress, io).await
                }
            }
        });
        let mut is_counted = false;
        poll_fn(|cx| {
            progress.is_last.set(is_last());
            let passed = answering.as_mut().poll(cx);
            if progress.status.get() > 0 && !is_counted {
                is_counted = true;
                counters.count_response(progress.status.get());
                begun.answered(progress.status.get());
                if let Some(entry) = &progress.entry {
                    entry.answered(progress.status.get());
                }
            }
            if let Poll::Ready(passed) = passed {
                return Poll::Ready(Ok(passed));
            }
            check(cx).map_or(Poll::Pending, |reason| Poll::Ready(Err(reason)))
        })
        .await
    };
    drop(running);
    let (is_whole, exit) = match passed {
        Ok(Passed::Whole) => (true, None),
        Ok(Passed::Cut) => (false, None),
        Err(reason) => (false, Some(reason)),
        Ok(Passed::Undone) => {
            entry.into_iter().for_each(|entry| entry.void());
            // The handler's way counts it.
            counted.into_iter().for_each(Counted::give_back);
            return Ok(false);
        }
        Ok(Passed::Answered(response)) => {
            begun.answered(response.status().as_u16());
            let note = Note { entry, trace: additions.trace.clone() };
            let response = additions.apply_to(response);
            read.consume(len);
            let asked = Asked { is_head, ..Asked::default() };
            let (version, takes_trailers) = (Http1Version::Http11, false);
            let form = ResponseForm { version, asked, closes, takes_trailers };
            respond_now(state, (io, read), (response, note, form), check).await?;
            return Ok(true);
        }
    };
    read.consume(len);
    // Without a response the entry says that the client has not waited.
    let (status, body) = (progress.status.get(), progress.body.get());
    if status > 0 {
        counters.body_bytes.add(body);
        if let Some(entry) = &entry {
            entry.note(|record| {
                record.bytes = body;
                record.is_whole = is_whole;
            });
        }
    }
    if let (Some(entry), true) = (&entry, state.is_closed_here.get()) {
        entry.note(|record| record.broken_by(BrokenBy::Server));
    }
    drop((entry, progress.entry));
    if let Some(reason) = exit {
        return Err(reason);
    }
    state.requests.set(state.requests.get().wrapping_add(1));
    match is_whole {
        true => counters.lane.add(1),
        false => counters.broken.add(1),
    }
    if !is_whole || progress.says_close.get() {
        state.io_activity.unused.set(!read.is_empty() || !io.before.is_empty());
        return Err(ExitReason::Closed);
    }
    Ok(true)
}

/// Waits for a request.
async fn next(
    state: &Rc<ConnectionState>,
    (io, read): (&mut Watched, &mut ReadBuffer),
    (facts, may_pass): (&ClientFacts, bool),
    check: &mut impl FnMut(&mut Context<'_>) -> Option<ExitReason>,
) -> Result<NextRequest, ExitReason> {
    state.io_activity.unused.set(!read.is_empty() || !io.before.is_empty());
    let most = state.context.header_bytes as usize;
    let (mut has_new, mut may_pass, mut seen) = (!read.is_empty(), may_pass, 0);
    // For bodies only, which come later than their heads.
    let mut limit: Option<Pin<Box<Sleep>>> = None;
    poll_fn(|cx| {
        loop {
            // A head that comes in many pieces is not read again with each.
            let may_be_whole = seen == 0 || read.is_full() || has_end(read.bytes(), seen);
            if std::mem::take(&mut has_new) && may_be_whole {
                match take(state, read, facts, may_pass) {
                    Take::Read(request) => return Poll::Ready(Ok(request)),
                    Take::NeedsHead => {
                        seen = read.bytes().len();
                        read.make_room(most);
                    }
                    Take::NeedsBody => {
                        limit.get_or_insert_with(|| Box::pin(sleep(BODY_WAIT)));
                    }
                }
            }
            match poll_read(cx, io, read) {
                Poll::Ready(Ok(1..)) => has_new = true,
                // The rest of a body does not come: the handler finds that out.
                Poll::Ready(_) if limit.is_some() && may_pass => {
                    (has_new, may_pass, seen) = (true, false, 0);
                }
                Poll::Ready(_) => {
                    if !read.is_empty() {
                        state.context.worker.counters.broken.add(1);
                    }
                    return Poll::Ready(Err(ExitReason::Closed));
                }
                Poll::Pending => break,
            }
        }
        if limit.as_mut().is_some_and(|limit| limit.as_mut().poll(cx).is_ready())
            && let Take::Read(request) = take(state, read, facts, false)
        {
            return Poll::Ready(Ok(request));
        }
        if state.io_activity.unflushed.get() {
            let _ = io.poll_flush_io(cx);
        }
        check(cx).map_or(Poll::Pending, |reason| Poll::Ready(Err(reason)))
    })
    .await
}

/// The outcome of reading a request.
#[expect(clippy::large_enum_variant, reason = "each is moved once, and most are the large one")]
enum Take {
    Read(NextRequest),
    NeedsHead,
    /// The head is there, and not all of the body.
    NeedsBody,
}

/// The outcome of reading a request for the lane.
#[expect(clippy::large_enum_variant, reason = "each is moved once, and most are the large one")]
enum LaneTake {
    Taken(Taken),
    NeedsBody,
    /// A handler answers it.
    Other,
}

/// Takes the request at the beginning of the bytes. One for a handler leaves its body there.
fn take(
    state: &ConnectionState,
    read: &mut ReadBuffer,
    facts: &ClientFacts,
    may_pass: bool,
) -> Take {
    let mut names = WriteBuffer::default();
    let mut room = Room::new(&mut names.0);
    let (bytes, most) = (read.bytes(), state.context.header_bytes as usize);
    let target = most.min(LONGEST_TARGET);
    let limits = Limits { head: most, target, ..Limits::DEFAULT };
    let head = match request(bytes, &limits, &mut room) {
        Ok(Some(head)) => head,
        Ok(None) => return Take::NeedsHead,
        Err(why) => return Take::Read(NextRequest::Refused(why)),
    };
    if may_pass && state.can_park && state.has_lane() && is_plain(&head) {
        match take_for_lane(state, read, &head, facts) {
            LaneTake::Taken(taken) => return Take::Read(NextRequest::Lane(taken)),
            LaneTake::NeedsBody => return Take::NeedsBody,
            LaneTake::Other => {}
        }
    }
    let len = head.len;
    let taken = for_handler(state, bytes, &head);
    if !matches!(taken, NextRequest::Refused(_)) {
        read.consume(len);
    }
    Take::Read(taken)
}

/// Returns a request as handlers get it.
fn for_handler(state: &ConnectionState, bytes: &[u8], head: &RequestHead<'_>) -> NextRequest {
    let form = ResponseForm::of_request(head);
    let is_1_0 = head.version == Http1Version::Http10;
    state.form.set(RequestForm { is_1_0, closes: form.closes, may_have_hsts: false });
    let (body, service_body) = ArrivingBody::new(head);
    let request = match to_request(head, &bytes[..head.len], service_body) {
        Ok(request) => request,
        Err(mut request) => match encoded(head.target.as_str()) {
            Some(uri) => {
                *request.uri_mut() = uri;
                *request
            }
            None => return NextRequest::Refused(Refusal::TargetTooLong),
        },
    };
    NextRequest::Handler { request, head_bytes: head.len, body, form }
}

/// Takes a plain request, if its route has the lane.
fn take_for_lane(
    state: &ConnectionState,
    read: &ReadBuffer,
    head: &RequestHead<'_>,
    facts: &ClientFacts,
) -> LaneTake {
    let bytes = read.bytes();
    let worker = &state.context.worker;
    let router = worker.router();
    let values = |name: &str| {
        let all = head.fields.values(name).map(FieldValue::as_bytes);
        all.collect::<Vec<_>>().into_iter()
    };
    let peer = router.trusted_proxies().peer_of(&state.peer, values);
    let route = router.lane_for(head, &peer, &state.context.address);
    let Some(LaneRoute { handler, mut additions, durations, counting, has_user }) = route else {
        return LaneTake::Other;
    };
    let client = peer.client.map(|client| client.ip());
    if let Some(rules) = router.tracing() {
        // The peer of the connection has sent the id.
        let sender = state.peer.client.map(|client| client.ip());
        let trace = rules.begin(sender, Version::HTTP_11, values);
        if trace.is_loop() {
            // The handler's way refuses it, unless it is for a file.
            return LaneTake::Other;
        }
        additions.trace = Some(trace);
    }
    let (work, body) = match handler {
        // A body that nobody reads would be taken for the next request.
        LaneHandler::File(_) if !matches!(head.framing, Framing::None | Framing::Length(0)) => {
            return LaneTake::Other;
        }
        LaneHandler::File(file) => (Work::File(file), 0),
        LaneHandler::Proxy(forwarder, most) => {
            let most = most.unwrap_or_else(|| worker.limits.get().body_bytes);
            let behind = (&bytes[head.len..], most);
            let trace = additions.trace.as_deref();
            let about = (facts, peer.is_of_trusted_proxy());
            match forwarder.prepare(head, behind, about, &state.io_activity, trace) {
                Parsed::Regular((sent, body)) => (Work::Proxy(forwarder, sent), body),
                Parsed::Partial if !read.is_full() => return LaneTake::NeedsBody,
                _ => return LaneTake::Other,
            }
        }
    };
    let counted = match counting.map(|rules| rules.count(client, values)) {
        None => None,
        Some(Some(counted)) => Some(counted),
        // The handler's way refuses it.
        Some(None) => return LaneTake::Other,
    };
    state.io_activity.unused.set(false);
    state.io_activity.has_upload.set(false);
    let begun = RequestTimer::begin(&durations);
    let entry = worker.access_log().map(|access_log| lane_entry(access_log, state, &peer, head));
    if let Some(entry) = &entry {
        let user = has_user.then(|| user_of(values("authorization"))).flatten();
        entry.note(|record| {
            (record.route, record.user) = (begun.route().clone(), user);
            record.trace = additions.trace.clone();
            record.bytes_in = match &work {
                Work::Proxy(_, sent) => sent.body,
                Work::File(_) => 0,
            };
        });
    }
    let closes = head.after == After::Closes;
    let (method, len) = (Method::from(head.method), head.len + body);
    LaneTake::Taken(Taken { work, additions, begun, entry, method, closes, len, counted, client })
}
