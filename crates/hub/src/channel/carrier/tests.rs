//! Random subscribers on streams of a connection, whose server ends at any byte.

use std::cell::Cell;
use std::collections::HashMap;
use std::future::poll_fn;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::SystemTime;

use http::StatusCode;
use http_body::Body as _;
use superpoll::backend::Topology;
use superpoll_config::Channel;
use superpoll_http::connection_state::LeftConnection;
use superpoll_http::grant::Grant;
use superpoll_http::http2_stream::StreamPipe;
use superpoll_http::mercure::reader_record::ReaderRecord;
use superpoll_http::parking_lot::{ParkedConnection, ParkingLot};
use superpoll_http::peer::Peer;
use superpoll_http::transport::Socket;
use superpoll_http2::{Config, Connection, Event, FRAME_HEAD, PREFACE, Record, Scratch};
use superpoll_rt::{Runtime, yield_now};

use super::*;
use crate::channel::cursor::Cursor;
use crate::channel::engine::ChannelEngine;
use crate::channel::hub::Hub;
use crate::channel::json_frame::Source;
use crate::channel::message::{Draft, Message, Meta, Update};
use crate::channel::parked::LeftSubscriber;
use crate::channel::reader::Selection;
use crate::channel::replay;

const EPOCH: u64 = 7;
const FOREVER: Grant = Grant::unlimited(true);

/// The records that a keeper would have.
#[derive(Default)]
struct Store(Mutex<HashMap<(u64, u64), Vec<u8>>>);

impl RecordStore for Store {
    fn keep(&self, space: u64, id: u64, bytes: &[u8]) {
        let mut records = self.0.lock().unwrap();
        match bytes.is_empty() {
            true => records.remove(&(space, id)),
            false => records.insert((space, id), bytes.to_vec()),
        };
    }

    fn trim(&self, _: u64, _: u64) {}

    fn has_room(&self) -> bool {
        true
    }
}

/// Keeps connections that would go on in a task.
#[derive(Default)]
struct Taken(Cell<Option<Resumed>>);

impl GoesOn for Taken {
    fn go_on(self: Rc<Taken>, resumed: Resumed) {
        assert!(self.0.replace(Some(resumed)).is_none());
    }
}

fn random(state: &mut u64) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    usize::try_from(*state >> 33).unwrap()
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Returns the record of a connection with so many streams that have the heads of their responses.
/// The client has given each of them a window of so many bytes.
fn record(streams: usize, window: u32) -> Record {
    let (mut out, mut scratch) = (Vec::new(), Scratch::default());
    let mut connection = Connection::new(Config::DEFAULT, &mut out);
    let settings = [&[0, 4], &window.to_be_bytes()[..]].concat();
    let of_connection = frame(8, 0, 0, &(1_u32 << 20).to_be_bytes());
    let mut bytes = [PREFACE, &frame(4, 0, 0, &settings), &of_connection].concat();
    for index in 0..streams {
        let stream = u32::try_from(2 * index + 1).unwrap();
        bytes.extend(frame(1, 5, stream, &[0x82, 0x87, 0x84, 0x01, 1, b'a']));
    }
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        let step = connection.receive(rest, 0, &mut scratch, &mut out).unwrap();
        rest = &rest[step.used..];
        if let Event::Request { stream, .. } = step.event {
            connection.respond(stream, StatusCode::OK, false, &mut out).unwrap().finish();
            connection.set_held(stream, true);
        }
    }
    assert!(connection.is_quiet());
    let mut record = Vec::new();
    connection.to_record(&mut record);
    Record::from(Box::from(record))
}

/// A subscriber, by its channel: it gets all messages, or some of those of Mercure. A long-poll
/// gets the first ones in one answer.
#[derive(Clone, Copy, Debug)]
struct Asked {
    channel: usize,
    form: Form,
    topic: &'static str,
    is_poll: bool,
}

impl Asked {
    fn reader(self) -> Option<ReaderRecord> {
        let topics = vec![self.topic.to_owned().into()];
        let is_reader = self.form == Form::Mercure && !self.is_poll;
        is_reader.then(|| ReaderRecord { topics, ..Default::default() })
    }

    /// Returns it as another server has left it after a message.
    fn left(self, last: u64) -> LeftWork {
        if self.is_poll {
            let (may_have_hsts, wait) = (false, Duration::from_secs(60));
            return LeftWork::Poll { grant: FOREVER, may_have_hsts, wait, held: None };
        }
        LeftWork::Messages(LeftSubscriber {
            form: self.form,
            last,
            offset: None,
            pinged: false,
            grant: FOREVER,
            reader: self.reader().map(Selection::from),
            user: None,
        })
    }

    fn gets(self, message: &Message) -> bool {
        let reader = self.reader();
        reader.is_none_or(|reader| Selection::from(reader).has(message))
    }
}

/// A server's part of it all.
struct Side {
    lot: Rc<ParkingLot>,
    hubs: Vec<Arc<Hub>>,
    subscribers: Vec<Rc<LocalSubscribers>>,
    taken: Rc<Taken>,
}

impl Side {
    fn new(messages: &[Vec<Message>], history: usize) -> Side {
        let prepared = ParkingLot::prepare(Topology::Nested, false).unwrap();
        let lot = ParkingLot::open(prepared, Arc::default(), Arc::new(|event| panic!("{event}")));
        let engine = ChannelEngine::new(lot.clone());
        let hub = |(index, messages): (usize, &Vec<Message>)| {
            let kept = messages[messages.len().saturating_sub(history)..].to_vec();
            let hub = Hub::restore(format!("/{index}").as_str().into(), EPOCH, kept);
            hub.change(Channel { history, backlog_bytes: 1 << 30, ..Channel::default() });
            hub
        };
        let hubs: Vec<_> = messages.iter().enumerate().map(hub).collect();
        let local = |hub: &Arc<Hub>| LocalSubscribers::new(hub.clone(), &engine, Weak::new());
        let subscribers = hubs.iter().map(local).collect();
        Side { lot, hubs, subscribers, taken: Rc::default() }
    }
}

fn publish(hub: &Hub, text: String, topic: &str) {
    let update = Update { topics: vec![topic.to_owned()], ..Update::default() };
    let meta = Meta { update: Some(Box::new(update)), ..Meta::default() };
    let draft = Draft { data: text.into(), is_text: true, meta: Some(Arc::new(meta)) };
    assert!(hub.publish_as(draft).is_ok());
}

fn connection() -> (ParkedConnection, UnixStream) {
    let (server, client) = UnixStream::pair().unwrap();
    server.set_nonblocking(true).unwrap();
    client.set_nonblocking(true).unwrap();
    let (socket, peer) = (Socket::Unix(server), Rc::new(Peer::default()));
    (ParkedConnection { stream: socket.into(), peer, token: 0, pending: None }, client)
}

/// Reads the bytes that have come.
fn read(mut client: &UnixStream, to: &mut Vec<u8>) {
    let mut room = [0; 1 << 16];
    while let Ok(count @ 1..) = client.read(&mut room) {
        to.extend_from_slice(&room[..count]);
    }
}

/// Lets the engine deliver all messages.
async fn deliver() {
    for _ in 0..10 {
        yield_now().await;
    }
}

/// Returns the data of each stream.
fn data(mut bytes: &[u8], streams: usize) -> Vec<Vec<u8>> {
    let mut all = vec![Vec::new(); streams];
    while !bytes.is_empty() {
        let length = usize::from(bytes[1]) << 8 | usize::from(bytes[2]);
        assert_eq!((bytes[0], bytes[3]), (0, 0), "it is data");
        let (frame, rest) = bytes.split_at(FRAME_HEAD + length);
        all[usize::from(frame[8]) / 2].extend_from_slice(&frame[FRAME_HEAD..]);
        bytes = rest;
    }
    all
}

/// Adds the frames that a task would send at once.
async fn finish(resumed: Resumed, bytes: &mut Vec<u8>) {
    bytes.extend_from_slice(&resumed.rest);
    for RestingStream { stream, work } in resumed.streams {
        match work {
            RestingWork::Body(mut body, _) => {
                let mut next = |cx: &mut Context<'_>| {
                    Poll::Ready(match Pin::new(&mut body).poll_frame(cx) {
                        Poll::Ready(Some(frame)) => frame.unwrap().into_data().ok(),
                        _ => None,
                    })
                };
                while let Some(data) = poll_fn(&mut next).await {
                    bytes.extend(frame(0, 0, stream, &data));
                }
            }
            RestingWork::Answer(mut answer, _) => {
                let mut cx = Context::from_waker(Waker::noop());
                if let Poll::Ready(response) = answer.poll(&mut cx) {
                    let mut body = response.into_body();
                    while let Some(data) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
                        bytes.extend(frame(0, 0, stream, &data.unwrap().into_data().unwrap()));
                    }
                }
            }
            RestingWork::Socket(resting) => {
                let pipe = StreamPipe::at_rest(Waker::noop().clone(), resting);
                pipe.resume();
                pipe.ask_to_rest();
                while !pipe.can_rest() {
                    yield_now().await;
                    let data = pipe.take_written();
                    if !data.is_empty() {
                        bytes.extend(frame(0, 0, stream, &data));
                    }
                }
            }
        }
    }
}

/// No stream gets more than its client has allowed while the connection is parked.
fn check_window(bytes: &[u8], streams: usize, window: usize) {
    // It may end within a frame, the rest of which is on its way.
    let mut whole = 0;
    while let Some(head) = bytes.get(whole..whole + FRAME_HEAD) {
        let length = usize::from(head[1]) << 8 | usize::from(head[2]);
        if bytes.len() < whole + FRAME_HEAD + length {
            break;
        }
        whole += FRAME_HEAD + length;
    }
    assert!(data(&bytes[..whole], streams).iter().all(|data| data.len() <= window));
}

/// A connection, and its time at its first server.
struct Game {
    asked: Vec<Asked>,
    record: Record,
    window: usize,
    /// All messages of each channel.
    messages: Vec<Vec<Message>>,
    /// The last messages when it was parked.
    before: Vec<u64>,
    history: usize,
    intent: Option<WriteIntent>,
    /// The bytes for the client, and how many of them came before the last messages were published.
    bytes: Vec<u8>,
    from: usize,
    /// It was parked all the time.
    stays: bool,
}

/// Plays the part of the first server.
async fn play(seed: u64) -> Game {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    // Some have one channel, and much to say at the end.
    let is_crowded = seed % 8 == 7;
    let channels = if is_crowded { 1 } else { 1 + random(&mut state) % 2 };
    // A connection whose long-polls have nothing to say stays parked.
    let is_calm = channels == 2 && random(&mut state).is_multiple_of(2);
    let history = if is_crowded { 8 } else { [8, 12, 1000][random(&mut state) % 3] };
    let asked: Vec<Asked> = (0..if is_crowded { 3 } else { 1 + random(&mut state) % 4 })
        .map(|_| {
            let forms = [Form::Events, Form::Mercure, Form::WebSocket, Form::Json];
            let form = forms[random(&mut state) % forms.len()];
            let topic = ["/a", "/b"][random(&mut state) % 2];
            let channel = random(&mut state) % channels;
            let is_poll = match is_calm {
                true => channel == 1,
                false => !is_crowded && random(&mut state).is_multiple_of(6),
            };
            Asked { channel, form, topic, is_poll }
        })
        .collect();
    let side = Side::new(&vec![Vec::new(); channels], history);
    let store = Arc::new(Store::default());
    for (space, hub) in (1..).zip(&side.hubs) {
        hub.record_in(store.clone(), space);
        for number in 0..random(&mut state) % 3 {
            publish(hub, format!("before {number}"), "/a");
        }
    }
    deliver().await;
    let before = side.hubs.iter().map(|hub| hub.last()).collect();
    let window: usize = if random(&mut state).is_multiple_of(4) { 300 } else { 1 << 20 };
    let record = record(asked.len(), u32::try_from(window).unwrap());
    let mut streams = Vec::new();
    for (stream, one) in (0..).zip(&asked) {
        let work = rests(&side.subscribers[one.channel], *one, FOREVER);
        streams.push(RestingStream { stream: 2 * stream + 1, work });
    }
    let (parked, client) = connection();
    // Bytes for which its socket has no room are left to a task.
    let is_slow = !is_crowded && random(&mut state).is_multiple_of(5);
    // Some messages of a moment are too many for one write.
    let is_large = is_crowded || random(&mut state).is_multiple_of(5);
    let most = if is_large { 12_000 } else { 60 };
    if is_slow {
        socket2::SockRef::from(&parked.stream).set_send_buffer_size(1).unwrap();
    }
    Carrier::park(side.taken.clone(), parked, record.clone(), streams);
    let (mut bytes, mut from, mut pending) = (Vec::new(), 0, 0);
    for number in 0..random(&mut state) % if is_large { 9 } else { 30 } {
        let hub = &side.hubs[if is_calm { 0 } else { random(&mut state) % channels }];
        let text = "x".repeat(random(&mut state) % most);
        publish(hub, format!("{number} {text}"), ["/a", "/b"][random(&mut state) % 2]);
        pending += 1;
        if pending == 4 || (!is_large && !random(&mut state).is_multiple_of(3)) {
            (from, pending) = (bytes.len(), 0);
            deliver().await;
            if !is_slow {
                read(&client, &mut bytes);
            }
        }
    }
    if pending > 0 {
        from = bytes.len();
        deliver().await;
    }
    read(&client, &mut bytes);
    let stays = side.lot.parked() == 1;
    check_window(&bytes, asked.len(), window);
    if let Some(resumed) = side.taken.0.take() {
        assert!(!stays);
        finish(resumed, &mut bytes).await;
    }
    let messages = side.hubs.iter().map(|hub| hub.kept(1, hub.last(), u64::MAX).messages);
    let messages = messages.collect();
    let records = store.0.lock().unwrap();
    let mut intent = records.iter().filter(|((space, _), _)| *space == INTENTS);
    let intent = intent.next().and_then(|(_, bytes)| WriteIntent::decode(bytes));
    Game { asked, record, window, messages, before, history, intent, bytes, from, stays }
}

/// Returns a subscriber that waits for news.
fn rests(subscribers: &Rc<LocalSubscribers>, one: Asked, grant: Grant) -> RestingWork {
    let (since, _) = subscribers.enter(None, None);
    let mailbox = Rc::new(Mailbox::default());
    let task = SubscriberState::Task(mailbox.clone());
    let subscription = subscribers.add(since.last, grant, task);
    if one.is_poll {
        let until = time::now() + Duration::from_secs(60);
        let poll = WaitingPoll::new(subscription, mailbox, since.last, until, Rc::default());
        return RestingWork::Answer(Box::new(poll), Note::default());
    }
    if let Some(reader) = one.reader() {
        subscribers.read_as(subscription.index, reader, false);
    }
    let (form, peer, sign) = (one.form, Rc::default(), LastSign::now(false));
    let resting = RestingSubscriber { subscription, mailbox, form, peer, sign };
    match form.is_body() {
        true => RestingWork::Body(Body::resting(EventsBody::again(resting)), None),
        false => RestingWork::Socket(Box::new(resting)),
    }
}

/// Checks the data of each stream. Whatever is left of the history, the messages are known to the
/// test.
fn check(
    found: &[Vec<u8>],
    asked: &[Asked],
    messages: &[Vec<Message>],
    before: &[u64],
    about: &str,
) {
    for (found, one) in found.iter().zip(asked) {
        let is_new = |message: &&Message| message.id > before[one.channel] && one.gets(message);
        let messages: Vec<Message> = messages[one.channel].iter().filter(is_new).cloned().collect();
        let is_right = if one.is_poll {
            // With how many of them it is answered is not known.
            let is_answer = |count: usize| {
                let cursor = Cursor { id: messages[count - 1].id, epoch: Some(EPOCH) };
                replay::json(&messages[..count], false, cursor) == found
            };
            (messages.is_empty() && found.is_empty()) || (1..=messages.len()).any(is_answer)
        } else {
            let (mut text, name) = (Vec::new(), format!("/{}", one.channel));
            for message in &messages {
                one.form.write_data(message, Source { epoch: EPOCH, name: &name }, &mut text);
            }
            *found == text
        };
        let found = String::from_utf8_lossy(found);
        assert!(is_right, "{about}: {one:?} {messages:?} {found}");
    }
}

/// Each stream gets each of its messages once and in order, at the server where it is parked and at
/// the next one, behind whatever byte the first one was killed.
#[test]
fn streams_get_each_message_once_behind_any_byte() {
    let (mut parked, mut recorded, mut adopted) = (0, 0, 0);
    for seed in 1..120 {
        Runtime::new().unwrap().block_on(async {
            let game = play(seed).await;
            let Game { asked, record, window, messages, before, history, .. } = game;
            let Game { intent, bytes, from, stays, .. } = game;
            let all = messages.iter().all(|messages| messages.first().is_none_or(|it| it.id == 1));
            if all {
                let found = data(&bytes, asked.len());
                check(&found, &asked, &messages, &before, &format!("seed {seed}"));
            }
            // A socket has to take the beginning at once.
            if !stays || bytes.len() > 150_000 {
                return;
            }
            parked += 1;
            recorded += u64::from(intent.is_some());
            let last = intent.as_ref().map_or(0, |it| usize::try_from(it.bytes).unwrap());
            let from = from.max(last);
            for count in (from..=bytes.len()).step_by(1 + (bytes.len() - from) / 500) {
                // Perhaps the first server was killed before it delivered its last messages.
                let mut known = messages.clone();
                for messages in known.iter_mut().filter(|_| seed % 3 == 0) {
                    let id = messages.last().map_or(0, |message| message.id) + 1;
                    messages.push(Message::new(id, b"not delivered".to_vec(), true));
                }
                let side = Side::new(&known, history);
                let (connection, client) = connection();
                assert_eq!(connection.stream.write_raw(&bytes[..count]).unwrap(), count);
                let left = LeftConnection {
                    parked: connection,
                    sent: count as u64,
                    keys: None,
                    is_orderly: false,
                };
                let stream = |(number, one): (u32, &Asked)| LeftStream {
                    stream: 2 * number + 1,
                    subscribers: side.subscribers[one.channel].clone(),
                    last: before[one.channel],
                    work: one.left(before[one.channel]),
                };
                let streams = (0..).zip(&asked).map(stream).collect();
                let (record, intent) = (record.clone(), intent.clone());
                let carrier = LeftCarrier { requests: 1, record, intent, streams };
                let outcome = adopt(side.taken.clone(), left, carrier);
                assert!(outcome.is_some(), "seed {seed}, {count} bytes of {}", bytes.len());
                adopted += 1;
                for hub in &side.hubs {
                    (0..8).for_each(|_| publish(hub, "next".to_owned(), "/a"));
                }
                deliver().await;
                let mut found = Vec::new();
                read(&client, &mut found);
                check_window(&found, asked.len(), window);
                if let Some(resumed) = side.taken.0.take() {
                    finish(resumed, &mut found).await;
                }
                let mut after = known;
                for (messages, hub) in after.iter_mut().zip(&side.hubs) {
                    messages.extend(hub.kept(hub.last() - 7, hub.last(), u64::MAX).messages);
                }
                let found = data(&found, asked.len());
                check(&found, &asked, &after, &before, &format!("seed {seed}, {count} bytes"));
            }
        });
    }
    assert!(parked > 40 && recorded > 20 && adopted > 10_000, "{parked} {recorded} {adopted}");
}

/// Returns rights that end in a moment.
fn soon() -> Grant {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    Grant::until(Some(now.as_secs() + 1), false)
}

/// It does not rest again, whatever is left of its time.
#[test]
fn a_long_poll_is_answered_when_its_rights_end() {
    Runtime::new().unwrap().block_on(async {
        let side = Side::new(&[Vec::new()], 1000);
        let one = Asked { channel: 0, form: Form::Events, topic: "", is_poll: true };
        let soon = soon();
        let streams =
            vec![RestingStream { stream: 1, work: rests(&side.subscribers[0], one, soon) }];
        let (parked, _client) = connection();
        while !soon.is_over() {
            std::thread::sleep(Duration::from_millis(10));
        }
        Carrier::park(side.taken.clone(), parked, record(1, 1 << 20), streams);
        let resumed = side.taken.0.take().expect("it has a task");
        let [RestingStream { work: RestingWork::Answer(mut answer, _), .. }] =
            <[_; 1]>::try_from(resumed.streams).ok().unwrap()
        else {
            panic!("a long-poll")
        };
        assert!(!answer.can_rest());
        match answer.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(response) => assert_eq!(response.status(), StatusCode::NO_CONTENT),
            Poll::Pending => panic!("it has no answer"),
        }
    });
}

/// The rights of one stream end, and the lot has not noticed it yet.
#[test]
fn a_stream_whose_rights_end_takes_no_message_from_another() {
    Runtime::new().unwrap().block_on(async {
        let side = Side::new(&[Vec::new()], 1000);
        let one = Asked { channel: 0, form: Form::Events, topic: "", is_poll: false };
        let soon = soon();
        let grants = [FOREVER, soon, FOREVER];
        let streams = (0..).zip(grants).map(|(number, grant): (u32, _)| {
            let work = rests(&side.subscribers[0], one, grant);
            RestingStream { stream: 2 * number + 1, work }
        });
        let (parked, client) = connection();
        Carrier::park(side.taken.clone(), parked, record(3, 1 << 20), streams.collect());
        assert_eq!(side.lot.parked(), 1);
        while !soon.is_over() {
            std::thread::sleep(Duration::from_millis(10));
        }
        publish(&side.hubs[0], "late".to_owned(), "/a");
        deliver().await;
        let mut bytes = Vec::new();
        read(&client, &mut bytes);
        finish(side.taken.0.take().expect("it has a task"), &mut bytes).await;
        let [first, over, last] = &data(&bytes, 3)[..] else { panic!("three streams") };
        for data in [first, last] {
            assert_eq!(String::from_utf8_lossy(data), "id: 1-7\ndata: late\n\n");
        }
        assert!(over.is_empty());
    });
}
