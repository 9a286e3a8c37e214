//! The limits of time of a connection.
//!
//! A connection has one timer, which ticks a few times within the shortest of its limits and
//! compares the counters with those of the last tick. So a request costs no timer, and a limit is
//! kept to a quarter of the shortest one.
//!
//! A slow client differs from a client that does not read. A socket reports room only when a good
//! part of its queue is empty, which may take longer than any limit. So the clock looks at the
//! length of the queue while there is no room.

use std::time::{Duration, Instant};

use superpoll_rt::time;

use super::answer::ConnectionState;

/// The reason for which the task of a connection ends, or stops to wait for requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ExitReason {
    /// It is over, or broken.
    Closed,
    /// The service has taken it over.
    TakenOver,
    /// Its request waits without a task.
    Waits,
    /// Nothing happens on it.
    Idle,
    /// A request's head did not come in time.
    TooSlow,
    /// The client does not read.
    Stalled,
}

/// The observations of a connection's timer.
pub(super) struct Clock {
    moved: u32,
    /// The count of writes when the connection was last seen to write, or not to be stuck, and the
    /// time of that.
    written: u32,
    unstuck: Instant,
    /// The bytes that the kernel had still to send at the last check.
    queued: Option<u64>,
    requests: u32,
    /// The time of the last event, give or take a tick.
    pub since: Instant,
    /// When the head that is being read was first seen.
    head: Option<Instant>,
}

impl Clock {
    pub(super) fn new(state: &ConnectionState) -> Clock {
        let (moved, requests) = (state.io_activity.moved.get(), state.requests.get());
        let (written, now) = (state.io_activity.written.get(), time::now());
        Clock { moved, written, unstuck: now, queued: None, requests, since: now, head: None }
    }

    /// Checks for events since the last tick.
    pub(super) fn tick(&mut self, state: &ConnectionState, now: Instant) -> Option<ExitReason> {
        let timeouts = state.context.worker.timeouts.get();
        let io_activity = &state.io_activity;
        if (io_activity.moved.get(), state.requests.get()) != (self.moved, self.requests) {
            if state.requests.get() != self.requests {
                self.head = None;
            }
            (self.moved, self.requests) = (io_activity.moved.get(), state.requests.get());
            self.since = now;
        }
        let quiet = now.saturating_duration_since(self.since);
        if !io_activity.stuck.get() || io_activity.written.get() != self.written {
            (self.written, self.unstuck, self.queued) = (io_activity.written.get(), now, None);
            io_activity.queued.set(None);
        } else {
            // The next write that finds no room looks at the queue.
            io_activity.asks_queued.set(true);
        }
        if let Some(queued) = io_activity.queued.take()
            && let Some(before) = self.queued.replace(queued)
            && before != queued
        {
            self.unstuck = now;
        }
        // A client that continues sending but does not read is no better than one that does
        // neither.
        if now.saturating_duration_since(self.unstuck) >= timeouts.body {
            return Some(ExitReason::Stalled);
        }
        if state.running.get() > 0 || io_activity.stuck.get() {
            // A client that has been waiting for an answer may have gone.
            io_activity.doubted.set(!quiet.is_zero());
            self.head = None;
            return None;
        }
        if io_activity.has_upload.get() {
            // The rest of an upload whose response was sent, which another task reads.
            io_activity.doubted.set(!quiet.is_zero());
            self.head = None;
            return (quiet >= timeouts.body).then_some(ExitReason::Stalled);
        }
        if io_activity.unused.get() || io_activity.unflushed.get() {
            let head = *self.head.get_or_insert(now);
            let took = now.saturating_duration_since(head);
            return (took >= timeouts.header).then_some(ExitReason::TooSlow);
        }
        self.head = None;
        let limit = limit_of_idleness(state);
        if state.can_park
            && quiet >= timeouts.park
            && io_activity.waits.get()
            && !io_activity.is_busy.get()
        {
            return Some(ExitReason::Idle);
        }
        (quiet >= limit).then_some(ExitReason::Closed)
    }
}

/// Returns for how long the connection may be idle now.
pub(super) fn limit_of_idleness(state: &ConnectionState) -> Duration {
    let timeouts = state.context.worker.timeouts.get();
    if state.requests.get() == 0 { timeouts.header } else { timeouts.idle }
}
