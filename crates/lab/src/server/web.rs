//! Clients of a web server, which ask for the same again and again over HTTP/1 or HTTP/2, on
//! connections that are kept open.

use std::io;
use std::net::{Ipv4Addr, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use rustls::ClientConfig;

use crate::channel;
use crate::error::{Doing, Error, Result};
use crate::server::http2::{Field, Http2, Part, Request};
use crate::server::tls::{Certificate, Channel, Offer};
use crate::server::trial;
use crate::sys::{descriptor, epoll, process, socket};

/// Requests under way on each connection of HTTP/2, of which there are as many times fewer.
pub(crate) const STREAMS: usize = 8;

crate::by_name::named! {
    /// The protocol of clients.
    pub(crate) enum Protocol {
        /// HTTP/1.
        Http = "http",
        /// The same, encrypted.
        Https = "https",
        /// HTTP/2, encrypted.
        H2 = "h2",
    }
}

impl Protocol {
    /// Returns how many connections have this many requests under way in all.
    pub(crate) fn connections(self, requests: usize) -> usize {
        requests.div_ceil(self.streams())
    }

    /// Returns the requests under way on each connection.
    pub(crate) fn streams(self) -> usize {
        if self == Protocol::H2 { STREAMS } else { 1 }
    }

    /// Returns the settings of clients, if they encrypt.
    pub(crate) fn client(self, certificate: &Certificate) -> Result<Option<Arc<ClientConfig>>> {
        let offer = match self {
            Protocol::Http => return Ok(None),
            Protocol::Https => Offer::Http1,
            Protocol::H2 => Offer::Http2,
        };
        certificate.client(offer).map(Some)
    }
}

/// A client of the server.
#[derive(Debug)]
pub(crate) struct WebConnection {
    client: Client,
    exchange: Exchange,
}

/// The requests of a connection, and the check of their answers.
#[derive(Debug)]
enum Exchange {
    Http1 { request: Rc<[u8]>, response: Response },
    Http2(Pages),
}

/// The clients of a server.
pub(crate) type Clients = Generator<WebConnection>;

/// The path that is asked for, and the body of the right answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Page<'a> {
    /// The path.
    pub path: &'a str,
    /// Every byte of the answer.
    pub body: &'a Rc<[u8]>,
    /// How much is read at a time.
    pub room: usize,
    /// The protocol.
    pub protocol: Protocol,
    /// The way to encrypt, if it does.
    pub tls: Option<&'a Arc<ClientConfig>>,
}

/// Makes this many connections to a server, from an address of this machine's own network, to each
/// of its ports in turn.
pub(crate) fn load(
    subject: &'static str,
    from: Ipv4Addr,
    ports: &[u16],
    count: usize,
    page: Page<'_>,
) -> Result<Clients> {
    let request = format!("GET {} HTTP/1.1\r\nhost: localhost\r\n\r\n", page.path);
    let request: Rc<[u8]> = Rc::from(request.as_bytes());
    let path: Rc<str> = Rc::from(page.path);
    let mut ports = ports.iter().cycle();
    Generator::new(subject, count, vec![0; page.room], |set, number| {
        let port = ports.next().copied().ok_or(io::ErrorKind::NotFound.into());
        let client = port
            .and_then(|port| Client::connect(from, port, page.tls, set, number))
            .doing(format_args!("connecting {count} times to {subject}"))?;
        let exchange = match page.protocol {
            Protocol::H2 => Exchange::Http2(Pages::new(Rc::clone(&path), Rc::clone(page.body))),
            _ => Exchange::Http1 {
                request: Rc::clone(&request),
                response: Response::new(Rc::clone(page.body)),
            },
        };
        Ok(WebConnection { client, exchange })
    })
}

impl Connection for WebConnection {
    type Room = Vec<u8>;

    fn streams(&self) -> usize {
        match &self.exchange {
            Exchange::Http1 { .. } => 1,
            Exchange::Http2(_) => STREAMS,
        }
    }

    fn ask(&mut self, count: usize, _: &mut Vec<u8>) -> Result<(), String> {
        match &mut self.exchange {
            Exchange::Http1 { request, .. } => self.client.send(request),
            Exchange::Http2(pages) => self.client.send(pages.ask(count)),
        }
    }

    fn read(&mut self, buffer: &mut Vec<u8>) -> Result<usize, String> {
        let Some(bytes) = self.client.receive(buffer)? else { return Ok(0) };
        match &mut self.exchange {
            Exchange::Http1 { response, .. } => response.take(bytes).map(usize::from),
            Exchange::Http2(pages) => {
                let (complete, reply) = pages.take(bytes)?;
                if !reply.is_empty() {
                    self.client.send(reply)?;
                }
                Ok(complete)
            }
        }
    }
}

// A client's end of a TCP connection to a server.

/// Connects to a port from an address of this machine's own network.
pub(crate) fn connect_from(from: Ipv4Addr, port: u16) -> io::Result<OwnedFd> {
    let stream = TcpStream::from(socket::connect_from(from, port)?);
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    // No port is to stay occupied after the run.
    let stream = OwnedFd::from(stream);
    descriptor::reset_on_close(&stream)?;
    channel::plain_congestion(&stream);
    Ok(stream)
}

/// A connection that is kept open, for requests that are short.
#[derive(Debug)]
pub(crate) struct Client(Channel);

impl Client {
    /// Connects to a port from an address of this machine's own network. Arriving bytes are
    /// reported to the set, with this number.
    pub(crate) fn connect(
        from: Ipv4Addr,
        port: u16,
        tls: Option<&Arc<ClientConfig>>,
        set: &OwnedFd,
        number: u64,
    ) -> io::Result<Client> {
        let stream = connect_from(from, port)?;
        epoll::add(set, stream.as_raw_fd(), libc::EPOLLIN as u32, number)?;
        Channel::new(stream.into(), tls).map(Client)
    }

    /// Sends a request, all of it at once.
    pub(crate) fn send(&mut self, request: &[u8]) -> Result<(), String> {
        self.0.send(request).map_err(|error| format!("the connection took no request: {error}"))
    }

    /// Reads once the bytes that have arrived; `None` if that was interrupted, or none of them were
    /// for the application.
    pub(crate) fn receive<'a>(&mut self, buffer: &'a mut [u8]) -> Result<Option<&'a [u8]>, String> {
        match self.0.read(buffer) {
            Ok(0) => Err("it closed a connection".to_owned()),
            Ok(count) => Ok(Some(&buffer[..count])),
            Err(error) if is_nothing(&error) => Ok(None),
            Err(error) => Err(format!("a connection broke: {error}")),
        }
    }
}

fn is_nothing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

// Requests over HTTP/2, several at a time on a connection.

/// A connection of HTTP/2.
#[derive(Debug)]
struct Pages {
    client: Http2,
    path: Rc<str>,
    body: Rc<[u8]>,
    /// The streams under way, and how much of the body has arrived on each.
    under_way: Vec<(u32, usize)>,
    /// The bytes to send.
    out: Vec<u8>,
    /// Whether `out` has the begin of the connection.
    begins: bool,
}

impl Pages {
    fn new(path: Rc<str>, body: Rc<[u8]>) -> Pages {
        let mut out = Vec::new();
        let client = Http2::begin(&mut out);
        Pages { client, path, body, under_way: Vec::new(), out, begins: true }
    }

    /// Returns this many requests.
    fn ask(&mut self, count: usize) -> &[u8] {
        if !std::mem::take(&mut self.begins) {
            self.out.clear();
        }
        let shared: [Field<'_>; 2] = [(":path", &self.path), (":authority", "localhost")];
        for _ in 0..count {
            let request = Request { shared: &shared, ..Request::default() };
            let stream = self.client.ask(request, &mut self.out);
            self.under_way.push((stream, 0));
        }
        &self.out
    }

    /// Takes bytes that arrived. Returns how many answers are complete, and the bytes to send.
    fn take(&mut self, bytes: &[u8]) -> Result<(usize, &[u8]), String> {
        let Pages { client, body, under_way, out, .. } = self;
        out.clear();
        let mut complete = 0;
        let mut take = |stream, part: Part<'_>| {
            let place = under_way.iter().position(|(own, _)| *own == stream);
            let place = place.ok_or_else(|| format!("data of no request came: stream {stream}"))?;
            let (_, got) = &mut under_way[place];
            match part {
                Part::Head => {}
                Part::Data(data) if body[*got..].starts_with(data) => *got += data.len(),
                Part::Data(_) => return Err(format!("a body was wrong after its byte {got}")),
                Part::End if *got == body.len() => {
                    under_way.swap_remove(place);
                    complete += 1;
                }
                Part::End => return Err(format!("a body ended after {got} bytes")),
            }
            Ok(())
        };
        client.take(bytes, &mut take, out)?;
        Ok((complete, out))
    }
}

// Checks the bytes that arrive on a connection against the requested body: the status, the length
// that the head promises, and every byte of the body.
//
// Long files come in many parts, and a generator that copied them would be slower than a server
// that does not. So only a head that is not complete is kept; a body is compared where it was
// read.

/// The longest head of an answer.
const LONGEST_HEAD: usize = 4096;

/// The most fields of an answer's head.
const MOST_FIELDS: usize = 32;

/// The answer that arrives at present.
#[derive(Debug)]
pub(crate) struct Response {
    file: Rc<[u8]>,
    /// The part of a head that has arrived.
    head: Vec<u8>,
    /// How much of the body has arrived, once the head is complete.
    body: Option<usize>,
}

impl Response {
    /// Creates the check for this file.
    pub(crate) fn new(file: Rc<[u8]>) -> Response {
        Response { file, head: Vec::new(), body: None }
    }

    /// Takes the bytes that arrived and returns whether the answer is complete; the next request
    /// may begin then.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Result<bool, String> {
        let (begin, part) = match self.body {
            Some(begin) => (begin, bytes),
            None => match self.take_head(bytes)? {
                Some(part) => (0, part),
                None => return Ok(false),
            },
        };
        let expected = &self.file[begin..];
        if part.len() > expected.len() {
            return Err(format!(
                "{} bytes came after the end of the answer",
                part.len() - expected.len()
            ));
        }
        if part != &expected[..part.len()] {
            let wrong = part.iter().zip(expected).position(|(found, right)| found != right);
            return Err(format!("byte {} of a body was wrong", begin + wrong.unwrap_or(0)));
        }
        let complete = part.len() == expected.len();
        self.body = (!complete).then_some(begin + part.len());
        Ok(complete)
    }

    /// Takes the head from the bytes; returns the rest after it, if the head is complete.
    fn take_head<'a>(&mut self, bytes: &'a [u8]) -> Result<Option<&'a [u8]>, String> {
        let complete = if self.head.is_empty() {
            end_of_head(bytes, self.file.len())?
        } else {
            let before = self.head.len();
            self.head.extend_from_slice(bytes);
            // It was not complete without these bytes, so it ends within them.
            end_of_head(&self.head, self.file.len())?.map(|end| end.saturating_sub(before))
        };
        match complete {
            Some(end) => {
                self.head.clear();
                Ok(Some(&bytes[end..]))
            }
            None => {
                if self.head.is_empty() {
                    self.head.extend_from_slice(bytes);
                }
                match self.head.len() {
                    ..=LONGEST_HEAD => Ok(None),
                    length => {
                        Err(format!("the head of an answer did not end within {length} bytes"))
                    }
                }
            }
        }
    }
}

/// Returns where a head ends, if it is complete; it must be the head of a file of this length.
fn end_of_head(bytes: &[u8], length: usize) -> Result<Option<usize>, String> {
    let mut fields = [httparse::EMPTY_HEADER; MOST_FIELDS];
    let mut head = httparse::Response::new(&mut fields);
    let end = match head.parse(bytes) {
        Ok(httparse::Status::Complete(end)) => end,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(error) => return Err(format!("the head of an answer is none: {error}")),
    };
    if (head.version, head.code) != (Some(1), Some(200)) {
        let (minor, code) = (head.version.unwrap_or(0), head.code.unwrap_or(0));
        return Err(format!("an answer was HTTP/1.{minor} {code} instead of HTTP/1.1 200"));
    }
    let mut promised = None;
    for field in &*head.headers {
        let value = String::from_utf8_lossy(field.value);
        let is = |name: &str| field.name.eq_ignore_ascii_case(name);
        if is("transfer-encoding")
            || is("content-encoding")
            || is("content-range")
            || (is("connection") && !value.eq_ignore_ascii_case("keep-alive"))
        {
            return Err(format!("an answer had {}: {value}, which none should have", field.name));
        }
        if is("content-length") {
            let digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
            let number = value.parse::<usize>().ok().filter(|_| digits);
            let number = number.ok_or_else(|| format!("an answer had the length {value:?}"))?;
            if promised.replace(number).is_some() {
                return Err("an answer had two lengths".to_owned());
            }
        }
    }
    match promised {
        Some(promised) if promised == length => Ok(Some(end)),
        Some(promised) => Err(format!("an answer promised {promised} bytes instead of {length}")),
        None => Err("an answer had no content-length".to_owned()),
    }
}

// The load generator: connections to one server, each with as many requests under way as its
// protocol allows.
//
// It shares a machine with the server, so it does no more than it must: an epoll set, one read for
// an answer, one write for the next request. The connection defines a request and its correct
// answer.

/// A server that does not answer for this long has lost a request.
const PATIENCE_MS: i32 = 10_000;

/// The most events that are taken from a wait.
const EVENTS: usize = 1024;

/// A connection to a server.
pub(crate) trait Connection {
    /// Memory that all connections of a generator share: room to put a request together, and to
    /// read an answer.
    type Room;

    /// Returns how many requests may be under way.
    fn streams(&self) -> usize {
        1
    }

    /// Sends this many requests.
    fn ask(&mut self, count: usize, room: &mut Self::Room) -> std::result::Result<(), String>;

    /// Reads once; returns how many answers are complete.
    fn read(&mut self, room: &mut Self::Room) -> std::result::Result<usize, String>;
}

/// Clients of one server, which know its right answers.
pub(crate) trait Load {
    /// The fewest requests in a round, however short the time.
    const LEAST: u64;

    /// Returns how many requests are under way at a time, over all connections.
    fn under_way(&self) -> usize;

    /// Sends this many requests in total, over all connections, and returns the nanoseconds from
    /// the first request to the last answer.
    fn go(&mut self, requests: u64) -> Result<u64>;

    /// Returns the processor time that the clients used in the last [`go`](Load::go).
    fn busy_ns(&self) -> u64;

    /// Measures how long a request takes, in nanoseconds.
    fn pilot(&mut self) -> Result<f64> {
        trial::pilot(self.under_way(), |requests| self.go(requests))
    }
}

/// The connections to one server.
pub(crate) struct Generator<C: Connection> {
    subject: &'static str,
    set: OwnedFd,
    connections: Vec<C>,
    events: Vec<epoll::Raw>,
    room: C::Room,
    busy_ns: u64,
}

impl<C: Connection> Generator<C> {
    /// Makes the connections; each adds itself to the epoll set with its number.
    pub(crate) fn new(
        subject: &'static str,
        count: usize,
        room: C::Room,
        mut connect: impl FnMut(&OwnedFd, u64) -> Result<C>,
    ) -> Result<Generator<C>> {
        let set = epoll::create().doing("creating an epoll set")?;
        let connections =
            (0..count as u64).map(|number| connect(&set, number)).collect::<Result<Vec<C>>>()?;
        let events = vec![epoll::Raw { events: 0, u64: 0 }; count.clamp(1, EVENTS)];
        Ok(Generator { subject, set, connections, events, room, busy_ns: 0 })
    }
}

impl<C: Connection> Generator<C> {
    /// Returns what its connections share.
    pub(crate) fn room(&mut self) -> &mut C::Room {
        &mut self.room
    }
}

impl<C: Connection> Load for Generator<C> {
    /// A virtual machine may account no processor time for a few requests.
    const LEAST: u64 = 100;

    fn under_way(&self) -> usize {
        self.connections.iter().map(C::streams).sum()
    }

    fn go(&mut self, requests: u64) -> Result<u64> {
        let subject = self.subject;
        let wrong = |found: String| Error::Work { subject, found };
        let (begun, cpu) = (Instant::now(), process::thread_time());
        let (mut unasked, mut unanswered) = (requests, requests);
        for connection in &mut self.connections {
            let count = unasked.min(connection.streams() as u64);
            if count > 0 {
                connection.ask(count as usize, &mut self.room).map_err(wrong)?;
                unasked -= count;
            }
        }
        while unanswered > 0 {
            let ready = epoll::wait_for(self.set.as_raw_fd(), &mut self.events, PATIENCE_MS);
            let ready = match usize::try_from(ready) {
                Ok(0) => return Err(wrong(format!("{unanswered} answers did not come in 10 s"))),
                Ok(ready) => ready,
                Err(_) if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {
                    continue;
                }
                Err(_) => return Err(Error::last("waiting for answers")),
            };
            for event in &self.events[..ready] {
                let connection = &mut self.connections[event.u64 as usize];
                let complete = connection.read(&mut self.room).map_err(wrong)? as u64;
                unanswered = unanswered
                    .checked_sub(complete)
                    .ok_or_else(|| wrong("an answer arrived without a request".to_owned()))?;
                let count = unasked.min(complete);
                if count > 0 {
                    unasked -= count;
                    connection.ask(count as usize, &mut self.room).map_err(wrong)?;
                }
            }
        }
        self.busy_ns = process::thread_time() - cpu;
        Ok(begun.elapsed().as_nanos() as u64)
    }

    fn busy_ns(&self) -> u64 {
        self.busy_ns
    }
}

/// Refuses a number of connections to each of some servers that the limit of descriptors does not
/// allow.
pub(crate) fn check_connections(connections: usize, servers: usize) -> Result<()> {
    // One process holds the generator's ends of all connections, and while it starts a server, that
    // server's ends too.
    let most = 2 * channel::most_pairs() / (servers + 1);
    channel::fits("--connections", connections, 1..=most)
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;

    use super::*;

    /// Serves one connection with answers of these statuses and bodies, each to a correct request.
    fn served(answers: &[(&str, &[u8])], file: &[u8], requests: u64) -> Result<u64> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (stream, _) = listener.accept().unwrap();
                let mut writer = stream.try_clone().unwrap();
                let mut lines = BufReader::new(stream).lines();
                for (status, body) in answers {
                    let asked = lines.next().and_then(Result::ok);
                    let Some(asked) = asked else { return };
                    assert_eq!(asked, "GET /file HTTP/1.1");
                    assert!(lines.by_ref().map_while(Result::ok).any(|line| line.is_empty()));
                    let head =
                        format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n", body.len());
                    // The client may have had enough.
                    let _ = writer.write_all(head.as_bytes()).and_then(|()| writer.write_all(body));
                }
                // Closed with a request unread, the connection would be reset.
                let _ = writer.shutdown(std::net::Shutdown::Write);
                lines.for_each(drop);
            });
            let body = Rc::from(file);
            let (protocol, tls) = (Protocol::Http, None);
            let page = Page { path: "/file", body: &body, room: 1 << 16, protocol, tls };
            load("absent", Ipv4Addr::LOCALHOST, &[port], 1, page)?.go(requests)
        })
    }

    #[test]
    fn the_right_body_is_counted_and_nothing_else_is_taken() {
        let long: Vec<u8> = (0..300_000u32).map(|number| number as u8).collect();
        assert!(served(&[("200 OK", &long[..]); 2], &long, 2).unwrap() > 0);
        let good = ("200 OK", &b"a file"[..]);
        assert!(served(&[good; 3], good.1, 3).unwrap() > 0);
        let of = |answers: &[_]| served(answers, good.1, 2).unwrap_err().to_string();
        let error = of(&[good, ("200 OK", b"a fine")]);
        assert!(error.contains("absent") && error.contains("byte 4"), "{error}");
        assert!(of(&[good, ("200 OK", b"file")]).contains("4 bytes instead of 6"));
        assert!(of(&[good, ("404 Not Found", b"")]).contains("404"));
        assert!(of(&[good]).contains("closed a connection"));
    }

    const FILE: &[u8] = b"thirteen more";
    const GOOD: &[u8] =
        b"HTTP/1.1 200 OK\r\nContent-Length: 13\r\nConnection: keep-alive\r\n\r\nthirteen more";

    fn response() -> Response {
        Response::new(Rc::from(FILE))
    }

    #[test]
    fn an_answer_is_complete_with_its_last_byte_wherever_it_is_cut() {
        let mut response = response();
        assert!(response.take(GOOD).unwrap());
        for cut in 1..GOOD.len() {
            assert!(!response.take(&GOOD[..cut]).unwrap(), "cut at {cut}");
            assert!(response.take(&GOOD[cut..]).unwrap(), "cut at {cut}");
        }
        for byte in &GOOD[..GOOD.len() - 1] {
            assert!(!response.take(&[*byte]).unwrap());
        }
        assert!(response.take(b"e").unwrap());
    }

    #[test]
    fn anything_else_is_found_out() {
        let good = std::str::from_utf8(GOOD).unwrap();
        for (from, to, why) in [
            ("200 OK", "404 Not Found", "HTTP/1.1 404"),
            ("200 OK", "206 Partial Content", "206"),
            ("200 OK", "500 Oh", "500"),
            ("1.1", "1.0", "HTTP/1.0"),
            ("HTTP", "SPDY", "none"),
            ("Content-Length: 13\r\n", "", "no content-length"),
            ("Content-Length: 13", "Content-Length: 14", "14 bytes instead of 13"),
            ("Content-Length: 13", "Content-Length: +13", "+13"),
            ("Connection: keep-alive", "content-length: 13", "two lengths"),
            ("Connection: keep-alive", "date", "none"),
            ("keep-alive", "close", "close"),
            ("Connection: keep-alive", "Transfer-Encoding: chunked", "chunked"),
            ("Connection: keep-alive", "Content-Encoding: gzip", "gzip"),
            ("more", "mOre", "byte 10 "),
            ("more", "more?", "1 bytes"),
        ] {
            let answer = good.replace(from, to);
            let error = response().take(answer.as_bytes()).unwrap_err();
            assert!(error.contains(why), "{answer:?}: {error}");
            // The same in small parts.
            let mut response = response();
            let found = answer.as_bytes().chunks(7).find_map(|part| response.take(part).err());
            assert!(found.is_some(), "{answer:?}");
        }
        // A head without end is not waited for.
        let mut response = response();
        response.take(b"HTTP/1.1 200 OK\r\nx: ").unwrap();
        assert!((0..5).any(|_| response.take(&[b'x'; 1000]).is_err()));
    }
}
