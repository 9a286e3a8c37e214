//! A connection on which HTTP/2 is spoken.
//!
//! Its state (windows, header compression, streams) is hyper's and cannot be parked; and it is one
//! connection where HTTP/1 has six. Requests are tasks of their own, so this task looks after the
//! connection. It ends the connection when that was idle or stuck for too long, and lets it finish
//! its requests when the server is about to end. `streams` limits the bytes that responses hold on
//! their way, and ends single streams that do not move.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Instant;

use bytes::Bytes;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use superpoll_rt::hyper::EngineTimer;
use superpoll_rt::time::sleep;

use super::answer::{Line, serve_one};
use super::clock::{Clock, End};
use super::listener_context::Home;
use super::streams::{BUFFER, Spawner, Streams, portioned};
use super::watched::Watched;
use crate::peer::Peer;
use crate::transport::Transport;

/// The most requests of one HTTP/2 connection at a time.
const STREAMS: u32 = 128;

impl Home {
    /// Returns HTTP/2 for a connection of these streams.
    fn http2(&self, streams: &Rc<Streams>) -> http2::Builder<Spawner> {
        let mut http2 = http2::Builder::new(Spawner(streams.clone()));
        http2
            .timer(EngineTimer)
            .max_concurrent_streams(STREAMS)
            .max_send_buf_size(BUFFER)
            .max_header_list_size(self.header_bytes);
        http2
    }
}

/// Speaks HTTP/2 with a client.
pub(super) async fn serve(home: Rc<Home>, transport: Transport, peer: Rc<Peer>) {
    let working = home.worker.begin();
    let line = Rc::new(Line::new(home.clone(), peer, (false, false)));
    let streams: Rc<Streams> = Rc::default();
    let service = {
        let (line, streams) = (line.clone(), streams.clone());
        service_fn(move |request| {
            let member = streams.begin();
            portioned(serve_one(&line, request), member)
        })
    };
    let io = Watched { transport, before: Bytes::new(), tally: line.tally.clone() };
    let mut connection = pin!(home.http2(&streams).serve_connection(io, service));
    let mut clock = Clock::new(&line);
    let period = home.worker.tick();
    let mut timer = pin!(sleep(period));
    let mut ends = false;
    let is_broken = poll_fn(|cx| {
        line.tally.begin_turn();
        let most = home.worker.limits.get().requests_per_connection;
        let is_over = most.is_some_and(|most| line.requests() >= most.get());
        if (is_over || home.worker.is_draining()) && !ends {
            ends = true;
            connection.as_mut().graceful_shutdown();
        }
        if let Poll::Ready(outcome) = connection.as_mut().poll(cx) {
            return Poll::Ready(outcome.is_err());
        }
        working.remember(cx.waker());
        while timer.as_mut().poll(cx).is_ready() {
            let now = Instant::now();
            // Frames come and go without being requests.
            line.tally.unused.set(false);
            line.tally.unflushed.set(false);
            let (limit, is_stuck) = (home.worker.timeouts.get().body, line.tally.stuck.get());
            if streams.end_stalled(now, limit, is_stuck) {
                // The rest of a response that its client does not take: there is no other way to
                // end it.
                if line.running.get() == 0 {
                    home.worker.counters.timed_out.add(1);
                    return Poll::Ready(false);
                }
                if !ends {
                    ends = true;
                    connection.as_mut().graceful_shutdown();
                    cx.waker().wake_by_ref();
                }
            }
            match clock.tick(&line, now) {
                // A client that does not take the end of an idle connection does not get a second
                // one.
                Some(End::Closed) if !ends => {
                    ends = true;
                    connection.as_mut().graceful_shutdown();
                    cx.waker().wake_by_ref();
                }
                Some(_) => {
                    home.worker.counters.timed_out.add(1);
                    return Poll::Ready(false);
                }
                None => {}
            }
            timer.as_mut().get_mut().reset(now + period);
        }
        Poll::Pending
    })
    .await;
    if is_broken {
        home.worker.counters.broken.add(1);
    }
}
