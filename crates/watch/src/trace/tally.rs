//! Counts of traced calls, as the programs of BPF count them.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::counters::{BITMAP, Global, Key, WORDS, Word};
use crate::machine::{self, Machine};
use crate::outcome::{self, Outcome, UNKNOWN};
use crate::process;
use crate::program::{RESTART, RESTART_BLOCK, RESTART_NO_HANDLER, RESULTS};
use crate::sys::SharedWords;
use crate::sys::trace::{Call, read_memory};

/// A wait that takes less has not slept: the two stops of a call take a part of that.
const SLEEP_NS: i64 = 100_000;

/// A call that a thread has entered.
#[derive(Debug)]
struct Entered {
    call: machine::Call,
    arguments: [u64; 6],
    at: Instant,
    timeout: i64,
    /// The kernel makes it again, or continues it, unless a handler runs.
    is_interrupted: bool,
}

#[derive(Debug, Default)]
struct Thread {
    process: u32,
    entered: Option<Entered>,
    /// It is in a call of a 32-bit program that would count.
    is_compat: bool,
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
        // One that was interrupted has returned already. Its process may have been stopped.
        if let Some(of) = self.threads.get_mut(&thread) {
            of.entered = of.entered.take().filter(|entered| entered.is_interrupted);
        }
    }

    fn count_globally(&self, word: Global) {
        self.globals.words()[word as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Notes the entry of a call, or counts it at its exit.
    pub(crate) fn call(&mut self, thread: u32, call: Call) {
        match call {
            Call::Entry { number, arguments, is_native } => {
                let entry = self.threads.entry(thread).or_default();
                if entry.process == 0 {
                    entry.process = process::of_thread(thread).unwrap_or(thread);
                }
                let before = entry.entered.take().filter(|before| before.is_interrupted);
                let mut compat = self.machine.compat_calls.iter();
                entry.is_compat = !is_native && compat.any(|one| u64::from(*one) == number);
                if !is_native {
                    return;
                }
                if number == u64::from(self.machine.restart) {
                    entry.entered = before.map(|of| Entered { is_interrupted: false, ..of });
                    return;
                }
                let calls = self.machine.calls;
                let Some((_, call)) = calls.iter().find(|(one, _)| u64::from(*one) == number)
                else {
                    return;
                };
                let (mut at, mut timeout) =
                    (Instant::now(), timeout(entry.process, *call, &arguments));
                // One that is made again has begun before. Its timeout is what was left.
                if let Some(before) = before.filter(|before| before.call == *call) {
                    if timeout > 0 {
                        timeout = timeout.saturating_add((at - before.at).as_nanos() as i64);
                    }
                    at = before.at;
                }
                entry.entered =
                    Some(Entered { call: *call, arguments, at, timeout, is_interrupted: false });
            }
            Call::Exit { result } => {
                let Some(of) = self.threads.get_mut(&thread) else { return };
                let is_again = result <= i64::from(RESTART);
                if std::mem::take(&mut of.is_compat) && !is_again {
                    self.count_globally(Global::Compat);
                    return;
                }
                let (process, Some(mut entered)) = (of.process, of.entered.take()) else { return };
                if !is_again || !entered.call.waits() {
                    self.count(thread, process, &entered, result);
                } else if [RESTART_NO_HANDLER, RESTART_BLOCK].map(i64::from).contains(&result) {
                    entered.is_interrupted = true;
                    of.entered = Some(entered);
                }
            }
        }
    }

    /// Counts an interrupted wait as one that failed, if this signal has a handler.
    pub(crate) fn signal(&mut self, thread: u32, signal: i32) {
        let Some(of) = self.threads.get_mut(&thread) else { return };
        let process = of.process;
        let is_over = |of: &mut Entered| of.is_interrupted && process::catches(thread, signal);
        if let Some(entered) = of.entered.take_if(is_over) {
            self.count(thread, process, &entered, -i64::from(libc::EINTR));
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
        self.counters.words()[slot * WORDS + Word::Key as usize]
            .store(key.word(), Ordering::Relaxed);
        next.store(slot as u64 + 1, Ordering::Release);
        self.slots.insert(key, slot);
        Some(slot)
    }

    fn count(&mut self, thread: u32, process: u32, entered: &Entered, result: i64) {
        let outcome = Outcome {
            call: entered.call,
            arguments: entered.arguments,
            timeout: entered.timeout,
            took: i64::try_from(entered.at.elapsed().as_nanos()).unwrap_or(i64::MAX),
            result,
        };
        let Some(slot) = outcome.key(process, thread).and_then(|key| self.slot(key)) else {
            return;
        };
        let words = &self.counters.words()[slot * WORDS..][..WORDS];
        let mut none = 0;
        let full = self.threads.get_mut(&thread).map_or(&mut none, |of| &mut of.full);
        outcome.count(words, slot, full, SLEEP_NS);
        if matches!(entered.call, machine::Call::EpollWait | machine::Call::EpollWait2) {
            self.note_data(process, slot, entered.arguments[1], result);
        }
    }

    /// Sets the bits of the data of the first results of an epoll set.
    fn note_data(&self, process: u32, slot: usize, address: u64, result: i64) {
        let (size, at) = self.machine.event;
        let (size, at) = (size as usize, at as usize);
        let count = result.clamp(0, RESULTS.into()) as usize;
        let mut events = [0; RESULTS as usize * 16];
        let events = &mut events[..count * size];
        let read = if count > 0 { read_memory(process, address, events) } else { 0 };
        let data = events[..read]
            .chunks_exact(size)
            .map(|event| u64::from_ne_bytes(event[at..at + 8].try_into().expect("8 bytes")));
        outcome::note_data(&self.bitmaps.words()[slot * BITMAP..][..BITMAP], data);
    }
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
