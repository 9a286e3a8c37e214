//! Clients and the origin behind the relay: one loop that knows what each byte must be on either side.
//!
//! It shares a machine with the relay, so it does no more than it must. A request is a number, the length of its
//! answer and a part of a pattern; the answer is the part of the pattern that belongs to the number. What comes out
//! of the relay is compared with what must have gone in, in both directions.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use crate::channel;
use crate::error::{Error, Result};
use crate::sys::{epoll, process, socket};

/// The length of a request.
pub const REQUEST: usize = 100;

/// Where a request says how long its answer is to be, after its number.
const LENGTH_AT: usize = 8;
const HEAD: usize = 16;

/// How much is read at a time, in bulk.
const ROOM: usize = 256 * 1024;

/// The length of the pattern, in which nothing comes twice in the same distance as a power of two.
const PATTERN: usize = 1_000_003;

/// Whoever does not answer for so long has lost a request.
const PATIENCE: Duration = Duration::from_secs(10);

/// Events that are taken from a wait at most.
const EVENTS: usize = 512;

/// How requests are spread over connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A connection for each, which the origin closes after its answer.
    Connection,
    /// Connections that stay open.
    KeepAlive,
    /// The same, with long answers.
    Bulk,
}

impl Kind {
    pub const ALL: [Kind; 3] = [Kind::Connection, Kind::KeepAlive, Kind::Bulk];

    pub fn name(self) -> &'static str {
        match self {
            Kind::Connection => "connection",
            Kind::KeepAlive => "keep-alive",
            Kind::Bulk => "bulk",
        }
    }
}

/// What the clients do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Point {
    pub kind: Kind,
    /// With one request under way on each.
    pub connections: usize,
    /// The length of an answer.
    pub bytes: usize,
}

/// A client, and how far its answer is.
#[derive(Default)]
struct Client {
    stream: Option<TcpStream>,
    number: u64,
    got: usize,
}

/// The origin's end of a connection.
struct Origin {
    stream: TcpStream,
    request: [u8; REQUEST],
    have: usize,
    /// Where in the pattern the answer goes on, and how much is left of it.
    at: usize,
    left: usize,
}

/// Who an event is for.
enum Whom {
    Listener,
    Client(usize),
    Origin(usize),
}

const LISTENER: u64 = 1 << 33;
const ORIGIN: u64 = 1 << 32;

fn whom(token: u64) -> Whom {
    match token {
        LISTENER => Whom::Listener,
        token if token & ORIGIN != 0 => Whom::Origin((token ^ ORIGIN) as usize),
        token => Whom::Client(token as usize),
    }
}

/// The pattern, and which part of it belongs to a number.
struct Pattern(Vec<u8>);

impl Pattern {
    fn new() -> Pattern {
        let mix = |place: u32| (place.wrapping_mul(0x9e37_79b1) ^ (place >> 7)) >> 13;
        Pattern((0..PATTERN as u32).map(|place| mix(place) as u8).collect())
    }

    fn start(number: u64) -> usize {
        (number.wrapping_mul(7919) % PATTERN as u64) as usize
    }

    /// As much as there is in one piece from a place on.
    fn piece(&self, at: usize, most: usize) -> &[u8] {
        let at = at % PATTERN;
        &self.0[at..(at + most).min(PATTERN)]
    }

    /// Whether bytes are those from a place on.
    fn is_at(&self, mut at: usize, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            let piece = self.piece(at, bytes.len());
            let (here, rest) = bytes.split_at(piece.len());
            if here != piece {
                return false;
            }
            at += piece.len();
            bytes = rest;
        }
        true
    }

    fn request(&self, number: u64, length: usize) -> [u8; REQUEST] {
        let mut request = [0; REQUEST];
        request[..LENGTH_AT].copy_from_slice(&number.to_le_bytes());
        request[LENGTH_AT..HEAD].copy_from_slice(&(length as u64).to_le_bytes());
        // The pattern is far longer than a request, and its end is never met here.
        let at = Pattern::start(number) % (PATTERN - REQUEST);
        request[HEAD..].copy_from_slice(&self.0[at..at + REQUEST - HEAD]);
        request
    }
}

/// All clients of a relay, and its origin.
pub struct Load {
    subject: &'static str,
    point: Point,
    set: OwnedFd,
    listener: TcpListener,
    /// Where the relay listens.
    relay: u16,
    clients: Vec<Client>,
    origins: Vec<Option<Origin>>,
    free: Vec<usize>,
    pattern: Pattern,
    room: Vec<u8>,
    number: u64,
    unasked: u64,
    unanswered: u64,
    busy_ns: u64,
}

impl Load {
    /// Listens as the origin of a relay that is to listen on this port.
    pub fn new(subject: &'static str, point: Point, relay: u16) -> Result<Load> {
        let failed = |source| Error::system("listening as the origin", source);
        let listener = socket::listen(0, false).map_err(failed)?;
        // What it accepts inherits this.
        channel::plain_congestion(&listener);
        let listener = TcpListener::from(listener);
        listener.set_nonblocking(true).map_err(failed)?;
        let set = epoll::create().map_err(failed)?;
        let readable = libc::EPOLLIN as u32;
        epoll::add(&set, listener.as_raw_fd(), readable, LISTENER).map_err(failed)?;
        let mut clients = Vec::new();
        clients.resize_with(point.connections, Client::default);
        Ok(Load {
            subject,
            point,
            set,
            listener,
            relay,
            clients,
            origins: Vec::new(),
            free: Vec::new(),
            pattern: Pattern::new(),
            room: vec![0; ROOM],
            number: 0,
            unasked: 0,
            unanswered: 0,
            busy_ns: 0,
        })
    }

    /// The port of the origin.
    pub fn origin(&self) -> Result<u16> {
        let address = self.listener.local_addr();
        address.map(|address| address.port()).map_err(|e| Error::system("asking for a port", e))
    }

    /// Waits until the relay listens.
    ///
    /// # Errors
    ///
    /// [`Error::Work`] if it does not, with what `complaint` says.
    pub fn meet(&self, complaint: impl FnOnce() -> String) -> Result<()> {
        let begun = Instant::now();
        loop {
            match TcpStream::connect((Ipv4Addr::LOCALHOST, self.relay)) {
                Ok(_) => return Ok(()),
                Err(_) if begun.elapsed() < PATIENCE => {
                    std::thread::sleep(Duration::from_millis(2));
                }
                Err(error) => {
                    let complaint = complaint();
                    let found = format!("it does not listen ({error}): {complaint}");
                    return Err(Error::Work { subject: self.subject, found });
                }
            }
        }
    }

    /// The processor time that clients and origin used when they were last asked to [`go`](Load::go).
    pub fn busy_ns(&self) -> u64 {
        self.busy_ns
    }

    /// Asks so often in all, and returns the nanoseconds from the first request to the last answer.
    ///
    /// # Errors
    ///
    /// [`Error::Work`] if a byte is wrong or does not come.
    pub fn go(&mut self, requests: u64) -> Result<u64> {
        let subject = self.subject;
        let wrong = |found: String| Error::Work { subject, found };
        let (begun, cpu) = (Instant::now(), process::thread_time());
        (self.unasked, self.unanswered) = (requests, requests);
        for client in 0..self.clients.len() {
            self.ask(client).map_err(wrong)?;
        }
        let mut events = [epoll::Raw { events: 0, u64: 0 }; EVENTS];
        while self.unanswered > 0 {
            let patience = PATIENCE.as_millis() as i32;
            let ready = epoll::wait_for(self.set.as_raw_fd(), &mut events, patience);
            let ready = match usize::try_from(ready) {
                Ok(0) => {
                    return Err(wrong(format!("{} answers did not come in 10 s", self.unanswered)));
                }
                Ok(ready) => ready,
                Err(_) if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {
                    continue;
                }
                Err(_) => return Err(Error::last("waiting for answers")),
            };
            for event in &events[..ready] {
                match whom(event.u64) {
                    Whom::Listener => self.accept(),
                    Whom::Client(client) => self.read_answer(client),
                    Whom::Origin(origin) => self.serve(origin),
                }
                .map_err(wrong)?;
            }
        }
        self.busy_ns = process::thread_time() - cpu;
        Ok(begun.elapsed().as_nanos() as u64)
    }

    /// Has a client send its next request, if there is one.
    fn ask(&mut self, index: usize) -> std::result::Result<(), String> {
        if self.unasked == 0 {
            return Ok(());
        }
        self.unasked -= 1;
        self.number += 1;
        let client = &mut self.clients[index];
        (client.number, client.got) = (self.number, 0);
        if client.stream.is_none() {
            let connected = connect(self.relay, &self.set, index as u64);
            client.stream = Some(connected.map_err(|e| format!("it takes no connection: {e}"))?);
        }
        let request = self.pattern.request(self.number, self.point.bytes);
        match client.stream.as_mut().map(|stream| stream.write(&request)) {
            Some(Ok(REQUEST)) => Ok(()),
            Some(Ok(count)) => Err(format!("a connection took {count} bytes of a request")),
            Some(Err(error)) => Err(format!("a connection took no request: {error}")),
            None => Ok(()),
        }
    }

    fn read_answer(&mut self, index: usize) -> std::result::Result<(), String> {
        let client = &mut self.clients[index];
        let Some(stream) = &mut client.stream else { return Ok(()) };
        let bytes = self.point.bytes;
        match stream.read(&mut self.room) {
            Ok(0) if self.point.kind == Kind::Connection && client.got == bytes => {
                client.stream = None;
            }
            Ok(0) => return Err(format!("an answer ended after {} of {bytes} bytes", client.got)),
            Ok(count) => {
                let at = Pattern::start(client.number) + client.got;
                client.got += count;
                if client.got > bytes || !self.pattern.is_at(at, &self.room[..count]) {
                    return Err(format!("an answer was wrong before its byte {}", client.got));
                }
                if client.got < bytes || self.point.kind == Kind::Connection {
                    return Ok(());
                }
            }
            Err(error) if is_nothing(&error) => return Ok(()),
            Err(error) => return Err(format!("a client's connection broke: {error}")),
        }
        self.unanswered -= 1;
        self.ask(index)
    }

    /// Takes in whom the relay has connected.
    fn accept(&mut self) -> std::result::Result<(), String> {
        loop {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if is_nothing(&error) => return Ok(()),
                Err(error) => return Err(format!("the origin cannot accept: {error}")),
            };
            let place = self.free.pop().unwrap_or_else(|| {
                self.origins.push(None);
                self.origins.len() - 1
            });
            let both = (libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLET) as u32;
            stream
                .set_nonblocking(true)
                .and_then(|()| stream.set_nodelay(true))
                .and_then(|()| {
                    epoll::add(&self.set, stream.as_raw_fd(), both, ORIGIN | place as u64)
                })
                .map_err(|error| format!("the origin cannot watch a connection: {error}"))?;
            self.origins[place] =
                Some(Origin { stream, request: [0; REQUEST], have: 0, at: 0, left: 0 });
            // Most requests have come with their connection.
            self.serve(place)?;
        }
    }

    /// Reads requests and writes answers until one of them would block.
    fn serve(&mut self, place: usize) -> std::result::Result<(), String> {
        let Some(origin) = self.origins[place].as_mut() else { return Ok(()) };
        loop {
            let outcome = match origin.left {
                0 => origin.stream.read(&mut origin.request[origin.have..]),
                left => origin.stream.write(self.pattern.piece(origin.at, left)),
            };
            match outcome {
                Ok(0) => break,
                Ok(count) if origin.left > 0 => {
                    origin.at = (origin.at + count) % PATTERN;
                    origin.left -= count;
                    if origin.left == 0 && self.point.kind == Kind::Connection {
                        break;
                    }
                }
                Ok(count) => {
                    origin.have += count;
                    if origin.have == REQUEST {
                        let number = word(&origin.request, 0);
                        if origin.request != self.pattern.request(number, self.point.bytes) {
                            return Err(format!("the origin got a wrong request {number}"));
                        }
                        (origin.have, origin.left) = (0, self.point.bytes);
                        origin.at = Pattern::start(number);
                    }
                }
                Err(error) if is_nothing(&error) => return Ok(()),
                Err(error) => return Err(format!("an origin's connection broke: {error}")),
            }
        }
        if origin.have > 0 {
            return Err(format!("the origin got {} bytes of a request", origin.have));
        }
        // Closing ends the watch too.
        self.origins[place] = None;
        self.free.push(place);
        Ok(())
    }
}

fn is_nothing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

fn word(request: &[u8; REQUEST], at: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&request[at..at + 8]);
    u64::from_le_bytes(bytes)
}

fn connect(port: u16, set: &OwnedFd, token: u64) -> io::Result<TcpStream> {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_nonblocking(true)?;
    epoll::add(set, stream.as_raw_fd(), libc::EPOLLIN as u32, token)?;
    let stream = OwnedFd::from(stream);
    channel::plain_congestion(&stream);
    Ok(stream.into())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    /// A relay of two threads for each connection, which spoils what it is told to.
    fn relay(
        origin: u16,
        spoil: impl Fn(&mut [u8]) + Send + Clone + 'static,
    ) -> (u16, Arc<AtomicBool>) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let over = Arc::new(AtomicBool::new(false));
        let seen = over.clone();
        std::thread::spawn(move || {
            while let Ok((client, _)) = listener.accept() {
                if seen.load(Ordering::SeqCst) {
                    return;
                }
                let upstream = TcpStream::connect((Ipv4Addr::LOCALHOST, origin)).unwrap();
                let ends = [client.try_clone().unwrap(), upstream.try_clone().unwrap()];
                let [mut here, mut there] = ends;
                std::thread::spawn(move || io::copy(&mut here, &mut { upstream }));
                let (mut client, spoil) = (client, spoil.clone());
                std::thread::spawn(move || {
                    let mut room = vec![0; 10_000];
                    while let Ok(count @ 1..) = there.read(&mut room) {
                        spoil(&mut room[..count]);
                        if client.write_all(&room[..count]).is_err() {
                            return;
                        }
                    }
                    let _ = client.shutdown(std::net::Shutdown::Both);
                });
            }
        });
        (port, over)
    }

    fn go(point: Point, spoil: impl Fn(&mut [u8]) + Send + Clone + 'static) -> Result<u64> {
        let mut load = Load::new("nobody", point, 0).unwrap();
        let (port, over) = relay(load.origin().unwrap(), spoil);
        load.relay = port;
        load.meet(String::new).unwrap();
        let outcome = load.go(3 * point.connections as u64 + 1);
        over.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, port));
        outcome
    }

    #[test]
    fn right_bytes_are_taken_under_every_load_and_wrong_ones_found() {
        for kind in Kind::ALL {
            for bytes in [1, 200, 3_000_000] {
                let point = Point { kind, connections: 3, bytes };
                assert!(go(point, |_| {}).unwrap() > 0, "{kind:?} {bytes}");
                let last = |bytes: &mut [u8]| *bytes.last_mut().unwrap() ^= 1;
                let error = go(point, last).unwrap_err().to_string();
                assert!(error.contains("nobody") && error.contains("wrong"), "{error}");
            }
        }
    }

    #[test]
    fn who_does_not_listen_is_named_with_its_complaint() {
        let point = Point { kind: Kind::Bulk, connections: 1, bytes: 1 };
        let port = crate::relay::peers::free_port().unwrap();
        let load = Load::new("nobody", point, port).unwrap();
        let error = load.meet(|| "no such option".to_owned()).unwrap_err().to_string();
        assert!(error.contains("does not listen") && error.contains("no such option"), "{error}");
    }

    #[test]
    fn the_pattern_goes_on_after_its_end() {
        let pattern = Pattern::new();
        let wrapped = [&pattern.0[PATTERN - 3..], &pattern.0[..5]].concat();
        assert!(pattern.is_at(PATTERN - 3, &wrapped) && !pattern.is_at(PATTERN - 4, &wrapped));
        assert!(pattern.request(7, 200) != pattern.request(8, 200));
    }
}
