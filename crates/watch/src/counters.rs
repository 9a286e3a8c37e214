//! The counters that the programs in the kernel and this crate share, and their reading.
//!
//! A *slot* is an array of words for one key: an epoll set or a ring of a process by its
//! descriptor, the `poll` or `select` arrays of a process by their length, or a process itself for
//! its reads. A key is a word, too: the process in the upper half, then the kind, then the
//! descriptor or the length. Slots are handed out by a counter, then from a queue of those that
//! were given back: the slots of a process that has ended, once their counts were taken.
//!
//! The number of a process may be used again, so it does not name the owner of a slot: the slot of
//! the process itself does. It is given back together with all that it owns.
//!
//! Each call of a watched program should cost little, so a wait changes as few words as possible:
//! the histogram of events per wait has the number of waits, the empty ones, and the events of
//! waits with fewer than [`EXACT`]; only those of longer ones are added up in a word of their own.
//!
//! Distinct active descriptors are counted with a bitmap of [`BITS`] for each slot. The data that
//! the program gave to a descriptor (`epoll_event.data`) selects a bit. From how many bits are set
//! follows how many different values there were, within 1 % up to 100,000.

use std::sync::atomic::{AtomicU64, Ordering};

/// The words of a slot.
pub(crate) const WORDS: usize = 96;

/// Where the histogram begins.
pub(crate) const HISTOGRAM: usize = 32;

/// Buckets of the histogram.
#[cfg(test)]
pub(crate) const BUCKETS: usize = WORDS - HISTOGRAM;

/// Counts below this have buckets of their own; above, each power of two has four.
pub(crate) const EXACT: u64 = 16;

/// Bits for distinct data, by slot.
pub(crate) const BITS: usize = 1 << BITS_LOG2;
pub(crate) const BITS_LOG2: u32 = 15;

/// The words of a bitmap.
pub(crate) const BITMAP: usize = BITS / 64;

macro_rules! words {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// The words of a slot before its histogram.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(usize)]
        pub(crate) enum Word { $($(#[$doc])* $name),* }
    };
}

words! {
    /// The key, and the slot of the process whose it is.
    Key,
    Owner,
    /// `epoll_ctl` that succeeded, by operation.
    Added,
    Changed,
    Removed,
    /// `epoll_ctl` that failed.
    Refused,
    /// Waits that failed, most of them interrupted by a signal.
    Failed,
    /// Events of waits with at least `EXACT`.
    ManyEvents,
    /// Waits that returned as many events as there was room for.
    Full,
    /// Full waits after which the next did not have to wait: events had been left.
    Cut,
    /// Waits with a timeout of 0, and those of them without an event.
    Looks,
    EmptyLooks,
    /// Waits that a timeout ended, those of them with a timeout below 10 ms, and those that
    /// returned more than 1 ms later than asked.
    TimedOut,
    ShortTimeouts,
    Late,
    /// By how many nanoseconds the late ones were late.
    Lateness,
    /// The nanoseconds of waits that slept, and the number of these waits.
    Asleep,
    Sleeps,
    /// Descriptors in the arrays of `poll` and `select`, all waits added up; of a ring the
    /// submitted entries.
    Watched,
    /// Reads that returned data or the end, and those that found nothing.
    Reads,
    EmptyReads,
    /// The same of `accept`.
    Accepts,
    EmptyAccepts,
    /// The room for events in the last wait.
    Room,
    /// Not 0 once the process has ended, in its own slot: nothing changes its slots any more.
    Ended,
}

/// The words for the whole machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub(crate) enum Global {
    /// The next slot.
    Next,
    /// Calls that were not counted, as there was no slot left.
    Overflow,
    /// Processes none of whose calls are counted, for the same reason.
    Unfollowed,
    /// Waits, reads, accepts and `epoll_ctl` of 32-bit programs, which are not counted.
    Compat,
    /// Waits that a recording lacks, as the ring was full.
    LostWaits,
    /// Changes of sets that a recording lacks.
    LostChanges,
    /// Processes that have loaded the library that counts in them.
    Loaded,
    /// The layout that such a library must know; 0 once it is to count no more.
    Layout,
}

/// How many words for the whole machine there are.
pub(crate) const GLOBALS: usize = 8;

/// A kind of object that has counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Kind {
    /// The process: reads and accepts.
    Process,
    /// An epoll set.
    Epoll,
    /// Arrays of `poll(2)` and `ppoll(2)`.
    Poll,
    /// Sets of `select(2)` and `pselect(2)`.
    Select,
    /// An io_uring by its descriptor.
    Ring,
    /// An io_uring by the number with which a thread has registered it.
    RegisteredRing,
}

impl Kind {
    const ALL: [Kind; 6] =
        [Kind::Process, Kind::Epoll, Kind::Poll, Kind::Select, Kind::Ring, Kind::RegisteredRing];

    /// Whether it is an io_uring.
    pub fn is_ring(self) -> bool {
        matches!(self, Kind::Ring | Kind::RegisteredRing)
    }
}

/// Where the kind is in a key, above the descriptor or the length.
pub(crate) const KIND_SHIFT: u32 = 28;
pub(crate) const ID_MASK: u32 = (1 << KIND_SHIFT) - 1;

/// How many rings a thread can register, as a power of two (`IO_RINGFD_REG_MAX` of the kernel).
pub(crate) const REGISTERED_LOG2: u32 = 4;

/// The key of a slot.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Key {
    /// The process.
    pub process: u32,
    /// The kind of object.
    pub kind: Kind,
    /// The descriptor of an epoll set or ring. For `poll` and `select` the number of bits of the
    /// array's length: 0 for none, 1 for one, 2 for 2 or 3, 3 for 4 to 7. For a registered ring see
    /// [`registration`](Key::registration).
    pub id: u32,
}

impl Key {
    /// Returns the key as the programs make it.
    pub(crate) fn word(self) -> u64 {
        let low = (self.kind as u32) << KIND_SHIFT | self.id & ID_MASK;
        u64::from(self.process) << 32 | u64::from(low)
    }

    pub(crate) fn from_word(word: u64) -> Option<Key> {
        let kind = *Kind::ALL.get((word as u32 >> KIND_SHIFT) as usize)?;
        Some(Key { process: (word >> 32) as u32, kind, id: word as u32 & ID_MASK })
    }

    /// The thread that has registered a ring, and the number that the ring has there.
    pub fn registration(self) -> (u32, u32) {
        (self.id >> REGISTERED_LOG2, self.id & ((1 << REGISTERED_LOG2) - 1))
    }

    /// The lengths of the arrays that share a key of `poll` or `select`, the least and the most.
    pub fn lengths(self) -> (u32, u32) {
        match self.id {
            0 => (0, 0),
            bits => (1 << (bits.min(32) - 1), u32::MAX >> (32 - bits.min(32))),
        }
    }
}

/// Returns the bucket of a number of events, as the program finds it.
pub(crate) fn bucket(events: u64) -> usize {
    let events = events.min(0xffff);
    if events < EXACT {
        return events as usize;
    }
    let power = events.ilog2();
    EXACT as usize + 4 * (power as usize - 4) + (events >> (power - 2) & 3) as usize
}

/// Returns the least and the greatest number of events of a bucket.
pub fn bucket_bounds(bucket: usize) -> (u64, u64) {
    let exact = EXACT as usize;
    if bucket < exact {
        return (bucket as u64, bucket as u64);
    }
    let (power, quarter) = (4 + (bucket - exact) / 4, (bucket - exact) % 4);
    let least = (4 + quarter as u64) << (power - 2);
    (least, least + (1 << (power - 2)) - 1)
}

/// The counts of a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Counts {
    words: [u64; WORDS],
}

impl Default for Counts {
    fn default() -> Counts {
        Counts { words: [0; WORDS] }
    }
}

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident = $word:ident),* $(,)?) => {
        $($(#[$doc])* pub fn $name(&self) -> u64 {
            self.words[Word::$word as usize]
        })*
    };
}

impl Counts {
    pub(crate) fn read(words: &[AtomicU64]) -> Counts {
        Counts { words: std::array::from_fn(|at| words[at].load(Ordering::Relaxed)) }
    }

    /// Returns counts of which these words are set.
    #[cfg(test)]
    pub(crate) fn of_words(words: &[(usize, u64)]) -> Counts {
        let mut counts = Counts::default();
        words.iter().for_each(|&(at, count)| counts.words[at] = count);
        counts
    }

    /// Returns the counts since an earlier reading of the same key.
    #[must_use]
    pub fn since(&self, earlier: &Counts) -> Counts {
        let mut words = self.words;
        for at in (Word::Added as usize..WORDS).filter(|at| *at != Word::Room as usize) {
            words[at] = words[at].saturating_sub(earlier.words[at]);
        }
        Counts { words }
    }

    /// Adds the counts of another slot.
    pub(crate) fn add(&mut self, other: &Counts) {
        for at in (Word::Added as usize..WORDS).filter(|at| *at != Word::Room as usize) {
            self.words[at] += other.words[at];
        }
        self.words[Word::Room as usize] = self.room().max(other.room());
    }

    /// The waits by the events that they returned; [`bucket_bounds`] has the numbers of events.
    /// Those that failed are not among them.
    pub fn histogram(&self) -> &[u64] {
        &self.words[HISTOGRAM..]
    }

    /// Waits that have returned, those that failed included. Of a ring, the calls that wait.
    pub fn waits(&self) -> u64 {
        self.histogram().iter().sum::<u64>() + self.failed()
    }

    /// Events that waits have returned. Of a ring there are none: they are read from its memory.
    pub fn events(&self) -> u64 {
        let few = self.histogram()[..EXACT as usize].iter().zip(0..);
        few.map(|(waits, events)| waits * events).sum::<u64>() + self.many_events()
    }

    /// Waits that returned no event.
    pub fn empty(&self) -> u64 {
        self.histogram()[0]
    }

    /// `epoll_ctl` calls, those that failed included.
    pub fn controls(&self) -> u64 {
        self.added() + self.changed() + self.removed() + self.refused()
    }

    /// Returns the number of events that a share of the waits, from 0 to 1, does not exceed: of
    /// the waits that returned events, exactly up to 15 and within an eighth above.
    pub fn events_at(&self, share: f64) -> u64 {
        let histogram = &self.histogram()[1..];
        let rank = (histogram.iter().sum::<u64>() as f64 * share).ceil();
        let mut waits = 0;
        for (bucket, count) in (1..).zip(histogram) {
            waits += count;
            if waits as f64 >= rank && waits > 0 {
                let (least, greatest) = bucket_bounds(bucket);
                return u64::midpoint(least, greatest);
            }
        }
        0
    }

    counts! {
        /// `EPOLL_CTL_ADD` that succeeded.
        added = Added,
        /// `EPOLL_CTL_MOD` that succeeded.
        changed = Changed,
        /// `EPOLL_CTL_DEL` that succeeded.
        removed = Removed,
        /// `epoll_ctl` calls that failed.
        refused = Refused,
        /// Waits that failed, most of them interrupted by a signal. One that the kernel continues
        /// after a signal has not ended.
        failed = Failed,
        /// Waits that returned as many events as there was room for.
        full = Full,
        /// Full waits that were followed by one that did not sleep and had events.
        cut = Cut,
        /// Waits with a timeout of 0. Of a ring, calls that only submit.
        looks = Looks,
        /// Waits with a timeout of 0 that returned no event.
        empty_looks = EmptyLooks,
        /// Waits that their timeout, of more than 0, has ended.
        timed_out = TimedOut,
        /// Waits that a timeout of less than 10 ms has ended.
        short_timeouts = ShortTimeouts,
        /// Waits that returned more than 1 ms after their timeout.
        late = Late,
        /// Nanoseconds by which these were late, added up.
        lateness_ns = Lateness,
        /// Nanoseconds of waits that took at least 5 us, all threads added up.
        asleep_ns = Asleep,
        /// The number of these waits.
        sleeps = Sleeps,
        /// Descriptors in the arrays of `poll`, those of all waits added up, or the entries that a
        /// ring was given. For `select` the highest descriptor and one more.
        watched = Watched,
        /// Reads that returned data or the end (of a process). Those that failed are counted only
        /// if they found nothing.
        reads = Reads,
        /// Reads that found nothing: `EAGAIN` (of a process).
        empty_reads = EmptyReads,
        /// `accept` calls that returned a connection (of a process).
        accepts = Accepts,
        /// `accept` calls that found none (of a process).
        empty_accepts = EmptyAccepts,
        /// The room for events of the last wait (`maxevents`).
        room = Room,
    }

    fn many_events(&self) -> u64 {
        self.words[Word::ManyEvents as usize]
    }
}

/// Takes the bits that were set since the last time, and returns how many distinct values they
/// stand for.
pub(crate) fn take_distinct(bitmap: &[AtomicU64]) -> f64 {
    let set: u32 = bitmap
        .iter()
        // A word without a bit is not written, so the pages of an idle slot stay unshared.
        .filter(|word| word.load(Ordering::Relaxed) != 0)
        .map(|word| word.swap(0, Ordering::Relaxed).count_ones())
        .sum();
    distinct(set)
}

/// Returns how many distinct values set that many bits, when each sets a random one.
fn distinct(set: u32) -> f64 {
    let bits = BITS as f64;
    let clear = (bits - f64::from(set)).max(0.5);
    bits * (bits / clear).ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_have_no_gap_and_no_overlap() {
        let mut next = 0;
        for number in 0..BUCKETS {
            let (least, greatest) = bucket_bounds(number);
            assert_eq!(least, next);
            assert_eq!((bucket(least), bucket(greatest)), (number, number));
            next = greatest + 1;
        }
        assert_eq!((next, bucket(u64::MAX)), (0x1_0000, BUCKETS - 1));
    }

    #[test]
    fn quantiles_are_of_waits_with_events() {
        let mut counts = Counts::default();
        assert_eq!(counts.events_at(0.5), 0);
        counts.words[HISTOGRAM] = 1000;
        counts.words[HISTOGRAM + 1] = 98;
        counts.words[HISTOGRAM + 3] = 1;
        counts.words[HISTOGRAM + bucket(100)] = 1;
        counts.words[Word::ManyEvents as usize] = 100;
        assert_eq!((counts.waits(), counts.empty(), counts.events()), (1100, 1000, 201));
        assert_eq!((counts.events_at(0.5), counts.events_at(0.99)), (1, 3));
        assert_eq!(counts.events_at(1.0), 103);
    }

    #[test]
    fn keys_are_words_and_lengths_have_bits() {
        let key = Key { process: 4242, kind: Kind::Poll, id: 11 };
        assert_eq!(Key::from_word(key.word()), Some(key));
        assert_eq!(key.lengths(), (1024, 2047));
        assert_eq!(Key { id: 0, ..key }.lengths(), (0, 0));
        assert_eq!(Key { id: 32, ..key }.lengths(), (1 << 31, u32::MAX));
        assert_eq!(Key { id: 203, ..key }.lengths(), (1 << 31, u32::MAX), "a set's descriptor");
        assert_eq!(Key::from_word(9 << KIND_SHIFT), None);
        // The greatest number of a thread, and the last of its rings.
        let ring = Key { kind: Kind::RegisteredRing, id: (1 << 22) << REGISTERED_LOG2 | 15, ..key };
        assert_eq!(Key::from_word(ring.word()).unwrap().registration(), (1 << 22, 15));
    }

    #[test]
    fn few_distinct_values_are_counted_exactly_and_many_within_a_percent() {
        assert_eq!(distinct(0), 0.0);
        for few in 1..50 {
            assert_eq!(distinct(few).round() as u32, few);
        }
        // So many bits are set, on average, by 100,000 values.
        let bits = BITS as f64;
        let set = bits * (1.0 - (-100_000.0 / bits).exp());
        assert!((distinct(set as u32) / 100_000.0 - 1.0).abs() < 0.01);
        assert!(distinct(BITS as u32).is_finite());
    }
}
