//! The name of a registration: an index with a generation.
//!
//! The kernel names descriptors by small numbers that it reuses at once. A poller that names its
//! registrations the same way hands the event of a closed connection to its successor. A [`Key`] is
//! never reused: a slot that has had 2^32 registrations is given up. So an event, a change or a
//! removal that arrives late is recognised as late.

use std::fmt;

/// Names one registration of one [`Poller`](crate::Poller).
///
/// The poller chooses keys, so two registrations never share one. The [`index`](Key::index) is
/// small and dense: it can address a slab of the caller's own, and is reused after the
/// registration ends; the whole key is not.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    index: u32,
    generation: u32,
}

impl Key {
    /// Index that no registration has; back-ends use it for descriptors of their own.
    pub(crate) const RESERVED: u32 = u32::MAX;

    /// Puts a key together; for back-ends that store the halves apart.
    pub const fn new(index: u32, generation: u32) -> Key {
        Key { index, generation }
    }

    /// The slot: below the highest number of descriptors ever registered at the same time.
    pub const fn index(self) -> u32 {
        self.index
    }

    /// How often the slot had been used before.
    pub const fn generation(self) -> u32 {
        self.generation
    }

    /// Both halves in one word, as it travels through `epoll_event.u64`.
    pub const fn to_bits(self) -> u64 {
        (self.generation as u64) << 32 | self.index as u64
    }

    /// The inverse of [`to_bits`](Key::to_bits).
    pub const fn from_bits(bits: u64) -> Key {
        Key { index: bits as u32, generation: (bits >> 32) as u32 }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({}#{})", self.index, self.generation)
    }
}

#[cfg(test)]
mod tests {
    use super::Key;

    #[test]
    fn bits_keep_both_halves() {
        let key = Key::new(7, 0xdead_beef);
        assert_eq!((key.index(), key.generation()), (7, 0xdead_beef));
        assert_eq!(key.to_bits(), 0xdead_beef_0000_0007);
        assert_eq!(Key::from_bits(key.to_bits()), key);
        assert_eq!(format!("{key:?}"), "Key(7#3735928559)");
    }
}
