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
fn only_an_applied_watch_takes_the_fast_path() {
    let applied = Some((Interest::READABLE, Mode::Level));
    let mut slot = Slot::vacant();
    slot.put(LIVE, true);
    slot.set_watch(readable().hint(Hint::Busy));
    slot.set_applied(applied);
    assert!(slot.is(FAST), "applied as wanted");
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
    assert!(!table.needs_no_check(old), "not applied yet");
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
fn memory_counts_reserved_capacity() {
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
