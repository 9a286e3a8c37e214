//! A connection of HTTP/1 whose requests bypass hyper as long as they are plainly regular, and
//! proxied or for files in memory.
//!
//! The connection's state, its limits of time and its log are those of the way through hyper; see
//! `answer` and `clock`. [`upstream::lane`](superpoll_http::upstream::lane) has the requests.

use std::future::{Future, poll_fn};
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_io::AsyncRead;
use http::{Method, Response, Version};
use superpoll_http::answers::Additions;
use superpoll_http::body::Body;
use superpoll_http::buffer::{ReadBuffer, WriteBuffer};
use superpoll_http::files::Representation;
use superpoll_http::log::{BrokenBy, Entry};
use superpoll_http::parking_lot::Note;
use superpoll_http::rules::{Counted, user_of};
use superpoll_http::telemetry::durations::RequestTimer;
use superpoll_http::transport::Transport;
use superpoll_http::upstream::Forwarder;
use superpoll_http::upstream::lane::{
    ClientFacts, LimitTimer, Parsed, Passed, Progress, Sent, parse, pass_file,
};
use superpoll_http1::{After, FieldValue, Framing, Room};
use superpoll_rt::time::{Sleep, sleep};

use super::answer::{ConnectionState, Running, lane_entry};
use super::clock::ExitReason;
use super::router::{LaneHandler, LaneRoute};
use super::watched::Watched;

/// How long the lane waits for the rest of a request's body. hyper need not have all of it before
/// the server has some.
const BODY_WAIT: Duration = Duration::from_millis(100);

/// After so many requests in a row that hyper had to answer, a connection stays with hyper: the way
/// there and back costs more than the lane saves.
pub(super) const MOST_MISSES: u32 = 4;

/// The reason for which a connection leaves the lane.
pub(super) enum LaneEnd {
    /// hyper continues with it.
    Irregular,
    /// hyper answers the request that was taken, by this response.
    Answered { response: Response<Body>, note: Note, is_head: bool, closes: bool },
    /// The connection ends, or is parked.
    Exit(ExitReason),
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

/// Serves a connection until a request is not for the lane, or `check` ends it. The bytes that were
/// not used are in `io` then.
pub(super) async fn run(
    state: &Rc<ConnectionState>,
    io: &mut Watched,
    mut check: impl FnMut(&mut Context<'_>) -> Option<ExitReason>,
) -> LaneEnd {
    let facts = ClientFacts::from_peer(&state.peer);
    let counters = &state.context.worker.counters;
    let (mut read, mut timer) = (ReadBuffer::default(), LimitTimer::default());
    let end = loop {
        let taken = match next(state, io, &mut read, &facts, &mut check).await {
            Ok(taken) => taken,
            Err(end) => break end,
        };
        let Taken { work, additions, begun, entry, method, closes, len, counted, client } = taken;
        let progress = Progress { entry: entry.clone(), ..Progress::default() };
        let running = Running::again(state);
        let is_last = || closes || state.is_last(state.requests().wrapping_add(1));
        progress.is_last.set(is_last());
        let mut aborts = false;
        if let Work::Proxy(forwarder, sent) = &work
            && forwarder.aborts
        {
            aborts = true;
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
                        forwarder.pass_on(way, io, client, &mut timer).await
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
                // hyper counts it.
                counted.into_iter().for_each(Counted::give_back);
                break LaneEnd::Irregular;
            }
            Ok(Passed::Answered(response)) => {
                begun.answered(response.status().as_u16());
                let note = Note { entry, trace: additions.trace.clone() };
                let response = additions.apply_to(response);
                read.consume(len);
                state.aborts_first.set(aborts);
                break LaneEnd::Answered { response, note, is_head, closes };
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
            break LaneEnd::Exit(reason);
        }
        state.requests.set(state.requests.get().wrapping_add(1));
        match is_whole {
            true => {
                counters.lane.add(1);
                state.lane_misses.set(0);
            }
            false => counters.broken.add(1),
        }
        if !is_whole || progress.says_close.get() {
            state.io_activity.unused.set(!read.is_empty() || !io.before.is_empty());
            break LaneEnd::Exit(ExitReason::Closed);
        }
    };
    if matches!(end, LaneEnd::Irregular | LaneEnd::Answered { .. }) {
        state.lane_misses.set(state.lane_misses.get() + 1);
    }
    // What hyper has read of these counts as it reads them again.
    state.io_activity.arrived.set(0);
    if !read.is_empty() {
        let mut all = Vec::with_capacity(read.bytes().len() + io.before.len());
        all.extend_from_slice(read.bytes());
        all.extend_from_slice(&io.before);
        io.before = Bytes::from(all);
    }
    end
}

/// Waits for a request.
async fn next(
    state: &Rc<ConnectionState>,
    io: &mut Watched,
    read: &mut ReadBuffer,
    facts: &ClientFacts,
    check: &mut impl FnMut(&mut Context<'_>) -> Option<ExitReason>,
) -> Result<Taken, LaneEnd> {
    state.io_activity.unused.set(!read.is_empty() || !io.before.is_empty());
    let mut has_new = !read.is_empty();
    // For bodies only, which come later than their heads.
    let mut limit: Option<Pin<Box<Sleep>>> = None;
    poll_fn(|cx| {
        loop {
            if has_new {
                has_new = false;
                match take(state, read, facts) {
                    Take::Taken(taken) => return Poll::Ready(Ok(taken)),
                    Take::Irregular => return Poll::Ready(Err(LaneEnd::Irregular)),
                    Take::NeedsHead => {}
                    Take::NeedsBody => {
                        limit.get_or_insert_with(|| Box::pin(sleep(BODY_WAIT)));
                    }
                }
            }
            match read.fill(|room| AsyncRead::poll_read(Pin::new(&mut *io), cx, room)) {
                Poll::Ready(Ok(0)) | Poll::Ready(Err(_)) => {
                    let reason = match read.is_empty() {
                        true => ExitReason::Closed,
                        // hyper sees the end as well.
                        false => return Poll::Ready(Err(LaneEnd::Irregular)),
                    };
                    return Poll::Ready(Err(LaneEnd::Exit(reason)));
                }
                Poll::Ready(Ok(_)) => has_new = true,
                Poll::Pending => break,
            }
        }
        if limit.as_mut().is_some_and(|limit| limit.as_mut().poll(cx).is_ready()) {
            return Poll::Ready(Err(LaneEnd::Irregular));
        }
        if state.io_activity.unflushed.get() {
            let _ = hyper::rt::Write::poll_flush(Pin::new(&mut *io), cx);
        }
        check(cx).map_or(Poll::Pending, |reason| Poll::Ready(Err(LaneEnd::Exit(reason))))
    })
    .await
}

/// The outcome of reading a request.
#[expect(clippy::large_enum_variant, reason = "each is moved once, and most are the large one")]
enum Take {
    Taken(Taken),
    NeedsHead,
    /// The head is there, and not all of the body.
    NeedsBody,
    Irregular,
}

/// Takes the request at the beginning of the bytes, if it is for the lane.
fn take(state: &ConnectionState, read: &ReadBuffer, facts: &ClientFacts) -> Take {
    let mut names = WriteBuffer::default();
    let mut room = Room::new(&mut names.0);
    let (bytes, most) = (read.bytes(), state.context.header_bytes as usize);
    let head = match parse(bytes, most, &mut room) {
        Parsed::Regular(head) => head,
        Parsed::Partial => return Take::NeedsHead,
        Parsed::Irregular => return Take::Irregular,
    };
    let worker = &state.context.worker;
    let router = worker.router();
    let values = |name: &str| {
        let all = head.fields.values(name).map(FieldValue::as_bytes);
        all.collect::<Vec<_>>().into_iter()
    };
    let peer = router.trusted_proxies().peer_of(&state.peer, values);
    let route = router.lane_for(&head, &peer, &state.context.address);
    let Some(LaneRoute { handler, mut additions, durations, counting, has_user }) = route else {
        return Take::Irregular;
    };
    let client = peer.client.map(|client| client.ip());
    if let Some(rules) = router.tracing() {
        // The peer of the connection has sent the id.
        let sender = state.peer.client.map(|client| client.ip());
        let trace = rules.begin(sender, Version::HTTP_11, values);
        if trace.is_loop() {
            // hyper refuses it, unless it is for a file.
            return Take::Irregular;
        }
        additions.trace = Some(trace);
    }
    let (work, body) = match handler {
        // A body that nobody reads would be taken for the next request.
        LaneHandler::File(_) if !matches!(head.framing, Framing::None | Framing::Length(0)) => {
            return Take::Irregular;
        }
        LaneHandler::File(file) => (Work::File(file), 0),
        LaneHandler::Proxy(forwarder, most) => {
            let most = most.unwrap_or_else(|| worker.limits.get().body_bytes);
            let behind = (&bytes[head.len..], most);
            let trace = additions.trace.as_deref();
            let about = (facts, peer.is_of_trusted_proxy());
            match forwarder.prepare(&head, behind, about, &state.io_activity, trace) {
                Parsed::Regular((sent, body)) => (Work::Proxy(forwarder, sent), body),
                Parsed::Partial if !read.is_full() => return Take::NeedsBody,
                _ => return Take::Irregular,
            }
        }
    };
    let counted = match counting.map(|rules| rules.count(client, values)) {
        None => None,
        Some(Some(counted)) => Some(counted),
        // hyper refuses it.
        Some(None) => return Take::Irregular,
    };
    state.io_activity.unused.set(false);
    state.io_activity.has_upload.set(false);
    state.io_activity.given_up.set(false);
    state.io_activity.arrived.set(0);
    let begun = RequestTimer::begin(&durations);
    let entry = worker.access_log().map(|access_log| lane_entry(access_log, state, &peer, &head));
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
    Take::Taken(Taken { work, additions, begun, entry, method, closes, len, counted, client })
}
