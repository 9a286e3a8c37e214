//! The load generator's requests and checks: every byte of each message is known.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use superpoll::call;

use crate::echo::message::{self, Answer};
use crate::error::{Error, Result};
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
    // With room for more than an answer, a read that fills it is wrong, and any other has drained.
    let room = Room { request: vec![0; bytes], buffer: vec![0; 2 * bytes] };
    let count = sockets.len();
    let mut sockets = sockets.into_iter();
    Generator::new(subject, count, room, |set, number| {
        let failed = |e| Error::system(format!("watching connections to {subject}"), e);
        let socket = sockets.next().ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?;
        epoll::add(set, socket.as_raw_fd(), (libc::EPOLLIN | libc::EPOLLET) as u32, number)
            .map_err(failed)?;
        Ok(Connection { socket, number, asked: 0, answer: Answer::default() })
    })
}

impl web::Connection for Connection {
    type Room = Room;

    fn ask(&mut self, Room { request, .. }: &mut Room) -> Result<(), String> {
        self.asked += 1;
        message::fill(self.number, self.asked, request);
        match call::send(&self.socket, request) {
            Ok(count) if count == request.len() => Ok(()),
            Ok(count) => Err(format!("a connection took {count} bytes of a request")),
            Err(error) => Err(format!("a connection took no request: {error}")),
        }
    }

    fn read(&mut self, Room { request, buffer }: &mut Room) -> Result<bool, String> {
        match call::read(&self.socket, buffer) {
            Ok(0) => Err("it closed a connection".to_owned()),
            Ok(count) => {
                message::fill(self.number, self.asked, request);
                self.answer.take(&buffer[..count], request)
            }
            // Reported once more than there was something.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(format!("a connection broke: {error}")),
        }
    }
}

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
}
