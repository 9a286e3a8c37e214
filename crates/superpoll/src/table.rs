//! The registrations: one slot each, found by key or by descriptor number.
//!
//! A slot keeps the watch that the caller wants (`watch`) next to the watch that the back-end last
//! applied in the kernel (`applied`). So any number of changes between two waits costs at most one
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
    /// The slots in use when the table was last shortened; the greatest number if it has grown
    /// since.
    shortened_at: usize,
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
            shortened_at: usize::MAX,
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
        slot.troubles = 0;
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
            self.shortened_at = usize::MAX;
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
mod tests;
