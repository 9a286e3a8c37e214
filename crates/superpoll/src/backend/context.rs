//! The parts of the poller that a back-end gets with each call: registrations, counters, the place
//! for reports, and the end of the wait.

use std::time::{Duration, Instant};

use crate::backend::{BatchedRead, Delivery};
use crate::event::{Event, Events, Readiness};
use crate::interest::Mode;
use crate::key::Key;
use crate::sleep::Sleep;
use crate::stats::Stats;
use crate::table::Table;

/// Until when a wait may block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Deadline {
    /// It may not block: check and return.
    Now,
    /// Until this moment.
    At(Instant),
    /// Indefinitely.
    Never,
}

impl Deadline {
    /// Converts the timeout of a wait. A timeout too long for the clock never ends.
    #[inline(never)]
    pub fn after(timeout: Option<Duration>) -> Deadline {
        match timeout {
            None => Deadline::Never,
            Some(Duration::ZERO) => Deadline::Now,
            Some(timeout) => {
                Instant::now().checked_add(timeout).map_or(Deadline::Never, Deadline::At)
            }
        }
    }

    /// The rest of the time: `None` without an end, zero if the wait may not block.
    #[inline]
    pub fn left(self) -> Option<Duration> {
        match self {
            Deadline::Now => Some(Duration::ZERO),
            Deadline::At(moment) => Some(moment.saturating_duration_since(Instant::now())),
            Deadline::Never => None,
        }
    }

    /// Whether no time is left.
    pub fn is_over(self) -> bool {
        self.left() == Some(Duration::ZERO)
    }
}

/// The outcome of a report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Report {
    /// Delivered.
    Taken,
    /// Kept for its turn.
    Later,
    /// The registration does not want it (disarmed, or a direction disabled lazily).
    Unwanted,
    /// The registration has ended.
    Stale,
}

/// The context of a call to a back-end: registrations, statistics, and where to report.
pub struct Context<'a> {
    /// The registrations.
    pub table: &'a mut Table,
    /// The counters.
    pub stats: &'a mut Stats,
    pub(crate) events: &'a mut Events,
    pub(crate) delivery: &'a mut Delivery,
    pub(crate) sleep: Option<&'a Sleep>,
    pub(crate) asleep: bool,
}

impl Context<'_> {
    /// Reports the readiness found for a descriptor. Delivers the part that the caller wants, or
    /// keeps it for a later wait if the limit is reached; disarms a one-shot registration that was
    /// delivered.
    // In each back-end: a call of its own is a tenth of what an event costs `uring`.
    #[inline(always)]
    pub fn report(&mut self, key: Key, found: Readiness) -> Report {
        let Some(slot) = self.table.get_mut(key) else {
            self.stats.stale += 1;
            return Report::Stale;
        };
        let watch = slot.watch();
        let wanted = found.masked(watch.interest);
        if wanted.is_empty() {
            self.stats.unwanted += 1;
            return Report::Unwanted;
        }
        if self.delivery.all || self.events.list.len() >= self.events.limit {
            slot.set_queued(true);
            self.delivery.backlog.push_back(Event::new(key, wanted));
            return Report::Later;
        }
        if watch.mode == Mode::OneShot {
            slot.disarm();
        }
        self.events.list.push(Event::new(key, wanted));
        Report::Taken
    }

    /// For how many microseconds a wait that blocks gathers events, if the back-end
    /// [does so](crate::backend::Backend::gathers).
    #[inline]
    pub fn min_wait(&self) -> u32 {
        self.delivery.min_wait
    }

    /// How many events may be delivered as soon as they are found.
    #[inline]
    pub(crate) fn room_at_once(&self) -> usize {
        if self.delivery.all { 0 } else { self.events.limit - self.events.list.len() }
    }

    /// Delivers an event that needs no mask, if there is [room](Context::room_at_once).
    #[inline]
    pub(crate) fn deliver_plain(&mut self, key: Key, found: Readiness) {
        self.events.list.push(Event::new(key, found));
    }

    /// Takes the outcome of a read ([`BatchReads`](crate::backend::BatchReads)).
    pub fn read(&mut self, read: BatchedRead) {
        self.events.reads.push(read);
    }

    /// Reports that a descriptor was found closed. Its registration ends with a refusal.
    pub fn invalid(&mut self, key: Key) {
        self.delivery.invalid.push(key);
    }

    /// Reports that the kernel does not watch a descriptor although it was asked to, with the
    /// error's number. Its registration ends with a refusal.
    pub fn unwatched(&mut self, key: Key, error: i32) {
        self.delivery.unwatched.push((key, error));
    }

    /// How many events are enough for a back-end whose kernel object reports ready descriptors in
    /// turn; `None` if it must fetch all of them, because other sources share the turns.
    pub(crate) fn room_in_turn(&self) -> Option<usize> {
        (!self.delivery.all && self.table.always_ready().is_empty())
            .then(|| self.events.limit - self.events.list.len())
    }

    /// Call this right before a system call that may block: it announces the sleep to the wakers.
    /// If it returns false a wake has arrived already, and the call must not block.
    #[must_use]
    #[inline]
    pub fn may_block(&mut self) -> bool {
        match self.sleep {
            None => true,
            Some(_) if self.asleep => true,
            Some(sleep) => {
                self.asleep = sleep.begin();
                self.asleep
            }
        }
    }

    /// Reports that the waker's descriptor is ready.
    pub fn waker_fired(&mut self) {
        if let Some(sleep) = self.sleep {
            sleep.drain(&mut self.stats.calls);
        }
    }
}
