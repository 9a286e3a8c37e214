//! The handshake, by rustls, and the way out of rustls behind it.
//!
//! The bytes of the client are given to rustls one record at a time, so that no byte behind the
//! handshake is in rustls when the connection leaves it.
//!
//! rustls hands out keys, but not the secrets that the next keys are made from. It tells these only
//! to a log of keys, while it works on a record. The log here keeps the two secrets of one
//! connection, for as long as that takes. If they are not those of the keys that rustls hands out,
//! the connection ends.

use std::cell::RefCell;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use futures_lite::{AsyncReadExt, AsyncWriteExt};
#[cfg(test)]
use futures_rustls::rustls::ClientConnection;
use futures_rustls::rustls::{
    self, ConnectionTrafficSecrets, KeyLog, ProtocolVersion, ServerConfig, ServerConnection,
};

use super::keys::{Direction, RawKey, Secret, secret};
use super::records::{HEADER, LONGEST, Records};
use super::sealer::Sealer;
use super::stream::TlsStream;
use super::suite::{Cipher, Suite};
use crate::transport::Plain;

/// The protocol name of HTTP/2 in ALPN (RFC 9113, section 3.2).
const H2: &[u8] = b"h2";

/// The bytes that are read at once; the messages of a handshake are small.
const BUFFER: usize = 4096;

thread_local! {
    /// The secrets of the connection whose record rustls works on: the client's, the server's.
    static TOLD: RefCell<[Option<Secret>; 2]> = const { RefCell::new([None, None]) };
}

/// The log that keeps the first secrets of a connection's traffic for a moment.
#[derive(Debug)]
struct SecretLog;

/// The places of secrets, by their names (RFC 9850).
fn place(label: &str) -> Option<usize> {
    ["CLIENT_TRAFFIC_SECRET_0", "SERVER_TRAFFIC_SECRET_0"].iter().position(|one| *one == label)
}

impl KeyLog for SecretLog {
    fn log(&self, label: &str, _: &[u8], bytes: &[u8]) {
        if let Some(place) = place(label) {
            TOLD.with_borrow_mut(|told| told[place] = Some(secret(&[bytes])));
        }
    }

    fn will_log(&self, label: &str) -> bool {
        place(label).is_some()
    }
}

/// Prepares a configuration for connections that leave rustls.
pub(crate) fn prepare(config: &mut ServerConfig) {
    config.enable_secret_extraction = true;
    config.key_log = Arc::new(SecretLog);
}

/// A connection behind its handshake.
pub(crate) enum Accepted {
    /// HTTP/1, or a protocol that was not agreed upon.
    Http1(TlsStream),
    /// HTTP/2.
    Http2(TlsStream),
}

/// A handshake that is under way, and the secrets that it has come to.
pub(super) struct Handshake {
    pub session: ServerConnection,
    /// The client's and the server's.
    secrets: [Option<Secret>; 2],
}

impl Handshake {
    pub(super) fn new(config: &Arc<ServerConfig>) -> Result<Handshake, rustls::Error> {
        let session = ServerConnection::new(config.clone())?;
        Ok(Handshake { session, secrets: [None, None] })
    }

    /// Takes in a record.
    pub(super) fn take(&mut self, mut record: &[u8]) -> Result<(), rustls::Error> {
        while !record.is_empty() {
            // Reading from memory does not fail, and rustls takes no more than it has room for.
            if self.session.read_tls(&mut record).is_err() {
                return Err(rustls::Error::General("a record is too long".into()));
            }
            // Nothing of another connection happens on this thread in between.
            TOLD.set([None, None]);
            let outcome = self.session.process_new_packets();
            for (kept, told) in self.secrets.iter_mut().zip(TOLD.take()) {
                *kept = told.or(kept.take());
            }
            outcome?;
        }
        Ok(())
    }

    /// Takes the connection out of rustls, if its keys are those of the secrets.
    #[cfg(test)]
    pub(super) fn leave(self) -> Option<Records> {
        leave(self.session, self.secrets)
    }

    /// Stays in rustls, and returns the records of the client, which leaves it.
    #[cfg(test)]
    pub(super) fn and_client(
        self,
        client: ClientConnection,
    ) -> Option<(ServerConnection, Records)> {
        let Handshake { session, secrets: [client_secret, server_secret] } = self;
        let is_tls13 = session.protocol_version()? == ProtocolVersion::TLSv1_3;
        let extracted = client.dangerous_extract_secrets().ok()?;
        let (sealing, suite) = direction(is_tls13, extracted.tx, client_secret)?;
        let (opening, _) = direction(is_tls13, extracted.rx, server_secret)?;
        Some((session, Records::new(Sealer::new(suite, sealing), opening)))
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

    /// Writes the bytes that rustls has to send.
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
/// The socket's error, or what is wrong with the client's bytes; the client was told.
///
/// # Cancel safety
///
/// A cancelled handshake ends the connection.
pub(crate) async fn accept(
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
        let outcome = handshake.take(&record);
        // An alert, if it has failed.
        let written = client.write(&mut handshake.session).await;
        outcome.map_err(wrong)?;
        written?;
    }
    let Handshake { session, secrets } = handshake;
    notice(&session);
    let Client { plain, bytes } = client;
    let is_http2 = session.alpn_protocol() == Some(H2);
    let records = leave(session, secrets)
        .ok_or_else(|| io::Error::other("the keys of a connection are not those of its secrets"))?;
    let stream = TlsStream::new(plain, records, bytes, Vec::new());
    Ok(if is_http2 { Accepted::Http2(stream) } else { Accepted::Http1(stream) })
}

/// Takes a connection out of rustls.
fn leave(session: ServerConnection, told: [Option<Secret>; 2]) -> Option<Records> {
    let is_tls13 = session.protocol_version()? == ProtocolVersion::TLSv1_3;
    let extracted = session.dangerous_extract_secrets().ok()?;
    let [client, server] = told;
    let (sealing, suite) = direction(is_tls13, extracted.tx, server)?;
    let (opening, _) = direction(is_tls13, extracted.rx, client)?;
    Some(Records::new(Sealer::new(suite, sealing), opening))
}

/// Returns a direction with the number of its next record.
fn direction(
    is_tls13: bool,
    (number, secrets): (u64, ConnectionTrafficSecrets),
    told: Option<Secret>,
) -> Option<(Direction, Suite)> {
    let (cipher, key, iv) = match &secrets {
        ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (Cipher::Aes128Gcm, key, iv),
        ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (Cipher::Aes256Gcm, key, iv),
        ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => {
            (Cipher::ChaCha20Poly1305, key, iv)
        }
        _ => return None,
    };
    let suite = Suite { is_tls13, cipher };
    let secret = match is_tls13 {
        true => told?,
        false => secret(&[key.as_ref(), iv.as_ref()]),
    };
    let made = RawKey::of(suite, &secret);
    let is_same = made.key[..made.key_len] == *key.as_ref() && made.iv[..] == *iv.as_ref();
    is_same.then(|| (Direction::with_key(suite, secret, made, number), suite))
}
