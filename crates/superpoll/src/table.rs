//! The registrations: one slot each, found by key or by descriptor number.
//!
//! A slot keeps what the caller wants (`watch`) beside what the back-end last told the kernel
//! (`told`), so that any number of changes between two waits costs at most one system call: the
//! back-end is asked once, before the next wait, to make the second agree with the first. A
//! removal that is still to be told keeps its slot, and a new registration of the same descriptor
//! number takes that slot over with a new generation; removal and addition then meet in one
//! change, in the only order that is right.
//!
//! Vacant slots are linked through `place`. Indices come from a counter shared with the thread-safe
//! registrar, so that another thread can name a registration before the poller has seen it.

use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::interest::{Interest, Mode, Watch};
use crate::key::Key;
use crate::policy::Account;

/// No place; no slot.
pub(crate) const NOWHERE: u32 = u32::MAX;

/// A list that is kept for each registration grows by this fraction instead of doubling: memory
/// per idle descriptor is what the users of an event poller count.
const GROWTH: usize = 16;

/// A list of changes longer than this is not kept for the next ones.
const KEPT_CHANGES: usize = 1024;

/// Makes room for one more, a sixteenth at a time.
pub(crate) fn grow<T>(list: &mut Vec<T>) {
    if list.len() == list.capacity() {
        list.reserve_exact(list.len() / GROWTH + 16);
    }
}

const LIVE: u16 = 1;
const CHANGED: u16 = 2;
const TOLD: u16 = 4;
const CLOSED: u16 = 8;
const ALWAYS: u16 = 16;
const DUE: u16 = 32;
const FOREIGN: u16 = 64;
const PRESSING: u16 = 128;
const RENAMED: u16 = 256;

/// One registration, as a back-end sees it.
#[derive(Debug)]
pub struct Slot {
    pub(crate) account: Account,
    fd: RawFd,
    generation: u32,
    /// Where the back-end keeps it; its own affair. Links vacant slots.
    place: u32,
    /// The last wait that served it, among those that could not serve all.
    pub(crate) served: u32,
    watch: Watch,
    told_interest: Interest,
    told_mode: Mode,
    flags: u16,
}

impl Slot {
    fn vacant() -> Slot {
        Slot {
            account: Account::default(),
            fd: -1,
            generation: 0,
            place: NOWHERE,
            served: 0,
            watch: Watch::default(),
            told_interest: Interest::NONE,
            told_mode: Mode::Level,
            flags: 0,
        }
    }

    fn is(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    fn put(&mut self, flag: u16, on: bool) {
        if on { self.flags |= flag } else { self.flags &= !flag }
    }

    /// The descriptor.
    pub fn fd(&self) -> RawFd {
        self.fd
    }

    /// Whether the registration exists; a slot whose registration ended but whose removal is
    /// still to be told is not live.
    pub fn is_live(&self) -> bool {
        self.is(LIVE)
    }

    /// What the caller wants. Empty interest for a registration that ended.
    pub fn watch(&self) -> Watch {
        self.watch
    }

    pub(crate) fn set_watch(&mut self, watch: Watch) {
        self.watch = watch;
    }

    /// Its interest.
    #[inline]
    pub fn interest(&self) -> Interest {
        self.watch.interest
    }

    /// Interest and mode the kernel was last told, if it knows the descriptor.
    pub fn told(&self) -> Option<(Interest, Mode)> {
        self.is(TOLD).then_some((self.told_interest, self.told_mode))
    }

    /// Whether the kernel was last told this mode.
    pub(crate) fn has_mode(&self, mode: Mode) -> bool {
        self.told_mode == mode
    }

    /// Whether the kernel reports exactly what the caller wants, in a mode that needs no upkeep,
    /// and nobody else watches: then an event needs no second look.
    #[inline]
    pub(crate) fn is_as_told(&self) -> bool {
        self.told_interest == self.watch.interest
            && self.told_mode == self.watch.mode
            && self.watch.mode != Mode::OneShot
            && !self.watch.interest.is_empty()
            && self.place == NOWHERE
    }

    /// Notes what the kernel was told; `None` if it no longer knows the descriptor.
    pub fn set_told(&mut self, told: Option<(Interest, Mode)>) {
        self.put(TOLD, told.is_some());
        self.put(RENAMED, false);
        if let Some((interest, mode)) = told {
            self.told_interest = interest;
            self.told_mode = mode;
        }
    }

    /// Whether the kernel was told under the key of a registration that has ended: a new one took
    /// its descriptor number over.
    pub fn is_renamed(&self) -> bool {
        self.is(RENAMED)
    }

    /// Whether the descriptor was closed by its owner right after it was detached: the kernel
    /// forgets it by itself, and its number may already belong to another file.
    pub fn is_closed(&self) -> bool {
        self.is(CLOSED)
    }

    /// Whether a change must reach the kernel now, because an event that nobody wants was
    /// reported; set by the back-end that saw it.
    pub fn is_pressing(&self) -> bool {
        self.is(PRESSING)
    }

    pub(crate) fn set_pressing(&mut self, on: bool) {
        self.put(PRESSING, on);
    }

    /// Whether the kernel cannot watch it because it is always ready (a regular file).
    pub fn is_always_ready(&self) -> bool {
        self.is(ALWAYS)
    }

    pub(crate) fn set_always_ready(&mut self) {
        self.put(ALWAYS, true);
        self.put(DUE, true);
    }

    /// Whether an always-ready descriptor with an edge is still to be reported for its last
    /// change.
    pub(crate) fn is_due(&self) -> bool {
        self.is(DUE)
    }

    pub(crate) fn set_due(&mut self, on: bool) {
        self.put(DUE, on);
    }

    /// Where the back-end keeps the descriptor, if it said so with [`set_place`](Slot::set_place).
    #[inline]
    pub fn place(&self) -> Option<usize> {
        (self.place != NOWHERE).then_some(self.place as usize)
    }

    /// For the back-end's own use; `None` when it no longer keeps the descriptor.
    #[inline]
    pub fn set_place(&mut self, place: Option<usize>) {
        self.place = place.map_or(NOWHERE, |place| place as u32);
    }

    /// The placement policy's own state.
    pub fn account_mut(&mut self) -> &mut Account {
        &mut self.account
    }

    #[inline]
    pub(crate) fn disarm(&mut self) {
        self.watch.interest = Interest::NONE;
    }
}

/// All registrations of a poller.
#[derive(Debug)]
pub struct Table {
    slots: Vec<Slot>,
    by_fd: Vec<u32>,
    vacant: u32,
    /// Vacant slots that a registrar allotted, to be given back to it.
    foreign: Vec<Key>,
    changed: Vec<u32>,
    always: Vec<u32>,
    len: usize,
    next_index: Arc<AtomicU32>,
}

impl Table {
    pub(crate) fn new(next_index: Arc<AtomicU32>) -> Table {
        Table {
            slots: Vec::new(),
            by_fd: Vec::new(),
            vacant: NOWHERE,
            foreign: Vec::new(),
            changed: Vec::new(),
            always: Vec::new(),
            len: 0,
            next_index,
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

    /// The slot at an index that a back-end was given.
    ///
    /// # Panics
    ///
    /// If no slot has this index.
    #[inline]
    pub fn slot(&self, index: u32) -> &Slot {
        &self.slots[index as usize]
    }

    /// The same, to change.
    ///
    /// # Panics
    ///
    /// If no slot has this index.
    #[inline]
    pub fn slot_mut(&mut self, index: u32) -> &mut Slot {
        &mut self.slots[index as usize]
    }

    /// The slot of a registration that exists.
    #[inline]
    pub fn get_mut(&mut self, key: Key) -> Option<&mut Slot> {
        self.slots
            .get_mut(key.index() as usize)
            .filter(|slot| slot.generation == key.generation() && slot.is(LIVE))
    }

    /// The slot of a registration that exists.
    pub fn get(&self, key: Key) -> Option<&Slot> {
        self.slots
            .get(key.index() as usize)
            .filter(|slot| slot.generation == key.generation() && slot.is(LIVE))
    }

    /// The key of the slot at an index.
    ///
    /// # Panics
    ///
    /// If no slot has this index.
    #[inline]
    pub fn key(&self, index: u32) -> Key {
        Key::new(index, self.slots[index as usize].generation)
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

    /// Bytes of heap the table uses.
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
        let leaving = self.by_fd[place];
        let index = match key {
            Some(key) => {
                if leaving != NOWHERE {
                    // The ended registration keeps its slot and its removal; only the number is
                    // the new one's. Its removal comes first in the list of changes.
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
                let index = self.next_index.fetch_add(1, Ordering::Relaxed);
                self.reach(index);
                index
            }
        };
        self.by_fd[place] = index;
        let slot = &mut self.slots[index as usize];
        slot.fd = fd;
        slot.watch = watch;
        slot.account = Account::default();
        slot.served = 0;
        slot.put(RENAMED, slot.is(TOLD));
        slot.put(LIVE, true);
        slot.put(CLOSED, false);
        slot.put(PRESSING, false);
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

    /// Notes that the kernel may have to be told about the slot before the next wait.
    pub(crate) fn mark(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        if !slot.is(CHANGED) {
            slot.put(CHANGED, true);
            grow(&mut self.changed);
            self.changed.push(index);
        }
    }

    /// Asks for the slot to be told even where the change could wait.
    pub fn press(&mut self, index: u32) {
        self.slots[index as usize].set_pressing(true);
        self.mark(index);
    }

    /// Ends a registration. The slot stays until the kernel has been told.
    pub(crate) fn end(&mut self, index: u32, closed: bool) {
        let slot = &mut self.slots[index as usize];
        debug_assert!(slot.is(LIVE));
        slot.generation = slot.generation.wrapping_add(1);
        slot.disarm();
        slot.put(LIVE, false);
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
        debug_assert!(!slot.is(LIVE) && !slot.is(TOLD));
        let place = slot.fd as usize;
        let foreign = slot.is(FOREIGN);
        slot.fd = -1;
        slot.flags &= CHANGED;
        slot.place = NOWHERE;
        if foreign {
            self.foreign.push(key);
        } else {
            slot.place = self.vacant;
            self.vacant = index;
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

    /// Gives the emptied list back, so that a steady state allocates nothing.
    pub(crate) fn recycle_changed(&mut self, mut list: Vec<u32>) {
        if self.changed.is_empty() && list.capacity() <= KEPT_CHANGES {
            list.clear();
            self.changed = list;
        }
    }

    /// Takes back a key that a registrar allotted and that was refused.
    pub(crate) fn give_back(&mut self, key: Key) {
        self.foreign.push(Key::new(key.index(), key.generation().wrapping_add(1)));
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
