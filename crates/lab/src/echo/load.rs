//! The load generator: connections with one request under way on each.
//!
//! It shares a machine with the server, so it does no more than it must: edge-triggered epoll, one read for an
//! answer, one write for the next request.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Instant;

use superpoll::call;

use crate::echo::message::{self, Answer};
use crate::error::{Error, Result};
use crate::sys::{epoll, process};

/// Whoever does not answer for so long has lost a request.
const PATIENCE_MS: i32 = 10_000;

struct Connection {
    socket: OwnedFd,
    number: u64,
    /// Requests so far.
    asked: u64,
    answer: Answer,
}

/// The generator's ends of the connections to one server.
pub struct Load {
    subject: &'static str,
    set: OwnedFd,
    connections: Vec<Connection>,
    events: Vec<epoll::Raw>,
    request: Vec<u8>,
    buffer: Vec<u8>,
    busy_ns: u64,
}

impl Load {
    /// Takes its ends. A request has so many bytes.
    ///
    /// # Errors
    ///
    /// [`Error::System`] if the kernel refuses to watch one.
    pub fn new(subject: &'static str, sockets: Vec<OwnedFd>, bytes: usize) -> Result<Load> {
        let set = epoll::create().map_err(|e| Error::system("creating an epoll set", e))?;
        let events = vec![epoll::Raw { events: 0, u64: 0 }; sockets.len().clamp(1, 1024)];
        let mut connections = Vec::with_capacity(sockets.len());
        for (number, socket) in (0..).zip(sockets) {
            epoll::add(&set, socket.as_raw_fd(), (libc::EPOLLIN | libc::EPOLLET) as u32, number)
                .map_err(|e| Error::system(format!("watching connections to {subject}"), e))?;
            connections.push(Connection { socket, number, asked: 0, answer: Answer::default() });
        }
        // With room for more than an answer, a read that fills it is wrong, and any other has drained.
        let (request, buffer) = (vec![0; bytes], vec![0; 2 * bytes]);
        Ok(Load { subject, set, connections, events, request, buffer, busy_ns: 0 })
    }

    /// Asks so often in all, over all connections, and returns the nanoseconds from the first request to
    /// the last answer.
    ///
    /// # Errors
    ///
    /// [`Error::Work`] if an answer is wrong or does not come.
    pub fn go(&mut self, requests: u64) -> Result<u64> {
        let subject = self.subject;
        let wrong = |found: String| Error::Work { subject, found };
        let (begun, cpu) = (Instant::now(), process::thread_time());
        let first = self.connections.len().min(usize::try_from(requests).unwrap_or(usize::MAX));
        for connection in &mut self.connections[..first] {
            connection.ask(&mut self.request).map_err(wrong)?;
        }
        let (mut unasked, mut unanswered) = (requests - first as u64, requests);
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
                let answered = connection.read(&mut self.buffer, &mut self.request);
                if answered.map_err(wrong)? {
                    unanswered = unanswered
                        .checked_sub(1)
                        .ok_or_else(|| wrong("an answer came that nobody asked for".to_owned()))?;
                    if unasked > 0 {
                        unasked -= 1;
                        connection.ask(&mut self.request).map_err(wrong)?;
                    }
                }
            }
        }
        self.busy_ns = process::thread_time() - cpu;
        Ok(begun.elapsed().as_nanos() as u64)
    }

    /// The processor time that the generator used when it was last asked to [`go`](Load::go).
    pub fn busy_ns(&self) -> u64 {
        self.busy_ns
    }
}

impl Connection {
    fn ask(&mut self, request: &mut [u8]) -> Result<(), String> {
        self.asked += 1;
        message::fill(self.number, self.asked, request);
        match call::send(&self.socket, request) {
            Ok(count) if count == request.len() => Ok(()),
            Ok(count) => Err(format!("a connection took {count} bytes of a request")),
            Err(error) => Err(format!("a connection took no request: {error}")),
        }
    }

    /// Reads once; says whether an answer is complete.
    fn read(&mut self, buffer: &mut [u8], request: &mut [u8]) -> Result<bool, String> {
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

    /// Serves two connections, the second as it should be, the first by `answer`, which gets each request.
    fn served(
        requests: u64,
        answer: impl Fn(usize, [u8; 24], &mut UnixStream) + Sync,
    ) -> Result<u64> {
        let (ours, theirs): (Vec<_>, Vec<_>) = (0..2).map(|_| UnixStream::pair().unwrap()).unzip();
        for stream in &ours {
            stream.set_nonblocking(true).unwrap();
        }
        let sockets = ours.into_iter().map(OwnedFd::from).collect();
        let mut load = Load::new("nobody", sockets, 24).unwrap();
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
        let ns = served(100, |number, request, stream| {
            let cut = number % 24;
            stream.write_all(&request[..cut]).unwrap();
            stream.write_all(&request[cut..]).unwrap();
        });
        assert!(ns.unwrap() > 0);
    }

    #[test]
    fn wrong_answers_are_not() {
        let error = served(100, |number, mut request, stream| {
            request[23] ^= u8::from(number == 3);
            drop(stream.write_all(&request));
        });
        let error = error.unwrap_err().to_string();
        assert!(error.contains("nobody") && error.contains("byte 23 of an answer"), "{error}");
        let error = served(100, |_, request, stream| {
            drop(stream.write_all(&[&request[..], b"?"].concat()));
        });
        assert!(error.unwrap_err().to_string().contains("nobody asked for"));
        let error = served(100, |number, request, stream| {
            drop(match number {
                0 => stream.write_all(&request),
                _ => stream.shutdown(std::net::Shutdown::Both),
            });
        });
        assert!(error.unwrap_err().to_string().contains("connection"));
    }
}
