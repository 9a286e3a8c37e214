//! Frees slots that are not needed any more, and allots names to new ones.
//!
//! After a spike the slots after the last one in use are given back. Their indices are allotted
//! again, with generations that none of them had, so that a key is stale for good. The generation
//! of indices that were never used lies next to the counter, in the same word; one atomic operation
//! takes both.

use std::sync::atomic::{AtomicU64, Ordering};

use super::slot::CHANGED;
use super::{GROWTH, NOWHERE, Table};
use crate::key::Key;

/// A table with fewer slots than this is not shortened.
const SMALL: usize = 256;

/// Names a registration with an index that is not in use: the next index and its generation, see
/// the top.
pub(crate) fn name(names: &AtomicU64) -> Key {
    let next = names.fetch_add(1, Ordering::Relaxed);
    Key::new(next as u32, (next >> 32) as u32)
}

impl Table {
    /// Whether so few slots have been in use, for so long, that vacant ones should be freed. Called
    /// when changes were applied: the more slots there are to look at, the longer that time is.
    #[inline]
    pub(crate) fn is_spare_for_long(&mut self) -> bool {
        if !self.is_spare() {
            self.spare = 0;
            return false;
        }
        self.spare += 1;
        self.spare > SMALL + self.slots.len() / GROWTH
    }

    /// Whether few of the slots are in use.
    #[inline]
    pub(crate) fn is_spare(&self) -> bool {
        self.slots.len() > SMALL && self.len < self.slots.len() / 4
    }

    /// Whether few of the slots are in use, and not more than half as many as when the table was
    /// shortened before. So a table whose last slot stays in use is not looked at again and again.
    pub(crate) fn is_spare_anew(&self) -> bool {
        let before = self.shortened_at;
        self.is_spare() && self.len < before && self.len <= before / 2
    }

    /// Frees memory that is not needed: among slots, all after the last one in use. Vacant slots
    /// are used from the front from now on. Slots that belong to the registrar stay.
    pub(crate) fn shorten(&mut self) {
        self.spare = 0;
        self.shortened_at = self.len;
        let last = self.by_fd.iter().rposition(|&index| index != NOWHERE);
        self.by_fd.truncate(last.map_or(0, |last| last + 1));
        self.by_fd.shrink_to_fit();
        for list in [&mut self.changed, &mut self.always] {
            list.shrink_to_fit();
        }
        self.foreign.shrink_to_fit();
        let mut vacant = Vec::new();
        let mut next = self.vacant;
        while next != NOWHERE {
            vacant.push(next);
            next = self.slots[next as usize].place;
        }
        vacant.sort_unstable_by(|one, other| other.cmp(one));
        let mut end = self.slots.len();
        for &index in &vacant {
            if index as usize + 1 != end || self.slots[index as usize].is(CHANGED) {
                break;
            }
            end -= 1;
        }
        if !self.rename_from(end) {
            end = self.slots.len();
        }
        self.slots.truncate(end);
        self.slots.shrink_to_fit();
        self.vacant = NOWHERE;
        for index in vacant.into_iter().filter(|&index| (index as usize) < end) {
            self.slots[index as usize].place = self.vacant;
            self.vacant = index;
        }
    }

    /// Makes the indices from here on available again, with generations that none of their slots
    /// had in a key. Returns false if another thread has taken an index that is not in the table
    /// yet, or if the indices would be left with few generations.
    fn rename_from(&self, end: usize) -> bool {
        let names = self.names.load(Ordering::Relaxed);
        let latest = self.slots[end..].iter().map(|slot| slot.generation).max().unwrap_or(0);
        let renamed = u64::from(latest).max(names >> 32) << 32 | end as u64;
        latest < u32::MAX / 2
            && names as u32 as usize == self.slots.len()
            && self
                .names
                .compare_exchange(names, renamed, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::RawFd;
    use std::sync::Arc;

    use super::*;
    use crate::interest::{Interest, Mode, Watch};

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

    /// Registers this many descriptors, from a number on.
    fn fill(table: &mut Table, from: RawFd, count: usize) -> Vec<Key> {
        (from..).take(count).map(|fd| table.insert(fd, readable(), None)).collect()
    }

    fn end(table: &mut Table, keys: &[Key]) {
        for key in keys {
            table.end(key.index(), true);
            forget(table, key.index());
        }
        let applied = table.take_changed();
        table.recycle_changed(applied);
    }

    #[test]
    fn slots_of_a_spike_are_released_and_no_key_is_reused() {
        let mut table = table();
        let kept = fill(&mut table, 0, 1)[0];
        let mut known = vec![kept];
        for round in 0..3 {
            let spike = fill(&mut table, 10, 4 * SMALL);
            assert!(!table.is_spare() && spike.iter().all(|key| !known.contains(key)));
            end(&mut table, &spike);
            assert!(table.is_spare(), "round {round}");
            table.shorten();
            assert_eq!((table.slots(), table.len()), (1, 1));
            assert!(table.memory() < 1024, "{}", table.memory());
            known.extend(spike);
            assert!(known[1..].iter().all(|&key| table.get(key).is_none()));
            assert!(table.get(kept).is_some() && table.find(0) == Some(kept));
            // An access with the index of such a slot finds a vacant one.
            let gone = known[9].index();
            table.slot_mut(gone).set_applied(Some((Interest::READABLE, Mode::Level)));
            assert!(table.slot(gone).applied().is_none() && !table.slot(gone).is_live());
            assert!(table.get(table.key(gone)).is_none());
        }
    }

    #[test]
    fn only_slots_behind_the_last_one_in_use_are_released() {
        let mut table = table();
        let keys = fill(&mut table, 0, 4 * SMALL);
        let (kept, changed, place) = (keys[100], keys[50], 2 * SMALL);
        let ended: Vec<Key> = keys.iter().copied().filter(|&key| key != kept).collect();
        end(&mut table, &ended);
        // A removal that is still listed as a change.
        let again = table.insert(9000, readable(), None);
        assert_eq!(again.index(), keys.last().unwrap().index());
        table.end(again.index(), true);
        forget(&mut table, again.index());
        table.shorten();
        assert_eq!(table.slots() as usize, keys.len());
        let applied = table.take_changed();
        table.recycle_changed(applied);
        // A slot that another thread has named and not yet registered.
        let theirs = name(&table.names);
        table.shorten();
        assert_eq!(table.slots() as usize, keys.len());
        assert_eq!(table.insert(9001, readable(), Some(theirs)), theirs);
        table.shorten();
        assert_eq!(table.slots(), theirs.index() + 1, "it is in use");
        end(&mut table, &[theirs]);
        let back: Vec<Key> = table.take_foreign().collect();
        assert_eq!(back, [Key::new(theirs.index(), theirs.generation() + 1)]);
        table.shorten();
        assert_eq!(table.slots(), theirs.index() + 1, "it is the registrar's");
        // The remaining slots are used from the front.
        let next = fill(&mut table, 20_000, place);
        assert!(next.iter().map(|key| key.index()).is_sorted());
        assert!(next[0].index() == 0 && !keys.contains(&next[0]));
        assert_eq!(table.key(changed.index()), next[50]);
    }

    #[test]
    fn a_table_is_spare_for_long_after_some_changes_in_a_row() {
        let mut table = table();
        let keys = fill(&mut table, 0, 4 * SMALL);
        assert!((0..9999).all(|_| !table.is_spare_for_long()));
        end(&mut table, &keys[SMALL - 1..]);
        let rounds = SMALL + table.slots() as usize / GROWTH;
        assert!((0..rounds).all(|_| !table.is_spare_for_long()));
        assert!(table.is_spare_for_long());
        table.insert(9000, readable(), None);
        assert!(!table.is_spare_for_long());
        table.end(keys[0].index(), true);
        assert!((0..rounds).all(|_| !table.is_spare_for_long()), "it begins anew");
    }

    /// Each look costs as much as there are slots.
    #[test]
    fn a_table_whose_last_slot_stays_in_use_is_shortened_a_few_times_at_most() {
        let mut table = table();
        for _ in 0..2 {
            let keys = fill(&mut table, 0, 40 * SMALL);
            let mut shortened = 0;
            for key in &keys[..keys.len() - 1] {
                end(&mut table, &[*key]);
                if table.is_spare_anew() {
                    table.shorten();
                    shortened += 1;
                }
            }
            assert!((1..=12).contains(&shortened), "{shortened}");
            assert_eq!(table.slots() as usize, keys.len());
            end(&mut table, &keys[keys.len() - 1..]);
            assert!(table.is_spare_anew());
            table.shorten();
            assert!(!table.is_spare_anew());
            assert_eq!(table.slots(), 0);
        }
    }
}
