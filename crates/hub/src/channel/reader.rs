//! Subscribers that get some of the messages: those of Mercure, and connections that an application
//! holds.
//!
//! Most subscribers ask for the same as some others. They share one [`Reader`], and an idle one
//! costs a pointer. Where the subscriptions of Mercure are reported, each subscriber has an
//! identity, and a reader of its own.
//!
//! Held connections are found by the channels of an item: an item costs nothing for connections
//! that do not get it. If they have channels of their own, each has a reader, whose record shares
//! equal parts with those of other connections.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::rc::{Rc, Weak};
use std::sync::Arc;

use superpoll_http::held::{HeldFor, HeldRecord};
use superpoll_http::mercure::reader_record::ReaderRecord;
use superpoll_http::mercure::selector::Selector;

use super::by_channel::ByChannel;
use super::grip::Item;
use super::grip::filters;
use super::message::Message;
use super::moment::Moment;
use super::shared_parts::SharedParts;

/// Which of the messages a subscriber is to get.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Selection {
    /// Updates of Mercure with some topics.
    Mercure(Arc<ReaderRecord>),
    /// The items of some channels of an application.
    Held(HeldRecord),
}

impl From<ReaderRecord> for Selection {
    fn from(record: ReaderRecord) -> Selection {
        Selection::Mercure(Arc::new(record))
    }
}

impl From<HeldRecord> for Selection {
    fn from(record: HeldRecord) -> Selection {
        Selection::Held(record)
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

    /// Returns the record of connections that an application holds.
    fn held(&self) -> Option<&HeldRecord> {
        match self {
            Selection::Held(record) => Some(record),
            Selection::Mercure(_) => None,
        }
    }

    /// Whether no other subscriber may have the same: it has a number of its own.
    fn is_unique(&self) -> bool {
        match self {
            Selection::Mercure(record) => record.identity.is_some(),
            Selection::Held(record) => matches!(record.purpose, HeldFor::Socket { .. }),
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
    pub(super) selection: Selection,
}

impl Reader {
    /// Whether the subscribers are to get a message.
    pub(super) fn gets(&self, message: &Message) -> bool {
        self.selection.has(message)
    }

    /// Returns the record of connections that an application holds.
    pub(super) fn held(&self) -> Option<&HeldRecord> {
        self.selection.held()
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
    /// The reader of the first connection with a channel is entered when a second one shares it:
    /// where each connection has a channel of its own, none is.
    known: HashMap<u64, Weak<Reader>>,
    hasher: RandomState,
    /// The parts of different records of held connections.
    parts: SharedParts,
    /// The held connections by the names of their channels, and their times.
    by_channel: ByChannel,
    times: Vec<HeldTimes>,
    /// The places of held connections whose readers were made since the last `compact`.
    fresh: Vec<usize>,
}

/// So many readers are compacted in one go.
const FRESH: usize = 256;

impl Readers {
    /// Returns the reader of a record.
    pub(super) fn reader(&mut self, selection: Selection) -> Rc<Reader> {
        if selection.is_unique() || self.is_first(&selection) {
            return self.new_reader(selection);
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
        let first = self.first(&selection).filter(|first| first.selection == selection).cloned();
        let reader = first.unwrap_or_else(|| self.new_reader(selection));
        self.known.insert(hash, Rc::downgrade(&reader));
        reader
    }

    /// Whether no connection has the first channel of a record yet, so that none has its reader.
    fn is_first(&self, selection: &Selection) -> bool {
        let channel = selection.held().and_then(|record| record.channels.first());
        channel.is_some_and(|channel| !self.by_channel.has(&channel.name))
    }

    /// Returns the reader of the only connection with the first channel of a record.
    fn first(&self, selection: &Selection) -> Option<&Rc<Reader>> {
        let channel = selection.held()?.channels.first()?;
        self.get(self.by_channel.sole(&channel.name)? as usize)
    }

    fn new_reader(&mut self, mut selection: Selection) -> Rc<Reader> {
        if let Selection::Held(record) = &mut selection {
            self.parts.share(record);
        }
        Rc::new(Reader { selection })
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
                self.by_channel.insert(&channel.name, number);
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
        if is_held {
            self.fresh.push(index);
            if self.fresh.len() == FRESH {
                self.compact();
            }
        }
    }

    /// Returns the reader of a subscriber; `None` if it gets all messages.
    pub(super) fn get(&self, index: usize) -> Option<&Rc<Reader>> {
        self.by_subscriber.get(index)?.as_ref()
    }

    /// Makes the readers of new subscribers anew, those that no other one shares: left where they
    /// were made, among the buffers of their connections, each would keep memory from being used
    /// again. All give up their places before the first gets another one.
    fn compact(&mut self) {
        let mut records = Vec::new();
        for index in self.fresh.drain(..) {
            let Some(place) = self.by_subscriber.get_mut(index) else { continue };
            if let Some(reader) = place
                && (Rc::strong_count(reader), Rc::weak_count(reader)) == (1, 0)
            {
                records.push((index, reader.selection.clone()));
                *place = None;
            }
        }
        for (index, selection) in &records {
            let reader = Reader { selection: selection.clone() };
            self.by_subscriber[*index] = Some(Rc::new(reader));
        }
    }

    /// Removes the reader of a subscriber.
    pub(super) fn remove(&mut self, index: usize) -> Option<Rc<Reader>> {
        let reader = self.by_subscriber.get_mut(index)?.take()?;
        for channel in reader.held().into_iter().flat_map(|record| &record.channels) {
            self.by_channel.remove(&channel.name, u32::try_from(index).unwrap_or(u32::MAX));
        }
        Some(reader)
    }

    /// Returns the connections that may have one of these channels, in the order of their places.
    pub(super) fn with_channels<'a>(&self, names: impl Iterator<Item = &'a str>) -> Vec<u32> {
        self.by_channel.with_any(names)
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
        assert!(!Rc::ptr_eq(&one, &other));
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

    #[test]
    fn equal_held_connections_share_their_reader() {
        use crate::channel::form::Form;
        use crate::channel::grip::item::tests::held;

        let mut readers = Readers::default();
        let mut enter = |index, channels: &[&str]| {
            let reader = readers.reader(held(Form::Held, channels).into());
            readers.enter(index, reader.clone());
            (reader, readers.known.len())
        };
        // Channels of their own have no other connection that would look for them.
        let (first, known) = enter(0, &["a"]);
        assert_eq!((known, enter(1, &["b"]).1), (0, 0));
        for index in 2..5 {
            let (other, known) = enter(index, &["a"]);
            assert!(Rc::ptr_eq(&first, &other) && known == 1);
        }
        assert!(!Rc::ptr_eq(&first, &enter(5, &["a", "b"]).0));
        // The first one may leave.
        for index in [0, 1] {
            readers.remove(index);
        }
        let other = readers.reader(held(Form::Held, &["a"]).into());
        assert!(Rc::ptr_eq(&first, &other));
    }

    #[test]
    fn compaction_leaves_each_subscriber_its_reader() {
        use crate::channel::form::Form;
        use crate::channel::grip::item::tests::held;

        let mut readers = Readers::default();
        let own = |index: usize| Selection::from(held(Form::Held, &[&format!("own-{index}")]));
        let mut enter = |index: usize, selection: Selection| {
            let reader = readers.reader(selection);
            readers.enter(index, reader.clone());
            reader
        };
        // Of each three, one is in use, and one has the same channel as others.
        let mut in_use = Vec::new();
        for index in 0..2 * FRESH {
            match index % 3 {
                0 => in_use.push((index, enter(index, own(index)))),
                1 => drop(enter(index, own(index))),
                _ => drop(enter(index, held(Form::Held, &["all"]).into())),
            }
        }
        let shared = readers.get(2).unwrap().clone();
        for index in 0..2 * FRESH {
            let reader = readers.get(index).unwrap();
            match index % 3 {
                2 => assert!(Rc::ptr_eq(reader, &shared)),
                _ => assert_eq!(reader.selection, own(index)),
            }
        }
        assert!(in_use.iter().all(|(index, reader)| {
            readers.get(*index).is_some_and(|known| Rc::ptr_eq(known, reader))
        }));
        assert!(readers.fresh.is_empty());
    }
}
