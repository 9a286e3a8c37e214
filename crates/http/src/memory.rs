//! Memory that the process holds and does not use.
//!
//! An allocator keeps freed memory, since the process may need it again. glibc's allocator gives
//! back only the free memory at the end of a heap: memory below a block that is in use stays
//! resident for as long as that block lives. After a flood of requests that may be gigabytes. So
//! this module checks the heaps from time to time. When much of them is free and the process has
//! stopped growing, it tells the allocator to give the free memory back.
//!
//! A check costs a few microseconds a second: the resident size is read from a file. The heaps
//! themselves are checked only after the resident size has changed, or after the load has fallen to
//! half of its peak; otherwise less and less often, at least every half a minute. Memory is given
//! back once the process has stopped growing, and not again before the heaps have much more free
//! memory than was left the last time. Where memory is given back often, as the process soon needs
//! it again, it is given back more and more rarely, up to once a minute. When the load then stays
//! low, as after the last of several attacks, that is no reason to wait any longer.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use crate::sys;

/// The least time between two checks.
const PERIOD: Duration = Duration::from_millis(900);

/// The most checks between two checks of the heaps.
const SELDOM: u32 = 32;

/// For how many checks the load has to stay low.
const LOW: u32 = 2;

/// The least number of checks between two times at which memory is given back: where that is rare,
/// and where it is frequent.
const RESTS: (u32, u32) = (3, 64);

/// For how many checks the load has to stay low for memory to be given back however often that was
/// done before.
const CALM: u32 = 10;

/// The least change of the resident size that counts as a change.
const CHANGE: usize = 4 << 20;

/// The least memory that is given back.
const MUCH: usize = 8 << 20;

/// The observations of the process, all in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Policy {
    /// The resident size at the last check.
    last: usize,
    /// The resident size when the heaps were last checked.
    looked: usize,
    /// The peak load since then, and the number of checks in a row at which the load was at most
    /// half of the peak.
    peak: u64,
    low: u32,
    /// The peak load since memory was last given back, and the number of checks in a row at which
    /// the load was at most half of that.
    flood: u64,
    calm: u32,
    /// The free memory in the heaps after some was given back, or the lowest value since.
    left: usize,
    /// The number of checks until the heaps are checked in any case, and its current initial value.
    countdown: u32,
    pause: u32,
    /// The checks since memory was last given back, and the least number that there has to be.
    since: u32,
    rest: u32,
}

impl Policy {
    /// Whether it is time to check the heaps.
    fn is_due(&mut self, resident: usize, load: u64) -> bool {
        let grows = resident > self.last + CHANGE;
        // The process grows into free memory that was given back, too: this much of it is used
        // again, and may be given back again, even if no check of the heaps comes in between.
        self.left = self.left.saturating_sub(resident.saturating_sub(self.last));
        self.last = resident;
        self.peak = self.peak.max(load);
        self.countdown = self.countdown.saturating_sub(1);
        self.since = self.since.saturating_add(1);
        self.flood = self.flood.max(load);
        self.calm = if load <= self.flood / 2 { self.calm.saturating_add(1) } else { 0 };
        self.low = if self.peak > 16 && load <= self.peak / 2 { self.low + 1 } else { 0 };
        if grows {
            self.pause = 1;
            return false;
        }
        let has_changed = resident.abs_diff(self.looked) > CHANGE;
        if has_changed || self.low >= LOW {
            self.pause = 1;
        } else if self.countdown > 0 {
            return false;
        }
        self.looked = resident;
        self.peak = load;
        self.pause = (self.pause * 2).clamp(2, SELDOM);
        self.countdown = self.pause;
        true
    }

    /// Whether to give back the free memory in the heaps.
    fn gives(&mut self, free: usize) -> bool {
        self.left = self.left.min(free);
        if free - self.left < MUCH.max(self.last / 8) {
            return false;
        }
        if self.since < self.rest && self.calm < CALM {
            self.countdown = (self.rest - self.since).min(CALM - self.calm);
            return false;
        }
        true
    }

    /// Notes that memory was given back, and how much free memory is left.
    fn gave(&mut self, resident: usize, free: usize) {
        (self.last, self.looked, self.left) = (resident, resident, free);
        let is_often = self.since <= RESTS.1;
        self.rest = if is_often { (self.rest * 2).clamp(RESTS.0, RESTS.1) } else { RESTS.0 };
        self.since = 0;
        (self.flood, self.calm) = (0, 0);
    }
}

struct State {
    file: File,
    policy: Policy,
    /// The time of the last check, and the sum of the loads that engines have reported since.
    at: Instant,
    load: u64,
}

static STATE: Mutex<Option<State>> = Mutex::new(None);

/// Returns the resident size of the process, in bytes (`proc_pid_statm(5)`).
fn resident(file: &File) -> Option<usize> {
    let mut room = [0; 128];
    let length = file.read_at(&mut room, 0).ok()?;
    let text = std::str::from_utf8(&room[..length]).ok()?;
    let pages: usize = text.split(' ').nth(1)?.parse().ok()?;
    Some(pages * sys::page_size())
}

/// Gives free memory back, if it is time. Each engine calls this about once a second, with its
/// load.
pub(crate) fn check(load: u64) {
    let mut state = match STATE.try_lock() {
        Ok(state) => state,
        // Another engine is at it.
        Err(TryLockError::WouldBlock) => return,
        Err(TryLockError::Poisoned(error)) => PoisonError::into_inner(error),
    };
    let now = Instant::now();
    let state = match &mut *state {
        Some(state) => state,
        none => {
            let Ok(file) = File::open("/proc/self/statm") else { return };
            let policy = Policy { last: resident(&file).unwrap_or(0), ..Policy::default() };
            none.insert(State { file, policy, at: now, load: 0 })
        }
    };
    state.load += load;
    if now.saturating_duration_since(state.at) < PERIOD {
        return;
    }
    state.at = now;
    let load = std::mem::take(&mut state.load);
    let Some(found) = resident(&state.file) else { return };
    if state.policy.is_due(found, load) && state.policy.gives(sys::free_memory()) {
        sys::give_memory_back();
        let found = resident(&state.file).unwrap_or(found);
        state.policy.gave(found, sys::free_memory());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    /// A process: the memory in use, and the free memory that is resident.
    #[derive(Default)]
    struct Process {
        used: usize,
        free: usize,
        /// The free memory that was given back.
        hollow: usize,
        policy: Policy,
        looks: usize,
        given: usize,
    }

    impl Process {
        /// Uses this much memory for this many requests, for some seconds.
        fn runs(&mut self, used: usize, load: u64, seconds: usize) {
            for _ in 0..seconds {
                if used > self.used {
                    let more = used - self.used;
                    let from_free = more.min(self.free);
                    self.free -= from_free;
                    self.hollow -= self.hollow.min(more - from_free);
                } else {
                    self.free += self.used - used;
                }
                self.used = used;
                if !self.policy.is_due(self.used + self.free, load) {
                    continue;
                }
                self.looks += 1;
                if self.policy.gives(self.free + self.hollow) {
                    self.given += 1;
                    (self.free, self.hollow) = (0, self.free + self.hollow);
                    self.policy.gave(self.used, self.hollow);
                }
            }
        }
    }

    #[test]
    fn memory_is_given_back_soon_after_a_flood() {
        let mut process = Process::default();
        process.runs(20 * MIB, 10, 60);
        process.runs(600 * MIB, 1000, 1);
        process.runs(1000 * MIB, 5000, 30);
        assert_eq!(process.given, 0);
        process.runs(30 * MIB, 5, 3);
        assert_eq!((process.given, process.free), (1, 0));
        // Memory is given back as well if the number of requests shows nothing.
        process.runs(900 * MIB, 5, 100);
        process.runs(40 * MIB, 5, 35);
        assert_eq!((process.given, process.free), (2, 0));
    }

    #[test]
    fn memory_is_given_back_after_a_second_flood_that_is_smaller_and_short() {
        let mut process = Process::default();
        process.runs(1000 * MIB, 5000, 30);
        process.runs(30 * MIB, 5, 100);
        assert_eq!((process.given, process.free), (1, 0));
        // It fits into what was given back, and ends before the heaps are checked.
        process.runs(600 * MIB, 5000, 1);
        process.runs(30 * MIB, 5, 100);
        assert_eq!((process.given, process.free), (2, 0));
    }

    #[test]
    fn memory_is_given_back_after_the_last_of_many_floods() {
        let mut process = Process::default();
        process.runs(30 * MIB, 5, 60);
        // They come until memory was given back often enough for a long pause.
        let pause = |process: &Process| process.policy.rest.saturating_sub(process.policy.since);
        for _ in 0..100 {
            process.runs(110 * MIB, 1000, 2);
            process.runs(30 * MIB, 5, 4);
            if pause(&process) > 30 && process.free > 0 {
                break;
            }
        }
        assert!(pause(&process) > 30 && process.free > 0, "{:?}", process.policy);
        process.runs(30 * MIB, 5, CALM as usize);
        assert_eq!(process.free, 0, "{:?}", process.policy);
        let given = process.given;
        process.runs(30 * MIB, 5, 600);
        assert_eq!(process.given, given);
    }

    #[test]
    fn idle_and_always_busy_processes_keep_their_memory() {
        let mut process = Process::default();
        process.runs(20 * MIB, 0, 3600);
        assert_eq!(process.given, 0);
        assert!(process.looks <= 3600 / 32 + 10, "{}", process.looks);
        // The process needs now more memory, now less, and each time leaves less than is worth
        // giving back.
        let mut process = Process::default();
        for _ in 0..1000 {
            process.runs(500 * MIB, 1000, 1);
            process.runs(460 * MIB, 900, 1);
        }
        assert_eq!(process.given, 0);
        // Where it is worth giving back, a load that comes and goes fast has its memory given back
        // rarely.
        let mut process = Process::default();
        for _ in 0..1000 {
            process.runs(500 * MIB, 1000, 1);
            process.runs(100 * MIB, 100, 1);
        }
        assert!(process.given <= 2000 / 64 + 10, "{}", process.given);
    }
}
