//! A hierarchical timing wheel (Varghese and Lauck 1987): timers in lists by when they are due,
//! coarser the farther away that is.
//!
//! Time is counted in ticks of 8.2 microseconds since the wheel was made (of a nanosecond once its
//! clock was paused, for tests that compare times). A level has 64 slots,
//! each a list of timers; a slot of level `n` spans 64^n ticks. The slot of a timer follows from
//! its tick and from `elapsed`, the tick up to which everything was done: the level is the highest
//! base-64 digit in which the two differ, the slot is the timer's digit there. All slots in use lie
//! ahead of `elapsed` in their level, and everything in a level is due before anything in the next.
//! The first bit of the first occupied level therefore comes next. When time reaches a slot of a
//! higher level, its timers are dealt out to the lower levels. Timers of the same tick always share
//! a slot, and so keep the order in which they were inserted.
//!
//! Nothing fires early, because deadlines are rounded up to ticks and the present is rounded down.
//! A slot keeps the earliest tick it was given, hence the wheel can say exactly when it is needed
//! next, unless that very timer was cancelled: then it may ask for one turn too many. 11 levels
//! hold 2^64 ticks, 4.8 million years; timers that are due later than that are kept aside, and
//! never fire.
//!
//! A wake-up costs more than all the work for a timer, so [`Wheel::next_wake`] coalesces: it asks
//! for the next wake-up no sooner than a slack after the one before. A timer that comes alone is
//! woken for at its own tick. Of timers that follow each other closely, the first is, and those of
//! the following slack fire together at its end. The distance is kept between the times that the
//! wheel asked for, not between those at which the thread ran, so an interval whose period is the
//! slack ticks on time. A timer that did not fire with a wake-up was due after it, which bounds how
//! late the next wake-up is for it. Turns that other events bring about fire whatever is due, and
//! change nothing about the wake-ups.
//!
//! The timers of all lists lie in one vector, 40 bytes each, and are linked by their indices:
//! inserting or cancelling a timer allocates nothing and walks nothing. The vector keeps the
//! largest size that it has needed until it is [shortened](Wheel::shrink). A key holds the
//! generation of its entry, so that a key that outlives its timer does no harm, also if the entry
//! is gone: an entry that is made again begins with a later generation. Entries are used again in
//! the order in which they were freed, last first. After many were cancelled here and there that is
//! a cache miss for each, so with no timer left the wheel begins from the front again.

use std::mem;
use std::task::Waker;
use std::time::{Duration, Instant};

/// A tick has 2^13 nanoseconds, unless the wheel was [made exact](Wheel::make_exact).
const TICK_BITS: u32 = 13;

/// A level has 2^6 slots: a `u64` has a bit for each to mark it occupied.
const LEVEL_BITS: u32 = 6;
const SLOTS: usize = 1 << LEVEL_BITS;

/// Enough for 64 bits of ticks.
const LEVELS: usize = u64::BITS.div_ceil(LEVEL_BITS) as usize;

/// The slack of timers unless the runtime's builder sets another: the resolution of tokio's timers.
pub(crate) const DEFAULT_SLACK: Duration = Duration::from_millis(1);

/// The tick of a time that is too far away to be counted.
const NEVER: u64 = u64::MAX;

/// The index of no timer.
const NIL: u32 = u32::MAX;

/// The place of a timer that is in no slot.
const ASIDE: u16 = u16::MAX;

/// Names a timer of one wheel, for as long as it has neither fired nor been cancelled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TimerKey {
    index: u32,
    generation: u32,
}

impl TimerKey {
    /// Returns the place of its entry.
    #[inline]
    pub(crate) fn index(self) -> usize {
        self.index as usize
    }
}

/// The outcome of [`Wheel::match_waker`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WakerMatch {
    /// The timer wakes that task.
    Same,
    /// The timer wakes another task.
    Other,
    /// The timer has fired, or was cancelled.
    Gone,
}

struct Entry {
    /// The waker of the timer's task; `None` if the entry is free.
    waker: Option<Waker>,
    tick: u64,
    /// Neighbours in the slot's ring. The last is the first one's `prev`. Free entries are chained
    /// by `next`.
    next: u32,
    prev: u32,
    generation: u32,
    /// Level and slot.
    place: u16,
}

const _: () = assert!(mem::size_of::<Entry>() <= 40);

#[derive(Clone, Copy)]
struct Slot {
    /// No timer in the slot is due before this tick. It means nothing while the slot is empty.
    earliest: u64,
    first: u32,
}

/// The timers of an engine. It has no clock: its user supplies the time.
pub(crate) struct Wheel {
    /// Tick 0.
    origin: Instant,
    /// A tick is a nanosecond long.
    is_exact: bool,
    /// All timers that were due before this tick have fired.
    elapsed: u64,
    /// The least number of ticks from one wake-up to the next; 0 if each tick may have its own.
    slack: u64,
    /// No wake-up is asked for before this tick.
    hold: u64,
    entries: Vec<Entry>,
    /// The generation of new entries, which no key of a removed entry has.
    generation: u32,
    /// Entries from here on were not used since the wheel was last empty.
    fresh: u32,
    /// The first of the other free entries.
    free: u32,
    /// Entries from here on are in the way of making the vector shorter, and are used again last.
    limit: u32,
    len: usize,
    /// Levels in use, and in each the slots in use.
    levels: u16,
    occupied: [u64; LEVELS],
    slots: Box<[Slot]>,
}

impl Wheel {
    /// Makes a wheel whose timers fire at most `slack` late, or a tick if that is more.
    pub(crate) fn new(now: Instant, slack: Duration) -> Wheel {
        Wheel::with_ticks(now, false, slack_in_ticks(slack))
    }

    fn with_ticks(now: Instant, is_exact: bool, slack: u64) -> Wheel {
        Wheel {
            origin: now,
            is_exact,
            elapsed: 0,
            slack,
            hold: 0,
            entries: Vec::new(),
            generation: 0,
            fresh: 0,
            free: NIL,
            limit: NIL,
            len: 0,
            levels: 0,
            occupied: [0; LEVELS],
            slots: vec![Slot { earliest: 0, first: NIL }; LEVELS * SLOTS].into_boxed_slice(),
        }
    }

    /// Returns the number of timers that have neither fired nor been cancelled.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Adds a timer that wakes a task as soon as the deadline is reached; by the next `advance` if
    /// it is in the past.
    #[inline]
    pub(crate) fn insert(&mut self, deadline: Instant, waker: Waker) -> TimerKey {
        let tick = self.tick_of_deadline(deadline);
        let waker = Some(waker);
        let used = self.free != NIL;
        let index = if used { self.free } else { self.fresh };
        let key = match self.entries.get_mut(index as usize) {
            Some(entry) => {
                if used {
                    self.free = entry.next;
                } else {
                    self.fresh += 1;
                }
                entry.waker = waker;
                entry.tick = tick;
                TimerKey { index, generation: entry.generation }
            }
            None => {
                let index = self.entries.len() as u32;
                // Their entries alone would fill 160 GiB.
                assert!(index < NIL, "an engine holds at most 2^32 - 1 timers");
                let (next, prev, place) = (NIL, NIL, ASIDE);
                let generation = self.generation;
                self.limit = NIL;
                self.entries.push(Entry { waker, tick, next, prev, generation, place });
                self.fresh += 1;
                TimerKey { index, generation }
            }
        };
        self.len += 1;
        self.link(key.index);
        key
    }

    /// Returns whether the timer wakes this task.
    #[inline]
    pub(crate) fn match_waker(&mut self, key: TimerKey, waker: &Waker) -> WakerMatch {
        match self.entry(key).and_then(|entry| entry.waker.as_ref()) {
            None => WakerMatch::Gone,
            Some(known) if known.will_wake(waker) => WakerMatch::Same,
            Some(_) => WakerMatch::Other,
        }
    }

    /// Makes the timer wake another task. Returns the waker that is not needed any more, to drop
    /// when nothing is borrowed: the previous waker, or the new one if the timer has fired or was
    /// cancelled.
    pub(crate) fn replace(&mut self, key: TimerKey, waker: Waker) -> Waker {
        match self.entry(key).and_then(|entry| entry.waker.as_mut()) {
            Some(known) => mem::replace(known, waker),
            None => waker,
        }
    }

    /// Takes all timers out, at the end of the engine. Returns their wakers, to wake when nothing
    /// is borrowed.
    pub(crate) fn take_all(&mut self) -> Vec<Waker> {
        let empty = Wheel::with_ticks(self.origin, self.is_exact, self.slack);
        let entries = mem::replace(self, empty).entries;
        entries.into_iter().filter_map(|entry| entry.waker).collect()
    }

    /// Gives the timer another deadline; returns false if it has fired or was cancelled.
    #[inline]
    pub(crate) fn reset(&mut self, key: TimerKey, deadline: Instant) -> bool {
        let tick = self.tick_of_deadline(deadline);
        let Some(entry) = self.entry(key) else { return false };
        if entry.tick != tick {
            self.unlink(key.index);
            self.entries[key.index as usize].tick = tick;
            self.link(key.index);
        }
        true
    }

    /// Takes a timer out. Returns its waker, to drop when nothing is borrowed.
    #[inline]
    pub(crate) fn cancel(&mut self, key: TimerKey) -> Option<Waker> {
        self.entry(key)?;
        self.unlink(key.index);
        self.release(key.index)
    }

    /// Returns the time from which on a call of `advance` fires a timer: the earliest deadline
    /// rounded up to a tick, or earlier if the timer of that time was cancelled. The time is in the
    /// past if a timer is due already.
    #[inline]
    pub(crate) fn next(&self) -> Option<Instant> {
        self.time_at(self.next_tick()?)
    }

    /// Returns the time at which `advance` has to be called: that of [`next`](Wheel::next), or a
    /// slack after the last such time if that is later.
    #[inline]
    pub(crate) fn next_wake(&self) -> Option<Instant> {
        self.time_at(self.next_tick()?.max(self.hold))
    }

    /// Returns the most that a timer is late in a loop that wakes up whenever the wheel asks for
    /// it, unless that is a tick.
    pub(crate) fn slack(&self) -> Duration {
        time_of(self.slack, self.is_exact)
    }

    /// Makes ticks nanoseconds long. Timers that are in the wheel stay at the times to which their
    /// deadlines were rounded, and lose their order among those of the same time.
    pub(crate) fn make_exact(&mut self) {
        if mem::replace(&mut self.is_exact, true) {
            return;
        }
        let exact = |tick| if tick <= NEVER >> TICK_BITS { tick << TICK_BITS } else { NEVER };
        self.elapsed = exact(self.elapsed);
        self.slack = exact(self.slack);
        self.hold = exact(self.hold);
        (self.levels, self.occupied) = (0, [0; LEVELS]);
        for index in 0..self.entries.len() {
            let entry = &mut self.entries[index];
            if entry.waker.is_some() {
                entry.tick = exact(entry.tick);
                self.link(index as u32);
            }
        }
    }

    /// Appends the wakers of all timers that are due to `due`, the earliest first.
    pub(crate) fn advance(&mut self, now: Instant, due: &mut Vec<Waker>) {
        // Rounded down, and never as far as the tick that never fires.
        let nanos = now.saturating_duration_since(self.origin).as_nanos();
        let now = u64::try_from(self.ticks(nanos)).unwrap_or(NEVER).min(NEVER - 1);
        if let Some(next) = self.next_tick() {
            let wake = next.max(self.hold);
            if wake <= now {
                self.hold = wake.saturating_add(self.slack);
            }
        }
        while let Some(place) = self.first_place() {
            let start = self.start_of(place);
            if start > now {
                break;
            }
            self.elapsed = start;
            self.vacate(place, due);
        }
        self.elapsed = self.elapsed.max(now);
    }

    /// Returns the number of whole ticks.
    #[inline]
    fn ticks(&self, nanos: u128) -> u128 {
        if self.is_exact { nanos } else { nanos >> TICK_BITS }
    }

    /// Returns the tick from which on a deadline is reached, or the present tick if that has
    /// passed.
    #[inline]
    fn tick_of_deadline(&self, deadline: Instant) -> u64 {
        let nanos = deadline.saturating_duration_since(self.origin).as_nanos();
        let tick = match self.is_exact {
            true => nanos,
            false => (nanos + ((1 << TICK_BITS) - 1)) >> TICK_BITS,
        };
        u64::try_from(tick).unwrap_or(NEVER).max(self.elapsed)
    }

    /// Returns the number of entries, used or not.
    pub(crate) fn capacity(&self) -> usize {
        self.entries.capacity()
    }

    /// Gives back the memory of all entries that lie after the last one in use, and makes free
    /// entries be used from the front.
    pub(crate) fn shrink(&mut self) {
        let end = self.entries.iter().rposition(|entry| entry.waker.is_some());
        let end = end.map_or(0, |last| last + 1);
        let removed = self.entries.drain(end..).map(|entry| entry.generation);
        self.generation = removed.max().unwrap_or(0).max(self.generation);
        self.entries.shrink_to_fit();
        self.fresh = end as u32;
        self.limit = 2 * self.len as u32 + SLOTS as u32;
        self.free = NIL;
        for (index, entry) in self.entries.iter_mut().enumerate().rev() {
            if entry.waker.is_none() {
                entry.next = mem::replace(&mut self.free, index as u32);
            }
        }
    }

    /// Returns the entry of a timer that is in the wheel. No key has the generation of a free
    /// entry.
    #[inline]
    fn entry(&mut self, key: TimerKey) -> Option<&mut Entry> {
        let entry = self.entries.get_mut(key.index as usize)?;
        (entry.generation == key.generation).then_some(entry)
    }

    /// Returns the first tick at which a timer may be due.
    #[inline]
    fn next_tick(&self) -> Option<u64> {
        Some(self.slots[self.first_place()?].earliest)
    }

    /// Returns the time at which a tick begins. Only a clock near its own end could overflow, and
    /// then the time never comes.
    #[inline]
    fn time_at(&self, tick: u64) -> Option<Instant> {
        self.origin.checked_add(time_of(tick, self.is_exact))
    }

    /// Returns the slot that time reaches first.
    #[inline]
    fn first_place(&self) -> Option<usize> {
        if self.levels == 0 {
            return None;
        }
        let level = self.levels.trailing_zeros() as usize;
        Some(level * SLOTS + self.occupied[level].trailing_zeros() as usize)
    }

    /// Returns the first tick of a slot that is in use.
    #[inline]
    fn start_of(&self, place: usize) -> u64 {
        let (level, slot) = (place / SLOTS, place % SLOTS);
        let shift = level as u32 * LEVEL_BITS;
        ((self.elapsed >> shift) & !(SLOTS as u64 - 1) | slot as u64) << shift
    }

    /// Puts a timer at the end of the slot where its tick belongs.
    #[inline]
    fn link(&mut self, index: u32) {
        let tick = self.entries[index as usize].tick;
        if tick == NEVER {
            self.entries[index as usize].place = ASIDE;
            return;
        }
        // With the lowest digit set, no difference at all counts as one in the lowest digit.
        let difference = (tick ^ self.elapsed) | (SLOTS as u64 - 1);
        let level = (difference.ilog2() / LEVEL_BITS) as usize;
        let digit = (tick >> (level as u32 * LEVEL_BITS)) as usize % SLOTS;
        let place = level * SLOTS + digit;
        let bit = 1 << digit;
        let slot = &mut self.slots[place];
        let (next, prev);
        if self.occupied[level] & bit == 0 {
            self.occupied[level] |= bit;
            self.levels |= 1 << level;
            *slot = Slot { earliest: tick, first: index };
            (next, prev) = (index, index);
        } else {
            slot.earliest = slot.earliest.min(tick);
            next = slot.first;
            prev = mem::replace(&mut self.entries[next as usize].prev, index);
            self.entries[prev as usize].next = index;
        }
        let entry = &mut self.entries[index as usize];
        (entry.next, entry.prev, entry.place) = (next, prev, place as u16);
    }

    /// Takes a timer out of its slot.
    #[inline]
    fn unlink(&mut self, index: u32) {
        let Entry { next, prev, place, .. } = self.entries[index as usize];
        if place == ASIDE {
            return;
        }
        if next == index {
            self.clear(place as usize);
            return;
        }
        self.entries[prev as usize].next = next;
        self.entries[next as usize].prev = prev;
        let slot = &mut self.slots[place as usize];
        if slot.first == index {
            slot.first = next;
        }
    }

    /// Notes that a slot is empty.
    #[inline]
    fn clear(&mut self, place: usize) {
        let (level, digit) = (place / SLOTS, place % SLOTS);
        self.occupied[level] &= !(1 << digit);
        if self.occupied[level] == 0 {
            self.levels &= !(1 << level);
        }
    }

    /// Frees the entry of a timer that is in no slot any more.
    #[inline]
    fn release(&mut self, index: u32) -> Option<Waker> {
        let entry = &mut self.entries[index as usize];
        entry.generation = entry.generation.wrapping_add(1);
        let waker = entry.waker.take();
        if index >= self.limit && index > self.free && self.free != NIL {
            let next = mem::replace(&mut self.entries[self.free as usize].next, index);
            self.entries[index as usize].next = next;
        } else {
            entry.next = mem::replace(&mut self.free, index);
        }
        self.len -= 1;
        if self.len == 0 {
            (self.free, self.fresh) = (NIL, 0);
        }
        waker
    }

    /// Fires the timers of the slot that time has reached, or deals them out to lower levels.
    fn vacate(&mut self, place: usize, due: &mut Vec<Waker>) {
        let first = self.slots[place].first;
        let last = self.entries[first as usize].prev;
        self.clear(place);
        let mut index = first;
        loop {
            let next = self.entries[index as usize].next;
            if place < SLOTS {
                due.extend(self.release(index));
            } else {
                self.link(index);
            }
            if index == last {
                return;
            }
            index = next;
        }
    }
}

/// Returns the number of ticks from one wake-up to the next that a slack allows. One tick is as
/// good as none, because all timers of a tick fire together anyway.
fn slack_in_ticks(slack: Duration) -> u64 {
    let ticks = u64::try_from(slack.as_nanos() >> TICK_BITS).unwrap_or(NEVER);
    if ticks > 1 { ticks } else { 0 }
}

/// Returns how long after the origin a tick begins.
#[inline]
fn time_of(tick: u64, is_exact: bool) -> Duration {
    if is_exact {
        return Duration::from_nanos(tick);
    }
    if tick <= u64::MAX >> TICK_BITS {
        return Duration::from_nanos(tick << TICK_BITS);
    }
    const SECOND: u128 = 1_000_000_000;
    let nanos = u128::from(tick) << TICK_BITS;
    Duration::new((nanos / SECOND) as u64, (nanos % SECOND) as u32)
}

superpoll::debug_fields!(Wheel, it => len: it.len, elapsed: it.elapsed);

#[cfg(test)]
mod tests;
