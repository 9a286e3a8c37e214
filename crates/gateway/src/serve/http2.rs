//! A connection on which HTTP/2 is spoken.
//!
//! Its state (windows, header compression, streams) is hyper's and cannot be parked; and it is one
//! connection where HTTP/1 has six. Requests are tasks of their own, so this task looks after the
//! connection. It ends the connection when that was idle or stuck for too long, and lets it finish
//! its requests when the server is about to end. `streams` limits the bytes that responses hold on
//! their way, and ends single streams that do not move.
//!
//! After the `park` timeout without an event the task drops hyper's state, and makes it again when
//! the client continues (`frame_filter`).

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use hyper::server::conn::http2;
use hyper::service::service_fn;
use superpoll_http::admin::Protocol;
use superpoll_http::peer::Peer;
use superpoll_http::transport::Transport;
use superpoll_rt::hyper::EngineTimer;
use superpoll_rt::time::{self, sleep};

use super::answer::ConnectionState;
use super::clock::{Clock, ExitReason, Phase};
use super::extended_connect;
use super::frame_filter::{FilteredIo, FrameFilter, RecordedIo};
use super::listener_context::ListenerContext;
use super::streams::{BUFFER, Spawner, Streams};

/// The most requests of one HTTP/2 connection at a time.
const STREAMS: u32 = 128;

impl ListenerContext {
    /// Returns HTTP/2 for a connection of these streams.
    fn http2(&self, streams: &Rc<Streams>) -> http2::Builder<Spawner> {
        let mut http2 = http2::Builder::new(Spawner(streams.clone()));
        http2
            .timer(EngineTimer)
            .max_concurrent_streams(STREAMS)
            .max_send_buf_size(BUFFER)
            .max_header_list_size(self.header_bytes)
            .enable_connect_protocol();
        http2
    }
}

/// Speaks HTTP/2 with a client.
pub(super) async fn serve(context: Rc<ListenerContext>, transport: Transport, peer: Rc<Peer>) {
    let active = context.worker.begin(&peer, Protocol::Http2);
    let state = Rc::new(ConnectionState::new(context.clone(), peer, (false, false)));
    let streams: Rc<Streams> = Rc::default();
    let io = RecordedIo::new(transport, state.io_activity.clone());
    let filter = Rc::new(RefCell::new(FrameFilter::new(io)));
    let begin = || {
        let (state, owned) = (state.clone(), streams.clone());
        let service = service_fn(move |request| {
            let guard = owned.begin();
            extended_connect::serve(&state, request, guard)
        });
        let io = FilteredIo(filter.clone());
        // It is large, and there is none for most of the time.
        Box::pin(context.http2(&streams).serve_connection(io, service))
    };
    let again = || {
        filter.borrow_mut().wake();
        begin()
    };
    let mut connection = Some(begin());
    let mut clock = Clock::new(&state);
    let period = context.worker.tick();
    let mut timer = pin!(sleep(period));
    let mut ends = false;
    // The last bytes may have to wait for room.
    let mut outcome = None;
    let is_broken = poll_fn(|cx| {
        state.io_activity.begin_turn();
        let most = context.worker.limits.get().requests_per_connection;
        let is_over = most.is_some_and(|most| state.requests() >= most.get());
        if (is_over || context.worker.is_draining()) && !ends {
            ends = true;
            connection.get_or_insert_with(again).as_mut().graceful_shutdown();
        }
        loop {
            if let Some(connection) = &mut connection {
                if outcome.is_none()
                    && let Poll::Ready(ended) = connection.as_mut().poll(cx)
                {
                    outcome = Some(ended.is_err());
                }
                let flushed = filter.borrow_mut().poll_flush(cx);
                match (flushed, outcome) {
                    (Poll::Ready(Err(_)), outcome) => return Poll::Ready(outcome.unwrap_or(true)),
                    (Poll::Ready(Ok(())), Some(is_broken)) => return Poll::Ready(is_broken),
                    (Poll::Ready(Ok(())), None) if filter.borrow_mut().was_full() => continue,
                    _ => break,
                }
            }
            match filter.borrow_mut().poll_dormant(cx) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) => {
                    return Poll::Ready(error.kind() != io::ErrorKind::UnexpectedEof);
                }
                Poll::Pending => break,
            }
            connection = Some(again());
        }
        if active.remember(cx.waker()) {
            state.is_closed_here.set(true);
            return Poll::Ready(false);
        }
        let has_none = state.running.get() == 0 && streams.are_done();
        let is_idle = connection.is_some() && has_none && filter.borrow().is_at_rest();
        while timer.as_mut().poll(cx).is_ready() {
            let now = time::now();
            let (limit, is_stuck) =
                (context.worker.timeouts.get().body, state.io_activity.stuck.get());
            if streams.end_stalled(now, limit, is_stuck) {
                // The rest of a response that its client does not take: there is no other way to
                // end it.
                if state.running.get() == 0 {
                    context.worker.counters.timed_out.add(1);
                    return Poll::Ready(false);
                }
                if !ends {
                    ends = true;
                    connection.get_or_insert_with(again).as_mut().graceful_shutdown();
                    cx.waker().wake_by_ref();
                }
            }
            // Frames come and go without being requests.
            let phase = match state.running.get() {
                0 => Phase::Idle { can_park: false },
                1.. => Phase::Request,
            };
            match clock.tick(&state, phase, now) {
                // A client that does not take the end of an idle connection does not get a second
                // one.
                Some(ExitReason::Closed) if !ends => {
                    ends = true;
                    connection.get_or_insert_with(again).as_mut().graceful_shutdown();
                    cx.waker().wake_by_ref();
                }
                Some(_) => {
                    context.worker.counters.timed_out.add(1);
                    return Poll::Ready(false);
                }
                None => {}
            }
            let quiet = now.saturating_duration_since(clock.since);
            let is_tired = is_idle && !ends && quiet >= context.worker.timeouts.get().park;
            if is_tired && !context.worker.is_parking_at_once() {
                filter.borrow_mut().become_tired();
                // An error is found by the next read.
                let _ = filter.borrow_mut().poll_flush(cx);
            }
            timer.as_mut().get_mut().reset(now + period);
        }
        if is_idle && !ends && filter.borrow().can_sleep() {
            connection = None;
            filter.borrow_mut().sleep();
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    })
    .await;
    if is_broken {
        context.worker.counters.broken.add(1);
    }
}
