//! How long each descriptor has been where it is, and whether it should leave: arithmetic, no
//! system calls.
//!
//! Time goes in ticks of 65 microseconds; 32 bits of them last for three days. For each slot of the
//! table there are twelve bytes: since when it has been idle or away, the number of its present
//! stay with the keeper, and by how much it has become harder to get out. A stay has a number
//! of its own, and not the registration's generation. One registration may leave, be called back
//! and leave again, and a late message about the first stay must not be taken for one about the
//! second.

use std::time::Duration;

use super::tuning::Rule;

/// The longest time to be idle for, in ticks: a quarter of the range, so that there is time to see
/// that it is over.
const LONGEST: u32 = 1 << 30;

/// The doublings of a descriptor that may not leave at all.
const PINNED: u8 = u8::MAX;

/// Kept with the doublings: it is of a kind that may leave.
const ELIGIBLE: u8 = 1 << 6;

/// A descriptor that the keeper could not take is not offered again for this long.
const DELAY: Duration = Duration::from_secs(1);

pub(super) const fn ticks(time: Duration) -> u32 {
    // The low half, on purpose: it wraps.
    (time.as_nanos() >> 16) as u32
}

#[derive(Clone, Copy, Debug, Default)]
struct EvictionEntry {
    /// Idle, or away, since then.
    since: u32,
    /// Which stay with the keeper it is in.
    number: u32,
    /// The last wait that reported it.
    pass: u16,
    /// A part of the registration's generation: a new registration begins again.
    owner: u8,
    /// At most 16, and [`ELIGIBLE`]; or [`PINNED`].
    doublings: u8,
}

impl EvictionEntry {
    fn doublings(self) -> u8 {
        (self.doublings & !ELIGIBLE).min(16)
    }
}

#[derive(Debug)]
pub(super) struct Eviction {
    all: Vec<EvictionEntry>,
    idle: u32,
    rule: Rule,
    now: u32,
    pass: u16,
    numbers: u32,
    watched: u64,
    active: u64,
    /// By the ratio of the last period.
    is_quiet: bool,
}

impl Eviction {
    pub(super) fn new(idle: Duration, rule: Rule) -> Eviction {
        let idle = u32::try_from(idle.as_nanos().div_ceil(1 << 16)).unwrap_or(LONGEST);
        Eviction {
            all: Vec::new(),
            idle: idle.min(LONGEST),
            rule,
            now: 0,
            pass: 0,
            numbers: 0,
            watched: 0,
            active: 0,
            is_quiet: true,
        }
    }

    pub(super) fn memory(&self) -> usize {
        self.all.capacity() * size_of::<EvictionEntry>()
    }

    pub(super) fn set_time(&mut self, now: u32) {
        self.now = now;
    }

    pub(super) fn begin_pass(&mut self) {
        self.pass = self.pass.wrapping_add(1);
    }

    /// Counts the descriptors and events of a wait in the poller's own set.
    pub(super) fn end_pass(&mut self, watched: usize, active: usize) {
        self.watched += watched as u64;
        self.active += active as u64;
    }

    /// Ends a period.
    pub(super) fn end_period(&mut self) {
        if let Rule::Threshold { idle_atr } = self.rule {
            let limit = f64::from(idle_atr) * self.watched as f64;
            self.is_quiet = self.active as f64 <= limit;
        }
        (self.watched, self.active) = (0, 0);
    }

    fn entry_mut(&mut self, index: u32) -> &mut EvictionEntry {
        let place = index as usize;
        if self.all.len() <= place {
            crate::table::grow_to(&mut self.all, place + 1);
        }
        &mut self.all[place]
    }

    /// Notes something new about a descriptor: an event, or a change.
    pub(super) fn touch(&mut self, index: u32, generation: u32, is_event: bool) {
        let (now, pass, owner) = (self.now, self.pass, generation as u8);
        let entry = self.entry_mut(index);
        entry.since = now;
        if is_event {
            entry.pass = pass;
        }
        if entry.owner != owner {
            (entry.owner, entry.doublings) = (owner, 0);
        }
    }

    /// Whether it has been idle for long enough.
    pub(super) fn is_due(&self, index: u32) -> bool {
        let Some(entry) = self.all.get(index as usize) else { return false };
        // Only a barred descriptor is idle from a future moment on; any other such number is from
        // long ago.
        let is_delayed = (1..=ticks(DELAY)).contains(&entry.since.wrapping_sub(self.now));
        let elapsed = self.now.wrapping_sub(entry.since);
        let wanted = u64::from(self.idle) << entry.doublings();
        self.is_quiet
            && entry.pass != self.pass
            && !is_delayed
            && u64::from(elapsed) >= wanted.min(LONGEST.into())
    }

    /// The name of the stay that it would leave for next.
    pub(super) fn next_key(&mut self, index: u32) -> u64 {
        self.numbers = self.numbers.wrapping_add(1);
        self.entry_mut(index).number = self.numbers;
        self.key(index)
    }

    /// The name of its present stay.
    pub(super) fn key(&self, index: u32) -> u64 {
        let number = self.all.get(index as usize).map_or(0, |entry| entry.number);
        u64::from(number) << 32 | u64::from(index)
    }

    /// Notes that it has left.
    pub(super) fn note_moved_away(&mut self, index: u32) {
        self.entry_mut(index).since = self.now;
    }

    /// Notes that it is back, and whether that was soon.
    pub(super) fn note_moved_back(&mut self, index: u32) {
        let (now, idle, rule) = (self.now, self.idle, self.rule);
        let entry = self.entry_mut(index);
        if let Rule::Regret { within, doublings } = rule {
            let away = now.wrapping_sub(entry.since);
            let (before, eligible) = (entry.doublings(), entry.doublings & ELIGIBLE);
            let after = if u64::from(away) < u64::from(idle) * u64::from(within) {
                (before + 1).min(doublings.min(16))
            } else {
                before.saturating_sub(1)
            };
            entry.doublings = after | eligible;
        }
        entry.since = now;
    }

    /// Notes that it is of a kind that may be given away, as long as it belongs to this
    /// registration.
    pub(super) fn set_eligible(&mut self, index: u32) {
        self.entry_mut(index).doublings |= ELIGIBLE;
    }

    /// Whether that was found out.
    pub(super) fn is_eligible(&self, index: u32) -> bool {
        self.all.get(index as usize).is_some_and(|entry| entry.doublings & ELIGIBLE > 0)
    }

    /// Notes that it cannot be given away at all, as long as it belongs to this registration.
    pub(super) fn pin(&mut self, index: u32) {
        self.entry_mut(index).doublings = PINNED;
    }

    /// Whether that is so.
    pub(super) fn is_pinned(&self, index: u32) -> bool {
        self.all.get(index as usize).is_some_and(|entry| entry.doublings == PINNED)
    }

    /// Notes that it could not leave: not again for a while.
    pub(super) fn delay(&mut self, index: u32) {
        let later = self.now.wrapping_add(ticks(DELAY));
        self.entry_mut(index).since = later;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const REGRET: Rule = Rule::Regret { within: 4, doublings: 2 };

    fn eviction(rule: Rule) -> Eviction {
        let mut eviction = Eviction::new(SECOND, rule);
        eviction.begin_pass();
        eviction.touch(0, 1, true);
        eviction.begin_pass();
        eviction
    }

    fn at(eviction: &mut Eviction, milliseconds: u64) {
        eviction.set_time(ticks(Duration::from_millis(milliseconds)));
    }

    #[test]
    fn a_descriptor_that_is_idle_for_long_enough_is_due() {
        let mut eviction = eviction(REGRET);
        at(&mut eviction, 990);
        assert!(!eviction.is_due(0) && !eviction.is_due(1));
        at(&mut eviction, 1001);
        assert!(eviction.is_due(0));
        eviction.touch(0, 1, false);
        assert!(!eviction.is_due(0));
    }

    #[test]
    fn without_an_idle_time_only_a_descriptor_that_was_just_reported_stays() {
        let mut eviction = Eviction::new(Duration::ZERO, REGRET);
        eviction.begin_pass();
        eviction.touch(0, 1, true);
        eviction.touch(1, 1, false);
        assert!(!eviction.is_due(0) && eviction.is_due(1));
        eviction.begin_pass();
        assert!(eviction.is_due(0));
    }

    #[test]
    fn a_descriptor_that_comes_back_too_soon_must_be_idle_for_longer() {
        let mut eviction = eviction(REGRET);
        let mut now = 0;
        // The required idle time, and how long it then was away.
        for (idle, away) in [(1, 1), (2, 1), (4, 1), (4, 5), (2, 5), (1, 5), (1, 3), (2, 3)] {
            now += 1000 * idle - 10;
            at(&mut eviction, now);
            assert!(!eviction.is_due(0), "{idle} {away}");
            now += 20;
            at(&mut eviction, now);
            assert!(eviction.is_due(0), "{idle} {away}");
            eviction.note_moved_away(0);
            now += 1000 * away;
            at(&mut eviction, now);
            eviction.note_moved_back(0);
        }
        // Another registration in its slot begins again.
        eviction.touch(0, 2, false);
        now += 1001;
        at(&mut eviction, now);
        assert!(eviction.is_due(0));
    }

    #[test]
    fn no_descriptor_leaves_a_busy_set() {
        let mut eviction = eviction(Rule::Threshold { idle_atr: 0.1 });
        at(&mut eviction, 2000);
        assert!(eviction.is_due(0));
        for (active, leaves) in [(11, false), (10, true), (100, false), (0, true)] {
            eviction.end_pass(100, active);
            eviction.end_period();
            assert_eq!(eviction.is_due(0), leaves, "{active} of 100");
        }
        eviction.note_moved_back(0);
        at(&mut eviction, 3001);
        assert!(eviction.is_due(0), "there is no regret");
    }

    #[test]
    fn each_stay_has_a_name_of_its_own() {
        let mut eviction = eviction(REGRET);
        let first = eviction.next_key(7);
        assert_eq!((first, first as u32), (eviction.key(7), 7));
        assert_ne!(eviction.next_key(7), first);
    }

    #[test]
    fn a_descriptor_that_has_been_idle_for_days_is_due() {
        let mut eviction = eviction(REGRET);
        // Since then it was not looked at, because it might not leave.
        for now in [1 << 30, (1 << 31) + 10, u32::MAX - 2 * ticks(DELAY)] {
            eviction.set_time(now);
            assert!(eviction.is_due(0), "{now}");
        }
        eviction.delay(0);
        assert!(!eviction.is_due(0));
    }

    #[test]
    fn a_slot_whose_descriptor_must_stay_is_marked_until_its_next_registration() {
        let mut eviction = eviction(REGRET);
        at(&mut eviction, 100_000);
        assert!(!eviction.is_pinned(0) && !eviction.is_pinned(7));
        eviction.pin(0);
        eviction.touch(0, 1, true);
        assert!(eviction.is_pinned(0));
        eviction.touch(0, 2, false);
        assert!(!eviction.is_pinned(0));
    }

    #[test]
    fn the_kind_of_a_descriptor_is_queried_once_for_each_registration() {
        let mut eviction = eviction(REGRET);
        assert!(!eviction.is_eligible(0) && !eviction.is_eligible(7));
        eviction.set_eligible(0);
        let mut now = 0;
        for _ in 0..40 {
            now += 100_000;
            at(&mut eviction, now);
            assert!(eviction.is_due(0));
            eviction.note_moved_away(0);
            eviction.note_moved_back(0);
            eviction.touch(0, 1, true);
            eviction.begin_pass();
            assert!(eviction.is_eligible(0) && !eviction.is_pinned(0));
        }
        eviction.touch(0, 2, false);
        assert!(!eviction.is_eligible(0));
    }

    #[test]
    fn a_barred_descriptor_waits_even_when_the_clock_wraps() {
        let mut eviction = Eviction::new(Duration::ZERO, REGRET);
        eviction.begin_pass();
        eviction.set_time(u32::MAX - 3);
        eviction.delay(0);
        assert!(!eviction.is_due(0));
        eviction.set_time(ticks(DELAY).wrapping_sub(3));
        assert!(eviction.is_due(0));
        let forever = Eviction::new(Duration::MAX, REGRET);
        assert_eq!(forever.idle, LONGEST);
    }
}
