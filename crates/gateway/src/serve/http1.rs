//! A connection on which HTTP/1 is spoken, from its first byte until it is closed, parked or taken
//! over.
//!
//! The codec `superpoll-http1` reads and writes the protocol. Modules next to this one have the
//! rest: `requests` reads one request after another, `respond` answers those for handlers, `clock`
//! has the phases of a connection with their limits of time, and `answer` what requests of both
//! versions of HTTP share.
//!
//! A connection on which nothing happens for a while is parked, see
//! [`park`](superpoll_http::parking_lot): its task ends. It is at rest when no request is under way
//! and no byte of another one was read. If the transport has the beginning of a record after all,
//! the task continues with that.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use futures_io::{AsyncRead, AsyncWrite};
use http::Response;
use superpoll_http::admin::Protocol;
use superpoll_http::body::Body;
use superpoll_http::exchange::Plan;
use superpoll_http::log::Entry;
use superpoll_http::parked_stream::ParkedStream;
use superpoll_http::parking_lot::{
    Note, ParkedConnection, PendingRequest, Responder, WaitingRequest,
};
use superpoll_http::peer::Peer;
use superpoll_http::transport::Transport;
use superpoll_rt::time::{self, sleep, timeout_at};

use super::answer::ConnectionState;
use super::client_stream::ClientStream;
use super::clock::{Clock, ExitReason, Phase, limit_of_idleness};
use super::http2;
use super::linger::{MOST_OF_A_BODY, close, linger};
use super::listener_context::ListenerContext;
use super::requests::{self, KnownResponse};
use super::worker::ActiveConnection;

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
    /// The answer to a request that was read before.
    pub first: Option<KnownResponse>,
}

/// Speaks HTTP/1 with a client.
pub(super) async fn serve(
    context: Rc<ListenerContext>,
    mut transport: Transport,
    peer: Rc<Peer>,
    initial: InitialState,
) {
    let InitialState { mut before, requests, speaks, mut first } = initial;
    let active = context.worker.begin(&peer, Protocol::Http1);
    // A connection of the admin listener may be replaced at any time, as long as a task has it.
    let can_park = transport.can_park() && !context.is_admin;
    let state = Rc::new(ConnectionState::new(context.clone(), peer, (can_park, true)));
    state.earlier.set(requests);
    loop {
        let mut clock = Clock::new(&state);
        let period = context.worker.tick();
        let mut timer = pin!(sleep(period));
        let mut check = |cx: &mut Context<'_>, phase: Phase| {
            if active.remember(cx.waker()) {
                state.is_closed_here.set(true);
                return Some(ExitReason::Closed);
            }
            // A request that has come in part is answered before the end, and its response says
            // that it is the last one.
            let is_awaited = speaks && state.requests() == requests;
            let is_idle = matches!(phase, Phase::Idle { .. });
            if is_idle && context.worker.is_draining() && !is_awaited {
                return Some(ExitReason::Idle);
            }
            if context.worker.is_parking_at_once() {
                let now = time::now();
                // The first look notes the bytes that have moved since the last.
                let end = clock.tick(&state, phase, now).or_else(|| clock.tick(&state, phase, now));
                if end.is_some() {
                    return end;
                }
            }
            while timer.as_mut().poll(cx).is_ready() {
                let now = time::now();
                if let Some(end) = clock.tick(&state, phase, now) {
                    return Some(end);
                }
                timer.as_mut().get_mut().reset(now + period);
            }
            None
        };
        let mut io = ClientStream::new(transport, before, state.io_activity.clone());
        let end = {
            let mut requests = pin!(requests::run(&state, &mut io, first.take(), &mut check));
            poll_fn(|cx| {
                state.io_activity.begin_turn();
                requests.as_mut().poll(cx)
            })
            .await
        };
        let ClientStream { transport: below, before: read, .. } = io;
        match (end, below) {
            (ExitReason::TakenOver, below) => {
                if let Some(Plan::TakeOver(then)) = state.plan.take() {
                    // The task of the connection continues as that of the other protocol.
                    active.run_upgraded(then(below, read)).await;
                }
                return;
            }
            (ExitReason::Http2, below) => {
                let initial = http2::InitialState { before: read, ..Default::default() };
                return http2::begin(context, below, state.peer.clone(), initial);
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
                    return close(below).await;
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
                return close(below).await;
            }
            (ExitReason::Idle, below) => {
                transport = below;
                before = read;
            }
            (ExitReason::TooSlow, below) => {
                context.worker.counters.timed_out.add(1);
                state.refused(408, 0, &read);
                return Box::pin(too_slow(below, &context, &active)).await;
            }
            (ExitReason::Stalled, _) => return context.worker.counters.timed_out.add(1),
            (ExitReason::Lingers, below) => {
                return linger(below, MOST_OF_A_BODY, &context, &active).await;
            }
            (ExitReason::Closed | ExitReason::Waits, below) => return close(below).await,
        }
    }
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
    linger(transport, MOST_OF_A_BODY, context, active).await;
}

impl Responder for ListenerContext {
    fn answer(
        self: Rc<ListenerContext>,
        parked: ParkedConnection,
        pending: PendingRequest,
        response: Response<Body>,
    ) {
        let PendingRequest { form, before, note, requests, .. } = pending;
        let ParkedConnection { stream, peer, .. } = parked;
        let Ok(transport) = stream.resume() else { return };
        let before = before.map_or_else(Bytes::new, |before| *before);
        let note = note.map_or_else(Note::default, |note| *note);
        let first = Some(KnownResponse { response, note, form });
        // The request that is answered was counted already.
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
