//! Messages on their way to the subscribers of one engine, and their forms for each kind of
//! subscriber, which are made once.

use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;

use super::cursor::Cursor;
use super::form::{Encoded, Form};
use super::hub::Hub;
use super::mercure::reader::Reader;
use super::message::{Message, cost};
use super::replay;
use crate::config::Channel;

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
    /// The answer to long-polls from one of the messages on.
    answer: Option<(usize, Bytes)>,
    /// Which of the messages each reader gets, by its number.
    wanted: HashMap<u64, Rc<[bool]>>,
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
        let (options, encoded, wanted) = (options.clone(), Default::default(), HashMap::new());
        Some(Broadcast { messages, cost, options, encoded, answer: None, wanted })
    }

    /// Returns the messages in a form.
    pub(super) fn encoded(&mut self, form: Form, hub: &Hub) -> &Encoded {
        self.encoded[form as usize]
            .get_or_insert_with(|| Encoded::new(form, hub.source(), &self.messages))
    }

    /// Returns which of the messages a reader gets.
    pub(super) fn wanted(&mut self, reader: &Reader) -> Rc<[bool]> {
        if let Some(known) = self.wanted.get(&reader.number) {
            return known.clone();
        }
        let wanted: Rc<[bool]> = self.messages.iter().map(|message| reader.gets(message)).collect();
        let each = wanted.len() + size_of::<(u64, Rc<[bool]>)>();
        if (self.wanted.len() + 1) * each <= WANTED_BYTES {
            self.wanted.insert(reader.number, wanted.clone());
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
    use super::super::mercure::reader::{ReaderRecord, Readers};
    use super::super::message::EACH;
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
            let reader = readers.of(ReaderRecord { topics, ..ReaderRecord::default() });
            assert_eq!(broadcast.wanted(&reader).len(), 1000);
        }
        let remembered: usize = broadcast.wanted.values().map(|wanted| wanted.len()).sum();
        assert!(remembered <= WANTED_BYTES, "{remembered}");
    }
}
