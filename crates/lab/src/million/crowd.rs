//! The connections of a process of clients, watched by one epoll set.

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::error::{Doing, Error, Result};
use crate::http::BODY;
use crate::million::{CHANNEL, Kind};
use crate::server::clients::Clients;
use crate::sys::{descriptor, epoll, process, socket};

/// How long it may take until the next connection is open, or has the bytes that it waits for.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long connections are listened to after the last one has its message: another one would be
/// wrong.
const SILENCE: Duration = Duration::from_millis(200);

/// Events that are fetched at once.
const EVENTS: usize = 512;

/// The orders for a process of clients.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Order {
    /// Open connections.
    Open(Opening),
    /// Count the open connections. All of them must be silent.
    Count,
    /// Send a request on each connection, with at most this many under way.
    Ask(usize),
    /// Receive this message on each connection.
    Receive(String),
}

/// Connections to be opened.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Opening {
    /// Their kind.
    pub kind: Kind,
    /// The address from which they come.
    pub from: Ipv4Addr,
    /// The port of the server.
    pub port: u16,
    /// Their number.
    pub count: usize,
    /// How many are opened at the same time.
    pub in_flight: usize,
}

/// The outcome of an order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Report {
    /// Connections that are open now.
    pub open: usize,
    /// Connections that received all they had to.
    pub done: usize,
    /// Connections that received anything else.
    pub wrong: usize,
    /// When the last connection was done, by the monotonic clock.
    pub last_ns: u64,
    /// The first thing that went wrong.
    pub complaint: Option<String>,
}

impl Report {
    fn complain(&mut self, about: impl Into<String>) {
        self.complaint.get_or_insert(about.into());
    }
}

/// Forks a process of clients without connections.
pub(super) fn start() -> Result<Clients> {
    let mut crowd: Option<Crowd> = None;
    Clients::start("superpoll serve", move |order: Order| {
        let crowd = match &mut crowd {
            Some(crowd) => crowd,
            // Descriptors that were made before the fork are closed by now.
            none => none.insert(Crowd::new()?),
        };
        crowd.carry_out(order)
    })
}

/// The state of a connection under an order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// It has nothing to do with the order.
    Idle,
    /// It waits for bytes.
    Waiting,
    /// It has received them.
    Done,
}

/// A connection.
#[derive(Debug)]
struct Connection {
    socket: OwnedFd,
    state: State,
}

#[derive(Debug)]
struct Crowd {
    set: OwnedFd,
    /// The connections by number; `None` where one has ended.
    connections: Vec<Option<Connection>>,
    /// The request that opens each, and that a kept connection sends again.
    request: Vec<u8>,
    /// The bytes of connections that wait for more.
    begun: HashMap<usize, Vec<u8>>,
    /// Connections that have not sent their request, because they were not connected.
    unsent: HashSet<usize>,
    /// How many wait for bytes.
    waiting: usize,
    wrong: HashSet<usize>,
    report: Report,
}

impl Crowd {
    fn new() -> Result<Crowd> {
        superpoll::limits::raise_descriptors().doing("raising the limit of descriptors")?;
        Ok(Crowd {
            set: epoll::create().doing("watching clients")?,
            connections: Vec::new(),
            request: Vec::new(),
            begun: HashMap::new(),
            unsent: HashSet::new(),
            waiting: 0,
            wrong: HashSet::new(),
            report: Report::default(),
        })
    }

    fn carry_out(&mut self, order: Order) -> Result<Report> {
        self.connections.iter_mut().flatten().for_each(|one| one.state = State::Idle);
        match order {
            Order::Open(opening) => {
                self.request = request(opening.kind);
                self.connections.reserve_exact(opening.count);
                let last = self.connections.len() + opening.count;
                let answer = Expected::answer(opening.kind);
                self.exchange(opening.in_flight, &answer, |crowd| {
                    // After the first refusal there is no point in going on.
                    let goes_on =
                        crowd.connections.len() < last && crowd.report.complaint.is_none();
                    goes_on.then(|| crowd.open(opening)).transpose().map(|opened| opened.is_some())
                })?;
            }
            Order::Count => while self.turn(None, 0)? > 0 {},
            Order::Ask(in_flight) => {
                let mut next = 0;
                self.exchange(in_flight, &Expected::Response, |crowd| {
                    let number = next;
                    next += 1;
                    if crowd.connections.get(number).is_some_and(Option::is_some) {
                        crowd.wait_for(number);
                        crowd.send(number);
                    }
                    Ok(number < crowd.connections.len())
                })?;
            }
            Order::Receive(text) => {
                (0..self.connections.len()).for_each(|number| self.wait_for(number));
                self.until_done(Some(&Expected::message(&text)))?;
                let begun = Instant::now();
                while begun.elapsed() < SILENCE {
                    self.turn(None, 20)?;
                }
            }
        }
        self.report.open = self.connections.iter().flatten().count();
        self.report.wrong = self.wrong.len();
        self.wrong.clear();
        Ok(std::mem::take(&mut self.report))
    }

    /// Begins something on one connection after the other, as long as fewer than `in_flight` wait
    /// and `begin` returns true, and waits for all of them.
    fn exchange(
        &mut self,
        in_flight: usize,
        expected: &Expected,
        mut begin: impl FnMut(&mut Crowd) -> io::Result<bool>,
    ) -> Result<()> {
        let mut is_more = true;
        while is_more {
            while is_more && self.waiting < in_flight {
                is_more = begin(self).unwrap_or_else(|error| {
                    let open = self.connections.len();
                    self.report.complain(format!("after {open} connections: {error}"));
                    false
                });
            }
            let most = if is_more { in_flight } else { 1 };
            if !self.until(Some(expected), most)? {
                break;
            }
        }
        Ok(())
    }

    fn until_done(&mut self, expected: Option<&Expected>) -> Result<()> {
        self.until(expected, 1).map(drop)
    }

    /// Waits until fewer than `most` connections wait. Returns false if they would have to wait too
    /// long.
    fn until(&mut self, expected: Option<&Expected>, most: usize) -> Result<bool> {
        let (mut last, mut before) = (Instant::now(), self.waiting);
        while self.waiting >= most {
            self.turn(expected, 100)?;
            if self.waiting != before {
                (last, before) = (Instant::now(), self.waiting);
            } else if last.elapsed() > PATIENCE {
                let (waiting, seconds) = (self.waiting, PATIENCE.as_secs());
                let text = format!("{waiting} connections received nothing in {seconds} s");
                self.report.complain(text);
                self.connections.iter_mut().flatten().for_each(|one| one.state = State::Idle);
                self.waiting = 0;
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Begins to connect, and sends the request.
    fn open(&mut self, opening: Opening) -> io::Result<()> {
        let socket = socket::begin_to_connect_from(opening.from, opening.port)?;
        // The run must not leave ports occupied.
        descriptor::reset_on_close(&socket)?;
        let number = self.connections.len();
        let events = (libc::EPOLLIN | libc::EPOLLRDHUP) as u32;
        epoll::add(&self.set, socket.as_raw_fd(), events, number as u64)?;
        self.connections.push(Some(Connection { socket, state: State::Idle }));
        self.wait_for(number);
        self.send(number);
        Ok(())
    }

    fn fd(&self, number: usize) -> Option<RawFd> {
        let connection = self.connections.get(number)?.as_ref()?;
        Some(connection.socket.as_raw_fd())
    }

    /// Notes that a connection waits for bytes, if it is open.
    fn wait_for(&mut self, number: usize) {
        if self.connections.get(number).is_some_and(Option::is_some) {
            self.change(number, State::Waiting);
        }
    }

    fn is_waiting(&self, number: usize) -> bool {
        let one = self.connections.get(number).and_then(Option::as_ref);
        one.is_some_and(|one| one.state == State::Waiting)
    }

    /// Changes the state of a connection, and returns the one before.
    fn change(&mut self, number: usize, state: State) -> State {
        let one = self.connections.get_mut(number).and_then(Option::as_mut);
        let before = one.map_or(State::Idle, |one| std::mem::replace(&mut one.state, state));
        self.waiting += usize::from(state == State::Waiting);
        self.waiting -= usize::from(before == State::Waiting);
        self.report.done += usize::from(state == State::Done);
        self.report.done -= usize::from(before == State::Done);
        before
    }

    /// Sends the request, now or when the connection is there.
    fn send(&mut self, number: usize) {
        let Some(fd) = self.fd(number) else { return };
        let sent = descriptor::write(fd, &self.request);
        let events = (libc::EPOLLIN | libc::EPOLLRDHUP) as u32;
        let changed = if sent == self.request.len() as isize {
            match self.unsent.remove(&number) {
                true => epoll::change(
                    self.set.as_raw_fd(),
                    epoll::Change::Modify,
                    fd,
                    events,
                    number as u64,
                ),
                false => Ok(()),
            }
        } else if sent >= 0 {
            Err(io::Error::other("a request was not sent in one piece"))
        } else {
            let error = io::Error::last_os_error();
            if error.kind() == io::ErrorKind::WouldBlock {
                self.unsent.insert(number);
                let events = events | libc::EPOLLOUT as u32;
                let set = self.set.as_raw_fd();
                epoll::change(set, epoll::Change::Modify, fd, events, number as u64)
            } else {
                Err(error)
            }
        };
        if let Err(error) = changed {
            self.end(number, &error.to_string());
        }
    }

    /// Closes a connection that has ended.
    fn end(&mut self, number: usize, reason: &str) {
        if self.is_waiting(number) {
            self.change(number, State::Idle);
        }
        self.unsent.remove(&number);
        self.begun.remove(&number);
        self.report.complain(format!("connection {number} ended: {reason}"));
        if let Some(connection) = self.connections.get_mut(number) {
            *connection = None;
        }
    }

    /// Waits for events, and returns their number. Connections wait for the bytes `expected`.
    fn turn(&mut self, expected: Option<&Expected>, milliseconds: i32) -> Result<usize> {
        let mut events = [epoll::Raw { events: 0, u64: 0 }; EVENTS];
        let ready = epoll::wait_for(self.set.as_raw_fd(), &mut events, milliseconds);
        let Ok(ready) = usize::try_from(ready) else {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::Interrupted => Ok(0),
                _ => Err(Error::system("waiting for clients", error)),
            };
        };
        for event in events.iter().take(ready) {
            let number = event.u64 as usize;
            if self.unsent.contains(&number) {
                self.send(number);
            } else {
                self.read(number, expected);
            }
        }
        Ok(ready)
    }

    fn read(&mut self, number: usize, expected: Option<&Expected>) {
        let Some(fd) = self.fd(number) else { return };
        let mut room = [0; 4096];
        match usize::try_from(descriptor::read(fd, &mut room)) {
            Ok(0) => self.end(number, "the server closed it"),
            Ok(count) => self.receive(number, expected, &room[..count]),
            Err(_) => {
                let error = io::Error::last_os_error();
                if !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) {
                    self.end(number, &error.to_string());
                }
            }
        }
    }

    fn receive(&mut self, number: usize, expected: Option<&Expected>, bytes: &[u8]) {
        let whole = match self.begun.remove(&number) {
            Some(begun) => [&begun, bytes].concat(),
            None => bytes.to_vec(),
        };
        let verdict = match expected.filter(|_| self.is_waiting(number)) {
            Some(expected) => expected.judge(&whole),
            None => Verdict::Wrong,
        };
        match verdict {
            Verdict::Begun => drop(self.begun.insert(number, whole)),
            Verdict::Complete => {
                self.change(number, State::Done);
                self.report.last_ns = process::now();
            }
            Verdict::Wrong => {
                self.change(number, State::Idle);
                self.wrong.insert(number);
                let text = String::from_utf8_lossy(&whole[..whole.len().min(200)]).into_owned();
                self.report.complain(format!("connection {number} received {text:?}"));
            }
        }
    }
}

// The bytes that a connection has to receive, and the judgement on those that came.

/// The key of the handshake in RFC 6455, section 1.3, and the server's answer to it.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const ACCEPTED: &[u8] = b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

/// The end of a head.
const END: &[u8] = b"\r\n\r\n";

/// The first byte of a frame with a whole text message, and the largest length that the second byte
/// can say.
const TEXT: u8 = 0x81;
const MOST: usize = 125;

/// An answer with a longer head is wrong.
const LONGEST: usize = 2048;

/// Returns the request that opens a connection of a kind; a kept one sends it again later.
pub(super) fn request(kind: Kind) -> Vec<u8> {
    let text = match kind {
        Kind::KeepAlive => "GET / HTTP/1.1\r\nhost: localhost\r\n\r\n".to_owned(),
        Kind::WebSocket => format!(
            "GET {CHANNEL} HTTP/1.1\r\nhost: localhost\r\nupgrade: websocket\r\n\
             connection: Upgrade\r\nsec-websocket-version: 13\r\nsec-websocket-key: {KEY}\r\n\r\n"
        ),
    };
    text.into_bytes()
}

/// The next bytes of a connection.
#[derive(Clone, Debug)]
pub(super) enum Expected {
    /// The answer to a request.
    Response,
    /// The answer to the handshake of a WebSocket.
    Handshake,
    /// The frame of a message.
    Frame(Vec<u8>),
}

/// The judgement on the bytes that have come so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// They are the beginning.
    Begun,
    /// They are all.
    Complete,
    /// They are something else.
    Wrong,
}

impl Expected {
    /// Returns the answer to the request that opens a connection.
    pub(super) fn answer(kind: Kind) -> Expected {
        match kind {
            Kind::KeepAlive => Expected::Response,
            Kind::WebSocket => Expected::Handshake,
        }
    }

    /// Returns the frame of a short message.
    pub(super) fn message(text: &str) -> Expected {
        debug_assert!(text.len() <= MOST);
        Expected::Frame([&[TEXT, text.len() as u8], text.as_bytes()].concat())
    }

    /// Judges all bytes since the connection was idle.
    pub(super) fn judge(&self, bytes: &[u8]) -> Verdict {
        let (status, is_complete) = match self {
            Expected::Frame(frame) if bytes == frame => return Verdict::Complete,
            Expected::Frame(frame) if frame.starts_with(bytes) => return Verdict::Begun,
            Expected::Frame(_) => return Verdict::Wrong,
            Expected::Response => {
                let head = bytes.windows(END.len()).position(|window| window == END);
                let body = head.map(|head| &bytes[head + END.len()..]);
                if body.is_some_and(|body| !BODY.starts_with(body)) {
                    return Verdict::Wrong;
                }
                (&b"HTTP/1.1 200 "[..], body == Some(BODY))
            }
            Expected::Handshake => {
                let mut lines = bytes.split(|byte| *byte == b'\n');
                let is_accepted = lines.any(|line| line.trim_ascii_end().ends_with(ACCEPTED));
                if bytes.ends_with(END) && !is_accepted {
                    return Verdict::Wrong;
                }
                (&b"HTTP/1.1 101 "[..], bytes.ends_with(END))
            }
        };
        let known = bytes.len().min(status.len());
        match is_complete {
            _ if bytes[..known] != status[..known] || bytes.len() > LONGEST => Verdict::Wrong,
            true => Verdict::Complete,
            false => Verdict::Begun,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 13\r\n\r\nHello, World!";

    /// A server that answers so many requests of one connection after the other, and does `then`
    /// with all of them.
    fn serve(
        listener: TcpListener,
        count: usize,
        then: impl FnOnce(Vec<TcpStream>) + Send + 'static,
    ) -> std::thread::JoinHandle<()> {
        std::thread::spawn(move || {
            let mut all = Vec::new();
            for _ in 0..count {
                let mut stream = listener.accept().unwrap().0;
                let mut room = [0; 1024];
                assert!(stream.read(&mut room).unwrap() > 0);
                stream.write_all(&ANSWER[..20]).unwrap();
                stream.write_all(&ANSWER[20..]).unwrap();
                all.push(stream);
            }
            then(all);
        })
    }

    fn opened(port: u16, count: usize) -> (Crowd, Report) {
        let mut crowd = Crowd::new().unwrap();
        let from = Ipv4Addr::new(127, 0, 1, 9);
        let kind = Kind::KeepAlive;
        let order = Order::Open(Opening { kind, from, port, count, in_flight: 2 });
        let report = crowd.carry_out(order).unwrap();
        (crowd, report)
    }

    #[test]
    fn each_connection_is_counted_by_what_it_receives() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let server = serve(listener, 5, move |mut all| {
            wait.recv().unwrap();
            // A message, one twice, another one, the end without a message, and a message again.
            for (stream, text) in all.iter_mut().zip(["\x017", "\x017", "\x018", ""]) {
                if !text.is_empty() {
                    stream.write_all(&[&[0x81], text.as_bytes()].concat()).unwrap();
                }
            }
            all[1].write_all(b"\x81\x017").unwrap();
            all.remove(3);
            all[3].write_all(b"\x81\x017").unwrap();
            wait.recv().unwrap();
        });
        let (mut crowd, report) = opened(port, 5);
        assert_eq!((report.open, report.done, report.wrong), (5, 5, 0), "{report:?}");
        assert_eq!(crowd.carry_out(Order::Count).unwrap(), Report { open: 5, ..Report::default() });
        go.send(()).unwrap();
        let report = crowd.carry_out(Order::Receive("7".to_owned())).unwrap();
        assert_eq!((report.open, report.done, report.wrong), (4, 2, 2), "{report:?}");
        assert!(report.last_ns > 0 && report.complaint.is_some());
        go.send(()).unwrap();
        server.join().unwrap();
    }

    #[test]
    fn a_server_that_is_not_there_is_told() {
        // A port that no other test gets from the kernel meanwhile.
        let (_, report) = opened(1, 3);
        assert_eq!((report.open, report.done), (0, 0));
        assert!(report.complaint.unwrap().contains("refused"));
    }

    fn each_prefix(expected: &Expected, all: &[u8]) {
        for end in 0..all.len() {
            assert_eq!(expected.judge(&all[..end]), Verdict::Begun, "{end} of {all:?}");
        }
        assert_eq!(expected.judge(all), Verdict::Complete);
    }

    #[test]
    fn answers_are_complete_at_their_last_byte() {
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 13\r\n\r\nHello, World!";
        each_prefix(&Expected::answer(Kind::KeepAlive), answer);
        let twice = [&answer[..], b"H"].concat();
        for wrong in [&twice[..], b"HTTP/1.1 404 No", b"no", &[b'x'; 4000]] {
            assert_eq!(Expected::Response.judge(wrong), Verdict::Wrong);
        }
        let endless = [&b"HTTP/1.1 200 OK\r\n"[..], &[b'x'; LONGEST]].concat();
        assert_eq!(Expected::Response.judge(&endless), Verdict::Wrong);
    }

    #[test]
    fn handshakes_must_have_the_answer_to_the_key() {
        let answer = b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\n\
            sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
        each_prefix(&Expected::answer(Kind::WebSocket), answer);
        let other = b"HTTP/1.1 101 Switching Protocols\r\nsec-websocket-accept: x\r\n\r\n";
        assert_eq!(Expected::Handshake.judge(other), Verdict::Wrong);
    }

    #[test]
    fn a_message_that_comes_twice_or_is_another_is_wrong() {
        let frame = Expected::message("7");
        each_prefix(&frame, b"\x81\x017");
        for wrong in [&b"\x81\x018"[..], b"\x81\x017\x81\x017", b"\x89\x00"] {
            assert_eq!(frame.judge(wrong), Verdict::Wrong);
        }
    }
}
