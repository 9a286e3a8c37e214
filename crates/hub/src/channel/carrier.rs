//! Subscribers on the streams of a parked connection of HTTP/2.
//!
//! ```text
//!             all streams rest: the gateway parks the connection
//!   IN A TASK ----------------------------------------------------> CARRIED --+ a message that
//!       ^                                                               |  ^  | fits is written
//!       +---------------------------------------------------------------+  +--+
//!         bytes of the client; no room; a right or the server ends
//! ```
//!
//! A [`Carrier`] owns the parked connection: the record of its codec, and the subscriber on each of
//! its streams. A message is a frame of data on each stream that gets it, in a record of TLS of its
//! own. A long-poll is answered by a task, so a message for one makes the connection go on there
//! with the messages of all its streams.
//!
//! As for other parked subscribers, the next server knows how many bytes were written since the
//! connection was left, and makes the same frames again (`adoption`). So their order must follow
//! from the messages alone: each message goes to all streams of its channel, in the order of these,
//! before the next message. Between the messages of two channels there is no such order. If there
//! is a keeper, each write to a connection with several channels is recorded before it is made
//! ([`WriteIntent`]), in the place of the record before. So is a write when the state that was left
//! is half a history old, as messages before that might not be kept.

mod adoption;

use std::any::Any;
use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use superpoll::Key;
use superpoll_http::admin::Protocol;
use superpoll_http::body::Body;
use superpoll_http::connection_state::{Activity, StreamActivity};
use superpoll_http::exchange::RestingAnswer;
use superpoll_http::http2_stream::Resting;
use superpoll_http::log::Entry;
use superpoll_http::parked_stream::ParkedStream;
use superpoll_http::parking_lot::{
    ConnectionOwner, Note, ParkedConnection, ParkingLot, ResumeReason, WakeOn,
};
use superpoll_http::peer::Peer;
use superpoll_http::plain_stream::limit_unsent;
use superpoll_http::tls::MOST_TEXT;
use superpoll_http::trace::RequestTrace;
use superpoll_http2::{FRAME_HEAD, Record};
use superpoll_rt::time;

use super::delivery::{Broadcast, Carries, Delivered, SEALED};
use super::events::EventsBody;
use super::form::Form;
use super::local_subscribers::{LocalSubscribers, SubscriberState, Subscription};
use super::mailbox::{EndReason, Mailbox};
use super::moment::Moment;
use super::poll::WaitingPoll;
use super::resting::{LastSign, RestingSubscriber};
use super::send_queue::SendQueue;
use crate::succession::records::{INTENTS, RecordStore, WriteIntent};

pub use adoption::{LeftCarrier, LeftStream, LeftWork, adopt};

/// The number of the next stay of a connection in a parking lot, the name of its record.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// Makes later stays have numbers from one on, which no stay at another server had.
pub fn begin_stays_at(number: u64) {
    NEXT.fetch_max(number, Ordering::Relaxed);
}

/// The most bytes of a message in a frame that has a record of TLS with it.
const MOST_DATA: usize = MOST_TEXT - FRAME_HEAD;

/// A connection that is not parked any more.
pub struct Resumed {
    /// The connection; its token is the number of requests so far.
    pub parked: ParkedConnection,
    /// The record of the codec.
    pub record: Record,
    /// Bytes that must be written before any others, as they are before they are encrypted.
    pub rest: Bytes,
    /// The streams with their subscribers.
    pub streams: Vec<RestingStream>,
    /// The reason, if it is not that there is something to send.
    pub why: Option<ResumeReason>,
}

/// A stream on which a subscriber or a long-poll rests.
pub struct RestingStream {
    /// Its number.
    pub stream: u32,
    /// The subscriber.
    pub work: RestingWork,
}

/// A subscriber or a long-poll on a stream.
pub enum RestingWork {
    /// The body of a response, and its line of the access log.
    Body(Body, Option<Rc<Entry>>),
    /// The answer to a long-poll, and what its response needs of the request.
    Answer(Box<dyn RestingAnswer>, Note),
    /// A WebSocket.
    Socket(Box<dyn Resting>),
}

/// Goes on with connections that are not parked any more.
pub trait GoesOn {
    /// Goes on with a connection.
    fn go_on(self: Rc<Self>, resumed: Resumed);
}

/// A parked connection of HTTP/2 with subscribers on its streams.
pub struct Carrier {
    by: Rc<dyn GoesOn>,
    parking_lot: Rc<ParkingLot>,
    requests: u32,
    state: RefCell<State>,
}

struct State {
    /// `None` while it is not in the parking lot.
    key: Option<Key>,
    record: Record,
    streams: Vec<Carried>,
    /// The send queue at a sign of life, if the client has sent nothing since; and when that was.
    pinged: Option<(SendQueue, Moment)>,
    /// The number of this stay, and the bytes and frames that were written in it.
    number: u64,
    bytes: u64,
    frames: u64,
    /// The connection may go on with a successor, and has a write intent recorded.
    is_left: bool,
    is_recorded: bool,
}

/// A subscriber on a stream.
struct Carried {
    stream: u32,
    kind: Kind,
    index: usize,
    /// The last message that it was given, and the one that a successor knows of.
    given: u64,
    known: u64,
    subscribers: Rc<LocalSubscribers>,
}

/// The kind of a subscriber on a stream.
enum Kind {
    /// It gets messages in a form.
    Messages {
        form: Form,
        /// The client of its request, if a trusted proxy has named another one.
        peer: Option<Rc<Peer>>,
        sign: LastSign,
    },
    /// A long-poll, which is answered by the first message.
    Poll {
        /// The end of its time.
        until: Moment,
        may_have_hsts: bool,
        trace: Option<Rc<RequestTrace>>,
    },
}

/// A message for one of the streams.
struct Piece {
    /// The place of the stream among those of the connection.
    place: usize,
    /// The place of the message in the broadcast.
    message: usize,
}

/// How far a message came.
enum Outcome {
    /// All was written: so many bytes.
    Written(usize),
    /// All of it is ready to be written as it is.
    Left(Bytes),
    /// The connection must go on in a task, which writes these bytes first.
    GoesOn(Bytes),
    /// The client has gone.
    Gone,
}

impl Carrier {
    /// Parks a connection whose streams all rest. Its token is the number of requests so far.
    pub fn park(
        by: Rc<dyn GoesOn>,
        parked: ParkedConnection,
        record: Record,
        streams: Vec<RestingStream>,
    ) {
        let mut carried = Vec::with_capacity(streams.len());
        let mut parking_lot = None;
        for RestingStream { stream, work } in streams {
            // Nothing else rests.
            let (subscription, kind, entry) = match work {
                RestingWork::Body(body, entry) => match body.into_resting::<EventsBody>() {
                    Ok(body) => Kind::of(body.into_parts(parked.peer.clone()), &parked.peer, entry),
                    Err(_) => continue,
                },
                RestingWork::Socket(resting) => match (resting as Box<dyn Any>).downcast() {
                    Ok(resting) => Kind::of(*resting, &parked.peer, None),
                    Err(_) => continue,
                },
                RestingWork::Answer(answer, note) => match (answer as Box<dyn Any>).downcast() {
                    Ok(poll) => Kind::of_poll(*poll, note),
                    Err(_) => continue,
                },
            };
            let (subscribers, index) = (subscription.local_subscribers.clone(), subscription.index);
            subscription.detach();
            if entry.is_some() {
                subscribers.keep_entry(index, entry);
            }
            parking_lot = Some(subscribers.parking_lot.clone());
            carried.push(Carried { stream, kind, index, given: 0, known: 0, subscribers });
        }
        if let Some(parking_lot) = parking_lot {
            let requests = parked.token;
            limit_unsent_of(&carried, &parked);
            Carrier::new(by, parking_lot, requests, record, carried).enter(parked, None);
        }
    }

    fn new(
        by: Rc<dyn GoesOn>,
        parking_lot: Rc<ParkingLot>,
        requests: u32,
        record: Record,
        streams: Vec<Carried>,
    ) -> Rc<Carrier> {
        let state = State {
            key: None,
            record,
            streams,
            pinged: None,
            number: 0,
            bytes: 0,
            frames: 0,
            is_left: false,
            is_recorded: false,
        };
        Rc::new(Carrier { by, parking_lot, requests, state: state.into() })
    }

    /// Enters the parking lot.
    fn enter(self: Rc<Carrier>, parked: ParkedConnection, pinged: Option<(SendQueue, Moment)>) {
        let mut state = self.state.borrow_mut();
        for carried in &mut state.streams {
            carried.given = carried.subscribers.last_given(carried.index);
            carried.known = carried.given;
        }
        if state.streams.iter().any(Carried::grant_is_over) {
            drop(state);
            return self.go_on(parked, Bytes::new(), Vec::new(), None);
        }
        (state.bytes, state.frames) = (0, 0);
        state.is_left = self.parking_lot.leaves(&parked.stream);
        state.number = NEXT.fetch_add(1, Ordering::Relaxed);
        let limit = state.streams.iter().map(Carried::limit).min();
        let activity = || {
            let each = state.streams.iter().map(Carried::activity);
            let (requests, number) = (self.requests, state.number);
            let (record, streams) = (state.record.as_ref().into(), each.collect::<Option<_>>()?);
            Some(Activity::Http2Streams { requests, number, record, streams })
        };
        let owner = self.clone();
        match self.parking_lot.park(parked, owner, WakeOn::Readable, limit, activity) {
            Ok(key) => {
                for carried in &state.streams {
                    carried.subscribers.note(carried.index, Entry::parked);
                    let by: Rc<dyn Carries> = self.clone();
                    let state = SubscriberState::Carried(Rc::downgrade(&by));
                    carried.subscribers.set(carried.index, state);
                    carried.subscribers.left_held(carried.index);
                }
                (state.key, state.pinged) = (Some(key), pinged);
            }
            Err((parked, _)) => {
                drop(state);
                self.end(parked, EndReason::Retired, None);
            }
        }
    }

    /// Takes the connection out of the parking lot.
    fn take(&self) -> Option<ParkedConnection> {
        let key = self.state.borrow_mut().key.take()?;
        // Another server may have it, with that record.
        let parked = self.parking_lot.take(key)?;
        self.forget();
        Some(parked)
    }

    /// Forgets the write intent of a connection that is here.
    fn forget(&self) {
        let mut state = self.state.borrow_mut();
        if std::mem::take(&mut state.is_recorded)
            && let Some(records) =
                state.streams.first().and_then(|one| one.subscribers.hub.records())
        {
            records.keep(INTENTS, state.number, &[]);
        }
    }

    /// Goes on with the connection in a task, which writes some bytes first, and then the messages
    /// of each stream.
    fn go_on(
        self: Rc<Carrier>,
        parked: ParkedConnection,
        rest: Bytes,
        mut mailboxes: Vec<Rc<Mailbox>>,
        why: Option<ResumeReason>,
    ) {
        let (record, all) = {
            let state = &mut *self.state.borrow_mut();
            (state.record.clone(), std::mem::take(&mut state.streams))
        };
        mailboxes.resize_with(all.len(), Rc::default);
        let resume = |(carried, mailbox): (Carried, Rc<Mailbox>)| {
            let Carried { stream, kind, index, given, subscribers, .. } = carried;
            subscribers.set(index, SubscriberState::Task(mailbox.clone()));
            let subscription = Subscription::new(&subscribers, index);
            let entry = || subscribers.entries.borrow_mut().remove(&index);
            let work = match kind {
                Kind::Messages { form, peer, sign } => {
                    let peer = peer.unwrap_or_else(|| parked.peer.clone());
                    let resting = RestingSubscriber { subscription, mailbox, form, peer, sign };
                    match form.is_body() {
                        true => {
                            RestingWork::Body(Body::resting(EventsBody::again(resting)), entry())
                        }
                        false => RestingWork::Socket(Box::new(resting)),
                    }
                }
                Kind::Poll { until, may_have_hsts, trace } => {
                    let (until, peer) = (until.instant(), parked.peer.clone());
                    let mut poll = WaitingPoll::new(subscription, mailbox, given, until, peer);
                    poll.may_have_hsts = may_have_hsts;
                    RestingWork::Answer(Box::new(poll), Note { entry: entry(), trace })
                }
            };
            RestingStream { stream, work }
        };
        let streams = all.into_iter().zip(mailboxes).map(resume).collect();
        let parked = ParkedConnection { token: self.requests, ..parked };
        self.by.clone().go_on(Resumed { parked, record, rest, streams, why });
    }

    /// Ends all subscriptions.
    fn end(self: Rc<Carrier>, parked: ParkedConnection, why: EndReason, is: Option<ResumeReason>) {
        let count = self.state.borrow().streams.len();
        let ended = |_| {
            let mailbox = Mailbox::default();
            mailbox.end(why);
            Rc::new(mailbox)
        };
        self.go_on(parked, Bytes::new(), (0..count).map(ended).collect(), is);
    }

    /// Removes the subscribers, whose client has gone.
    fn lost(&self) {
        let all = std::mem::take(&mut self.state.borrow_mut().streams);
        all.iter().for_each(|carried| carried.subscribers.lost(carried.index));
    }

    /// Goes on in a task, with a connection that is in the parking lot.
    fn leave_lot(self: Rc<Carrier>, rest: Bytes, mailboxes: Vec<Rc<Mailbox>>) {
        match self.take() {
            Some(parked) => self.go_on(parked, rest, mailboxes, None),
            None => self.lost(),
        }
    }

    /// Ends a connection whose client has gone.
    fn end_gone(&self) {
        drop(self.take());
        self.lost();
    }

    /// Whether an item is more than bytes to a stream that an application holds.
    fn needs_task(
        &self,
        by: &LocalSubscribers,
        broadcast: &mut Broadcast,
        pieces: &[Piece],
    ) -> bool {
        let state = self.state.borrow();
        pieces.iter().any(|Piece { place, message }| {
            let reader = by.reader(state.streams[*place].index);
            let held = reader.as_ref().and_then(|reader| reader.held());
            held.is_some_and(|held| broadcast.needs_task(held, *message))
        })
    }

    /// Returns the messages that wait for each stream.
    fn mailboxes(
        &self,
        by: &LocalSubscribers,
        broadcast: &Broadcast,
        pieces: &[Piece],
    ) -> Vec<Rc<Mailbox>> {
        let count = self.state.borrow().streams.len();
        let mailboxes: Vec<Rc<Mailbox>> = (0..count).map(|_| Rc::default()).collect();
        for Piece { place, message } in pieces {
            by.put(&mailboxes[*place], &broadcast.messages[*message], &broadcast.options);
        }
        mailboxes
    }

    /// Shows the client that the server lives, or ends the connection of one that has gone.
    fn show_life(self: Rc<Carrier>, mut parked: ParkedConnection) {
        let mut state = self.state.borrow_mut();
        let State { record, streams, pinged, .. } = &mut *state;
        // Signs of several streams may follow each other soon: a client has a silence to read one.
        let silence = streams.iter().map(|carried| carried.subscribers.hub.silence()).min();
        let is_judged = |(_, at): &(SendQueue, Moment)| {
            at.is_past(silence.unwrap_or(Duration::MAX), time::now())
        };
        if pinged.filter(is_judged).is_some_and(|(queue, _)| queue.is_stuck(&parked.stream)) {
            drop(state);
            return self.lost();
        }
        let (mut framed, mut ends, mut fits) = (Vec::new(), Vec::new(), true);
        for (place, carried) in streams.iter_mut().enumerate().filter(|(_, one)| one.is_due()) {
            // The task answers a long-poll whose time is over, sends what an application says, and
            // finds out whether one that has not answered has gone.
            let is_held = carried.held_due().is_some_and(|due| due.is_zero());
            let Kind::Messages { form, sign: last, .. } = &mut carried.kind else {
                fits = false;
                break;
            };
            if is_held {
                fits = false;
                break;
            }
            let sign = form.data_of_life();
            fits = !last.is_unanswered
                && record.data_head(carried.stream, sign.len(), &mut framed).is_ok();
            if !fits {
                break;
            }
            framed.extend_from_slice(sign);
            ends.push((framed.len(), place, sign.len()));
            *last = LastSign::now(!form.is_body());
            carried.subscribers.wrote(carried.index, *form, sign.len());
        }
        if ends.is_empty() {
            drop(state);
            return self.go_on(parked, Bytes::new(), Vec::new(), None);
        }
        let before = pinged.filter(|it| !is_judged(it));
        let mut queue =
            before.or_else(|| Some((SendQueue::measure(&parked.stream), Moment::now())));
        let outcome = send(&mut parked.stream, framed, &ends, &mut queue);
        drop(state);
        match outcome {
            Outcome::Written(_) if fits => self.enter(parked, queue),
            Outcome::Written(_) => self.go_on(parked, Bytes::new(), Vec::new(), None),
            Outcome::GoesOn(rest) | Outcome::Left(rest) => {
                self.go_on(parked, rest, Vec::new(), None);
            }
            Outcome::Gone => self.lost(),
        }
    }
}

impl State {
    /// Writes pieces from a place on, and moves the place behind those that are on their way. Each
    /// write is recorded before, where there are `records`.
    fn write(
        &mut self,
        by: &LocalSubscribers,
        broadcast: &mut Broadcast,
        pieces: &[Piece],
        at: &mut usize,
        stream: &mut ParkedStream,
        records: Option<&dyn RecordStore>,
    ) -> Outcome {
        while *at < pieces.len() {
            let before = records.is_some().then(|| self.record.clone());
            let (mut framed, mut ends) = (Vec::new(), Vec::new());
            for Piece { place, message } in &pieces[*at..] {
                let carried = &self.streams[*place];
                // A task answers a long-poll.
                let Kind::Messages { form, .. } = carried.kind else { break };
                let encoded = broadcast.data(form, &by.hub);
                let data = encoded.bytes_of(*message..*message + 1);
                let is_first = ends.is_empty();
                if data.len() > MOST_DATA
                    || (!is_first && framed.len() + data.len() > SEALED)
                    || self.record.data_head(carried.stream, data.len(), &mut framed).is_err()
                {
                    break;
                }
                framed.extend_from_slice(&data);
                ends.push((framed.len(), *place, data.len()));
            }
            let count = ends.len();
            let batch = &pieces[*at..*at + count];
            let id = |piece: &Piece| broadcast.messages[piece.message].id;
            let Some(first) = batch.first() else { return Outcome::GoesOn(Bytes::new()) };
            // All messages before it are written, or not for these streams.
            self.pass(by, id(first) - 1);
            if let (Some(records), Some(before)) = (records, before) {
                let next = batch.iter().map(|piece| (piece.place as u16, id(piece))).collect();
                if !self.keep(records, &before, next) {
                    self.record = before;
                    return Outcome::GoesOn(Bytes::new());
                }
            }
            // Together with the writes to other connections of this turn, as a rule.
            let is_left = records.is_none() && count == pieces.len();
            *at += count;
            let outcome = match is_left {
                true => seal(stream, framed, &ends).map_or_else(Outcome::GoesOn, Outcome::Left),
                false => send(stream, framed, &ends, &mut self.pinged),
            };
            if matches!(outcome, Outcome::Gone) {
                return outcome;
            }
            self.frames += count as u64;
            for (piece, (_, _, length)) in batch.iter().zip(ends) {
                let carried = &mut self.streams[piece.place];
                carried.given = id(piece);
                if let Kind::Messages { form, .. } = carried.kind {
                    by.wrote(carried.index, form, length);
                    if form.is_held() {
                        by.wrote_held(carried.index, id(piece));
                    }
                }
            }
            match outcome {
                Outcome::Written(count) => self.bytes += count as u64,
                Outcome::Left(_) => {
                    self.pass(by, broadcast.messages.last().map_or(0, |message| message.id));
                    return outcome;
                }
                outcome => return outcome,
            }
        }
        self.pass(by, broadcast.messages.last().map_or(0, |message| message.id));
        Outcome::Written(0)
    }

    /// Notes that the streams of a channel have all that they get of its messages up to this one.
    fn pass(&mut self, by: &LocalSubscribers, id: u64) {
        let own = |carried: &&mut Carried| std::ptr::eq(&*carried.subscribers, by);
        self.streams.iter_mut().filter(own).for_each(|one| one.given = one.given.max(id));
    }

    /// Records a write intent. Whether a successor has it, however this server ends.
    fn keep(&mut self, records: &dyn RecordStore, before: &Record, next: Vec<(u16, u64)>) -> bool {
        if !records.has_room() {
            return false;
        }
        let given = self.streams.iter().map(|carried| carried.given).collect();
        let (bytes, frames, record) = (self.bytes, self.frames, before.as_ref().into());
        let intent = WriteIntent { bytes, frames, record, given, next };
        records.keep(INTENTS, self.number, &intent.encode());
        self.is_recorded = true;
        self.streams.iter_mut().for_each(|carried| carried.known = carried.given);
        records.has_room()
    }
}

/// Limits the bytes that a connection's socket holds to the smallest limit of its channels.
fn limit_unsent_of(streams: &[Carried], parked: &ParkedConnection) {
    let limits = streams.iter().map(|carried| carried.subscribers.hub.options().unsent_bytes);
    if let Some(bytes) = limits.min() {
        limit_unsent(&parked.stream, bytes);
    }
}

/// Seals frames, each in a record of TLS of its own, if the connection is encrypted. Otherwise they
/// are returned as an error if that cannot be done, as the key must be changed first.
fn seal(
    stream: &mut ParkedStream,
    framed: Vec<u8>,
    ends: &[(usize, usize, usize)],
) -> Result<Bytes, Bytes> {
    if !stream.is_encrypted() {
        return Ok(framed.into());
    }
    let mut start = 0;
    let frame = |(end, ..): &(usize, usize, usize)| {
        let frame = &framed[start..*end];
        start = *end;
        frame
    };
    let frames: Vec<&[u8]> = ends.iter().map(frame).collect();
    match stream.seal(&frames) {
        Some(sealed) => Ok(sealed.into()),
        None => Err(framed.into()),
    }
}

/// Sends frames.
fn send(
    stream: &mut ParkedStream,
    framed: Vec<u8>,
    ends: &[(usize, usize, usize)],
    pinged: &mut Option<(SendQueue, Moment)>,
) -> Outcome {
    let bytes = match seal(stream, framed, ends) {
        Ok(bytes) => bytes,
        Err(framed) => return Outcome::GoesOn(framed),
    };
    let Ok(count) = stream.write_raw(&bytes) else { return Outcome::Gone };
    if let Some((queue, _)) = pinged {
        queue.wrote(count);
    }
    match count == bytes.len() {
        true => Outcome::Written(count),
        false => Outcome::GoesOn(rest_of(stream, &bytes, count)),
    }
}

/// Returns the rest of bytes that were written in part, unless the stream holds it as it is sealed.
fn rest_of(stream: &mut ParkedStream, bytes: &[u8], count: usize) -> Bytes {
    if !stream.is_encrypted() {
        return Bytes::copy_from_slice(&bytes[count..]);
    }
    stream.owes(&bytes[count..]);
    Bytes::new()
}

impl Carries for Carrier {
    fn wake(self: Rc<Carrier>) {
        match self.take() {
            Some(parked) => self.go_on(parked, Bytes::new(), Vec::new(), None),
            None => self.lost(),
        }
    }

    fn deliver(
        self: Rc<Carrier>,
        by: &Rc<LocalSubscribers>,
        broadcast: &mut Broadcast,
    ) -> Delivered {
        let done = |count| Delivered { count, rest: None };
        let state = self.state.borrow();
        let is_single = state.streams.iter().all(|one| Rc::ptr_eq(&one.subscribers, by));
        let own = |carried: &&Carried| Rc::ptr_eq(&carried.subscribers, by);
        if state.streams.iter().filter(own).any(Carried::grant_is_over) {
            // A successor could not know that a stream was left out.
            drop(state);
            self.wake();
            return done(1);
        }
        let mut news = Vec::new();
        for (place, carried) in state.streams.iter().enumerate().filter(|(_, one)| own(one)) {
            news.extend(by.take_news(broadcast, carried.index).map(|news| (place, news)));
        }
        drop(state);
        let mut pieces = Vec::new();
        for message in 0..broadcast.messages.len() {
            let gets = news.iter().filter(|(_, news)| news.has(message));
            pieces.extend(gets.map(|(place, _)| Piece { place: *place, message }));
        }
        if by.hub.options().grip && self.needs_task(by, broadcast, &pieces) {
            let mailboxes = self.mailboxes(by, broadcast, &pieces);
            let count = pieces.len();
            self.leave_lot(Bytes::new(), mailboxes);
            return done(count);
        }
        let last = broadcast.messages.last().map_or(0, |message| message.id);
        let history = by.hub.options().history as u64;
        let mut state = self.state.borrow_mut();
        let oldest = state.streams.iter().filter(own).map(|carried| carried.known).min();
        let is_old = oldest.is_some_and(|oldest| last.saturating_sub(oldest) > history / 2);
        let needs_record = state.is_left && (is_old || !is_single);
        let records = needs_record.then(|| by.hub.records()).flatten();
        if pieces.is_empty() {
            state.pass(by, last);
            if is_old && let Some(records) = &records {
                let record = state.record.clone();
                let is_kept = state.keep(&**records, &record, Vec::new());
                drop(state);
                if !is_kept {
                    self.wake();
                }
            }
            return done(news.len());
        }
        let (key, mut at) = (state.key, 0);
        let mut write = |stream: &mut ParkedStream| {
            state.write(by, broadcast, &pieces, &mut at, stream, records.as_deref())
        };
        let outcome = key.and_then(|key| self.parking_lot.with_stream(key, &mut write));
        drop(state);
        let mut rest = None;
        match outcome.unwrap_or(Outcome::Gone) {
            Outcome::Written(_) => {}
            Outcome::Left(bytes) => rest = key.map(|key| (key, bytes)),
            Outcome::Gone => self.end_gone(),
            Outcome::GoesOn(rest) => {
                let mailboxes = self.mailboxes(by, broadcast, &pieces[at..]);
                self.leave_lot(rest, mailboxes);
            }
        }
        Delivered { count: pieces.len(), rest }
    }

    fn go_on_after(self: Rc<Carrier>, bytes: &[u8], outcome: io::Result<usize>) {
        let Ok(count) = outcome else { return self.end_gone() };
        let mut state = self.state.borrow_mut();
        if let Some((queue, _)) = &mut state.pinged {
            queue.wrote(count);
        }
        state.bytes += count as u64;
        let key = state.key;
        drop(state);
        if count < bytes.len() {
            let rest = |stream: &mut ParkedStream| rest_of(stream, bytes, count);
            let rest = key.and_then(|key| self.parking_lot.with_stream(key, rest));
            self.leave_lot(rest.unwrap_or_default(), Vec::new());
        }
    }
}

impl ConnectionOwner for Carrier {
    fn resume(self: Rc<Carrier>, parked: ParkedConnection, why: ResumeReason) {
        self.state.borrow_mut().key = None;
        self.forget();
        if self.state.borrow().streams.is_empty() {
            // Its subscribers are gone, and nothing else would end it.
            return;
        }
        let is_over = self.state.borrow().streams.iter().any(Carried::grant_is_over);
        match why {
            ResumeReason::TimedOut if !is_over => self.show_life(parked),
            ResumeReason::TimedOut => self.go_on(parked, Bytes::new(), Vec::new(), None),
            ResumeReason::Ready => self.go_on(parked, Bytes::new(), Vec::new(), Some(why)),
            ResumeReason::Draining | ResumeReason::Refused => {
                self.end(parked, EndReason::Retired, Some(why));
            }
        }
    }

    fn protocol(&self) -> Protocol {
        Protocol::Http2
    }
}

impl Carried {
    fn grant_is_over(&self) -> bool {
        self.subscribers.grant(self.index).is_over()
    }

    /// Returns how much longer the stream may be silent, or wait for its answer.
    fn left(&self) -> Duration {
        match &self.kind {
            Kind::Messages { form: Form::Held, .. } => self.held_due().unwrap_or(Duration::MAX),
            Kind::Messages { sign, .. } => {
                let left = sign.left(self.subscribers.hub.silence());
                self.held_due().map_or(left, |due| due.min(left))
            }
            Kind::Poll { until, .. } => until.left(Duration::ZERO, time::now()),
        }
    }

    /// Returns how long an application lets it be silent.
    fn held_due(&self) -> Option<Duration> {
        self.subscribers.held_due(self.index)
    }

    /// The same, as long as it has its rights.
    fn limit(&self) -> Duration {
        self.subscribers.grant(self.index).limit(self.left())
    }

    /// Whether a sign of life is due, or the answer.
    fn is_due(&self) -> bool {
        self.left().is_zero()
    }

    /// Returns the state of the stream for a successor.
    fn activity(&self) -> Option<StreamActivity> {
        let (subscribers, index) = (&self.subscribers, self.index);
        let activity = match &self.kind {
            Kind::Messages { form, sign, .. } => {
                subscribers.activity(index, *form, sign.is_unanswered)?
            }
            Kind::Poll { may_have_hsts, .. } => {
                let end = SystemTime::now() + self.left();
                let since = end.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
                let poll = Activity::StreamPoll {
                    space: subscribers.hub.space()?,
                    last: self.given,
                    grant: subscribers.grant(index),
                    may_have_hsts: *may_have_hsts,
                    until: u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
                };
                match subscribers.reader(index).as_ref().and_then(|reader| reader.held()) {
                    None => poll,
                    Some(held) => {
                        let held = Box::new(held.clone());
                        Activity::HeldPoll { poll: Box::new(poll), held }
                    }
                }
            }
        };
        Some(StreamActivity { stream: self.stream, activity })
    }
}

impl Kind {
    /// Returns the place and the kind of a subscriber that gets messages on a stream of a client.
    fn of(
        resting: RestingSubscriber,
        client: &Rc<Peer>,
        entry: Option<Rc<Entry>>,
    ) -> (Subscription, Kind, Option<Rc<Entry>>) {
        let RestingSubscriber { subscription, form, peer, sign, .. } = resting;
        let peer = Some(peer).filter(|peer| !Rc::ptr_eq(peer, client));
        (subscription, Kind::Messages { form, peer, sign }, entry)
    }

    /// The same of a long-poll.
    fn of_poll(poll: WaitingPoll, note: Note) -> (Subscription, Kind, Option<Rc<Entry>>) {
        let (until, may_have_hsts) = (Moment::at(poll.until()), poll.may_have_hsts);
        let kind = Kind::Poll { until, may_have_hsts, trace: note.trace };
        (poll.subscription, kind, note.entry)
    }
}

superpoll::debug_fields!(Carrier, it => streams: it.state.borrow().streams.len());

#[cfg(test)]
mod tests;
