//! `epoll(7)` and canned bytes: the kernel's time for a request, and almost nothing else. The
//! server looks for the end of each request and at nothing else in it, and its date stands still.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, RawFd};
use std::rc::Rc;

use crate::error::{Doing, Error, Result};
use crate::http::BODY;
use crate::server::Control;
use crate::server::web::{self, Clients, Page, Protocol};
use crate::sys::{descriptor, epoll};

/// The answer; it has the same length as hyper's.
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 13\r\n\
                        date: Thu, 01 Jan 1970 00:00:00 GMT\r\n\r\nHello, World!";

/// A connection and the number of bytes of a request's end that have arrived.
struct Connection {
    stream: TcpStream,
    seen: usize,
}

pub(crate) fn serve(listener: TcpListener, control: &mut Control) -> Result<()> {
    let watching = |source| Error::system("watching a socket with epoll", source);
    let set = epoll::create().doing("creating an epoll set")?;
    let readable = libc::EPOLLIN as u32;
    let own = listener.as_raw_fd();
    epoll::add(&set, own, readable, own as u64).map_err(watching)?;
    control.ready()?;
    let mut connections: HashMap<RawFd, Connection> = HashMap::new();
    let mut events = vec![epoll::Raw { events: 0, u64: 0 }; 1024];
    let mut buffer = [0; 4096];
    loop {
        let ready = epoll::wait(set.as_raw_fd(), &mut events);
        for event in &events[..usize::try_from(ready).unwrap_or(0)] {
            let fd = event.u64 as RawFd;
            if fd == own {
                let (stream, _) = listener.accept().doing("accepting a connection")?;
                let quick = stream.set_nonblocking(true).and_then(|()| stream.set_nodelay(true));
                quick.doing("setting a connection up")?;
                let fd = stream.as_raw_fd();
                epoll::add(&set, fd, readable, fd as u64).map_err(watching)?;
                connections.insert(fd, Connection { stream, seen: 0 });
            } else if let Some(connection) = connections.get_mut(&fd)
                && connection.answer(&mut buffer).is_err()
            {
                // Closing ends the watch too.
                connections.remove(&fd);
            }
        }
    }
}

impl Connection {
    /// Reads once and answers every complete request; an error means that the connection is over.
    fn answer(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        let fd = self.stream.as_raw_fd();
        let Ok(count @ 1..) = usize::try_from(descriptor::read(fd, buffer)) else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        for _ in 0..ends(&mut self.seen, &buffer[..count]) {
            if usize::try_from(descriptor::write(fd, ANSWER)) != Ok(ANSWER.len()) {
                return Err(io::ErrorKind::WriteZero.into());
            }
        }
        Ok(())
    }
}

/// Returns how many requests end within these bytes; `seen` is how many of an end's four bytes came
/// before.
fn ends(seen: &mut usize, bytes: &[u8]) -> usize {
    const END: &[u8; 4] = b"\r\n\r\n";
    let mut count = 0;
    for &byte in bytes {
        *seen = if byte == END[*seen] { *seen + 1 } else { usize::from(byte == END[0]) };
        if *seen == END.len() {
            *seen = 0;
            count += 1;
        }
    }
    count
}

// The clients' request, and its answer.

/// How much is read at a time.
const ROOM: usize = 4096;

/// Makes this many connections to a server, from an address of this machine's own network, to each
/// of its ports in turn.
pub(crate) fn load(
    subject: &'static str,
    from: Ipv4Addr,
    ports: &[u16],
    count: usize,
) -> Result<Clients> {
    let body = Rc::from(&BODY[..]);
    let page = Page { path: "/", body: &body, room: ROOM, protocol: Protocol::Http, tls: None };
    web::load(subject, from, ports, count, page)
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;
    use crate::http::BODY;
    use crate::server::web::Response;

    #[test]
    fn requests_end_where_they_end() {
        let all = b"GET / HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\nhost: a\r\r\n\r\n\r\n";
        for cut in 0..all.len() {
            let mut seen = 0;
            let count = ends(&mut seen, &all[..cut]) + ends(&mut seen, &all[cut..]);
            assert_eq!((count, seen), (2, 2), "cut at {cut}");
        }
    }

    #[test]
    fn the_canned_answer_is_one() {
        assert!(Response::new(Rc::from(&BODY[..])).take(ANSWER).unwrap());
    }
}
