//! The keys of a connection as the keeper keeps them for a successor.

use std::fmt;

use zeroize::Zeroizing;

use super::records::{Counts, HEADER};
use super::suite::{LONGEST_SECRET, Suite};

/// The bytes before the secrets: the suite, whether the key of writing must be changed and whether
/// a renegotiation was refused, three counts, and the numbers of the next records.
const HEAD: usize = 5 + 2 * 8;

/// The keys of a connection, between two records.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct KeysRecord(Zeroizing<Vec<u8>>);

/// The parts of a record.
pub(super) struct Parts {
    pub suite: Suite,
    pub counts: Counts,
    pub must_change: bool,
    pub numbers: [u64; 2],
    pub secrets: Zeroizing<[[u8; LONGEST_SECRET]; 2]>,
}

impl KeysRecord {
    pub(super) fn of(parts: &Parts) -> KeysRecord {
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

    /// Reads the output of [`bytes`](KeysRecord::bytes); `None` if it is no such output.
    pub(crate) fn read(bytes: &[u8]) -> Option<KeysRecord> {
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
    pub(crate) fn outlives_crashes(&self) -> bool {
        self.parts().is_some_and(|parts| parts.suite.is_tls13)
    }
}

impl fmt::Debug for KeysRecord {
    /// Shows no secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("KeysRecord").field(&self.0.len()).finish()
    }
}
