//! The load generator: connections that are kept open, one request in flight on each.
//!
//! It shares a machine with the server, so it does no more than it must: an epoll set, one read for an
//! answer, one write for the next request.

use std::io::{self, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Instant;

use crate::channel;
use crate::error::{Error, Result};
use crate::http::response::Response;
use crate::sys::{descriptor, epoll};

/// What every client asks for.
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n";

/// Whoever does not answer for so long has lost a request.
const PATIENCE_MS: i32 = 10_000;

#[derive(Debug)]
struct Connection {
    stream: TcpStream,
    response: Response,
}

/// The connections to one server.
pub struct Load {
    subject: &'static str,
    set: OwnedFd,
    connections: Vec<Connection>,
    events: Vec<epoll::Raw>,
}

impl Load {
    /// Connects so often.
    ///
    /// # Errors
    ///
    /// [`Error::System`] if the kernel refuses.
    pub fn connect(subject: &'static str, port: u16, count: usize) -> Result<Load> {
        let set = epoll::create().map_err(|e| Error::system("creating an epoll set", e))?;
        let connections = (0..count)
            .map(|number| connect(port, &set, number as u64))
            .collect::<io::Result<Vec<Connection>>>()
            .map_err(|e| Error::system(format!("connecting {count} times to {subject}"), e))?;
        let events = vec![epoll::Raw { events: 0, u64: 0 }; count.min(1024)];
        Ok(Load { subject, set, connections, events })
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
        let begun = Instant::now();
        let first = self.connections.len().min(usize::try_from(requests).unwrap_or(usize::MAX));
        for connection in &mut self.connections[..first] {
            connection.ask().map_err(wrong)?;
        }
        let (mut unasked, mut unanswered) = (requests - first as u64, requests);
        let mut buffer = [0; 4096];
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
                if connection.read(&mut buffer).map_err(wrong)? {
                    unanswered = unanswered
                        .checked_sub(1)
                        .ok_or_else(|| wrong("an answer came that nobody asked for".to_owned()))?;
                    if unasked > 0 {
                        unasked -= 1;
                        connection.ask().map_err(wrong)?;
                    }
                }
            }
        }
        Ok(begun.elapsed().as_nanos() as u64)
    }
}

fn connect(port: u16, set: &OwnedFd, number: u64) -> io::Result<Connection> {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    epoll::add(set, stream.as_raw_fd(), libc::EPOLLIN as u32, number)?;
    // No port is to stay occupied after the run.
    let stream = OwnedFd::from(stream);
    descriptor::reset_on_close(&stream)?;
    channel::plain_congestion(&stream);
    Ok(Connection { stream: stream.into(), response: Response::default() })
}

impl Connection {
    fn ask(&mut self) -> Result<(), String> {
        match self.stream.write(REQUEST) {
            Ok(count) if count == REQUEST.len() => Ok(()),
            Ok(count) => Err(format!("the connection took {count} bytes of a request")),
            Err(error) => Err(format!("the connection took no request: {error}")),
        }
    }

    /// Reads once; says whether an answer is complete.
    fn read(&mut self, buffer: &mut [u8]) -> Result<bool, String> {
        match usize::try_from(descriptor::read(self.stream.as_raw_fd(), buffer)) {
            Ok(0) => Err("it closed a connection".to_owned()),
            Ok(count) => self.response.take(&buffer[..count]),
            Err(_) => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => Ok(false),
                error => Err(format!("a connection broke: {error}")),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpListener;

    use super::*;

    /// Serves one connection with these answers, each to a request as it should be.
    fn served(answers: &'static [&'static str], requests: u64) -> Result<u64> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            for answer in answers {
                let mut request = [0; REQUEST.len()];
                if stream.read_exact(&mut request).is_err() {
                    return;
                }
                assert_eq!(request, REQUEST);
                stream.write_all(answer.as_bytes()).unwrap();
            }
            // Closed with a request unread, the connection would be reset. The client may have done so already.
            let _ = stream.shutdown(std::net::Shutdown::Write);
            let _ = io::copy(&mut stream, &mut io::sink());
        });
        let outcome = Load::connect("nobody", port, 1).unwrap().go(requests);
        server.join().unwrap();
        outcome
    }

    const GOOD: &str = "HTTP/1.1 200 OK\r\ncontent-length: 13\r\n\r\nHello, World!";

    #[test]
    fn right_answers_are_counted_and_others_are_not_taken() {
        assert!(served(&[GOOD, GOOD, GOOD], 3).unwrap() > 0);
        let error = served(&[GOOD, "HTTP/1.1 404 Not Found\r\n\r\n"], 3).unwrap_err().to_string();
        assert!(error.contains("nobody") && error.contains("404"), "{error}");
        let error = served(&[GOOD], 2).unwrap_err().to_string();
        assert!(error.contains("closed a connection"), "{error}");
    }
}
