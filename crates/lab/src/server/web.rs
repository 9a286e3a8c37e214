//! Clients of a web server, which ask for the same again and again over HTTP/1, on connections that
//! are kept open.

use std::io;
use std::net::Ipv4Addr;
use std::rc::Rc;

use crate::error::{Doing, Result};
use crate::server::client::Client;
use crate::server::generator::{self, Generator};
use crate::server::response::Response;

/// A client of the server.
#[derive(Debug)]
pub(crate) struct Connection {
    client: Client,
    request: Rc<[u8]>,
    response: Response,
}

/// The clients of a server.
pub(crate) type Clients = Generator<Connection>;

/// The path that is asked for, and the body of the right answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Page<'a> {
    /// The path.
    pub path: &'a str,
    /// Every byte of the answer.
    pub body: &'a Rc<[u8]>,
    /// How much is read at a time.
    pub room: usize,
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
    let mut ports = ports.iter().cycle();
    Generator::new(subject, count, vec![0; page.room], |set, number| {
        let port = ports.next().copied().ok_or(io::ErrorKind::NotFound.into());
        let client = port
            .and_then(|port| Client::connect(from, port, set, number))
            .doing(format_args!("connecting {count} times to {subject}"))?;
        let response = Response::new(Rc::clone(page.body));
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
    use crate::server::generator::Load;

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
            let page = Page { path: "/file", body: &Rc::from(file), room: 1 << 16 };
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
}
