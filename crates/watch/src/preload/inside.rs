//! The side of the program that is watched. Nothing here takes a lock or memory once it is open,
//! but for waits that fill their room, so it may run in the handler of a signal and in a process
//! that was just forked.

use std::cell::Cell;
use std::env;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{LAYOUT, MEMORY, MEMORY_VARIABLE, Parts, SLOTS};
use crate::counters::{BITMAP, Global, Key, WORDS, Word};
use crate::machine::Call;
use crate::outcome::{self, Outcome};
use crate::program::{RESULTS, SLEEP_NS};
use crate::sys::{self, SharedWords};

/// The counters of a watch, in a process that it watches.
#[derive(Debug)]
pub struct Inside {
    parts: Parts,
    /// The number of this process, or 0 if it is not known yet. A fork may take place without the C
    /// library, so the kernel clears it.
    process: SharedWords,
}

/// How many slots are tried for a key. With this many, nearly all are taken before one is missing.
const PROBES: usize = 128;

thread_local! {
    /// 1 + the slot of the last wait of this thread, if that was full.
    static FULL: Cell<usize> = const { Cell::new(0) };
}

impl Inside {
    /// Opens the counters that the environment names. `None` if there are none, or those of a watch
    /// that has ended, or if the watch has another layout.
    pub fn open() -> Option<Inside> {
        let place = env::var_os(MEMORY_VARIABLE)?;
        // The number of that process, and its descriptor, may be in use again.
        let to = fs::read_link(&place).ok()?;
        if !to.to_string_lossy().starts_with("/memfd:superpoll-watch") {
            return None;
        }
        let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
        let memory = OpenOptions::new().read(true).write(true).custom_flags(flags).open(place);
        let memory = memory.ok()?;
        if memory.metadata().ok()?.len() != 8 * MEMORY as u64 {
            return None;
        }
        let inside = Inside {
            parts: Parts::of(&memory).ok()?,
            process: SharedWords::zeroed_by_fork(1).ok()?,
        };
        if !inside.is_wanted() {
            return None;
        }
        inside.note_process();
        inside.parts.global(Global::Loaded).fetch_add(1, Ordering::Relaxed);
        Some(inside)
    }

    /// Whether the watch has not ended.
    pub fn is_wanted(&self) -> bool {
        self.parts.global(Global::Layout).load(Ordering::Acquire) == LAYOUT
    }

    /// The time in nanoseconds of the clock that waits are measured by.
    pub fn now() -> i64 {
        sys::monotonic_ns() as i64
    }

    /// Counts a call of this thread. `data` are those of the events that an epoll set has returned.
    pub fn count(&self, outcome: &Outcome, data: impl Iterator<Item = u64>) {
        // Rings are not seen here, which alone are told by their thread.
        let Some(key) = outcome.key(self.process(), 0) else { return };
        let Some(slot) = self.slot(key) else {
            self.parts.global(Global::Overflow).fetch_add(1, Ordering::Relaxed);
            return;
        };
        let words = &self.parts.counters.words()[slot * WORDS..][..WORDS];
        // The C library may take memory for what a thread has of its own, and a handler of a signal
        // must not. So this is only asked for where it matters: almost no wait is full.
        if outcome.is_full() || words[Word::Full as usize].load(Ordering::Relaxed) != 0 {
            FULL.with(|of| {
                let mut full = of.get();
                outcome.count(words, slot, &mut full, SLEEP_NS.into());
                of.set(full);
            });
        } else {
            outcome.count(words, slot, &mut 0, SLEEP_NS.into());
        }
        let bitmap = &self.parts.bitmaps.words()[slot * BITMAP..][..BITMAP];
        outcome::note_data(bitmap, data.take(RESULTS as usize));
    }

    /// Notes the number of this process. To be called in a process that was just forked, which may
    /// not be permitted to ask for it later.
    pub fn note_process(&self) -> u32 {
        let process = std::process::id();
        self.process.words()[0].store(process.into(), Ordering::Relaxed);
        process
    }

    fn process(&self) -> u32 {
        match self.process.words()[0].load(Ordering::Relaxed) {
            0 => self.note_process(),
            process => process as u32,
        }
    }

    /// Returns the slot of a key, a free one if it has none yet. A call must not take long that
    /// finds none, so few are tried.
    fn slot(&self, key: Key) -> Option<usize> {
        let key = key.word();
        let first = outcome::hash(key);
        (first..first + PROBES).map(|slot| slot % SLOTS).find(|slot| {
            let word = &self.parts.counters.words()[slot * WORDS + Word::Key as usize];
            let found = match word.load(Ordering::Relaxed) {
                0 => word
                    .compare_exchange(0, key, Ordering::Relaxed, Ordering::Relaxed)
                    .map_or_else(|other| other, |_| key),
                found => found,
            };
            found == key
        })
    }
}

/// Measures how long it takes to count a wait with an event.
///
/// # Errors
///
/// There is no memory.
pub(crate) fn measure() -> io::Result<Duration> {
    const SERIES: u32 = 200;
    const WAITS: u32 = 20;
    let memory = sys::memory(c"measure", MEMORY)?;
    let inside = Inside { parts: Parts::of(&memory)?, process: SharedWords::zeroed_by_fork(1)? };
    let series = |_| {
        let begun = Inside::now();
        for _ in 0..WAITS {
            let took = -Inside::now();
            let outcome = Outcome {
                call: Call::EpollWait,
                arguments: [3, 0, 64, 0, 0, 0],
                timeout: -1,
                took: took + Inside::now(),
                result: 1,
            };
            inside.count(&outcome, std::iter::once(7));
        }
        (Inside::now() - begun) as u64
    };
    let shortest = (0..SERIES).map(series).min().unwrap_or_default();
    Ok(Duration::from_nanos(shortest / u64::from(WAITS)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_has_a_slot_until_there_is_none_and_then_calls_are_counted_as_missing() {
        let memory = sys::memory(c"test", MEMORY).unwrap();
        let parts = Parts::of(&memory).unwrap();
        let inside = Inside { parts, process: SharedWords::zeroed_by_fork(1).unwrap() };
        let outcome = |set: usize| Outcome {
            call: Call::EpollWait,
            arguments: [set as u64, 0, 1, 0, 0, 0],
            timeout: 0,
            took: 0,
            result: 0,
        };
        // Threads that want the same slots at once.
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    (0..SLOTS + 5).for_each(|set| inside.count(&outcome(set), std::iter::empty()));
                });
            }
        });
        let words = inside.parts.counters.words();
        let word =
            |slot: usize, word: Word| words[slot * WORDS + word as usize].load(Ordering::Relaxed);
        let taken = (0..SLOTS).filter(|slot| word(*slot, Word::Key) != 0);
        let mut keys: Vec<u64> = taken.map(|slot| word(slot, Word::Key)).collect();
        let all = keys.len() as u64;
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len() as u64, all, "no key has two slots");
        assert!(all > SLOTS as u64 * 9 / 10, "{all}");
        let looks: u64 = (0..SLOTS).map(|slot| word(slot, Word::Looks)).sum();
        let missing = inside.parts.global(Global::Overflow).load(Ordering::Relaxed);
        // A key has a slot or has none, for all threads.
        assert_eq!((looks, missing), (4 * all, 4 * (SLOTS as u64 + 5 - all)));
    }
}
