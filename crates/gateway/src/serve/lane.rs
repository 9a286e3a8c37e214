//! A connection of HTTP/1 whose requests pass hyper as long as they are plainly regular and proxied.
//!
//! The connection's state, its limits of time and its log are those of the way through hyper; see
//! `answer` and `clock`. [`upstream::lane`](crate::upstream::lane) has the requests.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Response;
use hyper::rt::{Read, ReadBuf};

use super::answer::{ConnectionState, Entry, Running};
use super::clock::ExitReason;
use super::watched::Watched;
use crate::body::Body;
use crate::upstream::Forwarder;
use crate::upstream::lane::{Parsed, Passed, ReadBuffer, Sent, forwarded, parse, room};

/// The reason for which a connection leaves the lane.
pub(super) enum LaneEnd {
    /// hyper goes on with it.
    Irregular,
    /// hyper answers the request that was taken, by this response.
    Answered { response: Response<Body>, entry: Option<Box<Entry>>, is_head: bool, closes: bool },
    /// The connection ends, or is parked.
    Exit(ExitReason),
}

/// A request that was taken.
struct Taken {
    forwarder: Rc<Forwarder>,
    sent: Sent,
    entry: Option<Box<Entry>>,
    is_head: bool,
    closes: bool,
    len: usize,
}

/// Serves a connection until a request is not for the lane, or `check` ends it. The bytes that were
/// not used are in `io` then.
pub(super) async fn run(
    state: &Rc<ConnectionState>,
    io: &mut Watched,
    mut check: impl FnMut(&mut Context<'_>) -> Option<ExitReason>,
) -> LaneEnd {
    let client = state.peer.client.map(|client| client.ip());
    let forwarded = forwarded(client, state.peer.is_encrypted);
    let mut read = ReadBuffer::default();
    let end = loop {
        let taken = match next(state, io, &mut read, &forwarded, &mut check).await {
            Ok(taken) => taken,
            Err(end) => break end,
        };
        let Taken { forwarder, sent, mut entry, is_head, closes, len } = taken;
        let running = Running::again(state);
        if forwarder.aborts {
            state.io_activity.ends_with_client.set(true);
        }
        let passed = {
            let mut passing = pin!(forwarder.pass_on(&sent, io, client));
            poll_fn(|cx| {
                state.io_activity.begin_turn();
                if state.is_last(state.requests().wrapping_add(1)) {
                    sent.is_last.set(true);
                }
                if let Poll::Ready(passed) = passing.as_mut().poll(cx) {
                    return Poll::Ready(Ok(passed));
                }
                check(cx).map_or(Poll::Pending, |reason| Poll::Ready(Err(reason)))
            })
            .await
        };
        drop(running);
        let (status, body, is_whole) = match passed {
            Ok(Passed::Whole { status, body }) => (status, body, true),
            Ok(Passed::Cut { status, body }) => (status, body, false),
            Ok(Passed::Undone) => {
                entry.into_iter().for_each(|entry| entry.void());
                break LaneEnd::Irregular;
            }
            Ok(Passed::Answered(response)) => {
                read.consume(len);
                state.aborts_first.set(forwarder.aborts);
                break LaneEnd::Answered { response, entry, is_head, closes };
            }
            // Without a response the entry says that the client has not waited.
            Err(reason) => {
                let (status, body) = (sent.status.get(), sent.body.get());
                if status > 0 {
                    let counters = &state.context.worker.counters;
                    counters.count_response(status);
                    counters.body_bytes.add(body);
                    if let Some(entry) = &mut entry {
                        entry.passed(status, body, false);
                    }
                }
                break LaneEnd::Exit(reason);
            }
        };
        read.consume(len);
        state.requests.set(state.requests.get().wrapping_add(1));
        let counters = &state.context.worker.counters;
        if status > 0 {
            counters.count_response(status);
            counters.lane.add(1);
            counters.body_bytes.add(body);
            if let Some(entry) = &mut entry {
                entry.passed(status, body, is_whole);
            }
        }
        drop(entry);
        if !is_whole {
            counters.broken.add(1);
        }
        if !is_whole || sent.is_last.get() {
            state.io_activity.unused.set(!read.is_empty() || !io.before.is_empty());
            break LaneEnd::Exit(ExitReason::Closed);
        }
    };
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
    forwarded: &[u8],
    check: &mut impl FnMut(&mut Context<'_>) -> Option<ExitReason>,
) -> Result<Taken, LaneEnd> {
    state.io_activity.unused.set(!read.is_empty() || !io.before.is_empty());
    let mut has_new = !read.is_empty();
    poll_fn(|cx| {
        state.io_activity.begin_turn();
        loop {
            if has_new {
                has_new = false;
                match take(state, read, forwarded) {
                    Parsed::Regular(taken) => return Poll::Ready(Ok(taken)),
                    Parsed::Irregular => return Poll::Ready(Err(LaneEnd::Irregular)),
                    Parsed::Partial => {}
                }
            }
            let outcome = read.fill(|room| {
                let mut room = ReadBuf::new(room);
                let outcome = Read::poll_read(Pin::new(&mut *io), cx, room.unfilled());
                outcome.map_ok(|()| room.filled().len())
            });
            match outcome {
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
        // It also tells of a client that is gone.
        let _ = hyper::rt::Write::poll_flush(Pin::new(&mut *io), cx);
        check(cx).map_or(Poll::Pending, |reason| Poll::Ready(Err(LaneEnd::Exit(reason))))
    })
    .await
}

/// Takes the request at the beginning of what was read, if it is for the lane.
fn take(state: &ConnectionState, read: &ReadBuffer, forwarded: &[u8]) -> Parsed<Taken> {
    let mut room = room();
    let head = match parse(read.bytes(), &mut room) {
        Parsed::Regular(head) => head,
        // hyper refuses it at once.
        Parsed::Partial if read.bytes().len() > state.context.header_bytes as usize => {
            return Parsed::Irregular;
        }
        Parsed::Partial => return Parsed::Partial,
        Parsed::Irregular => return Parsed::Irregular,
    };
    let (worker, peer) = (&state.context.worker, &state.peer);
    if head.len > state.context.header_bytes as usize {
        return Parsed::Irregular;
    }
    let Some(forwarder) = worker.router().lane_for(&head, peer, &state.context.address) else {
        return Parsed::Irregular;
    };
    state.io_activity.unused.set(false);
    state.io_activity.has_upload.set(false);
    state.io_activity.given_up.set(false);
    state.io_activity.arrived.set(0);
    let is_last = head.closes || state.is_last(state.requests().wrapping_add(1));
    let entry = worker.access_log();
    let entry = entry.map(|access_log| Box::new(Entry::of_lane(access_log, peer, &head)));
    Parsed::Regular(Taken {
        sent: forwarder.prepare(&head, forwarded, is_last),
        forwarder,
        entry,
        is_head: head.is_head,
        closes: head.closes,
        len: head.len,
    })
}
