//! The handshake, by rustls, and the way out of rustls after it.
//!
//! The bytes of the client are given to rustls one record at a time, so that no byte after the
//! handshake is in rustls when the connection leaves it.
//!
//! The keys and the numbers of records are told by the suites of the handshake (`traffic_keys`).

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use futures_lite::{AsyncReadExt, AsyncWriteExt};
use futures_rustls::rustls::{self, ServerConfig, ServerConnection};

use super::records::{HEADER, LONGEST, Records};
use super::sealer::Sealer;
use super::stream::TlsStream;
use super::traffic_keys::{SecretLog, TrafficKeys};
use crate::plain_stream::Plain;

/// The protocol name of HTTP/2 in ALPN (RFC 9113, section 3.2).
const H2: &[u8] = b"h2";

/// The bytes that are read at once; the messages of a handshake are small.
const BUFFER: usize = 4096;

/// Prepares a configuration for connections that leave rustls. Its suites are
/// `telling`.
pub fn prepare(config: &mut ServerConfig) {
    config.key_log = Arc::new(SecretLog);
}

/// Returns the number of a connection's cipher suite, which tells the version of TLS as well; 0
/// before it is agreed upon.
pub fn cipher_of(session: &ServerConnection) -> u16 {
    session.negotiated_cipher_suite().map_or(0, |suite| suite.suite().into())
}

/// A connection after its handshake.
pub enum Accepted {
    /// HTTP/1, or a protocol that was not agreed upon.
    Http1(TlsStream),
    /// HTTP/2.
    Http2(TlsStream),
}

/// A handshake that is under way, and the keys that it has come to.
pub(super) struct Handshake {
    pub session: ServerConnection,
    pub keys: TrafficKeys,
}

impl Handshake {
    pub(super) fn new(config: &Arc<ServerConfig>) -> Result<Handshake, rustls::Error> {
        let session = ServerConnection::new(config.clone())?;
        Ok(Handshake { session, keys: TrafficKeys::default() })
    }

    /// Takes in a record.
    pub(super) fn read_record(&mut self, mut record: &[u8]) -> Result<(), rustls::Error> {
        while !record.is_empty() {
            // Reading from memory does not fail, and rustls takes no more than it has room for.
            if self.session.read_tls(&mut record).is_err() {
                return Err(rustls::Error::General("a record is too long".into()));
            }
            let session = &mut self.session;
            self.keys.collect(|| session.process_new_packets())?;
        }
        Ok(())
    }

    /// Takes the connection out of rustls, if it has told all keys.
    pub(super) fn leave(self) -> Option<Records> {
        let (to_client, suite, from_client) = self.keys.directions()?;
        Some(Records::new(Sealer::new(suite, to_client), from_client))
    }

    /// Stays in rustls, and returns the records of the client in its place.
    #[cfg(test)]
    pub(super) fn and_client(self) -> Option<(ServerConnection, Records)> {
        let (to_client, suite, from_client) = self.keys.directions()?;
        Some((self.session, Records::new(Sealer::new(suite, from_client), to_client)))
    }
}

/// The records of a client, one at a time.
struct Client {
    plain: Plain,
    bytes: Vec<u8>,
}

impl Client {
    /// Returns the next record, or whatever has come in its place: rustls says what is wrong with
    /// it.
    async fn record(&mut self) -> io::Result<Vec<u8>> {
        loop {
            let length = match self.bytes[..] {
                [20..=23, 3, _, high, low, ..] => {
                    let length = HEADER + usize::from(u16::from_be_bytes([high, low]));
                    Some(if length > LONGEST { self.bytes.len() } else { length })
                }
                [] | [20..=23] | [20..=23, 3, ..] => None,
                [..] => Some(self.bytes.len()),
            };
            if let Some(length) = length.filter(|length| *length <= self.bytes.len()) {
                let rest = self.bytes.split_off(length);
                return Ok(std::mem::replace(&mut self.bytes, rest));
            }
            let mut room = [0; BUFFER];
            match self.plain.read(&mut room).await? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => self.bytes.extend_from_slice(&room[..count]),
            }
        }
    }

    /// Writes the bytes that rustls wants to send.
    async fn write(&mut self, session: &mut ServerConnection) -> io::Result<()> {
        let mut bytes = Vec::new();
        while session.wants_write() {
            session.write_tls(&mut bytes)?;
        }
        self.plain.write_all(&bytes).await?;
        self.plain.flush().await
    }
}

/// Does the handshake with a client of which some bytes were read already. `notice` sees the
/// connection while rustls still has it.
///
/// # Errors
///
/// The socket's error, or the fault in the client's bytes; the client was told.
///
/// # Cancel safety
///
/// A cancelled handshake ends the connection.
pub async fn accept(
    config: &Arc<ServerConfig>,
    plain: Plain,
    before: Bytes,
    notice: impl FnOnce(&ServerConnection),
) -> io::Result<Accepted> {
    let wrong = |error| io::Error::new(io::ErrorKind::InvalidData, error);
    let mut handshake = Handshake::new(config).map_err(wrong)?;
    let mut client = Client { plain, bytes: before.into() };
    while handshake.session.is_handshaking() {
        let record = client.record().await?;
        let outcome = handshake.read_record(&record);
        // An alert, if it has failed.
        let written = client.write(&mut handshake.session).await;
        outcome.map_err(wrong)?;
        written?;
    }
    notice(&handshake.session);
    let Client { plain, bytes } = client;
    let is_http2 = handshake.session.alpn_protocol() == Some(H2);
    let no_keys = || io::Error::other("the handshake is over, and has told no keys");
    let stream = TlsStream::new(plain, handshake.leave().ok_or_else(no_keys)?, bytes, Vec::new());
    Ok(if is_http2 { Accepted::Http2(stream) } else { Accepted::Http1(stream) })
}
