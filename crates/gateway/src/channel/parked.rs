//! Subscribers that are parked: WebSockets, and streams of events over plain HTTP/1.1.
//!
//! A parked subscriber has a socket in the parking lot and an entry in the table. Messages are
//! written to its socket while it stays there (`LocalSubscribers::deliver_to`). It gets a task, the
//! session of its form, when its socket has no room, and is parked again when everything is
//! written.
//!
//! In silence it is sent a sign of life: a ping, or a comment. That is no message, so a successor
//! must never count its bytes as one. The subscriber is therefore taken out of the parking lot
//! before that, and its state is left anew when the sign of life is written. While a keeper may
//! still have an older state of it ([`Hub::is_gathering`]) no sign of life is sent at all. The same
//! holds for the event `missed`, which only a session writes.

use std::future::poll_fn;
use std::io::{self, Read, Write};
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use futures_io::{AsyncRead, AsyncWrite};

use super::form::{Encoded, Form};
use super::history::Since;
use super::hub;
use super::local_subscribers::{Delivery, LocalSubscribers, is_later};
use super::mailbox::{EndReason, Mailbox};
use super::mercure::reader::ReaderRecord;
use super::mercure::subscriptions;
use super::rights::Grant;
use super::send_queue::SendQueue;
use crate::config::Slow;
use crate::parking_lot::{ParkedConnection, ResumeReason};
use crate::transport::{Socket, Transport};

/// How long the end of a connection may take.
pub(super) const CLOSE: Duration = Duration::from_secs(2);

/// The most bytes that are read of a connection that ends, so that the reason for its end is not
/// lost with a reset.
const LINGER_BYTES: usize = 1 << 20;

/// The time between two looks at a clock that is behind the timer.
pub(super) const MOMENT: Duration = Duration::from_millis(10);

/// How often a session reads and writes before other tasks have their turn.
pub(super) const ROUNDS: usize = 16;

/// The next step of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Next {
    /// Nothing is under way.
    Idle,
    /// The session is over; all was written.
    Over,
    /// The session is over, and the client has gone.
    Gone,
}

/// The bytes and messages that a subscriber with a task is still to be sent.
pub(super) struct Backlog {
    /// The rest of a message, or other bytes that come before the next message.
    pub rest: Bytes,
    pub mailbox: Rc<Mailbox>,
}

impl Backlog {
    /// Returns the backlog of a subscriber that gets no more messages.
    fn ended(why: EndReason) -> Backlog {
        let mailbox = Rc::new(Mailbox::default());
        mailbox.end(why);
        Backlog { rest: Bytes::new(), mailbox }
    }
}

/// Writes as many bytes as there is room for now.
pub(super) fn write(socket: &Socket, bytes: &[u8]) -> io::Result<usize> {
    // std makes the kernel return an error, and not a signal, if the other end is closed.
    let outcome = match socket {
        Socket::Tcp(stream) => (&*stream).write(bytes),
        Socket::Unix(stream) => (&*stream).write(bytes),
    };
    match outcome {
        Err(error) if is_later(&error) => Ok(0),
        outcome => outcome,
    }
}

/// Reads the bytes that are available now.
pub(super) fn read(socket: &Socket, room: &mut [u8]) -> io::Result<usize> {
    match socket {
        Socket::Tcp(stream) => (&*stream).read(room),
        Socket::Unix(stream) => (&*stream).read(room),
    }
}

impl LocalSubscribers {
    /// Returns the form of a parked subscriber, and its send queue at the last sign of life that
    /// was not answered.
    fn parked_state(&self, index: usize) -> Option<(Form, Option<SendQueue>)> {
        match self.subscribers.borrow().get(index)?.delivery {
            Delivery::Parked { form, pinged, .. } => Some((form, pinged)),
            Delivery::Poll(_) | Delivery::Task(_) => None,
        }
    }

    /// Returns the last message that a subscriber was given.
    pub(super) fn last_given(&self, index: usize) -> u64 {
        self.subscribers.borrow().get(index).map_or(0, |subscriber| subscriber.last)
    }

    /// Takes a parked subscriber back after an event.
    pub(super) fn resume_parked(
        self: Rc<LocalSubscribers>,
        index: usize,
        parked: ParkedConnection,
        why: ResumeReason,
    ) {
        let Some((form, pinged)) = self.parked_state(index) else { return self.remove(index) };
        let is_over = self.grant(index).is_over();
        match (why, form) {
            (ResumeReason::Ready | ResumeReason::TimedOut, _) if is_over => {
                self.end_subscriber(index, parked, form, EndReason::Expired);
            }
            (ResumeReason::Ready, Form::WebSocket | Form::Json) => {
                self.read_parked(index, parked, form);
            }
            // It also comes back like this if it cannot be left to another server.
            (ResumeReason::Ready, Form::Events | Form::Mercure) if !parked.socket.has_ended() => {
                self.park_subscriber(index, parked, form, pinged);
            }
            (ResumeReason::Ready, Form::Events | Form::Mercure) => self.remove(index),
            (ResumeReason::TimedOut, _) => self.show_life(index, parked, form, pinged),
            (ResumeReason::Draining, _) => {
                self.end_subscriber(index, parked, form, EndReason::Retired);
            }
        }
    }

    /// Ends a subscriber that has nothing under way.
    pub(super) fn end_subscriber(
        self: &Rc<LocalSubscribers>,
        index: usize,
        parked: ParkedConnection,
        form: Form,
        why: EndReason,
    ) {
        self.continue_in_task(index, parked, form, Backlog::ended(why));
    }

    /// Sends a sign of life, or ends a subscriber that has gone.
    fn show_life(
        self: Rc<LocalSubscribers>,
        index: usize,
        parked: ParkedConnection,
        form: Form,
        pinged: Option<SendQueue>,
    ) {
        if pinged.is_some_and(|queue| form.has_gone(queue, &parked.socket)) {
            return self.remove(index);
        }
        if self.hub.is_gathering() {
            return self.park_subscriber(index, parked, form, None);
        }
        let bytes = form.sign_of_life();
        let mut queue = SendQueue::of(&parked.socket);
        let Ok(count) = write(&parked.socket, bytes) else { return self.remove(index) };
        self.wrote(index, form, count);
        if count == bytes.len() {
            queue.wrote(count);
            return self.park_subscriber(index, parked, form, Some(queue));
        }
        let rest = Bytes::from_static(&bytes[count..]);
        self.continue_in_task(index, parked, form, Backlog { rest, mailbox: Rc::default() });
    }

    /// Parks a subscriber that has nothing under way.
    pub(super) fn park_subscriber(
        self: Rc<LocalSubscribers>,
        index: usize,
        mut parked: ParkedConnection,
        form: Form,
        pinged: Option<SendQueue>,
    ) {
        let grant = self.grant(index);
        if grant.is_over() {
            return self.end_subscriber(index, parked, form, EndReason::Expired);
        }
        parked.token = index as u64;
        let limit = Some(grant.limit(self.hub.silence()));
        let activity = || {
            let last = self.last_given(index);
            let reader = self.reader(index);
            let record = reader.as_ref().map(|reader| &*reader.record);
            let space = self.hub.space()?;
            let place = (last, self.hub.offset(last, form));
            let activity = form.activity(space, place, grant, pinged.is_some(), record);
            Some(activity.of(self.presence.subject(index)))
        };
        match self.parking_lot.park(parked, self.clone(), form.wakes_on(), limit, activity) {
            Ok(key) => self.set(index, Delivery::Parked { key, form, pinged }),
            Err((parked, _)) => self.end_subscriber(index, parked, form, EndReason::Retired),
        }
    }

    /// As [`adopt_named`](LocalSubscribers::adopt_named), for a subscriber without a name.
    #[cfg(test)]
    pub(crate) fn adopt(
        self: &Rc<LocalSubscribers>,
        parked: ParkedConnection,
        form: Form,
        (last, pinged): (u64, bool),
        rights: (Grant, Option<ReaderRecord>),
        sent: u64,
    ) -> Option<()> {
        self.adopt_named(parked, form, (last, None, pinged), rights, sent, None)
    }

    /// Continues a subscriber that another server has left after a given message, and to which that
    /// server has written this many bytes since. Those are whole messages, and the beginning of at
    /// most one more, in its form, of those that its reader gets. The first of them need not be kept
    /// any more if `offset` says where they began. Otherwise its position is unknown, and the client
    /// has to come again: the answer is `None`.
    pub(crate) fn adopt_named(
        self: &Rc<LocalSubscribers>,
        parked: ParkedConnection,
        form: Form,
        (last, offset, pinged): (u64, Option<u64>, bool),
        (grant, record): (Grant, Option<ReaderRecord>),
        sent: u64,
        sub: Option<Box<str>>,
    ) -> Option<()> {
        let options = self.hub.options();
        let mut since = self.hub.join(self.queue_id, Some(self.cursor(last)));
        if let Some(record) = &record {
            since.messages.retain(|message| record.gets(message));
        }
        // The bytes of messages that are not kept, if it was sent all of them.
        let before = offset.filter(|_| since.missed).and_then(|offset| {
            let first = since.messages.first()?.id;
            self.hub.offset(first - 1, form)?.checked_sub(offset).filter(|&bytes| bytes <= sent)
        });
        since.missed &= before.is_none();
        let sent = usize::try_from(sent - before.unwrap_or(0)).unwrap_or(usize::MAX);
        let encoded = Encoded::covering(form, self.hub.source(), &since.messages, sent);
        // If some are missing, the messages that it was sent are not kept.
        if sent > 0 && (since.missed || sent > encoded.len()) {
            self.hub.leave(self.queue_id);
            record.iter().for_each(|record| subscriptions::report(&self.hub, record, false));
            return None;
        }
        let (begun, mut rest) = encoded.sent(0, sent);
        if !rest.is_empty() {
            // The rest of one message must not hold the others.
            rest = Bytes::copy_from_slice(&rest);
        }
        let Since { mut messages, missed, last: newest } = since;
        messages.drain(..begun);
        let last = messages.first().map_or(newest, |message| message.id - 1);
        let mailbox = Rc::new(Mailbox::new(Since { messages, missed, last: newest }, &options));
        if grant.is_over() {
            mailbox.end(EndReason::Expired);
        } else if !self.have_given(grant) {
            mailbox.end(EndReason::Changed);
        } else if missed && options.slow == Slow::Disconnect {
            hub::count(&self.hub.counters().disconnected, 1);
            mailbox.end(EndReason::Slow);
        } else if missed {
            rest = form.missed(last, self.hub.source()).into();
        }
        let subscription = self.add(newest, grant, Delivery::Task(mailbox.clone()));
        subscription.goes_on(sub);
        let index = subscription.index;
        subscription.detach();
        if let Some(record) = record {
            self.read_as(index, record, false);
        }
        if rest.is_empty() && mailbox.is_empty() && mailbox.ended().is_none() {
            let pinged = pinged.then(|| SendQueue::of(&parked.socket));
            self.clone().park_subscriber(index, parked, form, pinged);
        } else {
            self.continue_in_task(index, parked, form, Backlog { rest, mailbox });
        }
        Some(())
    }

    /// Continues a parked subscriber in a task.
    pub(super) fn continue_in_task(
        self: &Rc<LocalSubscribers>,
        index: usize,
        parked: ParkedConnection,
        form: Form,
        backlog: Backlog,
    ) {
        match form {
            Form::WebSocket | Form::Json => self.continue_socket(index, parked, form, backlog),
            Form::Events | Form::Mercure => self.continue_events(index, parked, form, backlog),
        }
    }
}

/// Ends a connection so that the bytes that were written last arrive.
pub(super) async fn linger(mut transport: Transport) -> io::Result<()> {
    poll_fn(|cx| Pin::new(&mut transport).poll_close(cx)).await?;
    let mut room = [0; 4096];
    let mut left = LINGER_BYTES;
    while left > 0 {
        match poll_fn(|cx| Pin::new(&mut transport).poll_read(cx, &mut room)).await? {
            0 => break,
            count => left = left.saturating_sub(count),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::rc::Weak;
    use std::sync::Arc;
    use std::time::Instant;

    use superpoll::backend::Topology;
    use superpoll_rt::{Runtime, yield_now};

    use super::super::engine::ChannelEngine;
    use super::super::form::{Offsets, add};
    use super::super::hub::Hub;
    use super::super::json_frame::Source;
    use super::super::message::{Draft, Message, Meta, Update};
    use super::*;
    use crate::config::Channel;
    use crate::parking_lot::ParkingLot;
    use crate::peer::Peer;
    use crate::succession::records::RecordStore;

    const FORMS: [Form; Form::COUNT] = [Form::WebSocket, Form::Json, Form::Events, Form::Mercure];
    const PATIENCE: Duration = Duration::from_secs(20);
    const EPOCH: u64 = 7;
    const SOURCE: Source<'static> = Source { epoch: EPOCH, name: "/c" };
    const FOREVER: Grant = Grant::unlimited(true);

    /// The rights of a subscriber that gets all messages.
    fn whole(form: Form) -> (Grant, Option<ReaderRecord>) {
        let some = ReaderRecord { topics: vec!["/c".to_owned().into()], ..Default::default() };
        (FOREVER, (form == Form::Mercure).then_some(some))
    }

    /// Some of the messages of Mercure are for others.
    fn meta(form: Form, id: u64) -> Option<Arc<Meta>> {
        let topic = if id % 3 == 2 && id != 5 { "/other" } else { "/c" };
        let update = Update { topics: vec![topic.to_owned()], ..Update::default() };
        let meta = Meta { update: Some(Box::new(update)), ..Meta::default() };
        (form == Form::Mercure).then(|| Arc::new(meta))
    }

    fn message(form: Form, id: u64, text: impl Into<Bytes>) -> Message {
        Message { meta: meta(form, id), ..Message::new(id, text, form == Form::Mercure || id != 4) }
    }

    fn publish(hub: &Hub, form: Form, text: impl Into<Bytes>) {
        let meta = meta(form, hub.last() + 1);
        let draft = Draft { data: text.into(), is_text: true, meta };
        assert!(hub.publish_as(draft).is_ok());
    }

    fn messages(form: Form) -> Vec<Message> {
        let texts = ["first", "", "two\nlines", "the last one"];
        (1..).zip(texts).map(|(id, text)| message(form, id, text)).collect()
    }

    /// The bytes of those messages that the subscriber gets.
    fn encoded(form: Form, messages: &[Message]) -> Bytes {
        let (_, record) = whole(form);
        let is_wanted =
            |message: &&Message| record.as_ref().is_none_or(|record| record.gets(message));
        let wanted: Vec<Message> = messages.iter().filter(is_wanted).cloned().collect();
        Encoded::new(form, SOURCE, &wanted).from(0)
    }

    fn parking_lot() -> Rc<ParkingLot> {
        let prepared = ParkingLot::prepare(Topology::Nested).unwrap();
        ParkingLot::open(prepared, Arc::default(), Arc::new(|event| panic!("{event}")))
    }

    /// An engine's subscribers of a channel. The engine lives as long as they do.
    fn subscribers(hub: &Arc<Hub>, lot: &Rc<ParkingLot>) -> Rc<LocalSubscribers> {
        LocalSubscribers::new(hub.clone(), &ChannelEngine::new(lot.clone()), Weak::new())
    }

    /// A connection of another server, and its client.
    fn connection() -> (ParkedConnection, UnixStream) {
        let (server, client) = UnixStream::pair().unwrap();
        server.set_nonblocking(true).unwrap();
        client.set_nonblocking(true).unwrap();
        let (socket, peer) = (Socket::Unix(server), Rc::new(Peer::default()));
        (ParkedConnection { socket, peer, token: 0, pending: None }, client)
    }

    /// Reads as many bytes as are expected.
    async fn read_all(mut client: &UnixStream, count: usize) -> Vec<u8> {
        let (mut found, end) = (Vec::new(), Instant::now() + PATIENCE);
        while found.len() < count {
            let mut room = [0; 1024];
            match client.read(&mut room) {
                Ok(0) => panic!("it ends after {found:?}"),
                Ok(count) => found.extend_from_slice(&room[..count]),
                Err(_) => yield_now().await,
            }
            assert!(Instant::now() < end, "{found:?}");
        }
        found
    }

    /// Whatever the last server had written when it was killed, its client gets each message once,
    /// and new messages behind them.
    #[test]
    fn a_successor_goes_on_behind_any_byte() {
        let options = Channel { history: 100, ..Channel::default() };
        Runtime::new().unwrap().block_on(async {
            let lot = parking_lot();
            for (form, after) in
                FORMS.into_iter().flat_map(|form| (0..=4).map(move |id| (form, id)))
            {
                let messages = messages(form);
                let after_it = &messages[usize::try_from(after).unwrap()..];
                let all = encoded(form, after_it);
                for count in 0..=all.len() + 1 {
                    let hub = Hub::restore("/c".into(), EPOCH, messages.clone());
                    hub.change(options.clone());
                    let subscribers = subscribers(&hub, &lot);
                    let (parked, client) = connection();
                    let written = count.min(all.len());
                    assert_eq!(write(&parked.socket, &all[..written]).unwrap(), written);
                    let state = (after, false);
                    let outcome = subscribers.adopt(parked, form, state, whole(form), count as u64);
                    if count > all.len() {
                        assert!(outcome.is_none() && hub.subscribers() == 0);
                        continue;
                    }
                    assert!(outcome.is_some());
                    publish(&hub, form, "next");
                    let expected = encoded(form, &[after_it, &[message(form, 5, "next")]].concat());
                    let found = read_all(&client, expected.len()).await;
                    assert!(found == expected, "{form:?} after {after}, {count} bytes: {found:?}");
                    // It is parked, unless its task has not had its turn yet.
                    let end = Instant::now() + PATIENCE;
                    while lot.len() != 1 {
                        assert!(Instant::now() < end, "{form:?} after {after}, {count} bytes");
                        yield_now().await;
                    }
                    // The next server begins here.
                    assert_eq!(
                        subscribers.last_given(0),
                        5,
                        "{form:?} after {after}, {count} bytes"
                    );
                    drop(client);
                    while hub.subscribers() > 0 {
                        assert!(Instant::now() < end, "{form:?} after {after}, {count} bytes");
                        yield_now().await;
                    }
                }
            }
        });
    }

    /// A subscriber that was sent more messages than are kept goes on all the same, if it was sent
    /// all of those that are not kept.
    #[test]
    fn a_successor_goes_on_behind_messages_that_are_not_kept() {
        let options = Channel { history: 100, ..Channel::default() };
        Runtime::new().unwrap().block_on(async {
            let lot = parking_lot();
            for form in [Form::WebSocket, Form::Json, Form::Events] {
                let text = |id: u64| "line\n".repeat(id as usize * 7);
                let messages: Vec<Message> =
                    (1..=8).map(|id| message(form, id, text(id))).collect();
                let offsets = |count: usize| {
                    let mut offsets = Offsets::default();
                    messages[..count].iter().for_each(|one| add(&mut offsets, one, SOURCE));
                    offsets
                };
                let offset = offsets(2)[form.counted().unwrap()];
                let all = encoded(form, &messages[2..]);
                let not_kept = encoded(form, &messages[2..4]).len();
                for count in 1..=all.len() + 1 {
                    let kept = messages[4..].to_vec();
                    let hub = Hub::restore_at("/c".into(), EPOCH, kept, offsets(4));
                    hub.change(options.clone());
                    let subscribers = subscribers(&hub, &lot);
                    let (parked, client) = connection();
                    let written = count.min(all.len());
                    assert_eq!(write(&parked.socket, &all[..written]).unwrap(), written);
                    let (state, rights) = ((2, Some(offset), false), whole(form));
                    let outcome =
                        subscribers.adopt_named(parked, form, state, rights, count as u64, None);
                    if count < not_kept || count > all.len() {
                        assert!(outcome.is_none() && hub.subscribers() == 0, "{form:?} {count}");
                        continue;
                    }
                    assert!(outcome.is_some(), "{form:?} {count}");
                    publish(&hub, form, "next");
                    let next = encoded(form, &[message(form, 9, "next")]);
                    let expected = [&all[..], &next].concat();
                    let found = read_all(&client, expected.len()).await;
                    assert!(found == expected, "{form:?} {count}");
                    drop(client);
                    let end = Instant::now() + PATIENCE;
                    while hub.subscribers() > 0 {
                        assert!(Instant::now() < end, "{form:?} {count}");
                        yield_now().await;
                    }
                }
            }
        });
    }

    /// The offsets that are kept with messages are those of the streams.
    #[test]
    fn offsets_are_places_in_the_streams() {
        let hub = Hub::restore_at("/c".into(), EPOCH, Vec::new(), [5; 3]);
        hub.change(Channel { history: 3, ..Channel::default() });
        hub.continue_in(Arc::new(NoRecords), 1);
        hub.finish_gathering();
        let mut all = Vec::new();
        for id in 1..=9_u64 {
            assert_eq!(hub.publish("x".repeat(id as usize * 40)), Some(id));
            all.push(Message::new(id, "x".repeat(id as usize * 40), true));
            for form in [Form::WebSocket, Form::Json, Form::Events] {
                for of in 0..=id {
                    let place = 5 + Encoded::new(form, SOURCE, &all[..of as usize]).len() as u64;
                    let is_known = of + 3 >= id;
                    assert_eq!(hub.offset(of, form), is_known.then_some(place), "{form:?} {of}");
                }
            }
            assert_eq!(hub.offset(id, Form::Mercure), None);
        }
    }

    struct NoRecords;

    impl RecordStore for NoRecords {
        fn keep(&self, _: u64, _: u64, _: &[u8]) {}
        fn trim(&self, _: u64, _: u64) {}
        fn has_room(&self) -> bool {
            true
        }
    }

    #[test]
    fn a_successor_tells_a_stream_that_messages_are_missing() {
        let options = |slow| Channel { history: 100, slow, ..Channel::default() };
        Runtime::new().unwrap().block_on(async {
            for (form, slow) in FORMS
                .into_iter()
                .flat_map(|form| [Slow::DropOldest, Slow::Disconnect].map(|slow| (form, slow)))
            {
                let messages = messages(form).split_off(2);
                let hub = Hub::restore("/c".into(), EPOCH, messages.clone());
                hub.change(options(slow));
                let subscribers = subscribers(&hub, &parking_lot());
                // A client that was sent some of the messages that are not kept is at an unknown
                // place.
                let (parked, _client) = connection();
                assert!(subscribers.adopt(parked, form, (0, false), whole(form), 1).is_none());
                let (parked, client) = connection();
                assert!(subscribers.adopt(parked, form, (0, false), whole(form), 0).is_some());
                let kept = encoded(form, &messages);
                let expected = match (form, slow) {
                    (_, Slow::DropOldest) => [&form.missed(2, SOURCE)[..], &kept].concat(),
                    (Form::Events | Form::Mercure, Slow::Disconnect) => b"0\r\n\r\n".to_vec(),
                    // 1013, to be closed and tried again.
                    (_, Slow::Disconnect) => b"\x88\x20\x03\xf5too many".to_vec(),
                };
                let found = read_all(&client, expected.len()).await;
                assert!(found.starts_with(&expected), "{form:?} {slow:?}: {found:?}");
            }
        });
    }

    /// Many messages, and many subscribers, are delivered in one go.
    #[test]
    fn messages_that_are_delivered_together_reach_those_who_get_them() {
        let options = Channel { history: 100, ..Channel::default() };
        Runtime::new().unwrap().block_on(async {
            for (form, count) in FORMS.into_iter().flat_map(|form| [(form, 1), (form, 30)]) {
                let lot = parking_lot();
                let hub = Hub::restore("/c".into(), EPOCH, messages(form));
                hub.change(options.clone());
                let subscribers = subscribers(&hub, &lot);
                let clients: Vec<UnixStream> = (0..count)
                    .map(|_| {
                        let (parked, client) = connection();
                        subscribers.adopt(parked, form, (4, false), whole(form), 0).unwrap();
                        client
                    })
                    .collect();
                let mut all = Vec::new();
                for id in 5..=40 {
                    let text = format!("message {id}");
                    all.push(message(form, id, text.clone()));
                    publish(&hub, form, text);
                }
                let expected = encoded(form, &all);
                for (number, client) in clients.iter().enumerate() {
                    let found = read_all(client, expected.len()).await;
                    assert!(found == expected, "{form:?} {number} of {count}: {found:?}");
                }
                assert_eq!(lot.len(), count, "{form:?}");
            }
        });
    }

    /// Its server may be killed at any time, and the next one counts the bytes that it wrote: they
    /// must be messages without a gap, up to the end of the stream.
    #[test]
    fn a_subscriber_that_misses_messages_ends_while_it_has_an_older_state() {
        const LENGTH: usize = 64 << 10;
        let options = Channel {
            history: 1000,
            backlog_bytes: 3 * LENGTH as u64,
            slow: Slow::DropOldest,
            ..Channel::default()
        };
        Runtime::new().unwrap().block_on(async {
            for form in FORMS {
                let hub = Hub::restore("/c".into(), EPOCH, Vec::new());
                hub.change(options.clone());
                let subscribers = subscribers(&hub, &parking_lot());
                let (parked, client) = connection();
                subscribers.adopt(parked, form, (0, false), whole(form), 0).unwrap();
                let mut all = Vec::new();
                for id in 1..=30 {
                    let data = vec![b'a' + id as u8 % 26; LENGTH];
                    all.push(Message { is_text: true, ..message(form, id, data.clone()) });
                    publish(&hub, form, data);
                    // One by one: otherwise the messages wait in the queue of the engine.
                    let end = Instant::now() + PATIENCE;
                    while subscribers.last_given(0) < id && hub.subscribers() > 0 {
                        assert!(Instant::now() < end, "{form:?} {id}");
                        yield_now().await;
                    }
                }
                assert!(hub.is_gathering());
                let encoded = encoded(form, &all);
                let (mut found, end) = (Vec::new(), Instant::now() + PATIENCE);
                loop {
                    let mut room = vec![0; LENGTH];
                    match (&client).read(&mut room) {
                        Ok(0) => break,
                        Ok(count) => found.extend_from_slice(&room[..count]),
                        Err(_) if hub.subscribers() == 0 => break,
                        Err(_) => yield_now().await,
                    }
                    assert!(Instant::now() < end, "{form:?}: {} bytes", found.len());
                }
                let last: &[u8] = match form {
                    Form::Events | Form::Mercure => b"0\r\n\r\n",
                    // 1013, to be closed and tried again.
                    Form::WebSocket | Form::Json => b"\x88\x20\x03\xf5",
                };
                let same = found.iter().zip(&encoded).take_while(|(one, other)| one == other);
                let same = same.count();
                assert!(same > LENGTH, "{form:?}: {same}");
                assert!(found[same..].starts_with(last), "{form:?}: a gap after {same} bytes");
            }
        });
    }

    /// Its state is left anew with each comment, and no comment is sent while another state may
    /// exist.
    #[test]
    fn signs_of_life_are_sent_only_to_subscribers_that_have_one_state() {
        Runtime::new().unwrap().block_on(async {
            for form in FORMS {
                let lot = parking_lot();
                let hub = Hub::restore("/c".into(), EPOCH, messages(form));
                let subscribers = subscribers(&hub, &lot);
                let (parked, client) = connection();
                subscribers.adopt(parked, form, (4, false), whole(form), 0).unwrap();
                let time_out = |subscribers: &Rc<LocalSubscribers>| {
                    let Delivery::Parked { key, .. } = subscribers.subscribers.borrow()[0].delivery
                    else {
                        panic!("it is not parked")
                    };
                    let parked = lot.take(key).unwrap();
                    subscribers.clone().resume_parked(0, parked, ResumeReason::TimedOut);
                };
                time_out(&subscribers);
                assert!((&client).read(&mut [0; 16]).is_err(), "{form:?}");
                assert_eq!((lot.len(), subscribers.last_given(0)), (1, 4));
                hub.finish_gathering();
                time_out(&subscribers);
                let sign = form.sign_of_life();
                assert_eq!(read_all(&client, sign.len()).await, sign);
                assert_eq!((lot.len(), subscribers.last_given(0)), (1, 4));
                // A WebSocket has to answer, a stream need not.
                time_out(&subscribers);
                assert_eq!(hub.subscribers(), usize::from(form.is_body()));
            }
        });
    }
}
