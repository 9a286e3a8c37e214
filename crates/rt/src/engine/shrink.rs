//! Giving memory back after a spike.
//!
//! The lists of an engine grow with the number of tasks, descriptors and timers. After a spike they
//! would keep the size of that spike: a million timers took 43 MB permanently. So the engine checks
//! them once a second as long as there is memory to give back, and shortens a list that was at most
//! a quarter full in three checks in a row. A list that fills and empties faster keeps its size,
//! and a list that is shortened too early costs one growth every few seconds.
//!
//! An entry that is in use stays where it is, as keys name places. A list is therefore shortened to
//! its last entry in use, and from then on free places are used from the front.
//!
//! The hot paths pay one comparison where a place is taken or freed: only places from [`SMALL`] on
//! call for checks. An engine that sleeps is woken for a check, at most three times after a place
//! was freed, and then sleeps on.

use std::cell::Cell;
use std::time::{Duration, Instant};

use super::Engine;

/// A list with fewer places than this is never shortened.
const SMALL: usize = 1024;

/// The time between two checks.
const PERIOD: Duration = Duration::from_secs(1);

/// The number of checks in a row in which a list has to be nearly empty.
const CHECKS: u8 = 3;

/// The lists of an engine.
#[derive(Clone, Copy, Debug)]
enum List {
    Timers,
    Due,
    Tasks,
    Queue,
    Sources,
    Messages,
    Inbox,
}

const LISTS: usize = List::Inbox as usize + 1;

/// When the next check is due, and in how many checks each list was nearly empty.
#[derive(Debug, Default)]
pub(super) struct ShrinkChecks {
    next: Cell<Option<Instant>>,
    low: [Cell<u8>; LISTS],
}

impl ShrinkChecks {
    /// Notes that a place far behind was taken or freed.
    #[cold]
    fn note(&self) {
        if self.next.get().is_none() {
            self.next.set(Some(Instant::now() + PERIOD));
        }
    }

    /// Returns when to check next, if there is a reason to.
    #[inline]
    pub(super) fn next(&self) -> Option<Instant> {
        self.next.get()
    }

    /// Begins a check. It is the last check unless
    /// [`should_shrink`](ShrinkChecks::should_shrink) finds a list to watch.
    fn begin(&self) {
        self.next.set(None);
    }

    /// Returns whether a list with `places` places has to be shortened now, when `used` of them are
    /// in use.
    fn should_shrink(&self, list: List, used: usize, places: usize, now: Instant) -> bool {
        let low = &self.low[list as usize];
        if places <= SMALL || used > places / 4 {
            low.set(0);
            return false;
        }
        low.set(low.get() + 1);
        if low.get() < CHECKS {
            self.next.set(Some(now + PERIOD));
            return false;
        }
        low.set(0);
        true
    }
}

/// Gives an emptied list's memory back, if `should_shrink` says so.
fn shrink<T>(list: &Cell<Vec<T>>, should_shrink: impl FnOnce(usize) -> bool) {
    let taken = list.take();
    list.set(if should_shrink(taken.capacity()) { Vec::new() } else { taken });
}

impl Engine {
    /// Notes that a place of a list was taken or freed.
    #[inline]
    pub(crate) fn note_slot(&self, place: usize) {
        if place >= SMALL {
            self.shrink_checks.note();
        }
    }

    /// Checks for lists that have been nearly empty for some seconds, and shortens them.
    #[cold]
    pub(super) fn shrink_lists(&self) {
        let now = Instant::now();
        if self.shrink_checks.next().is_none_or(|next| next > now) {
            return;
        }
        self.shrink_checks.begin();
        let should_shrink =
            |list, used, places| self.shrink_checks.should_shrink(list, used, places, now);
        let mut timers = self.timers.borrow_mut();
        if should_shrink(List::Timers, timers.len(), timers.capacity()) {
            timers.shrink();
        }
        drop(timers);
        shrink(&self.due, |due| should_shrink(List::Due, 0, due));
        let mut tasks = self.tasks.borrow_mut();
        if should_shrink(List::Tasks, tasks.len(), tasks.capacity()) {
            tasks.shrink_to_fit();
        }
        drop(tasks);
        let mut queue = self.queue.borrow_mut();
        if should_shrink(List::Queue, queue.len(), queue.capacity()) {
            queue.shrink();
        }
        drop(queue);
        let mut sources = self.sources.borrow_mut();
        if should_shrink(List::Sources, sources.len(), sources.capacity()) {
            sources.shrink();
            self.poller.borrow_mut().shrink_to_fit();
        }
        drop(sources);
        shrink(&self.messages, |messages| should_shrink(List::Messages, 0, messages));
        let (messages, room) = self.remote.inbox.room();
        if should_shrink(List::Inbox, messages, room) {
            self.remote.inbox.shrink();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_shortened_after_three_checks_in_a_row_and_checks_end() {
        let (checks, now) = (ShrinkChecks::default(), Instant::now());
        let check = |used, places| {
            checks.begin();
            (checks.should_shrink(List::Tasks, used, places, now), checks.next().is_some())
        };
        assert!(checks.next().is_none());
        checks.note();
        assert!(checks.next().unwrap() > now);
        assert_eq!(check(0, SMALL), (false, false), "small");
        assert_eq!(check(2000, 4000), (false, false), "in use");
        assert_eq!((check(1000, 4000), check(1000, 4000)), ((false, true), (false, true)));
        assert_eq!(check(1001, 4000), (false, false), "used in between");
        assert_eq!((check(0, 4000), check(9, 4000)), ((false, true), (false, true)));
        assert_eq!(check(0, 4000), (true, false));
        assert_eq!(check(0, 4000), (false, true), "it begins anew");
    }

    #[test]
    fn each_list_counts_for_itself() {
        let (checks, now) = (ShrinkChecks::default(), Instant::now());
        for _ in 0..CHECKS - 1 {
            assert!(!checks.should_shrink(List::Timers, 0, 4000, now));
        }
        assert!(!checks.should_shrink(List::Queue, 0, 4000, now));
        assert!(checks.should_shrink(List::Timers, 0, 4000, now));
    }
}
