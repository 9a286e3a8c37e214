//! The array that `poll` reads: one slot per descriptor, and one in front for the back-end itself.
//!
//! Slots are dense, because each costs something in each pass: a removal moves the last slot into
//! the gap. A disarmed registration keeps its slot with the descriptor's number complemented; the
//! kernel skips negative numbers, while `events = 0` would still report, and so spin on, a hang-up.
//!
//! A scan stops as soon as it has seen as many ready slots as the kernel has counted.

use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

use crate::backend::{Context, Memory, Report, WaitCall};
use crate::event::Readiness;
use crate::interest::Mode;
use crate::stats::Stats;
use crate::sys::poll::{self, Slot};
use crate::table::{self, Table, grow};

/// The place of the back-end's own descriptor.
const OWN: usize = 0;

#[derive(Debug)]
pub(crate) struct Array {
    slots: Vec<Slot>,
    /// The table index for each slot.
    indices: Vec<u32>,
    /// Those with an error or a hang-up that lasts, which `poll` would report in each pass.
    troubled: Vec<u32>,
}

/// The slot for `poll` of a registration.
fn entry(slot: &table::Slot) -> Slot {
    let interest = slot.interest();
    let fd = if interest.is_empty() { !slot.fd() } else { slot.fd() };
    Slot { fd, events: interest.poll_bits(), revents: 0 }
}

impl Array {
    pub(super) fn new() -> Array {
        Array {
            slots: vec![Slot { fd: -1, events: libc::POLLIN, revents: 0 }],
            indices: vec![u32::MAX],
            troubled: Vec::new(),
        }
    }

    /// Descriptors in the array, without the back-end's own.
    pub(super) fn len(&self) -> usize {
        self.slots.len() - 1
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn memory(&self) -> Memory {
        Memory {
            own: (self.indices.capacity() + self.troubled.capacity()) * size_of::<u32>(),
            mirrors: self.slots.capacity() * size_of::<Slot>(),
        }
    }

    /// Frees memory that is not needed.
    pub(super) fn shrink_to_fit(&mut self) {
        self.slots.shrink_to_fit();
        self.indices.shrink_to_fit();
        self.troubled.shrink_to_fit();
    }

    /// Sets the back-end's own descriptor; negative for none.
    pub(super) fn set_own(&mut self, fd: RawFd) {
        self.slots[OWN].fd = fd;
    }

    /// The table index of the descriptor at a place from 0 to the length.
    pub(super) fn index(&self, place: usize) -> u32 {
        self.indices[place + 1]
    }

    /// Makes the array agree with a live slot of the table.
    pub(super) fn put(&mut self, table: &mut Table, index: u32) {
        let slot = table.slot_mut(index);
        let entry = entry(slot);
        match slot.place() {
            Some(place) => self.slots[place] = entry,
            None => {
                slot.set_place(Some(self.slots.len()));
                grow(&mut self.slots);
                self.slots.push(entry);
                grow(&mut self.indices);
                self.indices.push(index);
            }
        }
    }

    /// Takes a descriptor out, if it is in.
    pub(super) fn remove(&mut self, table: &mut Table, index: u32) {
        let Some(place) = table.slot(index).place() else { return };
        table.slot_mut(index).set_place(None);
        self.slots.swap_remove(place);
        self.indices.swap_remove(place);
        if let Some(&moved) = self.indices.get(place) {
            table.slot_mut(moved).set_place(Some(place));
        }
    }

    /// Returns whether there is a descriptor for [`pop_troubled`](Array::pop_troubled).
    #[inline]
    pub(super) fn has_troubled(&self) -> bool {
        !self.troubled.is_empty()
    }

    /// Takes the table index of a descriptor that the back-end must watch by its edges, because an
    /// error or a hang-up lasts. Call it once all reports of the pass are made: the kernel may
    /// report the descriptor again once it is watched elsewhere.
    #[inline]
    pub(super) fn pop_troubled(&mut self) -> Option<u32> {
        self.troubled.pop()
    }

    #[cold]
    #[inline(never)]
    fn note_trouble(&mut self, cx: &mut Context<'_>, index: u32) {
        if cx.table.slot_mut(index).note_trouble() {
            self.troubled.push(index);
        }
    }

    /// Puts the slots into the order of their registration, in which neither the kernel nor the
    /// table is read criss-cross; the order in which descriptors became busy costs up to a tenth
    /// of a pass.
    pub(super) fn sort(&mut self, table: &mut Table) {
        if self.indices[1..].is_sorted() {
            return;
        }
        self.indices[1..].sort_unstable();
        for (place, &index) in self.indices.iter().enumerate().skip(1) {
            let slot = table.slot_mut(index);
            slot.set_place(Some(place));
            self.slots[place] = entry(slot);
        }
    }

    /// Calls `poll`; returns how many slots are ready.
    #[inline(always)]
    pub(super) fn poll(
        &mut self,
        stats: &mut Stats,
        timeout: Option<Duration>,
    ) -> io::Result<usize> {
        let answer = self.wait_call(stats, timeout).issue();
        answer.or_else(|error| self.poll_again(stats, timeout, error))
    }

    /// Continues after a call of `poll` has failed, if it can.
    #[cold]
    pub(super) fn poll_again(
        &mut self,
        stats: &mut Stats,
        timeout: Option<Duration>,
        error: io::Error,
    ) -> io::Result<usize> {
        poll::wait_in_parts(&mut stats.calls, &mut self.slots, timeout, error)
    }

    /// The call of `poll`, for the poller to make.
    #[inline]
    pub(super) fn wait_call<'a>(
        &'a mut self,
        stats: &mut Stats,
        timeout: Option<Duration>,
    ) -> WaitCall<'a> {
        stats.slots_scanned += self.len() as u64;
        WaitCall::poll(&mut stats.calls, &mut self.slots, timeout)
    }

    /// Whether the last `poll` found the back-end's own descriptor ready.
    pub(super) fn own_is_ready(&self) -> bool {
        self.slots[OWN].revents != 0
    }

    /// Reports the slots that the last `poll` found ready; `ready` is its return value. Calls
    /// `on_active` with the table index of each descriptor whose event is wanted. Returns how many
    /// there were.
    #[inline]
    pub(super) fn collect(
        &mut self,
        cx: &mut Context<'_>,
        ready: usize,
        mut on_active: impl FnMut(&mut Context<'_>, u32),
    ) -> usize {
        // After a wait that failed, those of another one would be left.
        self.troubled.clear();
        let mut left = ready - usize::from(self.own_is_ready());
        let mut active = 0;
        let mut room = cx.room_at_once();
        for place in OWN + 1..self.slots.len() {
            if left == 0 {
                break;
            }
            let found = self.slots[place].revents;
            if found == 0 {
                continue;
            }
            left -= 1;
            let index = self.indices[place];
            let (key, mode) = cx.table.key_and_mode(index);
            if found & (libc::POLLNVAL | libc::POLLERR | libc::POLLHUP) != 0 {
                if found & libc::POLLNVAL != 0 {
                    self.slots[place].fd = !self.slots[place].fd;
                    cx.stats.invalid += 1;
                    cx.invalid(key);
                    continue;
                }
                self.note_trouble(cx, index);
            }
            let readiness = Readiness::from_poll_bits(found);
            // The kernel reports the slot's own interest: no second look, if it stays armed.
            if room > 0 && mode != Mode::OneShot {
                room -= 1;
                active += 1;
                cx.deliver_plain(key, readiness);
                on_active(cx, index);
                continue;
            }
            let report = cx.report(key, readiness);
            room = cx.room_at_once();
            if cx.table.slot(index).interest().is_empty() {
                self.slots[place].fd = !self.slots[place].fd;
            }
            if matches!(report, Report::Taken | Report::Later) {
                active += 1;
                on_active(cx, index);
            }
        }
        active
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::tests::stage::Stage;
    use crate::interest::{Interest, Watch};
    use crate::key::Key;
    use std::sync::Arc;

    fn table_with(fds: &[RawFd]) -> (Table, Vec<u32>) {
        let mut table = Table::new(Arc::default());
        let indices = fds
            .iter()
            .map(|&fd| table.insert(fd, Watch::new(Interest::READABLE), None).index())
            .collect();
        (table, indices)
    }

    #[test]
    fn a_removal_moves_the_last_slot_and_its_place() {
        let (mut table, indices) = table_with(&[10, 11, 12]);
        let mut array = Array::new();
        for &index in &indices {
            array.put(&mut table, index);
        }
        assert_eq!(array.len(), 3);
        array.remove(&mut table, indices[0]);
        array.remove(&mut table, indices[0]);
        assert_eq!(array.len(), 2);
        let fds: Vec<_> = array.slots.iter().map(|slot| slot.fd).collect();
        assert_eq!(fds, [-1, 12, 11]);
        assert_eq!(table.slot(indices[2]).place(), Some(1));
        assert_eq!(table.slot(indices[0]).place(), None);
        array.remove(&mut table, indices[1]);
        array.remove(&mut table, indices[2]);
        assert!(array.is_empty());
    }

    #[test]
    fn sorting_restores_the_order_of_registration_and_the_places() {
        let (mut table, indices) = table_with(&[10, 11, 12]);
        let mut array = Array::new();
        for place in [2, 0, 1] {
            array.put(&mut table, indices[place]);
        }
        array.sort(&mut table);
        let fds: Vec<_> = array.slots.iter().map(|slot| slot.fd).collect();
        assert_eq!(fds, [-1, 10, 11, 12]);
        for (place, &index) in indices.iter().enumerate() {
            assert_eq!(array.index(place), index);
            assert_eq!(table.slot(index).place(), Some(place + 1));
        }
    }

    #[test]
    fn a_disarmed_slot_is_negative_even_for_descriptor_zero() {
        let (mut table, indices) = table_with(&[0]);
        let mut array = Array::new();
        table.slot_mut(indices[0]).disarm();
        array.put(&mut table, indices[0]);
        assert_eq!(array.slots[1].fd, -1);
        table.slot_mut(indices[0]).set_watch(Watch::new(Interest::WRITABLE));
        array.put(&mut table, indices[0]);
        assert_eq!((array.slots[1].fd, array.slots[1].events), (0, libc::POLLOUT));
    }

    /// An array of three, and the registrations after it.
    fn three(limit: usize, mode: Mode) -> (Stage, Array, Vec<Key>) {
        let (mut stage, mut array) = (Stage::new(limit), Array::new());
        let watch = Watch::new(Interest::READABLE).mode(mode);
        let keys: Vec<_> = [10, 11, 12].map(|fd| stage.add(fd, watch)).into();
        for key in &keys {
            array.put(&mut stage.table, key.index());
        }
        (stage, array, keys)
    }

    /// Collects as if `poll` had found this; returns the active table indices.
    fn collect(stage: &mut Stage, array: &mut Array, ready: usize, found: [i16; 4]) -> Vec<u32> {
        for (slot, found) in array.slots.iter_mut().zip(found) {
            slot.revents = found;
        }
        let mut active = Vec::new();
        let count = array.collect(&mut stage.cx(), ready, |_, index| active.push(index));
        assert_eq!(count, active.len());
        active
    }

    #[test]
    fn a_scan_stops_after_as_many_events_as_the_kernel_found() {
        const IN: i16 = libc::POLLIN;
        for (ready, found, expected) in [
            (0, [0, IN, IN, IN], 0..0),
            (1, [0, IN, IN, IN], 0..1),
            (2, [0, IN, IN, IN], 0..2),
            (2, [IN, IN, IN, IN], 0..1),
            (3, [0, IN, IN, IN], 0..3),
        ] {
            let (mut stage, mut array, keys) = three(8, Mode::Level);
            let active = collect(&mut stage, &mut array, ready, found);
            assert_eq!(stage.keys().0, keys[expected.clone()], "{ready} {found:?}");
            assert_eq!(active, keys[expected].iter().map(|key| key.index()).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_closed_descriptor_is_reported_once_and_no_longer_watched() {
        let (mut stage, mut array, keys) = three(8, Mode::Level);
        let found = [0, libc::POLLIN, libc::POLLNVAL, libc::POLLIN];
        assert_eq!(collect(&mut stage, &mut array, 3, found), [keys[0].index(), keys[2].index()]);
        assert_eq!(stage.keys().0, [keys[0], keys[2]]);
        assert_eq!((stage.delivery.invalid, stage.stats.invalid), (vec![keys[1]], 1));
        let fds: Vec<_> = array.slots.iter().map(|slot| slot.fd).collect();
        assert_eq!(fds, [-1, 10, !11, 12]);
    }

    #[test]
    fn a_delivered_one_shot_is_skipped_and_a_queued_one_is_not() {
        let (mut stage, mut array, keys) = three(1, Mode::OneShot);
        let found = [0, libc::POLLIN, 0, libc::POLLIN];
        assert_eq!(collect(&mut stage, &mut array, 2, found), [keys[0].index(), keys[2].index()]);
        assert_eq!(stage.keys(), (vec![keys[0]], vec![keys[2]]));
        let fds: Vec<_> = array.slots.iter().map(|slot| slot.fd).collect();
        assert_eq!(fds, [-1, !10, 11, 12]);
    }

    #[test]
    fn each_poll_counts_its_slots() {
        let (mut stage, mut array, _) = three(1, Mode::Level);
        for slot in &mut array.slots {
            slot.fd = -1;
        }
        for scanned in [3, 6] {
            array.poll(&mut stage.stats, Some(Duration::ZERO)).unwrap();
            assert_eq!(stage.stats.slots_scanned, scanned);
        }
    }

    #[test]
    fn memory_is_four_bytes_for_itself_and_eight_for_the_kernel() {
        let (_, mut array, _) = three(1, Mode::Level);
        array.slots.shrink_to_fit();
        array.indices.shrink_to_fit();
        assert_eq!(array.memory(), Memory { own: 4 * 4, mirrors: 4 * 8 });
    }
}
