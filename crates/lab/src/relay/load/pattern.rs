//! The bytes that belong to a number.

/// The length of the pattern. No part of it repeats at the distance of a power of two.
const PATTERN: usize = 1_000_003;

/// The pattern, and the part of it that belongs to a number.
pub(super) struct Pattern(Vec<u8>);

impl Pattern {
    pub(super) fn new() -> Pattern {
        let mix = |place: u32| (place.wrapping_mul(0x9e37_79b1) ^ (place >> 7)) >> 13;
        Pattern((0..PATTERN as u32).map(|place| mix(place) as u8).collect())
    }

    pub(super) fn start(number: u64) -> usize {
        (number.wrapping_mul(7919) % PATTERN as u64) as usize
    }

    /// Returns the longest contiguous piece from a place on, up to `most` bytes.
    pub(super) fn piece(&self, at: usize, most: usize) -> &[u8] {
        let at = at % PATTERN;
        &self.0[at..(at + most).min(PATTERN)]
    }

    /// Returns `length` contiguous bytes of a number; they lie elsewhere than the answer's if the
    /// answer's would wrap round the pattern's end.
    pub(super) fn whole(&self, number: u64, length: usize) -> &[u8] {
        let at = Pattern::start(number) % (PATTERN - length);
        &self.0[at..at + length]
    }

    /// Whether bytes equal those from a place on.
    pub(super) fn is_at(&self, mut at: usize, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            let piece = self.piece(at, bytes.len());
            let (here, rest) = bytes.split_at(piece.len());
            if here != piece {
                return false;
            }
            at += piece.len();
            bytes = rest;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_on_after_its_end() {
        let pattern = Pattern::new();
        let wrapped = [&pattern.0[PATTERN - 3..], &pattern.0[..5]].concat();
        assert!(pattern.is_at(PATTERN - 3, &wrapped) && !pattern.is_at(PATTERN - 4, &wrapped));
        assert!(pattern.whole(7, 100) != pattern.whole(8, 100));
    }
}
