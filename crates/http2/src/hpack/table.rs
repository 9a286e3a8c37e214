//! The dynamic table of the decoder (RFC 7541, section 2.3.2).

use std::ops::Range;

use superpoll_http1::FieldList;

use super::fixed::Name;
use crate::error::ConnectionError;

/// The size that each entry has beyond its bytes (RFC 7541, section 4.1).
pub(crate) const OVERHEAD: usize = 32;

/// The first octet that refers to an entry of this table.
const FIRST: u8 = 0x80 | (super::fixed::ENTRIES as u8 + 1);

/// Evicted entries are removed in groups of so many, or when they have so many bytes.
const GROUP: (usize, usize) = (16, 1 << 10);

/// The dynamic table: a list whose first pairs may have been evicted already.
#[derive(Clone, Default, Debug)]
pub(crate) struct Table {
    list: FieldList,
    /// The kinds of the names in the list.
    kinds: Vec<Name>,
    /// The number of evicted entries in the list, and their bytes.
    evicted: usize,
    evicted_bytes: usize,
    size: usize,
    limit: usize,
}

impl Table {
    pub(crate) fn new(limit: usize) -> Table {
        Table { limit, ..Table::default() }
    }

    /// Returns the number of entries.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.list.len() - self.evicted
    }

    /// Returns the size that the client has chosen.
    pub(crate) const fn limit(&self) -> usize {
        self.limit
    }

    /// Returns the size of all entries.
    pub(crate) const fn size(&self) -> usize {
        self.size
    }

    /// Returns the list and the place of an entry in it, with the kind of its name. The newest
    /// entry has index 0.
    #[inline]
    pub(crate) fn find(&self, index: usize) -> Option<(Name, &FieldList, usize)> {
        let place = self.list.len().checked_sub(index + 1).filter(|at| *at >= self.evicted)?;
        Some((*self.kinds.get(place)?, &self.list, place))
    }

    /// Returns the list and the places of entries that decide nothing and that a block refers to
    /// one after another, each with an octet: as many as there are at its beginning.
    #[inline]
    pub(crate) fn find_run(&self, block: &[u8]) -> Option<(&FieldList, Range<usize>)> {
        // An index of 62 is that of the newest entry; one with more octets is not looked at.
        let first = block.first().copied().filter(|first| (FIRST..0xff).contains(first))?;
        let start = self.list.len().checked_sub(usize::from(first - FIRST) + 1)?;
        if start < self.evicted {
            return None;
        }
        // Clients refer to entries in the order in which they were inserted, so indexes fall.
        let kinds = self.kinds.get(start..)?.iter().zip(block);
        let is_next = |(at, (kind, octet)): &(usize, (&Name, &u8))| {
            **kind == Name::Other && usize::from(**octet) + at == usize::from(first)
        };
        let count = kinds.enumerate().take_while(is_next).count();
        (count > 0).then(|| (&self.list, start..start + count))
    }

    /// Returns the name and the value of an entry.
    pub(crate) fn pair(&self, index: usize) -> Option<(&[u8], &[u8])> {
        let (_, list, place) = self.find(index)?;
        list.pair(place)
    }

    /// Changes the size.
    pub(crate) fn resize(&mut self, limit: usize) {
        self.limit = limit;
        self.shrink(limit);
    }

    /// Evicts the oldest entries until the others have a size.
    pub(crate) fn shrink(&mut self, size: usize) {
        self.evict(size);
        if size == 0 {
            *self = Table::new(self.limit);
        }
    }

    /// Inserts an entry. One that is larger than the table empties it, and is not inserted; returns
    /// false then.
    pub(crate) fn insert(&mut self, kind: Name, name: &[u8], value: &[u8]) -> bool {
        let size = name.len() + value.len() + OVERHEAD;
        if size > self.limit {
            *self = Table::new(self.limit);
            return false;
        }
        self.list.push(name, value);
        self.kinds.push(kind);
        self.size += size;
        self.evict(self.limit);
        true
    }

    fn evict(&mut self, most: usize) {
        while self.size > most {
            let Some((name, value)) = self.list.pair(self.evicted) else { break };
            let bytes = name.len() + value.len();
            self.size -= bytes + OVERHEAD;
            self.evicted += 1;
            self.evicted_bytes += bytes;
        }
        if self.evicted >= GROUP.0 || self.evicted_bytes >= GROUP.1 {
            self.list.remove(0..self.evicted);
            self.kinds.drain(..self.evicted);
            (self.evicted, self.evicted_bytes) = (0, 0);
        }
    }

    /// Appends all entries to a record, the oldest first.
    pub(crate) fn to_record(&self, to: &mut Vec<u8>) {
        for index in (0..self.len()).rev() {
            let (name, value) = self.pair(index).unwrap_or_default();
            for text in [name, value] {
                to.extend_from_slice(&(text.len() as u16).to_be_bytes());
            }
            to.extend_from_slice(name);
            to.extend_from_slice(value);
        }
    }

    /// Inserts the entries of a record, which is the whole rest.
    pub(crate) fn extend_from_record(&mut self, mut rest: &[u8]) -> Result<(), ConnectionError> {
        let error = ConnectionError::Compression;
        while let Some((head, after)) = rest.split_first_chunk::<4>() {
            let [a, b, c, d] = head.map(usize::from);
            let (name, after) = after.split_at_checked(a << 8 | b).ok_or(error)?;
            let (value, after) = after.split_at_checked(c << 8 | d).ok_or(error)?;
            let count = self.len();
            if !self.insert(Name::new(name), name, value) || self.len() != count + 1 {
                return Err(error);
            }
            rest = after;
        }
        if rest.is_empty() { Ok(()) } else { Err(error) }
    }
}
