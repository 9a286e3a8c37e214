//! Parked subscribers, and successors.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::rc::Weak;
use std::sync::Arc;
use std::time::Instant;

use superpoll::backend::Topology;
use superpoll_config::Channel;
use superpoll_http::mercure::reader_record::ReaderRecord;
use superpoll_http::parking_lot::ParkingLot;
use superpoll_http::peer::Peer;
use superpoll_http::transport::Socket;
use superpoll_rt::{Runtime, time, yield_now};

use super::super::engine::ChannelEngine;
use super::super::form::{Offsets, add};
use super::super::grip::item;
use super::super::hub::Hub;
use super::super::json_frame::Source;
use super::super::message::{Draft, Message, Meta, Update};
use super::*;
use crate::succession::records::RecordStore;

mod encrypted;

/// A subscriber without a name: its last message, where the next ones begin, and whether it has to
/// answer a sign of life; and its rights.
fn left_by(
    form: Form,
    (last, offset, pinged): (u64, Option<u64>, bool),
    (grant, reader): (Grant, Option<Selection>),
) -> LeftSubscriber {
    LeftSubscriber { form, last, offset, pinged, grant, reader, user: None }
}

impl LocalSubscribers {
    fn adopt_plain(
        self: &Rc<LocalSubscribers>,
        parked: ParkedConnection,
        form: Form,
        (last, pinged): (u64, bool),
        rights: (Grant, Option<Selection>),
        sent: u64,
    ) -> Option<()> {
        let left = LeftConnection { parked, sent, keys: None, is_orderly: false };
        self.adopt(left, left_by(form, (last, None, pinged), rights))
    }
}

const FORMS: [Form; Form::COUNT] =
    [Form::WebSocket, Form::Json, Form::Events, Form::Mercure, Form::Held, Form::HeldSocket];
const PATIENCE: Duration = Duration::from_secs(20);
const EPOCH: u64 = 7;
const SOURCE: Source<'static> = Source { epoch: EPOCH, name: "/c" };
const FOREVER: Grant = Grant::unlimited(true);

/// The rights of a subscriber that gets all messages.
fn whole(form: Form) -> (Grant, Option<Selection>) {
    let some = ReaderRecord { topics: vec!["/c".to_owned().into()], ..Default::default() };
    let selection = match form {
        Form::Mercure => Some(some.into()),
        Form::Held | Form::HeldSocket => Some(item::tests::held(form, &["/c"]).into()),
        _ => None,
    };
    (FOREVER, selection)
}

/// Returns the options of a channel for subscribers of a form.
fn options_for(form: Form, options: &Channel) -> Channel {
    Channel { grip: form.is_held(), ..options.clone() }
}

/// Some of the messages of Mercure, and some items, are for others.
fn topic(id: u64) -> &'static str {
    if id % 3 == 2 && id != 5 { "/other" } else { "/c" }
}

fn meta(form: Form, id: u64) -> Option<Arc<Meta>> {
    let topic = topic(id);
    let update = Update { topics: vec![topic.to_owned()], ..Update::default() };
    let meta = Meta { update: Some(Box::new(update)), ..Meta::default() };
    (form == Form::Mercure).then(|| Arc::new(meta))
}

fn message(form: Form, id: u64, text: impl Into<Bytes>) -> Message {
    if form.is_held() {
        return Message::new(id, item::tests::item(topic(id), text.into()).draft().data, false);
    }
    Message { meta: meta(form, id), ..Message::new(id, text, form == Form::Mercure || id != 4) }
}

fn publish(hub: &Hub, form: Form, text: impl Into<Bytes>) {
    let Message { data, is_text, meta, .. } = message(form, hub.last() + 1, text);
    let draft = Draft { data, is_text: is_text || !form.is_held(), meta };
    assert!(hub.publish_as(draft).is_ok());
}

fn messages(form: Form) -> Vec<Message> {
    let texts = ["first", "", "two\nlines", "the last one"];
    (1..).zip(texts).map(|(id, text)| message(form, id, text)).collect()
}

/// The bytes of those messages that the subscriber gets.
fn encoded(form: Form, messages: &[Message]) -> Bytes {
    let (_, record) = whole(form);
    let is_wanted = |message: &&Message| record.as_ref().is_none_or(|record| record.has(message));
    let wanted: Vec<Message> = messages.iter().filter(is_wanted).cloned().collect();
    Encoded::new(form, SOURCE, &wanted).from(0)
}

fn parking_lot() -> Rc<ParkingLot> {
    let prepared = ParkingLot::prepare(Topology::Nested, false).unwrap();
    ParkingLot::open(prepared, Arc::default(), Arc::new(|event| panic!("{event}")))
}

/// An engine's subscribers of a channel. The engine lives as long as they do.
fn subscribers(hub: &Arc<Hub>, lot: &Rc<ParkingLot>) -> Rc<LocalSubscribers> {
    LocalSubscribers::new(hub.clone(), &ChannelEngine::new(lot.clone()), Weak::new())
}

/// A connection of another server, and its client.
fn connection() -> (ParkedConnection, UnixStream) {
    let (server, client) = UnixStream::pair().unwrap();
    client.set_nonblocking(true).unwrap();
    (parked(server), client)
}

fn parked(server: UnixStream) -> ParkedConnection {
    server.set_nonblocking(true).unwrap();
    let (socket, peer) = (Socket::Unix(server), Rc::new(Peer::default()));
    ParkedConnection { stream: socket.into(), peer, token: 0, pending: None }
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
/// and new messages after them.
#[test]
fn a_successor_goes_on_behind_any_byte() {
    let options = Channel { history: 100, ..Channel::default() };
    Runtime::new().unwrap().block_on(async {
        let lot = parking_lot();
        for (form, after) in FORMS.into_iter().flat_map(|form| (0..=4).map(move |id| (form, id))) {
            let messages = messages(form);
            let after_it = &messages[usize::try_from(after).unwrap()..];
            let all = encoded(form, after_it);
            for count in 0..=all.len() + 1 {
                let hub = Hub::restore("/c".into(), EPOCH, messages.clone());
                hub.change(options_for(form, &options));
                let subscribers = subscribers(&hub, &lot);
                let (parked, client) = connection();
                let written = count.min(all.len());
                assert_eq!(parked.stream.write_raw(&all[..written]).unwrap(), written);
                let state = (after, false);
                let outcome =
                    subscribers.adopt_plain(parked, form, state, whole(form), count as u64);
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
                while lot.parked() != 1 {
                    assert!(Instant::now() < end, "{form:?} after {after}, {count} bytes");
                    yield_now().await;
                }
                // The next server begins here.
                assert_eq!(subscribers.last_given(0), 5, "{form:?} after {after}, {count} bytes");
                drop(client);
                while hub.subscribers() > 0 {
                    assert!(Instant::now() < end, "{form:?} after {after}, {count} bytes");
                    yield_now().await;
                }
            }
        }
    });
}

/// A server that was killed may have sent messages that nobody knows any more. Those that its
/// successor has published by then have their numbers, and are not taken for them.
#[test]
fn a_successor_does_not_take_its_own_messages_for_those_of_another_server() {
    let options = Channel { history: 100, ..Channel::default() };
    Runtime::new().unwrap().block_on(async {
        let lot = parking_lot();
        for form in FORMS {
            let messages = messages(form);
            let all = encoded(form, &messages);
            let own = encoded(form, &[message(form, 5, "own")]);
            for (last, sent, goes_on) in [
                (0, all.len(), true),
                (0, all.len() + 1, false),
                (0, all.len() + own.len(), false),
                (4, own.len(), false),
                (4, 0, true),
                (5, 0, false),
            ] {
                let hub = Hub::restore("/c".into(), EPOCH, messages.clone());
                hub.change(options_for(form, &options));
                publish(&hub, form, "own");
                let subscribers = subscribers(&hub, &lot);
                let (parked, client) = connection();
                let outcome =
                    subscribers.adopt_plain(parked, form, (last, false), whole(form), sent as u64);
                assert_eq!(outcome.is_some(), goes_on, "{form:?} {last} {sent}");
                if goes_on {
                    assert!(read_all(&client, own.len()).await == own, "{form:?} {last} {sent}");
                }
            }
        }
    });
}

/// A subscriber that was sent more messages than are kept continues all the same, if it was sent
/// all of those that are not kept.
#[test]
fn a_successor_goes_on_behind_messages_that_are_not_kept() {
    let options = Channel { history: 100, ..Channel::default() };
    Runtime::new().unwrap().block_on(async {
        let lot = parking_lot();
        for form in [Form::WebSocket, Form::Json, Form::Events] {
            let text = |id: u64| "line\n".repeat(id as usize * 7);
            let messages: Vec<Message> = (1..=8).map(|id| message(form, id, text(id))).collect();
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
                hub.change(options_for(form, &options));
                let subscribers = subscribers(&hub, &lot);
                let (parked, client) = connection();
                let written = count.min(all.len());
                assert_eq!(parked.stream.write_raw(&all[..written]).unwrap(), written);
                let (state, rights) = ((2, Some(offset), false), whole(form));
                let sent = count as u64;
                let left = LeftConnection { parked, sent, keys: None, is_orderly: false };
                let outcome = subscribers.adopt(left, left_by(form, state, rights));
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
            hub.change(options_for(form, &options(slow)));
            let subscribers = subscribers(&hub, &parking_lot());
            // A client that was sent some of the messages that are not kept is at an unknown
            // place.
            let (parked, _client) = connection();
            assert!(subscribers.adopt_plain(parked, form, (0, false), whole(form), 1).is_none());
            let (parked, client) = connection();
            assert!(subscribers.adopt_plain(parked, form, (0, false), whole(form), 0).is_some());
            let kept = encoded(form, &messages);
            let expected = match (form, slow) {
                // What the log has forgotten was for others, as nothing was written.
                (Form::Held | Form::HeldSocket, _) => kept.to_vec(),
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
            hub.change(options_for(form, &options));
            let subscribers = subscribers(&hub, &lot);
            let clients: Vec<UnixStream> = (0..count)
                .map(|_| {
                    let (parked, client) = connection();
                    subscribers.adopt_plain(parked, form, (4, false), whole(form), 0).unwrap();
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
            assert_eq!(lot.parked(), count, "{form:?}");
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
    Runtime::builder().start_paused(true).build().unwrap().block_on(async {
        for form in FORMS {
            let hub = Hub::restore("/c".into(), EPOCH, Vec::new());
            hub.change(options_for(form, &options));
            let subscribers = subscribers(&hub, &parking_lot());
            let (parked, client) = connection();
            subscribers.adopt_plain(parked, form, (0, false), whole(form), 0).unwrap();
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
                    // Time passes as soon as nothing more comes.
                    Err(_) => time::sleep(Duration::from_millis(1)).await,
                }
                assert!(Instant::now() < end, "{form:?}: {} bytes", found.len());
            }
            let last: &[u8] = match form {
                Form::Events | Form::Mercure | Form::Held => b"0\r\n\r\n",
                // 1013, to be closed and tried again.
                Form::WebSocket | Form::Json | Form::HeldSocket => b"\x88\x20\x03\xf5",
            };
            let same = found.iter().zip(&encoded).take_while(|(one, other)| one == other);
            let same = same.count();
            assert!(same > LENGTH, "{form:?}: {same}");
            assert!(found[same..].starts_with(last), "{form:?}: a gap after {same} bytes");
        }
    });
}

/// Its state is left again with each comment, and no comment is sent while another state may
/// exist.
#[test]
fn signs_of_life_are_sent_only_to_subscribers_that_have_one_state() {
    Runtime::new().unwrap().block_on(async {
        for form in FORMS {
            let lot = parking_lot();
            let hub = Hub::restore("/c".into(), EPOCH, messages(form));
            let subscribers = subscribers(&hub, &lot);
            let (parked, client) = connection();
            subscribers.adopt_plain(parked, form, (4, false), whole(form), 0).unwrap();
            let time_out = |subscribers: &Rc<LocalSubscribers>| {
                let SubscriberState::Parked { key, .. } =
                    subscribers.subscribers.borrow()[0].delivery
                else {
                    panic!("it is not parked")
                };
                let parked = lot.take(key).unwrap();
                subscribers.clone().resume_parked(0, parked, ResumeReason::TimedOut);
            };
            time_out(&subscribers);
            assert!((&client).read(&mut [0; 16]).is_err(), "{form:?}");
            assert_eq!((lot.parked(), subscribers.last_given(0)), (1, 4));
            hub.finish_gathering();
            time_out(&subscribers);
            let sign = form.sign_of_life();
            assert_eq!(read_all(&client, sign.len()).await, sign);
            assert_eq!((lot.parked(), subscribers.last_given(0)), (1, 4));
            // A WebSocket has to answer, a stream need not.
            time_out(&subscribers);
            assert_eq!(hub.subscribers(), usize::from(form.is_body()));
        }
    });
}

/// A subscriber whose socket the kernel does not watch any more would miss nothing but the end of
/// its client, for good.
#[test]
fn a_subscriber_that_cannot_be_watched_is_ended() {
    Runtime::new().unwrap().block_on(async {
        for form in FORMS {
            let lot = parking_lot();
            let hub = Hub::restore("/c".into(), EPOCH, messages(form));
            let subscribers = subscribers(&hub, &lot);
            let (parked, client) = connection();
            subscribers.adopt_plain(parked, form, (4, false), whole(form), 0).unwrap();
            let SubscriberState::Parked { key, .. } = subscribers.subscribers.borrow()[0].delivery
            else {
                panic!("it is not parked")
            };
            let parked = lot.take(key).unwrap();
            subscribers.clone().resume_parked(0, parked, ResumeReason::Refused);
            let end = Instant::now() + PATIENCE;
            let mut shutdown = false;
            while hub.subscribers() > 0 {
                assert!(Instant::now() < end, "{form:?}");
                // A WebSocket waits for its client to close as well.
                if !shutdown && matches!((&client).read(&mut [0; 64]), Ok(1..)) {
                    client.shutdown(std::net::Shutdown::Write).unwrap();
                    shutdown = true;
                }
                yield_now().await;
            }
            assert_eq!(lot.parked(), 0);
        }
    });
}
