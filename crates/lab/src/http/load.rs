//! What the load generator asks and checks: one request over HTTP/1, on connections that are kept open.

use std::io::{self, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};

use crate::channel;
use crate::error::{Error, Result};
use crate::http::response::Response;
use crate::server::generator::{self, Generator};
use crate::sys::{descriptor, epoll, socket};

/// What every client asks for.
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n";

/// How much is read at a time.
const ROOM: usize = 4096;

/// A client of the server.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    response: Response,
}

/// Connects to a server so often, from an address of this machine's own network.
///
/// # Errors
///
/// [`Error::System`] if the kernel refuses.
pub fn load(
    subject: &'static str,
    from: Ipv4Addr,
    port: u16,
    count: usize,
) -> Result<Generator<Connection>> {
    Generator::new(subject, count, vec![0; ROOM], |set, number| {
        connect(from, port, set, number)
            .map_err(|e| Error::system(format!("connecting {count} times to {subject}"), e))
    })
}

fn connect(from: Ipv4Addr, port: u16, set: &OwnedFd, number: u64) -> io::Result<Connection> {
    let stream = TcpStream::from(socket::connect_from(from, port)?);
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    epoll::add(set, stream.as_raw_fd(), libc::EPOLLIN as u32, number)?;
    // No port is to stay occupied after the run.
    let stream = OwnedFd::from(stream);
    descriptor::reset_on_close(&stream)?;
    channel::plain_congestion(&stream);
    Ok(Connection { stream: stream.into(), response: Response::default() })
}

impl generator::Connection for Connection {
    type Room = Vec<u8>;

    fn ask(&mut self, _: &mut Vec<u8>) -> Result<(), String> {
        match self.stream.write(REQUEST) {
            Ok(count) if count == REQUEST.len() => Ok(()),
            Ok(count) => Err(format!("the connection took {count} bytes of a request")),
            Err(error) => Err(format!("the connection took no request: {error}")),
        }
    }

    fn read(&mut self, buffer: &mut Vec<u8>) -> Result<bool, String> {
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
        let outcome = load("nobody", Ipv4Addr::LOCALHOST, port, 1).unwrap().go(requests);
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
