//! Counts of traced calls, as the programs of BPF count them.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::counters::{
    BITMAP, BITS_LOG2, EXACT, Global, HISTOGRAM, ID_MASK, Key, Kind, REGISTERED_LOG2, WORDS, Word,
    bucket,
};
use crate::machine::{self, Machine};
use crate::process;
use crate::program::{LATE_NS, RESTART_BLOCK, RESTART_NO_HANDLER, RESULTS, SHORT_NS};
use crate::sys::SharedWords;
use crate::sys::trace::{Call, read_memory};

/// A wait that takes less has not slept: the two stops of a call take a part of that.
const SLEEP_NS: i64 = 100_000;

/// The timeout of calls whose timeout is not known.
const UNKNOWN: i64 = -2;

/// A call that a thread has entered.
#[derive(Debug)]
struct Entered {
    call: machine::Call,
    arguments: [u64; 6],
    at: Instant,
    timeout: i64,
}

#[derive(Debug, Default)]
struct Thread {
    process: u32,
    entered: Option<Entered>,
    /// A wait that was interrupted, and that the kernel makes again unless a handler runs.
    interrupted: Option<Entered>,
    /// 1 + the slot of the last wait, if that was full.
    full: usize,
}

/// The counters, and what is known of each thread.
#[derive(Debug)]
pub(crate) struct Tally {
    counters: SharedWords,
    bitmaps: SharedWords,
    globals: SharedWords,
    machine: &'static Machine,
    threads: HashMap<u32, Thread>,
    slots: HashMap<Key, usize>,
}

impl Tally {
    pub(crate) fn new(
        counters: SharedWords,
        bitmaps: SharedWords,
        globals: SharedWords,
        machine: &'static Machine,
    ) -> Tally {
        let (threads, slots) = (HashMap::new(), HashMap::new());
        Tally { counters, bitmaps, globals, machine, threads, slots }
    }

    /// Forgets a thread that has ended.
    pub(crate) fn forget(&mut self, thread: u32) {
        self.threads.remove(&thread);
    }

    /// Forgets the call that a thread is in, which is not counted.
    pub(crate) fn leave_call(&mut self, thread: u32) {
        self.threads.entry(thread).and_modify(|of| of.entered = None);
    }

    fn count_globally(&self, word: Global) {
        self.globals.words()[word as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Notes the entry of a call, or counts it at its exit.
    pub(crate) fn call(&mut self, thread: u32, call: Call) {
        match call {
            Call::Foreign => self.count_globally(Global::Compat),
            Call::Entry { number, arguments } => {
                let entry = self.threads.entry(thread).or_default();
                if entry.process == 0 {
                    entry.process = process::of_thread(thread).unwrap_or(thread);
                }
                let calls = self.machine.calls;
                let found = calls.iter().find(|(one, _)| u64::from(*one) == number);
                let process = entry.process;
                let interrupted = entry.interrupted.take();
                let is_again = interrupted.as_ref().is_some_and(|earlier| {
                    number == u64::from(self.machine.restart)
                        || found.is_some_and(|(_, call)| *call == earlier.call)
                            && earlier.arguments[..2] == arguments[..2]
                });
                if is_again {
                    // It has begun before.
                    entry.entered = interrupted;
                    return;
                }
                entry.entered = found.map(|(_, call)| Entered {
                    call: *call,
                    arguments,
                    at: Instant::now(),
                    timeout: timeout(process, *call, &arguments),
                });
                // The program has seen it fail.
                if let Some(earlier) = interrupted {
                    self.count(thread, process, &earlier, -i64::from(libc::EINTR));
                }
            }
            Call::Exit { result } => {
                let Some(of) = self.threads.get_mut(&thread) else { return };
                let (process, Some(entered)) = (of.process, of.entered.take()) else { return };
                if [RESTART_NO_HANDLER, RESTART_BLOCK].map(i64::from).contains(&result) {
                    of.interrupted = Some(entered);
                    return;
                }
                self.count(thread, process, &entered, result);
            }
        }
    }

    /// Returns the slot of a key, or counts the call as one that there is no slot for.
    fn slot(&mut self, key: Key) -> Option<usize> {
        if let Some(slot) = self.slots.get(&key) {
            return Some(*slot);
        }
        let next = &self.globals.words()[Global::Next as usize];
        let slot = next.load(Ordering::Relaxed) as usize;
        if slot >= self.counters.words().len() / WORDS {
            self.count_globally(Global::Overflow);
            return None;
        }
        self.add(slot, Word::Key, key.word());
        next.store(slot as u64 + 1, Ordering::Release);
        self.slots.insert(key, slot);
        Some(slot)
    }

    fn add(&self, slot: usize, word: Word, count: u64) {
        self.counters.words()[slot * WORDS + word as usize].fetch_add(count, Ordering::Relaxed);
    }

    fn count(&mut self, thread: u32, process: u32, entered: &Entered, result: i64) {
        let [first, second, third, fourth, ..] = entered.arguments;
        let key = |kind, id: u64| Key { process, kind, id: id as u32 & ID_MASK };
        let again = result == -i64::from(libc::EAGAIN);
        let of_length = |length: u64| u64::from(u32::BITS - (length as u32).leading_zeros());
        match entered.call {
            machine::Call::Read | machine::Call::Accept => {
                if result < 0 && !again {
                    return;
                }
                let Some(slot) = self.slot(key(Kind::Process, 0)) else { return };
                self.add(
                    slot,
                    match (entered.call, again) {
                        (machine::Call::Read, false) => Word::Reads,
                        (machine::Call::Read, true) => Word::EmptyReads,
                        (_, false) => Word::Accepts,
                        (_, true) => Word::EmptyAccepts,
                    },
                    1,
                );
            }
            machine::Call::Control => {
                let Some(slot) = self.slot(key(Kind::Epoll, first)) else { return };
                let word = match second as i32 {
                    _ if result != 0 => Word::Refused,
                    libc::EPOLL_CTL_ADD => Word::Added,
                    libc::EPOLL_CTL_MOD => Word::Changed,
                    libc::EPOLL_CTL_DEL => Word::Removed,
                    _ => return,
                };
                self.add(slot, word, 1);
            }
            machine::Call::EpollWait | machine::Call::EpollWait2 => {
                let Some(slot) = self.slot(key(Kind::Epoll, first)) else { return };
                self.wait(thread, slot, entered, result, third & 0xffff_ffff);
                self.note_data(process, slot, second, result);
            }
            machine::Call::Poll | machine::Call::Ppoll => {
                let Some(slot) = self.slot(key(Kind::Poll, of_length(second))) else { return };
                self.watched(slot, second, result);
                self.wait(thread, slot, entered, result, 0);
            }
            machine::Call::Select | machine::Call::Pselect => {
                let Some(slot) = self.slot(key(Kind::Select, of_length(first))) else { return };
                self.watched(slot, first, result);
                self.wait(thread, slot, entered, result, 0);
            }
            machine::Call::Ring => {
                const WAITS: u64 = 1;
                const IS_REGISTERED: u64 = 1 << 4;
                let number = first & ((1 << REGISTERED_LOG2) - 1);
                let key = match fourth & IS_REGISTERED {
                    0 => key(Kind::Ring, first),
                    _ => key(Kind::RegisteredRing, u64::from(thread) << REGISTERED_LOG2 | number),
                };
                let Some(slot) = self.slot(key) else { return };
                self.add(slot, Word::Watched, u64::try_from(result).unwrap_or(0));
                if result == -i64::from(libc::ETIME) {
                    self.add(slot, Word::TimedOut, 1);
                }
                let failed = result < 0 && result != -i64::from(libc::ETIME);
                if fourth & WAITS != 0 && third & 0xffff_ffff != 0 {
                    self.wait(thread, slot, entered, if failed { result } else { 0 }, 0);
                } else {
                    self.add(slot, Word::Looks, 1);
                }
            }
        }
    }

    /// Counts the length of an array, unless the call was refused.
    fn watched(&self, slot: usize, length: u64, result: i64) {
        if result >= 0 {
            self.add(slot, Word::Watched, length & 0xffff_ffff);
        }
    }

    /// Counts a wait. `room` is that for events, 0 unless it is an epoll set's.
    fn wait(&mut self, thread: u32, slot: usize, entered: &Entered, result: i64, room: u64) {
        let took = i64::try_from(entered.at.elapsed().as_nanos()).unwrap_or(i64::MAX);
        let is_full = room != 0 && result == room as i64;
        if room != 0 && result >= 0 {
            let word = &self.counters.words()[slot * WORDS + Word::Room as usize];
            word.store(room, Ordering::Relaxed);
        }
        let last = self.threads.get_mut(&thread);
        let last = last
            .map_or(0, |of| std::mem::replace(&mut of.full, if is_full { slot + 1 } else { 0 }));
        if is_full {
            self.add(slot, Word::Full, 1);
        }
        if last == slot + 1 && result > 0 && took < SLEEP_NS {
            self.add(slot, Word::Cut, 1);
        }
        if entered.timeout == 0 {
            self.add(slot, Word::Looks, 1);
            self.add(slot, Word::EmptyLooks, u64::from(result == 0));
        } else {
            if took >= SLEEP_NS {
                self.add(slot, Word::Asleep, took as u64);
                self.add(slot, Word::Sleeps, 1);
            }
            if result == 0 && entered.timeout > 0 {
                self.add(slot, Word::TimedOut, 1);
                let is_short = entered.timeout < i64::from(SHORT_NS);
                self.add(slot, Word::ShortTimeouts, u64::from(is_short));
                let late = took - entered.timeout;
                if late >= i64::from(LATE_NS) {
                    self.add(slot, Word::Lateness, late as u64);
                    self.add(slot, Word::Late, 1);
                }
            }
        }
        let Ok(events) = u64::try_from(result) else { return self.add(slot, Word::Failed, 1) };
        if events >= EXACT {
            self.add(slot, Word::ManyEvents, events);
        }
        let at = slot * WORDS + HISTOGRAM + bucket(events);
        self.counters.words()[at].fetch_add(1, Ordering::Relaxed);
    }

    /// Sets the bits of the data of the first results of an epoll set.
    fn note_data(&self, process: u32, slot: usize, address: u64, result: i64) {
        let (size, at) = self.machine.event;
        let (size, at) = (size as usize, at as usize);
        let count = result.clamp(0, RESULTS.into()) as usize;
        let mut events = [0; RESULTS as usize * 16];
        let events = &mut events[..count * size];
        let read = if count > 0 { read_memory(process, address, events) } else { 0 };
        for event in events[..read].chunks_exact(size) {
            let data = u64::from_ne_bytes(event[at..at + 8].try_into().expect("8 bytes"));
            let bit = hash(data);
            let word = &self.bitmaps.words()[slot * BITMAP + bit / 64];
            word.fetch_or(1 << (bit % 64), Ordering::Relaxed);
        }
    }
}

/// The bit of these data: consecutive numbers must not spread evenly.
fn hash(mut data: u64) -> usize {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    for shift in [29, 32] {
        data = data.wrapping_mul(FACTOR);
        data ^= data >> shift;
    }
    (data.wrapping_mul(FACTOR) >> (64 - BITS_LOG2)) as usize
}

/// Returns the timeout of a call in nanoseconds; -1: none.
fn timeout(process: u32, call: machine::Call, arguments: &[u64; 6]) -> i64 {
    let millis = |argument: u64| match argument as i32 {
        ..0 => -1,
        millis => i64::from(millis) * 1_000_000,
    };
    let pointed = |address: u64, unit: i64| {
        let mut time = [0; 16];
        if address == 0 {
            return -1;
        }
        if read_memory(process, address, &mut time) < time.len() {
            return UNKNOWN;
        }
        let word = |at: usize| i64::from_ne_bytes(time[at..at + 8].try_into().expect("8 bytes"));
        word(0).saturating_mul(1_000_000_000).saturating_add(word(8).saturating_mul(unit))
    };
    match call {
        machine::Call::EpollWait => millis(arguments[3]),
        machine::Call::Poll => millis(arguments[2]),
        machine::Call::EpollWait2 => pointed(arguments[3], 1),
        machine::Call::Ppoll => pointed(arguments[2], 1),
        machine::Call::Pselect => pointed(arguments[4], 1),
        machine::Call::Select => pointed(arguments[4], 1_000),
        _ => UNKNOWN,
    }
}
