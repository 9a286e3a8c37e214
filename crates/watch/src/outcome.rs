//! The rules of counting: which counter changes by the outcome of a call. The tracer and the
//! preloaded library share them; the programs of BPF have the same ones as bytecode.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::counters::{
    BITS_LOG2, EXACT, HISTOGRAM, ID_MASK, Key, Kind, REGISTERED_LOG2, Word, bucket,
};
use crate::machine::Call;
use crate::program::{LATE_NS, SHORT_NS};

/// The timeout of calls whose timeout is not known.
pub(crate) const UNKNOWN: i64 = -2;

/// A call that has returned.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// The kind of call.
    pub call: Call,
    /// Its arguments as the kernel gets them. Addresses are not read.
    pub arguments: [u64; 6],
    /// Its timeout in nanoseconds; -1 for none, -2 if it is not known.
    pub timeout: i64,
    /// How long it took, in nanoseconds.
    pub took: i64,
    /// Its result, or the negative number of its error.
    pub result: i64,
}

impl Outcome {
    /// Returns the key whose counters change, or `None` if the call is one that does not count.
    pub(crate) fn key(&self, process: u32, thread: u32) -> Option<Key> {
        let [first, second, _, fourth, ..] = self.arguments;
        let of_length = |length: u64| u64::from(u32::BITS - (length as u32).leading_zeros());
        let (kind, id) = match self.call {
            Call::Read | Call::Accept => {
                if self.result < 0 && !self.found_nothing() {
                    return None;
                }
                (Kind::Process, 0)
            }
            Call::Control | Call::EpollWait | Call::EpollWait2 => (Kind::Epoll, first),
            Call::Poll | Call::Ppoll => (Kind::Poll, of_length(second)),
            Call::Select | Call::Pselect => (Kind::Select, of_length(first)),
            Call::Ring => {
                const IS_REGISTERED: u64 = 1 << 4;
                let number = first & ((1 << REGISTERED_LOG2) - 1);
                match fourth & IS_REGISTERED {
                    0 => (Kind::Ring, first),
                    _ => (Kind::RegisteredRing, u64::from(thread) << REGISTERED_LOG2 | number),
                }
            }
        };
        Some(Key { process, kind, id: id as u32 & ID_MASK })
    }

    /// Whether it is a wait that returned as many events as there was room for.
    pub(crate) fn is_full(&self) -> bool {
        let room = self.arguments[2] & 0xffff_ffff;
        let has_room = matches!(self.call, Call::EpollWait | Call::EpollWait2) && room != 0;
        has_room && self.result == room as i64
    }

    fn found_nothing(&self) -> bool {
        self.result == -i64::from(libc::EAGAIN)
    }

    /// Adds this to the words of its slot. `full` is of the thread: 1 + the slot of its last wait
    /// if that was full, else 0. A wait that took `sleep` nanoseconds has slept.
    pub(crate) fn count(&self, words: &[AtomicU64], slot: usize, full: &mut usize, sleep: i64) {
        let [first, second, third, fourth, ..] = self.arguments;
        let result = self.result;
        match self.call {
            Call::Read | Call::Accept => {
                let word = match (self.call, self.found_nothing()) {
                    (Call::Read, false) => Word::Reads,
                    (Call::Read, true) => Word::EmptyReads,
                    (_, false) => Word::Accepts,
                    (_, true) => Word::EmptyAccepts,
                };
                add(words, word, 1);
            }
            Call::Control => {
                let word = match second as i32 {
                    _ if result != 0 => Word::Refused,
                    libc::EPOLL_CTL_ADD => Word::Added,
                    libc::EPOLL_CTL_MOD => Word::Changed,
                    libc::EPOLL_CTL_DEL => Word::Removed,
                    _ => return,
                };
                add(words, word, 1);
            }
            Call::EpollWait | Call::EpollWait2 => {
                let room = third & 0xffff_ffff;
                if room != 0 && result >= 0 {
                    words[Word::Room as usize].store(room, Ordering::Relaxed);
                }
                self.wait(words, slot, full, sleep);
            }
            Call::Poll | Call::Ppoll | Call::Select | Call::Pselect => {
                let is_poll = matches!(self.call, Call::Poll | Call::Ppoll);
                // The length of an array counts unless the call was refused.
                if result >= 0 {
                    add(words, Word::Watched, (if is_poll { second } else { first }) & 0xffff_ffff);
                }
                self.wait(words, slot, full, sleep);
            }
            Call::Ring => {
                const WAITS: u64 = 1;
                add(words, Word::Watched, u64::try_from(result).unwrap_or(0));
                let timed_out = result == -i64::from(libc::ETIME);
                add(words, Word::TimedOut, u64::from(timed_out));
                if fourth & WAITS != 0 && third & 0xffff_ffff != 0 {
                    let result = if result < 0 && !timed_out { result } else { 0 };
                    Outcome { result, ..*self }.wait(words, slot, full, sleep);
                } else {
                    add(words, Word::Looks, 1);
                }
            }
        }
    }

    /// Counts a wait.
    fn wait(&self, words: &[AtomicU64], slot: usize, full: &mut usize, sleep: i64) {
        let Outcome { result, took, timeout, .. } = *self;
        let is_full = self.is_full();
        let last = std::mem::replace(full, if is_full { slot + 1 } else { 0 });
        if is_full {
            add(words, Word::Full, 1);
        }
        if last == slot + 1 && result > 0 && took < sleep {
            add(words, Word::Cut, 1);
        }
        if timeout == 0 {
            add(words, Word::Looks, 1);
            add(words, Word::EmptyLooks, u64::from(result == 0));
        } else {
            if took >= sleep {
                add(words, Word::Asleep, took as u64);
                add(words, Word::Sleeps, 1);
            }
            if result == 0 && timeout > 0 {
                add(words, Word::TimedOut, 1);
                add(words, Word::ShortTimeouts, u64::from(timeout < i64::from(SHORT_NS)));
                let late = took - timeout;
                if late >= i64::from(LATE_NS) {
                    add(words, Word::Lateness, late as u64);
                    add(words, Word::Late, 1);
                }
            }
        }
        let Ok(events) = u64::try_from(result) else { return add(words, Word::Failed, 1) };
        if events >= EXACT {
            add(words, Word::ManyEvents, events);
        }
        words[HISTOGRAM + bucket(events)].fetch_add(1, Ordering::Relaxed);
    }
}

fn add(words: &[AtomicU64], word: Word, count: u64) {
    // Each addition to memory that processors share costs as much as the rest of a call's rules.
    if count != 0 {
        words[word as usize].fetch_add(count, Ordering::Relaxed);
    }
}

/// Sets the bits of the data that events have.
pub(crate) fn note_data(bitmap: &[AtomicU64], data: impl Iterator<Item = u64>) {
    for data in data {
        let bit = hash(data);
        let (word, bit) = (&bitmap[bit / 64], 1 << (bit % 64));
        if word.load(Ordering::Relaxed) & bit == 0 {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }
}

/// A number below [`BITS`](crate::counters::BITS): consecutive numbers must not spread evenly.
pub(crate) fn hash(mut data: u64) -> usize {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    for shift in [29, 32] {
        data = data.wrapping_mul(FACTOR);
        data ^= data >> shift;
    }
    (data.wrapping_mul(FACTOR) >> (64 - BITS_LOG2)) as usize
}
