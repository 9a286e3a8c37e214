//! Items of a channel in the order that their publisher has given them.
//!
//! An application with several processes may publish an item before the one that it follows. Such
//! an item waits for that one, for five seconds at most. An item with an id that was seen within a
//! minute is a repeated one, and is dropped.

use std::collections::hash_map::RandomState;
use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasher;
use std::time::{Duration, Instant};

use super::item::Item;

/// How long an item waits for the one before it.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// How long the last ids of a channel are known.
const KNOWN: Duration = Duration::from_secs(60);

/// The most channels whose ids are known, the most ids of each, and the most items and bytes that
/// wait.
const MOST_CHANNELS: usize = 20_000;
const MOST_IDS: usize = 64;
const MOST_WAITING: usize = 1000;
const MOST_WAITING_BYTES: usize = 16 << 20;

/// An item that waits.
struct Waiting {
    item: Item,
    until: Instant,
}

#[derive(Default)]
struct Sequence {
    /// The hashes of the last ids, the last one last.
    ids: VecDeque<u64>,
    waiting: Vec<Waiting>,
    used: Option<Instant>,
}

/// The sequences of all channels.
#[derive(Default)]
pub(in crate::channel) struct Sequences {
    by_channel: HashMap<Box<str>, Sequence>,
    hasher: RandomState,
    waiting: usize,
    bytes: usize,
}

/// Whether the log has an item with an id in a channel: another process may have taken it.
pub(super) type IsKept<'a> = &'a dyn Fn(&str, &str) -> bool;

impl Sequences {
    /// Returns the items that are to be published now that this one has come, in their order. It is
    /// none of them if it waits or is repeated.
    pub(super) fn pass(
        &mut self,
        item: Item,
        waits: bool,
        now: Instant,
        is_kept: IsKept<'_>,
    ) -> Vec<Item> {
        if item.id.is_none() && item.previous.is_none() {
            return vec![item];
        }
        self.forget(now);
        let room = self.waiting < MOST_WAITING && self.bytes + item.cost() <= MOST_WAITING_BYTES;
        let id = self.hash(item.id.as_deref());
        let previous = self.hash(item.previous.as_deref());
        let sequence = self.by_channel.entry(item.channel.clone()).or_default();
        sequence.used = Some(now);
        if id.is_some_and(|id| sequence.ids.contains(&id)) {
            return Vec::new();
        }
        let fits = match (previous, sequence.ids.back()) {
            (Some(previous), Some(last)) => {
                let named = item.previous.as_deref().unwrap_or_default();
                previous == *last || is_kept(&item.channel, named)
            }
            _ => true,
        };
        if !fits && waits && room {
            let is_there = |other: &Waiting| item.id.is_some() && other.item.id == item.id;
            if !sequence.waiting.iter().any(is_there) {
                (self.waiting, self.bytes) = (self.waiting + 1, self.bytes + item.cost());
                sequence.waiting.push(Waiting { item, until: now + PATIENCE });
            }
            return Vec::new();
        }
        let mut passed = Vec::new();
        self.enter(item, &mut passed);
        passed
    }

    /// Returns the items that have waited long enough, or whose time has come, with those that
    /// follow them.
    pub(super) fn due(&mut self, now: Instant, is_kept: IsKept<'_>) -> Vec<Item> {
        let mut passed = Vec::new();
        let channels: Vec<Box<str>> = self
            .by_channel
            .iter()
            .filter(|(_, sequence)| !sequence.waiting.is_empty())
            .map(|(name, _)| name.clone())
            .collect();
        for channel in channels {
            let is_due = |one: &Waiting| {
                let previous = one.item.previous.as_deref();
                one.until <= now || previous.is_some_and(|id| is_kept(&channel, id))
            };
            while let Some(item) = self.take(&channel, is_due) {
                self.enter(item, &mut passed);
            }
        }
        passed
    }

    /// Takes items back that could not be published. The first one comes again from its publisher,
    /// if `is_told`; the others wait.
    pub(super) fn put_back(&mut self, items: Vec<Item>, is_told: bool, now: Instant) {
        for (place, item) in items.into_iter().enumerate() {
            let id = self.hash(item.id.as_deref());
            let sequence = self.by_channel.entry(item.channel.clone()).or_default();
            sequence.ids.retain(|known| Some(*known) != id);
            if place > 0 || !is_told {
                (self.waiting, self.bytes) = (self.waiting + 1, self.bytes + item.cost());
                sequence.waiting.push(Waiting { item, until: now + PATIENCE });
            }
        }
    }

    /// Returns how many items wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    fn hash(&self, id: Option<&str>) -> Option<u64> {
        id.map(|id| self.hasher.hash_one(id))
    }

    /// Takes the first item that waits in a channel and of which something is so.
    fn take(&mut self, channel: &str, is_it: impl Fn(&Waiting) -> bool) -> Option<Item> {
        let sequence = self.by_channel.get_mut(channel)?;
        let at = sequence.waiting.iter().position(is_it)?;
        let Waiting { item, .. } = sequence.waiting.remove(at);
        (self.waiting, self.bytes) = (self.waiting - 1, self.bytes - item.cost());
        Some(item)
    }

    /// Passes an item, and those that follow it.
    fn enter(&mut self, item: Item, passed: &mut Vec<Item>) {
        let mut next = Some(item);
        while let Some(item) = next {
            let (channel, id) = (item.channel.clone(), item.id.clone());
            if let Some(hash) = self.hash(id.as_deref())
                && let Some(sequence) = self.by_channel.get_mut(&channel)
            {
                if sequence.ids.len() >= MOST_IDS {
                    sequence.ids.pop_front();
                }
                sequence.ids.push_back(hash);
            }
            passed.push(item);
            next = id
                .and_then(|id| self.take(&channel, |one| one.item.previous.as_ref() == Some(&id)));
        }
    }

    /// Forgets channels that were not used for long, and more if there are too many.
    fn forget(&mut self, now: Instant) {
        if self.by_channel.len() < MOST_CHANNELS {
            return;
        }
        let is_old = |sequence: &Sequence| {
            sequence.used.is_none_or(|used| now.saturating_duration_since(used) >= KNOWN)
        };
        self.by_channel.retain(|_, sequence| !sequence.waiting.is_empty() || !is_old(sequence));
        if self.by_channel.len() >= MOST_CHANNELS / 2 {
            // Otherwise each item would look at all of them.
            self.by_channel.retain(|_, sequence| !sequence.waiting.is_empty());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(id: &str, previous: &str) -> Item {
        let some = |text: &str| (!text.is_empty()).then(|| text.into());
        Item { channel: "c".into(), id: some(id), previous: some(previous), ..Item::default() }
    }

    const NONE: fn(&str, &str) -> bool = |_, _| false;

    fn due(all: &mut Sequences, now: Instant) -> Vec<Item> {
        all.due(now, &NONE)
    }

    fn ids(items: Vec<Item>) -> String {
        items.iter().map(|item| item.id.as_deref().unwrap_or("-")).collect()
    }

    #[test]
    fn items_wait_for_those_before_them_and_repeated_ones_are_dropped() {
        let (mut all, now) = (Sequences::default(), Instant::now());
        assert_eq!(ids(all.pass(item("a", "x"), true, now, &NONE)), "a");
        assert_eq!(ids(all.pass(item("d", "c"), true, now, &NONE)), "");
        assert_eq!(ids(all.pass(item("c", "b"), true, now, &NONE)), "");
        assert_eq!(ids(all.pass(item("c", "b"), true, now, &NONE)), "", "twice, it waits once");
        assert_eq!(ids(all.pass(item("b", "a"), true, now, &NONE)), "bcd");
        assert!(all.waiting() == 0);
        for repeated in ["a", "b", "c", "d"] {
            assert_eq!(ids(all.pass(item(repeated, ""), true, now, &NONE)), "");
        }
        assert_eq!(ids(all.pass(item("", ""), true, now, &NONE)), "-");
        assert_eq!(ids(all.pass(item("z", "y"), false, now, &NONE)), "z", "it does not wait");
    }

    #[test]
    fn an_item_waits_for_five_seconds_at_most() {
        let (mut all, now) = (Sequences::default(), Instant::now());
        all.pass(item("a", ""), true, now, &NONE);
        all.pass(item("c", "b"), true, now, &NONE);
        all.pass(item("d", "c"), true, now + Duration::from_secs(4), &NONE);
        assert_eq!(ids(due(&mut all, now + PATIENCE - Duration::from_millis(1))), "");
        assert_eq!(ids(due(&mut all, now + PATIENCE)), "cd");
        assert!(all.waiting() == 0);
        // Too late for its place, and still no item that was seen.
        assert_eq!(ids(all.pass(item("b", "a"), true, now + PATIENCE, &NONE)), "");
        assert_eq!(ids(due(&mut all, now + 2 * PATIENCE)), "b");
    }

    #[test]
    fn memory_is_bounded() {
        let (mut all, now) = (Sequences::default(), Instant::now());
        for number in 0..3 * MOST_CHANNELS {
            let one = Item { channel: number.to_string().into(), ..item("a", "") };
            assert_eq!(all.pass(one, true, now, &NONE).len(), 1);
        }
        assert!(all.by_channel.len() <= MOST_CHANNELS);
        let mut passed = all.pass(item("a", ""), true, now, &NONE).len();
        for number in 0..2 * MOST_WAITING {
            passed += all.pass(item(&format!("i{number}"), "never"), true, now, &NONE).len();
        }
        assert_eq!((all.waiting, passed), (MOST_WAITING, 1 + MOST_WAITING));
        let ids = all.by_channel["c"].ids.len();
        assert!(ids <= MOST_IDS, "{ids}");
    }

    #[test]
    fn items_that_could_not_be_published_come_again() {
        let (mut all, now) = (Sequences::default(), Instant::now());
        all.pass(item("a", ""), true, now, &NONE);
        all.pass(item("c", "b"), true, now, &NONE);
        let passed = all.pass(item("b", "a"), true, now, &NONE);
        assert_eq!(ids(passed.clone()), "bc");
        // The publisher of the second one is told, and that of the third was told that it is there.
        all.put_back(passed, true, now);
        assert_eq!(all.waiting(), 1);
        assert_eq!(ids(all.pass(item("b", "a"), true, now, &NONE)), "bc");
        assert_eq!((all.waiting(), all.bytes), (0, 0));
    }

    #[test]
    fn an_item_whose_predecessor_came_by_another_process_does_not_wait() {
        let (mut all, now) = (Sequences::default(), Instant::now());
        all.pass(item("a", ""), true, now, &NONE);
        let by_others = |_: &str, id: &str| id == "b";
        assert_eq!(ids(all.pass(item("c", "b"), true, now, &by_others)), "c");
        assert_eq!(ids(all.pass(item("f", "e"), true, now, &NONE)), "");
        assert_eq!(ids(all.due(now, &|_: &str, id: &str| id == "e")), "f");
    }
}
