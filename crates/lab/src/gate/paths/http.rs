//! The common parts of the paths through the web server: a server and a client on one engine, and
//! the request for a small answer.

use std::io;

use futures_lite::{AsyncReadExt, AsyncWriteExt};
use superpoll_gateway::Config;
use superpoll_gateway::serve::Server;
use superpoll_rt::Runtime;
use superpoll_rt::net::TcpStream;

use crate::error::{Error, Result};
use crate::gate::paths::work::{runtime, said};

/// Longer than any answer.
const ROOM: usize = 4096;

/// The body of a small answer.
pub(super) const BODY: &[u8] = &[b'o'; 1024];

/// A request with the fields of a program that asks often.
pub(super) const REQUEST: &[u8] = b"GET /small.txt HTTP/1.1\r\n\
    host: localhost\r\n\
    user-agent: superpoll-lab\r\n\
    accept: text/plain, */*\r\n\
    referer: http://localhost/\r\n\
    accept-language: en, de;q=0.5\r\n\
    cookie: session=0123456789abcdef\r\n\
    cache-control: max-age=0\r\n\r\n";

/// A connection to the server.
pub(super) struct Connection {
    stream: TcpStream,
    room: Box<[u8; ROOM]>,
}

/// Starts a server and connects to it.
pub(super) fn start(config: &Config) -> Result<(Runtime, Server, Connection)> {
    let runtime = runtime()?;
    // If a request fails, the client fails.
    let server = Server::start(&runtime, config, |_| {}).map_err(said)?;
    let Some(address) = server.listening().next().map(ToString::to_string) else {
        return Err(Error::usage("a web server listens nowhere"));
    };
    let stream = runtime.try_block_on(TcpStream::connect(address)).map_err(said)?;
    let stream = stream.map_err(|e| Error::system("connecting to the web server", e))?;
    Ok((runtime, server, Connection { stream, room: Box::new([0; ROOM]) }))
}

impl Connection {
    pub(super) async fn ask(&mut self, request: &[u8]) -> io::Result<()> {
        self.stream.write_all(request).await
    }

    /// Reads an answer of status 200, up to the last bytes of its body.
    pub(super) async fn hear(&mut self, end: &[u8]) -> io::Result<()> {
        let mut filled = 0;
        while !self.room[..filled].ends_with(end) {
            match self.stream.read(&mut self.room[filled..]).await? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => filled += count,
            }
        }
        match self.room.starts_with(b"HTTP/1.1 200 OK\r\n") {
            true => Ok(()),
            false => Err(io::Error::other("the web server refuses")),
        }
    }
}
