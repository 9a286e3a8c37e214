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
//!     |  |   |   +------------> LANE ----+ this server has to answer
//!     |  |   +------------------/        |
//!     |  +------- RESPONSE <-------------+
//!     |              ^
//!     +--------------+ all others
//! ```

use std::future::{Future, poll_fn};
use std::net::IpAddr;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll};

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
use superpoll_http::rules::user_of;
use superpoll_http::telemetry::durations::RequestTimer;
use superpoll_http::transport::Transport;
use superpoll_http::upload::{RequestBody, Upload};
use superpoll_http::upstream::Forwarder;
use superpoll_http::upstream::lane::{
    ClientFacts, LimitTimer, Passed, Progress, Sent, is_plain, pass_file,
};
use superpoll_http1::{
    After, Asked, FieldValue, Framing, Limits, Refusal, RequestHead, Room, Version as Http1Version,
    has_end, request,
};

use super::answer::{ConnectionState, Running, Serving, encoded, lane_entry, serve_one};
use super::arriving::{ArrivingBody, Session, poll_read};
use super::clock::ExitReason;
use super::respond::{ResponseForm, refuse, respond};
use super::router::{LaneHandler, LaneRoute};
use super::watched::Watched;

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
    /// The body that has not come with the head.
    arriving: ArrivingBody,
    /// The address of the client, which need not be that of the connection.
    client: Option<IpAddr>,
}

/// The way to an answer.
enum Work {
    Proxy(Rc<Forwarder>, Sent),
    File(Rc<Representation>, Bytes),
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
    respond_now(state, stream, (response, note, form), ArrivingBody::none(), check).await
}

/// Answers a request whose response is known.
async fn respond_now(
    state: &Rc<ConnectionState>,
    stream: (&mut Watched, &mut ReadBuffer),
    (response, note, form): (Response<Body>, Note, ResponseForm),
    arriving: ArrivingBody,
    check: &mut impl FnMut(&mut Context<'_>) -> Option<ExitReason>,
) -> Result<(), ExitReason> {
    state.entry.replace(note.entry);
    state.trace.replace(note.trace);
    let response = state.finish(Running::new(state), Note::default(), response);
    let serving = Serving::Now(Some(response));
    // Rare, and kept out of the future that each connection has.
    Box::pin(respond(state, stream, serving, arriving, form, check)).await
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
    let mut misses = 0_u32;
    loop {
        // Looking for the lane in vain costs a twentieth of a request.
        let is_tried = misses < MOST_MISSES || misses.is_multiple_of(MOST_MISSES);
        let next = next(state, (io, read), (&facts, is_tried), check).await;
        misses = match &next {
            Ok(NextRequest::Handler { .. }) => misses.wrapping_add(1),
            _ => 0,
        };
        let ended = match next {
            Ok(NextRequest::Lane(taken)) => pass(state, (io, read), taken, &mut timer, check).await,
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

/// Answers a request by the lane. Returns the reason for which no other can follow, if there is one.
async fn pass(
    state: &Rc<ConnectionState>,
    (io, read): (&mut Watched, &mut ReadBuffer),
    taken: Taken,
    timer: &mut LimitTimer,
    check: &mut impl FnMut(&mut Context<'_>) -> Option<ExitReason>,
) -> Result<(), ExitReason> {
    let (activity, counters) = (&state.io_activity, &state.context.worker.counters);
    let Taken { mut work, additions, begun, entry, method, closes, mut arriving, client } = taken;
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
    activity.has_upload.set(arriving.continues());
    let is_head = method == Method::HEAD;
    let passed = {
        // Moved once, since it is large.
        let mut answering = pin!(async {
            match &mut work {
                Work::Proxy(forwarder, sent) => {
                    let mut session = Session { io, read, arriving: &mut arriving };
                    let to = (&additions, &progress);
                    forwarder.pass_on(sent, to, &mut session, client, timer).await
                }
                Work::File(file, bytes) => {
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
    // The body is given up with it, unless it is over.
    drop((work, running));
    activity.has_upload.set(false);
    let (is_whole, exit) = match passed {
        Ok(Passed::Whole) => (true, None),
        Ok(Passed::Cut) => (false, None),
        Err(reason) => (false, Some(reason)),
        Ok(Passed::Answered(response)) => {
            begun.answered(response.status().as_u16());
            let note = Note { entry, trace: additions.trace.clone() };
            let response = additions.apply_to(response);
            let asked = Asked { is_head, ..Asked::default() };
            let (version, takes_trailers) = (Http1Version::Http11, false);
            let form = ResponseForm { version, asked, closes, takes_trailers };
            return respond_now(state, (io, read), (response, note, form), arriving, check).await;
        }
    };
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
    if !arriving.is_over() {
        poll_fn(|cx| Poll::Ready(arriving.drop_rest(cx, io, read))).await;
    }
    let is_left = !arriving.is_over() || !read.is_empty() || !io.before.is_empty();
    if let Some(reason) = exit {
        activity.unused.set(is_left);
        return Err(reason);
    }
    state.requests.set(state.requests.get().wrapping_add(1));
    match is_whole {
        true => counters.lane.add(1),
        false => counters.broken.add(1),
    }
    if !is_whole || progress.says_close.get() || !arriving.is_over() {
        activity.unused.set(is_left);
        return Err(ExitReason::Closed);
    }
    Ok(())
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
    let (mut has_new, mut seen) = (!read.is_empty(), 0);
    poll_fn(|cx| {
        loop {
            // A head that comes in many pieces is not read again with each.
            let may_be_whole = seen == 0 || read.is_full() || has_end(read.bytes(), seen);
            if std::mem::take(&mut has_new) && may_be_whole {
                if let Some(request) = take(state, read, facts, may_pass) {
                    return Poll::Ready(Ok(request));
                }
                seen = read.bytes().len();
                read.make_room(most);
            }
            match poll_read(cx, io, read) {
                Poll::Ready(Ok(1..)) => has_new = true,
                Poll::Ready(_) => {
                    if !read.is_empty() {
                        state.context.worker.counters.broken.add(1);
                    }
                    return Poll::Ready(Err(ExitReason::Closed));
                }
                Poll::Pending => break,
            }
        }
        if state.io_activity.unflushed.get() {
            let _ = io.poll_flush_io(cx);
        }
        check(cx).map_or(Poll::Pending, |reason| Poll::Ready(Err(reason)))
    })
    .await
}

/// Takes the request at the beginning of the bytes, and leaves the part of its body there that has
/// not come whole; `None` if more of the head is needed.
fn take(
    state: &ConnectionState,
    read: &mut ReadBuffer,
    facts: &ClientFacts,
    may_pass: bool,
) -> Option<NextRequest> {
    let mut names = WriteBuffer::default();
    let mut room = Room::new(&mut names.0);
    let (bytes, most) = (read.bytes(), state.context.header_bytes as usize);
    let target = most.min(LONGEST_TARGET);
    let limits = Limits { head: most, target, ..Limits::DEFAULT };
    let head = match request(bytes, &limits, &mut room) {
        Ok(head) => head?,
        Err(why) => return Some(NextRequest::Refused(why)),
    };
    if may_pass
        && state.can_park
        && state.has_lane()
        && is_plain(&head)
        && let Some((mut taken, len)) = take_for_lane(state, bytes, &head, facts)
    {
        read.consume(len);
        taken.arriving.offer(read);
        return Some(NextRequest::Lane(taken));
    }
    let len = head.len;
    let taken = for_handler(state, bytes, &head);
    if !matches!(taken, NextRequest::Refused(_)) {
        read.consume(len);
    }
    Some(taken)
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

/// Takes a plain request, if its route has the lane. Returns the length of its head, and of its body
/// if that has come whole.
fn take_for_lane(
    state: &ConnectionState,
    bytes: &[u8],
    head: &RequestHead<'_>,
    facts: &ClientFacts,
) -> Option<(Taken, usize)> {
    let worker = &state.context.worker;
    let router = worker.router();
    let values = |name: &str| {
        let all = head.fields.values(name).map(FieldValue::as_bytes);
        all.collect::<Vec<_>>().into_iter()
    };
    let peer = router.trusted_proxies().peer_of(&state.peer, values);
    let route = router.lane_for(head, &peer, &state.context.address)?;
    let LaneRoute { handler, mut additions, durations, counting, has_user } = route;
    let client = peer.client.map(|client| client.ip());
    if let Some(rules) = router.tracing() {
        // The peer of the connection has sent the id.
        let sender = state.peer.client.map(|client| client.ip());
        let trace = rules.begin(sender, Version::HTTP_11, values);
        if trace.is_loop() {
            // The handler's way refuses it, unless it is for a file.
            return None;
        }
        additions.trace = Some(trace);
    }
    let (mut work, body, expected) = match handler {
        // A body that nobody reads would be taken for the next request.
        LaneHandler::File(_) if !matches!(head.framing, Framing::None | Framing::Length(0)) => {
            return None;
        }
        LaneHandler::File(file) => {
            let bytes = file.in_memory()?.clone();
            (Work::File(file, bytes), 0, None)
        }
        LaneHandler::Proxy(forwarder, most) => {
            let most = most.unwrap_or_else(|| worker.limits.get().body_bytes);
            let behind = (&bytes[head.len..], most);
            let trace = additions.trace.as_deref();
            let about = (facts, peer.is_of_trusted_proxy());
            // The handler's way refuses a body that is too large.
            let (sent, body) = forwarder.prepare(head, behind, about, &state.io_activity, trace)?;
            match body {
                Ok(len) => (Work::Proxy(forwarder, sent), len, None),
                Err(writer) => (Work::Proxy(forwarder, sent), 0, Some((writer, most))),
            }
        }
    };
    // The handler's way refuses it.
    counting.map_or(Some(()), |rules| rules.count(client, values).map(drop))?;
    state.io_activity.unused.set(false);
    let begun = RequestTimer::begin(&durations);
    let entry = worker.access_log().map(|access_log| lane_entry(access_log, state, &peer, head));
    if let Some(entry) = &entry {
        let user = has_user.then(|| user_of(values("authorization"))).flatten();
        entry.note(|record| {
            (record.route, record.user) = (begun.route().clone(), user);
            record.trace = additions.trace.clone();
            record.bytes_in = match &work {
                Work::Proxy(_, sent) => sent.body,
                Work::File(..) => 0,
            };
        });
    }
    let mut arriving = ArrivingBody::none();
    if let (Work::Proxy(_, sent), Some((writer, most))) = (&mut work, expected) {
        let (rest, body) = ArrivingBody::new(head);
        let upload = Upload::new(body, most, worker.timeouts.get().body);
        sent.expect(writer, upload.noted_in(entry.as_ref()));
        arriving = rest;
    }
    let closes = head.after == After::Closes;
    let (method, len) = (Method::from(head.method), head.len + body);
    Some((Taken { work, additions, begun, entry, method, closes, arriving, client }, len))
}
