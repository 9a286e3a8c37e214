//! The load generator's requests and checks: every byte of each message is known.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use superpoll::call;

use crate::error::{Doing, Result};
use crate::random::Random;
use crate::server::Control;
use crate::server::web::{self, Generator};
use crate::sys::epoll;

/// The generator's end of a connection.
pub(crate) struct Connection {
    socket: OwnedFd,
    number: u64,
    /// Requests so far.
    asked: u64,
    answer: Answer,
}

/// Room for a request and for an answer.
pub(crate) struct Room {
    request: Vec<u8>,
    buffer: Vec<u8>,
}

/// The clients of a server.
pub(crate) type Clients = Generator<Connection>;

/// Takes the generator's ends of the connections to a server. A request has `bytes` bytes.
pub(crate) fn load(subject: &'static str, sockets: Vec<OwnedFd>, bytes: usize) -> Result<Clients> {
    let count = sockets.len();
    let mut sockets = sockets.into_iter();
    Generator::new(subject, count, Room::new(bytes), |set, number| {
        let socket = sockets.next().ok_or_else(|| io::ErrorKind::NotFound.into());
        socket
            .and_then(|socket| Connection::new(socket, set, number))
            .doing(format_args!("watching connections to {subject}"))
    })
}

impl Room {
    /// Makes room for requests of this many bytes.
    pub(crate) fn new(bytes: usize) -> Room {
        // With room for more than an answer, a read that fills it is wrong, and any other has
        // drained.
        Room { request: vec![0; bytes], buffer: vec![0; 2 * bytes] }
    }
}

impl Connection {
    /// Takes the generator's end of a connection, and adds it to an epoll set with its number.
    pub(crate) fn new(socket: OwnedFd, set: &OwnedFd, number: u64) -> io::Result<Connection> {
        let events = (libc::EPOLLIN | libc::EPOLLET) as u32;
        epoll::add(set, socket.as_raw_fd(), events, number)?;
        Ok(Connection { socket, number, asked: 0, answer: Answer::default() })
    }
}

impl web::Connection for Connection {
    type Room = Room;

    fn ask(&mut self, _: usize, Room { request, .. }: &mut Room) -> Result<(), String> {
        self.asked += 1;
        fill(self.number, self.asked, request);
        match call::send(&self.socket, request) {
            Ok(count) if count == request.len() => Ok(()),
            Ok(count) => Err(format!("a connection took {count} bytes of a request")),
            Err(error) => Err(format!("a connection took no request: {error}")),
        }
    }

    fn read(&mut self, Room { request, buffer }: &mut Room) -> Result<usize, String> {
        match call::read(&self.socket, buffer) {
            Ok(0) => Err("it closed a connection".to_owned()),
            Ok(count) => {
                fill(self.number, self.asked, request);
                self.answer.take(&buffer[..count], request).map(usize::from)
            }
            // Reported once more than there was something.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
            Err(error) => Err(format!("a connection broke: {error}")),
        }
    }
}

// The messages that are sent, and the check that the same bytes come back.
//
// Every request is different: its bytes are drawn from the connection's number and from how many
// requests went before it. An answer to another connection, or an old, cut or doubled answer, is
// detected by its bytes.

/// Fills in the request with this number on a connection.
pub(super) fn fill(connection: u64, number: u64, bytes: &mut [u8]) {
    let mut random = Random::new((connection << 40) ^ number);
    for chunk in bytes.chunks_mut(8) {
        chunk.copy_from_slice(&random.bits().to_le_bytes()[..chunk.len()]);
    }
}

/// The answer that arrives at present.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Answer {
    arrived: usize,
}

impl Answer {
    /// Takes the bytes that arrived in answer to `request`; returns whether the answer is complete.
    /// The next request may begin then.
    pub(super) fn take(&mut self, bytes: &[u8], request: &[u8]) -> Result<bool, String> {
        let rest = &request[self.arrived.min(request.len())..];
        if bytes.len() > rest.len() {
            let more = bytes.len() - rest.len();
            return Err(format!("{more} bytes came after the end of the answer"));
        }
        if let Some(place) = bytes.iter().zip(rest).position(|(came, sent)| came != sent) {
            return Err(format!(
                "byte {} of an answer was {} instead of {}",
                self.arrived + place,
                bytes[place],
                rest[place]
            ));
        }
        self.arrived += bytes.len();
        let complete = self.arrived == request.len();
        if complete {
            self.arrived = 0;
        }
        Ok(complete)
    }
}

// An echo server's connections, and the type of its entry point.

/// The most events that each server takes from a wait.
pub(crate) const EVENTS: usize = 1024;

/// The connections that a server serves.
#[derive(Debug)]
pub(crate) struct Connections {
    /// Its ends, TCP or Unix-domain sockets. To a runtime's TCP stream, which only receives and
    /// sends, they are alike.
    pub sockets: Vec<OwnedFd>,
    /// The size of a buffer: larger than a request.
    pub room: usize,
}

/// Serves until its connections are closed, or until the parent no longer asks for its counters.
pub(crate) type Serve = fn(Connections, &mut Control) -> Result<()>;

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::server::web::Load;

    /// Serves the connections correctly, except the first, which `answer` serves; it gets each
    /// request.
    fn served(
        connections: usize,
        requests: u64,
        answer: impl Fn(usize, [u8; 24], &mut UnixStream) + Sync,
    ) -> Result<u64> {
        let (ours, theirs): (Vec<_>, Vec<_>) =
            (0..connections).map(|_| UnixStream::pair().unwrap()).unzip();
        for stream in &ours {
            stream.set_nonblocking(true).unwrap();
        }
        let sockets = ours.into_iter().map(OwnedFd::from).collect();
        let mut load = load("absent", sockets, 24).unwrap();
        std::thread::scope(|scope| {
            for (place, mut stream) in theirs.into_iter().enumerate() {
                let answer = &answer;
                scope.spawn(move || {
                    for number in 0.. {
                        let mut request = [0; 24];
                        if stream.read_exact(&mut request).is_err() {
                            return;
                        }
                        match place {
                            0 => answer(number, request, &mut stream),
                            // The client may be gone.
                            _ => drop(stream.write_all(&request)),
                        }
                    }
                });
            }
            let outcome = load.go(requests);
            drop(load);
            outcome
        })
    }

    #[test]
    fn right_answers_are_counted_even_in_parts() {
        let ns = served(2, 100, |number, request, stream| {
            let cut = number % 24;
            stream.write_all(&request[..cut]).unwrap();
            stream.write_all(&request[cut..]).unwrap();
        });
        assert!(ns.unwrap() > 0);
    }

    /// On one connection: with several, all requests may go to the other connections before the
    /// wrong answer arrives.
    #[test]
    fn wrong_answers_are_not() {
        let error = served(1, 100, |number, mut request, stream| {
            request[23] ^= u8::from(number == 3);
            drop(stream.write_all(&request));
        });
        let error = error.unwrap_err().to_string();
        assert!(error.contains("absent") && error.contains("byte 23 of an answer"), "{error}");
        let error = served(1, 100, |_, request, stream| {
            drop(stream.write_all(&[&request[..], b"?"].concat()));
        });
        assert!(error.unwrap_err().to_string().contains("after the end of the answer"));
        let error = served(1, 100, |number, request, stream| {
            drop(match number {
                0 => stream.write_all(&request),
                _ => stream.shutdown(std::net::Shutdown::Both),
            });
        });
        assert!(error.unwrap_err().to_string().contains("connection"));
    }

    fn request(connection: u64, number: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        fill(connection, number, &mut bytes);
        bytes
    }

    #[test]
    fn requests_are_all_different_and_the_same_each_time() {
        let all: Vec<_> =
            (0..50).flat_map(|c| (0..50).map(move |number| request(c, number, 13))).collect();
        let different: std::collections::HashSet<_> = all.iter().collect();
        assert_eq!(different.len(), all.len());
        assert_eq!(request(7, 3, 13), all[7 * 50 + 3]);
        assert_eq!(request(7, 3, 5), all[7 * 50 + 3][..5]);
    }

    #[test]
    fn an_answer_is_complete_with_its_last_byte_wherever_it_is_cut() {
        let sent = request(1, 2, 20);
        let mut answer = Answer::default();
        assert!(answer.take(&sent, &sent).unwrap());
        for cut in 1..20 {
            assert!(!answer.take(&sent[..cut], &sent).unwrap(), "cut at {cut}");
            assert!(answer.take(&sent[cut..], &sent).unwrap(), "cut at {cut}");
        }
    }

    #[test]
    fn anything_else_is_found_out() {
        let sent = request(1, 2, 20);
        for place in 0..20 {
            let mut wrong = sent.clone();
            wrong[place] ^= 1;
            let mut answer = Answer::default();
            assert!(!answer.take(&wrong[..place], &sent).unwrap_or(true), "nothing is wrong yet");
            let error = answer.take(&wrong[place..], &sent).unwrap_err();
            assert!(error.contains(&format!("byte {place} of")), "{error}");
        }
        let doubled = [&sent[..], &sent[..1]].concat();
        let error = Answer::default().take(&doubled, &sent).unwrap_err();
        assert!(error.contains("1 bytes came"), "{error}");
        // The answer to another connection, and the previous answer.
        for other in [request(2, 2, 20), request(1, 1, 20)] {
            assert!(Answer::default().take(&other, &sent).is_err());
        }
    }
}
