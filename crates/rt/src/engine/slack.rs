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

use super::{AT_MOST, Engine, POOLED};

/// A list with fewer places than this is never shortened.
const SMALL: usize = 1024;

/// The time between two checks.
const PERIOD: Duration = Duration::from_secs(1);

/// The number of checks in a row in which a list has to be nearly empty.
const LOOKS: u8 = 3;

/// The number of places that a piece of memory for reads counts for, where an entry of a list is
/// taken to have 64 bytes.
pub(super) const PLACES: usize = AT_MOST / 64;

/// The lists of an engine.
#[derive(Clone, Copy, Debug)]
enum List {
    Timers,
    Due,
    Tasks,
    Queue,
    Sources,
    Fetchable,
    Operations,
    Messages,
    Inbox,
    Pool,
}

const LISTS: usize = List::Pool as usize + 1;

/// When the next check is due, and in how many checks each list was nearly empty.
#[derive(Debug, Default)]
pub(super) struct Slack {
    next: Cell<Option<Instant>>,
    low: [Cell<u8>; LISTS],
}

impl Slack {
    /// Notes that a place far behind was taken or freed.
    #[cold]
    fn note(&self) {
        if self.next.get().is_none() {
            self.next.set(Some(Instant::now() + PERIOD));
        }
    }

    /// Returns when to check next, if there is a reason to.
    #[inline]
    pub fn next(&self) -> Option<Instant> {
        self.next.get()
    }

    /// Begins a check. It is the last check unless [`is_spare`](Slack::is_spare) finds a list to
    /// watch.
    fn begin(&self) {
        self.next.set(None);
    }

    /// Returns whether a list with `places` places has to be shortened now, when `used` of them are
    /// in use.
    fn is_spare(&self, list: List, used: usize, places: usize, now: Instant) -> bool {
        let low = &self.low[list as usize];
        if places <= SMALL || used > places / 4 {
            low.set(0);
            return false;
        }
        low.set(low.get() + 1);
        if low.get() < LOOKS {
            self.next.set(Some(now + PERIOD));
            return false;
        }
        low.set(0);
        true
    }
}

/// Gives an emptied list's memory back, if `is_spare` says so.
fn shorten<T>(list: &Cell<Vec<T>>, is_spare: impl FnOnce(usize) -> bool) {
    let taken = list.take();
    list.set(if is_spare(taken.capacity()) { Vec::new() } else { taken });
}

impl Engine {
    /// Notes that a place of a list was taken or freed.
    #[inline]
    pub fn note_place(&self, place: usize) {
        if place >= SMALL {
            self.slack.note();
        }
    }

    /// Checks for lists that have been nearly empty for some seconds, and shortens them.
    #[cold]
    pub(super) fn look_for_slack(&self) {
        let now = Instant::now();
        if self.slack.next().is_none_or(|next| next > now) {
            return;
        }
        self.slack.begin();
        let is_spare = |list, used, places| self.slack.is_spare(list, used, places, now);
        let mut timers = self.timers.borrow_mut();
        if is_spare(List::Timers, timers.len(), timers.places()) {
            timers.shorten();
        }
        drop(timers);
        shorten(&self.due, |due| is_spare(List::Due, 0, due));
        let mut tasks = self.tasks.borrow_mut();
        if is_spare(List::Tasks, tasks.len(), tasks.capacity()) {
            tasks.shrink_to_fit();
        }
        drop(tasks);
        let mut queue = self.queue.borrow_mut();
        if is_spare(List::Queue, queue.len(), queue.places()) {
            queue.shorten();
        }
        drop(queue);
        let mut sources = self.sources.borrow_mut();
        if is_spare(List::Sources, sources.len(), sources.places()) {
            sources.shorten();
            self.poller.borrow_mut().shrink_to_fit();
        }
        drop(sources);
        let mut fetchable = self.fetchable.borrow_mut();
        if is_spare(List::Fetchable, fetchable.len(), fetchable.capacity()) {
            fetchable.shrink_to_fit();
        }
        drop(fetchable);
        if is_spare(List::Operations, self.operations.len(), self.operations.places()) {
            self.operations.shorten();
        }
        shorten(&self.messages, |messages| is_spare(List::Messages, 0, messages));
        let (messages, room) = self.remote.inbox.room();
        if is_spare(List::Inbox, messages, room) {
            self.remote.inbox.shorten();
        }
        let mut pool = self.pool.borrow_mut();
        let fetched = self.counters.fetched.get();
        let lately = (fetched - self.looked.replace(fetched)).min(POOLED as u64) as usize;
        if is_spare(List::Pool, lately * PLACES, pool.len() * PLACES) {
            pool.truncate(lately);
            pool.shrink_to_fit();
        } else if pool.len() * PLACES > SMALL {
            // No later event tells that the pool is used less, so that is noted here.
            self.slack.note();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_shortened_after_three_looks_in_a_row_and_looks_end() {
        let (slack, now) = (Slack::default(), Instant::now());
        let look = |used, places| {
            slack.begin();
            (slack.is_spare(List::Tasks, used, places, now), slack.next().is_some())
        };
        assert!(slack.next().is_none());
        slack.note();
        assert!(slack.next().unwrap() > now);
        assert_eq!(look(0, SMALL), (false, false), "small");
        assert_eq!(look(2000, 4000), (false, false), "in use");
        assert_eq!((look(1000, 4000), look(1000, 4000)), ((false, true), (false, true)));
        assert_eq!(look(1001, 4000), (false, false), "used in between");
        assert_eq!((look(0, 4000), look(9, 4000)), ((false, true), (false, true)));
        assert_eq!(look(0, 4000), (true, false));
        assert_eq!(look(0, 4000), (false, true), "it begins anew");
    }

    #[test]
    fn each_list_counts_for_itself() {
        let (slack, now) = (Slack::default(), Instant::now());
        for _ in 0..LOOKS - 1 {
            assert!(!slack.is_spare(List::Timers, 0, 4000, now));
        }
        assert!(!slack.is_spare(List::Queue, 0, 4000, now));
        assert!(slack.is_spare(List::Timers, 0, 4000, now));
    }
}
