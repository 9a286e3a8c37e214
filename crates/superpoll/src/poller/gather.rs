//! Waits that gather: after a wait has delivered events, the next one that may block returns no
//! sooner than some time after it, so that a loop which is woken by each of many small events is
//! woken by several of them together.
//!
//! The time counts from the end of the last wait that delivered something. So the first event after
//! a lull is delivered at once, and a loop that has been at work for longer than that does not wait
//! either: what arrived meanwhile has gathered by itself. Only a loop that asks again too soon is
//! held back.
//!
//! Gathering one event costs a second wake-up for nothing: at a slow pace, twice the processor
//! time. So waits gather only while that pays. They begin when two waits have delivered within the
//! time, and end with one that has gathered a single event.
//!
//! ```text
//!               two deliveries within the time
//!   (as usual) -------------------------------> (gathering) --+
//!       ^                                        |     ^      | several events
//!       +----------------------------------------+     +------+
//!                      a single event
//! ```
//!
//! io_uring does that in the kernel, in the call that waits (`min_wait_usec` of
//! `struct io_uring_getevents_arg`, Linux 6.12). It ends early when many events are there. For all
//! others the poller sleeps, and then waits as usual.

use std::time::{Duration, Instant};

use crate::backend::Deadline;
use crate::error::{Error, Result};
use crate::poller::Poller;
use crate::sys;

/// The longest time.
const LONGEST: Duration = Duration::from_secs(1);

/// The gathering of a poller.
#[derive(Debug)]
pub(super) struct Gather {
    time: Duration,
    /// The end of the last wait that delivered something.
    delivered: Option<Instant>,
    /// Whether waits gather now.
    pays: bool,
    /// Whether the back-end's call gathers.
    in_kernel: bool,
}

impl Gather {
    fn left(&self) -> Duration {
        let end = self.delivered.map(|delivered| delivered + self.time);
        end.map_or(Duration::ZERO, |end| end.saturating_duration_since(Instant::now()))
    }
}

impl Poller {
    /// Lets a wait that may block return no sooner than this time after the last one that has
    /// delivered events, and so gather events that come one by one. Zero (the default) switches
    /// that off. It begins with two waits that deliver within the time, and ends with one that has
    /// gathered a single event: at a slow pace it would only cost.
    ///
    /// It trades latency for processor time: an event that comes within the time waits for its
    /// end, and one wake-up serves all of them. A timeout of a wait ends it as before; a
    /// [`Waker`](crate::Waker) may be delayed by as much as an event. The kernel's timer slack
    /// (50 microseconds unless [set](crate::diagnostics::set_timer_slack)) comes on top.
    ///
    /// A nested poller ([`nest`](Poller::nest)) does not wait itself, so it gathers
    /// nothing.
    ///
    /// # Errors
    ///
    /// [`Error::GatherTooLong`] above one second; the time is as before.
    pub fn gather(&mut self, time: Duration) -> Result<()> {
        if time > LONGEST {
            return Err(Error::GatherTooLong { time, longest: LONGEST });
        }
        self.delivery.min_wait = 0;
        self.gather = (!time.is_zero()).then(|| {
            let in_kernel = self.backend.gathers();
            Gather { time, delivered: None, pays: false, in_kernel }
        });
        self.note_whether_waits_are_plain();
        Ok(())
    }

    /// Sleeps until a wait may return, or tells the back-end for how long it has to gather.
    #[cold]
    pub(super) fn begin_gathering(&mut self, deadline: Deadline) {
        self.delivery.min_wait = 0;
        let Some(gather) = &self.gather else { return };
        if !gather.pays || deadline == Deadline::Now || self.nested {
            return;
        }
        let left = gather.left();
        let left = deadline.left().map_or(left, |rest| rest.min(left));
        if gather.in_kernel {
            // Part of a microsecond is one: with none, the kernel would wait for all completions.
            self.delivery.min_wait = left.as_nanos().div_ceil(1_000) as u32;
        } else if !left.is_zero() {
            sys::sleep(&mut self.stats.calls, left);
        }
    }

    /// Notes that a wait has delivered so many events.
    pub(super) fn end_gathering(&mut self, events: usize) {
        if let Some(gather) = &mut self.gather {
            let now = Instant::now();
            gather.pays = match gather.pays {
                true => events > 1,
                false => gather.delivered.is_some_and(|before| now - before < gather.time),
            };
            gather.delivered = Some(now);
        }
    }
}
