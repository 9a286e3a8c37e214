//! The delivery of messages to one engine's subscribers of a channel, some of them at a time.
//!
//! A parked subscriber is written to where it is. The first run of its messages waits until those
//! of all parked subscribers of the turn are together: then they are sent with one system call
//! (`sys/send_ring.rs`), if there are enough of them and the kernel has rings. Nothing else happens
//! on the engine between a subscriber's turn and that call, so its `last` is never ahead of what it
//! was sent for anyone who looks.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use superpoll::Key;
use superpoll_config::Channel;
use superpoll_http::held::HeldRecord;
use superpoll_http::parked_stream::ParkedStream;
use superpoll_http::parking_lot::WaitingRequest;
use superpoll_http::sys::send_ring::MOST;

use super::cursor::Cursor;
use super::engine::Ring;
use super::form::{Encoded, Form};
use super::grip::{Item, filters};
use super::hub::Hub;
use super::local_subscribers::{LocalSubscribers, Subscriber, SubscriberState};
use super::mailbox::{EndReason, Mailbox};
use super::message::{Message, cost};
use super::parked::Backlog;
use super::reader::Reader;
use super::{counters, replay};

/// From this many sends on a ring is worth its while.
const ENOUGH: usize = 8;

/// The outcome of a delivery to a connection with subscribers on its streams.
pub(super) struct Delivered {
    /// The number of messages, each for one stream.
    pub count: usize,
    /// All of them, as they are to be written at once; `None` if that is done.
    pub rest: Option<(Key, Bytes)>,
}

/// A parked connection with subscribers on its streams.
pub(super) trait Carries {
    /// Takes the connection out of the parking lot, and goes on with it in a task.
    fn wake(self: Rc<Self>);

    /// Sends messages of a channel to all streams that get them. The connection may have a task
    /// after that, without messages that were not taken here.
    fn deliver(self: Rc<Self>, by: &Rc<LocalSubscribers>, broadcast: &mut Broadcast) -> Delivered;

    /// Continues after so many of the bytes were written that a delivery has left to its caller.
    fn go_on_after(self: Rc<Self>, bytes: &[u8], outcome: io::Result<usize>);
}

/// Messages for a parked connection.
struct Sending {
    key: Key,
    /// As they are written: sealed, if the connection is encrypted.
    bytes: Bytes,
    /// The bytes are of this connection alone: sealed, or in frames of its streams.
    is_own: bool,
    to: Receiver,
}

/// The subscribers on a parked connection.
enum Receiver {
    /// A subscriber, with the places of the messages in the broadcast, without a gap.
    Subscriber { index: usize, form: Form, run: Range<usize> },
    /// Subscribers on streams.
    Streams(Rc<dyn Carries>),
}

/// The most bytes of messages that are sealed for a subscriber at once, but at least one message:
/// the part that its socket has no room for is held in memory.
pub(super) const SEALED: usize = 16 << 10;

/// From this many sealed bytes on those at hand are written before more are sealed: they are each
/// subscriber's own.
const SEALED_IN_ALL: usize = 1 << 20;

/// The messages to write in a turn.
#[derive(Default)]
struct Sendings {
    all: Vec<Sending>,
    /// The bytes that are of one connection alone.
    sealed: usize,
}

impl Sendings {
    fn push(&mut self, sending: Sending) {
        self.sealed += if sending.is_own { sending.bytes.len() } else { 0 };
        self.all.push(sending);
    }
}

/// The messages of a broadcast that a subscriber is given.
pub(super) struct News {
    pub range: Range<usize>,
    /// Which of all messages it gets; `None` for all.
    pub wanted: Option<Rc<[bool]>>,
}

impl News {
    pub(super) fn has(&self, message: usize) -> bool {
        self.range.contains(&message) && self.wanted.as_ref().is_none_or(|wanted| wanted[message])
    }
}

/// Returns the longest ranges of indexes that are all wanted.
fn runs(
    mut all: Range<usize>,
    is_wanted: impl Fn(&usize) -> bool,
) -> impl Iterator<Item = Range<usize>> {
    std::iter::from_fn(move || {
        let start = all.by_ref().find(|index| is_wanted(index))?;
        let end = (start + 1..all.end).find(|index| !is_wanted(index)).unwrap_or(all.end);
        all.start = end;
        Some(start..end)
    })
}

impl LocalSubscribers {
    /// Serves subscribers from a place on, at most `room`, and returns the next place if there are
    /// more.
    pub(super) fn deliver_some(
        self: &Rc<LocalSubscribers>,
        broadcast: &mut Broadcast,
        from: usize,
        room: &mut usize,
    ) -> Option<usize> {
        let end = self.subscribers.borrow().capacity();
        let (mut sendings, mut next) = (Sendings::default(), None);
        let some = broadcast.candidates(self);
        let places: Box<dyn Iterator<Item = usize>> = match &some {
            None => Box::new(from..end),
            Some(some) => {
                let after = some.partition_point(|&index| (index as usize) < from);
                Box::new(some[after..].iter().map(|&index| index as usize))
            }
        };
        for index in places {
            if *room == 0 {
                next = Some(index);
                break;
            }
            let served = self.deliver_to(broadcast, index, &mut sendings);
            *room = room.saturating_sub(served);
            if sendings.sealed > SEALED_IN_ALL {
                self.send(broadcast, std::mem::take(&mut sendings).all);
            }
        }
        self.send(broadcast, sendings.all);
        next
    }

    /// Serves one subscriber, if there is one that has not had the whole delivery. What is to be
    /// written to a parked one is put down in `sendings`.
    fn deliver_to(
        self: &Rc<LocalSubscribers>,
        broadcast: &mut Broadcast,
        index: usize,
        sendings: &mut Sendings,
    ) -> usize {
        let mut served = 0;
        let subscribers = self.subscribers.borrow();
        let Some(subscriber) = subscribers.get(index) else { return 0 };
        let last = broadcast.messages.last().map_or(0, |message| message.id);
        if let SubscriberState::Carried(by) = &subscriber.delivery
            && subscriber.last < last
        {
            let by = by.upgrade();
            drop(subscribers);
            // With all others on its connection.
            if let Some(by) = by {
                let Delivered { count, rest } = by.clone().deliver(self, broadcast);
                served = count;
                if let Some((key, bytes)) = rest {
                    let to = Receiver::Streams(by);
                    sendings.push(Sending { key, bytes, is_own: true, to });
                }
            }
        } else {
            drop(subscribers);
        }
        let subscribers = self.subscribers.borrow();
        let Some(subscriber) = subscribers.get(index) else { return served };
        let is_over = subscriber.grant.is_over();
        match &subscriber.delivery {
            SubscriberState::Carried(_) => return served,
            // Who is parked is woken within two seconds; a task ends now.
            SubscriberState::Task(mailbox) if is_over => mailbox.end(EndReason::Expired),
            _ => {}
        }
        drop(subscribers);
        if is_over {
            return served;
        }
        let News { range: news, wanted } = match self.take_news(broadcast, index) {
            // Looking is work, too.
            Some(news) if news.range.is_empty() => return served + 1,
            Some(news) => news,
            None => return served,
        };
        let is_wanted = |index: &usize| wanted.as_ref().is_none_or(|wanted| wanted[*index]);
        if let Some(reader) = self.reader(index)
            && let Some(held) = reader.held()
            && self.deliver_held(broadcast, index, held, news.clone().filter(is_wanted))
        {
            return served + 1;
        }
        let mut subscribers = self.subscribers.borrow_mut();
        let Some(subscriber) = subscribers.get_mut(index) else { return served };
        match &mut subscriber.delivery {
            SubscriberState::Carried(_) => {}
            SubscriberState::Poll(key) => {
                let key = *key;
                drop(subscribers);
                self.remove(index);
                if let Some(parked) = self.parking_lot.take(key) {
                    self.answer_poll(parked, broadcast.answer(news.start, self.hub.epoch()));
                }
            }
            SubscriberState::Parked { key, form, .. } => {
                let (key, form) = (*key, *form);
                let run = runs(news, is_wanted).next();
                drop(subscribers);
                let sending = run.and_then(|run| self.sending(broadcast, index, (key, form), run));
                sending.into_iter().for_each(|sending| sendings.push(sending));
            }
            SubscriberState::Task(mailbox) => {
                for index in news.filter(is_wanted) {
                    self.put(mailbox, &broadcast.messages[index], &broadcast.options);
                }
            }
        }
        served + 1
    }

    /// Serves a connection that an application holds, if items are more to it than bytes.
    fn deliver_held(
        self: &Rc<LocalSubscribers>,
        broadcast: &mut Broadcast,
        index: usize,
        held: &HeldRecord,
        mut wanted: impl Iterator<Item = usize>,
    ) -> bool {
        let (is_poll, key, form) = match self.subscribers.borrow().get(index) {
            Some(Subscriber { delivery: SubscriberState::Poll(key), .. }) => {
                (true, *key, Form::Held)
            }
            Some(Subscriber { delivery: SubscriberState::Parked { key, form, .. }, .. }) => {
                (false, *key, *form)
            }
            _ => return false,
        };
        let Some(first) = wanted.next() else { return true };
        if !is_poll {
            let needs = broadcast.needs_task(held, first)
                || wanted.any(|at| broadcast.needs_task(held, at));
            if needs {
                self.go_on_in_task(broadcast, index, (key, form), Bytes::new(), first);
            }
            return needs;
        }
        self.remove(index);
        let number = broadcast.messages[first].id;
        if let (Some(parked), Some(item)) = (self.parking_lot.take(key), broadcast.item(first)) {
            self.answer_held(held, WaitingRequest { parked }, (number, item));
        }
        true
    }

    /// Returns the messages of a broadcast that a subscriber has not been given, and counts them as
    /// given; an empty range if it gets none of them, `None` if there are none.
    pub(super) fn take_news(&self, broadcast: &mut Broadcast, index: usize) -> Option<News> {
        let mut subscribers = self.subscribers.borrow_mut();
        let subscriber = subscribers.get_mut(index)?;
        let first = broadcast.messages.partition_point(|message| message.id <= subscriber.last);
        subscriber.last = broadcast.messages[first..].last()?.id;
        let range = first..broadcast.messages.len();
        let wanted = self.reader(index).map(|reader| broadcast.wanted(&reader));
        let count = match &wanted {
            // No subscriber gets all items of an application.
            None if self.hub.options().grip => 0,
            None => range.len(),
            Some(wanted) => wanted[range.clone()].iter().filter(|is_wanted| **is_wanted).count(),
        };
        counters::count(&self.hub.counters().delivered, count as u64);
        let range = if count == 0 { 0..0 } else { range };
        Some(News { range, wanted })
    }

    /// Prepares messages for a parked subscriber. `None` if the subscriber has to continue in a
    /// task.
    fn sending(
        self: &Rc<LocalSubscribers>,
        broadcast: &mut Broadcast,
        index: usize,
        (key, form): (Key, Form),
        run: Range<usize>,
    ) -> Option<Sending> {
        let encoded = broadcast.encoded(form, &self.hub);
        let seal = |stream: &mut ParkedStream| {
            if !stream.is_encrypted() {
                return Some((run.clone(), encoded.bytes_of(run.clone()), false));
            }
            // Each message has records of its own, so that the number of bytes that were written
            // tells which of them were.
            let mut end = run.start + 1;
            while end < run.end && encoded.bytes_of(run.start..end + 1).len() <= SEALED {
                end += 1;
            }
            let messages: Vec<Bytes> =
                (run.start..end).map(|index| encoded.bytes_of(index..index + 1)).collect();
            let messages: Vec<&[u8]> = messages.iter().map(|message| &message[..]).collect();
            let sealed = stream.seal(&messages)?;
            Some((run.start..end, sealed.into(), true))
        };
        match self.parking_lot.with_stream(key, seal) {
            Some(Some((run, bytes, is_sealed))) => {
                let to = Receiver::Subscriber { index, form, run };
                Some(Sending { key, bytes, is_own: is_sealed, to })
            }
            Some(None) => {
                self.go_on_in_task(broadcast, index, (key, form), Bytes::new(), run.start);
                None
            }
            None => {
                // The subscriber has gone.
                self.lost(index);
                None
            }
        }
    }

    /// Gives a parked subscriber a task, which writes the rest of a message and the messages from a
    /// place on.
    fn go_on_in_task(
        self: &Rc<LocalSubscribers>,
        broadcast: &mut Broadcast,
        index: usize,
        (key, form): (Key, Form),
        rest: Bytes,
        from: usize,
    ) {
        let wanted = self.reader(index).map(|reader| broadcast.wanted(&reader));
        let is_wanted = |index: &usize| wanted.as_ref().is_none_or(|wanted| wanted[*index]);
        let mailbox = Rc::new(Mailbox::default());
        for index in (from..broadcast.messages.len()).filter(is_wanted) {
            self.put(&mailbox, &broadcast.messages[index], &broadcast.options);
        }
        if let Some(parked) = self.parking_lot.take(key) {
            self.continue_in_task(index, parked, form, Backlog { rest, mailbox });
        }
    }

    /// Writes to parked subscribers.
    fn send(self: &Rc<LocalSubscribers>, broadcast: &mut Broadcast, mut sendings: Vec<Sending>) {
        while sendings.len() >= ENOUGH {
            let mut ring = self.engine.send_ring.borrow_mut();
            let Some(ready) = ring.ready() else { break };
            let some: Vec<Sending> = sendings.drain(..sendings.len().min(MOST)).collect();
            let batch: Vec<(Key, Bytes)> =
                some.iter().map(|sending| (sending.key, sending.bytes.clone())).collect();
            let sent = self.parking_lot.send_all(ready, &batch);
            if sent.is_broken {
                *ring = Ring::None;
            }
            drop(ring);
            for (sending, outcome) in some.into_iter().zip(sent.outcomes) {
                let rest = match outcome {
                    Some(outcome) => self.go_on(broadcast, sending, outcome),
                    None => Some(sending),
                };
                if let Some(rest) = rest {
                    self.write(broadcast, rest);
                }
            }
        }
        for sending in sendings {
            self.write(broadcast, sending);
        }
    }

    /// Writes to one parked subscriber.
    fn write(self: &Rc<LocalSubscribers>, broadcast: &mut Broadcast, sending: Sending) {
        let mut next = Some(sending);
        while let Some(sending) = next {
            let write = |stream: &mut ParkedStream| stream.write_raw(&sending.bytes);
            let outcome = self.parking_lot.with_stream(sending.key, write);
            let outcome = outcome.unwrap_or_else(|| Err(io::ErrorKind::NotFound.into()));
            next = self.go_on(broadcast, sending, outcome);
        }
    }

    /// Continues with a parked subscriber to which some bytes, perhaps not all, were written.
    /// Returns the next messages to be written, if all of them were.
    fn go_on(
        self: &Rc<LocalSubscribers>,
        broadcast: &mut Broadcast,
        sending: Sending,
        outcome: io::Result<usize>,
    ) -> Option<Sending> {
        let Sending { key, bytes, is_own: is_sealed, to } = sending;
        let (index, form, run) = match to {
            Receiver::Subscriber { index, form, run } => (index, form, run),
            Receiver::Streams(by) => {
                by.go_on_after(&bytes, outcome);
                return None;
            }
        };
        let Ok(count) = outcome else {
            self.parking_lot.take(key);
            self.lost(index);
            return None;
        };
        if let Some(subscriber) = self.subscribers.borrow_mut().get_mut(index)
            && let SubscriberState::Parked { pinged: Some(queue), .. } = &mut subscriber.delivery
        {
            queue.wrote(count);
        }
        let text = match is_sealed {
            // What is left of it is held by the stream, and written without being counted.
            true => broadcast.encoded(form, &self.hub).bytes_of(run.clone()).len(),
            false => count,
        };
        self.wrote(index, form, text);
        if form.is_held() {
            self.wrote_held(index, broadcast.messages[run.start].id);
        }
        if count == bytes.len() {
            let wanted = self.reader(index).map(|reader| broadcast.wanted(&reader));
            let is_wanted = |index: &usize| wanted.as_ref().is_none_or(|wanted| wanted[*index]);
            let run = runs(run.end..broadcast.messages.len(), is_wanted).next()?;
            return self.sending(broadcast, index, (key, form), run);
        }
        if is_sealed {
            self.parking_lot.with_stream(key, |stream| stream.owes(&bytes[count..]));
            self.go_on_in_task(broadcast, index, (key, form), Bytes::new(), run.end);
            return None;
        }
        let (begun, rest) = broadcast.encoded(form, &self.hub).sent(run.start, count);
        // The rest of one message must not hold the others.
        let rest = Bytes::copy_from_slice(&rest);
        self.go_on_in_task(broadcast, index, (key, form), rest, run.start + begun);
        None
    }
}

// Messages on their way to the subscribers of one engine, and their forms for each kind of
// subscriber, which are made once.

/// The most that the messages of a broadcast cost, unless one message alone costs more.
const BROADCAST_BYTES: u64 = 256 << 10;

/// The most bytes that are kept of what readers get of the messages, so that it need not be found
/// out again for each subscriber of a reader.
const WANTED_BYTES: usize = 1 << 20;

/// Some messages, and their forms.
pub(super) struct Broadcast {
    pub messages: Vec<Message>,
    /// The cost of its messages.
    pub cost: u64,
    pub options: Arc<Channel>,
    /// By their form.
    encoded: [Option<Encoded>; Form::COUNT],
    /// The same, as data of streams of HTTP/2.
    data: [Option<Encoded>; Form::COUNT],
    /// The answer to long-polls from one of the messages on.
    answer: Option<(usize, Bytes)>,
    /// Which of the messages each reader gets, by its address: the reader is kept so that no other
    /// one has that.
    wanted: HashMap<usize, (Rc<Reader>, Rc<[bool]>)>,
    /// The items of an application that they are.
    items: Option<Vec<Option<Item>>>,
    /// The subscribers that may get some of them, if not all may.
    candidates: Option<Option<Rc<[u32]>>>,
}

impl Broadcast {
    /// Takes off as many messages as go into one broadcast; `None` if there are none.
    ///
    /// A subscriber with a task gets all of them at once, and its turn to send them comes after
    /// that. So they cost no more than half of what may wait for it: otherwise it would count as
    /// slow because of a burst of small messages, however fast it reads.
    pub(super) fn next(
        messages: &mut VecDeque<Message>,
        options: &Arc<Channel>,
    ) -> Option<Broadcast> {
        let most = BROADCAST_BYTES.min(options.backlog_bytes / 2);
        let mut sum = 0;
        let mut fits = |message: &Message| {
            sum += cost(message);
            sum <= most
        };
        let count = messages.iter().take_while(|message| fits(message)).count().max(1);
        let messages: Vec<Message> = messages.drain(..count.min(messages.len())).collect();
        if messages.is_empty() {
            return None;
        }
        let cost = messages.iter().map(cost).sum();
        let (options, wanted) = (options.clone(), HashMap::new());
        let (encoded, data) = Default::default();
        let (answer, items, candidates) = (None, None, None);
        let broadcast =
            Broadcast { messages, cost, options, encoded, data, answer, wanted, items, candidates };
        Some(broadcast)
    }

    /// Returns the items that the messages are.
    fn items(&mut self) -> &[Option<Item>] {
        self.items.get_or_insert_with(|| self.messages.iter().map(Item::of).collect())
    }

    /// Returns the item that a message is.
    fn item(&mut self, at: usize) -> Option<&Item> {
        self.items().get(at)?.as_ref()
    }

    /// Whether a held connection needs a task for a message, whose bytes are its own or that is
    /// more than bytes.
    pub(super) fn needs_task(&mut self, held: &HeldRecord, at: usize) -> bool {
        self.item(at).is_some_and(|item| filters::needs_task(held, item))
    }

    /// Returns the subscribers of an engine that may get some of the messages; `None`: all may.
    fn candidates(&mut self, by: &LocalSubscribers) -> Option<Rc<[u32]>> {
        if self.candidates.is_none() {
            let found = if by.hub.options().grip { by.candidates(self.items()) } else { None };
            self.candidates = Some(found);
        }
        self.candidates.clone().flatten()
    }

    /// Returns the messages in a form.
    pub(super) fn encoded(&mut self, form: Form, hub: &Hub) -> &Encoded {
        self.encoded[form as usize]
            .get_or_insert_with(|| Encoded::new(form, hub.source(), &self.messages))
    }

    /// Returns the messages in a form, as data of streams of HTTP/2.
    pub(super) fn data(&mut self, form: Form, hub: &Hub) -> &Encoded {
        self.data[form as usize]
            .get_or_insert_with(|| Encoded::data(form, hub.source(), &self.messages))
    }

    /// Returns which of the messages a reader gets.
    pub(super) fn wanted(&mut self, reader: &Rc<Reader>) -> Rc<[bool]> {
        let address = Rc::as_ptr(reader).addr();
        if let Some((_, known)) = self.wanted.get(&address) {
            return known.clone();
        }
        let wanted: Rc<[bool]> = match reader.held() {
            None => self.messages.iter().map(|message| reader.gets(message)).collect(),
            Some(held) => {
                let gets = |item: &Option<Item>| {
                    item.as_ref().is_some_and(|item| filters::let_through(held, item))
                };
                self.items().iter().map(gets).collect()
            }
        };
        let each = wanted.len() + size_of::<(usize, (Rc<Reader>, Rc<[bool]>))>();
        if (self.wanted.len() + 1) * each <= WANTED_BYTES {
            self.wanted.insert(address, (reader.clone(), wanted.clone()));
        }
        wanted
    }

    /// Returns the answer to long-polls that have read the messages before `first`.
    pub(super) fn answer(&mut self, first: usize, epoch: u64) -> Bytes {
        match &self.answer {
            Some((from, answer)) if *from == first => answer.clone(),
            _ => {
                let messages = &self.messages[first..];
                let id = messages.last().map_or(0, |message| message.id);
                let answer = replay::json(messages, false, Cursor { id, epoch: Some(epoch) });
                self.answer = Some((first, answer.clone()));
                answer
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_what_is_wanted_without_gaps() {
        let found = |wanted: &[bool], from: usize| -> Vec<(usize, usize)> {
            let runs = runs(from..wanted.len(), |index| wanted[*index]);
            runs.map(|run| (run.start, run.end)).collect()
        };
        assert_eq!(found(&[], 0), []);
        assert_eq!(found(&[false, false], 0), []);
        assert_eq!(found(&[true, true, false, true], 0), [(0, 2), (3, 4)]);
        assert_eq!(found(&[true, true, false, true], 1), [(1, 2), (3, 4)]);
        assert_eq!(found(&[false, true, false, false], 0), [(1, 2)]);
    }
}

#[cfg(test)]
mod broadcast_tests {
    use superpoll_http::mercure::reader_record::ReaderRecord;

    use super::super::message::EACH;
    use super::super::reader::Readers;
    use super::*;

    #[test]
    fn a_broadcast_has_at_least_one_message_and_half_of_a_backlog_at_most() {
        let message = |id, length: u64| Message::new(id, vec![0; length as usize], false);
        let fits = BROADCAST_BYTES - EACH;
        for (backlog, lengths, expected) in [
            (
                u64::MAX,
                vec![100, fits, fits + 1, 1, fits - 2 * EACH, 1],
                vec![vec![1], vec![2], vec![3], vec![4, 5], vec![6]],
            ),
            (4 * EACH, vec![0; 5], vec![vec![1, 2], vec![3, 4], vec![5]]),
            (1, vec![0; 2], vec![vec![1], vec![2]]),
        ] {
            let options = Arc::new(Channel { backlog_bytes: backlog, ..Channel::default() });
            let mut messages: VecDeque<Message> =
                (1..).zip(lengths).map(|(id, length)| message(id, length)).collect();
            let mut batches = Vec::new();
            while let Some(broadcast) = Broadcast::next(&mut messages, &options) {
                batches.push(broadcast.messages.iter().map(|one| one.id).collect::<Vec<_>>());
            }
            assert_eq!(batches, expected, "{backlog}");
        }
    }

    /// Most subscribers may be the only one of their kind.
    #[test]
    fn what_readers_get_is_remembered_up_to_a_bound() {
        let mut messages: VecDeque<Message> =
            (1..=1000).map(|id| Message::new(id, "", true)).collect();
        let mut broadcast = Broadcast::next(&mut messages, &Arc::default()).unwrap();
        let mut readers = Readers::default();
        for index in 0..2000 {
            let topics = vec![format!("/{index}").into()];
            let reader = readers.reader(ReaderRecord { topics, ..ReaderRecord::default() }.into());
            assert_eq!(broadcast.wanted(&reader).len(), 1000);
        }
        let remembered: usize = broadcast.wanted.values().map(|(_, wanted)| wanted.len()).sum();
        assert!(remembered <= WANTED_BYTES, "{remembered}");
    }
}
