//! The keys of a connection on which nothing happens.

use std::fmt;

use zeroize::Zeroizing;

use super::keys::{Direction, Secret, secret};
use super::keys::{LONGEST_SECRET, Suite};
use super::records::{Alert, Counts, HEADER, MOST_TEXT, Records};
use super::sealer::Sealer;
use super::stream::TlsStream;
use crate::plain_stream::Plain;

/// The records that a parked connection leaves to the stream that continues with it, which may have
/// to change the key.
const KEPT: u64 = 16;

/// A message whose record was written in part.
#[derive(Clone, Copy, Debug)]
pub struct Cut<'a> {
    /// The text of the record.
    pub message: &'a [u8],
    /// The bytes of the record that were written.
    pub sent: usize,
}

/// The keys of a parked connection, between two records.
pub struct ParkedKeys {
    suite: Suite,
    counts: Counts,
    tx_number: u64,
    rx_number: u64,
    /// The key of writing has to be changed before anything is written: a server that was killed
    /// may have been about to write with it.
    must_change: bool,
    /// The secret of writing, then that of reading.
    secrets: Zeroizing<[[u8; LONGEST_SECRET]; 2]>,
    /// The rest of a record that has begun to be written. A connection with such a rest does not
    /// stay parked.
    unsent: Option<Box<[u8]>>,
}

impl ParkedKeys {
    /// Returns the keys of a connection that is quiet.
    pub(super) fn from_records(records: &Records) -> ParkedKeys {
        let (suite, tx, rx) = records.directions();
        let ((tx, tx_number), (rx, rx_number)) = (tx.state(), rx.state());
        let secrets = Zeroizing::new([**tx, **rx]);
        let must_change = records.must_change();
        let counts = records.counts();
        ParkedKeys { suite, counts, tx_number, rx_number, must_change, secrets, unsent: None }
    }

    /// Returns the keys for a successor; `None` if some of a record is not written.
    pub(crate) fn record(&self) -> Option<KeysRecord> {
        if self.unsent.is_some() {
            return None;
        }
        let ParkedKeys { suite, counts, must_change, .. } = *self;
        let numbers = [self.tx_number, self.rx_number];
        let secrets = self.secrets.clone();
        Some(KeysRecord::from_parts(&Parts { suite, counts, must_change, numbers, secrets }))
    }

    /// Continues with the keys of another server, which has written so many records with them
    /// since, and some of another one. If that server did not come to rest, the next record is
    /// written with a new key, after the rest of the one that was cut off. `None` if the keys do
    /// not fit that.
    pub fn adopt(
        record: &KeysRecord,
        written: u64,
        cut: Option<Cut<'_>>,
        is_orderly: bool,
    ) -> Option<ParkedKeys> {
        let Parts { suite, counts, must_change, numbers, secrets } = record.parts()?;
        let [tx_number, rx_number] = numbers;
        let most = suite.most_records();
        let tx_number = tx_number.checked_add(written).filter(|number| *number < most)?;
        let mut keys =
            ParkedKeys { suite, counts, tx_number, rx_number, must_change, secrets, unsent: None };
        if must_change && (written > 0 || cut.is_some()) {
            // Nothing is written with such keys.
            return None;
        }
        if let Some(Cut { message, sent }) = cut {
            // The same text with the same number makes the same bytes.
            let sealed = keys.seal(&[message])?;
            keys.owes(sealed.get(sent..)?);
        }
        keys.must_change = suite.is_tls13 && (must_change || !is_orderly);
        Some(keys)
    }

    /// Changes the key of writing, if that has to come first, and returns the bytes that say so,
    /// after the rest of a record that was cut off. They must be written before anything else.
    pub(crate) fn change_key(&mut self) -> Option<Vec<u8>> {
        if !self.must_change {
            return None;
        }
        let mut bytes = self.unsent.take().unwrap_or_default().into_vec();
        let mut sealer =
            Sealer::new(self.suite, Direction::new(self.suite, self.secret(0), self.tx_number));
        // A key that can seal no more ends the connection with the next message.
        sealer.update(&mut bytes).ok()?;
        let (secret, number) = sealer.direction().state();
        self.secrets[0] = **secret;
        (self.tx_number, self.must_change) = (number, false);
        Some(bytes)
    }

    /// Whether some of a record is not written.
    pub(crate) fn has_unsent(&self) -> bool {
        self.unsent.is_some()
    }

    fn secret(&self, index: usize) -> Secret {
        secret(&[&self.secrets[index][..]])
    }

    /// Seals messages, each in a record of its own, and returns the records, which must be written
    /// in this order and before anything else. `None`, and nothing is sealed, if the key has to be
    /// changed first, or if a message is too long for a record.
    pub fn seal(&mut self, messages: &[&[u8]]) -> Option<Vec<u8>> {
        if self.must_change || messages.iter().any(|message| message.len() > MOST_TEXT) {
            return None;
        }
        // The direction of reading is neither needed nor made.
        let tx = Direction::new(self.suite, self.secret(0), self.tx_number);
        // Nothing is no record.
        let count = messages.iter().filter(|message| !message.is_empty()).count() as u64;
        if tx.left().checked_sub(count).is_none_or(|left| left < KEPT) {
            return None;
        }
        let mut sealer = Sealer::new(self.suite, tx);
        let mut sealed = Vec::new();
        self.tx_number += count;
        for message in messages {
            sealer.seal(message, &mut sealed).ok()?;
        }
        Some(sealed)
    }

    /// Returns the record that says that no more bytes follow. Nothing is sealed after it.
    pub(crate) fn close(mut self) -> Vec<u8> {
        let tx = Direction::new(self.suite, self.secret(0), self.tx_number);
        let mut record = Vec::new();
        // Without it the client sees an end that nobody has announced.
        let mut sealer = Sealer::new(self.suite, tx).changing(self.must_change);
        let _ = sealer.alert(Alert::CloseNotify, &mut record);
        self.tx_number = u64::MAX;
        record
    }

    /// Moves the keys out of a place, which overwrites its copy when it is dropped.
    pub(super) fn moved(&mut self) -> ParkedKeys {
        let ParkedKeys { suite, counts, tx_number, rx_number, must_change, .. } = *self;
        let (secrets, unsent) = (self.secrets.clone(), self.unsent.take());
        ParkedKeys { suite, counts, tx_number, rx_number, must_change, secrets, unsent }
    }

    /// Notes the bytes that were sealed and not written.
    pub(crate) fn owes(&mut self, rest: &[u8]) {
        self.unsent = (!rest.is_empty()).then(|| rest.into());
    }

    /// Continues with the connection.
    pub fn resume(self, plain: Plain) -> TlsStream {
        let (records, unsent) = self.into_records();
        TlsStream::new(plain, records, Vec::new(), unsent)
    }

    /// Returns the records of the connection, and the bytes that were sealed and not written.
    pub(super) fn into_records(mut self) -> (Records, Vec<u8>) {
        let unsent = self.unsent.take().unwrap_or_default();
        let tx = Direction::new(self.suite, self.secret(0), self.tx_number);
        let sealer = Sealer::new(self.suite, tx).changing(self.must_change);
        let rx = Direction::new(self.suite, self.secret(1), self.rx_number);
        (Records::new(sealer, rx).counting(self.counts), unsent.into_vec())
    }
}

// Shows no secret.
superpoll::debug_fields!(ParkedKeys, it =>
    suite: it.suite, tx_number: it.tx_number, rx_number: it.rx_number);

#[cfg(test)]
impl ParkedKeys {
    /// Returns the keys of the other side.
    pub(super) fn mirrored(mut self: Box<Self>) -> Box<ParkedKeys> {
        self.secrets.reverse();
        std::mem::swap(&mut self.tx_number, &mut self.rx_number);
        self
    }

    /// Returns the keys as they are when they have sealed so many records.
    pub(super) fn at(mut self: Box<Self>, tx_number: u64) -> Box<ParkedKeys> {
        self.tx_number = tx_number;
        self
    }
}

// The keys of a connection as the keeper keeps them for a successor.

/// The bytes before the secrets: the suite, whether the key of writing must be changed and whether
/// a renegotiation was refused, three counts, and the numbers of the next records.
const HEAD: usize = 5 + 2 * 8;

/// The keys of a connection, between two records.
#[derive(Clone, PartialEq, Eq)]
pub struct KeysRecord(Zeroizing<Vec<u8>>);

/// The parts of a record.
pub(super) struct Parts {
    pub suite: Suite,
    pub counts: Counts,
    pub must_change: bool,
    pub numbers: [u64; 2],
    pub secrets: Zeroizing<[[u8; LONGEST_SECRET]; 2]>,
}

impl KeysRecord {
    pub(super) fn from_parts(parts: &Parts) -> KeysRecord {
        let Parts { suite, counts, must_change, numbers, secrets } = parts;
        let length = suite.secret_len();
        // It does not grow, which would leave a copy of the secrets behind.
        let mut bytes = Zeroizing::new(Vec::with_capacity(HEAD + 2 * length));
        bytes.push(suite.number());
        bytes.push(u8::from(*must_change) | u8::from(counts.has_refused) << 1);
        bytes.extend_from_slice(&[counts.empty, counts.updates, counts.warnings]);
        numbers.iter().for_each(|number| bytes.extend_from_slice(&number.to_le_bytes()));
        secrets.iter().for_each(|secret| bytes.extend_from_slice(&secret[..length]));
        KeysRecord(bytes)
    }

    pub(super) fn parts(&self) -> Option<Parts> {
        let (head, secret_bytes) = self.0.split_at_checked(HEAD)?;
        let suite = Suite::numbered(head[0])?;
        let flags = head[1];
        let (length, has_refused) = (suite.secret_len(), flags & 2 != 0);
        if flags > 3 || secret_bytes.len() != 2 * length {
            return None;
        }
        let counts = Counts { empty: head[2], updates: head[3], warnings: head[4], has_refused };
        let number = |at: usize| Some(u64::from_le_bytes(head[at..at + 8].try_into().ok()?));
        let numbers = [number(5)?, number(13)?];
        let mut secrets = Zeroizing::new([[0; LONGEST_SECRET]; 2]);
        for (secret, bytes) in secrets.iter_mut().zip(secret_bytes.chunks_exact(length)) {
            secret[..length].copy_from_slice(bytes);
        }
        Some(Parts { suite, counts, must_change: flags & 1 != 0, numbers, secrets })
    }

    /// Reads the output of `bytes`; `None` if it is no such output.
    pub fn read(bytes: &[u8]) -> Option<KeysRecord> {
        let record = KeysRecord(Zeroizing::new(bytes.to_vec()));
        record.parts().is_some().then_some(record)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns by how many bytes a record is longer than the message in it.
    pub(crate) fn overhead(&self) -> u64 {
        self.parts().map_or(0, |parts| (HEADER + parts.suite.overhead()) as u64)
    }

    /// Whether a server that did not come to rest may leave these keys to another one: TLS 1.3 can
    /// change the key of writing before anything is written with it.
    pub fn outlives_crashes(&self) -> bool {
        self.parts().is_some_and(|parts| parts.suite.is_tls13)
    }
}

impl fmt::Debug for KeysRecord {
    /// Shows no secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("KeysRecord").field(&self.0.len()).finish()
    }
}
