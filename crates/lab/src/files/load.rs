//! The clients' request, and their connections.

use std::net::Ipv4Addr;
use std::rc::Rc;

use crate::error::{Error, Result};
use crate::files::NAME;
use crate::files::response::Response;
use crate::server::client::Client;
use crate::server::generator::{self, Generator};

/// How much is read at a time: more than most answers have, so that a server does not wait for the
/// generator.
const ROOM: usize = 256 << 10;

/// A client of the server.
#[derive(Debug)]
pub(super) struct Connection {
    client: Client,
    request: Rc<[u8]>,
    response: Response,
}

/// Makes this many connections to a server, to request this file.
pub(super) fn load(
    subject: &'static str,
    port: u16,
    count: usize,
    file: &Rc<[u8]>,
) -> Result<Generator<Connection>> {
    let request = format!("GET /{NAME} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let request: Rc<[u8]> = Rc::from(request.as_bytes());
    Generator::new(subject, count, vec![0; ROOM], |set, number| {
        let client = Client::connect(Ipv4Addr::LOCALHOST, port, set, number)
            .map_err(|e| Error::system(format!("connecting {count} times to {subject}"), e))?;
        let response = Response::new(Rc::clone(file));
        Ok(Connection { client, request: Rc::clone(&request), response })
    })
}

impl generator::Connection for Connection {
    type Room = Vec<u8>;

    fn ask(&mut self, _: &mut Vec<u8>) -> Result<(), String> {
        self.client.send(&self.request)
    }

    fn read(&mut self, buffer: &mut Vec<u8>) -> Result<bool, String> {
        let arrived = self.client.receive(buffer)?;
        arrived.map_or(Ok(false), |bytes| self.response.take(bytes))
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;

    use super::*;

    /// Serves one connection with these bodies, each in answer to a correct request.
    fn served(bodies: &[&[u8]], file: &[u8], requests: u64) -> Result<u64> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (stream, _) = listener.accept().unwrap();
                let mut writer = stream.try_clone().unwrap();
                let mut lines = BufReader::new(stream).lines();
                for body in bodies {
                    let asked = lines.next().and_then(Result::ok);
                    let Some(asked) = asked else { return };
                    assert_eq!(asked, format!("GET /{NAME} HTTP/1.1"));
                    assert!(lines.by_ref().map_while(Result::ok).any(|line| line.is_empty()));
                    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
                    // The client may have had enough.
                    let _ = writer.write_all(head.as_bytes()).and_then(|()| writer.write_all(body));
                }
                // Closed with a request unread, the connection would be reset.
                let _ = writer.shutdown(std::net::Shutdown::Write);
                lines.for_each(drop);
            });
            load("absent", port, 1, &Rc::from(file))?.go(requests)
        })
    }

    #[test]
    fn the_file_is_counted_and_nothing_else_is_taken() {
        let long: Vec<u8> = (0..300_000u32).map(|number| number as u8).collect();
        assert!(served(&[&long, &long], &long, 2).unwrap() > 0);
        let short: &[u8] = b"a file";
        assert!(served(&[short; 3], short, 3).unwrap() > 0);
        let of = |bodies: &[&[u8]]| served(bodies, short, 2).unwrap_err().to_string();
        let error = of(&[short, b"a fine"]);
        assert!(error.contains("absent") && error.contains("byte 4"), "{error}");
        assert!(of(&[short, b"file"]).contains("4 bytes instead of 6"));
        assert!(of(&[short]).contains("closed a connection"));
    }
}
