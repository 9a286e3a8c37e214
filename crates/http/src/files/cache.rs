//! The cache: resources by the paths that are asked for, so that they need not be found again.
//!
//! One look into a hash table leads from the path of a request to everything that a response is
//! made of. An entry counts for a second. After that, the next request checks the file once more,
//! and the entry continues if the file is still the same version. So no entry is older than a
//! second, and a file that is asked for often costs system calls once a second.
//!
//! There is one cache to each site on each engine, without locks. The bytes in it have a limit;
//! beyond it the clock algorithm (second chance) drops entries that have not been asked for since
//! its hand came by. There are no entries for paths that lead nowhere, and of several ways to write
//! a path only the usual way has an entry: otherwise any client could fill the cache.

use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use super::resource::Resource;
use super::version::Stamp;

/// How long an entry counts before the file is looked for again.
pub(super) const CHECK: Duration = Duration::from_secs(1);

/// The memory of an entry in addition to its contents and its path: tables, header fields,
/// descriptors of versions.
const OVERHEAD: usize = 2048;

/// A resource, and the versions of the file and its siblings that it was made of.
pub(super) struct Entry {
    pub(super) resource: Rc<Resource>,
    pub(super) stamps: [Option<Stamp>; 4],
    /// Whether the file may have changed without its stamp.
    pub(super) is_young: bool,
}

struct Slot {
    key: Rc<str>,
    entry: Entry,
    checked: Cell<Duration>,
    is_used: Cell<bool>,
    bytes: usize,
}

/// Entries by path.
#[derive(Default)]
pub(super) struct Cache {
    places: HashMap<Rc<str>, usize>,
    slots: Vec<Option<Slot>>,
    free: Vec<usize>,
    hand: usize,
    bytes: usize,
    limit: usize,
}

impl Cache {
    pub(super) fn new(limit: usize) -> Cache {
        Cache { limit, ..Cache::default() }
    }

    /// The most bytes that one file may take.
    pub(super) fn room(&self) -> usize {
        self.limit.saturating_sub(OVERHEAD) / 8
    }

    /// The largest file whose contents are kept.
    pub(super) fn largest(&self) -> usize {
        self.room().min(256 << 10)
    }

    /// Returns the resource of a path if it needs no check of the file.
    pub(super) fn fresh(&self, key: &str, now: Duration) -> Option<&Rc<Resource>> {
        let slot = self.slot(key)?;
        slot.is_used.set(true);
        let is_fresh = now.saturating_sub(slot.checked.get()) < CHECK;
        is_fresh.then_some(&slot.entry.resource)
    }

    /// Returns the resource of a path if it is of these versions, which were found on the disk just
    /// now.
    pub(super) fn checked(
        &self,
        key: &str,
        stamps: &[Option<Stamp>; 4],
        now: Duration,
    ) -> Option<&Rc<Resource>> {
        let slot = self.slot(key)?;
        if slot.entry.is_young || slot.entry.stamps != *stamps {
            return None;
        }
        slot.checked.set(now);
        Some(&slot.entry.resource)
    }

    /// Returns the resource of a path, of whatever version.
    pub(super) fn stale(&self, key: &str) -> Option<&Rc<Resource>> {
        Some(&self.slot(key)?.entry.resource)
    }

    fn slot(&self, key: &str) -> Option<&Slot> {
        self.slots[*self.places.get(key)?].as_ref()
    }

    /// Keeps an entry in place of the entry of the same path, unless it alone is too much.
    pub(super) fn insert(&mut self, key: &str, entry: Entry, now: Duration) {
        self.remove(key);
        let bytes = entry.resource.bytes() + key.len() + OVERHEAD;
        if bytes > self.limit {
            return;
        }
        self.make_room(bytes);
        let key: Rc<str> = key.into();
        let slot = Slot {
            key: Rc::clone(&key),
            entry,
            checked: Cell::new(now),
            is_used: Cell::new(false),
            bytes,
        };
        let place = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.slots[place] = Some(slot);
        self.places.insert(key, place);
        self.bytes += bytes;
    }

    /// Counts by how much a resource has grown, if it is the resource in the cache.
    pub(super) fn grow(&mut self, key: &str, resource: &Rc<Resource>, bytes: usize) {
        let Some(&place) = self.places.get(key) else { return };
        if let Some(slot) = &mut self.slots[place]
            && Rc::ptr_eq(&slot.entry.resource, resource)
        {
            slot.bytes += bytes;
            slot.is_used.set(true);
            self.bytes += bytes;
            self.make_room(0);
        }
    }

    pub(super) fn remove(&mut self, key: &str) {
        if let Some(place) = self.places.remove(key) {
            self.empty(place);
        }
    }

    fn empty(&mut self, place: usize) {
        if let Some(slot) = self.slots[place].take() {
            self.bytes -= slot.bytes;
            self.places.remove(&slot.key);
            self.free.push(place);
        }
    }

    /// Drops entries until this many bytes are free, or none is left.
    fn make_room(&mut self, bytes: usize) {
        while self.bytes + bytes > self.limit && !self.places.is_empty() {
            self.hand = (self.hand + 1) % self.slots.len();
            if let Some(slot) = &self.slots[self.hand]
                && !slot.is_used.replace(false)
            {
                self.empty(self.hand);
            }
        }
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    #[cfg(test)]
    pub(super) fn contains(&self, key: &str) -> bool {
        self.places.contains_key(key)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;
    use superpoll_config::Files;

    use super::super::kind::Kind;
    use super::super::representation::Source;
    use super::super::resource::Content;
    use super::*;

    fn entry(length: usize) -> Entry {
        let source = Source::Memory(Bytes::from(vec![0; length]));
        let content = Content { source, tag: "t".to_owned(), modified: None };
        let resource = Resource::new(
            Kind::from_name("a", &Files::default()),
            content,
            [const { None }; 3],
            None,
            None,
        )
        .unwrap();
        Entry { resource: Rc::new(resource), stamps: [None; 4], is_young: false }
    }

    #[test]
    fn recently_used_entries_stay_and_the_rest_are_evicted() {
        let now = Duration::from_secs(9);
        let mut cache = Cache::new(10 * (OVERHEAD + 1002));
        for index in 0..10 {
            cache.insert(&format!("/{index}"), entry(1000), now);
        }
        assert!((0..10).all(|index| cache.contains(&format!("/{index}"))));
        for index in 10..100 {
            assert!(cache.fresh("/3", now).is_some());
            cache.insert(&format!("/{index}"), entry(999), now);
            assert!(cache.bytes() <= cache.limit);
        }
        assert!(cache.contains("/3") && cache.contains("/99") && !cache.contains("/4"));
    }

    #[test]
    fn an_entry_counts_for_a_second_and_longer_when_it_is_checked() {
        let now = Duration::from_secs(9);
        let mut cache = Cache::new(1 << 20);
        cache.insert("/a", entry(1), now);
        assert!(cache.fresh("/a", now + CHECK - Duration::from_nanos(1)).is_some());
        assert!(cache.fresh("/a", now + CHECK).is_none());
        assert!(cache.checked("/a", &[None; 4], now + CHECK).is_some());
        assert!(cache.fresh("/a", now + CHECK).is_some());
        cache.insert("/a", Entry { is_young: true, ..entry(1) }, now);
        assert!(cache.checked("/a", &[None; 4], now).is_none());
    }

    proptest! {
        #[test]
        fn the_bytes_are_those_of_the_resource(
            steps in prop::collection::vec((0..8_u8, 0..4_u8, 0..9_000_usize), 0..60),
        ) {
            let now = Duration::from_secs(9);
            let mut cache = Cache::new(30_000);
            for (key, what, size) in steps {
                let key = format!("/{key}");
                match what {
                    0 | 1 => cache.insert(&key, entry(size), now),
                    2 => cache.remove(&key),
                    _ => {
                        let found = cache.fresh(&key, now).cloned();
                        if let Some(resource) = found {
                            cache.grow(&key, &resource, size);
                        }
                    }
                }
                let slots = cache.slots.iter().flatten();
                prop_assert_eq!(cache.bytes, slots.clone().map(|slot| slot.bytes).sum::<usize>());
                prop_assert!(cache.bytes <= cache.limit);
                prop_assert_eq!(slots.count(), cache.places.len());
                prop_assert_eq!(cache.free.len() + cache.places.len(), cache.slots.len());
            }
        }
    }
}
