//! The history of a channel: its last messages, numbered from 1, and their copies for a successor.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use super::budget::Budget;
use super::cursor::Cursor;
use super::form::{self, Form, Offsets};
use super::json_frame::Source;
use super::message::{Draft, Message, NameKind, cost};
use crate::succession::records::{RecordStore, encode_message};

/// After this many messages the oldest are removed from the record store.
const TRIMMED_EVERY: u64 = 32;

/// The most bytes of messages that are kept beyond the history for subscribers of another server
/// that were not taken over yet.
const GATHERED: u64 = 16 << 20;

/// The greatest number of a message in a log that several servers have
/// (`docs/adr/0015-several-servers-and-processes.md`).
const MOST_ID: u64 = 1 << 53;

/// The messages after a place in a channel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Since {
    /// The messages, in order.
    pub messages: Vec<Message>,
    /// Whether there were messages before them that are not kept any more.
    pub missed: bool,
    /// The last message so far; the one that was asked for, if that one is still to come here.
    pub last: u64,
}

/// The messages that have names, by the hashes of these.
///
/// Of two names with the same hash only the later one is found. A client cannot know which names
/// these are, as the hashes are keyed.
#[derive(Default)]
struct Names {
    ids: HashMap<u64, u64>,
    hasher: RandomState,
}

/// The last messages of a channel.
pub(super) struct History {
    /// The channel's name and epoch, which some forms of its messages have.
    name: Arc<str>,
    epoch: u64,
    log: VecDeque<Message>,
    last: u64,
    /// The store that records messages, and the space in it, if there is one.
    records: Option<(Arc<dyn RecordStore>, u64)>,
    /// The bytes that were published since this server continued the channel of another one, until
    /// the subscribers of that server are all here. Nothing is dropped from the log meanwhile.
    gathering: Option<Box<Gathering>>,
    /// The names of messages in the log, if any of them has one.
    names: Option<Box<Names>>,
    /// The offsets before each message in the log, while messages are recorded.
    offsets: VecDeque<Offsets>,
    /// The offsets before and after the last message.
    last_offsets: [Offsets; 2],
    /// Where the bytes of the messages in the log count.
    budget: Arc<Budget>,
    /// Other servers have the messages as well, perhaps further ones.
    is_shared: bool,
}

/// The time until the subscribers of another server are all here.
struct Gathering {
    /// The bytes that were published in it.
    bytes: u64,
    /// The number of the other server's last message.
    inherited: u64,
}

impl History {
    /// Begins with messages that are in order and without gaps.
    pub(super) fn new(
        (name, epoch): (Arc<str>, u64),
        messages: Vec<Message>,
        is_gathering: bool,
        budget: Arc<Budget>,
    ) -> History {
        let last = messages.last().map_or(0, |message| message.id);
        let gathering = is_gathering.then(|| Box::new(Gathering { bytes: 0, inherited: last }));
        budget.add(messages.iter().map(cost).sum());
        let mut history = History {
            name,
            epoch,
            log: VecDeque::new(),
            last,
            records: None,
            gathering,
            names: None,
            offsets: VecDeque::new(),
            last_offsets: Default::default(),
            budget,
            is_shared: false,
        };
        messages.iter().for_each(|message| history.enter_names(message));
        history.log = messages.into();
        history
    }

    /// Begins after the message with this number, before any message is there.
    pub(super) fn begin_after(&mut self, last: u64) {
        self.last = last;
    }

    /// Notes that other servers have the messages as well, perhaps further ones.
    pub(super) fn follow(&mut self) {
        self.is_shared = true;
    }

    /// Returns the channel as messages name it.
    pub(super) fn source(&self) -> Source<'_> {
        Source { epoch: self.epoch, name: &self.name }
    }

    /// Whether other servers have the messages as well.
    pub(super) fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// Makes a message known by its names.
    fn enter_names(&mut self, message: &Message) {
        for name in message.names() {
            let names = self.names.get_or_insert_default();
            names.ids.insert(names.hasher.hash_one(name), message.id);
        }
    }

    /// Counts the messages in another budget from now on.
    pub(super) fn count_in(&mut self, budget: &Arc<Budget>) {
        let bytes = self.log.iter().map(cost).sum();
        self.budget.subtract(bytes);
        budget.add(bytes);
        self.budget = budget.clone();
    }

    /// Drops the oldest messages for one of this cost, as far as the budget demands it. If that
    /// would not make room for the message, drops none and returns `false`.
    pub(super) fn make_room(&mut self, bytes: u64) -> bool {
        if self.gathering.is_some() {
            // The messages of that time have a bound of their own.
            return true;
        }
        if self.budget.has_room(bytes) {
            return true;
        }
        let own = self.log.iter().map(cost).sum::<u64>();
        if !self.budget.has_room(bytes.saturating_sub(own)) {
            // It would not help to drop them.
            return false;
        }
        while !self.budget.has_room(bytes) && self.drop_oldest() {}
        self.trim();
        true
    }

    /// Returns the message of a name, the last one if there are several, if it is kept.
    pub(super) fn with_name(&self, kind: NameKind, name: &str) -> Option<&Message> {
        let names = self.names.as_ref()?;
        let id = *names.ids.get(&names.hasher.hash_one((kind, name)))?;
        let index = usize::try_from(id.checked_sub(self.first())?).ok()?;
        self.log.get(index).filter(|message| message.has_name((kind, name)))
    }

    /// Returns the last message of those with keys that begin so, if it is kept.
    pub(super) fn last_with_key(&self, beginning: &str) -> Option<&Message> {
        self.names.as_ref()?;
        let begins_so = |message: &&Message| {
            let key = message.meta.as_ref().and_then(|meta| meta.key.as_deref());
            key.is_some_and(|key| key.starts_with(beginning))
        };
        self.log.iter().rev().find(begins_so)
    }

    /// Returns the last message, if it is kept.
    pub(super) fn last_kept(&self) -> Option<&Message> {
        self.log.back()
    }

    /// Drops the oldest message; `false` if there is none.
    fn drop_oldest(&mut self) -> bool {
        let Some(dropped) = self.log.pop_front() else { return false };
        self.offsets.pop_front();
        self.budget.subtract(cost(&dropped));
        if let Some(names) = &mut self.names {
            for name in dropped.names() {
                let hash = names.hasher.hash_one(name);
                if names.ids.get(&hash) == Some(&dropped.id) {
                    names.ids.remove(&hash);
                }
            }
            if names.ids.is_empty() {
                self.names = None;
            }
        }
        true
    }

    /// Returns how many messages are kept, and the bytes that they count.
    pub(super) fn size(&self) -> (u64, u64) {
        (self.log.len() as u64, self.log.iter().map(cost).sum())
    }

    /// Returns the number of the last message; zero before the first.
    pub(super) fn last(&self) -> u64 {
        self.last
    }

    /// Counts offsets from now on, beginning before the first message in the log.
    pub(super) fn count_from(&mut self, mut offsets: Offsets) {
        self.offsets.clear();
        self.last_offsets = [offsets; 2];
        let source = Source { epoch: self.epoch, name: &self.name };
        for message in &self.log {
            self.offsets.push_back(offsets);
            self.last_offsets[0] = offsets;
            form::add(&mut offsets, message, source);
            self.last_offsets[1] = offsets;
        }
    }

    /// Returns the offset after a message in a form, if it is known.
    pub(super) fn offset(&self, id: u64, form: Form) -> Option<u64> {
        let counted = form.counted()?;
        if id == self.last {
            return Some(self.last_offsets[1][counted]);
        }
        let next = usize::try_from((id + 1).checked_sub(self.first())?).ok()?;
        Some(self.offsets.get(next)?[counted])
    }

    /// Records messages in a space of the record store from now on, and the existing ones at once.
    pub(super) fn record_in(&mut self, records: Arc<dyn RecordStore>, space: u64) {
        self.count_from(Offsets::default());
        for (message, offsets) in self.log.iter().zip(&self.offsets) {
            records.keep(space, message.id, &encode_message(message, offsets));
        }
        self.records = Some((records, space));
    }

    /// The same for existing messages that come from that space.
    pub(super) fn continue_in(&mut self, records: Arc<dyn RecordStore>, space: u64) {
        self.records = Some((records, space));
    }

    /// Records no messages any more, and returns the space.
    pub(super) fn stop_recording(&mut self) -> Option<u64> {
        self.offsets.clear();
        self.records.take().map(|(_, space)| space)
    }

    /// Returns the store that records messages.
    pub(super) fn records(&self) -> Option<Arc<dyn RecordStore>> {
        self.records.as_ref().map(|(records, _)| records.clone())
    }

    /// Returns the space in the record store.
    pub(super) fn space(&self) -> Option<u64> {
        self.records.as_ref().map(|(_, space)| *space)
    }

    /// Whether messages are still kept for subscribers of another server.
    pub(super) fn is_gathering(&self) -> bool {
        self.gathering.is_some()
    }

    /// Returns the number of the last message of another server, whose subscribers are still to
    /// come.
    pub(super) fn inherited(&self) -> Option<u64> {
        self.gathering.as_ref().map(|gathering| gathering.inherited)
    }

    /// Keeps `length` messages from now on.
    pub(super) fn change(&mut self, length: usize) {
        if self.gathering.is_none() {
            self.shorten(length);
        }
    }

    /// Ends the time in which nothing is dropped.
    pub(super) fn finish_gathering(&mut self, length: usize) {
        if self.gathering.take().is_some() {
            self.shorten(length);
        }
    }

    /// Gives a message the next number, and records it. [`keep`](History::keep) follows when the
    /// subscribers have it.
    pub(super) fn number(&mut self, draft: Draft) -> Message {
        self.last += 1;
        let Draft { data, is_text, meta } = draft;
        let message = Message { id: self.last, data, is_text, meta };
        // Before any subscriber gets it: this server may end at any time, and a message that a
        // subscriber has must be known to the successor.
        if let Some((records, space)) = &self.records {
            self.last_offsets[0] = self.last_offsets[1];
            let source = Source { epoch: self.epoch, name: &self.name };
            form::add(&mut self.last_offsets[1], &message, source);
            records.keep(*space, message.id, &encode_message(&message, &self.last_offsets[0]));
        }
        message
    }

    /// Keeps the last message that was numbered, and drops older messages for it if there are
    /// `length` already.
    pub(super) fn keep(&mut self, message: Message, length: usize) {
        if let Some(gathering) = &mut self.gathering {
            gathering.bytes += cost(&message);
            if gathering.bytes > GATHERED {
                // Subscribers that are not here by now count as slow.
                self.gathering = None;
                self.shorten(length);
            }
        }
        if self.gathering.is_none() {
            while self.log.len() >= length.max(1) {
                self.drop_oldest();
            }
        }
        let id = message.id;
        if length > 0 || self.gathering.is_some() {
            self.budget.add(cost(&message));
            self.enter_names(&message);
            if self.records.is_some() {
                self.offsets.push_back(self.last_offsets[0]);
            }
            self.log.push_back(message);
        }
        if id.is_multiple_of(TRIMMED_EVERY) {
            self.trim();
        }
    }

    /// Drops the oldest messages beyond `length`.
    fn shorten(&mut self, length: usize) {
        let surplus = self.log.len().saturating_sub(length);
        for _ in 0..surplus {
            self.drop_oldest();
        }
        if surplus > 0 {
            self.trim();
        }
    }

    /// Removes the messages that are not kept any more from the record store.
    fn trim(&self) {
        if let Some((records, space)) = &self.records {
            // The last one is kept in any case: it shows the position of the channel.
            let first = self.log.front().map_or(self.last, |message| message.id);
            records.trim(*space, first);
        }
    }

    /// Returns the number of the oldest message that is kept; that of the next message if none is.
    fn first(&self) -> u64 {
        self.last - self.log.len() as u64 + 1
    }

    /// Returns messages from one id up to another, with at most this cost, but at least one
    /// message. If the first ones are gone, it begins with the oldest that is kept.
    pub(super) fn some(&self, from: u64, last: u64, bytes: u64) -> Vec<Message> {
        let skip = usize::try_from(from.saturating_sub(self.first())).unwrap_or(usize::MAX);
        let mut sum = 0;
        let messages = self.log.iter().skip(skip).take_while(|message| {
            let is_first = sum == 0;
            sum += cost(message);
            message.id <= last && (is_first || sum <= bytes)
        });
        messages.cloned().collect()
    }

    /// Returns the messages that were published after a place, or, without a place, none: those
    /// that are published from now on.
    pub(super) fn since(&self, after: Option<Cursor>, epoch: u64) -> Since {
        let last = self.last;
        let Some(Cursor { id, epoch: of }) = after else {
            return Since { messages: Vec::new(), missed: false, last };
        };
        if self.is_shared && of == Some(epoch) && id > last && id <= MOST_ID {
            // It comes from a server that is ahead. What is missing here it has had.
            return Since { messages: Vec::new(), missed: false, last: id };
        }
        // The ids of another epoch have no meaning in this one.
        let is_ours = of.is_none_or(|of| of == epoch) && id <= last;
        let read = if is_ours { id } else { 0 };
        let first = self.first();
        let skip = usize::try_from((read + 1).saturating_sub(first)).unwrap_or(usize::MAX);
        let messages = self.log.iter().skip(skip).cloned().collect();
        Since { messages, missed: !is_ours || read + 1 < first, last }
    }
}

impl Drop for History {
    fn drop(&mut self) {
        self.budget.subtract(self.log.iter().map(cost).sum());
    }
}

superpoll::debug_fields!(History, it => last: it.last, kept: it.log.len());
