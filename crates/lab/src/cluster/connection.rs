//! A client's connection to a server, and the answers to its requests.

use std::net::SocketAddr;
use std::time::Duration;

use futures_lite::{AsyncReadExt, AsyncWriteExt};
use superpoll_rt::net::TcpStream;
use superpoll_rt::time;

use crate::server::http::{self, Head};

/// How long a connection, or the head of an answer to a handshake, may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// Bytes that one read takes at most.
const ROOM: usize = 4096;

/// The longest answer.
const LONGEST: usize = 1 << 24;

/// A connection, with the bytes that have arrived and were not taken yet.
#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    /// The bytes that arrived.
    pub bytes: Vec<u8>,
}

impl Connection {
    /// Connects to a server.
    pub(super) async fn open(address: SocketAddr) -> Result<Connection, String> {
        let connecting = time::timeout(PATIENCE, TcpStream::connect_addr(address));
        let stream = match connecting.await {
            Ok(stream) => stream.map_err(|error| format!("connecting: {error}"))?,
            Err(_) => return Err("connecting takes too long".to_owned()),
        };
        let _ = stream.set_nodelay(true);
        Ok(Connection { stream, bytes: Vec::new() })
    }

    /// Sends bytes.
    pub(super) async fn send(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.stream.write_all(bytes).await.map_err(|error| format!("sending: {error}"))
    }

    /// Waits for further bytes.
    pub(super) async fn more(&mut self) -> Result<(), String> {
        let mut room = [0; ROOM];
        match self.stream.read(&mut room).await {
            Ok(0) => Err("the server closed the connection".to_owned()),
            Ok(_) if self.bytes.len() > LONGEST => Err("an answer does not end".to_owned()),
            Ok(count) => {
                self.bytes.extend_from_slice(&room[..count]);
                Ok(())
            }
            Err(error) => Err(format!("reading: {error}")),
        }
    }

    /// Takes bytes off the front.
    pub(super) fn take(&mut self, count: usize) {
        self.bytes.drain(..count);
    }

    /// Reads the head of an answer, which `check` has to accept.
    pub(super) async fn head(
        &mut self,
        check: impl Fn(&Head<'_>) -> Result<(), String>,
    ) -> Result<(), String> {
        loop {
            if let Some(head) = Head::parse(&self.bytes)? {
                check(&head)?;
                let end = head.end;
                self.take(end);
                return Ok(());
            }
            self.more().await?;
        }
    }

    /// Reads an answer; returns its status and its body.
    pub(super) async fn answer(&mut self) -> Result<(u16, Vec<u8>), String> {
        loop {
            if let Some((head, body, length)) = http::answer(&self.bytes)? {
                let answer = (head.code, body.into_owned());
                self.take(length);
                return Ok(answer);
            }
            self.more().await?;
        }
    }
}
