//! The phases of a connection, and its limits of time.
//!
//! The code that speaks a protocol knows what the connection waits for, and tells the clock: a
//! [`Phase`]. Those of HTTP/1:
//!
//! ```text
//!                                                    the response is sent, and a
//!         bytes arrive       the head is whole       handler still reads the body
//!   IDLE -------------> HEAD -----------------> REQUEST ----------------------> UPLOAD
//!    ^ ^                 |  |                      |                               |
//!    | +-----------------+  +--> refused: closed   |                               |
//!    |   no head after all                         |  the body is over             |
//!    +---------------------------------------------+-------------------------------+
//! ```
//!
//! | phase   | timeout                                   | since                       | then   |
//! |---------|-------------------------------------------|-----------------------------|--------|
//! | IDLE    | `park`, where that is possible            | the last bytes              | parked |
//! | IDLE    | `idle`; `header` before the first request | the last bytes              | closed |
//! | HEAD    | `header`                                  | the first bytes of the head | 408    |
//! | REQUEST | none here: handlers have limits           |                             |        |
//! | UPLOAD  | `body`                                    | the last bytes              | closed |
//! | any     | `body`                                    | the client has made room    | closed |
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

/// The next event that a connection waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// A request, of which no byte has arrived. Everything is written.
    Idle {
        /// Nothing would be lost with the connection's task.
        can_park: bool,
    },
    /// The rest of a head, or of a record of TLS that may be one; or room for the last bytes of a
    /// connection that ends.
    Head,
    /// A response to the request under way.
    Request,
    /// The rest of a request's body, which a handler still reads after its response.
    Upload,
}

/// The reason for which the task of a connection ends, or stops to wait for requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ExitReason {
    /// It is over, or broken.
    Closed,
    /// The same, and the client may still be sending.
    Lingers,
    /// The service has taken it over.
    TakenOver,
    /// Its first bytes are those of HTTP/2.
    Http2,
    /// Its request waits without a task.
    Waits,
    /// Nothing happens on it.
    Idle,
    /// A request's head did not come in time.
    TooSlow,
    /// The client does not read.
    Stalled,
}

impl ExitReason {
    /// Returns the reason as it is for a client that may still be sending, or may not.
    pub(super) fn while_sending(self, is_sending: bool) -> ExitReason {
        match self {
            ExitReason::Closed if is_sending => ExitReason::Lingers,
            reason => reason,
        }
    }
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

    /// Checks for events since the last tick, and the limits of a phase.
    pub(super) fn tick(
        &mut self,
        state: &ConnectionState,
        phase: Phase,
        now: Instant,
    ) -> Option<ExitReason> {
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
        // A client that takes nothing has not got its response yet.
        let phase = if io_activity.stuck.get() { Phase::Request } else { phase };
        if phase != Phase::Head {
            self.head = None;
        }
        match phase {
            Phase::Idle { can_park: true } if quiet >= timeouts.park => Some(ExitReason::Idle),
            Phase::Idle { .. } => (quiet >= limit_of_idleness(state)).then_some(ExitReason::Closed),
            Phase::Head => {
                let head = *self.head.get_or_insert(now);
                let took = now.saturating_duration_since(head);
                (took >= timeouts.header).then_some(ExitReason::TooSlow)
            }
            Phase::Request | Phase::Upload => {
                // A client that has been waiting for an answer may have gone.
                io_activity.doubted.set(!quiet.is_zero());
                let is_late = phase == Phase::Upload && quiet >= timeouts.body;
                is_late.then_some(ExitReason::Stalled)
            }
        }
    }
}

/// Returns for how long the connection may be idle now.
pub(super) fn limit_of_idleness(state: &ConnectionState) -> Duration {
    let timeouts = state.context.worker.timeouts.get();
    if state.requests.get() == 0 { timeouts.header } else { timeouts.idle }
}
