//! Clients and the origin behind the relay: one loop that knows each byte on either side.
//!
//! The load shares a machine with the relay, so it does no more than necessary. A request has a
//! number. The answer is the part of a pattern that belongs to the number, after a head in the case
//! of HTTP. The load compares the bytes that come out of the relay with those that went in, in both
//! directions.
//!
//! Where each request has a connection of its own, one side closes it. With a relay it is the
//! origin, after its answer; with an HTTP proxy it is the proxy, because the client sends
//! `Connection: close`. That field concerns the client's connection only, so proxies keep their
//! connections to the origin, which follows the field of the request that it receives.
//!
//! The origin speaks HTTP/1 without TLS. Clients that resume sessions use each ticket once, and a
//! session that is not resumed once there are tickets is an error.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::ClientConfig;

use crate::channel;
use crate::error::{Doing, Error, Result};
use crate::server::http2::{Http2, Part};
use crate::server::tls::{Certificate, Channel, Offer};
use crate::server::web::STREAMS;
use crate::server::{trial, web};
use crate::sys::{epoll, process, socket};

mod http;

/// The number of bytes of a read, in bulk.
const ROOM: usize = 256 * 1024;

/// The number of a body's bytes that go with its head in one piece.
const WITH_HEAD: usize = 64 * 1024;

/// A request without an answer within this time is lost.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long a relay runs in the pilot before its pace is believed.
const PILOT_NS: u64 = 50_000_000;

/// The most events that a wait returns.
const EVENTS: usize = 512;

crate::by_name::named! {
    /// The protocol, and how requests are spread over connections.
    pub(crate) enum Kind {
        /// A connection for each request, which the origin closes after its answer.
        Connection = "connection",
        /// The same with a single client: a wait never reports more than one request.
        OneByOne = "one-by-one",
        /// Connections that stay open.
        KeepAlive = "keep-alive",
        /// The same, with long answers.
        Bulk = "bulk",
        /// HTTP, with a client's connection for each request, which the proxy closes after the
        /// answer.
        HttpConnection = "http-connection",
        /// HTTP on connections that stay open.
        HttpKeepAlive = "http-keep-alive",
        /// Like `http-connection`, with TLS and a full handshake.
        HttpsFull = "https-full",
        /// The same, with a handshake that resumes an earlier session.
        HttpsResumed = "https-resumed",
        /// HTTP over TLS on connections that stay open.
        HttpsKeepAlive = "https-keep-alive",
        /// HTTP/2 over TLS on connections that stay open, to an origin of HTTP/1.
        H2 = "h2",
    }
}

impl Kind {
    /// Whether the load is for an HTTP proxy.
    pub(crate) fn is_http(self) -> bool {
        !matches!(self, Kind::Connection | Kind::OneByOne | Kind::KeepAlive | Kind::Bulk)
    }

    /// Returns the offer of clients in their handshake, if they encrypt.
    pub(crate) fn offer(self) -> Option<Offer> {
        match self {
            Kind::HttpsFull | Kind::HttpsKeepAlive => Some(Offer::Http1),
            Kind::HttpsResumed => Some(Offer::Resumption),
            Kind::H2 => Some(Offer::Http2),
            _ => None,
        }
    }

    /// Returns the requests under way on each connection.
    pub(crate) fn streams(self) -> usize {
        if self == Kind::H2 { STREAMS } else { 1 }
    }

    /// Whether each request has a connection of its own.
    pub(crate) fn is_by_connection(self) -> bool {
        matches!(
            self,
            Kind::Connection
                | Kind::OneByOne
                | Kind::HttpConnection
                | Kind::HttpsFull
                | Kind::HttpsResumed
        )
    }
}

/// The parameters of the clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Point {
    pub kind: Kind,
    /// Connections, each with as many requests under way as its kind has.
    pub connections: usize,
    /// The length of an answer.
    pub bytes: usize,
}

impl Point {
    fn write_request(self, pattern: &Pattern, number: u64, to: &mut Vec<u8>) {
        match self.kind.is_http() {
            true => http::write_request(number, self.kind.is_by_connection(), to),
            false => write_tcp_request(pattern, number, self.bytes, to),
        }
    }

    /// The most bytes of a request that an origin reads at a time.
    fn request_room(self) -> usize {
        if self.kind.is_http() { http::ROOM } else { REQUEST }
    }

    fn find_request(
        self,
        pattern: &Pattern,
        got: &[u8],
    ) -> std::result::Result<Option<FoundRequest>, String> {
        if self.kind.is_http() {
            return http::find_request(got);
        }
        let closes = self.kind.is_by_connection();
        let found = find_tcp_request(pattern, got, self.bytes)?;
        Ok(found.map(|found| FoundRequest { closes, ..found }))
    }
}

/// A request that the origin has received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct FoundRequest {
    number: u64,
    /// Whether its connection ends with the answer.
    closes: bool,
}

/// A client, and the progress of its answers.
#[derive(Default)]
struct Client {
    channel: Option<Channel>,
    /// Its end of HTTP/2, if it speaks that, and the requests under way.
    http2: Option<(Http2, Vec<UnderWay>)>,
    number: u64,
    /// The beginning of a head that came in several parts.
    head: Vec<u8>,
    has_head: bool,
    /// The number of the body's bytes that have arrived.
    got: usize,
}

/// A request on a stream of HTTP/2, and how much of the answer's body has arrived.
struct UnderWay {
    stream: u32,
    number: u64,
    got: usize,
}

/// Takes bytes that arrived over HTTP/2, and returns how many answers are complete. Appends the
/// bytes to send.
fn take_frames(
    (http2, under_way): &mut (Http2, Vec<UnderWay>),
    come: &[u8],
    bytes: usize,
    pattern: &Pattern,
    reply: &mut Vec<u8>,
) -> std::result::Result<usize, String> {
    let mut complete = 0;
    let mut take = |stream, part: Part<'_>| {
        let place = under_way.iter().position(|one| one.stream == stream);
        let place = place.ok_or_else(|| format!("data of no request came: stream {stream}"))?;
        let one = &mut under_way[place];
        match part {
            Part::Head => {}
            Part::Data(data) if pattern.is_at(Pattern::start(one.number) + one.got, data) => {
                one.got += data.len();
            }
            Part::End if one.got == bytes => {
                under_way.swap_remove(place);
                complete += 1;
            }
            _ => return Err(format!("an answer was wrong after its byte {}", one.got)),
        }
        Ok(())
    };
    http2.take(come, &mut take, reply)?;
    Ok(complete)
}

impl Client {
    /// Checks the bytes of an answer that have arrived.
    fn take(
        &mut self,
        come: &[u8],
        bytes: usize,
        pattern: &Pattern,
    ) -> std::result::Result<(), String> {
        let mut body = come;
        if !self.has_head {
            // As a rule a head comes in one piece, and then no part of it is kept.
            let held = self.head.len();
            if held > 0 {
                self.head.extend_from_slice(come);
            }
            let head = if held > 0 { &self.head } else { come };
            match http::find_answer(head, self.number, bytes)? {
                Some(length) => body = &come[length - held..],
                None if held > 0 => return Ok(()),
                None => {
                    self.head.extend_from_slice(come);
                    return Ok(());
                }
            }
            self.has_head = true;
            self.head.clear();
        }
        let at = Pattern::start(self.number) + self.got;
        self.got += body.len();
        if self.got > bytes || !pattern.is_at(at, body) {
            return Err(format!("an answer was wrong before its byte {}", self.got));
        }
        Ok(())
    }
}

/// The origin's end of a connection.
struct Origin {
    stream: TcpStream,
    request: Vec<u8>,
    have: usize,
    /// The bytes that go before the rest of the answer, and how many of them have gone.
    first: Vec<u8>,
    sent: usize,
    /// The place in the pattern where the answer goes on, and how much is left of it.
    at: usize,
    left: usize,
    closes: bool,
}

impl Origin {
    fn new(stream: TcpStream, room: usize) -> Origin {
        let (request, first) = (vec![0; room], Vec::new());
        Origin { stream, request, have: 0, first, sent: 0, at: 0, left: 0, closes: false }
    }

    fn is_answering(&self) -> bool {
        self.sent < self.first.len() || self.left > 0
    }

    /// Begins to answer.
    fn answer(&mut self, found: FoundRequest, point: Point, pattern: &Pattern) {
        (self.have, self.closes) = (0, found.closes);
        (self.at, self.left) = (Pattern::start(found.number), point.bytes);
        self.first.clear();
        self.sent = 0;
        if point.kind.is_http() {
            http::write_answer_head(found.number, point.bytes, found.closes, &mut self.first);
            let body = pattern.piece(self.at, self.left.min(WITH_HEAD));
            self.first.extend_from_slice(body);
            self.at += body.len();
            self.left -= body.len();
        }
    }

    /// Sends more of the answer.
    fn send(&mut self, pattern: &Pattern) -> io::Result<usize> {
        if self.sent < self.first.len() {
            let count = self.stream.write(&self.first[self.sent..])?;
            self.sent += count;
            return Ok(count);
        }
        let count = self.stream.write(pattern.piece(self.at, self.left))?;
        self.at += count;
        self.left -= count;
        Ok(count)
    }
}

/// The recipient of an event.
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

/// All clients of a relay, and its origin.
pub(super) struct Load {
    subject: &'static str,
    point: Point,
    set: OwnedFd,
    listener: TcpListener,
    /// The port on which the relay listens, and the way to encrypt, if clients do.
    relay: u16,
    tls: Option<Arc<ClientConfig>>,
    /// Whether there are sessions to resume.
    is_warm: bool,
    clients: Vec<Client>,
    origins: Vec<Option<Origin>>,
    free: Vec<usize>,
    pattern: Pattern,
    room: Vec<u8>,
    request: Vec<u8>,
    number: u64,
    unasked: u64,
    unanswered: u64,
    accepted: u64,
    busy_ns: u64,
}

impl Load {
    /// Listens as the origin of a relay that will listen on this port, with this certificate if it
    /// encrypts.
    pub(super) fn new(
        subject: &'static str,
        point: Point,
        relay: u16,
        certificate: &Certificate,
    ) -> Result<Load> {
        let tls = point.kind.offer().map(|offer| certificate.client(offer)).transpose()?;
        let failed = |source| Error::system("listening as the origin", source);
        let listener = socket::listen(0, false).map_err(failed)?;
        // Accepted connections inherit this setting.
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
            tls,
            is_warm: false,
            clients,
            origins: Vec::new(),
            free: Vec::new(),
            pattern: Pattern::new(),
            room: vec![0; ROOM],
            request: Vec::new(),
            number: 0,
            unasked: 0,
            unanswered: 0,
            accepted: 0,
            busy_ns: 0,
        })
    }

    /// The port of the origin.
    pub(super) fn origin(&self) -> Result<u16> {
        let address = self.listener.local_addr();
        address.map(|address| address.port()).doing("asking for a port")
    }

    /// How many connections the origin has accepted so far.
    pub(super) fn accepted(&self) -> u64 {
        self.accepted
    }

    /// Makes a client send its next requests, if there are any: this many at most.
    fn ask(&mut self, index: usize, most: usize) -> std::result::Result<(), String> {
        let count = self.unasked.min(most as u64);
        if count == 0 {
            return Ok(());
        }
        self.unasked -= count;
        self.request.clear();
        let client = &mut self.clients[index];
        let channel = match &mut client.channel {
            Some(channel) => channel,
            none => {
                if self.point.kind == Kind::H2 {
                    client.http2 = Some((Http2::begin(&mut self.request), Vec::new()));
                }
                let connected = connect(self.relay, self.tls.as_ref(), &self.set, index as u64);
                none.insert(connected.map_err(|e| format!("it takes no connection: {e}"))?)
            }
        };
        for _ in 0..count {
            self.number += 1;
            let number = self.number;
            match &mut client.http2 {
                Some((http2, under_way)) => {
                    let stream = http::write_http2_request(number, http2, &mut self.request);
                    under_way.push(UnderWay { stream, number, got: 0 });
                }
                None => {
                    (client.number, client.got) = (number, 0);
                    client.has_head = !self.point.kind.is_http();
                    self.point.write_request(&self.pattern, number, &mut self.request);
                }
            }
        }
        channel.send(&self.request).map_err(|e| format!("a connection took no request: {e}"))
    }

    fn read_answer(&mut self, index: usize) -> std::result::Result<(), String> {
        let Point { kind, bytes, .. } = self.point;
        let client = &mut self.clients[index];
        let Some(channel) = &mut client.channel else { return Ok(()) };
        let closes = kind.is_by_connection();
        let complete = match channel.read(&mut self.room) {
            Ok(0) if closes && client.has_head && client.got == bytes => {
                if kind == Kind::HttpsResumed && self.is_warm && !channel.is_resumed() {
                    return Err("a session was not resumed".to_owned());
                }
                client.channel = None;
                1
            }
            Ok(0) => return Err(format!("an answer ended after {} of {bytes} bytes", client.got)),
            Ok(count) => match &mut client.http2 {
                Some(http2) => {
                    self.request.clear();
                    let (come, reply) = (&self.room[..count], &mut self.request);
                    let complete = take_frames(http2, come, bytes, &self.pattern, reply)?;
                    if !reply.is_empty() {
                        let sent = channel.send(reply);
                        sent.map_err(|e| format!("a connection took no frame: {e}"))?;
                    }
                    complete
                }
                None => {
                    client.take(&self.room[..count], bytes, &self.pattern)?;
                    usize::from(client.has_head && client.got == bytes && !closes)
                }
            },
            Err(error) if is_nothing(&error) => return Ok(()),
            Err(error) => return Err(format!("a client's connection broke: {error}")),
        };
        self.unanswered -= complete as u64;
        self.ask(index, complete)
    }

    /// Accepts the connections that the relay has made.
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
            self.accepted += 1;
            self.origins[place] = Some(Origin::new(stream, self.point.request_room()));
            // Most requests have arrived with their connection.
            self.serve(place)?;
        }
    }

    /// Reads requests and writes answers until one of them would block.
    fn serve(&mut self, place: usize) -> std::result::Result<(), String> {
        let Some(origin) = self.origins[place].as_mut() else { return Ok(()) };
        loop {
            let answers = origin.is_answering();
            let outcome = match answers {
                true => origin.send(&self.pattern),
                false => origin.stream.read(&mut origin.request[origin.have..]),
            };
            match outcome {
                Ok(0) => break,
                Ok(_) if answers => {
                    if origin.closes && !origin.is_answering() {
                        break;
                    }
                }
                Ok(count) => {
                    origin.have += count;
                    let got = &origin.request[..origin.have];
                    if let Some(found) = self.point.find_request(&self.pattern, got)? {
                        origin.answer(found, self.point, &self.pattern);
                    }
                }
                Err(error) if is_nothing(&error) => return Ok(()),
                // haproxy ends connections in this way when it no longer needs them.
                Err(error)
                    if error.kind() == io::ErrorKind::ConnectionReset
                        && self.point.kind.is_http()
                        && !answers
                        && origin.have == 0 =>
                {
                    break;
                }
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

impl web::Load for Load {
    const LEAST: u64 = 1;

    fn under_way(&self) -> usize {
        self.point.connections * self.point.kind.streams()
    }

    fn go(&mut self, requests: u64) -> Result<u64> {
        let subject = self.subject;
        let wrong = |found: String| Error::Work { subject, found };
        let (begun, cpu) = (Instant::now(), process::thread_time());
        (self.unasked, self.unanswered) = (requests, requests);
        for client in 0..self.clients.len() {
            self.ask(client, self.point.kind.streams()).map_err(wrong)?;
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
        self.is_warm = true;
        Ok(begun.elapsed().as_nanos() as u64)
    }

    fn busy_ns(&self) -> u64 {
        self.busy_ns
    }

    fn pilot(&mut self) -> Result<f64> {
        let each = if self.point.kind == Kind::Bulk { 1 } else { 10 };
        let requests = each * self.under_way() as u64;
        trial::pace(requests, PILOT_NS, |requests| web::Load::go(self, requests))
    }
}

fn is_nothing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

fn connect(
    port: u16,
    tls: Option<&Arc<ClientConfig>>,
    set: &OwnedFd,
    token: u64,
) -> io::Result<Channel> {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_nonblocking(true)?;
    epoll::add(set, stream.as_raw_fd(), libc::EPOLLIN as u32, token)?;
    let stream = OwnedFd::from(stream);
    channel::plain_congestion(&stream);
    Channel::new(stream.into(), tls)
}

// Requests that a relay of bytes passes on: a number, the length of the answer, and a part of the
// pattern.

/// The length of a request.
const REQUEST: usize = 100;

/// Where a request states the length of its answer, after its number.
const LENGTH_AT: usize = 8;
const HEAD: usize = 16;

fn write_tcp_request(pattern: &Pattern, number: u64, bytes: usize, to: &mut Vec<u8>) {
    to.extend_from_slice(&number.to_le_bytes());
    to.extend_from_slice(&(bytes as u64).to_le_bytes());
    to.extend_from_slice(pattern.whole(number, REQUEST - HEAD));
}

/// Finds the request that the origin has received, if it is complete.
fn find_tcp_request(
    pattern: &Pattern,
    got: &[u8],
    bytes: usize,
) -> Result<Option<FoundRequest>, String> {
    let Some((number, rest)) = got.split_at_checked(LENGTH_AT).filter(|_| got.len() == REQUEST)
    else {
        return Ok(None);
    };
    let number = number.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte));
    let (length, part) = rest.split_at(HEAD - LENGTH_AT);
    if length != (bytes as u64).to_le_bytes() || part != pattern.whole(number, REQUEST - HEAD) {
        return Err(format!("the origin got a wrong request {number}"));
    }
    Ok(Some(FoundRequest { number, closes: false }))
}

// The bytes that belong to a number.

/// The length of the pattern. No part of it repeats at the distance of a power of two.
const PATTERN: usize = 1_000_003;

/// The pattern, and the part of it that belongs to a number.
struct Pattern(Vec<u8>);

impl Pattern {
    fn new() -> Pattern {
        let mix = |place: u32| (place.wrapping_mul(0x9e37_79b1) ^ (place >> 7)) >> 13;
        Pattern((0..PATTERN as u32).map(|place| mix(place) as u8).collect())
    }

    fn start(number: u64) -> usize {
        (number.wrapping_mul(7919) % PATTERN as u64) as usize
    }

    /// Returns the longest contiguous piece from a place on, up to `most` bytes.
    fn piece(&self, at: usize, most: usize) -> &[u8] {
        let at = at % PATTERN;
        &self.0[at..(at + most).min(PATTERN)]
    }

    /// Returns `length` contiguous bytes of a number; they lie elsewhere than the answer's if the
    /// answer's would wrap round the pattern's end.
    fn whole(&self, number: u64, length: usize) -> &[u8] {
        let at = Pattern::start(number) % (PATTERN - length);
        &self.0[at..at + length]
    }

    /// Whether bytes equal those from a place on.
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
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::server::web::Load as _;

    type Spoil = fn(&mut [u8]);

    /// A relay of two threads for each connection, which corrupts requests and answers as ordered.
    fn relay(origin: u16, spoil: [Spoil; 2]) -> (u16, Arc<AtomicBool>) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let over = Arc::new(AtomicBool::new(false));
        let seen = over.clone();
        let pass = |mut from: TcpStream, mut to: TcpStream, spoil: Spoil| {
            std::thread::spawn(move || {
                let mut room = vec![0; 10_000];
                while let Ok(count @ 1..) = from.read(&mut room) {
                    spoil(&mut room[..count]);
                    if to.write_all(&room[..count]).is_err() {
                        break;
                    }
                }
                for stream in [from, to] {
                    let _ = stream.shutdown(std::net::Shutdown::Both);
                }
            });
        };
        std::thread::spawn(move || {
            while let Ok((client, _)) = listener.accept() {
                if seen.load(Ordering::SeqCst) {
                    return;
                }
                let upstream = TcpStream::connect((Ipv4Addr::LOCALHOST, origin)).unwrap();
                pass(client.try_clone().unwrap(), upstream.try_clone().unwrap(), spoil[0]);
                pass(upstream, client, spoil[1]);
            }
        });
        (port, over)
    }

    /// Returns the result of `requests` requests, and how many connections the origin had for them.
    fn go(point: Point, requests: u64, spoil: [Spoil; 2]) -> (Result<u64>, u64) {
        let folder = tempfile::tempdir().unwrap();
        let certificate = Certificate::make(folder.path()).unwrap();
        let mut load = Load::new("absent", point, 0, &certificate).unwrap();
        let (port, over) = relay(load.origin().unwrap(), spoil);
        load.relay = port;
        let outcome = load.go(requests);
        over.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, port));
        (outcome, load.accepted())
    }

    #[test]
    fn right_bytes_are_taken_under_every_load_and_wrong_ones_found() {
        let nothing: Spoil = |_| {};
        let first: Spoil = |bytes| bytes[0] ^= 1;
        let last: Spoil = |bytes| *bytes.last_mut().unwrap() ^= 1;
        for kind in Kind::ALL.into_iter().filter(|kind| kind.offer().is_none()) {
            for bytes in [1, 200, 3_000_000] {
                let point = Point { kind, connections: 3, bytes };
                assert!(go(point, 10, [nothing; 2]).0.unwrap() > 0, "{kind:?} {bytes}");
                for spoil in [[nothing, last], [nothing, first], [last, nothing], [first, nothing]]
                {
                    let error = go(point, 10, spoil).0.unwrap_err().to_string();
                    assert!(error.contains("absent") && error.contains("wrong"), "{error}");
                }
            }
        }
    }

    #[test]
    fn answers_over_http2_are_those_of_their_requests() {
        let (pattern, mut sent) = (Pattern::new(), Vec::new());
        let mut client = || {
            let mut http2 = Http2::begin(&mut Vec::new());
            let mut ask = |number| {
                let stream = http::write_http2_request(number, &mut http2, &mut sent);
                UnderWay { stream, number, got: 0 }
            };
            let under_way = vec![ask(7), ask(8)];
            (http2, under_way)
        };
        let frame = |kind: u8, flags: u8, stream: u8, payload: &[u8]| {
            let head = [0, 0, payload.len() as u8, kind, flags, 0, 0, 0, stream];
            [&head[..], payload].concat()
        };
        let answer = |stream: u8, number: u64, bytes: usize| {
            let body = pattern.piece(Pattern::start(number), bytes);
            [frame(1, 4, stream, &[0x88]), frame(0, 1, stream, body)].concat()
        };
        let mut clients = [client(), client(), client(), client()];
        let mut taken = |number: usize, come: Vec<u8>| {
            take_frames(&mut clients[number], &come, 50, &pattern, &mut Vec::new())
        };
        assert_eq!(taken(0, [answer(3, 8, 50), answer(1, 7, 50)].concat()), Ok(2));
        assert!(taken(0, answer(1, 7, 50)).unwrap_err().contains("no request"));
        // That of the other request, one that is too short, and one that is too long.
        for (place, bad) in
            [answer(1, 8, 50), answer(1, 7, 49), answer(1, 7, 51)].into_iter().enumerate()
        {
            assert!(taken(place + 1, bad).unwrap_err().contains("wrong"), "{place}");
        }
    }

    #[test]
    fn the_head_of_an_answer_may_come_in_parts() {
        let pattern = Pattern::new();
        let (number, bytes) = (70, 50);
        let mut answer = Vec::new();
        http::write_answer_head(number, bytes, false, &mut answer);
        let head = answer.len();
        answer.extend_from_slice(pattern.piece(Pattern::start(number), bytes));
        for size in [1, 7, head - 1, head, head + 1, answer.len()] {
            let mut client = Client { number, ..Client::default() };
            for part in answer.chunks(size) {
                client.take(part, bytes, &pattern).unwrap();
            }
            assert!(client.has_head && client.got == bytes, "{size}");
            assert!(client.take(b"more", bytes, &pattern).is_err());
        }
    }

    #[test]
    fn an_origin_keeps_connections_unless_asked_to_close_them() {
        for (kind, kept) in [(Kind::HttpConnection, false), (Kind::HttpKeepAlive, true)] {
            let point = Point { kind, connections: 2, bytes: 10 };
            let (outcome, accepted) = go(point, 20, [|_| {}; 2]);
            assert!(outcome.is_ok(), "{outcome:?}");
            assert_eq!(accepted, if kept { 2 } else { 20 }, "{kind:?}");
        }
    }

    #[test]
    fn only_a_complete_and_correct_request_is_found() {
        let pattern = Pattern::new();
        let mut request = Vec::new();
        write_tcp_request(&pattern, 0x1234_5678_9abc, 200, &mut request);
        assert_eq!(request.len(), REQUEST);
        let find = |request: &[u8]| find_tcp_request(&pattern, request, 200);
        assert_eq!(find(&request[..REQUEST - 1]), Ok(None));
        let number = 0x1234_5678_9abc;
        assert_eq!(find(&request), Ok(Some(FoundRequest { number, closes: false })));
        for place in 0..REQUEST {
            let mut spoilt = request.clone();
            spoilt[place] ^= 1;
            assert!(find(&spoilt).unwrap_err().contains("wrong request"), "byte {place}");
        }
    }

    #[test]
    fn it_goes_on_after_its_end() {
        let pattern = Pattern::new();
        let wrapped = [&pattern.0[PATTERN - 3..], &pattern.0[..5]].concat();
        assert!(pattern.is_at(PATTERN - 3, &wrapped) && !pattern.is_at(PATTERN - 4, &wrapped));
        assert!(pattern.whole(7, 100) != pattern.whole(8, 100));
    }
}
