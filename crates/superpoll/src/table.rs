//! The registrations: one slot each, found by key or by descriptor number.
//!
//! A slot keeps the watch that the caller wants (`watch`) next to the watch that the back-end last
//! applied in the kernel (`told`). So any number of changes between two waits costs at most one
//! system call: before the next wait the poller asks the back-end once to make the second agree
//! with the first. A removal that has not reached the kernel keeps its slot, and a new registration
//! of the same descriptor number takes that slot over with a new generation. Removal and addition
//! then meet in one change, in the only order that is right.
//!
//! Vacant slots are linked through `place`. Indices come from a counter shared with the thread-safe
//! registrar, so that another thread can name a registration before the poller has seen it.

use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::interest::{Mode, Watch};
use crate::key::Key;
use crate::policy::Account;

mod slot;
mod spare;

pub use slot::Slot;
use slot::{
    ALWAYS, APPLIED, AWAY, CHANGED, CLOSED, FAST, FORCED, FOREIGN, LIVE, OLD_KEY, OWNED, PLACED,
    QUEUED,
};
pub(crate) use spare::name;

/// No place; no slot.
pub(crate) const NOWHERE: u32 = u32::MAX;

/// A list that is kept for each registration grows by this fraction instead of doubling, because
/// memory per idle descriptor matters to the users of an event poller.
const GROWTH: usize = 16;

/// A list of changes longer than this is freed before the next ones.
const KEPT_CHANGES: usize = 1024;

/// Makes room for one more, a sixteenth at a time.
pub(crate) fn grow<T>(list: &mut Vec<T>) {
    if list.len() == list.capacity() {
        list.reserve_exact(list.len() / GROWTH + 16);
    }
}

/// Makes a list this long, a sixteenth at a time.
pub(crate) fn grow_to<T: Clone + Default>(list: &mut Vec<T>, wanted: usize) {
    if list.capacity() < wanted {
        list.reserve_exact(wanted + wanted / GROWTH + 16 - list.len());
    }
    list.resize(wanted, T::default());
}

/// All registrations of a poller.
#[derive(Debug)]
pub struct Table {
    slots: Vec<Slot>,
    by_fd: Vec<u32>,
    vacant: u32,
    /// Vacant slots that a registrar allotted and that go back to it.
    foreign: Vec<Key>,
    changed: Vec<u32>,
    always: Vec<u32>,
    len: usize,
    names: Arc<AtomicU64>,
    /// Stands in for slots that were freed, to read and to change.
    gone: Slot,
    scratch: Slot,
    /// Times in a row that changes were applied while few of the slots were in use.
    spare: usize,
}

impl Table {
    pub(crate) fn new(names: Arc<AtomicU64>) -> Table {
        Table {
            slots: Vec::new(),
            by_fd: Vec::new(),
            vacant: NOWHERE,
            foreign: Vec::new(),
            changed: Vec::new(),
            always: Vec::new(),
            len: 0,
            names,
            gone: Slot::vacant(),
            scratch: Slot::vacant(),
            spare: 0,
        }
    }

    /// How many registrations there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The slot at an index that a back-end was given; a vacant slot if that has been freed since.
    #[inline]
    pub fn slot(&self, index: u32) -> &Slot {
        match self.slots.get(index as usize) {
            Some(slot) => slot,
            None => self.released(),
        }
    }

    /// The same, to change.
    #[inline]
    pub fn slot_mut(&mut self, index: u32) -> &mut Slot {
        if index as usize >= self.slots.len() {
            return self.released_mut();
        }
        &mut self.slots[index as usize]
    }

    #[cold]
    #[inline(never)]
    fn released(&self) -> &Slot {
        &self.gone
    }

    #[cold]
    #[inline(never)]
    fn released_mut(&mut self) -> &mut Slot {
        self.scratch = Slot::vacant();
        &mut self.scratch
    }

    /// The slot of a registration that exists.
    #[inline]
    pub fn get_mut(&mut self, key: Key) -> Option<&mut Slot> {
        self.slots
            .get_mut(key.index() as usize)
            .filter(|slot| slot.generation == key.generation() && slot.is(LIVE))
    }

    /// Whether an event of this key needs no second look: the registration exists, and the kernel
    /// has exactly the watch that it wants.
    #[inline]
    pub(crate) fn needs_no_check(&self, key: Key) -> bool {
        self.slots
            .get(key.index() as usize)
            .is_some_and(|slot| slot.generation == key.generation() && slot.is(FAST))
    }

    /// The slot of a registration that exists.
    pub fn get(&self, key: Key) -> Option<&Slot> {
        self.slots
            .get(key.index() as usize)
            .filter(|slot| slot.generation == key.generation() && slot.is(LIVE))
    }

    /// The key of the slot at an index; a stale key if the slot was freed.
    #[inline]
    pub fn key(&self, index: u32) -> Key {
        Key::new(index, self.slot(index).generation)
    }

    /// The same with the registration's mode.
    #[inline]
    pub(crate) fn key_and_mode(&self, index: u32) -> (Key, Mode) {
        let slot = self.slot(index);
        (Key::new(index, slot.generation), slot.watch.mode)
    }

    /// The registration of a descriptor number.
    pub fn find(&self, fd: RawFd) -> Option<Key> {
        let index = *self.by_fd.get(usize::try_from(fd).ok()?)?;
        (index != NOWHERE && self.slots[index as usize].is(LIVE)).then(|| self.key(index))
    }

    /// The indices of all slots that the kernel knows about or a caller registered.
    pub fn indices(&self) -> impl Iterator<Item = u32> + use<> {
        0..self.slots.len() as u32
    }

    /// How many slots there are, vacant ones included.
    pub(crate) fn slots(&self) -> u32 {
        self.slots.len() as u32
    }

    /// Bytes of heap that the table uses.
    pub fn memory(&self) -> usize {
        self.slots.capacity() * size_of::<Slot>()
            + 4 * (self.by_fd.capacity() + self.changed.capacity() + self.always.capacity())
            + self.foreign.capacity() * size_of::<Key>()
    }

    /// Adds a registration. The number must not be registered (see [`find`](Table::find)) and
    /// not negative. `key` is given for a registration that another thread has named already.
    pub(crate) fn insert(&mut self, fd: RawFd, watch: Watch, key: Option<Key>) -> Key {
        let place = fd as usize;
        if self.by_fd.len() <= place {
            let wanted = (place + 1).next_multiple_of(64);
            self.by_fd.reserve_exact(wanted + wanted / GROWTH - self.by_fd.len());
            self.by_fd.resize(wanted, NOWHERE);
        }
        let mut leaving = self.by_fd[place];
        if leaving != NOWHERE && self.slots[leaving as usize].is_worn() {
            self.by_fd[place] = NOWHERE;
            leaving = NOWHERE;
        }
        let index = match key {
            Some(key) => {
                if leaving != NOWHERE {
                    // The ended registration keeps its slot and its removal; only the number now
                    // belongs to the new one. Its removal comes first in the list of changes.
                    self.by_fd[place] = NOWHERE;
                }
                self.reach(key.index());
                let slot = &mut self.slots[key.index() as usize];
                slot.generation = key.generation();
                slot.put(FOREIGN, true);
                key.index()
            }
            None if leaving != NOWHERE => leaving,
            None if self.vacant != NOWHERE => {
                let index = self.vacant;
                self.vacant = self.slots[index as usize].place;
                self.slots[index as usize].place = NOWHERE;
                index
            }
            None => {
                let key = name(&self.names);
                self.reach(key.index());
                self.slots[key.index() as usize].generation = key.generation();
                key.index()
            }
        };
        self.by_fd[place] = index;
        let slot = &mut self.slots[index as usize];
        slot.fd = fd;
        slot.watch = watch;
        slot.account = Account::default();
        slot.served = 0;
        slot.flags &= !(PLACED | OWNED);
        slot.put(OLD_KEY, slot.is(APPLIED) || slot.is(AWAY));
        slot.put(LIVE, true);
        slot.put(CLOSED, false);
        slot.put(FORCED, false);
        slot.put(QUEUED, false);
        slot.refresh_fast_path();
        self.len += 1;
        self.mark(index);
        self.key(index)
    }

    fn reach(&mut self, index: u32) {
        while self.slots.len() <= index as usize {
            grow(&mut self.slots);
            self.slots.push(Slot::vacant());
        }
    }

    /// Notes that a change of the slot may have to reach the kernel before the next wait.
    // Inlined, because each change of an interest comes here.
    #[inline(always)]
    pub(crate) fn mark(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        if !slot.is(CHANGED) {
            slot.put(CHANGED, true);
            grow(&mut self.changed);
            self.changed.push(index);
        }
    }

    /// Asks for the slot's change to be applied even where it could wait.
    pub fn force_apply(&mut self, index: u32) {
        self.slots[index as usize].set_forced(true);
        self.mark(index);
    }

    /// Ends a registration. The slot stays until the removal was applied.
    pub(crate) fn end(&mut self, index: u32, closed: bool) {
        let slot = &mut self.slots[index as usize];
        debug_assert!(slot.is(LIVE));
        slot.generation = slot.generation.wrapping_add(1);
        slot.disarm();
        slot.put(LIVE, false);
        slot.refresh_fast_path();
        slot.put(CLOSED, closed);
        if slot.is(ALWAYS) {
            slot.put(ALWAYS, false);
            self.always.retain(|&other| other != index);
        }
        self.len -= 1;
        self.mark(index);
    }

    /// Frees the slot of an ended registration that the kernel does not know (any more).
    pub(crate) fn release(&mut self, index: u32) {
        let key = self.key(index);
        let slot = &mut self.slots[index as usize];
        debug_assert!(!slot.is(LIVE) && !slot.is(APPLIED) && !slot.is(AWAY));
        let place = slot.fd as usize;
        let (foreign, worn) = (slot.is(FOREIGN), slot.is_worn());
        slot.fd = -1;
        slot.flags &= CHANGED;
        slot.place = NOWHERE;
        if worn {
            // Its next key would be its first one again. It stays vacant.
        } else if foreign {
            self.foreign.push(key);
        } else {
            let first = self.vacant;
            if self.spare > 0 && index > first && first != NOWHERE {
                // It must not be used next, because the table is about to be shortened to the slots
                // before it.
                let next = std::mem::replace(&mut self.slots[first as usize].place, index);
                self.slots[index as usize].place = next;
            } else {
                slot.place = first;
                self.vacant = index;
            }
        }
        if self.by_fd[place] == index {
            self.by_fd[place] = NOWHERE;
        }
    }

    pub(crate) fn has_changes(&self) -> bool {
        !self.changed.is_empty()
    }

    /// The oldest changed slots first; the mark is taken off each.
    pub(crate) fn take_changed(&mut self) -> Vec<u32> {
        let changed = std::mem::take(&mut self.changed);
        for &index in &changed {
            self.slots[index as usize].put(CHANGED, false);
        }
        changed
    }

    /// Takes the emptied list back, so that a steady state allocates nothing.
    pub(crate) fn recycle_changed(&mut self, mut list: Vec<u32>) {
        if self.changed.is_empty() && list.capacity() <= KEPT_CHANGES {
            list.clear();
            self.changed = list;
        }
    }

    /// Takes back a key that a registrar allotted and that was refused.
    pub(crate) fn give_back(&mut self, key: Key) {
        if let Some(next) = key.generation().checked_add(1) {
            self.foreign.push(Key::new(key.index(), next));
        }
    }

    /// Vacant slots that belong to the registrar.
    pub(crate) fn take_foreign(&mut self) -> std::vec::Drain<'_, Key> {
        self.foreign.drain(..)
    }

    pub(crate) fn add_always_ready(&mut self, index: u32) {
        if !self.slots[index as usize].is(ALWAYS) {
            self.slots[index as usize].set_always_ready();
            self.always.push(index);
        }
    }

    pub(crate) fn always_ready(&self) -> &[u32] {
        &self.always
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interest::Hint;
    use crate::interest::{Interest, Mode};

    fn table() -> Table {
        Table::new(Arc::default())
    }

    fn readable() -> Watch {
        Watch::new(Interest::READABLE)
    }

    /// Does the part of a back-end and of the poller in a removal.
    fn forget(table: &mut Table, index: u32) {
        table.slot_mut(index).set_applied(None);
        table.release(index);
    }

    #[test]
    fn a_registration_is_found_by_key_and_number() {
        let mut table = table();
        let key = table.insert(70, readable(), None);
        assert_eq!((table.len(), table.is_empty()), (1, false));
        assert_eq!(table.find(70), Some(key));
        assert_eq!(table.find(69), None);
        assert_eq!(table.find(-1), None);
        assert_eq!(table.find(1 << 20), None);
        assert_eq!(table.get(key).unwrap().fd(), 70);
        assert!(table.get_mut(key).is_some());
        assert!(table.get(Key::new(key.index(), key.generation() + 1)).is_none());
        assert!(table.get(Key::new(key.index() + 1, 0)).is_none());
        assert_eq!(table.slot(key.index()).watch(), readable());
    }

    #[test]
    fn an_ended_registration_is_found_no_more_and_its_slot_comes_back() {
        let mut table = table();
        let key = table.insert(5, readable(), None);
        table.end(key.index(), false);
        assert!(table.get(key).is_none() && table.get_mut(key).is_none());
        assert_eq!((table.find(5), table.len(), table.is_empty()), (None, 0, true));
        assert!(table.slot(key.index()).interest().is_empty());
        forget(&mut table, key.index());
        assert_eq!(table.slot(key.index()).fd(), -1);
        let next = table.insert(6, readable(), None);
        assert_eq!(next, Key::new(key.index(), key.generation() + 1));
        let other = table.insert(7, readable(), None);
        assert_ne!(other.index(), next.index());
    }

    #[test]
    fn a_slot_whose_keys_are_used_up_is_not_used_again() {
        let mut table = table();
        let applied = Some((Interest::READABLE, Mode::Level));
        let key = table.insert(5, readable(), None);
        table.slots[key.index() as usize].generation = u32::MAX;
        let last = table.key(key.index());
        assert!(table.get(last).is_some());
        table.slot_mut(key.index()).set_applied(applied);
        table.end(key.index(), false);
        // Its removal has not been applied when the number is registered again.
        let next = table.insert(5, readable(), None);
        assert_ne!(next.index(), key.index());
        assert_eq!(table.find(5), Some(next));
        forget(&mut table, key.index());
        assert_eq!(table.find(5), Some(next));
        let others: Vec<_> = (6..9).map(|fd| table.insert(fd, readable(), None)).collect();
        assert!(others.iter().all(|other| other.index() != key.index()), "{others:?}");
        assert!(table.get(key).is_none() && table.get(last).is_none());
        // Nor is a slot that a registrar has allotted.
        let foreign = Key::new(name(&table.names).index(), u32::MAX);
        table.insert(20, readable(), Some(foreign));
        table.end(foreign.index(), false);
        forget(&mut table, foreign.index());
        table.give_back(foreign);
        assert_eq!(table.take_foreign().count(), 0);
    }

    #[test]
    fn vacant_slots_are_reused_last_first() {
        let mut table = table();
        let keys: Vec<_> = (0..3).map(|fd| table.insert(fd, readable(), None)).collect();
        for key in &keys {
            table.end(key.index(), true);
            forget(&mut table, key.index());
        }
        let again: Vec<_> = (0..3).map(|fd| table.insert(fd, readable(), None).index()).collect();
        assert_eq!(again, [2, 1, 0]);
    }

    #[test]
    fn a_number_registered_again_takes_the_leaving_slot_over() {
        let mut table = table();
        let old = table.insert(5, readable(), None);
        table.slot_mut(old.index()).set_applied(Some((Interest::READABLE, Mode::Level)));
        table.slot_mut(old.index()).served = 9;
        table.end(old.index(), false);
        let new = table.insert(5, Watch::new(Interest::WRITABLE), None);
        assert_eq!(new, Key::new(old.index(), old.generation() + 1));
        let slot = table.slot(new.index());
        assert!(slot.inherits_old_key() && slot.applied().is_some() && !slot.is_closed());
        assert_eq!(slot.served, 0);
        table.slot_mut(new.index()).set_applied(Some((Interest::WRITABLE, Mode::Level)));
        assert!(!table.slot(new.index()).inherits_old_key());
    }

    #[test]
    fn a_registrar_key_does_not_take_a_leaving_slot() {
        let counter = Arc::new(AtomicU64::new(0));
        let mut table = Table::new(counter.clone());
        let old = table.insert(5, readable(), None);
        table.slot_mut(old.index()).set_applied(Some((Interest::READABLE, Mode::Level)));
        table.end(old.index(), false);
        let foreign = name(&counter);
        assert_eq!(table.insert(5, readable(), Some(foreign)), foreign);
        assert_eq!(table.find(5), Some(foreign));
        forget(&mut table, old.index());
        assert_eq!(table.find(5), Some(foreign), "the number is the new one's");
        table.end(foreign.index(), false);
        forget(&mut table, foreign.index());
        let back: Vec<_> = table.take_foreign().collect();
        assert_eq!(back, [Key::new(foreign.index(), 1)]);
        table.give_back(Key::new(8, 3));
        assert_eq!(table.take_foreign().next(), Some(Key::new(8, 4)));
    }

    #[test]
    fn a_slot_is_listed_once_however_often_it_changes() {
        let mut table = table();
        let key = table.insert(5, readable(), None);
        assert!(table.has_changes());
        table.mark(key.index());
        table.force_apply(key.index());
        assert!(table.slot(key.index()).is_forced());
        let list = table.take_changed();
        assert_eq!(list, [key.index()]);
        assert!(!table.has_changes());
        table.recycle_changed(list);
        assert!(table.changed.capacity() > 0 && !table.has_changes());
        table.mark(key.index());
        assert!(table.has_changes());
        let long = Vec::with_capacity(KEPT_CHANGES + 1);
        let list = table.take_changed();
        drop(list);
        table.recycle_changed(long);
        assert_eq!(table.changed.capacity(), 0, "a long list is not kept");
    }

    #[test]
    fn always_ready_files_are_listed_until_they_end() {
        let mut table = table();
        let keys: Vec<_> = (0..3).map(|fd| table.insert(fd, readable(), None)).collect();
        for key in &keys {
            table.add_always_ready(key.index());
            table.add_always_ready(key.index());
        }
        assert_eq!(table.always_ready(), [0, 1, 2]);
        let slot = table.slot_mut(1);
        assert!(slot.is_always_ready() && slot.is_due());
        slot.set_due(false);
        assert!(!slot.is_due());
        table.end(1, false);
        assert_eq!(table.always_ready(), [0, 2]);
        assert!(!table.slot(1).is_always_ready());
    }

    #[test]
    fn only_what_was_told_as_wanted_needs_no_second_look() {
        let applied = Some((Interest::READABLE, Mode::Level));
        let mut slot = Slot::vacant();
        slot.put(LIVE, true);
        slot.set_watch(readable().hint(Hint::Busy));
        slot.set_applied(applied);
        assert!(slot.is(FAST), "told the same");
        slot.put(LIVE, false);
        slot.refresh_fast_path();
        assert!(!slot.is(FAST), "ended");
        slot.put(LIVE, true);
        slot.set_applied(applied);
        assert!(slot.is(FAST) && slot.has_mode(Mode::Level));
        slot.set_place(Some(1));
        assert!(!slot.is(FAST), "watched elsewhere");
        assert_eq!(slot.place(), Some(1));
        slot.set_place(None);
        assert_eq!(slot.place(), None);
        slot.set_watch(Watch::new(Interest::WRITABLE));
        assert!(!slot.is(FAST), "another interest");
        slot.set_watch(readable().mode(Mode::Edge));
        assert!(!slot.is(FAST) && !slot.has_mode(Mode::Edge), "another mode");
        slot.set_watch(readable().mode(Mode::OneShot));
        slot.set_applied(Some((Interest::READABLE, Mode::OneShot)));
        assert!(!slot.is(FAST), "needs upkeep");
        slot.set_watch(Watch::new(Interest::NONE).mode(Mode::Edge));
        slot.set_applied(Some((Interest::NONE, Mode::Edge)));
        assert!(!slot.is(FAST), "disarmed");
        // An auto registration may have been applied with either trigger.
        slot.set_watch(readable().mode(Mode::Auto));
        for (mode, plain) in [(Mode::Auto, true), (Mode::Level, true), (Mode::Edge, false)] {
            slot.set_applied(Some((Interest::READABLE, mode)));
            assert_eq!(slot.is(FAST), plain, "{mode:?}");
        }
    }

    #[test]
    fn an_event_under_an_old_name_needs_a_second_look() {
        let mut table = table();
        let old = table.insert(7, readable(), None);
        assert!(!table.needs_no_check(old), "not told yet");
        table.slot_mut(old.index()).set_applied(Some((Interest::READABLE, Mode::Level)));
        assert!(table.needs_no_check(old));
        table.end(old.index(), false);
        assert!(!table.needs_no_check(old));
        let new = table.insert(7, readable(), None);
        assert_eq!(new.index(), old.index());
        table.slot_mut(new.index()).set_applied(Some((Interest::READABLE, Mode::Level)));
        assert!(table.needs_no_check(new) && !table.needs_no_check(old));
        assert!(!table.needs_no_check(Key::new(1000, 0)), "no such slot");
    }

    #[test]
    fn memory_counts_what_is_reserved() {
        let mut table = table();
        assert_eq!(table.memory(), 0);
        for fd in 0..1000 {
            table.insert(fd, readable(), None);
        }
        let memory = table.memory();
        let slots = 1000 * size_of::<Slot>();
        assert!(memory >= slots + 2 * 4 * 1000, "{memory}");
        assert!(memory <= slots * 17 / 16 + 9 * 1000 + 32 * 60, "{memory}");
        assert!(size_of::<Slot>() <= 48);
        table.end(0, false);
        forget(&mut table, 0);
        table.give_back(Key::new(0, 0));
        assert!(table.memory() >= memory + size_of::<Key>());
    }
}
