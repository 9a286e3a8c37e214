//! Figures over a time: counts, registered descriptors, and ratios of both.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::counters::{Counts, Key, Kind};
use crate::process::{self, Registered};
use crate::watch::{Ended, Method, Watch};

/// The counts at a moment.
#[derive(Clone, Debug)]
pub struct Sample {
    at: Instant,
    counts: BTreeMap<Key, Counts>,
    processor: BTreeMap<u32, f64>,
    /// Processes that are missing, see [`Report::forgotten`].
    forgotten: u64,
}

/// A set as it was when it was first seen.
#[derive(Clone, Debug)]
struct FirstSeen {
    /// `None` if it was gone already.
    registered: Option<Registered>,
    /// Additions less removals until then.
    changes: i64,
}

impl FirstSeen {
    fn total(&self) -> u64 {
        self.registered.as_ref().map_or(0, Registered::total)
    }
}

/// Follows a watch: it learns the names and the registered descriptors of processes as they appear.
#[derive(Debug)]
pub struct Monitor {
    watch: Watch,
    names: BTreeMap<u32, String>,
    processor: BTreeMap<u32, f64>,
    /// Processor times at the start; those of processes that were not there yet are missing.
    processor_at_start: BTreeMap<u32, f64>,
    sets: BTreeMap<Key, FirstSeen>,
    /// Distinct active ones, added up over ticks, and of the last tick.
    distinct: BTreeMap<Key, f64>,
    lately: BTreeMap<Key, f64>,
    /// Ticks whose active ones are in the sums.
    ticks: u32,
    ticked: Instant,
    /// Processes that have been seen and are not known to have ended, with the times at which they
    /// were started: their numbers may be those of others by now.
    seen: BTreeMap<u32, Option<u64>>,
}

/// A shorter time between two ticks is the last one's, and no second.
const MOST_OF_A_SECOND: Duration = Duration::from_millis(900);

/// How often the sets of a process are read until they do not change meanwhile.
const READINGS: u32 = 8;

/// Figures of a process over a time.
#[derive(Clone, Debug)]
pub struct ProcessReport {
    /// The number of the process.
    pub process: u32,
    /// Its name, empty if it ended before it could be read.
    pub name: String,
    /// The share of one processor that it used; more than 1 with several.
    pub processor: f64,
    /// Its reads and accepts.
    pub calls: Counts,
    /// Its sets, arrays and rings, the busiest first.
    pub sets: Vec<SetReport>,
}

/// Figures of an epoll set, of `poll` or `select` arrays of similar length, or of a ring.
#[derive(Clone, Debug)]
pub struct SetReport {
    /// The set, the arrays or the ring.
    pub key: Key,
    /// The counts in this time.
    pub counts: Counts,
    /// The registered descriptors when the set was first seen; of an epoll set that still existed.
    pub registered: Option<Registered>,
    /// How many are watched now, by counting: of an epoll set the first ones and all changes since,
    /// of an array the mean length.
    pub watched: f64,
    /// How many the kernel has registered at the end. Differs from `watched` by the drift.
    pub registered_at_end: Option<u64>,
    /// Distinct descriptors of an epoll set that were active in a second, on average.
    pub active: f64,
}

/// Figures over a time.
#[derive(Clone, Debug)]
pub struct Report {
    /// The time, in seconds.
    pub seconds: f64,
    /// The watched processes that have made a call that counts, the busiest first.
    pub processes: Vec<ProcessReport>,
    /// Calls that were not counted since there was no slot left, at least.
    pub overflow: u64,
    /// Processes that a watched one has started and that are not watched, for the same reason.
    pub unfollowed: u64,
    /// How many processes, sets and kinds of arrays can be watched at a time.
    pub slots: usize,
    /// Processes that have ended and that are not in this report, as there were too many.
    pub forgotten: u64,
    /// Waits, reads, accepts and `epoll_ctl` of 32-bit programs, which are not counted.
    pub compat_calls: u64,
    /// By how many nanoseconds a call took longer meanwhile, see
    /// [`overhead`](crate::Watch::overhead).
    pub overhead_ns: u64,
    /// How calls were counted.
    pub method: Method,
    /// Processes that have loaded the library, of [`Method::Preload`].
    pub loaded: u64,
}

impl Report {
    /// Whether a wait has ended. Otherwise there is nothing to judge.
    pub fn has_waits(&self) -> bool {
        let mut sets = self.processes.iter().flat_map(|process| &process.sets);
        sets.any(|set| set.counts.waits() > 0)
    }
}

impl SetReport {
    /// Events per wait, waits without events included.
    pub fn events_per_wait(&self) -> f64 {
        ratio(self.counts.events() as f64, good_waits(&self.counts))
    }

    /// The descriptors that are watched: those that the kernel has at the end if it was asked, as
    /// many programs close descriptors without a call that could be counted.
    pub fn present(&self) -> f64 {
        self.registered_at_end.map_or(self.watched, |end| end as f64)
    }

    /// The active/total ratio of a second, of an epoll set. Descriptors that came and went within
    /// the second were registered in it, so it is at most 1.
    pub fn active_ratio(&self) -> f64 {
        ratio(self.active, self.present().max(self.active))
    }

    /// The active/total ratio of a wait: the share of the watched descriptors that it reports.
    pub fn ratio(&self) -> f64 {
        ratio(self.events_per_wait(), self.present())
    }
}

/// Returns 0 for nothing of nothing.
fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

impl Monitor {
    /// Begins to follow. The sets of `process` are read at once; without one, those of a process
    /// are read when it is first seen.
    pub fn new(watch: Watch, process: Option<u32>) -> Monitor {
        let mut monitor = Monitor {
            ticked: watch.started(),
            watch,
            names: BTreeMap::new(),
            processor: BTreeMap::new(),
            processor_at_start: BTreeMap::new(),
            sets: BTreeMap::new(),
            distinct: BTreeMap::new(),
            lately: BTreeMap::new(),
            ticks: 0,
            seen: BTreeMap::new(),
        };
        if let Some(process) = process {
            monitor.see(process);
            monitor.processor_at_start = monitor.processor.clone();
        } else {
            monitor.processor_at_start = process::all_processor_times();
        }
        monitor
    }

    /// The watch, to start a program or to end.
    pub fn watch_mut(&mut self) -> &mut Watch {
        &mut self.watch
    }

    /// The watch.
    pub fn watch(&self) -> &Watch {
        &self.watch
    }

    /// Returns the moment at which counting began.
    pub fn start(&self) -> Sample {
        let at = self.watch.started();
        let processor = self.processor_at_start.clone();
        Sample { at, counts: BTreeMap::new(), processor, forgotten: 0 }
    }

    /// Reads the counts. To be called once a second, as distinct active descriptors are counted
    /// from call to call.
    pub fn tick(&mut self) -> Sample {
        // What these have counted is complete in what is read after this.
        let ended = self.watch.ended();
        let counts = self.watch.counts();
        let forgotten = self.watch.forgotten();
        let at = Instant::now();
        for process in self.watch.processes() {
            if !self.seen.contains_key(&process) {
                self.see(process);
            }
        }
        // A set that was made since.
        let unknown: BTreeSet<u32> = counts
            .keys()
            .filter(|key| key.kind == Kind::Epoll && !self.sets.contains_key(key))
            .map(|key| key.process)
            .collect();
        for process in unknown {
            self.read_sets(process);
        }
        // In a part of a second there are fewer than in a second, and more than in its share.
        if self.ticks == 0 || at - self.ticked >= MOST_OF_A_SECOND {
            self.lately = self.watch.take_distinct();
            for (key, distinct) in &self.lately {
                *self.distinct.entry(*key).or_default() += distinct;
            }
            self.ticks += 1;
            self.ticked = at;
        }
        let same = self.seen.keys().copied().filter(|process| self.is_same(*process));
        for process in same.collect::<Vec<_>>() {
            if let Some(time) = process::processor_time(process) {
                self.processor.insert(process, time);
            }
            // A program that was executed since has another name.
            if let Some(name) = process::name(process) {
                self.names.insert(process, name);
            }
        }
        self.forget(&ended);
        Sample { at, counts, processor: self.processor.clone(), forgotten }
    }

    /// Asks no more for processes that have ended: their numbers may be those of others.
    fn forget(&mut self, ended: &Ended) {
        for process in ended.processes() {
            self.seen.remove(&process);
        }
        for process in self.watch.give_back(ended) {
            self.names.remove(&process);
            self.processor.remove(&process);
            for sets in [&mut self.distinct, &mut self.lately] {
                sets.retain(|key, _| key.process != process);
            }
            self.sets.retain(|key, _| key.process != process);
        }
    }

    /// Whether a number is still that of the process that was seen.
    fn is_same(&self, process: u32) -> bool {
        let began = self.seen.get(&process).copied().flatten();
        began.is_some() && process::began(process) == began
    }

    fn see(&mut self, process: u32) {
        self.seen.insert(process, process::began(process));
        match process::name(process) {
            Some(name) => _ = self.names.insert(process, name),
            None => _ = self.names.entry(process).or_default(),
        }
        if let Some(time) = process::processor_time(process) {
            self.processor.insert(process, time);
        }
        self.read_sets(process);
    }

    /// Reads the sets of a process that are not known yet. A set that is gone, as the process may
    /// be, had nothing registered before it was counted.
    ///
    /// Changes while they are read would count twice. So they are read again until there were none;
    /// a program that changes its sets all the time is a few descriptors off.
    fn read_sets(&mut self, process: u32) {
        let of = |counts: &BTreeMap<u32, Counts>, id: u32| counts.get(&id).map_or(0, changes);
        let mut counts = self.watch.epoll_sets(process);
        let mut found = BTreeMap::new();
        for _ in 0..READINGS {
            found = process::epoll_sets(process);
            let earlier = std::mem::replace(&mut counts, self.watch.epoll_sets(process));
            if found.keys().all(|id| of(&earlier, *id) == of(&counts, *id)) {
                break;
            }
        }
        let gone = counts.keys().filter(|id| !found.contains_key(id));
        let gone: Vec<(u32, FirstSeen)> =
            gone.map(|id| (*id, FirstSeen { registered: None, changes: 0 })).collect();
        let there = found.into_iter().map(|(id, registered)| {
            (id, FirstSeen { registered: Some(registered), changes: of(&counts, id) })
        });
        for (id, first) in there.chain(gone) {
            self.sets.entry(Key { process, kind: Kind::Epoll, id }).or_insert(first);
        }
    }

    /// Returns the figures of the time between two samples. `is_last` reads the registered
    /// descriptors again.
    pub fn report(&self, from: &Sample, to: &Sample, is_last: bool) -> Report {
        let seconds = (to.at - from.at).as_secs_f64();
        let is_whole = from.at == self.watch.started();
        let mut keys: BTreeSet<Key> = to.counts.keys().copied().collect();
        // Sets that did nothing are shown, too.
        keys.extend(self.sets.iter().filter(|(_, set)| set.total() > 0).map(|(key, _)| *key));
        let mut processes: BTreeMap<u32, ProcessReport> = BTreeMap::new();
        let mut at_end: BTreeMap<u32, BTreeMap<u32, Registered>> = BTreeMap::new();
        for key in keys {
            let all = to.counts.get(&key).cloned().unwrap_or_default();
            let counts = match from.counts.get(&key) {
                Some(earlier) => all.since(earlier),
                None => all.clone(),
            };
            let process = processes.entry(key.process).or_insert_with(|| ProcessReport {
                process: key.process,
                name: self.names.get(&key.process).cloned().unwrap_or_default(),
                processor: ratio(
                    // A number that another process has got begins again.
                    (to.processor.get(&key.process).copied().unwrap_or_default()
                        - from.processor.get(&key.process).copied().unwrap_or_default())
                    .max(0.0),
                    seconds,
                ),
                calls: Counts::default(),
                sets: Vec::new(),
            });
            if key.kind == Kind::Process {
                process.calls = counts;
                continue;
            }
            let first = self.sets.get(&key);
            let watched = match key.kind {
                Kind::Poll | Kind::Select => ratio(counts.watched() as f64, good_waits(&counts)),
                Kind::Epoll => {
                    let first = first.map_or(0, |set| set.total() as i64 - set.changes);
                    (first + changes(&all)).max(0) as f64
                }
                Kind::Ring | Kind::RegisteredRing | Kind::Process => 0.0,
            };
            // The number of a process that has ended may be that of another.
            let is_there = is_last && self.is_same(key.process);
            let registered_at_end = (is_there && key.kind == Kind::Epoll).then(|| {
                let sets = at_end.entry(key.process);
                let sets = sets.or_insert_with(|| process::epoll_sets(key.process));
                sets.get(&key.id).map(Registered::total)
            });
            let distinct = if is_whole { &self.distinct } else { &self.lately };
            let over = if is_whole { self.ticks } else { 1 };
            process.sets.push(SetReport {
                key,
                counts,
                registered: first.and_then(|set| set.registered.clone()),
                watched,
                registered_at_end: registered_at_end.flatten(),
                active: ratio(distinct.get(&key).copied().unwrap_or_default(), over.into()),
            });
        }
        let mut processes: Vec<ProcessReport> = processes.into_values().collect();
        for process in &mut processes {
            process
                .sets
                .sort_by_key(|set| std::cmp::Reverse((set.counts.waits(), set.counts.controls())));
        }
        processes.sort_by_key(|process| {
            std::cmp::Reverse(process.sets.iter().map(|set| set.counts.waits()).sum::<u64>())
        });
        Report {
            seconds,
            processes,
            overflow: self.watch.overflow(),
            unfollowed: self.watch.unfollowed(),
            slots: self.watch.slots(),
            forgotten: to.forgotten,
            compat_calls: self.watch.compat_calls(),
            overhead_ns: self.watch.overhead().as_nanos() as u64,
            method: self.watch.method(),
            loaded: self.watch.loaded(),
        }
    }
}

/// Returns the waits that have not failed.
fn good_waits(counts: &Counts) -> f64 {
    (counts.waits() - counts.failed()) as f64
}

/// Returns additions less removals.
fn changes(counts: &Counts) -> i64 {
    counts.added() as i64 - counts.removed() as i64
}
