//! Fields in a buffer of their own, for heads that were not read as lines.

use std::ops::Range;

use crate::field::{Fields, OF_TOKEN, Place, is_visible};

/// The name and the value may be those of a [`Field`].
const IS_FIELD: u8 = 1;

/// The name has an underscore.
const HAS_UNDERSCORE: u8 = 2;

/// Names and values in one buffer, each checked once, when it is put in.
///
/// A pair that is not a field is kept as well, but only as bytes. A pair that is copied to another
/// list needs no second check. That makes the list a table for header compression, too.
#[derive(Clone, Default, Debug)]
pub struct FieldList {
    bytes: Vec<u8>,
    places: Vec<Place>,
}

impl FieldList {
    /// Returns an empty list.
    #[must_use]
    pub const fn new() -> FieldList {
        FieldList { bytes: Vec::new(), places: Vec::new() }
    }

    /// Returns the number of pairs.
    #[must_use]
    #[inline]
    pub const fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there are no pairs.
    #[must_use]
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Removes all pairs, and keeps the memory.
    #[inline]
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.places.clear();
    }

    /// Appends a pair. Returns whether it is a field: the name is a token in lower case, and the
    /// value has no control characters but tabs, and no blanks at its ends.
    ///
    /// # Panics
    ///
    /// If the list has 4 GiB.
    pub fn push(&mut self, name: &[u8], value: &[u8]) -> bool {
        let start = place(self.bytes.len());
        self.bytes.extend_from_slice(name);
        self.bytes.extend_from_slice(value);
        let flags = flags(name, value);
        let end = place(self.bytes.len());
        self.places.push(Place { name: start, value: start + place(name.len()), end, flags });
        flags & IS_FIELD > 0
    }

    /// Appends pairs of another list that follow each other. Returns whether all are fields.
    ///
    /// # Panics
    ///
    /// If there are no such pairs, or the list has 4 GiB.
    #[inline]
    pub fn push_from(&mut self, other: &FieldList, range: Range<usize>) -> bool {
        let from = &other.places[range];
        let (Some(first), Some(last)) = (from.first(), from.last()) else { return true };
        let bytes = &other.bytes[first.name as usize..last.end as usize];
        // The compiler cannot tell that a place in the other list is before its end.
        let by = place(self.bytes.len()).wrapping_sub(first.name);
        self.bytes.extend_from_slice(bytes);
        let mut all = IS_FIELD;
        self.places.extend(from.iter().map(|place| {
            all &= place.flags;
            Place {
                name: place.name.wrapping_add(by),
                value: place.value.wrapping_add(by),
                end: place.end.wrapping_add(by),
                flags: place.flags,
            }
        }));
        all > 0
    }

    /// Returns the name and the value of a pair, whether it is a field or not; `None` if there is
    /// no such pair.
    #[must_use]
    #[inline]
    pub fn pair(&self, index: usize) -> Option<(&[u8], &[u8])> {
        self.places.get(index).map(|place| place.pair(&self.bytes))
    }

    /// Returns the bytes of pairs that follow each other, names and values together; 0 if there are
    /// no such pairs.
    #[must_use]
    #[inline]
    pub fn byte_len(&self, range: Range<usize>) -> usize {
        match self.places.get(range) {
            Some([only]) => (only.end - only.name) as usize,
            Some([first, .., last]) => (last.end - first.name) as usize,
            _ => 0,
        }
    }

    /// Removes pairs that follow each other.
    ///
    /// # Panics
    ///
    /// If there are no such pairs.
    pub fn remove(&mut self, range: Range<usize>) {
        let start = |at: usize| match self.places.get(at) {
            Some(place) => place.name as usize,
            None => self.bytes.len(),
        };
        let bytes = start(range.start)..start(range.end);
        let gone = place(bytes.len());
        self.bytes.drain(bytes);
        self.places.drain(range.clone());
        for place in &mut self.places[range.start..] {
            (place.name, place.value, place.end) =
                (place.name - gone, place.value - gone, place.end - gone);
        }
    }

    /// Returns pairs that follow each other as fields; `None` if some pair among them is not a
    /// field, or is not there.
    #[must_use]
    #[inline]
    pub fn fields(&self, range: Range<usize>) -> Option<Fields<'_>> {
        let places = self.places.get(range)?;
        let both = |(all, any), place: &Place| (all & place.flags, any | place.flags);
        let (all, any) = places.iter().fold((IS_FIELD, 0), both);
        (all & IS_FIELD > 0)
            .then(|| Fields::from_places(places, &self.bytes, any & HAS_UNDERSCORE > 0))
    }
}

fn place(at: usize) -> u32 {
    u32::try_from(at).expect("less than 4 GiB of fields")
}

fn flags(name: &[u8], value: &[u8]) -> u8 {
    let (mut is_name, mut has_underscore) = (!name.is_empty(), false);
    for byte in name {
        is_name &= OF_TOKEN[usize::from(*byte)] && !byte.is_ascii_uppercase();
        has_underscore |= *byte == b'_';
    }
    // There is no branch for each byte, so that the compiler handles many at once.
    let is_value = value.iter().fold(true, |all, byte| all & is_visible(*byte))
        && !matches!(value, [b' ' | b'\t', ..] | [.., b' ' | b'\t']);
    (u8::from(is_name && is_value) * IS_FIELD) | (u8::from(has_underscore) * HAS_UNDERSCORE)
}
