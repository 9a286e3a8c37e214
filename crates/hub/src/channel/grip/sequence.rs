//! Items of a channel in the order that their publisher has given them.
//!
//! An application with several processes may publish an item before the one that it follows. Such
//! an item waits for that one, for five seconds at most. An item with an id that was seen within a
//! minute is a repeated one, and is dropped.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use super::item::Item;

/// How long an item waits for the one before it.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// How long the last ids of a channel are known.
const KNOWN: Duration = Duration::from_secs(60);

/// The most channels whose ids are known, the most ids of each, and the most items that wait.
const MOST_CHANNELS: usize = 20_000;
const MOST_IDS: usize = 64;
const MOST_WAITING: usize = 1000;

#[derive(Default)]
struct Sequence {
    /// The last ids, the last one last.
    ids: VecDeque<Box<str>>,
    waiting: Vec<(Item, Instant)>,
    used: Option<Instant>,
}

/// The sequences of all channels.
#[derive(Default)]
pub(in crate::channel) struct Sequences {
    by_channel: HashMap<Box<str>, Sequence>,
    waiting: usize,
}

impl Sequences {
    /// Returns the items that are to be published now that this one has come, in their order. It is
    /// none of them if it waits or is repeated.
    pub(super) fn pass(&mut self, item: Item, waits: bool, now: Instant) -> Vec<Item> {
        if item.id.is_none() && item.previous.is_none() {
            return vec![item];
        }
        self.forget(now);
        let room = self.waiting < MOST_WAITING;
        let sequence = self.by_channel.entry(item.channel.clone()).or_default();
        sequence.used = Some(now);
        if item.id.as_ref().is_some_and(|id| sequence.ids.contains(id)) {
            return Vec::new();
        }
        let fits = match (&item.previous, sequence.ids.back()) {
            (Some(previous), Some(last)) => previous == last,
            _ => true,
        };
        if !fits && waits && room {
            let is_repeated =
                |(other, _): &(Item, Instant)| item.id.is_some() && other.id == item.id;
            if !sequence.waiting.iter().any(is_repeated) {
                sequence.waiting.push((item, now + PATIENCE));
                self.waiting += 1;
            }
            return Vec::new();
        }
        let mut passed = Vec::new();
        sequence.enter(item, &mut passed);
        self.waiting -= sequence.follow(&mut passed);
        passed
    }

    /// Returns the items that have waited long enough, with those that follow them.
    pub(super) fn overdue(&mut self, now: Instant) -> Vec<Item> {
        let mut passed = Vec::new();
        for sequence in self.by_channel.values_mut() {
            while let Some(at) = sequence.waiting.iter().position(|(_, until)| *until <= now) {
                let (item, _) = sequence.waiting.remove(at);
                self.waiting -= 1;
                sequence.enter(item, &mut passed);
                self.waiting -= sequence.follow(&mut passed);
            }
        }
        passed
    }

    /// Returns how many items wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Forgets channels that were not used for long, and more if there are too many.
    fn forget(&mut self, now: Instant) {
        if self.by_channel.len() < MOST_CHANNELS {
            return;
        }
        let is_old = |sequence: &Sequence, age: Duration| {
            sequence.waiting.is_empty()
                && sequence.used.is_none_or(|used| now.saturating_duration_since(used) >= age)
        };
        self.by_channel.retain(|_, sequence| !is_old(sequence, KNOWN));
        if self.by_channel.len() >= MOST_CHANNELS {
            self.by_channel.retain(|_, sequence| !is_old(sequence, Duration::ZERO));
        }
    }
}

impl Sequence {
    fn enter(&mut self, item: Item, passed: &mut Vec<Item>) {
        if let Some(id) = &item.id {
            if self.ids.len() >= MOST_IDS {
                self.ids.pop_front();
            }
            self.ids.push_back(id.clone());
        }
        passed.push(item);
    }

    /// Passes the items that follow the last one; returns how many.
    fn follow(&mut self, passed: &mut Vec<Item>) -> usize {
        let mut count = 0;
        while let Some(last) = self.ids.back().cloned()
            && let Some(at) =
                self.waiting.iter().position(|(item, _)| item.previous.as_ref() == Some(&last))
        {
            let (item, _) = self.waiting.remove(at);
            count += 1;
            self.enter(item, passed);
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(id: &str, previous: &str) -> Item {
        let some = |text: &str| (!text.is_empty()).then(|| text.into());
        Item { channel: "c".into(), id: some(id), previous: some(previous), ..Item::default() }
    }

    fn ids(items: Vec<Item>) -> String {
        items.iter().map(|item| item.id.as_deref().unwrap_or("-")).collect()
    }

    #[test]
    fn items_wait_for_those_before_them_and_repeated_ones_are_dropped() {
        let (mut all, now) = (Sequences::default(), Instant::now());
        assert_eq!(ids(all.pass(item("a", "x"), true, now)), "a");
        assert_eq!(ids(all.pass(item("d", "c"), true, now)), "");
        assert_eq!(ids(all.pass(item("c", "b"), true, now)), "");
        assert_eq!(ids(all.pass(item("c", "b"), true, now)), "", "twice, it waits once");
        assert_eq!(ids(all.pass(item("b", "a"), true, now)), "bcd");
        assert!(all.waiting() == 0);
        for repeated in ["a", "b", "c", "d"] {
            assert_eq!(ids(all.pass(item(repeated, ""), true, now)), "");
        }
        assert_eq!(ids(all.pass(item("", ""), true, now)), "-");
        assert_eq!(ids(all.pass(item("z", "y"), false, now)), "z", "it does not wait");
    }

    #[test]
    fn an_item_waits_for_five_seconds_at_most() {
        let (mut all, now) = (Sequences::default(), Instant::now());
        all.pass(item("a", ""), true, now);
        all.pass(item("c", "b"), true, now);
        all.pass(item("d", "c"), true, now + Duration::from_secs(4));
        assert_eq!(ids(all.overdue(now + PATIENCE - Duration::from_millis(1))), "");
        assert_eq!(ids(all.overdue(now + PATIENCE)), "cd");
        assert!(all.waiting() == 0);
        // Too late for its place, and still no item that was seen.
        assert_eq!(ids(all.pass(item("b", "a"), true, now + PATIENCE)), "");
        assert_eq!(ids(all.overdue(now + 2 * PATIENCE)), "b");
    }

    #[test]
    fn memory_is_bounded() {
        let (mut all, now) = (Sequences::default(), Instant::now());
        for number in 0..3 * MOST_CHANNELS {
            let one = Item { channel: number.to_string().into(), ..item("a", "") };
            assert_eq!(all.pass(one, true, now).len(), 1);
        }
        assert!(all.by_channel.len() <= MOST_CHANNELS);
        let mut passed = all.pass(item("a", ""), true, now).len();
        for number in 0..2 * MOST_WAITING {
            passed += all.pass(item(&format!("i{number}"), "never"), true, now).len();
        }
        assert_eq!((all.waiting, passed), (MOST_WAITING, 1 + MOST_WAITING));
        let ids = all.by_channel["c"].ids.len();
        assert!(ids <= MOST_IDS, "{ids}");
    }
}
