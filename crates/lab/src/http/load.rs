//! The load generator's request and checks: one request over HTTP/1, on connections that are kept
//! open.

use std::io;
use std::net::Ipv4Addr;

use crate::error::{Error, Result};
use crate::http::response::Response;
use crate::server::client::Client;
use crate::server::generator::{self, Generator};

/// The request of every client.
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n";

/// How much is read at a time.
const ROOM: usize = 4096;

/// A client of the server.
#[derive(Debug)]
pub(crate) struct Connection {
    client: Client,
    response: Response,
}

/// Makes this many connections to a server, from an address of this machine's own network, to each
/// of its ports in turn.
pub(crate) fn load(
    subject: &'static str,
    from: Ipv4Addr,
    ports: &[u16],
    count: usize,
) -> Result<Generator<Connection>> {
    let mut ports = ports.iter().cycle();
    Generator::new(subject, count, vec![0; ROOM], |set, number| {
        let port = ports.next().copied().ok_or(io::ErrorKind::NotFound.into());
        port.and_then(|port| Client::connect(from, port, set, number))
            .map(|client| Connection { client, response: Response::default() })
            .map_err(|e| Error::system(format!("connecting {count} times to {subject}"), e))
    })
}

impl generator::Connection for Connection {
    type Room = Vec<u8>;

    fn ask(&mut self, _: &mut Vec<u8>) -> Result<(), String> {
        self.client.send(REQUEST)
    }

    fn read(&mut self, buffer: &mut Vec<u8>) -> Result<bool, String> {
        let arrived = self.client.receive(buffer)?;
        arrived.map_or(Ok(false), |bytes| self.response.take(bytes))
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;

    /// Serves one connection with these answers, each in answer to a correct request.
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
            // Closed with a request unread, the connection would be reset. The client may have done
            // so already.
            let _ = stream.shutdown(std::net::Shutdown::Write);
            let _ = io::copy(&mut stream, &mut io::sink());
        });
        let outcome = load("absent", Ipv4Addr::LOCALHOST, &[port], 1).unwrap().go(requests);
        server.join().unwrap();
        outcome
    }

    const GOOD: &str = "HTTP/1.1 200 OK\r\ncontent-length: 13\r\n\r\nHello, World!";

    #[test]
    fn right_answers_are_counted_and_others_are_not_taken() {
        assert!(served(&[GOOD, GOOD, GOOD], 3).unwrap() > 0);
        let error = served(&[GOOD, "HTTP/1.1 404 Not Found\r\n\r\n"], 3).unwrap_err().to_string();
        assert!(error.contains("absent") && error.contains("404"), "{error}");
        let error = served(&[GOOD], 2).unwrap_err().to_string();
        assert!(error.contains("closed a connection"), "{error}");
    }
}
