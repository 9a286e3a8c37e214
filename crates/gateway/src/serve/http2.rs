//! A connection on which HTTP/2 is spoken, from its first byte until it is closed or parked.
//!
//! The codec `superpoll-http2` reads and writes the protocol, and the connection's task does
//! everything else; its limits of time are here.
//!
//! ```text
//!   AT WORK --no stream for a while--> QUIET --its client has no table--> PARKED
//!      ^                                                                     |
//!      +-------- frames; if none of them begins a stream, parked again <-----+
//! ```
//!
//! A quiet connection is its socket, its keys, and the record of the codec, some 50 bytes. The
//! table of fields that the client keeps for the requests would be up to 4 KiB more, so the client
//! is asked to give it up, and may use one again with its next request. A client that does not
//! answer is parked with its table. The next server continues with parked connections.
//!
//! | module | purpose |
//! |---|---|
//! | `session` | frames and streams: requests begin, responses go out |
//! | `stream`, `arriving` | the state of a stream; the body of its request |
//! | `wakes` | which streams have something to do |
//! | `output` | the bytes for the client |
//! | `grpc` | errors, in the words of gRPC |

mod arriving;
mod grpc;
mod output;
mod session;
mod stream;
mod wakes;

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use superpoll_http::admin::Protocol;
use superpoll_http::connection_state::Activity;
use superpoll_http::parking_lot::{ConnectionOwner, ParkedConnection, ResumeReason, WakeOn};
use superpoll_http::peer::Peer;
use superpoll_http::transport::Transport;
use superpoll_http2::Record;
use superpoll_hub::channel::carrier::{Carrier, GoesOn, Resumed};
use superpoll_rt::spawn;
use superpoll_rt::time::{self, sleep};

use self::session::{End, Parked, Session};
use super::answer::ConnectionState;
use super::clock::{Clock, ExitReason, Phase};
use super::linger::{MOST_OF_FRAMES, linger};
use super::listener_context::ListenerContext;

/// The state of a connection before it was given a task.
#[derive(Default)]
pub(super) struct InitialState {
    /// Bytes that were read and not used.
    pub before: Bytes,
    /// A connection that was parked.
    pub parked: Option<Parked>,
    /// Requests so far.
    pub requests: u32,
    /// The connection is to end.
    pub ends: bool,
}

/// Speaks HTTP/2 with a client, in a task of its own: it lives long, and is smaller than the tasks
/// of handshakes and of HTTP/1.
pub(super) fn begin(
    context: Rc<ListenerContext>,
    transport: Transport,
    peer: Rc<Peer>,
    initial: InitialState,
) {
    spawn(serve(context, transport, peer, initial)).detach();
}

/// Speaks HTTP/2 with a client.
async fn serve(
    context: Rc<ListenerContext>,
    transport: Transport,
    peer: Rc<Peer>,
    initial: InitialState,
) {
    let InitialState { before, parked, requests, ends } = initial;
    // Since when the connection is to end, and whether its client was waited for in vain.
    let (mut ends, mut has_timed_out) = (ends.then(time::now), false);
    let active = context.worker.begin(&peer, Protocol::Http2);
    let can_park = transport.can_park() && !context.is_admin;
    let state = Rc::new(ConnectionState::new(context.clone(), peer, (false, false)));
    state.earlier.set(requests);
    let was_parked = parked.is_some();
    let session = Session::new(state.clone(), transport, &before, parked);
    let Some(mut session) = session else { return context.worker.counters.broken.add(1) };
    drop(before);
    // It need not have been woken by a request.
    let mut may_rest = was_parked && ends.is_none();
    if ends.is_some() {
        session.begin_shutdown();
    }
    // Until a stream begins, the bytes that move are no activity of the client's.
    state.io_activity.is_resting.set(was_parked);
    let mut clock = Clock::new(&state);
    // The requests at the last tick, and whether nothing but messages has come for a while.
    let (mut seen, mut is_calm) = (0, false);
    let period = context.worker.tick();
    let mut timer = pin!(sleep(period));
    loop {
        let end = poll_fn(|cx| {
            state.io_activity.begin_turn();
            let most = context.worker.limits.get().requests_per_connection;
            let is_over = most.is_some_and(|most| state.requests() >= most.get());
            if (is_over || context.worker.is_draining()) && ends.is_none() {
                ends = Some(time::now());
                session.begin_shutdown();
            }
            // Before the streams, which may leave no operation for it in any turn.
            let mut is_due = false;
            while timer.as_mut().poll(cx).is_ready() {
                is_due = true;
                timer.as_mut().get_mut().reset(time::now() + period);
            }
            if let Poll::Ready(end) = session.poll(cx) {
                return Poll::Ready(Some(end));
            }
            if active.remember(cx.waker()) {
                state.is_closed_here.set(true);
                return Poll::Ready(None);
            }
            if is_due {
                let now = time::now();
                let timeouts = context.worker.timeouts.get();
                session.end_stalled(now, timeouts.body);
                let phase = match state.running.get() {
                    0 if session.is_in_frame() => Phase::Head,
                    // Frames come and go without being requests. Parking is decided here.
                    0 => Phase::Idle { can_park: false },
                    _ => Phase::Request,
                };
                // A client that does not answer cannot keep the connection by other frames.
                if ends.is_some_and(|since| now - since >= timeouts.header) {
                    has_timed_out |= session.finish_shutdown();
                }
                match clock.tick(&state, phase, now) {
                    // A client that does not take the end of an idle connection does not get a
                    // second one.
                    Some(ExitReason::Closed) if ends.is_none() => {
                        ends = Some(now);
                        session.begin_shutdown();
                    }
                    Some(_) => {
                        has_timed_out = true;
                        return Poll::Ready(None);
                    }
                    None => {}
                }
                let quiet = now.saturating_duration_since(clock.since);
                // Messages for subscribers are no reason for a task.
                let has_calmed = seen == state.requests.get() && session.has_streams();
                seen = state.requests.get();
                is_calm = ends.is_none() && (has_calmed || quiet >= timeouts.park);
            }
            may_rest &= state.requests.get() == 0;
            is_calm &= seen == state.requests.get();
            let rests = may_rest || context.worker.is_parking_at_once();
            let mut writes = is_due;
            let is_quiet = (rests || is_calm) && session.is_quiet();
            if can_park && (is_quiet || session.has_given_up_table()) {
                if rests || !session.give_up_table() {
                    return Poll::Ready(Some(End::Quiet));
                }
                // The client has until the next look to answer.
                (is_calm, writes) = (false, true);
            }
            // The streams have had their turn.
            if writes
                && session.has_output()
                && let Poll::Ready(end) = session.poll(cx)
            {
                return Poll::Ready(Some(end));
            }
            Poll::Pending
        })
        .await;
        context.worker.counters.timed_out.add(u64::from(has_timed_out));
        match end {
            Some(end @ (End::Over | End::Refused)) => {
                let is_refused = end == End::Refused;
                context.worker.counters.broken.add(u64::from(is_refused));
                // Frames of the client may be under way, above all for the last response.
                linger(session.into_transport(), MOST_OF_FRAMES, &context, &active).await;
            }
            Some(End::Gone) | None => {}
            Some(End::Quiet) => {
                let (record, streams) = (session.record(), session.take_streams());
                match session.transport.park() {
                    Ok(stream) => {
                        let quiet = time::now().saturating_duration_since(clock.since);
                        let timeouts = context.worker.timeouts.get();
                        let token = state.requests();
                        let limit = if token == 0 { timeouts.header } else { timeouts.idle };
                        let peer = state.peer.clone();
                        let parked = ParkedConnection { stream, peer, token, pending: None };
                        match streams.is_empty() {
                            true => park(context, parked, record, limit.saturating_sub(quiet)),
                            false => Carrier::park(context, parked, record, streams),
                        }
                    }
                    // It is not quiet after all.
                    Err(busy) => {
                        session.transport = busy;
                        session.resume_streams(&[], streams);
                        may_rest = false;
                        continue;
                    }
                }
            }
        }
        return;
    }
}

/// Continues with a connection that was parked.
fn go_on(context: Rc<ListenerContext>, parked: ParkedConnection, state: Parked, ends: bool) {
    let Ok(transport) = parked.stream.resume() else { return };
    let (before, requests) = (Bytes::new(), parked.token);
    let initial = InitialState { before, parked: Some(state), requests, ends };
    begin(context, transport, parked.peer, initial);
}

impl GoesOn for ListenerContext {
    fn go_on(self: Rc<ListenerContext>, resumed: Resumed) {
        let Resumed { parked, record, rest, streams, why } = resumed;
        let ends = matches!(why, Some(ResumeReason::Draining | ResumeReason::Refused));
        go_on(self, parked, Parked { record, rest, streams }, ends);
    }
}

/// A connection of HTTP/2 that is parked, as the codec has recorded it.
struct ParkedHttp2 {
    context: Rc<ListenerContext>,
    record: Record,
}

/// Parks a connection without streams.
pub(super) fn park(
    context: Rc<ListenerContext>,
    parked: ParkedConnection,
    record: Record,
    limit: Duration,
) {
    let requests = parked.token;
    let worker = context.worker.clone();
    let owner = Rc::new(ParkedHttp2 { context, record });
    let left = owner.clone();
    let activity = move || Some(Activity::Http2 { requests, record: left.record.as_ref().into() });
    // A connection that cannot be parked is closed, as idle connections may be at any time.
    drop(worker.parking_lot.park(parked, owner, WakeOn::Readable, Some(limit), activity));
}

impl ConnectionOwner for ParkedHttp2 {
    fn resume(self: Rc<ParkedHttp2>, parked: ParkedConnection, why: ResumeReason) {
        // The frame that has come may begin no request. The end is told.
        let ends = match why {
            ResumeReason::Ready => false,
            ResumeReason::TimedOut => true,
            ResumeReason::Draining if self.context.worker.is_draining() => true,
            // An operator closes it.
            ResumeReason::Draining | ResumeReason::Refused => return parked.stream.close(),
        };
        let (record, rest, streams) = (self.record.clone(), Bytes::new(), Vec::new());
        let state = Parked { record, rest, streams };
        go_on(self.context.clone(), parked, state, ends);
    }

    fn protocol(&self) -> Protocol {
        Protocol::Http2
    }
}
