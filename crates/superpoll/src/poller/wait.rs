//! Waiting: the usual case in a few lines, and all the steps for the rest.
//!
//! The usual wait is one call of the back-end, with no change to apply before and no event kept
//! waiting after. It is inlined into the caller. Everything else goes through `wait_thoroughly`,
//! which repeats the steps until there is a reason to return.

use std::collections::HashMap;
use std::io;
use std::time::Duration;

use crate::backend::{Deadline, Report, WaitCall};
use crate::error::{Error, Result};
use crate::event::{Event, Events, Readiness};
use crate::interest::{Interest, Mode};
use crate::key::Key;
use crate::poller::Poller;
use crate::sleep::Signals;

impl Poller {
    /// Waits until something is ready, a waker is used, or the timeout is over (`None`: no
    /// timeout), and replaces the contents of `events`. Returns how many events there are: zero
    /// only after the timeout, a wake ([`Events::woken`]) or a refusal ([`Events::refusals`]).
    ///
    /// The timeout has nanosecond resolution and never ends early; how late it ends is the kernel's
    /// timer slack (see [`set_timer_slack`](crate::diagnostics::set_timer_slack)). Signals do not
    /// end a wait.
    ///
    /// # Errors
    ///
    /// [`Error::ZeroLimit`], or [`Error::System`] if the system call fails; registrations are
    /// unaffected, and `events` is empty.
    // Inlined, for the reason that `sys::wait_call` gives.
    #[inline(always)]
    pub fn wait(&mut self, events: &mut Events, timeout: Option<Duration>) -> Result<usize> {
        events.empty();
        if events.limit == 0 {
            return Err(Error::ZeroLimit);
        }
        self.stats.waits += 1;
        let deadline = match timeout {
            None => Deadline::Never,
            Some(Duration::ZERO) => Deadline::Now,
            Some(_) => Deadline::after(timeout),
        };
        // The usual case: only the kernel needs to be asked, and it has something to report.
        let mut waited = None;
        if self.is_fast_path() {
            let (backend, mut cx) = self.split_for(events);
            // The call itself is made here, for the reason that `sys::wait_call` gives.
            let answer = backend.prepare_wait(&mut cx, deadline).map(WaitCall::issue);
            let outcome = backend.finish_wait(&mut cx, deadline, answer);
            let usual = (!events.list.is_empty() || !events.reads.is_empty())
                && outcome.is_ok()
                && self.delivery.is_idle()
                && !self.shared.has_commands();
            if usual {
                events.woken = self.signals().woken;
                self.stats.events += events.list.len() as u64;
                return Ok(events.list.len());
            }
            waited = Some(outcome);
        }
        self.wait_thoroughly(events, deadline, waited)
    }

    #[inline]
    fn is_fast_path(&self) -> bool {
        !self.table.has_changes()
            && self.table.always_ready().is_empty()
            && self.marked_ready.is_empty()
            && self.refusals.is_empty()
            && self.delivery.is_idle()
            && self.is_plain
            && !self.shared.has_commands()
            && !(self.wakeable && self.shared.sleep.is_signalled())
    }

    /// A wait with all its steps; `waited` if the back-end has waited already.
    #[inline(never)]
    fn wait_thoroughly(
        &mut self,
        events: &mut Events,
        mut deadline: Deadline,
        waited: Option<io::Result<()>>,
    ) -> Result<usize> {
        self.delivery.begin_wait();
        let early = if self.nested { self.signals() } else { Signals::default() };
        if early.woken {
            deadline = Deadline::Now;
        }
        let outcome = self.fill(events, deadline, waited);
        self.delivery.end_wait(events, &mut self.table);
        if !self.refusals.is_empty() {
            events.refusals.append(&mut self.refusals);
        }
        self.stats.events += events.list.len() as u64;
        if !events.list.is_empty() || !events.reads.is_empty() {
            self.end_gathering(events.list.len() + events.reads.len());
        }
        if self.nested && self.table.has_changes() {
            // A registration whose turn came too late must be armed again, and the outer loop may
            // sleep for long.
            self.flush_kernel();
        }
        self.sync_nested_wakeup();
        match outcome {
            Ok(woken) => {
                events.woken = woken || early.woken;
                Ok(events.list.len())
            }
            // Events that were found or completed before the failure are not lost with it.
            Err(_) if !events.list.is_empty() || !events.reads.is_empty() => Ok(events.list.len()),
            Err(source) => Err(Error::system("waiting", None, source)),
        }
    }

    /// Delivers ready descriptors; returns whether a waker was used.
    fn fill(
        &mut self,
        events: &mut Events,
        mut deadline: Deadline,
        mut waited: Option<io::Result<()>>,
    ) -> io::Result<bool> {
        loop {
            let (mut marked, mut outcome) = (0, waited.take());
            if outcome.is_none() {
                self.take_commands();
                self.apply_changes();
                marked = self.deliver_marked(events);
                // The event of a descriptor that the caller marked as ready is merged with the one
                // found for it, which leaves room again.
                while !self.delivery.backlog.is_empty() && events.list.len() < events.limit {
                    self.split_for(events).1.serve_backlog()?;
                    merge(&mut events.list, marked);
                }
                if events.list.len() >= events.limit {
                    let (backend, mut cx) = self.split_for(events);
                    if let Some(reads) = backend.batch_reads() {
                        reads.perform(&mut cx)?;
                    }
                    return Ok(self.signals().woken);
                }
                self.delivery.begin_collection();
                self.deliver_always_ready(events);
                let found = !events.list.is_empty() || !self.delivery.backlog.is_empty();
                let signalled = self.wakeable && self.shared.sleep.is_signalled();
                if found || signalled || !self.refusals.is_empty() {
                    deadline = Deadline::Now;
                }
                if !self.is_plain {
                    self.begin_gathering(deadline);
                }
                let (backend, mut cx) = self.split_for(events);
                outcome = Some(backend.finish_wait(&mut cx, deadline, None));
            }
            if let Some(Err(error)) = outcome {
                self.after_failure(events, deadline, error)?;
            }
            self.delivery.end_collection(events, &mut self.table);
            let signals = self.signals();
            merge(&mut events.list, marked);
            if !(self.delivery.invalid.is_empty() && self.delivery.unwatched.is_empty()) {
                self.refuse_invalid();
            }
            if self.shared.has_commands() {
                // An owner was dropped while we slept: none of its events may come out.
                self.take_commands();
                events.list.retain(|event| self.table.get(event.key()).is_some());
            }
            if signals.woken
                || !events.list.is_empty()
                || !events.reads.is_empty()
                || !self.refusals.is_empty()
                || (deadline.is_over() && !signals.kicked)
            {
                return Ok(signals.woken);
            }
        }
    }

    /// Returns an error that ends the wait. An interrupted call is repeated, because it reports
    /// nothing about readiness: before the deadline by the caller, after the deadline here and
    /// without a timeout. The process may have been stopped (SIGSTOP) for longer than the timeout,
    /// and much may have arrived since.
    #[cold]
    fn after_failure(
        &mut self,
        events: &mut Events,
        deadline: Deadline,
        mut error: io::Error,
    ) -> io::Result<()> {
        while error.kind() == io::ErrorKind::Interrupted {
            if !deadline.is_over() {
                return Ok(());
            }
            let (backend, mut cx) = self.split_for(events);
            match backend.finish_wait(&mut cx, Deadline::Now, None) {
                Ok(()) => return Ok(()),
                Err(other) => error = other,
            }
        }
        self.delivery.end_collection(events, &mut self.table);
        Err(error)
    }

    /// Ends the registrations of descriptors that were found closed, or cannot be watched.
    #[cold]
    fn refuse_invalid(&mut self) {
        while let Some((key, error)) = self.delivery.unwatched.pop() {
            if let Some(slot) = self.table.get(key) {
                let fd = slot.fd();
                let _ = self.end(key, false);
                let source = io::Error::from_raw_os_error(error);
                self.refuse(key, Error::system("watching it", Some(fd), source));
            }
        }
        while let Some(key) = self.delivery.invalid.pop() {
            if let Some(slot) = self.table.get(key) {
                let fd = slot.fd();
                let _ = self.end(key, true);
                self.refuse(key, Error::BadDescriptor { fd });
            }
        }
    }

    pub(super) fn signals(&self) -> Signals {
        if self.wakeable { self.shared.sleep.take() } else { Signals::default() }
    }

    /// Delivers the readiness that the caller injected; returns how many registrations that
    /// concerns.
    #[inline]
    fn deliver_marked(&mut self, events: &mut Events) -> usize {
        if self.marked_ready.is_empty() { 0 } else { self.deliver_all_marked(events) }
    }

    fn deliver_all_marked(&mut self, events: &mut Events) -> usize {
        let mut marked = std::mem::take(&mut self.marked_ready);
        let all = marked.len();
        merge(&mut marked, all);
        let (_, mut cx) = self.split_for(events);
        marked.retain(|marked| {
            if cx.events.list.len() >= cx.events.limit {
                return true;
            }
            let key = marked.key();
            let once = cx.table.get(key).is_some_and(|slot| slot.watch().mode == Mode::OneShot);
            if cx.report(key, marked.readiness()) == Report::Taken && once {
                // Not found by the back-end, so the back-end does not know that it is disarmed.
                cx.table.mark(key.index());
            }
            false
        });
        self.marked_ready = marked;
        events.list.len()
    }

    /// Delivers files that are always ready.
    #[inline]
    fn deliver_always_ready(&mut self, events: &mut Events) {
        if !self.table.always_ready().is_empty() {
            self.deliver_all_always_ready(events);
        }
    }

    fn deliver_all_always_ready(&mut self, events: &mut Events) {
        let (_, mut cx) = self.split_for(events);
        for place in 0..cx.table.always_ready().len() {
            let index = cx.table.always_ready()[place];
            let slot = cx.table.slot(index);
            let watch = slot.watch();
            let once = matches!(watch.mode, Mode::Edge | Mode::Auto);
            if watch.interest.is_empty() || (once && !slot.is_due()) {
                continue;
            }
            let key = cx.table.key(index);
            let ready = Readiness::of(watch.interest & (Interest::READABLE | Interest::WRITABLE));
            if matches!(cx.report(key, ready), Report::Taken | Report::Later) {
                cx.table.slot_mut(index).set_due(false);
            }
        }
    }
}

/// Leaves one event per descriptor: each of the first `marked` takes in the readiness of later
/// events with the same key.
fn merge(list: &mut Vec<Event>, marked: usize) {
    if marked == 0 || list.len() < 2 {
        return;
    }
    let mut first: HashMap<Key, usize> = HashMap::with_capacity(marked);
    let mut kept = 0;
    for place in 0..list.len() {
        let event = list[place];
        if let Some(&earlier) = first.get(&event.key()) {
            let both = list[earlier].readiness() | event.readiness();
            list[earlier] = Event::new(event.key(), both);
            continue;
        }
        if place < marked {
            first.insert(event.key(), kept);
        }
        list[kept] = event;
        kept += 1;
    }
    list.truncate(kept);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marked_events_absorb_later_readiness_of_the_same_key() {
        let event = |key: u32, readiness| Event::new(Key::new(key, 0), readiness);
        let (readable, writable) = (Readiness::READABLE, Readiness::WRITABLE);
        let cases = [
            (0, vec![], vec![]),
            (1, vec![(1, readable)], vec![(1, readable)]),
            (1, vec![(1, readable), (1, writable)], vec![(1, readable | writable)]),
            (1, vec![(1, readable), (2, writable)], vec![(1, readable), (2, writable)]),
            (
                2,
                vec![(1, readable), (2, readable), (3, readable), (2, writable), (1, writable)],
                vec![(1, readable | writable), (2, readable | writable), (3, readable)],
            ),
            (2, vec![(1, readable), (1, writable), (1, writable)], vec![(1, readable | writable)]),
            // Events of one key that the caller did not inject may repeat; a later step unites
            // those.
            (
                1,
                vec![(1, readable), (2, readable), (2, writable), (1, writable)],
                vec![(1, readable | writable), (2, readable), (2, writable)],
            ),
            (0, vec![(1, readable), (1, writable)], vec![(1, readable), (1, writable)]),
        ];
        for (marked, before, after) in cases {
            let mut list: Vec<_> = before.iter().map(|&(key, found)| event(key, found)).collect();
            merge(&mut list, marked);
            let left: Vec<_> =
                list.iter().map(|event| (event.key().index(), event.readiness())).collect();
            assert_eq!(left, after, "{marked} of {before:?}");
        }
    }
}
