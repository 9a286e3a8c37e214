//! A connection on which HTTP/1 is spoken, from its first byte until it is closed, parked or taken
//! over.
//!
//! hyper implements the protocol. This module and two modules next to it do the parts that hyper
//! leaves out: `clock` has the limits of time, and `answer` has the requests with their responses.
//!
//! A connection on which nothing happens for a while is taken from hyper and parked, see
//! [`park`](superpoll_http::parking_lot). [`Watched`] shows, by hyper's use of the transport,
//! whether hyper holds bytes of the connection. If hyper gives back the beginning of another
//! request, the connection continues with that instead.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_io::{AsyncRead, AsyncWrite};
use http::Response;
use hyper::service::service_fn;
use superpoll_http::admin::Protocol;
use superpoll_http::body::Body;
use superpoll_http::exchange::Plan;
use superpoll_http::log::Entry;
use superpoll_http::parked_stream::ParkedStream;
use superpoll_http::parking_lot::{
    Note, ParkedConnection, PendingRequest, Responder, WaitingRequest,
};
use superpoll_http::peer::Peer;
use superpoll_http::peer::RequestForm;
use superpoll_http::transport::Transport;
use superpoll_rt::time::{self, sleep, timeout, timeout_at};

use super::answer::{ConnectionState, serve_one};
use super::clock::{Clock, ExitReason, limit_of_idleness};
use super::lane::{self, LaneEnd, MOST_MISSES};
use super::linger::linger;
use super::listener_context::ListenerContext;
use super::watched::Watched;
use super::worker::ActiveConnection;

/// How long an encrypted connection may take to send its end.
const GOODBYE: Duration = Duration::from_secs(2);

/// The longest target that hyper accepts; it refuses a longer one by 414.
const LONGEST_TARGET: usize = 65_534;

/// Sent to a client whose request head does not arrive in time.
const TOO_SLOW: &[u8] =
    b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";

/// The state of a connection before it was given a task.
#[derive(Default)]
pub(super) struct InitialState {
    /// Bytes that were read and not used.
    pub before: Bytes,
    /// Requests so far.
    pub requests: u32,
    /// The client has sent bytes, which are answered even if the server is about to end.
    pub speaks: bool,
    /// The answer to the first request that comes, and the note about that request.
    pub first: Option<(Response<Body>, Note)>,
}

/// Speaks HTTP/1 with a client.
pub(super) async fn serve(
    context: Rc<ListenerContext>,
    mut transport: Transport,
    peer: Rc<Peer>,
    initial: InitialState,
) {
    let InitialState { mut before, requests, speaks, first } = initial;
    let active = context.worker.begin(&peer, Protocol::Http1);
    // A connection of the admin listener may be replaced at any time, as long as a task has it.
    let can_park = transport.can_park() && !context.is_admin;
    let state = Rc::new(ConnectionState::new(context.clone(), peer, (can_park, true)));
    state.earlier.set(requests);
    if let Some((response, note)) = first {
        state.first.replace(Some(response));
        state.entry.replace(note.entry);
        state.trace.replace(note.trace);
    }
    let mut answers_first = state.first.borrow().is_some();
    loop {
        let mut clock = Clock::new(&state);
        let period = context.worker.tick();
        let mut timer = pin!(sleep(period));
        let mut check = |cx: &mut Context<'_>| {
            if active.remember(cx.waker()) {
                state.is_closed_here.set(true);
                return Some(ExitReason::Closed);
            }
            // A request that has come in part is answered before the end, and its response says
            // that it is the last one. hyper's own graceful end would throw the beginning of a head
            // away.
            let is_awaited = speaks && state.requests() == requests;
            if context.worker.is_draining() && !is_awaited && state.is_idle() {
                return Some(ExitReason::Idle);
            }
            if context.worker.is_parking_at_once() {
                let now = time::now();
                // The first look notes the bytes that have moved since the last.
                let end = clock.tick(&state, now).or_else(|| clock.tick(&state, now));
                if end.is_some() {
                    return end;
                }
            }
            while timer.as_mut().poll(cx).is_ready() {
                let now = time::now();
                if let Some(end) = clock.tick(&state, now) {
                    return Some(end);
                }
                timer.as_mut().get_mut().reset(now + period);
            }
            None
        };
        let mut end = None;
        let may_pass = state.has_lane() && state.lane_misses.get() < MOST_MISSES;
        if can_park && !std::mem::take(&mut answers_first) && may_pass {
            let mut io = Watched { transport, before, io_activity: state.io_activity.clone() };
            // Most connections have no lane, and a smaller future.
            let mut passing = Box::pin(lane::run(&state, &mut io, &mut check));
            let ended = poll_fn(|cx| {
                state.io_activity.begin_turn();
                passing.as_mut().poll(cx)
            })
            .await;
            drop(passing);
            Watched { transport, before, .. } = io;
            match ended {
                LaneEnd::Irregular => {}
                LaneEnd::Exit(reason) => end = Some(reason),
                LaneEnd::Answered { response, note, is_head, closes } => {
                    state.first.replace(Some(response));
                    state.entry.replace(note.entry);
                    state.trace.replace(note.trace);
                    let form = RequestForm { closes, ..RequestForm::default() };
                    before = joined(Bytes::from_static(stand_in(form, is_head)), before);
                }
            }
        }
        let mut refusal = None;
        let (end, below, read) = match end {
            Some(end) => (end, transport, before),
            None => {
                state.io_activity.unused.set(!before.is_empty());
                let service = {
                    let state = state.clone();
                    // hyper can give back only a service that can be moved, as this one.
                    service_fn(move |request| serve_one(&state, request, None))
                };
                let io = Watched { transport, before, io_activity: state.io_activity.clone() };
                let mut connection = context.http1.serve_connection(io, service);
                let end = poll_fn(|cx| {
                    state.io_activity.begin_turn();
                    if let Poll::Ready(outcome) = connection.poll_without_shutdown(cx) {
                        let taken = matches!(*state.plan.borrow(), Some(Plan::TakeOver(_)));
                        if let Err(error) = &outcome {
                            context.worker.counters.broken.add(1);
                            // hyper has answered the request.
                            refusal = error.is_parse().then(|| error.is_parse_too_large());
                        }
                        return Poll::Ready(if outcome.is_ok() && taken {
                            ExitReason::TakenOver
                        } else {
                            ExitReason::Closed
                        });
                    }
                    state.finish_upload(cx);
                    let io_activity = &state.io_activity;
                    let waits = matches!(*state.plan.borrow(), Some(Plan::Wait(_)));
                    // A request that can wait was read to its end, and hyper gives back the bytes
                    // that follow it.
                    if waits && !io_activity.unflushed.get() && !io_activity.stuck.get() {
                        return Poll::Ready(ExitReason::Waits);
                    }
                    match check(cx) {
                        Some(end) => Poll::Ready(end),
                        None if io_activity.to_lane.get()
                            && state.lane_misses.get() < MOST_MISSES
                            && state.is_idle() =>
                        {
                            Poll::Ready(ExitReason::ToLane)
                        }
                        None => Poll::Pending,
                    }
                })
                .await;
                let parts = connection.into_parts();
                let Watched { transport, before: rest, .. } = parts.io;
                (end, transport, joined(parts.read_buf, rest))
            }
        };
        if let Some(is_too_large) = refusal {
            state.refused(status_of_refusal(is_too_large, &read), &read);
        }
        match (end, below) {
            (ExitReason::TakenOver, below) => {
                if let Some(Plan::TakeOver(then)) = state.plan.take() {
                    // The task of the connection continues as that of the other protocol.
                    active.run_upgraded(then(below, read)).await;
                }
                return;
            }
            (ExitReason::Waits, below) if below.can_park() => {
                let Some(Plan::Wait(then)) = state.plan.take() else { return };
                // Rare cases are kept out of the future that each connection has.
                let settled = Box::pin(settle(below, read, &context)).await;
                let Some((stream, before)) = settled else { return };
                let before = (!before.is_empty()).then(|| Box::new(before));
                let entry = state.entry.take();
                if let Some(entry) = &entry {
                    entry.detach();
                    entry.parked();
                }
                let trace = state.trace.take();
                let has_note = entry.is_some() || trace.is_some();
                let note = has_note.then(|| Box::new(Note { entry, trace }));
                let (form, requests) = (state.form.get(), state.requests());
                let pending = Some(PendingRequest { by: context, form, before, requests, note });
                let peer = state.peer.clone();
                then(WaitingRequest {
                    parked: ParkedConnection { stream, peer, token: 0, pending },
                });
                return;
            }
            (ExitReason::Idle, below) if read.is_empty() && can_park => {
                if context.worker.is_draining() && !matches!(below, Transport::Plain(_)) {
                    return close(below, &state, &active).await;
                }
                match below.park() {
                    Ok(stream) => {
                        let quiet = time::now() - clock.since;
                        let limit = limit_of_idleness(&state).saturating_sub(quiet);
                        let peer = state.peer.clone();
                        let token = state.requests();
                        let parked = ParkedConnection { stream, peer, token, pending: None };
                        return context.park(parked, limit);
                    }
                    Err(busy) => {
                        transport = busy;
                        before = Bytes::new();
                    }
                }
            }
            // It is not parked: the server is about to end.
            (ExitReason::Idle, below) if read.is_empty() => {
                return close(below, &state, &active).await;
            }
            (ExitReason::Idle | ExitReason::ToLane, below) => {
                transport = below;
                before = read;
                state.io_activity.to_lane.set(false);
            }
            (ExitReason::TooSlow, below) => {
                context.worker.counters.timed_out.add(1);
                state.refused(408, &read);
                return Box::pin(too_slow(below, &context, &active)).await;
            }
            (ExitReason::Stalled, _) => return context.worker.counters.timed_out.add(1),
            (ExitReason::Closed | ExitReason::Waits, below) => {
                return close(below, &state, &active).await;
            }
        }
    }
}

/// Returns the status with which hyper has refused a head.
fn status_of_refusal(is_too_large: bool, read: &[u8]) -> u16 {
    let target = read.split(|&byte| byte == b' ').nth(1);
    match (is_too_large, target) {
        (false, _) => 400,
        (true, Some(target)) if target.len() > LONGEST_TARGET => 414,
        (true, _) => 431,
    }
}

/// Joins two pieces, without a copy if one of them is empty.
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

/// The most bytes that a client may send after a request that waits.
const BEHIND: usize = 64 << 10;

/// Takes a connection whose request waits from the engine, with the bytes that have arrived after
/// the request. Bytes of an encrypted connection that were read are opened first, so the rest of a
/// record that has begun is waited for. `None` if that does not come.
async fn settle(
    mut transport: Transport,
    read: Bytes,
    context: &ListenerContext,
) -> Option<(ParkedStream, Bytes)> {
    let until = time::now() + context.worker.timeouts.get().header;
    let mut before = BytesMut::from(read);
    loop {
        match transport.park() {
            Ok(stream) => return Some((stream, before.freeze())),
            Err(busy) => transport = busy,
        }
        let mut room = [0; 4096];
        let some = poll_fn(|cx| {
            if transport.is_quiet() {
                return Poll::Ready(Ok(0));
            }
            match AsyncRead::poll_read(Pin::new(&mut transport), cx, &mut room) {
                // No byte may mean that the last record was none of data.
                Poll::Pending if transport.is_quiet() => Poll::Ready(Ok(0)),
                Poll::Ready(Ok(0)) => Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
                outcome => outcome,
            }
        });
        let count = timeout_at(until, some).await.ok()?.ok()?;
        before.extend_from_slice(&room[..count]);
        if before.len() > BEHIND {
            return None;
        }
    }
}

async fn too_slow(mut transport: Transport, context: &ListenerContext, active: &ActiveConnection) {
    // The client may not be reading either, so this is one try.
    let write = poll_fn(|cx| match Pin::new(&mut transport).poll_write(cx, TOO_SLOW) {
        Poll::Pending => Poll::Ready(Ok(0)),
        outcome => outcome,
    });
    let _ = write.await;
    linger(transport, context, active).await;
}

/// Closes a connection so that the last response arrives.
async fn close(mut transport: Transport, state: &ConnectionState, active: &ActiveConnection) {
    if state.io_activity.unused.get() {
        linger(transport, &state.context, active).await;
    } else if let Transport::Tls(_) = transport {
        let closed = poll_fn(|cx| Pin::new(&mut transport).poll_close(cx));
        let _ = timeout(GOODBYE, closed).await;
    }
}

/// Returns the head of a request that has the same effect on its response as the request that
/// waited for it.
fn stand_in(form: RequestForm, is_head: bool) -> &'static [u8] {
    match form {
        // The lane takes requests of HTTP/1.1.
        RequestForm { closes: false, .. } if is_head => b"HEAD / HTTP/1.1\r\nhost: a\r\n\r\n",
        RequestForm { closes: true, .. } if is_head => {
            b"HEAD / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"
        }
        RequestForm { is_1_0: false, closes: false, .. } => b"GET / HTTP/1.1\r\nhost: a\r\n\r\n",
        RequestForm { is_1_0: false, closes: true, .. } => {
            b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"
        }
        RequestForm { is_1_0: true, closes: false, .. } => {
            b"GET / HTTP/1.0\r\nconnection: keep-alive\r\n\r\n"
        }
        RequestForm { is_1_0: true, closes: true, .. } => b"GET / HTTP/1.0\r\n\r\n",
    }
}

impl Responder for ListenerContext {
    /// hyper is given a request like the one that was taken from it, and the response at once.
    fn answer(
        self: Rc<ListenerContext>,
        parked: ParkedConnection,
        pending: PendingRequest,
        response: Response<Body>,
    ) {
        let PendingRequest { form, before, note, requests, .. } = pending;
        let ParkedConnection { stream, peer, .. } = parked;
        let Ok(transport) = stream.resume() else { return };
        let head = Bytes::from_static(stand_in(form, false));
        let before = joined(head, before.map_or_else(Bytes::new, |before| *before));
        let note = note.map_or_else(Note::default, |note| *note);
        let first = Some((response, note));
        // The request that hyper is given is the one that was counted already.
        let requests = requests.saturating_sub(1);
        let initial = InitialState { before, requests, speaks: false, first };
        superpoll_rt::spawn(serve(self, transport, peer, initial)).detach();
    }

    fn begin_response(&self, entry: Option<&Entry>) {
        self.worker.counters.count_response(200);
        if let Some(entry) = entry {
            entry.answered(200);
        }
    }
}
