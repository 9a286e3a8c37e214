//! Events: the results of a wait.

use std::fmt;
use std::ops::{BitOr, BitOrAssign};

use crate::backend::BatchedRead;
use crate::error::Error;
use crate::interest::Interest;
use crate::key::Key;

/// The conditions a descriptor was found in; a set of bits.
///
/// The first four mirror [`Interest`] and are delivered only if asked for; hang-up and error are
/// delivered to every armed descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Readiness(u8);

impl Readiness {
    /// No condition.
    pub const NONE: Readiness = Readiness(0);
    /// See [`Interest::READABLE`].
    pub const READABLE: Readiness = Readiness(1);
    /// See [`Interest::WRITABLE`].
    pub const WRITABLE: Readiness = Readiness(2);
    /// See [`Interest::PRIORITY`].
    pub const PRIORITY: Readiness = Readiness(4);
    /// See [`Interest::READ_CLOSED`].
    pub const READ_CLOSED: Readiness = Readiness(8);
    /// Both directions are closed, or the other end of the pipe is (`POLLHUP`). Data that arrived
    /// before may still be there to read.
    pub const HANG_UP: Readiness = Readiness(16);
    /// An error is pending (`POLLERR`): on a socket, read it with `SO_ERROR`; on the writing end
    /// of a pipe, the reader is gone.
    pub const ERROR: Readiness = Readiness(32);

    /// Whether no bit is set.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether all bits of `other` are set.
    pub const fn contains(self, other: Readiness) -> bool {
        self.0 & other.0 == other.0
    }

    /// From the bits of `pollfd.revents`; `epoll_event.events` has the same values. `POLLNVAL`
    /// and unknown bits are dropped.
    #[inline]
    pub const fn from_poll_bits(bits: i16) -> Readiness {
        const _: () = assert!(
            libc::POLLIN == 1
                && libc::POLLPRI == 2
                && libc::POLLOUT == 4
                && libc::POLLERR == 8
                && libc::POLLHUP == 16
                && libc::POLLRDHUP == 0x2000
        );
        // Straight-line code: this runs once per event.
        let bits = bits as u16;
        Readiness(
            (bits & 1
                | (bits >> 1 & 2)
                | (bits << 1 & 4)
                | (bits >> 10 & 8)
                | (bits & 16)
                | (bits << 2 & 32)) as u8,
        )
    }

    /// The part of it that is delivered to a caller with this interest; empty for an empty
    /// interest.
    #[inline]
    pub const fn masked(self, interest: Interest) -> Readiness {
        if interest.is_empty() {
            return Readiness::NONE;
        }
        Readiness(self.0 & (interest_bits(interest) | 48))
    }

    /// The part of it that a caller with this interest did not ask for.
    pub const fn beyond(self, interest: Interest) -> Readiness {
        Readiness(self.0 & !self.masked(interest).0)
    }

    /// Whether an error or a hang-up is among them.
    #[inline]
    pub(crate) const fn is_trouble(self) -> bool {
        self.0 & (Readiness::HANG_UP.0 | Readiness::ERROR.0) != 0
    }

    /// The conditions an interest names.
    pub const fn of(interest: Interest) -> Readiness {
        Readiness(interest_bits(interest))
    }
}

const fn interest_bits(interest: Interest) -> u8 {
    let mut bits = 0;
    if interest.contains(Interest::READABLE) {
        bits |= 1;
    }
    if interest.contains(Interest::WRITABLE) {
        bits |= 2;
    }
    if interest.contains(Interest::PRIORITY) {
        bits |= 4;
    }
    if interest.contains(Interest::READ_CLOSED) {
        bits |= 8;
    }
    bits
}

impl BitOr for Readiness {
    type Output = Readiness;
    fn bitor(self, other: Readiness) -> Readiness {
        Readiness(self.0 | other.0)
    }
}

impl BitOrAssign for Readiness {
    fn bitor_assign(&mut self, other: Readiness) {
        self.0 |= other.0;
    }
}

impl fmt::Debug for Readiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = ["READABLE", "WRITABLE", "PRIORITY", "READ_CLOSED", "HANG_UP", "ERROR"];
        let set: Vec<&str> =
            (0..6).filter(|bit| self.0 & (1 << bit) != 0).map(|bit| names[bit]).collect();
        f.write_str(if set.is_empty() { "NONE".to_owned() } else { set.join(" | ") }.as_str())
    }
}

/// One ready descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    key: Key,
    readiness: Readiness,
}

impl Event {
    pub(crate) const fn new(key: Key, readiness: Readiness) -> Event {
        Event { key, readiness }
    }

    /// The key of the event's registration.
    pub const fn key(&self) -> Key {
        self.key
    }

    /// All conditions at once.
    pub const fn readiness(&self) -> Readiness {
        self.readiness
    }

    /// A read, an accept or a receive will not block.
    pub const fn is_readable(&self) -> bool {
        self.readiness.contains(Readiness::READABLE)
    }

    /// A write will not block.
    pub const fn is_writable(&self) -> bool {
        self.readiness.contains(Readiness::WRITABLE)
    }

    /// See [`Readiness::PRIORITY`].
    pub const fn is_priority(&self) -> bool {
        self.readiness.contains(Readiness::PRIORITY)
    }

    /// See [`Readiness::READ_CLOSED`].
    pub const fn is_read_closed(&self) -> bool {
        self.readiness.contains(Readiness::READ_CLOSED)
    }

    /// See [`Readiness::HANG_UP`].
    pub const fn is_hang_up(&self) -> bool {
        self.readiness.contains(Readiness::HANG_UP)
    }

    /// See [`Readiness::ERROR`].
    pub const fn is_error(&self) -> bool {
        self.readiness.contains(Readiness::ERROR)
    }
}

/// The buffer that a wait fills: ready descriptors, refused registrations, and whether a waker was
/// used.
///
/// Each wait replaces the contents. The limit is how many events one wait may deliver; a wait
/// that is cut off by it continues with the rest the next time.
#[derive(Debug)]
pub struct Events {
    pub(crate) list: Vec<Event>,
    pub(crate) refusals: Vec<(Key, Error)>,
    pub(crate) reads: Vec<BatchedRead>,
    pub(crate) limit: usize,
    pub(crate) woken: bool,
}

impl Events {
    /// A buffer for at most `limit` events a wait. A limit of zero is accepted here and refused
    /// by the wait, with [`Error::ZeroLimit`].
    pub fn with_limit(limit: usize) -> Events {
        Events {
            list: Vec::with_capacity(limit.min(1024)),
            refusals: Vec::new(),
            reads: Vec::new(),
            limit,
            woken: false,
        }
    }

    // Inlined into each wait, which is itself inlined and empties its events first.
    #[inline(always)]
    pub(crate) fn empty(&mut self) {
        self.list.clear();
        self.woken = false;
        if !self.reads.is_empty() || !self.refusals.is_empty() {
            self.drop_untaken();
        }
    }

    /// Drops what the caller did not take after the last wait, which is rare.
    #[cold]
    fn drop_untaken(&mut self) {
        self.reads.clear();
        self.refusals.clear();
    }

    pub(crate) fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// The most events one wait delivers.
    pub const fn limit(&self) -> usize {
        self.limit
    }

    /// How many events the last wait delivered.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether the last wait delivered no event.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The events of the last wait.
    pub fn iter(&self) -> std::slice::Iter<'_, Event> {
        self.list.iter()
    }

    /// The event of a registration in this batch; searches them one by one.
    pub fn find(&self, key: Key) -> Option<&Event> {
        self.iter().find(|event| event.key() == key)
    }

    /// Whether the last wait returned because a [`Waker`](crate::Waker) was used.
    pub const fn woken(&self) -> bool {
        self.woken
    }

    /// Changes that the kernel refused when the last wait handed them over, each with its reason.
    ///
    /// Changes are collected until the next wait, so a refusal (out of memory, the limit of
    /// `fs.epoll.max_user_watches`, a descriptor closed in between) appears here. The registration
    /// that was refused has ended; its key is stale. All other registrations are unaffected.
    pub fn refusals(&self) -> &[(Key, Error)] {
        &self.refusals
    }

    /// Takes the [refusals](Events::refusals), so that their errors can be passed on.
    pub fn take_refusals(&mut self) -> Vec<(Key, Error)> {
        std::mem::take(&mut self.refusals)
    }
}

impl<'a> IntoIterator for &'a Events {
    type Item = &'a Event;
    type IntoIter = std::slice::Iter<'a, Event>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_poll_bit_has_its_name() {
        let pairs = [
            (libc::POLLIN, Readiness::READABLE),
            (libc::POLLOUT, Readiness::WRITABLE),
            (libc::POLLPRI, Readiness::PRIORITY),
            (libc::POLLRDHUP, Readiness::READ_CLOSED),
            (libc::POLLHUP, Readiness::HANG_UP),
            (libc::POLLERR, Readiness::ERROR),
            (libc::POLLNVAL, Readiness::NONE),
            (0, Readiness::NONE),
        ];
        for all in 0..1 << pairs.len() {
            let mut bits = 0;
            let mut expected = Readiness::NONE;
            for (place, (bit, readiness)) in pairs.iter().enumerate() {
                if all & (1 << place) != 0 {
                    bits |= bit;
                    expected |= *readiness;
                }
            }
            assert_eq!(Readiness::from_poll_bits(bits), expected, "bits {bits:#x}");
        }
    }

    #[test]
    fn a_mask_keeps_requested_readiness_hang_ups_and_errors() {
        let all = Readiness(63);
        assert_eq!(all.masked(Interest::NONE), Readiness::NONE);
        assert_eq!(
            all.masked(Interest::WRITABLE),
            Readiness::WRITABLE | Readiness::HANG_UP | Readiness::ERROR
        );
        assert_eq!(all.masked(Interest::ALL), all);
        assert_eq!(all.beyond(Interest::ALL), Readiness::NONE);
        assert_eq!(all.beyond(Interest::NONE), all);
        assert_eq!(Readiness::READABLE.beyond(Interest::WRITABLE), Readiness::READABLE);
        assert_eq!(Readiness::of(Interest::ALL), Readiness(15));
        assert_eq!(format!("{:?}", Readiness(33)), "READABLE | ERROR");
        assert_eq!(format!("{:?}", Readiness::NONE), "NONE");
    }

    #[test]
    fn sets_unite_and_contain() {
        let both = Readiness::READABLE | Readiness::HANG_UP;
        assert_eq!(both | Readiness::READABLE, both);
        let mut grown = both;
        grown |= Readiness::READABLE | Readiness::ERROR;
        assert!(grown.contains(both) && !both.contains(grown));
        assert!(!both.contains(Readiness::READABLE | Readiness::WRITABLE));
        assert!(Readiness::NONE.is_empty() && !both.is_empty());
    }

    #[test]
    fn a_batch_counts_and_finds() {
        let mut events = Events::with_limit(5);
        assert_eq!((events.limit(), events.len(), events.is_empty()), (5, 0, true));
        for index in 0..3 {
            events.list.push(Event::new(Key::new(index, 0), Readiness::READABLE));
        }
        assert_eq!((events.limit(), events.len(), events.is_empty()), (5, 3, false));
        assert_eq!(events.find(Key::new(1, 0)).unwrap().key().index(), 1);
        assert_eq!(events.find(Key::new(1, 1)), None);
        assert_eq!((&events).into_iter().count(), 3);
        assert!(!events.woken() && events.refusals().is_empty());
    }

    #[test]
    fn an_event_answers_for_each_bit() {
        for bit in 0..6 {
            let event = Event::new(Key::new(1, 2), Readiness(1 << bit));
            let answers = [
                event.is_readable(),
                event.is_writable(),
                event.is_priority(),
                event.is_read_closed(),
                event.is_hang_up(),
                event.is_error(),
            ];
            for (place, answer) in answers.into_iter().enumerate() {
                assert_eq!(answer, place == bit);
            }
            assert_eq!(event.key(), Key::new(1, 2));
            assert_eq!(event.readiness(), Readiness(1 << bit));
        }
    }
}
