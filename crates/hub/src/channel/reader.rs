//! Subscribers that get some of the messages: those of Mercure, and connections that an application
//! holds.
//!
//! Most subscribers ask for the same as some others. They share one [`Reader`], and an idle one
//! costs a pointer. Where the subscriptions of Mercure are reported, each subscriber has an
//! identity, and a reader of its own.
//!
//! Held connections are found by the channels of an item: an item costs nothing for connections
//! that do not get it.

use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use superpoll_http::held::HeldRecord;
use superpoll_http::mercure::reader_record::ReaderRecord;
use superpoll_http::mercure::selector::Selector;

use super::grip::Item;
use super::grip::filters;
use super::message::Message;
use super::moment::Moment;

/// Which of the messages a subscriber is to get.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Selection {
    /// Updates of Mercure with some topics.
    Mercure(Arc<ReaderRecord>),
    /// The items of some channels of an application.
    Held(Arc<HeldRecord>),
}

impl From<ReaderRecord> for Selection {
    fn from(record: ReaderRecord) -> Selection {
        Selection::Mercure(Arc::new(record))
    }
}

impl From<HeldRecord> for Selection {
    fn from(record: HeldRecord) -> Selection {
        Selection::Held(Arc::new(record))
    }
}

impl Selection {
    /// Whether a subscriber is to get a message.
    pub(super) fn has(&self, message: &Message) -> bool {
        match self {
            Selection::Mercure(record) => has_topic(record, message),
            Selection::Held(record) => {
                Item::of(message).is_some_and(|item| filters::let_through(record, &item))
            }
        }
    }

    /// Returns the record of a subscriber of Mercure.
    pub(super) fn mercure(&self) -> Option<&Arc<ReaderRecord>> {
        match self {
            Selection::Mercure(record) => Some(record),
            Selection::Held(_) => None,
        }
    }
}

fn has_topic(record: &ReaderRecord, message: &Message) -> bool {
    let Some(update) = message.update() else { return false };
    let has = |selectors: &[Selector]| {
        selectors.iter().any(|selector| update.topics.iter().any(|topic| selector.has(topic)))
    };
    has(&record.topics) && (!update.is_private || has(&record.allowed))
}

/// The messages that some subscribers are to get.
#[derive(Debug)]
pub(crate) struct Reader {
    /// A number that no other reader of this process has.
    pub(super) number: u64,
    pub(super) selection: Selection,
}

impl Reader {
    fn new(selection: Selection) -> Rc<Reader> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Rc::new(Reader { number, selection })
    }

    /// Whether the subscribers are to get a message.
    pub(super) fn gets(&self, message: &Message) -> bool {
        self.selection.has(message)
    }

    /// Returns the record of connections that an application holds.
    pub(super) fn held(&self) -> Option<&Arc<HeldRecord>> {
        match &self.selection {
            Selection::Held(record) => Some(record),
            Selection::Mercure(_) => None,
        }
    }
}

/// The last times of a held connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeldTimes {
    /// It was sent something.
    pub sent: Moment,
    /// It was sent the content for silence, or began.
    pub kept: Moment,
    /// It was sent an item, or what its application has answered.
    pub news: Moment,
    /// It was written to since its state was left.
    pub is_written: bool,
    /// It is among those whose state is to be left again.
    pub is_queued: bool,
}

impl HeldTimes {
    pub(super) fn now() -> HeldTimes {
        let now = Moment::now();
        HeldTimes { sent: now, kept: now, news: now, is_written: false, is_queued: false }
    }
}

/// The readers of one engine's subscribers of a channel.
#[derive(Default)]
pub(super) struct Readers {
    by_subscriber: Vec<Option<Rc<Reader>>>,
    /// By the hash of their record; a hash that two share is rare, and they share nothing then.
    known: HashMap<u64, Weak<Reader>>,
    hasher: RandomState,
    /// The held connections by the names of their channels, and their times.
    by_channel: HashMap<Box<str>, BTreeSet<u32>>,
    times: Vec<HeldTimes>,
}

impl Readers {
    /// Returns the reader of a record.
    pub(super) fn reader(&mut self, selection: Selection) -> Rc<Reader> {
        if selection.mercure().is_some_and(|record| record.identity.is_some()) {
            return Reader::new(selection);
        }
        let hash = self.hasher.hash_one(&selection);
        if let Some(known) = self.known.get(&hash).and_then(Weak::upgrade)
            && known.selection == selection
        {
            return known;
        }
        // Readers without subscribers are forgotten before they are more than the others.
        if self.known.len() > 2 * self.by_subscriber.len() {
            self.known.retain(|_, reader| reader.strong_count() > 0);
        }
        let reader = Reader::new(selection);
        self.known.insert(hash, Rc::downgrade(&reader));
        reader
    }

    /// Enters the reader of a subscriber, in the place of the one before.
    pub(super) fn enter(&mut self, index: usize, reader: Rc<Reader>) {
        let (before, is_held) = (self.remove(index), reader.held().is_some());
        if self.by_subscriber.len() <= index {
            self.by_subscriber.resize_with(index + 1, || None);
        }
        if let Some(record) = reader.held() {
            let number = u32::try_from(index).unwrap_or(u32::MAX);
            for channel in &record.channels {
                match self.by_channel.get_mut(&channel.name) {
                    Some(known) => drop(known.insert(number)),
                    None => drop(self.by_channel.insert(channel.name.clone(), [number].into())),
                }
            }
        }
        if is_held && before.is_none() {
            if self.times.len() <= index {
                self.times.resize(index + 1, HeldTimes::now());
            }
            // One before it may still be among those whose state is to be left again.
            let is_queued = self.times[index].is_queued;
            self.times[index] = HeldTimes { is_queued, ..HeldTimes::now() };
        }
        self.by_subscriber[index] = Some(reader);
    }

    /// Returns the reader of a subscriber; `None` if it gets all messages.
    pub(super) fn get(&self, index: usize) -> Option<&Rc<Reader>> {
        self.by_subscriber.get(index)?.as_ref()
    }

    /// Removes the reader of a subscriber.
    pub(super) fn remove(&mut self, index: usize) -> Option<Rc<Reader>> {
        let reader = self.by_subscriber.get_mut(index)?.take()?;
        for channel in reader.held().into_iter().flat_map(|record| &record.channels) {
            if let Some(known) = self.by_channel.get_mut(&channel.name) {
                known.remove(&u32::try_from(index).unwrap_or(u32::MAX));
                if known.is_empty() {
                    self.by_channel.remove(&channel.name);
                }
            }
        }
        Some(reader)
    }

    /// Returns the connections that have one of these channels, in the order of their places.
    pub(super) fn with_channels<'a>(&self, names: impl Iterator<Item = &'a str>) -> Vec<u32> {
        let mut names: Vec<&str> = names.collect();
        names.sort_unstable();
        names.dedup();
        let sets: Vec<_> = names.iter().filter_map(|name| self.by_channel.get(*name)).collect();
        let mut found: Vec<u32> = sets.iter().copied().flatten().copied().collect();
        if sets.len() > 1 {
            found.sort_unstable();
            found.dedup();
        }
        found
    }

    /// Returns the last times of a held connection.
    pub(super) fn times(&mut self, index: usize) -> Option<&mut HeldTimes> {
        self.times.get_mut(index)
    }
}

#[cfg(test)]
mod tests {
    use superpoll_http::mercure::reader_record::Identity;

    use super::*;
    use crate::channel::mercure::update;

    fn record(topics: &[&str], allowed: &[&str]) -> ReaderRecord {
        let selectors =
            |texts: &[&str]| texts.iter().map(|text| Selector::from((*text).to_owned())).collect();
        ReaderRecord { topics: selectors(topics), allowed: selectors(allowed), identity: None }
    }

    fn message(form: &str) -> Message {
        let meta = update::read(form.as_bytes(), 99).unwrap().meta;
        Message { meta, ..Message::new(1, "", true) }
    }

    #[test]
    fn private_updates_need_a_topic_that_is_allowed() {
        let public = "topic=/books/1&topic=/users/joe/books/1";
        let private = "topic=/books/1&topic=/users/joe/books/1&private=on";
        for (topics, allowed, gets_public, gets_private) in [
            (&["/books/{id}"][..], &[][..], true, false),
            (&["/books/{id}"], &["/books/{id}"], true, true),
            // By another topic than the one that it has asked for.
            (&["/books/{id}"], &["/users/joe/{+all}"], true, true),
            (&["/books/{id}"], &["/users/jane/{+all}"], true, false),
            // A right alone is no question.
            (&["/other"], &["*"], false, false),
            (&["*"], &[], true, false),
            (&[], &["*"], false, false),
        ] {
            let record = record(topics, allowed);
            assert_eq!(has_topic(&record, &message(public)), gets_public, "{record:?}");
            assert_eq!(has_topic(&record, &message(private)), gets_private, "{record:?}");
        }
        assert!(!has_topic(&record(&["*"], &["*"]), &Message::new(1, "no update", true)));
    }

    #[test]
    fn equal_subscribers_share_their_reader() {
        let mut readers = Readers::default();
        let one = readers.reader(record(&["/a"], &[]).into());
        assert!(Rc::ptr_eq(&one, &readers.reader(record(&["/a"], &[]).into())));
        let other = readers.reader(record(&["/a"], &["/a"]).into());
        assert!(!Rc::ptr_eq(&one, &other) && one.number != other.number);
        let identity = || Some(Identity { id: [7; 16], payload: None });
        let with_identity = || ReaderRecord { identity: identity(), ..record(&["/a"], &[]) };
        assert!(!Rc::ptr_eq(
            &readers.reader(with_identity().into()),
            &readers.reader(with_identity().into())
        ));
        // What nobody uses any more does not stay.
        drop((one, other));
        for index in 0..1000 {
            drop(readers.reader(record(&[&format!("/{index}")], &[]).into()));
        }
        assert!(readers.known.len() <= 1, "{}", readers.known.len());
    }
}
