//! The names under which the kernel knows the polls and operations of a ring, and the tickets by
//! which callers know operations.
//!
//! A name has a low half that says what it belongs to. Polls are armed under numbers below
//! [`MARK`]. Nonblocking operations all have [`BATCH`], with their place in the batch in the high
//! half. The name of an operation that may block is its place in the high half, and in the low half
//! the mark, whether it is the second part of a linked pair, and how often the place was used
//! before, as far as there are bits. A completion is never that of another use, since a place is
//! used again only when all completions were fetched. A ticket, which a caller may keep, has 32
//! bits of that number. So a late ticket means another use after exactly 2^32 uses at the earliest,
//! and not after 2^27.

use crate::operation::Ticket;

/// The low half of the name of an operation begins with this, and polls are armed below it.
pub(super) const MARK: u32 = 0x7000_0000;

/// The low half is below this.
const END: u32 = 0x8000_0000;

/// In the low half: the second part of a linked pair.
pub(super) const SECOND: u32 = 1 << 27;

/// In the low half: how often the place was used before.
pub(super) const GENERATION: u32 = SECOND - 1;

/// The low half of the names of nonblocking operations.
pub(super) const BATCH: u32 = u32::MAX;

/// No place.
pub(super) const NOWHERE: u32 = u32::MAX;

/// Whether the low half of a name is that of an operation that may block.
#[inline]
pub(super) fn is_operation(low: u32) -> bool {
    (MARK..END).contains(&low)
}

impl Ticket {
    pub(super) fn new(place: u32, generation: u32) -> Ticket {
        Ticket(u64::from(place) << 32 | u64::from(generation))
    }

    /// The ticket of the nonblocking operation with this number.
    pub(super) fn nonblocking(number: u32) -> Ticket {
        Ticket::new(NOWHERE, number)
    }

    pub(super) fn place(self) -> u32 {
        (self.0 >> 32) as u32
    }

    pub(super) fn generation(self) -> u32 {
        self.0 as u32
    }

    /// The number of a nonblocking operation.
    pub(super) fn number(self) -> Option<u32> {
        (self.place() == NOWHERE).then_some(self.generation())
    }

    /// The operation's name in the ring.
    pub(super) fn name(self) -> u64 {
        let low = MARK | self.generation() & GENERATION;
        u64::from(self.place()) << 32 | u64::from(low)
    }

    /// The name of the second part of a linked pair.
    pub(super) fn second(self) -> u64 {
        self.name() | u64::from(SECOND)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_no_polls_and_in_no_batch() {
        for (place, generation) in [(0, 0), (NOWHERE - 1, GENERATION), (7, 1), (7, u32::MAX)] {
            let ticket = Ticket::new(place, generation);
            for name in [ticket.name(), ticket.second()] {
                let low = name as u32;
                assert!(is_operation(low) && low != BATCH);
                let expected = (generation & GENERATION, place);
                assert_eq!((low & GENERATION, (name >> 32) as u32), expected);
            }
            assert_eq!(ticket.number(), None);
        }
        assert_eq!(Ticket::nonblocking(7).number(), Some(7));
        assert!(!is_operation(MARK - 1) && !is_operation(u32::MAX) && !is_operation(0x8000_0000));
    }
}
