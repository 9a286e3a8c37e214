//! Subscribers, thousands in a process of their own, each a task of an async runtime.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use futures_lite::{AsyncReadExt, AsyncWriteExt};
use serde::{Deserialize, Serialize};
use superpoll_rt::net::TcpStream;
use superpoll_rt::{Runtime, spawn, time};

use crate::cluster::CHANNEL;
use crate::error::{Error, Result};
use crate::random::Random;
use crate::server::clients::Clients;
use crate::server::http::{Head, answer, chunk, request};
use crate::server::wire::{FIELDS, Lines, Polled, check, frame};
use crate::sys::process;

/// Accepts the head of an answer that does not end, or says what is wrong with it.
type Opens = fn(&Head<'_>) -> Result<(), String>;

/// How long a connection, or a part of the head of an answer that does not end, may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Bytes that one read takes at most.
const ROOM: usize = 4096;

/// The longest unit of an answer.
const LONGEST: usize = 1 << 24;

/// How long it may take until all subscribers are accepted.
const CONNECTING: Duration = Duration::from_secs(60);

/// How long the last subscriber may take to receive the end of a round, after the first.
const END: Duration = Duration::from_secs(60);

/// How long a round may take.
const ROUND: Duration = Duration::from_secs(240);

/// Subscribers that begin to connect together.
const BURST: usize = 100;

/// The orders for a process of subscribers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Order {
    /// Connect subscribers with these numbers, from the first to before the second, behind this
    /// position. The answer: an empty report.
    Connect(usize, usize, Position),
    /// Receive messages until each subscriber has this one. The answer: the report of the round.
    Follow(String),
    /// Check that each subscriber has these messages, unless it was told that it has missed some.
    /// The answer: a report with the lost messages.
    Check(Vec<String>),
}

/// A round at the subscribers of a process.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Report {
    /// The messages that came for the first time.
    pub messages: Vec<Heard>,
    /// Messages that were lost, over all subscribers.
    pub lost: u64,
    /// Messages that came twice.
    pub doubled: u64,
    /// Messages in another order.
    pub reordered: u64,
    /// Subscribers that were told that they have missed messages.
    pub missed: u64,
    /// Connections that were lost.
    pub reconnects: u64,
    /// The processor time of the process.
    pub cpu_ns: u64,
    /// The longest silence of a subscriber.
    pub silence_ns: u64,
    /// Examples of mistakes.
    pub complaints: Vec<String>,
    /// Why connections were lost, and how many.
    pub reasons: BTreeMap<String, u64>,
}

/// Starts a process without subscribers.
pub(super) fn start(servers: Vec<SocketAddr>) -> Result<Clients> {
    let mut crowd: Option<Crowd> = None;
    Clients::start("superpoll serve", move |order: Order| {
        let crowd = match &mut crowd {
            Some(crowd) => crowd,
            // Descriptors that were made before the fork are closed by now.
            none => none.insert(Crowd::new(servers.clone())?),
        };
        match order {
            Order::Connect(from, to, behind) => crowd.connect(from, to, behind),
            Order::Follow(end) => crowd.follow(end),
            Order::Check(texts) => Ok(crowd.check(&texts)),
        }
    })
}

struct Crowd {
    runtime: Runtime,
    shared: Rc<Shared>,
}

impl Crowd {
    fn new(servers: Vec<SocketAddr>) -> Result<Crowd> {
        let shared = Shared {
            servers,
            ledger: RefCell::new(Ledger::default()),
            readers: RefCell::new(Vec::new()),
            accepted: Cell::new(0),
            reasons: RefCell::new(BTreeMap::new()),
            end: RefCell::new(String::new()),
            ended: Cell::new(0),
        };
        Ok(Crowd { runtime: Runtime::new()?, shared: Rc::new(shared) })
    }

    fn wrong(found: String) -> Error {
        Error::Work { subject: "superpoll serve", found }
    }

    fn connect(&mut self, from: usize, to: usize, behind: Position) -> Result<Report> {
        let shared = &self.shared;
        let all = async {
            for global in from..to {
                shared.readers.borrow_mut().push(Reader::new(behind));
                let subscriber = Subscriber {
                    shared: Rc::clone(shared),
                    number: global - from,
                    global,
                    resume: behind.to_string(),
                    server: (global / 3) % shared.servers.len(),
                    is_accepted: false,
                };
                spawn(subscriber.run()).detach();
                if global % BURST == 0 {
                    time::sleep(Duration::from_millis(1)).await;
                }
            }
            let begun = Instant::now();
            while shared.accepted.get() < to - from && begun.elapsed() < CONNECTING {
                time::sleep(Duration::from_millis(5)).await;
            }
        };
        self.runtime.try_block_on(all)?;
        let (accepted, count) = (shared.accepted.get(), to - from);
        if accepted < count {
            let reasons = shared.reasons.borrow();
            let found = format!("{accepted} of {count} subscribers were accepted: {reasons:?}");
            return Err(Crowd::wrong(found));
        }
        Ok(Report::default())
    }

    fn follow(&mut self, end: String) -> Result<Report> {
        let shared = &self.shared;
        let first = shared.ledger.borrow().count();
        let (now, cpu) = (process::now(), process::processor_time());
        shared.readers.borrow_mut().iter_mut().for_each(|reader| reader.begin(now));
        shared.reasons.borrow_mut().clear();
        shared.end.replace(end);
        shared.ended.set(0);
        let count = shared.readers.borrow().len();
        let all = async {
            let begun = Instant::now();
            let mut first_end = None;
            while shared.ended.get() < count && begun.elapsed() < ROUND {
                if shared.ended.get() > 0 {
                    let first = *first_end.get_or_insert_with(Instant::now);
                    if first.elapsed() > END {
                        break;
                    }
                }
                time::sleep(Duration::from_millis(5)).await;
            }
        };
        self.runtime.try_block_on(all)?;
        let reasons = shared.reasons.take();
        let mut report = Report {
            messages: shared.ledger.borrow().since(first).to_vec(),
            reconnects: reasons.values().sum(),
            reasons,
            cpu_ns: process::processor_time() - cpu,
            ..Report::default()
        };
        for reader in &*shared.readers.borrow() {
            report.doubled += reader.counts.doubled;
            report.reordered += reader.counts.reordered;
            report.missed += u64::from(reader.counts.missed > 0);
            report.silence_ns = report.silence_ns.max(reader.counts.silence_ns);
        }
        Ok(report)
    }

    fn check(&mut self, texts: &[String]) -> Report {
        let mut ledger = self.shared.ledger.borrow_mut();
        let numbers: Vec<_> = texts.iter().map(|text| (text, ledger.number(text))).collect();
        let mut lost = 0;
        for (place, reader) in self.shared.readers.borrow().iter().enumerate() {
            let is_told = reader.counts.missed > 0;
            let has = |number: Option<usize>| number.is_some_and(|number| reader.has(number));
            let absent: Vec<_> = numbers
                .iter()
                .filter(|(_, number)| !is_told && !has(*number))
                .map(|(text, _)| text)
                .collect();
            if let Some(text) = absent.first() {
                let count = absent.len();
                ledger
                    .complain(|| format!("subscriber {place} lacks {count}, the first is {text}"));
            }
            lost += reader.counts.lost.max(absent.len() as u64);
        }
        Report { lost, complaints: ledger.complaints(), ..Report::default() }
    }
}

// A subscriber: it stays with its channel whatever happens to servers.
//
// It connects to a server with the position of its last message, and to the next server when it
// has lost the connection. It acts as any client should: it does not look for
// messages that a server does not mention.

/// The longest pause before a subscriber connects again.
const PAUSE_MS: usize = 200;

/// The ways to subscribe.
const FORMS: usize = 3;

/// All subscribers of a process.
#[derive(Debug)]
pub(super) struct Shared {
    /// The addresses of the servers.
    pub servers: Vec<SocketAddr>,
    /// The messages that they have received.
    pub ledger: RefCell<Ledger>,
    /// The state of each.
    pub readers: RefCell<Vec<Reader>>,
    /// Subscribers that a server has accepted.
    pub accepted: Cell<usize>,
    /// Connections that were lost, and why.
    pub reasons: RefCell<BTreeMap<String, u64>>,
    /// The number of the message that ends the round, and the subscribers that have it.
    pub end: RefCell<String>,
    pub ended: Cell<usize>,
}

impl Shared {
    fn hear(&self, number: usize, server: usize, position: Position, text: &str) {
        let mut readers = self.readers.borrow_mut();
        let mut ledger = self.ledger.borrow_mut();
        readers[number].hear(&mut ledger, position, text, process::now(), server != 0);
        if *self.end.borrow() == text {
            self.ended.set(self.ended.get() + 1);
        }
    }
}

/// A subscriber.
#[derive(Debug)]
pub(super) struct Subscriber {
    /// All of its process.
    pub shared: Rc<Shared>,
    /// Its number in the process.
    pub number: usize,
    /// Its number among all.
    pub global: usize,
    /// The position with which it resumes.
    pub resume: String,
    /// The number of its server.
    pub server: usize,
    /// Whether it was accepted once.
    pub is_accepted: bool,
}

/// A frame of `superpoll.v1`.
#[derive(Deserialize)]
struct Frame<'a> {
    id: u64,
    #[serde(borrow)]
    epoch: Cow<'a, str>,
    #[serde(borrow)]
    data: Option<Cow<'a, str>>,
    #[serde(default)]
    missed: bool,
}

impl Subscriber {
    /// Subscribes, and subscribes again after each lost connection.
    pub(super) async fn run(mut self) {
        let mut random = Random::new(self.global as u64);
        loop {
            let reason = match self.global % FORMS {
                0 => self.socket().await,
                1 => self.events().await,
                _ => self.polls().await,
            };
            let reason = reason.err().unwrap_or_default();
            *self.shared.reasons.borrow_mut().entry(reason).or_default() += 1;
            time::sleep(Duration::from_millis(random.below(PAUSE_MS) as u64)).await;
            self.server = (self.server + 1) % self.shared.servers.len();
        }
    }

    /// Sends a request to its server and takes the answer unit by unit, until the connection ends.
    /// `opens` accepts the head of an answer that does not end; without it each unit is an answer.
    /// `take` returns the length of a unit, zero if it is not complete, and adds the bytes that are
    /// to be sent.
    async fn follow(
        &mut self,
        fields: &str,
        target: &str,
        mut opens: Option<Opens>,
        mut take: impl FnMut(&mut Self, &[u8], &mut Vec<u8>) -> Result<usize, String>,
    ) -> Result<(), String> {
        let connecting = TcpStream::connect_addr(self.shared.servers[self.server]);
        let stream = time::timeout(PATIENCE, connecting).await;
        let stream = stream.map_err(|_| "connecting takes too long")?;
        let mut stream = stream.map_err(|error| format!("connecting: {error}"))?;
        let _ = stream.set_nodelay(true);
        let mut out = request("GET", target, fields, None).into_bytes();
        let (mut bytes, mut room) = (Vec::new(), [0; ROOM]);
        loop {
            stream.write_all(&out).await.map_err(|error| format!("sending: {error}"))?;
            out.clear();
            if opens.is_none() {
                self.accepted();
            }
            let reading = stream.read(&mut room);
            let count = match opens {
                None => reading.await,
                Some(_) => time::timeout(PATIENCE, reading)
                    .await
                    .map_err(|_| "the head of an answer does not come")?,
            };
            match count.map_err(|error| format!("reading: {error}"))? {
                0 => return Err("the server closed the connection".to_owned()),
                count => bytes.extend_from_slice(&room[..count]),
            }
            let mut taken = 0;
            if let Some(check) = opens {
                let Some(head) = Head::parse(&bytes)? else { continue };
                check(&head)?;
                (taken, opens) = (head.end, None);
            }
            while let length @ 1.. = take(self, &bytes[taken..], &mut out)? {
                taken += length;
            }
            bytes.drain(..taken);
            if bytes.len() > LONGEST {
                return Err("an answer does not end".to_owned());
            }
        }
    }

    fn accepted(&mut self) {
        if !std::mem::replace(&mut self.is_accepted, true) {
            self.shared.accepted.set(self.shared.accepted.get() + 1);
        }
    }

    fn hear(&mut self, position: Position, text: &str) {
        self.shared.hear(self.number, self.server, position, text);
    }

    fn missed(&mut self) {
        self.shared.readers.borrow_mut()[self.number].missed();
    }

    /// Subscribes by WebSocket with `superpoll.v1`.
    async fn socket(&mut self) -> Result<(), String> {
        let fields = format!("{FIELDS}sec-websocket-protocol: superpoll.v1\r\n");
        let target = format!("{CHANNEL}?after={}", self.resume);
        self.follow(&fields, &target, Some(check), |own, bytes, out| {
            frame(bytes, &mut |text| own.frame(text), out)
        })
        .await
    }

    fn frame(&mut self, text: &[u8]) -> Result<(), String> {
        let frame: Frame<'_> =
            serde_json::from_slice(text).map_err(|error| format!("a frame: {error}"))?;
        let position = Position::of(frame.id, &frame.epoch)?;
        if frame.missed {
            self.missed();
        }
        if let Some(data) = frame.data {
            self.hear(position, &data);
        }
        self.resume = position.to_string();
        Ok(())
    }

    /// Subscribes by server-sent events.
    async fn events(&mut self) -> Result<(), String> {
        let fields = format!("accept: text/event-stream\r\nlast-event-id: {}\r\n", self.resume);
        let mut lines = Lines::default();
        let opens = |head: &Head<'_>| match head.code {
            200 => Ok(()),
            code => Err(format!("a stream of events is answered {code}")),
        };
        self.follow(&fields, CHANNEL, Some(opens), |own, bytes, _| {
            let Some((data, length)) = chunk(bytes)? else { return Ok(0) };
            if data.is_empty() {
                return Err("the stream of events ended".to_owned());
            }
            lines.take(data, &mut |(kind, data, id)| {
                let (text, id) = (String::from_utf8_lossy(data), String::from_utf8_lossy(id));
                match kind {
                    b"missed" => own.missed(),
                    _ => own.hear(Position::parse(&id)?, &text),
                }
                Ok(())
            })?;
            if !lines.last_id.is_empty() {
                own.resume = String::from_utf8_lossy(&lines.last_id).into_owned();
            }
            Ok(length)
        })
        .await
    }

    /// Subscribes by long-polls on one connection.
    async fn polls(&mut self) -> Result<(), String> {
        let target = format!("{CHANNEL}?after={}", self.resume);
        self.follow("", &target, None, |own, bytes, out| {
            let Some((head, body, length)) = answer(bytes)? else { return Ok(0) };
            match head.code {
                200 => own.polled(&body)?,
                204 => {}
                code => return Err(format!("a long-poll is answered {code}")),
            }
            let target = format!("{CHANNEL}?after={}", own.resume);
            out.extend(request("GET", &target, "", None).into_bytes());
            Ok(length)
        })
        .await
    }

    fn polled(&mut self, body: &[u8]) -> Result<(), String> {
        let polled = Polled::parse(body)?;
        if polled.missed {
            self.missed();
        }
        for item in &polled.messages {
            self.hear(Position::of(item.id, &polled.epoch)?, &item.data);
        }
        self.resume = Position::of(polled.next, &polled.epoch)?.to_string();
        Ok(())
    }
}

// The checks of the messages that subscribers receive.
//
// Each subscriber checks its own messages: within an epoch the ids follow each other without gaps,
// and another epoch or a gap comes only after the subscriber was told that it has missed messages.
// The table of all subscribers of a process holds the text at each position, so two subscribers
// that receive different messages at one position are noticed.

/// The most complaints that a process keeps: they are examples.
const COMPLAINTS: usize = 8;

/// The position of a message in its channel.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
pub(super) struct Position {
    /// When the log began.
    pub epoch: u64,
    /// The number of the message in that log.
    pub id: u64,
}

impl Position {
    /// Creates a position from an id and an epoch as the server writes it.
    pub(super) fn of(id: u64, epoch: &str) -> Result<Position, String> {
        let number = u64::from_str_radix(epoch, 16);
        Ok(Position { epoch: number.map_err(|_| format!("an epoch is {epoch:?}"))?, id })
    }

    /// Parses `ID-EPOCH`.
    pub(super) fn parse(text: &str) -> Result<Position, String> {
        let parts = text.split_once('-').and_then(|(id, epoch)| Some((id.parse().ok()?, epoch)));
        let (id, epoch) = parts.ok_or_else(|| format!("a position is {text:?}"))?;
        Position::of(id, epoch)
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{:x}", self.id, self.epoch)
    }
}

/// A message that subscribers of a process have received.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Heard {
    /// Where it is in the channel, the first time that it came.
    pub position: Position,
    /// The message.
    pub text: String,
    /// When the last subscriber received it, on the monotonic clock, of those that are connected to
    /// another server than the first.
    pub last_elsewhere_ns: u64,
}

/// The messages that all subscribers of a process have received.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    messages: Vec<Heard>,
    texts: HashMap<String, usize>,
    positions: HashMap<Position, usize>,
    complaints: Vec<String>,
}

impl Ledger {
    /// Returns how many messages are known.
    pub(super) fn count(&self) -> usize {
        self.messages.len()
    }

    /// Returns the messages from this number on.
    pub(super) fn since(&self, number: usize) -> &[Heard] {
        self.messages.get(number..).unwrap_or_default()
    }

    /// Returns the number of a message.
    pub(super) fn number(&self, text: &str) -> Option<usize> {
        self.texts.get(text).copied()
    }

    /// Keeps an example of a finding, while there is room.
    pub(super) fn complain(&mut self, complaint: impl FnOnce() -> String) {
        if self.complaints.len() < COMPLAINTS {
            self.complaints.push(complaint());
        }
    }

    /// Takes the examples.
    pub(super) fn complaints(&mut self) -> Vec<String> {
        std::mem::take(&mut self.complaints)
    }

    /// Enters a message; returns its number, and whether another message has its position.
    fn enter(&mut self, position: Position, text: &str) -> (usize, bool) {
        let number = match self.texts.get(text) {
            Some(&number) => number,
            None => {
                let number = self.messages.len();
                let heard = Heard { position, text: text.to_owned(), last_elsewhere_ns: 0 };
                self.messages.push(heard);
                self.texts.insert(text.to_owned(), number);
                number
            }
        };
        let at = *self.positions.entry(position).or_insert(number);
        (number, at != number)
    }
}

/// The findings of a subscriber in a round.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Counts {
    /// Messages that were left out without a word.
    pub lost: u64,
    /// Messages that came twice.
    pub doubled: u64,
    /// Messages in another order than at another subscriber, or than their ids.
    pub reordered: u64,
    /// How often the subscriber was told that it has missed messages.
    pub missed: u64,
    /// The longest time without a message.
    pub silence_ns: u64,
}

/// The messages of one subscriber.
#[derive(Clone, Debug)]
pub(super) struct Reader {
    last: Position,
    /// Whether the next message may be any.
    is_told: bool,
    /// A bit for each message of the ledger that it has received.
    seen: Vec<u64>,
    last_ns: u64,
    /// The findings since the round began.
    pub counts: Counts,
}

impl Reader {
    /// Creates a reader that continues behind this message.
    pub(super) fn new(last: Position) -> Reader {
        Reader { last, is_told: false, seen: Vec::new(), last_ns: 0, counts: Counts::default() }
    }

    /// Begins a round.
    pub(super) fn begin(&mut self, now_ns: u64) {
        self.last_ns = now_ns;
        self.counts = Counts::default();
    }

    /// Notes that the server has said that messages are missing.
    pub(super) fn missed(&mut self) {
        self.is_told = true;
        self.counts.missed += 1;
    }

    /// Returns whether it has received the message with this number.
    pub(super) fn has(&self, number: usize) -> bool {
        self.seen.get(number / 64).is_some_and(|bits| bits >> (number % 64) & 1 == 1)
    }

    fn note(&mut self, number: usize) {
        let place = number / 64;
        if self.seen.len() <= place {
            self.seen.resize(place + 1, 0);
        }
        self.seen[place] |= 1 << (number % 64);
    }

    /// Checks a message. `is_elsewhere` says whether it came from another server than the first.
    pub(super) fn hear(
        &mut self,
        ledger: &mut Ledger,
        position: Position,
        text: &str,
        now_ns: u64,
        is_elsewhere: bool,
    ) {
        self.counts.silence_ns = self.counts.silence_ns.max(now_ns.saturating_sub(self.last_ns));
        self.last_ns = now_ns;
        let (number, is_other) = ledger.enter(position, text);
        let (last, is_told) = (self.last, std::mem::take(&mut self.is_told));
        let is_behind = position.epoch == last.epoch && position.id <= last.id;
        if self.has(number) {
            self.counts.doubled += 1;
            ledger.complain(|| {
                format!("{text} came twice, the second time at {position} after {last}")
            });
        } else if is_other || is_behind {
            self.counts.reordered += 1;
            ledger.complain(|| format!("{text} came at {position} after {last}, another is there"));
        }
        if !is_told && position.epoch != last.epoch {
            // How many messages the other log had is not known.
            self.counts.lost += 1;
            ledger.complain(|| format!("after {last} came {position} without a word"));
        } else if !is_told && !is_behind && position.id != last.id + 1 {
            self.counts.lost += position.id - last.id - 1;
            ledger.complain(|| format!("after {last} came {position} without a word"));
        }
        if is_elsewhere {
            let heard = &mut ledger.messages[number].last_elsewhere_ns;
            *heard = (*heard).max(now_ns);
        }
        self.note(number);
        if !is_behind || is_told {
            self.last = position;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(epoch: u64, id: u64) -> Position {
        Position { epoch, id }
    }

    /// Plays messages and notices to a subscriber behind 1-5; returns lost, doubled, reordered.
    fn counted(ledger: &mut Ledger, played: &[Option<(u64, u64, &str)>]) -> (u64, u64, u64) {
        let mut reader = Reader::new(at(5, 1));
        for one in played {
            match *one {
                Some((epoch, id, text)) => reader.hear(ledger, at(epoch, id), text, 1, true),
                None => reader.missed(),
            }
        }
        (reader.counts.lost, reader.counts.doubled, reader.counts.reordered)
    }

    #[test]
    fn positions_are_read_as_they_are_written() {
        let position = Position::parse("18-62a9").unwrap();
        assert_eq!((position, position.to_string()), (at(0x62a9, 18), "18-62a9".to_owned()));
        for wrong in ["18", "x-1", "1-x", ""] {
            assert!(Position::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn each_kind_of_mistake_is_counted_as_such() {
        let (a, b, c) = (Some((5, 2, "a")), Some((5, 3, "b")), Some((5, 4, "c")));
        let new = Some((6, 1, "d"));
        for (played, expected) in [
            (&[a, b, c][..], (0, 0, 0)),
            (&[a, c], (1, 0, 0)),
            (&[a, None, c], (0, 0, 0)),
            (&[a, b, b, c], (0, 1, 0)),
            (&[a, new], (1, 0, 0)),
            (&[a, None, new], (0, 0, 0)),
            (&[a, None, Some((6, 1, "a"))], (0, 1, 0)),
            (&[b, a], (1, 0, 1)),
        ] {
            assert_eq!(counted(&mut Ledger::default(), played), expected, "{played:?}");
        }
    }

    #[test]
    fn two_messages_at_one_position_are_noticed_whoever_receives_them() {
        let mut ledger = Ledger::default();
        assert_eq!(counted(&mut ledger, &[Some((5, 2, "a"))]), (0, 0, 0));
        assert_eq!(counted(&mut ledger, &[Some((5, 2, "b"))]), (0, 0, 1));
        assert_eq!(counted(&mut ledger, &[Some((5, 2, "a"))]), (0, 0, 0));
        assert_eq!((ledger.count(), ledger.since(1)[0].text.as_str()), (2, "b"));
        assert_eq!(ledger.complaints().len(), 1);
    }

    #[test]
    fn silence_counts_from_the_beginning_of_the_round() {
        let (mut ledger, mut reader) = (Ledger::default(), Reader::new(at(5, 1)));
        reader.begin(100);
        for (id, now) in [(2, 150), (3, 400), (4, 410)] {
            reader.hear(&mut ledger, at(5, id), &id.to_string(), now, id != 4);
        }
        assert_eq!(reader.counts.silence_ns, 250);
        let last: Vec<u64> = ledger.since(0).iter().map(|one| one.last_elsewhere_ns).collect();
        assert_eq!(last, [150, 400, 0]);
        assert!(reader.has(ledger.number("3").unwrap()) && !reader.has(64));
    }
}
