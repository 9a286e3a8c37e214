//! The records that servers have left, which belong to no descriptor.

use std::collections::BTreeMap;
use std::sync::Arc;

use zeroize::Zeroizing;

use crate::protocol::{PACKET, Record};

/// The most bytes that a record's packet needs in addition to the bytes of the record.
const HEAD: usize = 64;

/// The bytes of a record. There may be keys in them, and they are overwritten when they are
/// dropped.
type Bytes = Arc<Zeroizing<Vec<u8>>>;

/// A record's space and id.
type Name = (u64, u64);

/// A record's space and id, and its bytes.
pub(crate) type Named = (Name, Bytes);

/// Records by space and id.
#[derive(Debug, Default)]
pub(crate) struct Records {
    all: BTreeMap<Name, Bytes>,
    /// A record that has not arrived in full yet.
    partial: Option<(Name, Zeroizing<Vec<u8>>)>,
}

impl Records {
    pub(crate) fn keep(&mut self, record: &Record<'_>) {
        let name = (record.space, record.id);
        let mut bytes = match self.partial.take() {
            Some((known, bytes)) if known == name => bytes,
            // The server that sent the first part has gone before it sent the rest.
            _ => Zeroizing::default(),
        };
        bytes.extend_from_slice(record.bytes);
        if record.more {
            self.partial = Some((name, bytes));
        } else if bytes.is_empty() {
            self.all.remove(&name);
        } else {
            bytes.shrink_to_fit();
            self.all.insert(name, Arc::new(bytes));
        }
    }

    /// Drops the beginning of a record that has not arrived in full: its server has ended.
    pub(crate) fn drop_partial(&mut self) {
        self.partial = None;
    }

    pub(crate) fn trim(&mut self, space: u64, below: u64) {
        if below == u64::MAX {
            self.all.retain(|&(known, _), _| known != space);
            return;
        }
        let mut from = self.all.split_off(&(space, 0));
        let mut kept = from.split_off(&(space, below));
        self.all.append(&mut kept);
    }

    pub(crate) fn clear(&mut self) {
        *self = Records::default();
    }

    /// Returns all records as they are now; the bytes are shared.
    pub(crate) fn all(&self) -> Vec<Named> {
        self.all.iter().map(|(&name, bytes)| (name, bytes.clone())).collect()
    }

    #[cfg(test)]
    fn iter(&self) -> impl Iterator<Item = (u64, u64, &[u8])> {
        self.all.iter().map(|(&(space, id), bytes)| (space, id, &bytes[..]))
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }
}

/// Splits a record into packets.
pub(crate) fn parts(space: u64, id: u64, bytes: &[u8]) -> impl Iterator<Item = Record<'_>> {
    (0..).map_while(move |number| part(space, id, bytes, number))
}

/// Returns one of the packets of a record, or `None` after the last.
pub(crate) fn part(space: u64, id: u64, bytes: &[u8], number: usize) -> Option<Record<'_>> {
    let most = PACKET - HEAD;
    let count = bytes.len().div_ceil(most).max(1);
    (number < count).then(|| {
        let bytes = &bytes[number * most..((number + 1) * most).min(bytes.len())];
        Record { space, id, more: number + 1 < count, bytes }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(space: u64, id: u64, more: bool, bytes: &[u8]) -> Record<'_> {
        Record { space, id, more, bytes }
    }

    fn names(records: &Records) -> Vec<(u64, u64)> {
        records.iter().map(|(space, id, _)| (space, id)).collect()
    }

    #[test]
    fn records_come_in_parts_are_replaced_and_trimmed() {
        let mut records = Records::default();
        records.keep(&record(1, 1, true, b"one "));
        assert_eq!(records.len(), 0);
        records.keep(&record(1, 1, false, b"two"));
        for (space, id) in [(1, 2), (1, 3), (0, 9), (2, 1), (u64::MAX, u64::MAX)] {
            records.keep(&record(space, id, false, b"x"));
        }
        assert_eq!(records.iter().nth(1), Some((1, 1, &b"one two"[..])));
        records.keep(&record(1, 2, false, b"other"));
        records.trim(1, 2);
        assert_eq!(names(&records), [(0, 9), (1, 2), (1, 3), (2, 1), (u64::MAX, u64::MAX)]);
        assert_eq!(records.iter().nth(1), Some((1, 2, &b"other"[..])));
        records.trim(1, u64::MAX);
        records.trim(u64::MAX, u64::MAX);
        assert_eq!(names(&records), [(0, 9), (2, 1)]);
        // The beginning of a record of a server that has ended, and one of the next server.
        records.keep(&record(0, 9, true, b"half of one"));
        records.drop_partial();
        records.keep(&record(0, 9, false, b"another"));
        assert_eq!(records.iter().next(), Some((0, 9, &b"another"[..])));
        // The end of a record never comes if its server has gone.
        records.keep(&record(7, 7, true, b"half"));
        records.keep(&record(7, 8, false, b"whole"));
        assert_eq!(names(&records), [(0, 9), (2, 1), (7, 8)]);
        records.keep(&record(7, 8, false, b""));
        assert_eq!(names(&records), [(0, 9), (2, 1)]);
        records.clear();
        assert_eq!(records.len(), 0);
    }
}
