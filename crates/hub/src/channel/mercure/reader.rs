//! The updates that a subscriber of Mercure is to get, and the subscribers of one engine.
//!
//! Most subscribers ask for the same topics as some others. They share one [`Reader`], and an idle
//! one costs a pointer. Where subscriptions are reported, each subscriber has an identity, and a
//! reader of its own.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use superpoll_http::mercure::reader_record::ReaderRecord;
use superpoll_http::mercure::selector::Selector;

use crate::channel::message::Message;

/// Whether a subscriber with such a record is to get a message.
pub(in crate::channel) fn gets(record: &ReaderRecord, message: &Message) -> bool {
    let Some(update) = message.update() else { return false };
    let has = |selectors: &[Selector]| {
        selectors.iter().any(|selector| update.topics.iter().any(|topic| selector.has(topic)))
    };
    has(&record.topics) && (!update.is_private || has(&record.allowed))
}

/// The updates that some subscribers are to get.
#[derive(Debug)]
pub(crate) struct Reader {
    /// A number that no other reader of this process has.
    pub(in crate::channel) number: u64,
    pub(in crate::channel) record: Arc<ReaderRecord>,
}

impl Reader {
    fn new(record: ReaderRecord) -> Rc<Reader> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Rc::new(Reader { number, record: Arc::new(record) })
    }

    /// Whether the subscribers are to get a message.
    pub(in crate::channel) fn gets(&self, message: &Message) -> bool {
        gets(&self.record, message)
    }
}

/// The readers of one engine's subscribers of a channel.
#[derive(Default)]
pub(in crate::channel) struct Readers {
    by_subscriber: Vec<Option<Rc<Reader>>>,
    /// By the hash of their record; a hash that two share is rare, and they share nothing then.
    known: HashMap<u64, Weak<Reader>>,
    hasher: RandomState,
}

impl Readers {
    /// Returns the reader of a record.
    pub(in crate::channel) fn reader(&mut self, record: ReaderRecord) -> Rc<Reader> {
        if record.identity.is_some() {
            return Reader::new(record);
        }
        let hash = self.hasher.hash_one(&record);
        if let Some(known) = self.known.get(&hash).and_then(Weak::upgrade)
            && *known.record == record
        {
            return known;
        }
        // Readers without subscribers are forgotten before they are more than the others.
        if self.known.len() > 2 * self.by_subscriber.len() {
            self.known.retain(|_, reader| reader.strong_count() > 0);
        }
        let reader = Reader::new(record);
        self.known.insert(hash, Rc::downgrade(&reader));
        reader
    }

    /// Enters the reader of a subscriber.
    pub(in crate::channel) fn enter(&mut self, index: usize, reader: Rc<Reader>) {
        if self.by_subscriber.len() <= index {
            self.by_subscriber.resize_with(index + 1, || None);
        }
        self.by_subscriber[index] = Some(reader);
    }

    /// Returns the reader of a subscriber; `None` if it gets all messages.
    pub(in crate::channel) fn get(&self, index: usize) -> Option<&Rc<Reader>> {
        self.by_subscriber.get(index)?.as_ref()
    }

    /// Removes the reader of a subscriber.
    pub(in crate::channel) fn remove(&mut self, index: usize) -> Option<Rc<Reader>> {
        self.by_subscriber.get_mut(index)?.take()
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
            assert_eq!(gets(&record, &message(public)), gets_public, "{record:?}");
            assert_eq!(gets(&record, &message(private)), gets_private, "{record:?}");
        }
        assert!(!gets(&record(&["*"], &["*"]), &Message::new(1, "no update", true)));
    }

    #[test]
    fn equal_subscribers_share_their_reader() {
        let mut readers = Readers::default();
        let one = readers.reader(record(&["/a"], &[]));
        assert!(Rc::ptr_eq(&one, &readers.reader(record(&["/a"], &[]))));
        let other = readers.reader(record(&["/a"], &["/a"]));
        assert!(!Rc::ptr_eq(&one, &other) && one.number != other.number);
        let identity = || Some(Identity { id: [7; 16], payload: None });
        let with_identity = || ReaderRecord { identity: identity(), ..record(&["/a"], &[]) };
        assert!(!Rc::ptr_eq(&readers.reader(with_identity()), &readers.reader(with_identity())));
        // What nobody uses any more does not stay.
        drop((one, other));
        for index in 0..1000 {
            drop(readers.reader(record(&[&format!("/{index}")], &[])));
        }
        assert!(readers.known.len() <= 1, "{}", readers.known.len());
    }
}
