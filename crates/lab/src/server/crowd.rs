//! Clients of one server, thousands in a process of their own: one epoll set, and one read and one
//! comparison for what a connection receives.
//!
//! They share a processor with clients of other servers, which are silent meanwhile. The set is a
//! plain one of the kernel's: a load on our own poller would measure one of the servers by a part
//! of that server. A connection that ends, or that receives anything but what it waits for, is
//! counted and described; whether that ends an experiment is the experiment's choice.

use std::collections::HashMap;
use std::io;
use std::net::Ipv4Addr;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::ClientConfig;
use serde::{Deserialize, Serialize};

use crate::error::{Doing, Error, Result};
use crate::server::clients::Clients;
use crate::server::tls::Channel;
use crate::server::web;
use crate::server::wire::{Opening, Wire, message};
use crate::sys::{epoll, process};

/// How long it may take until the next connection has what it waits for.
const PATIENCE: Duration = Duration::from_secs(30);

/// The most events that are taken from a wait.
const EVENTS: usize = 1024;

/// Bytes that one read takes at most.
const ROOM: usize = 1 << 16;

/// The orders for a process of clients. The answer is a [`Report`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Connect so many more, without a request.
    Connect(usize),
    /// Connect so many more in groups: all of a group connect, then all send their request, then
    /// all are answered. Ends with the first group that fails.
    Open { count: usize, at_once: usize },
    /// Send the request again on the first connections, in groups.
    Ask { count: usize, at_once: usize },
    /// Receive the message with this number on each connection, and listen for so many milliseconds
    /// more: another message would be wrong.
    Receive { number: u64, listen_ms: u64 },
    /// Receive messages up to this one on each connection. The second list has those that each must
    /// have received.
    Follow(u64, Vec<u64>),
    /// Check that the server has sent nothing more, and has closed no connection.
    Check,
    /// Close the connections.
    Close,
}

/// The outcome of an order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Report {
    /// Connections that are open now.
    pub open: usize,
    /// Connections that received all they had to, and nothing else.
    pub done: usize,
    /// Connections that received anything else.
    pub wrong: usize,
    /// Messages that were missed, over all connections.
    pub lost: u64,
    /// Messages that came again, over all connections.
    pub doubled: u64,
    /// When the last connection was done, by the monotonic clock.
    pub last_ns: u64,
    /// The processor time of the clients.
    pub cpu_ns: u64,
    /// The first thing that went wrong.
    pub complaint: Option<String>,
}

/// The clients of a crowd.
#[derive(Clone)]
pub(crate) struct Settings {
    /// The server.
    pub subject: &'static str,
    /// The address from which they connect, which has all ports to itself.
    pub from: Ipv4Addr,
    /// The port of the server.
    pub port: u16,
    /// Their request.
    pub opening: Opening,
    /// Bytes of a message.
    pub bytes: usize,
    /// The way to encrypt, if they do.
    pub tls: Option<Arc<ClientConfig>>,
}

/// The parent's end: clients that live until this is dropped.
#[derive(Debug)]
pub(crate) struct Crowd {
    subject: &'static str,
    process: Clients,
}

impl Crowd {
    /// Forks a process of clients without connections.
    pub(crate) fn start(settings: Settings) -> Result<Crowd> {
        let mut state: Option<State> = None;
        Crowd::by(settings.subject, move |order| {
            let state = match &mut state {
                Some(state) => state,
                // Descriptors that were made before the fork are closed by now.
                none => none.insert(State::new(settings.clone())?),
            };
            state.carry_out(&order)
        })
    }

    /// Forks a process that carries orders `out`.
    pub(crate) fn by(
        subject: &'static str,
        out: impl FnMut(Order) -> Result<Report>,
    ) -> Result<Crowd> {
        Ok(Crowd { subject, process: Clients::start(subject, out)? })
    }

    /// Gives an order, without waiting until it was carried out.
    pub(crate) fn order(&mut self, order: &Order) -> Result<()> {
        self.process.order(order)
    }

    /// Waits until the last order was carried out, and returns the report, good or bad.
    pub(crate) fn report(&mut self) -> Result<Report> {
        self.process.answer()
    }

    /// Waits until the last order was carried out. A complaint is an error.
    pub(crate) fn done(&mut self) -> Result<Report> {
        let mut report = self.report()?;
        match report.complaint.take() {
            None => Ok(report),
            Some(found) => Err(Error::Work { subject: self.subject, found }),
        }
    }

    /// Gives an order and waits until it was carried out. A complaint is an error.
    pub(crate) fn ask(&mut self, order: &Order) -> Result<Report> {
        self.order(order)?;
        self.done()
    }
}

/// Gives an order to several crowds at once, and waits until it was carried out. A complaint is an
/// error.
pub(crate) fn ask_all(crowds: &mut [Crowd], order: &Order) -> Result<()> {
    crowds.iter_mut().try_for_each(|crowd| crowd.order(order))?;
    crowds.iter_mut().try_for_each(|crowd| crowd.done().map(drop))
}

/// A connection.
struct Connection {
    channel: Channel,
    wire: Wire,
    /// The number of the last message.
    last: u64,
    /// Whether it has received anything wrong under the present order.
    is_wrong: bool,
}

impl Connection {
    fn new(settings: &Settings) -> io::Result<Connection> {
        let stream = web::connect_from(settings.from, settings.port)?.into();
        let channel = Channel::new(stream, settings.tls.as_ref())?;
        Ok(Connection { channel, wire: Wire::new(), last: 0, is_wrong: false })
    }
}

/// A function that takes a message: the number of the connection, that of its last message, and the
/// text.
type Hear<'a> = dyn FnMut(usize, &mut u64, &[u8]) -> Result<(), String> + 'a;

/// A function that says whether a connection waits for something.
type Waits<'a> = &'a dyn Fn(&Connection) -> bool;

/// The connections that wait, and how many they are.
struct Awaited<'a> {
    waits: Waits<'a>,
    range: Range<usize>,
    count: usize,
}

struct State {
    settings: Settings,
    set: OwnedFd,
    /// The connections by number; `None` where one has ended.
    connections: Vec<Option<Connection>>,
    events: Vec<epoll::Raw>,
    room: Vec<u8>,
    report: Report,
}

impl State {
    fn new(settings: Settings) -> Result<State> {
        superpoll::limits::raise_descriptors().doing("raising the limit of descriptors")?;
        Ok(State {
            settings,
            set: epoll::create().doing("creating an epoll set")?,
            connections: Vec::new(),
            events: vec![epoll::Raw { events: 0, u64: 0 }; EVENTS],
            room: vec![0; ROOM],
            report: Report::default(),
        })
    }

    fn carry_out(&mut self, order: &Order) -> Result<Report> {
        let (cpu, all) = (process::thread_time(), self.connections.len());
        self.connections.iter_mut().flatten().for_each(|one| one.is_wrong = false);
        let done = match *order {
            Order::Connect(count) => {
                self.connect(count);
                0
            }
            Order::Open { count, at_once } => {
                while self.connections.len() < all + count && self.report.complaint.is_none() {
                    let first = self.connections.len();
                    self.connect(at_once.min(all + count - first));
                    self.ask(first..self.connections.len())?;
                }
                self.done(all..self.connections.len(), &|one| one.wire.is_waiting())
            }
            Order::Ask { count, at_once } => {
                let count = count.min(all);
                for first in (0..count).step_by(at_once) {
                    self.ask(first..count.min(first + at_once))?;
                }
                self.done(0..count, &|one| one.wire.is_waiting())
            }
            Order::Receive { number, listen_ms } => self.receive(number, listen_ms)?,
            Order::Follow(last, ref confirmed) => self.follow(last, confirmed)?,
            Order::Check => {
                while self.turn(0, &mut nothing, None)? > 0 {}
                0
            }
            Order::Close => {
                self.connections.clear();
                0
            }
        };
        let open = self.connections.iter().flatten();
        let wrong = open.clone().filter(|one| one.is_wrong).count();
        let (open, cpu_ns) = (open.count(), process::thread_time() - cpu);
        Ok(Report { open, done, wrong, cpu_ns, ..std::mem::take(&mut self.report) })
    }

    fn complain(&mut self, about: impl FnOnce() -> String) {
        self.report.complaint.get_or_insert_with(about);
    }

    /// Returns how many connections of these are there and wait no longer.
    fn done(&self, range: Range<usize>, waits: Waits<'_>) -> usize {
        let all = self.connections[range].iter().flatten();
        all.filter(|one| !one.is_wrong && !waits(one)).count()
    }

    /// Connects so many more, up to the first that is refused.
    fn connect(&mut self, count: usize) {
        for _ in 0..count {
            let number = self.connections.len();
            let connection = Connection::new(&self.settings).and_then(|one| {
                let (fd, readable) = (one.channel.as_raw_fd(), libc::EPOLLIN as u32);
                epoll::add(&self.set, fd, readable, number as u64).map(|()| one)
            });
            match connection {
                Ok(connection) => self.connections.push(Some(connection)),
                Err(error) => {
                    let subject = self.settings.subject;
                    return self.complain(|| format!("connecting to {subject}: {error}"));
                }
            }
        }
    }

    /// Sends the request on each of these connections, and waits for the answers.
    fn ask(&mut self, range: Range<usize>) -> Result<()> {
        for number in range.clone() {
            let Some(one) = &mut self.connections[number] else { continue };
            let request = one.wire.ask(&self.settings.opening, number as u64);
            // A silent client begins with nothing, not even with a handshake.
            if !request.is_empty()
                && let Err(error) = one.channel.send(&request)
            {
                self.end(number, &format!("the connection took no request: {error}"));
            }
        }
        self.until(range, &|one| one.wire.is_waiting(), &mut nothing)
    }

    /// Receives a message on each connection; returns how many have it once.
    fn receive(&mut self, number: u64, listen_ms: u64) -> Result<usize> {
        let expected = message(number, self.settings.bytes);
        let all = 0..self.connections.len();
        let mut hear = |_: usize, last: &mut u64, text: &[u8]| {
            if text != expected.as_bytes() || *last >= number {
                return Err(unexpected(text, number, *last));
            }
            *last = number;
            Ok(())
        };
        let waits = |one: &Connection| one.last < number;
        self.until(all.clone(), &waits, &mut hear)?;
        let listening = Instant::now();
        while listening.elapsed() < Duration::from_millis(listen_ms) {
            self.turn(20, &mut hear, None)?;
        }
        Ok(self.done(all, &waits))
    }

    /// Receives messages up to the last one on each connection, and counts those that are missing
    /// or came again; returns how many connections have the last one.
    fn follow(&mut self, last: u64, confirmed: &[u64]) -> Result<usize> {
        let all = 0..self.connections.len();
        let mut heard: Vec<HashMap<u64, u64>> = vec![HashMap::new(); all.len()];
        let waits = |one: &Connection| one.last < last;
        self.until(all.clone(), &waits, &mut |connection, before, text| {
            let number = number_of(text).ok_or_else(|| unexpected(text, last, *before))?;
            *heard[connection].entry(number).or_default() += 1;
            *before = number;
            Ok(())
        })?;
        for own in &heard {
            let missed = confirmed.iter().chain([&last]).filter(|one| !own.contains_key(one));
            self.report.lost += missed.count() as u64;
            self.report.doubled += own.values().map(|times| times - 1).sum::<u64>();
        }
        Ok(self.done(all, &waits))
    }

    /// Takes what arrives until none of these connections waits, or the patience is over.
    fn until(&mut self, range: Range<usize>, waits: Waits<'_>, hear: &mut Hear<'_>) -> Result<()> {
        let all = self.connections[range.clone()].iter().flatten();
        let count = all.filter(|one| !one.is_wrong && waits(one)).count();
        let mut awaited = Awaited { waits, range, count };
        self.report.last_ns = process::now();
        let mut since = Instant::now();
        while awaited.count > 0 {
            let before = awaited.count;
            self.turn(100, hear, Some(&mut awaited))?;
            if awaited.count < before {
                (since, self.report.last_ns) = (Instant::now(), process::now());
            } else if since.elapsed() > PATIENCE {
                let (count, seconds) = (awaited.count, PATIENCE.as_secs());
                self.complain(|| format!("{count} connections received nothing in {seconds} s"));
                break;
            }
        }
        Ok(())
    }

    /// Waits once for so many milliseconds, takes what has arrived, and returns how many
    /// connections had something.
    fn turn(
        &mut self,
        milliseconds: i32,
        hear: &mut Hear<'_>,
        mut awaited: Option<&mut Awaited<'_>>,
    ) -> Result<usize> {
        let ready = epoll::wait_for(self.set.as_raw_fd(), &mut self.events, milliseconds);
        let ready = match usize::try_from(ready) {
            Ok(ready) => ready,
            Err(_) if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => 0,
            Err(_) => return Err(Error::last("waiting for answers")),
        };
        for place in 0..ready {
            let number = self.events[place].u64 as usize;
            let Some(one) = &mut self.connections[number] else { continue };
            let is_waiting = |one: &Connection, awaited: &Awaited<'_>| {
                awaited.range.contains(&number) && !one.is_wrong && (awaited.waits)(one)
            };
            let was_waiting = awaited.as_ref().is_some_and(|all| is_waiting(one, all));
            let outcome = match one.channel.read(&mut self.room) {
                Ok(0) => Err("it closed the connection".to_owned()),
                Ok(count) => {
                    let Connection { wire, last, .. } = one;
                    let bytes = &self.room[..count];
                    match wire.take(bytes, &mut |text| hear(number, last, text)) {
                        Ok(reply) if reply.is_empty() => Ok(()),
                        Ok(reply) => one
                            .channel
                            .send(&reply)
                            .map_err(|error| format!("the connection took no request: {error}")),
                        Err(found) => {
                            one.is_wrong = true;
                            self.complain(|| format!("connection {number}: {found}"));
                            Ok(())
                        }
                    }
                }
                Err(error) if is_nothing(&error) => continue,
                Err(error) => Err(format!("the connection broke: {error}")),
            };
            if let Err(reason) = outcome {
                self.end(number, &reason);
            }
            if let Some(awaited) = &mut awaited
                && was_waiting
                && !self.connections[number].as_ref().is_some_and(|one| is_waiting(one, awaited))
            {
                awaited.count -= 1;
            }
        }
        Ok(ready)
    }

    /// Closes a connection that has ended.
    fn end(&mut self, number: usize, reason: &str) {
        self.complain(|| format!("connection {number}: {reason}"));
        self.connections[number] = None;
    }
}

fn is_nothing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// No message may come now.
fn nothing(_: usize, last: &mut u64, text: &[u8]) -> Result<(), String> {
    Err(unexpected(text, *last + 1, *last))
}

/// Returns the number of a message.
fn number_of(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.split(' ').next()?.parse().ok()
}

/// Describes a message that is not the expected one.
fn unexpected(text: &[u8], number: u64, last: u64) -> String {
    match number_of(text) {
        Some(found) if found != 0 && found <= last => {
            format!("message {found} came twice, or after message {last}")
        }
        Some(found) if found > number => format!("message {found} came instead of {number}"),
        _ => {
            let shown = String::from_utf8_lossy(&text[..text.len().min(60)]);
            format!("{} bytes came instead of message {number}: {shown:?}", text.len())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;
    use crate::server::wire::{Form, Subscription, Transport};

    const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 13\r\n\r\nHello, World!";
    const STREAM: &[u8] = b"HTTP/1.1 200 OK\r\n\r\n";

    fn state(port: u16, opening: Opening) -> State {
        let from = Ipv4Addr::new(127, 0, 1, 9);
        State::new(Settings { subject: "absent", from, port, opening, bytes: 16, tls: None })
            .unwrap()
    }

    /// Clients that a server has accepted, which gave each of them this answer, and the server's
    /// ends.
    fn opened(opening: Opening, count: usize, answer: &'static [u8]) -> (State, Vec<TcpStream>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut state = state(listener.local_addr().unwrap().port(), opening);
        let server = std::thread::spawn(move || {
            let accept = |_| {
                let mut stream = listener.accept().unwrap().0;
                assert!(stream.read(&mut [0; 1024]).unwrap() > 0);
                stream.write_all(&answer[..10]).unwrap();
                stream.write_all(&answer[10..]).unwrap();
                stream
            };
            (0..count).map(accept).collect()
        });
        let report = state.carry_out(&Order::Open { count, at_once: 2 }).unwrap();
        assert_eq!((report.open, report.done, report.wrong), (count, count, 0), "{report:?}");
        assert_eq!(state.carry_out(&Order::Check).unwrap().complaint, None);
        (state, server.join().unwrap())
    }

    fn events() -> Opening {
        let (transport, form) = (Transport::Events, Form::Plain);
        Opening::Subscribe(Subscription { transport, path: "/events", form })
    }

    fn event(number: u64) -> String {
        format!("data: {}\n\n", message(number, 16))
    }

    #[test]
    fn each_connection_is_counted_by_what_it_receives() {
        let (mut state, mut streams) = opened(events(), 5, STREAM);
        // The message, the message twice, another one, the end without a message, and the message.
        for (stream, text) in streams.iter_mut().zip([event(7), event(7).repeat(2), event(8)]) {
            stream.write_all(text.as_bytes()).unwrap();
        }
        streams[4].write_all(event(7).as_bytes()).unwrap();
        drop(streams.remove(3));
        let order = Order::Receive { number: 7, listen_ms: 200 };
        let report = state.carry_out(&order).unwrap();
        assert_eq!((report.open, report.done, report.wrong), (4, 2, 2), "{report:?}");
        assert!(report.last_ns > 0 && report.complaint.is_some());
    }

    #[test]
    fn each_mistake_is_described() {
        let one = event(1);
        for (text, part) in [
            (one.repeat(2), "message 1 came twice"),
            (event(2), "message 2 came instead of 1"),
            (one.clone() + &event(2), "message 2 came instead of"),
            (one.replace("hij", "hik").replace("bcd", "bce"), "16 bytes came instead of message 1"),
        ] {
            let (mut state, mut streams) = opened(events(), 2, STREAM);
            for (stream, text) in streams.iter_mut().zip([&one, &text]) {
                stream.write_all(text.as_bytes()).unwrap();
            }
            let received = state.carry_out(&Order::Receive { number: 1, listen_ms: 0 }).unwrap();
            let checked = state.carry_out(&Order::Check).unwrap();
            let complaint = received.complaint.or(checked.complaint).unwrap();
            assert!(complaint.contains("connection 1") && complaint.contains(part), "{complaint}");
        }
    }

    #[test]
    fn ends_are_noticed_and_answers_without_a_request() {
        let (mut state, streams) = opened(Opening::Get(&ANSWER[ANSWER.len() - 13..]), 3, ANSWER);
        let mut server = std::thread::spawn(move || {
            let mut streams = streams;
            for stream in &mut streams {
                assert!(stream.read(&mut [0; 1024]).unwrap() > 0);
                stream.write_all(ANSWER).unwrap();
            }
            streams
        });
        let report = state.carry_out(&Order::Ask { count: 9, at_once: 9 }).unwrap();
        assert_eq!((report.done, report.complaint), (3, None));
        let mut streams = server.join().unwrap();
        streams[1].write_all(b"x").unwrap();
        drop(streams.remove(2));
        server = std::thread::spawn(move || streams);
        // The end and the byte may be on their way.
        let until = Instant::now() + PATIENCE;
        let (mut open, mut wrong) = (3, 0);
        while (open, wrong) != (2, 1) {
            assert!(Instant::now() < until, "{open} {wrong}");
            let report = state.carry_out(&Order::Check).unwrap();
            (open, wrong) = (report.open, wrong + report.wrong);
        }
        drop(server.join().unwrap());
        assert_eq!(state.carry_out(&Order::Close).unwrap().open, 0);
    }

    #[test]
    fn messages_that_are_missing_or_come_again_are_counted() {
        let (mut state, mut streams) = opened(events(), 3, STREAM);
        for (stream, numbers) in streams.iter_mut().zip([&[1, 2, 3, 4][..], &[1, 3, 3, 4], &[]]) {
            for &number in numbers {
                stream.write_all(event(number).as_bytes()).unwrap();
            }
        }
        drop(streams.pop());
        let report = state.carry_out(&Order::Follow(4, vec![1, 2])).unwrap();
        // The second lacks one, the third all three.
        assert_eq!((report.open, report.done, report.lost, report.doubled), (2, 2, 4, 1));
    }

    #[test]
    fn a_server_that_is_not_there_is_told() {
        // A port that no other test gets from the kernel meanwhile.
        let order = Order::Open { count: 3, at_once: 2 };
        let report = state(1, Opening::Get(b"")).carry_out(&order).unwrap();
        assert_eq!((report.open, report.done), (0, 0));
        assert!(report.complaint.unwrap().contains("refused"));
    }
}
