//! A client's connection to a server, and the answers to its requests.

use std::net::SocketAddr;
use std::time::Duration;

use futures_lite::{AsyncReadExt, AsyncWriteExt};
use superpoll_rt::net::TcpStream;
use superpoll_rt::time;

use crate::fanout::wire::{Head, chunk};

/// How long a connection, or the head of an answer to a handshake, may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// Bytes that one read takes at most.
const ROOM: usize = 4096;

/// The longest answer.
const LONGEST: usize = 1 << 24;

/// The parts of an answer's head that matter here.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Answer {
    /// The status.
    pub code: u16,
    length: Option<usize>,
    is_chunked: bool,
}

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

    /// Reads the head of an answer; `check` may look at it before it is taken off.
    pub(super) async fn head(
        &mut self,
        check: impl Fn(&Head<'_>) -> Result<(), String>,
    ) -> Result<Answer, String> {
        loop {
            if let Some(head) = Head::parse(&self.bytes)? {
                check(&head)?;
                let Head { code, length, is_chunked, end, .. } = head;
                self.take(end);
                return Ok(Answer { code, length, is_chunked });
            }
            self.more().await?;
        }
    }

    /// Reads the body of an answer.
    pub(super) async fn body(&mut self, answer: Answer) -> Result<Vec<u8>, String> {
        if answer.is_chunked {
            let mut body = Vec::new();
            loop {
                match chunk(&self.bytes)? {
                    None => self.more().await?,
                    Some((data, length)) => {
                        let is_last = data.is_empty();
                        body.extend_from_slice(data);
                        self.take(length);
                        if is_last {
                            return Ok(body);
                        }
                    }
                }
            }
        }
        let length = answer.length.unwrap_or(0);
        while self.bytes.len() < length {
            self.more().await?;
        }
        let rest = self.bytes.split_off(length);
        Ok(std::mem::replace(&mut self.bytes, rest))
    }
}
