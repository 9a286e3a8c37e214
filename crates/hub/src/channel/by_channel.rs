//! Held connections by the names of their channels.
//!
//! An application often gives each connection a channel of its own. So a channel with one
//! connection takes neither a set nor a copy of its name, but eight bytes: the name is in the
//! record of the connection.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasher, RandomState};

/// Held connections by the hashes of the names of their channels.
///
/// Names with the same hash share their connections, which is rare: the record of a connection
/// tells whether an item is for it.
#[derive(Default)]
pub(super) struct ByChannel<S = RandomState> {
    /// The channels with one connection.
    sole: HashMap<u32, u32>,
    /// The channels that have had several.
    several: HashMap<u32, BTreeSet<u32>>,
    hasher: S,
}

impl<S: BuildHasher> ByChannel<S> {
    /// Enters a connection with a channel.
    pub(super) fn insert(&mut self, name: &str, index: u32) {
        let hash = self.hash(name);
        if let Some(known) = self.several.get_mut(&hash) {
            known.insert(index);
            return;
        }
        match self.sole.entry(hash) {
            Entry::Vacant(place) => drop(place.insert_entry(index)),
            Entry::Occupied(place) if *place.get() == index => {}
            Entry::Occupied(place) => {
                self.several.insert(hash, [place.remove(), index].into());
            }
        }
    }

    /// Removes a connection from a channel.
    pub(super) fn remove(&mut self, name: &str, index: u32) {
        let hash = self.hash(name);
        if let Some(known) = self.several.get_mut(&hash) {
            known.remove(&index);
            if known.is_empty() {
                self.several.remove(&hash);
            }
        } else if self.sole.get(&hash) == Some(&index) {
            self.sole.remove(&hash);
        }
    }

    /// Whether a channel may have a connection.
    pub(super) fn has(&self, name: &str) -> bool {
        let hash = self.hash(name);
        self.sole.contains_key(&hash) || self.several.contains_key(&hash)
    }

    /// Returns the connection that may be the only one with a channel.
    pub(super) fn sole(&self, name: &str) -> Option<u32> {
        self.sole.get(&self.hash(name)).copied()
    }

    /// Returns the connections that may have one of these channels, in the order of their places.
    pub(super) fn with_any<'a>(&self, names: impl Iterator<Item = &'a str>) -> Vec<u32> {
        let mut hashes: Vec<u32> = names.map(|name| self.hash(name)).collect();
        hashes.sort_unstable();
        hashes.dedup();
        let mut found = Vec::new();
        for hash in &hashes {
            found.extend(self.sole.get(hash));
            found.extend(self.several.get(hash).into_iter().flatten());
        }
        if hashes.len() > 1 {
            found.sort_unstable();
            found.dedup();
        }
        found
    }

    fn hash(&self, name: &str) -> u32 {
        u32::try_from(self.hasher.hash_one(name) >> 32).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::hash::{BuildHasherDefault, Hasher};

    use super::*;

    #[derive(Default)]
    struct Constant;

    impl Hasher for Constant {
        fn write(&mut self, _: &[u8]) {}

        fn finish(&self) -> u64 {
            7
        }
    }

    fn found<S: BuildHasher>(all: &ByChannel<S>, names: &[&str]) -> Vec<u32> {
        all.with_any(names.iter().copied())
    }

    #[test]
    fn connections_are_found_once_and_in_order() {
        let mut all = ByChannel::<RandomState>::default();
        for (name, index) in [("a", 9), ("b", 3), ("b", 1), ("b", 3), ("c", 3), ("c", 3)] {
            all.insert(name, index);
        }
        assert_eq!(found(&all, &["a"]), [9]);
        assert_eq!(found(&all, &["b"]), [1, 3]);
        assert_eq!(["a", "b", "c", "d"].map(|name| all.sole(name)), [Some(9), None, Some(3), None]);
        assert_eq!(["a", "b", "d"].map(|name| all.has(name)), [true, true, false]);
        assert_eq!(found(&all, &["c", "b", "a", "b"]), [1, 3, 9]);
        assert!(found(&all, &["d"]).is_empty());
        all.remove("b", 3);
        all.remove("a", 1);
        assert_eq!(found(&all, &["a", "b", "c"]), [1, 3, 9]);
        for (name, index) in [("a", 9), ("b", 1), ("c", 3), ("d", 1)] {
            all.remove(name, index);
        }
        assert!(
            found(&all, &["a", "b", "c"]).is_empty() && all.sole.len() + all.several.len() == 0
        );
    }

    #[test]
    fn names_with_the_same_hash_share_their_connections() {
        let mut all = ByChannel::<BuildHasherDefault<Constant>>::default();
        for (name, index) in [("a", 1), ("b", 2)] {
            all.insert(name, index);
        }
        assert_eq!(found(&all, &["a", "b"]), [1, 2]);
        all.remove("a", 1);
        assert_eq!(found(&all, &["b"]), [2]);
        all.remove("b", 2);
        assert!(all.sole.len() + all.several.len() == 0);
    }
}
