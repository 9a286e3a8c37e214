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

use super::answer::Line;

/// The reason for which a connection leaves hyper.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
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
    pub fn new(line: &Line) -> Clock {
        let (moved, requests) = (line.tally.moved.get(), line.requests.get());
        let (written, now) = (line.tally.written.get(), Instant::now());
        Clock { moved, written, unstuck: now, queued: None, requests, since: now, head: None }
    }

    /// Checks for events since the last tick.
    pub fn tick(&mut self, line: &Line, now: Instant) -> Option<End> {
        let timeouts = line.home.worker.timeouts.get();
        let tally = &line.tally;
        if (tally.moved.get(), line.requests.get()) != (self.moved, self.requests) {
            if line.requests.get() != self.requests {
                self.head = None;
            }
            (self.moved, self.requests) = (tally.moved.get(), line.requests.get());
            self.since = now;
        }
        let quiet = now.saturating_duration_since(self.since);
        if !tally.stuck.get() || tally.written.get() != self.written {
            (self.written, self.unstuck, self.queued) = (tally.written.get(), now, None);
            tally.queued.set(None);
        } else {
            // The next write that finds no room looks at the queue.
            tally.asks_queued.set(true);
        }
        if let Some(queued) = tally.queued.take()
            && let Some(before) = self.queued.replace(queued)
            && before != queued
        {
            self.unstuck = now;
        }
        // A client that goes on sending but does not read is no better than one that does neither.
        if now.saturating_duration_since(self.unstuck) >= timeouts.body {
            return Some(End::Stalled);
        }
        if line.running.get() > 0 || tally.stuck.get() {
            // A client that has been waiting for an answer may have gone.
            tally.doubted.set(!quiet.is_zero());
            self.head = None;
            return None;
        }
        if tally.unused.get() || tally.unflushed.get() {
            let head = *self.head.get_or_insert(now);
            let took = now.saturating_duration_since(head);
            return (took >= timeouts.header).then_some(End::TooSlow);
        }
        self.head = None;
        let limit = limit_of_idleness(line);
        if line.can_park && quiet >= timeouts.park && tally.waits.get() {
            return Some(End::Idle);
        }
        (quiet >= limit).then_some(End::Closed)
    }
}

/// Returns for how long the connection may be idle now.
pub(super) fn limit_of_idleness(line: &Line) -> Duration {
    let timeouts = line.home.worker.timeouts.get();
    if line.requests.get() == 0 { timeouts.header } else { timeouts.idle }
}
