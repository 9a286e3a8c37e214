//! The requests of a connection of HTTP/1, one after another.
//!
//! The codec reads a head where it lies in the buffer, and the router finds the way to an answer by
//! it. A plain request that is proxied, or for a file in memory, is answered from there: its
//! response is written without a map of fields. All others go to their handlers, see `respond`.
//!
//! A client that knows that the server speaks HTTP/2 begins with the preface of that instead (RFC
//! 9113, section 3.3). The codec refuses the preface as a head of another version, so it is looked
//! for among refused heads only, and costs other requests nothing.
//!
//! ```text
//!                     refused
//!   NEXT REQUEST -----------------> its answer ----> closed
//!     |  ^   ^ \
//!     |  |   |  \ plain, and proxied or for a file
//!     |  |   |   +------------> DIRECT --+ this server has to answer
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
use http::{Response, StatusCode};
use superpoll_http::answers::Additions;
use superpoll_http::body::Body;
use superpoll_http::buffer::{ReadBuffer, WriteBuffer};
use superpoll_http::head::Head;
use superpoll_http::log::{BrokenBy, Entry};
use superpoll_http::message::to_request;
use superpoll_http::parking_lot::Note;
use superpoll_http::peer::RequestForm;
use superpoll_http::progress::{Passed, Progress};
use superpoll_http::ready::{self, Ready};
use superpoll_http::telemetry::durations::RequestTimer;
use superpoll_http::transport::Transport;
use superpoll_http::upstream::{ClientFacts, ClientHead, Forwarder, LimitTimer, ServerRequest};
use superpoll_http1::{
    Asked, Framing, Limits, Refusal, RequestHead, Room, Version as Http1Version, has_end, request,
};
use superpoll_http2::PREFACE;

use super::answer::{Begun, ConnectionState, Running, Serving, Source};
use super::arriving::{ArrivingBody, Session, poll_read};
use super::client_stream::ClientStream;
use super::clock::{ExitReason, Phase};
use super::respond::{ResponseForm, refuse, respond};
use super::router::Decision;

/// The longest target; a longer one is refused with 414.
pub(super) const LONGEST_TARGET: usize = 65_534;

/// A response that is known before its request is read, to one that was read before.
pub(super) struct KnownResponse {
    pub response: Response<Body>,
    pub note: Note,
    pub form: RequestForm,
}

/// A request that was read.
enum NextRequest {
    /// It is in its place.
    Direct,
    Handler(Box<Handled>),
    Refused(Refusal),
    /// It is the preface of HTTP/2.
    Preface,
    /// It is the first part of the preface, or else refused.
    PrefacePart(Refusal),
}

/// A request that a handler answers.
struct Handled {
    serving: Serving,
    arriving: ArrivingBody,
    form: ResponseForm,
}

/// A request that is answered from its head.
struct Direct {
    work: Work,
    additions: Additions,
    running: Running,
    timer: RequestTimer,
    entry: Option<Rc<Entry>>,
    form: ResponseForm,
    /// The body that has not come with the head.
    arriving: ArrivingBody,
    /// The address of the client, which need not be that of the connection.
    client: Option<IpAddr>,
}

/// The way to an answer.
enum Work {
    Proxy(Rc<Forwarder>, ServerRequest),
    Ready(Ready),
}

/// Answers the requests of a connection until it ends, is parked, or waits. The bytes that were not
/// used are in `io` then.
pub(super) async fn run(
    state: &Rc<ConnectionState>,
    io: &mut ClientStream,
    first: Option<KnownResponse>,
    mut check: impl FnMut(&mut Context<'_>, Phase) -> Option<ExitReason>,
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
    stream: (&mut ClientStream, &mut ReadBuffer),
    KnownResponse { response, note, form }: KnownResponse,
    check: &mut impl FnMut(&mut Context<'_>, Phase) -> Option<ExitReason>,
) -> Result<(), ExitReason> {
    let version = match form.is_1_0 {
        true => Http1Version::Http10,
        false => Http1Version::Http11,
    };
    let (asked, takes_trailers) = (Asked::default(), false);
    let form = ResponseForm { version, asked, closes: form.closes, takes_trailers };
    let known = (response, note, Running::new(state));
    respond_now(state, stream, known, (ArrivingBody::none(), form), check).await
}

/// Answers a request whose response is known.
async fn respond_now(
    state: &Rc<ConnectionState>,
    stream: (&mut ClientStream, &mut ReadBuffer),
    (response, note, running): (Response<Body>, Note, Running),
    (arriving, form): (ArrivingBody, ResponseForm),
    check: &mut impl FnMut(&mut Context<'_>, Phase) -> Option<ExitReason>,
) -> Result<(), ExitReason> {
    state.entry.replace(note.entry.clone());
    state.trace.replace(note.trace.clone());
    let response = state.finish(running, note, response);
    let serving = Serving::Now(Some(response));
    // Rare, and kept out of the future that each connection has.
    Box::pin(respond(state, stream, serving, arriving, form, check)).await
}

/// Answers the requests that come.
async fn answer_all(
    state: &Rc<ConnectionState>,
    io: &mut ClientStream,
    read: &mut ReadBuffer,
    check: &mut impl FnMut(&mut Context<'_>, Phase) -> Option<ExitReason>,
) -> ExitReason {
    let facts = ClientFacts::from_peer(&state.peer);
    let mut timer = LimitTimer::default();
    // It is large, and never moved.
    let mut direct = None;
    loop {
        let next = next(state, (io, read), (&facts, &mut direct), check).await;
        let ended = match next {
            Ok(NextRequest::Direct) => {
                pass(state, (io, read), (&mut direct, &mut timer), check).await
            }
            Ok(NextRequest::Handler(handled)) => {
                let Handled { serving, arriving, form } = *handled;
                // Connections of plain requests have a smaller future.
                Box::pin(respond(state, (io, read), serving, arriving, form, check)).await
            }
            Ok(NextRequest::Refused(why) | NextRequest::PrefacePart(why)) => {
                let counters = &state.context.worker.counters;
                counters.broken.add(1);
                counters.refused_heads.count(why);
                Err(Box::pin(refuse(state, (io, read), why, check)).await)
            }
            Ok(NextRequest::Preface) => Err(ExitReason::Http2),
            Err(reason) => Err(reason),
        };
        if let Err(reason) = ended {
            return reason;
        }
    }
}

/// Answers a request from its head. Returns the reason for which no other can follow, if there is
/// one.
async fn pass(
    state: &Rc<ConnectionState>,
    (io, read): (&mut ClientStream, &mut ReadBuffer),
    (place, timer): (&mut Option<Direct>, &mut LimitTimer),
    check: &mut impl FnMut(&mut Context<'_>, Phase) -> Option<ExitReason>,
) -> Result<(), ExitReason> {
    let counters = &state.context.worker.counters;
    let Some(direct) = place else { return Ok(()) };
    let Direct { work, additions, timer: begun, entry, form, arriving, client, .. } = direct;
    let (form, client) = (*form, *client);
    let progress = Progress { entry: entry.take(), ..Progress::default() };
    let is_last = || form.closes || state.is_last(state.requests());
    progress.is_last.set(is_last());
    if let Work::Proxy(forwarder, sent) = &*work
        && forwarder.aborts
    {
        let is_new = state.requests() == 1 && matches!(io.transport, Transport::Plain(_));
        sent.end_with_client(is_new);
    }
    io.expects_body = arriving.continues();
    let passed = {
        // Moved once, since it is large.
        let mut answering = pin!(async {
            match work {
                Work::Proxy(forwarder, sent) => {
                    let mut session = Session { io, read, arriving };
                    let to = (&*additions, &progress);
                    forwarder.pass_on(sent, to, &mut session, client, timer).await
                }
                Work::Ready(ready) => {
                    ready::pass_on(ready, (form.version, form.asked), additions, &progress, io)
                        .await
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
            check(cx, Phase::Request).map_or(Poll::Pending, |reason| Poll::Ready(Err(reason)))
        })
        .await
    };
    let is_status = matches!(work, Work::Ready(Ready::Status(_)));
    let (entry, mut arriving) = (progress.entry, std::mem::take(arriving));
    if let Ok(Passed::Answered(response)) = passed {
        begun.answered(response.status().as_u16());
        let Some(Direct { work, additions, running, .. }) = place.take() else { return Ok(()) };
        // The body is given up with it, unless it is over.
        drop(work);
        let note = Note { entry, trace: additions.trace.clone() };
        let known = (additions.apply_to(response), note, running);
        return respond_now(state, (io, read), known, (arriving, form), check).await;
    }
    // It is over, and so is its body.
    *place = None;
    let (is_whole, exit) = match passed {
        Ok(Passed::Whole) => (true, None),
        Ok(Passed::Cut | Passed::Answered(_)) => (false, None),
        Err(reason) => (false, Some(reason)),
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
    drop(entry);
    if !arriving.is_over() {
        arriving.end(io, read).await;
    }
    let is_followed = arriving.is_followed(io, read);
    if let Some(reason) = exit {
        return Err(reason.while_sending(is_followed));
    }
    match is_whole {
        true if is_status => {}
        true => counters.lane.add(1),
        false => counters.broken.add(1),
    }
    if !is_whole || progress.says_close.get() || !arriving.is_over() {
        return Err(ExitReason::Closed.while_sending(is_followed));
    }
    Ok(())
}

/// Waits for a request.
async fn next(
    state: &Rc<ConnectionState>,
    (io, read): (&mut ClientStream, &mut ReadBuffer),
    (facts, place): (&ClientFacts, &mut Option<Direct>),
    check: &mut impl FnMut(&mut Context<'_>, Phase) -> Option<ExitReason>,
) -> Result<NextRequest, ExitReason> {
    let most = state.context.header_bytes as usize;
    let (mut has_new, mut seen, mut part) = (!read.is_empty(), 0, None);
    poll_fn(|cx| {
        loop {
            // A head that comes in many pieces is not read again with each.
            let may_be_whole = seen == 0 || read.is_full() || has_end(read.bytes(), seen);
            if std::mem::take(&mut has_new) && may_be_whole {
                match take(state, read, facts, place) {
                    // Whatever follows it may be refused at once.
                    Some(NextRequest::PrefacePart(why)) => (seen, part) = (0, Some(why)),
                    Some(request) => return Poll::Ready(Ok(request)),
                    None => seen = read.bytes().len(),
                }
                read.make_room(most);
            }
            match poll_read(cx, io, read) {
                Poll::Ready(Ok(1..)) => has_new = true,
                Poll::Ready(outcome) => {
                    if let Some(why) = part {
                        return Poll::Ready(Ok(NextRequest::Refused(why)));
                    }
                    if !read.is_empty() {
                        state.context.worker.counters.broken.add(1);
                    }
                    // A broken stream between two requests has nothing left to say.
                    let is_sending = outcome.is_ok() || !read.is_empty();
                    return Poll::Ready(Err(ExitReason::Closed.while_sending(is_sending)));
                }
                Poll::Pending => break,
            }
        }
        let phase = match read.is_empty() && !io.has_more() {
            true => Phase::Idle { can_park: state.can_park && io.transport.is_quiet() },
            false => Phase::Head,
        };
        let exit = check(cx, phase).map(|reason| reason.while_sending(phase == Phase::Head));
        exit.map_or(Poll::Pending, |reason| Poll::Ready(Err(reason)))
    })
    .await
}

/// Whether the client may speak HTTP/2 from here on. An encrypted connection has agreed on another
/// protocol, and operators are served by HTTP/1 only.
fn speaks_http2(state: &ConnectionState) -> bool {
    let context = &state.context;
    state.requests() == 0 && !context.is_encrypted() && !context.is_admin
}

/// Takes the request at the beginning of the bytes, and leaves the part of its body there that has
/// not come whole; `None` if more of the head is needed.
fn take(
    state: &Rc<ConnectionState>,
    read: &mut ReadBuffer,
    facts: &ClientFacts,
    place: &mut Option<Direct>,
) -> Option<NextRequest> {
    let mut names = WriteBuffer::default();
    let mut room = Room::new(&mut names.0);
    let (bytes, most) = (read.bytes(), state.context.header_bytes as usize);
    let target = most.min(LONGEST_TARGET);
    let limits = Limits { head: most, target, ..Limits::DEFAULT };
    let head = match request(bytes, &limits, &mut room) {
        Ok(head) => head?,
        Err(_) if speaks_http2(state) && bytes.starts_with(PREFACE) => {
            return Some(NextRequest::Preface);
        }
        Err(why) if speaks_http2(state) && PREFACE.starts_with(bytes) => {
            return Some(NextRequest::PrefacePart(why));
        }
        Err(why) => return Some(NextRequest::Refused(why)),
    };
    let form = ResponseForm::of_request(&head);
    let is_1_0 = head.version == Http1Version::Http10;
    state.form.set(RequestForm { is_1_0, closes: form.closes, may_have_hsts: false });
    let begun = Begun::new(state, Head::from(&head), || head.len);
    let (taken, len) = match prepare(bytes, &head, facts, &begun) {
        Some((sent, arriving, len)) => {
            *place = Some(Direct::new(begun, sent, (arriving, form)));
            (NextRequest::Direct, len)
        }
        None => {
            let (arriving, body) = ArrivingBody::new(&head);
            let upload = begun.upload(body);
            let made = Source::Head(|| to_request(&head, &bytes[..head.len], upload));
            let interim = Some(&state.interim).filter(|_| !is_1_0);
            let serving = begun.serve(made, interim, None);
            (NextRequest::Handler(Box::new(Handled { serving, arriving, form })), head.len)
        }
    };
    read.consume(len);
    if let Some(direct) = place {
        direct.arriving.offer(read);
    }
    Some(taken)
}

/// Prepares a request that can be answered from its head: what its server gets, if it has one, the
/// body that has not come with the head, and the length of the head and of what has.
fn prepare(
    bytes: &[u8],
    head: &RequestHead<'_>,
    facts: &ClientFacts,
    begun: &Begun,
) -> Option<(Option<ServerRequest>, ArrivingBody, usize)> {
    if let Decision::Ready(ready) = &begun.routed.decision {
        let is_plain = ready.is_plain(&begun.routed.additions);
        // A body that nobody reads would be taken for the next request.
        let is_alone = matches!(head.framing, Framing::None | Framing::Length(0));
        return (is_plain && is_alone).then(|| (None, ArrivingBody::none(), head.len));
    }
    // The handler's way refuses a body that is too large.
    let (mut sent, body) = begun.prepare(ClientHead::from(head), &bytes[head.len..], facts)?;
    let (arriving, whole) = match body {
        Ok(whole) => {
            if let Some(entry) = &begun.entry {
                entry.note(|record| record.bytes_in = sent.body);
            }
            (ArrivingBody::none(), whole)
        }
        Err(writer) => {
            let (arriving, body) = ArrivingBody::new(head);
            sent.expect(writer, begun.upload(body));
            (arriving, 0)
        }
    };
    Some((Some(sent), arriving, head.len + whole))
}

impl Direct {
    fn new(
        begun: Begun,
        sent: Option<ServerRequest>,
        (arriving, form): (ArrivingBody, ResponseForm),
    ) -> Direct {
        let Begun { running, timer, entry, trace, peer, routed } = begun;
        let work = match (routed.decision, sent) {
            (Decision::Forward(forwarder, ..), Some(sent)) => Work::Proxy(forwarder, sent),
            (Decision::Ready(ready), _) => Work::Ready(ready),
            // No other one was prepared.
            _ => Work::Ready(StatusCode::INTERNAL_SERVER_ERROR.into()),
        };
        let additions = Additions { trace, ..routed.additions };
        let client = peer.client.map(|client| client.ip());
        Direct { work, additions, running, timer, entry, form, arriving, client }
    }
}
