//! Connections with subscribers on their streams, as another server has left them.
//!
//! The frames that it has written since are made again, up to the bytes that the kernel has
//! counted: first those of its last [`WriteIntent`], if there is one, and then each message to all
//! streams that get it.

use std::rc::Rc;
use std::time::{Duration, SystemTime};

use superpoll_config::Slow;
use superpoll_http::connection_state::{Activity, LeftConnection, StreamActivity};
use superpoll_http::grant::Grant;
use superpoll_http::held::HeldRecord;
use superpoll_http2::Record;
use superpoll_rt::time;

use super::{Carried, Carrier, GoesOn, Kind, MOST_DATA, limit_unsent_of};
use crate::channel::counters;
use crate::channel::form::Encoded;
use crate::channel::grip::LONGEST_WAIT;
use crate::channel::history::Since;
use crate::channel::local_subscribers::{LocalSubscribers, SubscriberState, Subscription};
use crate::channel::mailbox::{EndReason, Mailbox};
use crate::channel::message::Message;
use crate::channel::moment::Moment;
use crate::channel::parked::LeftSubscriber;
use crate::channel::reader::Reader;
use crate::channel::resting::LastSign;
use crate::succession::records::WriteIntent;

/// A connection that another server has left.
pub struct LeftCarrier {
    /// The requests so far.
    pub requests: u32,
    /// The record of the codec.
    pub record: Record,
    /// Its last write intent, if there is one.
    pub intent: Option<WriteIntent>,
    /// The streams, in their order.
    pub streams: Vec<LeftStream>,
}

/// A subscriber on a stream of such a connection.
pub struct LeftStream {
    /// The number of the stream.
    pub stream: u32,
    /// The channel.
    pub subscribers: Rc<LocalSubscribers>,
    /// The last message that the subscriber was given.
    pub last: u64,
    /// The subscriber.
    pub work: LeftWork,
}

/// The work on a stream of such a connection.
pub enum LeftWork {
    /// Messages.
    Messages(LeftSubscriber),
    /// The answer to a long-poll.
    Poll {
        /// Its rights.
        grant: Grant,
        /// Whether its answer may have `Strict-Transport-Security`.
        may_have_hsts: bool,
        /// How much longer it may wait.
        wait: Duration,
        /// What an application holds it for, if one does.
        held: Option<Box<HeldRecord>>,
    },
}

impl LeftStream {
    /// Returns a stream of what was left of it, whose channel is found by the number of its
    /// records; `None` if it is none.
    pub fn of(
        left: StreamActivity,
        subscribers: impl FnOnce(u64) -> Option<Rc<LocalSubscribers>>,
    ) -> Option<LeftStream> {
        let StreamActivity { stream, activity } = left;
        let (activity, held) = match activity {
            Activity::HeldPoll { poll, held } => (*poll, Some(held)),
            activity => (activity, None),
        };
        let (space, last, work) = match activity {
            Activity::StreamPoll { space, last, grant, may_have_hsts, until } => {
                let until = SystemTime::UNIX_EPOCH + Duration::from_millis(until);
                let wait = until.duration_since(SystemTime::now()).unwrap_or_default();
                (space, last, LeftWork::Poll { grant, may_have_hsts, wait, held })
            }
            activity => {
                let (space, subscriber) = LeftSubscriber::of(activity)?;
                (space, subscriber.last, LeftWork::Messages(subscriber))
            }
        };
        Some(LeftStream { stream, subscribers: subscribers(space)?, last, work })
    }
}

/// Such a subscriber, joined here.
struct Adopted {
    subscription: Subscription,
    grant: Grant,
    kind: Kind,
    stream: u32,
    reader: Option<Rc<Reader>>,
    /// The last message that it was given.
    last: u64,
    /// The messages after the one that it was given when it was left.
    since: Since,
}

impl Adopted {
    fn join(left: LeftStream) -> Adopted {
        let LeftStream { stream, subscribers, last, work } = left;
        let since = subscribers.hub.join(subscribers.queue_id, Some(subscribers.cursor(last)));
        let add = |grant| subscribers.add(since.last, grant, SubscriberState::Task(Rc::default()));
        let (subscription, grant, kind, reader) = match work {
            LeftWork::Messages(LeftSubscriber { form, pinged, grant, reader, user, .. }) => {
                let subscription = add(grant);
                subscription.continues_of(user);
                let index = subscription.index;
                let reader = reader.map(|record| subscribers.read_as(index, record, false));
                let kind = Kind::Messages { form, peer: None, sign: LastSign::now(pinged) };
                (subscription, grant, kind, reader)
            }
            LeftWork::Poll { grant, may_have_hsts, wait, held } => {
                let longest = match held {
                    None => subscribers.hub.options().poll,
                    Some(_) => LONGEST_WAIT,
                };
                let until = Moment::at(time::now() + grant.limit(wait.min(longest)));
                let subscription = add(grant);
                let index = subscription.index;
                let reader = held.map(|held| subscribers.read_as(index, *held, false));
                (subscription, grant, Kind::Poll { until, may_have_hsts, trace: None }, reader)
            }
        };
        Adopted { subscription, grant, kind, stream, reader, last, since }
    }

    /// Returns the messages that it is still to be given.
    fn mailbox(&mut self) -> Rc<Mailbox> {
        let none = Since { messages: Vec::new(), missed: false, last: self.last };
        let mut since = std::mem::replace(&mut self.since, none);
        since.messages.retain(|message| self.gets(message));
        // All bytes are explained: what the log of an application has forgotten was for others.
        let is_held = self.reader.as_ref().is_some_and(|reader| reader.held().is_some());
        let options = self.subscribers().hub.options();
        let missed = since.missed && !is_held;
        since.missed = missed;
        let is_gap = missed && options.slow == Slow::DropOldest && !since.messages.is_empty();
        let mailbox = Rc::new(Mailbox::new(since, &options));
        if !self.subscribers().have_given(self.grant) {
            mailbox.end(EndReason::Changed);
        } else if is_gap {
            mailbox.note_gap();
        } else if missed {
            // Nothing else would tell the client.
            counters::count(&self.subscribers().hub.counters().disconnected, 1);
            mailbox.end(EndReason::Slow);
        }
        mailbox
    }

    fn subscribers(&self) -> &Rc<LocalSubscribers> {
        &self.subscription.local_subscribers
    }

    /// Whether it gets a message.
    fn gets(&self, message: &Message) -> bool {
        let gets = match &self.reader {
            Some(reader) => reader.gets(message),
            // No subscriber gets all items of an application.
            None => !self.subscribers().hub.options().grip,
        };
        message.id > self.last && gets
    }
}

/// The frames that another server has written to a connection, made again.
struct Frames<'a> {
    record: &'a mut Record,
    bytes: Vec<u8>,
    ends: Vec<usize>,
    /// The bytes that are still to be explained.
    left: usize,
    /// The bytes that a record of TLS adds to each frame.
    overhead: usize,
}

impl Frames<'_> {
    /// Adds the frame of a message to a stream. `None` if it cannot have been written.
    fn add(&mut self, to: &mut Adopted, message: &Message) -> Option<()> {
        // A task writes the answer to a long-poll.
        let Kind::Messages { form, .. } = to.kind else { return None };
        let (start, mut data) = (self.bytes.len(), Vec::new());
        form.write_data(message, to.subscribers().hub.source(), &mut data);
        if data.len() > MOST_DATA {
            return None;
        }
        self.record.data_head(to.stream, data.len(), &mut self.bytes).ok()?;
        self.bytes.extend_from_slice(&data);
        self.ends.push(self.bytes.len());
        to.last = message.id;
        self.left = self.left.saturating_sub(self.bytes.len() - start + self.overhead);
        Some(())
    }
}

/// Continues with a connection that another server has left with subscribers on its streams.
/// `None` if it cannot: the bytes that were written since do not tell which messages they are. Its
/// client has to come again.
pub fn adopt(by: Rc<dyn GoesOn>, left: LeftConnection, connection: LeftCarrier) -> Option<()> {
    let LeftCarrier { requests, mut record, intent, mut streams } = connection;
    let (mut before, mut frames, mut next) = (0, 0, Vec::new());
    if let Some(intent) = intent.filter(|intent| intent.given.len() == streams.len()) {
        (before, frames, next) = (intent.bytes, intent.frames, intent.next);
        record = intent.record.into();
        for (stream, given) in streams.iter_mut().zip(intent.given) {
            stream.last = given;
        }
    }
    let sent = usize::try_from(left.sent.checked_sub(before)?).ok()?;
    let first = streams.first()?.subscribers.clone();
    // The other server may have sent messages that nobody knows any more. Those of this server have
    // their numbers.
    let is_known = |stream: &LeftStream| {
        let inherited = stream.subscribers.hub.inherited();
        inherited.is_some_and(|inherited| stream.last <= inherited)
    };
    if !streams.iter().all(is_known) {
        return None;
    }
    let mut all: Vec<Adopted> = streams.into_iter().map(Adopted::join).collect();
    let overhead = usize::try_from(left.overhead()).ok()?;
    let (bytes, ends) = (Vec::new(), Vec::new());
    let mut made = Frames { record: &mut record, bytes, ends, left: sent, overhead };
    make(&mut made, &mut all, next)?;
    let encoded = Encoded::of_parts(made.bytes, made.ends);
    let (mut parked, _, rest) = encoded.go_on(left, frames, sent)?;
    let (mut carried, mut mailboxes, mut is_quiet) = (Vec::new(), Vec::new(), true);
    for mut adopted in all {
        let mailbox = adopted.mailbox();
        let Adopted { subscription, kind, stream, last, .. } = adopted;
        let (subscribers, index) = (subscription.local_subscribers.clone(), subscription.index);
        subscription.detach();
        is_quiet &= mailbox.is_empty() && mailbox.ended().is_none();
        carried.push(Carried { stream, kind, index, given: last, known: last, subscribers });
        mailboxes.push(mailbox);
    }
    let is_quiet = is_quiet && rest.is_empty() && !parked.stream.has_unsent();
    limit_unsent_of(&carried, &parked);
    let carrier = Carrier::new(by, first.parking_lot.clone(), requests, record, carried);
    match is_quiet {
        true => carrier.enter(parked, None),
        false => carrier.go_on(parked, rest, mailboxes, None),
    }
    Some(())
}

/// Makes the frames again that another server has written, and notes which messages the streams
/// were given. `None` if it cannot have written them.
fn make(made: &mut Frames<'_>, all: &mut [Adopted], next: Vec<(u16, u64)>) -> Option<()> {
    // A message that is not kept any more cannot be made again.
    if made.left > 0 && all.iter().any(|adopted| adopted.since.missed) {
        return None;
    }
    for (place, id) in next {
        if made.left == 0 {
            return Some(());
        }
        let adopted = all.get_mut(usize::from(place))?;
        let message = adopted.since.messages.iter().find(|message| message.id == id)?.clone();
        made.add(adopted, &message)?;
    }
    if made.left == 0 {
        return Some(());
    }
    // All that followed is in the order of one channel.
    let channel = all.first()?.subscribers().clone();
    if !all.iter().all(|adopted| Rc::ptr_eq(adopted.subscribers(), &channel)) {
        return None;
    }
    let inherited = channel.hub.inherited()?;
    let from = all.iter().min_by_key(|adopted| adopted.last)?;
    let known = |message: &&Message| message.id <= inherited;
    let messages: Vec<Message> = from.since.messages.iter().take_while(known).cloned().collect();
    for message in &messages {
        for adopted in all.iter_mut() {
            if made.left == 0 {
                return Some(());
            }
            if adopted.gets(message) {
                made.add(adopted, message)?;
            }
        }
    }
    (made.left == 0).then_some(())
}
