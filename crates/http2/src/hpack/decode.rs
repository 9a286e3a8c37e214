//! The decoder of blocks of fields (RFC 7541, section 6).

use super::fixed::{self, Name};
use super::huffman;
use super::table::Table;
use crate::error::ConnectionError;
use crate::section::{Pair, Section};

/// The most octets of a number after its first. No number of use has more.
const MOST_OCTETS: usize = 4;

/// The decoder of a connection.
#[derive(Debug)]
pub(crate) struct Decoder {
    pub(crate) table: Table,
    /// The largest size that the client may choose for its table.
    limit: usize,
}

/// Room for texts that are decoded. One serves all connections of a thread.
#[derive(Default, Debug)]
pub(crate) struct Texts {
    name: Vec<u8>,
    value: Vec<u8>,
}

impl Decoder {
    /// Returns a decoder whose table has a size, and may be given up to another size.
    pub(crate) fn new(size: usize, limit: usize) -> Decoder {
        Decoder { table: Table::new(size), limit }
    }

    /// Sets the largest size of the table, when the client has accepted it. A client with a larger
    /// table has to shrink it at the beginning of the next block (RFC 7541, section 4.2).
    pub(crate) fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
        // What is evicted by that can be dropped already.
        self.table.shrink(limit);
    }

    /// Returns the largest size that the client may choose.
    pub(crate) const fn limit(&self) -> usize {
        self.limit
    }

    /// Decodes a whole block. Fields that are too large for the section still change the table.
    ///
    /// # Errors
    ///
    /// The connection ends, as both sides do not have the same table any more.
    pub(crate) fn decode(
        &mut self,
        mut block: &[u8],
        texts: &mut Texts,
        section: &mut Section,
    ) -> Result<(), ConnectionError> {
        while let [first @ 0x20..=0x3f, ..] = *block {
            let size = integer(first, 5, &mut block)?;
            if size > self.limit {
                return Err(ConnectionError::TableSize);
            }
            self.table.resize(size);
        }
        if self.table.limit() > self.limit {
            return Err(ConnectionError::TableSize);
        }
        while let [first, ..] = *block {
            if let Some((list, places)) = self.table.find_run(block) {
                let count = places.len();
                if section.add_all(list, places) {
                    block = &block[count..];
                    continue;
                }
            }
            if first & 0x80 > 0 {
                let index = integer(first, 7, &mut block)?;
                self.add_indexed(index, section)?;
                continue;
            }
            let (is_inserted, prefix) = match first {
                0x40.. => (true, 6),
                // A size after a field.
                0x20..=0x3f => return Err(ConnectionError::Compression),
                _ => (false, 4),
            };
            let index = integer(first, prefix, &mut block)?;
            let (kind, name) = match index {
                0 => {
                    let name = text(&mut block, &mut texts.name)?;
                    (Name::new(name), name)
                }
                1..=fixed::ENTRIES => {
                    let (kind, name, _) =
                        fixed::entry(index).ok_or(ConnectionError::Compression)?;
                    (kind, name.as_bytes())
                }
                _ => {
                    let entry = self.table.find(index - fixed::ENTRIES - 1);
                    let (kind, list, place) = entry.ok_or(ConnectionError::Compression)?;
                    let (name, _) = list.pair(place).ok_or(ConnectionError::Compression)?;
                    // The entry may be evicted by the one that is named after it.
                    texts.name.clear();
                    texts.name.extend_from_slice(name);
                    (kind, &texts.name[..])
                }
            };
            let value = text(&mut block, &mut texts.value)?;
            if is_inserted
                && self.table.insert(kind, name, value)
                && let Some((kind, list, place)) = self.table.find(0)
            {
                section.add(kind, Pair::Listed(list, place))?;
            } else {
                section.add(kind, Pair::Bytes(name, value))?;
            }
        }
        Ok(())
    }

    #[inline]
    fn add_indexed(&self, index: usize, section: &mut Section) -> Result<(), ConnectionError> {
        if let Some(dynamic) = index.checked_sub(fixed::ENTRIES + 1) {
            let entry = self.table.find(dynamic).ok_or(ConnectionError::Compression)?;
            let (kind, list, place) = entry;
            return section.add(kind, Pair::Listed(list, place));
        }
        let (kind, name, value) = fixed::entry(index).ok_or(ConnectionError::Compression)?;
        section.add_static(kind, name, value)
    }
}

/// Reads a number (RFC 7541, section 5.1) whose first octet is there.
#[inline]
fn integer(first: u8, prefix: u32, block: &mut &[u8]) -> Result<usize, ConnectionError> {
    let most = (1_usize << prefix) - 1;
    let mut value = usize::from(first) & most;
    *block = &block[1..];
    if value < most {
        return Ok(value);
    }
    for place in 0..MOST_OCTETS {
        let Some((octet, rest)) = block.split_first() else { break };
        *block = rest;
        value += usize::from(octet & 0x7f) << (7 * place);
        if octet & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(ConnectionError::Compression)
}

/// Reads a text (RFC 7541, section 5.2).
fn text<'b: 't, 't>(
    block: &mut &'b [u8],
    room: &'t mut Vec<u8>,
) -> Result<&'t [u8], ConnectionError> {
    let first = *block.first().ok_or(ConnectionError::Compression)?;
    let length = integer(first, 7, block)?;
    let (text, rest) = block.split_at_checked(length).ok_or(ConnectionError::Compression)?;
    *block = rest;
    if first & 0x80 == 0 {
        return Ok(text);
    }
    room.clear();
    huffman::decode(text, room)?;
    Ok(room)
}
