//! The clients: they connect, make a connection of its kind, and fall silent.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::fd::AsRawFd;
use std::time::Duration;

use rustls::ClientConnection;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::http::BODY;
use crate::idle::service::{Certificate, Kind, Subject};
use crate::server::clients::Clients;
use crate::sys::{descriptor, socket};

/// A client that gets no answer within this time has failed.
const PATIENCE: Duration = Duration::from_secs(20);

/// The request.
const GET: &[u8] = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n";

/// A request that is answered when there is a message, which there never is.
const POLL: &[u8] = b"GET /channel?after=0&wait=86400 HTTP/1.1\r\nhost: localhost\r\n\r\n";

/// A stream of server-sent events, which has no event but the first, which names its position.
const EVENTS: &[u8] =
    b"GET /channel HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\n\r\n";

/// The handshake of RFC 6455, section 1.3, with the same key.
const UPGRADE: &[u8] = b"GET /channel HTTP/1.1\r\nhost: localhost\r\nupgrade: websocket\r\n\
                         connection: Upgrade\r\nsec-websocket-version: 13\r\n\
                         sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

/// The answer to that key.
const ACCEPTED: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

/// Commands for the clients.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) enum Order {
    /// Connect this many clients; each does its part before the next one connects.
    OneByOne(usize),
    /// Connect this many clients; then all send their requests, then all read the answers.
    Burst(usize),
    /// Check that all connections are there, and silent.
    Check,
    /// Close them.
    Close,
}

/// Starts clients of a server in a process of their own, with an address of this machine's own
/// network.
pub(super) fn start(
    Subject { name, start, .. }: Subject,
    from: Ipv4Addr,
    port: u16,
    certificate: &Certificate,
) -> Result<Clients> {
    let certificate = certificate.clone();
    let mut all: Vec<Client> = Vec::new();
    Clients::start(name, move |order| {
        let wrong = |error: io::Error| Error::Work { subject: name, found: error.to_string() };
        let connect = || Client::connect(start.kind, from, port, &certificate);
        match order {
            Order::OneByOne(count) => {
                for _ in 0..count {
                    let mut client = connect()?;
                    client.ask(start.kind).map_err(wrong)?;
                    client.hear(start.kind).map_err(wrong)?;
                    all.push(client);
                }
                Ok(())
            }
            Order::Burst(count) => {
                let mut new = (0..count).map(|_| connect()).collect::<Result<Vec<Client>>>()?;
                let mut each = |part: fn(&mut Client, Kind) -> io::Result<()>| {
                    new.iter_mut().try_for_each(|client| part(client, start.kind))
                };
                each(Client::ask).map_err(wrong)?;
                each(Client::hear).map_err(wrong)?;
                all.extend(new);
                Ok(())
            }
            Order::Check => all.iter_mut().try_for_each(Client::check).map_err(wrong),
            Order::Close => {
                all.clear();
                Ok(())
            }
        }
    })
}

/// One client.
struct Client {
    stream: TcpStream,
    tls: Option<Box<ClientConnection>>,
}

fn other(what: impl Into<String>) -> io::Error {
    io::Error::other(what.into())
}

impl Client {
    fn connect(kind: Kind, from: Ipv4Addr, port: u16, certificate: &Certificate) -> Result<Client> {
        let connecting = |e| Error::system(format!("connecting to port {port}"), e);
        let socket = socket::connect_from(from, port).map_err(connecting)?;
        // The run must not leave ports occupied.
        descriptor::reset_on_close(&socket).map_err(connecting)?;
        let stream = TcpStream::from(socket);
        stream.set_nodelay(true).map_err(connecting)?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(connecting)?;
        let tls = match kind {
            Kind::Tls => Some(Box::new(certificate.client()?)),
            _ => None,
        };
        Ok(Client { stream, tls })
    }

    /// Sends the first bytes.
    fn ask(&mut self, kind: Kind) -> io::Result<()> {
        match (kind, &mut self.tls) {
            (Kind::Silent, _) => Ok(()),
            (Kind::Tls, Some(tls)) => tls.write_tls(&mut self.stream).map(drop),
            (Kind::Tls | Kind::KeepAlive | Kind::Relay, _) => self.stream.write_all(GET),
            (Kind::LongPoll, _) => self.stream.write_all(POLL),
            (Kind::WebSocket, _) => self.stream.write_all(UPGRADE),
            (Kind::Events, _) => self.stream.write_all(EVENTS),
        }
    }

    /// Reads the answer and checks it.
    fn hear(&mut self, kind: Kind) -> io::Result<()> {
        match (kind, &mut self.tls) {
            (Kind::Silent | Kind::LongPoll, _) => Ok(()),
            (Kind::Tls, Some(tls)) => {
                let mut stream = rustls::Stream::new(tls.as_mut(), &mut self.stream);
                stream.write_all(GET)?;
                answered(&mut stream)
            }
            (Kind::Tls | Kind::KeepAlive | Kind::Relay, _) => answered(&mut self.stream),
            (Kind::WebSocket, _) => {
                let answer = read_until(&mut self.stream, b"\r\n\r\n")?;
                let text = String::from_utf8_lossy(&answer);
                if text.starts_with("HTTP/1.1 101 ") && text.contains(ACCEPTED) {
                    return Ok(());
                }
                Err(other(format!("a WebSocket's handshake was answered {text:?}")))
            }
            (Kind::Events, _) => {
                let mut answer = read_until(&mut self.stream, b"\n\r\n")?;
                // The head may arrive without the chunk with the place at which the stream begins.
                if answer.ends_with(b"\r\n\r\n") {
                    answer.extend(read_until(&mut self.stream, b"\n\r\n")?);
                }
                let text = String::from_utf8_lossy(&answer);
                let kind = "\r\ncontent-type: text/event-stream\r\n";
                if text.starts_with("HTTP/1.1 200 ") && text.contains(kind) {
                    return Ok(());
                }
                Err(other(format!("a request for events was answered {text:?}")))
            }
        }
    }

    /// Checks that there is nothing to read, and no end.
    fn check(&mut self) -> io::Result<()> {
        descriptor::set_blocking(self.stream.as_raw_fd(), false)?;
        match self.stream.peek(&mut [0]) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(other(format!("a connection broke: {error}"))),
            Ok(0) => Err(other("it closed a connection")),
            Ok(_) => Err(other("it sent data without a request")),
        }
    }
}

/// Reads an answer with the known body.
fn answered(stream: &mut impl Read) -> io::Result<()> {
    let answer = read_until(stream, BODY)?;
    if answer.starts_with(b"HTTP/1.1 200 ") {
        return Ok(());
    }
    Err(other(format!("an answer was {:?}", String::from_utf8_lossy(&answer))))
}

/// Reads until these bytes arrive, with nothing after them.
fn read_until(stream: &mut impl Read, end: &[u8]) -> io::Result<Vec<u8>> {
    let mut answer = Vec::new();
    let mut room = [0; 2048];
    while !answer.ends_with(end) {
        match stream.read(&mut room) {
            Ok(0) => {
                let text = String::from_utf8_lossy(&answer);
                return Err(other(format!("it closed a connection after {text:?}")));
            }
            Ok(count) => answer.extend_from_slice(&room[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let text = String::from_utf8_lossy(&answer);
                return Err(other(format!("an answer did not come in 20 s, but {text:?}")));
            }
            Err(error) => return Err(other(format!("a connection broke: {error}"))),
        }
        if answer.len() > 8192 {
            return Err(other("an answer did not end"));
        }
    }
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_to_their_end_and_wrong_ones_refused() {
        let good = b"HTTP/1.1 200 OK\r\ncontent-length: 13\r\n\r\nHello, World!";
        assert!(answered(&mut &good[..]).is_ok());
        let error = answered(&mut &good[..good.len() - 1]).unwrap_err().to_string();
        assert!(error.contains("closed a connection after"), "{error}");
        let bad = b"HTTP/1.1 404 No\r\ncontent-length: 13\r\n\r\nHello, World!";
        assert!(answered(&mut &bad[..]).unwrap_err().to_string().contains("404 No"));
        let error = answered(&mut io::repeat(b'x')).unwrap_err().to_string();
        assert!(error.contains("did not end"), "{error}");
    }
}
