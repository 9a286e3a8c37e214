//! Chooses the events that are delivered when a limit cuts a wait off.
//!
//! As long as everything that is ready fits into the limit, nothing here costs anything. Events
//! that do not fit go into the backlog, oldest service first, and are served from there in the next
//! waits. The kernel is asked about the descriptors that are served, in one `poll` without a
//! timeout, because the caller may have drained them in the meantime; it is not asked to find them
//! again. Only when the backlog is exhausted are all ready descriptors collected again and sorted
//! by the time of the last service, and the rest of the limit is filled from the front.
//!
//! So between two services of a descriptor that stays ready each other descriptor is served at most
//! once: it is reported within ceil(ready / limit) waits, in any run of waits, wherever it is
//! watched. And a burst of many events through a small limit costs one collection, not one for each
//! wait.

use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
use std::io;

use crate::backend::{Context, Deadline};
use crate::event::{Event, Events, Readiness};
use crate::interest::Mode;
use crate::key::Key;
use crate::sys::poll::{self, Slot};
use crate::table::Table;

/// Events that were found and not delivered.
#[derive(Debug, Default)]
pub(crate) struct Delivery {
    /// Events of descriptors that were ready when they were found, the longest wait first.
    pub backlog: VecDeque<Event>,
    /// In this collection everything goes to the backlog first, to be sorted.
    pub all: bool,
    /// Registrations whose descriptor was found closed.
    pub invalid: Vec<Key>,
    /// Registrations that the kernel would not watch after all, and why.
    pub unwatched: Vec<(Key, i32)>,
    /// For how many microseconds the back-end gathers events in this wait.
    pub min_wait: u32,
    /// A wait was cut off, and since then not everything that was ready has fitted into one.
    cut: bool,
    /// The kernel was asked for as many events as there was room for, and had that many.
    kernel_cut: bool,
    /// The number of this wait, wrapping; slots remember the last one that served them.
    wait: u32,
    probe: Vec<Slot>,
    probed: Vec<Key>,
    again: HashMap<Key, Readiness>,
}

impl Delivery {
    pub(crate) fn begin_wait(&mut self) {
        // Never zero, which means that a slot has not been served. The numbers come round after
        // four thousand million waits that were cut off. A descriptor that was last served exactly
        // that long ago waits for one more wait; the rest only change places in the queue.
        self.wait = self.wait.wrapping_add(1).max(1);
    }

    /// Whether no event is kept waiting and no descriptor was found closed.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        !self.all
            && !self.cut
            && !self.kernel_cut
            && self.backlog.is_empty()
            && self.invalid.is_empty()
            && self.unwatched.is_empty()
    }

    /// Begins a collection of all ready descriptors. The backlog is empty.
    #[inline]
    pub(crate) fn begin_collection(&mut self) {
        self.all = self.cut;
    }

    /// Ends a collection: fills the room that is left, oldest service first.
    #[inline]
    pub(crate) fn end_collection(&mut self, events: &mut Events, table: &mut Table) {
        if self.all || !self.backlog.is_empty() {
            self.sort(events, table);
        }
    }

    /// Ends a wait: if some event may not have been delivered, notes which registrations were
    /// served.
    #[inline]
    pub(crate) fn end_wait(&self, events: &Events, table: &mut Table) {
        if self.cut || self.kernel_cut {
            self.note(events, table);
        }
    }

    fn note(&self, events: &Events, table: &mut Table) {
        for event in &events.list {
            if let Some(slot) = table.get_mut(event.key()) {
                slot.served = self.wait;
            }
        }
    }

    #[cold]
    fn sort(&mut self, events: &mut Events, table: &mut Table) {
        self.note(events, table);
        let wait = self.wait;
        let age =
            |event: &Event| table.get(event.key()).map_or(0, |slot| wait.wrapping_sub(slot.served));
        let mut found = Vec::from(std::mem::take(&mut self.backlog));
        found.sort_unstable_by_key(|event| (Reverse(age(event)), event.key().index()));
        // A back-end that had to ask the kernel twice has found some events twice.
        found.dedup_by(|second, first| {
            let same = second.key() == first.key();
            if same {
                *first = Event::new(first.key(), first.readiness() | second.readiness());
            }
            same
        });
        self.backlog = found.into();
        if self.all {
            // An event that this wait has delivered already absorbs the readiness found since.
            let fresh = self.backlog.iter().filter(|event| age(event) > 0).count();
            self.again.clear();
            for event in self.backlog.drain(fresh..) {
                if let Some(slot) = table.get_mut(event.key()) {
                    slot.set_queued(false);
                }
                self.again.insert(event.key(), event.readiness());
            }
            for event in &mut events.list {
                if let Some(&found) = self.again.get(&event.key()) {
                    *event = Event::new(event.key(), event.readiness() | found);
                }
            }
            let room = events.limit - events.list.len();
            for event in self.backlog.drain(..room.min(fresh)) {
                if let Some(slot) = table.get_mut(event.key()) {
                    slot.set_queued(false);
                    if slot.watch().mode == Mode::OneShot {
                        slot.disarm();
                        table.mark(event.key().index());
                    }
                    events.list.push(event);
                }
            }
        }
        self.all = false;
        self.kernel_cut = false;
        self.cut = !self.backlog.is_empty();
    }
}

impl Context<'_> {
    /// Delivers the events from the backlog that are still ready, as far as the limit allows. If
    /// that leaves room, the backlog is exhausted.
    pub(crate) fn serve_backlog(&mut self) -> io::Result<()> {
        let mut probe = std::mem::take(&mut self.delivery.probe);
        let mut probed = std::mem::take(&mut self.delivery.probed);
        let outcome = loop {
            probe.clear();
            probed.clear();
            let room = self.events.limit - self.events.list.len();
            while probe.len() < room {
                let Some(event) = self.delivery.backlog.pop_front() else { break };
                let Some(slot) = self.table.get_mut(event.key()) else { continue };
                let queued = slot.is_queued();
                slot.set_queued(false);
                if queued && !slot.interest().is_empty() {
                    let events = slot.interest().poll_bits();
                    probe.push(Slot { fd: slot.fd(), events, revents: 0 });
                    probed.push(event.key());
                }
            }
            if probe.is_empty() {
                break Ok(());
            }
            if let Err(error) = poll::wait(&mut self.stats.calls, &mut probe, Deadline::Now.left())
            {
                for &key in probed.iter().rev() {
                    self.table.slot_mut(key.index()).set_queued(true);
                    self.delivery.backlog.push_front(Event::new(key, Readiness::NONE));
                }
                break Err(error);
            }
            for (slot, &key) in probe.iter().zip(&probed) {
                self.serve(key, slot.revents);
            }
        };
        self.delivery.probe = probe;
        self.delivery.probed = probed;
        outcome
    }

    /// Notes whether the kernel had as many events as there was room for, and reported them in
    /// turn.
    pub(crate) fn note_kernel_turn(&mut self) {
        // Where all that is registered fits into the limit, nothing can be cut off.
        let may_cut = self.table.len() > self.events.limit;
        self.delivery.kernel_cut = may_cut && self.room_in_turn() == Some(0);
    }

    /// Whether more may be ready than this wait delivers.
    pub(crate) fn is_cut_off(&self) -> bool {
        self.delivery.kernel_cut || self.delivery.cut || self.events.list.len() >= self.events.limit
    }

    /// Sorts all events from here on before they are delivered.
    pub(crate) fn collect_all(&mut self) {
        self.delivery.all = true;
    }

    /// Notes that descriptors are watched in two places from here on, so the kernel alone no longer
    /// decides whose turn it is.
    pub(crate) fn end_kernel_turns(&mut self) {
        self.delivery.all |= self.delivery.kernel_cut;
    }

    fn serve(&mut self, key: Key, found: i16) {
        if found & libc::POLLNVAL != 0 {
            self.stats.invalid += 1;
            self.invalid(key);
            return;
        }
        let index = key.index();
        let slot = self.table.slot(index);
        let once = slot.watch().mode == Mode::OneShot;
        if found != 0 {
            // For a file that is always ready, this is the report that a change has made due.
            self.table.slot_mut(index).set_due(false);
            self.report(key, Readiness::from_poll_bits(found));
        }
        // A served one-shot registration must be disarmed where it is watched; one that the kernel
        // has disarmed for an event that is gone must be armed again.
        if once {
            self.table.mark(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::tests::stage::Stage;
    use crate::interest::{Interest, Watch};
    use std::io::{PipeReader, PipeWriter, Read, Write};
    use std::os::fd::AsRawFd;

    #[test]
    fn delivery_is_idle_without_queued_or_cut_off_events() {
        let key = Key::new(0, 0);
        assert!(Delivery { wait: 7, ..Delivery::default() }.is_idle());
        let busy = [
            Delivery { all: true, ..Delivery::default() },
            Delivery { cut: true, ..Delivery::default() },
            Delivery { kernel_cut: true, ..Delivery::default() },
            Delivery { invalid: vec![key], ..Delivery::default() },
            Delivery { backlog: [Event::new(key, Readiness::NONE)].into(), ..Delivery::default() },
        ];
        for delivery in busy {
            assert!(!delivery.is_idle(), "{delivery:?}");
        }
    }

    /// Registers the reading ends of ready pipes; they wait for their turn.
    fn backlog(stage: &mut Stage, count: usize, mode: Mode) -> Vec<(PipeReader, PipeWriter, Key)> {
        let pipes: Vec<_> = (0..count)
            .map(|_| {
                let (reader, mut writer) = std::io::pipe().unwrap();
                writer.write_all(b"x").unwrap();
                let watch = Watch::new(Interest::READABLE).mode(mode);
                let key = stage.add(reader.as_raw_fd(), watch);
                (reader, writer, key)
            })
            .collect();
        stage.delivery.all = true;
        for (_, _, key) in &pipes {
            assert_eq!(stage.cx().report(*key, Readiness::READABLE), crate::backend::Report::Later);
        }
        stage.delivery.all = false;
        pipes
    }

    #[test]
    fn the_backlog_is_served_in_order_and_as_far_as_it_is_still_true() {
        let mut stage = Stage::new(2);
        let mut pipes = backlog(&mut stage, 5, Mode::Level);
        pipes[0].0.read_exact(&mut [0]).unwrap();
        let keys: Vec<_> = pipes.iter().map(|pipe| pipe.2).collect();
        stage.cx().serve_backlog().unwrap();
        assert_eq!(stage.keys(), (vec![keys[1], keys[2]], vec![keys[3], keys[4]]));
        // The first two, and then one more for the one that was drained.
        assert_eq!(stage.stats.calls.poll, 2);
        assert_eq!(
            stage.stats.unwanted, 0,
            "a descriptor that is not ready is not reported at all"
        );
        assert!(!stage.table.slot(keys[1].index()).is_queued());
        assert!(stage.table.slot(keys[3].index()).is_queued());
        assert!(!stage.table.has_changes());
    }

    #[test]
    fn a_sorted_and_delivered_event_is_no_longer_queued() {
        let mut stage = Stage::new(2);
        let pipes = backlog(&mut stage, 3, Mode::Level);
        let keys: Vec<_> = pipes.iter().map(|pipe| pipe.2).collect();
        stage.delivery.begin_wait();
        stage.delivery.all = true;
        stage.delivery.end_collection(&mut stage.events, &mut stage.table);
        assert_eq!(stage.keys(), (vec![keys[0], keys[1]], vec![keys[2]]));
        let queued = |key: &Key| stage.table.slot(key.index()).is_queued();
        assert_eq!(keys.iter().map(queued).collect::<Vec<_>>(), [false, false, true]);
        // Found once more in the wait that has served it.
        stage.delivery.all = true;
        assert_eq!(stage.cx().report(keys[0], Readiness::READABLE), crate::backend::Report::Later);
        stage.delivery.end_collection(&mut stage.events, &mut stage.table);
        assert!(!stage.table.slot(keys[0].index()).is_queued());
    }

    #[test]
    fn a_dequeued_disarmed_or_ended_registration_loses_its_turn() {
        let mut stage = Stage::new(4);
        let pipes = backlog(&mut stage, 3, Mode::Level);
        stage.table.slot_mut(pipes[0].2.index()).set_queued(false);
        stage.table.slot_mut(pipes[1].2.index()).disarm();
        stage.table.end(pipes[2].2.index(), false);
        stage.cx().serve_backlog().unwrap();
        assert_eq!(stage.keys(), (vec![], vec![]));
        assert_eq!(stage.stats.calls.total(), 0, "the kernel is not even asked");
    }

    #[test]
    fn a_one_shot_that_had_its_turn_is_listed_as_a_change() {
        let mut stage = Stage::new(4);
        let mut pipes = backlog(&mut stage, 2, Mode::OneShot);
        pipes[0].0.read_exact(&mut [0]).unwrap();
        let keys: Vec<_> = pipes.iter().map(|pipe| pipe.2).collect();
        stage.cx().serve_backlog().unwrap();
        assert_eq!(stage.delivered(), [(keys[1], Readiness::READABLE)]);
        // One must be armed again because its event is gone; one must be disarmed.
        let changed = stage.table.take_changed();
        assert_eq!(changed, [keys[0].index(), keys[1].index()]);
        let interests = [keys[0], keys[1]].map(|key| stage.table.slot(key.index()).interest());
        assert_eq!(interests, [Interest::READABLE, Interest::NONE]);
    }

    #[test]
    fn a_descriptor_that_was_closed_while_queued_is_found_invalid() {
        let mut stage = Stage::new(4);
        // A number that nothing here comes near.
        let key = stage.add(1_000_000, Interest::READABLE);
        stage.delivery.all = true;
        stage.cx().report(key, Readiness::READABLE);
        stage.cx().serve_backlog().unwrap();
        assert_eq!(stage.keys(), (vec![], vec![]));
        assert_eq!((stage.delivery.invalid, stage.stats.invalid), (vec![key], 1));
    }

    #[test]
    fn the_kernel_has_cut_off_events_if_it_filled_the_room_and_more_are_registered() {
        let cut = |registered: i32, limit: usize, delivered: usize, all: bool| {
            let mut stage = Stage::new(limit);
            let keys: Vec<_> =
                (0..registered).map(|fd| stage.add(fd, Interest::READABLE)).collect();
            for (n, &key) in keys[..delivered].iter().enumerate() {
                stage.cx().deliver_plain(key, Readiness::READABLE);
                assert_eq!(stage.cx().room_at_once(), limit - n - 1);
            }
            stage.delivery.all = all;
            stage.cx().note_kernel_turn();
            stage.delivery.kernel_cut
        };
        assert!(cut(3, 2, 2, false));
        assert!(!cut(3, 2, 1, false), "there was room left");
        assert!(!cut(2, 2, 2, false), "all there are have been served");
        assert!(!cut(3, 2, 2, true), "everything there was went to the backlog");
    }

    #[test]
    fn after_a_cut_everything_is_collected_before_anything_is_delivered() {
        let mut stage = Stage::new(4);
        let key = stage.add(0, Interest::READABLE);
        stage.cx().end_kernel_turns();
        assert!(!stage.delivery.all, "no event was cut off");
        stage.delivery.kernel_cut = true;
        stage.cx().end_kernel_turns();
        assert!(stage.delivery.all);
        stage.delivery = Delivery::default();
        stage.delivery.begin_wait();
        assert_eq!(stage.cx().room_at_once(), 4);
        stage.cx().collect_all();
        assert_eq!(stage.cx().room_at_once(), 0);
        stage.cx().report(key, Readiness::READABLE);
        assert_eq!(stage.keys(), (vec![], vec![key]));
        stage.delivery.end_collection(&mut stage.events, &mut stage.table);
        assert_eq!(stage.keys(), (vec![key], vec![]));
        assert!(stage.delivery.is_idle());
    }
}
