//! Wake-ups of a loop that blocks: from right before a write until the subject has read the byte.
//!
//! The writer is a child process on another processor, forked before there are threads: a second
//! thread would make the descriptor lookups of this process more expensive, and a writer on the
//! same processor would measure the scheduler. It receives the number of the pair to write to and a
//! delay. After the delay it looks at the state of the loop's thread (`/proc/thread-self/stat`,
//! opened by the loop before the fork) until the thread sleeps, notes the time in memory that both
//! share, and writes. A loop that did not fall asleep is written to all the same, and the wake-up
//! is marked, so that the caller can leave it out.
//!
//! Each wake-up waits until the previous wake-up is over. Nothing is due at a fixed time, so no
//! wake-up is late because another was slow, and none is left out for it: coordinated omission
//! cannot happen.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use superpoll::BackendKind;

use crate::budget::Budget;
use crate::channel::{Kind, Pairs};
use crate::error::{Doing, Error, Result};
use crate::experiment::Figure;
use crate::load::Load;
use crate::random::Random;
use crate::record::Record;
use crate::run::Run;
use crate::second_thread::SecondThread;
use crate::subject::{Entry, ReadLog, Subject};
use crate::sys::memory::SharedNumbers;
use crate::sys::{descriptor, process};
use crate::{measure, options, statistics};

/// The quiet before a wake-up, in nanoseconds, and by how much it varies.
pub(crate) const QUIET: (u64, u64) = (5_000_000, 1_000_000);

/// The most looks at a loop that does not fall asleep, and the pause between two looks in
/// nanoseconds.
const LOOKS: (usize, u64) = (10_000, 100_000);

/// One wake-up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct WakeUp {
    /// From right before the write until the byte was read, in nanoseconds.
    ns: u64,
    /// Whether the loop was seen asleep right before the write.
    slept: bool,
}

/// A subject's rounds of the load before its first wake-up, and before each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Busy {
    /// When it is new, if it adapts.
    pub first_adaptive: usize,
    /// When it is new, if it does not.
    pub first: usize,
    /// Before each wake-up.
    pub between: usize,
}

/// Returns the requested subjects that can wait here, and why the rest is left out.
pub(crate) fn subjects(
    names: Option<&str>,
    defaults: &[&str],
) -> Result<(Vec<Entry>, Vec<String>)> {
    let mut entries = options::subjects(names, defaults)?;
    entries.retain(|entry| entry.name != "floor");
    if entries.is_empty() {
        return Err(Error::usage("the floor does not wait: name a subject that does"));
    }
    let rings = BackendKind::Uring.is_available();
    let (entries, notes) =
        options::without_rings(entries, rings, |entry| entry.name, |entry| entry.rings);
    if entries.is_empty() {
        return Err(Error::usage(format!("nothing is left to measure: {}", notes.join("; "))));
    }
    Ok((entries, notes))
}

/// Measures with this thread on one processor. `measure` gets the processors for the writer (none:
/// it may be anywhere).
fn apart<T>(measure: impl FnOnce(&[usize]) -> T) -> T {
    let processors = process::processors();
    let pinned = processors.len() > 1 && process::pin(&processors[..1]).is_ok();
    let measured = measure(if pinned { &processors[1..2] } else { &[] });
    if pinned {
        // Back to where we may run; failing leaves us on one processor, which is no error.
        let _ = process::pin(&processors);
    }
    measured
}

/// The child that writes on command.
pub(crate) struct Writer {
    _child: process::Child,
    commands: std::os::fd::OwnedFd,
    /// When it last wrote, and whether the loop slept then.
    shared: SharedNumbers,
}

impl Writer {
    /// Forks the writer. It wakes the loop of this thread, and keeps to these processors, if any
    /// are given.
    pub(crate) fn start(pairs: &Pairs, processors: &[usize]) -> Result<Writer> {
        let failed = |source| Error::system("starting the writing process", source);
        let shared = SharedNumbers::new(2).map_err(failed)?;
        let state = File::open("/proc/thread-self/stat").doing("opening /proc/thread-self/stat")?;
        let (receiver, commands) = descriptor::pipe().map_err(failed)?;
        descriptor::set_blocking(receiver.as_raw_fd(), true).map_err(failed)?;
        let parents_end = commands.as_raw_fd();
        let child = process::fork(|| {
            // The child must see the end of the commands when the parent is gone.
            descriptor::close_number(parents_end);
            if !processors.is_empty() {
                // Without it the scheduler chooses, which is slower but no failure.
                let _ = process::pin(processors);
            }
            while let Some(command) = descriptor::read_word(receiver.as_raw_fd()) {
                let (pair, delay, byte) = unpack(command);
                process::sleep(delay);
                shared[1].store(u64::from(falls_asleep(&state)), Ordering::Release);
                shared[0].store(process::now(), Ordering::Release);
                descriptor::write_byte(pairs.writers()[pair], byte);
            }
        })
        .map_err(failed)?;
        Ok(Writer { _child: child, commands, shared })
    }

    /// Orders the writer to write a byte to a pair, after `delay` nanoseconds and when this thread
    /// sleeps.
    pub(crate) fn order(&self, pair: usize, delay: u64, byte: u8) -> Result<()> {
        if descriptor::write_word(self.commands.as_raw_fd(), pack(pair, delay, byte)) {
            Ok(())
        } else {
            Err(Error::last("giving the writing process a command"))
        }
    }

    /// When it last wrote, by the monotonic clock; the byte that it wrote has been read.
    pub(crate) fn written_at(&self) -> u64 {
        self.shared[0].load(Ordering::Acquire)
    }

    /// Returns whether it saw this thread asleep right before that.
    pub(crate) fn saw_sleep(&self) -> bool {
        self.shared[1].load(Ordering::Acquire) == 1
    }
}

/// Packs a command into one word: the pair, the delay and the byte.
fn pack(pair: usize, delay: u64, byte: u8) -> u64 {
    delay << 32 | (pair as u64 & 0xff_ffff) << 8 | u64::from(byte)
}

fn unpack(command: u64) -> (usize, u64, u8) {
    ((command >> 8 & 0xff_ffff) as usize, command >> 32, command as u8)
}

/// Waits a while until a thread sleeps; returns whether it does. Nothing is allocated: this is a
/// forked child.
fn falls_asleep(state: &File) -> bool {
    for _ in 0..LOOKS.0 {
        let mut room = [0; 512];
        if let Ok(length) = state.read_at(&mut room, 0)
            && sleeps(&room[..length])
        {
            return true;
        }
        process::sleep(LOOKS.1);
    }
    false
}

/// Returns whether a thread sleeps, by its `/proc` line (`proc(5)`): its state comes after its
/// name, which is in parentheses and may contain parentheses.
fn sleeps(stat: &[u8]) -> bool {
    let end = stat.iter().rposition(|&byte| byte == b')');
    end.and_then(|end| stat.get(end + 1..end + 3)) == Some(b" S")
}

/// Descriptors, and their load before the quiet.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    /// Their kind.
    pub kind: Kind,
    /// The load in words.
    pub name: String,
    /// How many are watched.
    pub total: usize,
    /// How many of them are busy before.
    pub hot: usize,
    /// The load.
    pub load: Load,
}

/// The wake-ups of a subject with one set of descriptors.
#[derive(Clone, Debug)]
pub(crate) struct WakeTimes {
    /// The subject.
    pub subject: &'static str,
    /// From the write until the byte was read, in nanoseconds, if the loop slept.
    pub ns: Vec<f64>,
    /// Wake-ups of a loop that was awake, which do not count.
    pub awake: usize,
}

/// The figures of wake-ups that all their records have.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Times {
    /// Wake-ups measured.
    pub samples: usize,
    /// The quickest.
    pub wake_ns_min: f64,
    /// Half were quicker.
    pub wake_ns_p50: f64,
    /// The 90th percentile.
    pub wake_ns_p90: f64,
    /// The median against that of the better of our and a raw level-triggered epoll.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50_ratio: Option<f64>,
}

impl WakeTimes {
    fn of(entry: &Entry, all: &[WakeUp]) -> WakeTimes {
        let slept = all.iter().filter(|one| one.slept);
        let ns: Vec<f64> = slept.map(|one| one.ns as f64).collect();
        WakeTimes { subject: entry.name, awake: all.len() - ns.len(), ns }
    }

    /// Returns the figures; `all` are the subjects with the same descriptors.
    pub(crate) fn times(&self, all: &[WakeTimes]) -> Times {
        Times {
            samples: self.ns.len(),
            wake_ns_min: statistics::minimum(&self.ns),
            wake_ns_p50: statistics::median(&self.ns),
            wake_ns_p90: statistics::quantile(&self.ns, 0.9),
            p50_ratio: self.ratio(all, statistics::median),
        }
    }

    /// Returns a figure divided by that of the better epoll loop, if one took part.
    pub(crate) fn ratio(&self, all: &[WakeTimes], of: impl Fn(&[f64]) -> f64) -> Option<f64> {
        let loops = all.iter().filter(|one| ["raw-epoll-lt", "epoll-lt"].contains(&one.subject));
        let best = loops.map(|one| of(&one.ns)).min_by(f64::total_cmp);
        best.filter(|best| *best > 0.0).map(|best| of(&self.ns) / best)
    }
}

impl Times {
    /// Returns the figure that is worth comparing with that of another report: the median.
    pub(crate) fn figure(&self, at: String) -> Figure {
        let (value, low, high) = (self.wake_ns_p50, self.wake_ns_min, self.wake_ns_p90);
        Figure { at, name: "wake-up p50, ns".to_owned(), value, low, high }
    }
}

/// The results of [`measure`].
pub(crate) struct Measured {
    /// Whether the writer had another processor.
    pinned: bool,
    /// The subjects of each case, by its place.
    cases: Vec<(usize, Vec<WakeTimes>)>,
}

impl Measured {
    /// Returns the rows that `row` makes of each case, a subject and all subjects there.
    pub(crate) fn rows<Row>(
        &self,
        cases: &[Case],
        row: impl Fn(&Case, &WakeTimes, &[WakeTimes]) -> Row,
    ) -> Vec<Row> {
        let of_case = |(place, all): &(usize, Vec<WakeTimes>)| {
            all.iter().map(|one| row(&cases[*place], one, all)).collect::<Vec<Row>>()
        };
        self.cases.iter().flat_map(of_case).collect()
    }

    /// Ends the run; returns its record.
    pub(crate) fn record<Row>(
        self,
        run: Run<'_>,
        parameters: impl IntoIterator<Item = (&'static str, Value)>,
        rows: Vec<Row>,
    ) -> Record<Row> {
        let common =
            [("quiet_ns", json!([QUIET.0, QUIET.0 + QUIET.1])), ("pinned", json!(self.pinned))];
        run.record(parameters.into_iter().chain(common), rows)
    }
}

/// Wakes all subjects up in turn with the descriptors of each case. `length` returns the length of
/// a case's blocks from the number of its subjects; `most` is the number of wake-ups of each
/// subject, unless time alone limits it.
pub(crate) fn measure(
    run: &mut Run<'_>,
    cases: &[Case],
    entries: &[Entry],
    busy: Busy,
    most: Option<usize>,
    mut length: impl FnMut(&Budget, usize) -> usize,
) -> Result<Measured> {
    apart(|writers| {
        let mut measured = Measured { pinned: !writers.is_empty(), cases: Vec::new() };
        for (place, case) in cases.iter().enumerate() {
            if !run.budget.point() {
                continue;
            }
            let pairs = Pairs::open(case.kind, case.total)?;
            let writer = Writer::start(&pairs, writers)?;
            let _second = run.output.second_thread.then(SecondThread::start);
            let suitable: Vec<Entry> =
                entries.iter().filter(|entry| entry.suits(&pairs)).copied().collect();
            let length = length(&run.budget, suitable.len());
            let mut random = Random::new(run.output.seed);
            let mut targets = |round: usize| {
                let left = most.map_or(length, |most| most.saturating_sub(round * length));
                (0..length.min(left)).map(|_| random.below(case.total)).collect()
            };
            let (progress, budget) = (&run.progress, &mut run.budget);
            let told = |entry: &Entry| {
                progress.step(format!("{} {} {}", case.kind, case.total, entry.name));
            };
            let parts = Parts { pairs: &pairs, writer: &writer, load: &case.load, busy };
            let all = take_turns(parts, &suitable, budget, &mut targets, told);
            let Some(all) = run.budget.keep(all)? else { continue };
            let all = suitable.iter().zip(&all).filter(|(_, own)| !own.is_empty());
            let mut all: Vec<WakeTimes> =
                all.map(|(entry, own)| WakeTimes::of(entry, own)).collect();
            for one in all.extract_if(.., |one| one.ns.is_empty()) {
                run.note(format!(
                    "{} with {} descriptors ({}) left out: it never slept while it waited",
                    one.subject, case.total, case.kind
                ));
            }
            measured.cases.push((place, all));
        }
        Ok(measured)
    })
}

/// The parts of a wake-up that all subjects share.
#[derive(Clone, Copy)]
struct Parts<'a> {
    pairs: &'a Pairs,
    writer: &'a Writer,
    load: &'a Load,
    busy: Busy,
}

/// Wakes all subjects up in turn, in the rounds of a point, and returns the wake-ups of each.
/// `targets` returns the descriptors of a round's wake-ups, the same for all subjects; `told` is
/// called before each block.
fn take_turns(
    parts: Parts<'_>,
    entries: &[Entry],
    budget: &mut Budget,
    targets: &mut dyn FnMut(usize) -> Vec<usize>,
    told: impl Fn(&Entry),
) -> Result<Vec<Vec<WakeUp>>> {
    let mut all = vec![Vec::new(); entries.len()];
    while budget.round() {
        let targets = targets(budget.number());
        for place in budget.turns(entries.len()) {
            told(&entries[place]);
            wake_up(parts, &entries[place], &targets, &mut all[place])?;
        }
    }
    Ok(all)
}

fn wake_up(
    parts: Parts<'_>,
    entry: &Entry,
    targets: &[usize],
    all: &mut Vec<WakeUp>,
) -> Result<()> {
    let Parts { pairs, writer, load, busy } = parts;
    let mut subject = entry.build(pairs)?;
    let mut log = ReadLog::new(pairs.len());
    let mut next = 0;
    let mut rounds = |subject: &mut dyn Subject, log: &mut ReadLog, count: usize| -> Result<()> {
        process::watch(entry.name);
        for _ in 0..count {
            if !load.round(next).is_empty() {
                measure::run_round(pairs, entry, subject, load, next, log)?;
            }
            next += 1;
        }
        Ok(())
    };
    let first = if entry.adapts { busy.first_adaptive } else { busy.first };
    rounds(&mut *subject, &mut log, first)?;
    for (number, &pair) in targets.iter().enumerate() {
        rounds(&mut *subject, &mut log, busy.between)?;
        let delay = QUIET.0 + QUIET.1 * number as u64 / targets.len() as u64;
        writer.order(pair, delay, number as u8)?;
        let active = [pair as u32];
        measure::whole_round(&mut *subject, &active, &mut log)?;
        let woken_at = process::now();
        log.close(entry.name, &active, number as u8)?;
        pairs.answer(&active)?;
        let ns = woken_at.saturating_sub(writer.written_at());
        all.push(WakeUp { ns, slept: writer.saw_sleep() });
    }
    process::unwatch();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wake_ups_of_an_awake_loop_do_not_count_and_ratios_are_to_the_better_epoll() {
        let woken = |name: &str, ns: &[u64]| {
            let wake_up = |&ns: &u64| WakeUp { ns, slept: ns > 10 };
            WakeTimes::of(&Entry::named(name).unwrap(), &ns.iter().map(wake_up).collect::<Vec<_>>())
        };
        let all = [
            woken("raw-epoll-lt", &[100, 300, 5, 200]),
            woken("epoll-lt", &[400, 100, 100]),
            woken("poll", &[1000, 600, 500]),
        ];
        let first = all[0].times(&all);
        assert_eq!((first.samples, all[0].awake), (3, 1));
        assert_eq!((first.wake_ns_min, first.wake_ns_p50), (100.0, 200.0));
        assert_eq!(all[2].times(&all).p50_ratio, Some(6.0));
        assert_eq!(all[2].ratio(&all, statistics::maximum), Some(1000.0 / 300.0));
        assert_eq!(all[2].times(&all[2..]).p50_ratio, None);
        assert!(woken("poll", &[5]).ns.is_empty());
    }

    #[test]
    fn io_uring_is_left_out_with_a_reason_where_there_is_none() {
        let all = options::subjects(Some("poll,uring"), &[]).unwrap();
        let without =
            |rings| options::without_rings(all.clone(), rings, |one| one.name, |one| one.rings);
        assert_eq!(without(true), (all.clone(), Vec::new()));
        let (entries, notes) = without(false);
        assert!(notes.len() == 1 && notes[0].starts_with("uring left out: "), "{notes:?}");
        assert!(entries.len() + 1 == all.len() && entries.iter().all(|entry| !entry.rings));
        let error = subjects(Some("floor"), &[]).unwrap_err().to_string();
        assert!(error.contains("floor does not wait"), "{error}");
    }

    #[test]
    fn a_command_survives_packing() {
        for command in [(0, 0, 0), (999, 5_000_000, 255), (0xff_ffff, 0xffff_ffff, 7)] {
            assert_eq!(unpack(pack(command.0, command.1, command.2)), command);
        }
    }

    #[test]
    fn a_state_is_found_behind_any_name() {
        assert!(sleeps(b"12 (superpoll) S 1 12") && sleeps(b"12 (a) R) S 1"));
        assert!(!sleeps(b"12 (a) S) R 1") && !sleeps(b"12 (x) D 1") && !sleeps(b""));
    }

    #[test]
    fn a_loop_is_woken_when_it_sleeps_and_only_then() {
        let pairs = Pairs::open(Kind::Pipe, 4).unwrap();
        let writer = Writer::start(&pairs, &[]).unwrap();
        let (entries, _) = subjects(Some("raw-epoll-lt,adaptive"), &[]).unwrap();
        let busy = Busy { first_adaptive: 3, first: 1, between: 1 };
        let mut targets = |round: usize| if round == 0 { vec![1] } else { vec![3, 0, 2] };
        let load = Load::constant(vec![1, 3]);
        let parts = Parts { pairs: &pairs, writer: &writer, load: &load, busy };
        let budget = &mut Budget::of_rounds(2);
        let all = take_turns(parts, &entries, budget, &mut targets, |_| {}).unwrap();
        assert!(all.iter().all(|own| own.len() == 4));
        assert!(all.iter().flatten().all(|one| one.slept && one.ns > 0), "{all:?}");
        // A loop that looks for the byte without sleeping is seen awake.
        writer.order(2, 0, 9).unwrap();
        while descriptor::read_byte(pairs.readers()[2]).is_none() {
            std::hint::spin_loop();
        }
        assert!(!writer.saw_sleep());
    }
}
