//! The harness: the definition of a round, its timing, and the order in which subjects take turns.
//!
//! A round writes one byte to the other end of each active descriptor (the write part) and then
//! lets the subject wait for and read all of them (the loop part). The two are timed separately,
//! since epoll makes the writer pay for the wake-up. After each round, outside the timed parts, the
//! log checks that the written bytes were read, each active descriptor once.
//!
//! All subjects work on the same pairs, one at a time, because a descriptor watched by two pollers
//! would make the writer pay for both. So time is cut into blocks: build the subject, let it warm
//! up, measure rounds, take it down. Blocks of all subjects take turns, in an order that rotates
//! with each repetition, so that drift hits all alike. The floor takes part as one of the subjects:
//! it watches nothing, its write part is the cost of writing without a watcher, and its loop part
//! the cost of the reads alone.
//!
//! A round during which the kernel gave the processor to another task measures that task. It is
//! left out (and counted), unless that would leave fewer than half of the rounds.

use std::io::ErrorKind;
use std::time::Instant;

use superpoll::diagnostics::Stats;

use crate::budget::Budget;
use crate::channel::Pairs;
use crate::error::{Error, Result};
use crate::load::Load;
use crate::record::{Blocks, Figures};
use crate::rivals::Lost;
use crate::statistics;
use crate::subject::{Entry, ReadLog, Subject};
use crate::sys::{descriptor, memory, process};

/// The number of rounds of each kind in a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Rounds {
    /// Rounds before measuring, for subjects that place descriptors by observed activity.
    pub warm_up_adaptive: usize,
    /// Rounds before measuring, for all other subjects.
    pub warm_up: usize,
    /// Measured.
    pub measured: usize,
}

/// The results of one subject's blocks.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    /// The subject.
    pub entry: Entry,
    blocks: Vec<Block>,
}

#[derive(Clone, Debug, Default)]
struct Block {
    loop_ns: Vec<f64>,
    write_ns: Vec<f64>,
    run: usize,
    preempted: usize,
    /// The subject's own counters before its rounds and after them.
    counters: Option<(Stats, Stats)>,
    allocations: Option<u64>,
    memory: Option<usize>,
    empty: u64,
    /// System calls, reads included.
    calls: Option<u64>,
    overflows: Option<u64>,
    /// Bytes that were written, which is the number of events.
    events: u64,
}

/// The rounds that count as samples: all rounds of a load that is always the same, or whole blocks
/// of a load whose rounds differ (a shift costs in the round it happens in, which a median would
/// hide).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sample {
    /// Each round.
    Round,
    /// The mean of each block.
    Block,
}

/// Runs blocks of all subjects in turn, in the rounds of a point. Calls `told` before each block
/// with the subject's name. A rival that fails, or that is lost already, has no outcome.
pub(crate) fn interleave(
    pairs: &Pairs,
    entries: &[Entry],
    load: &Load,
    rounds: Rounds,
    budget: &mut Budget,
    lost: &mut Lost,
    mut told: impl FnMut(&Entry),
) -> Result<Vec<Outcome>> {
    let mut outcomes: Vec<Outcome> =
        entries.iter().map(|&entry| Outcome { entry, blocks: Vec::new() }).collect();
    let mut log = ReadLog::new(pairs.len());
    while budget.round() {
        for place in budget.turns(entries.len()) {
            let entry = &entries[place];
            if lost.has(entry.name) {
                continue;
            }
            told(entry);
            let is_over = budget.alarm();
            let block = run_block(pairs, entry, load, rounds, &mut log, &is_over);
            process::unwatch();
            match lost.keep(entry.name, block)? {
                Some(Some(block)) => outcomes[place].blocks.push(block),
                Some(None) => budget.cut_short(),
                None => log = clean(pairs),
            }
        }
    }
    outcomes.retain(|outcome| !outcome.blocks.is_empty() && !lost.has(outcome.entry.name));
    Ok(outcomes)
}

/// Reads the bytes that a subject has left unread, and begins to count anew.
fn clean(pairs: &Pairs) -> ReadLog {
    for &reader in pairs.readers() {
        while descriptor::read_byte(reader).is_some() {}
    }
    ReadLog::new(pairs.len())
}

/// Returns the figures of each subject at a point, with the ratios that `relate` fills in.
pub(crate) fn figures(
    outcomes: &[Outcome],
    sample: Sample,
    relate: impl FnOnce(&mut [(&str, &mut Figures)]),
) -> Vec<(Entry, Figures)> {
    let each = outcomes.iter().map(|one| (one.entry, one.figures(sample)));
    let mut figures: Vec<(Entry, Figures)> = each.collect();
    relate(&mut figures.iter_mut().map(|(entry, own)| (entry.name, own)).collect::<Vec<_>>());
    figures
}

/// Runs a block; it ends early when the time is over, and is none if it has no measured round then.
fn run_block(
    pairs: &Pairs,
    entry: &Entry,
    load: &Load,
    rounds: Rounds,
    log: &mut ReadLog,
    is_over: &dyn Fn() -> bool,
) -> Result<Option<Block>> {
    let mut subject = entry.build(pairs)?;
    let warm_up = if entry.adapts { rounds.warm_up_adaptive } else { rounds.warm_up };
    let mut block = Block {
        loop_ns: Vec::with_capacity(rounds.measured),
        write_ns: Vec::with_capacity(rounds.measured),
        ..Block::default()
    };
    // All subjects see the same measured rounds, however long they warmed up before.
    let first = rounds.warm_up_adaptive.max(rounds.warm_up) - warm_up;
    let mut all = Vec::with_capacity(rounds.measured);
    for round in 0..warm_up {
        if is_over() && entry.adapts {
            return Ok(None);
        }
        watch_now_and_then(entry.name, round);
        run_round(pairs, entry, &mut *subject, load, first + round, log)?;
    }
    let empty = log.empty();
    let (calls, overflows) = (subject.calls(), subject.overflows());
    let counters = subject.counters();
    let mut allocated = memory::allocations().map(|_| 0);
    for round in 0..rounds.measured {
        if round > 0 && is_over() {
            break;
        }
        watch_now_and_then(entry.name, round);
        let preemptions = process::preemptions();
        let before = memory::allocations();
        let (write_ns, loop_ns) =
            run_round(pairs, entry, &mut *subject, load, first + warm_up + round, log)?;
        if let (Some(sum), Some(before), Some(after)) =
            (&mut allocated, before, memory::allocations())
        {
            *sum += after - before;
        }
        block.events += load.round(first + warm_up + round).len() as u64;
        let undisturbed = process::preemptions() == preemptions;
        all.push((write_ns, loop_ns, undisturbed));
    }
    let kept = all.iter().filter(|(_, _, undisturbed)| *undisturbed).count();
    block.run = all.len();
    block.preempted = all.len() - kept;
    let keep_all = kept * 2 < all.len();
    for (write_ns, loop_ns, undisturbed) in all {
        if undisturbed || keep_all {
            block.write_ns.push(write_ns);
            block.loop_ns.push(loop_ns);
        }
    }
    block.counters = counters.zip(subject.counters());
    block.allocations = allocated;
    block.memory = subject.memory();
    block.empty = log.empty() - empty;
    let since =
        |after: Option<u64>, before| after.zip(before).map(|(after, before)| after - before);
    let reads = if subject.calls_read() { 0 } else { block.events + block.empty };
    block.calls = since(subject.calls(), calls).map(|calls| calls + reads);
    block.overflows = since(subject.overflows(), overflows);
    Ok(Some(block))
}

/// Keeps the watch over a subject from ending, every so many rounds.
pub(crate) fn watch_now_and_then(subject: &'static str, round: usize) {
    if round.is_multiple_of(64) {
        process::watch(subject);
    }
}

/// Runs one round; returns the times of the write part and the loop part, in nanoseconds.
pub(crate) fn run_round(
    pairs: &Pairs,
    entry: &Entry,
    subject: &mut dyn Subject,
    load: &Load,
    round: usize,
    log: &mut ReadLog,
) -> Result<(f64, f64)> {
    let active = load.round(round);
    let byte = round as u8;
    let start = Instant::now();
    pairs.write(active, byte)?;
    let middle = Instant::now();
    whole_round(subject, active, log)?;
    let end = Instant::now();
    log.close(entry.name, active, byte)?;
    pairs.answer(active)?;
    let nanoseconds = |from: Instant, to: Instant| (to - from).as_nanos() as f64;
    Ok((nanoseconds(start, middle), nanoseconds(middle, end)))
}

/// Returns how many rounds of this load fit into a slot, in seconds: the same number for all
/// subjects. The floor is run to measure reading and writing here; about as much is added for the
/// waiting.
pub(crate) fn rounds_in(pairs: &Pairs, load: &Load, slot: f64) -> Result<usize> {
    let floor = [Entry::named("floor")?];
    let pilot = Rounds { warm_up_adaptive: 1, warm_up: 1, measured: 9 };
    let outcomes = interleave(
        pairs,
        &floor,
        load,
        pilot,
        &mut Budget::of_rounds(1),
        &mut Lost::default(),
        |_| {},
    )?;
    let figures = outcomes[0].figures(Sample::Round);
    let work = figures.ns_per_round_median + figures.write_ns_per_round_median;
    let round = 1.6 * work + 60.0 * pairs.len() as f64 + 2_000.0;
    // The cost of building, warming up and taking down comes on top of the slot. Where few rounds
    // fit, each has thousands of events, and is a mean by itself; two for a block, so that subjects
    // take turns often while the machine changes.
    Ok(((slot * 1e9 / round) as usize).clamp(2, 1000))
}

impl Outcome {
    /// Returns the figures of a subject, without the ratios to other subjects.
    pub(crate) fn figures(&self, sample: Sample) -> Figures {
        let centre = match sample {
            Sample::Round => statistics::median,
            Sample::Block => statistics::mean,
        };
        let centres = |of: fn(&Block) -> &Vec<f64>| -> Vec<f64> {
            self.blocks.iter().map(|block| centre(of(block))).collect()
        };
        let collect = |of: fn(&Block) -> &Vec<f64>| -> Vec<f64> {
            match sample {
                Sample::Round => self.blocks.iter().flat_map(of).copied().collect(),
                Sample::Block => centres(of),
            }
        };
        let (loops, writes) = (collect(|block| &block.loop_ns), collect(|block| &block.write_ns));
        let blocks =
            Blocks { loop_ns: centres(|b| &b.loop_ns), write_ns: centres(|b| &b.write_ns) };
        let all: Vec<f64> = self.blocks.iter().flat_map(|b| &b.loop_ns).copied().collect();
        let rounds: usize = all.len();
        let run: usize = self.blocks.iter().map(|block| block.run).sum();
        let per_round = |of: fn(&Stats) -> u64| {
            let counters = self.blocks.iter().map(|block| block.counters.as_ref());
            let sum: Option<u64> =
                counters.map(|own| own.map(|(before, after)| of(after) - of(before))).sum();
            sum.map(|sum| sum as f64 / run.max(1) as f64)
        };
        let events: u64 = self.blocks.iter().map(|block| block.events).sum();
        let calls: Option<u64> = self.blocks.iter().map(|block| block.calls).sum();
        let allocations: Option<u64> = self.blocks.iter().map(|b| b.allocations).sum();
        Figures {
            ns_per_round_median: statistics::median(&loops),
            rounds,
            write_ns_per_round_median: statistics::median(&writes),
            block_ns_per_round_low: statistics::minimum(&blocks.loop_ns),
            block_ns_per_round_high: statistics::maximum(&blocks.loop_ns),
            preempted: self.blocks.iter().map(|block| block.preempted).sum(),
            empty_reads: self.blocks.iter().map(|block| block.empty).sum(),
            waits_per_round: per_round(|stats| stats.calls.waits()),
            epoll_ctl_per_round: per_round(|stats| stats.calls.epoll_ctl()),
            wakes_per_round: per_round(|stats| stats.calls.waker_write),
            allocations_per_round: allocations.map(|sum| sum as f64 / run.max(1) as f64),
            calls_per_event: calls.map(|sum| sum as f64 / events.max(1) as f64),
            overflows: self.blocks.iter().map(|block| block.overflows).sum(),
            modes: (sample == Sample::Round).then(|| statistics::two_modes(&all)).flatten(),
            memory_bytes: self.blocks.iter().filter_map(|block| block.memory).max(),
            blocks,
            ..Figures::default()
        }
    }
}

/// Runs a subject's part of a round. An io_uring that was closed before, by the subject whose turn
/// is over, ends some time later. When it does, it interrupts the wait of its thread; then the
/// round goes on.
#[inline(always)]
pub(crate) fn whole_round(
    subject: &mut dyn Subject,
    active: &[u32],
    log: &mut ReadLog,
) -> Result<()> {
    loop {
        match subject.round(active, log) {
            Err(Error::System { source, .. }) if source.kind() == ErrorKind::Interrupted => {}
            outcome => return outcome,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::Kind;
    use crate::subject;

    #[test]
    fn a_rival_that_fails_is_left_out_and_leaves_nothing_to_the_next() {
        struct Idle;
        impl Subject for Idle {
            fn turn(&mut self, _: &[u32], _: &mut ReadLog) -> Result<()> {
                Ok(())
            }
            fn round(&mut self, _: &[u32], _: &mut ReadLog) -> Result<()> {
                Ok(())
            }
        }
        fn idle(_: &Pairs) -> Result<Box<dyn Subject + '_>> {
            Ok(Box::new(Idle))
        }
        let pairs = Pairs::open(Kind::Pipe, 4).unwrap();
        let load = Load::constant(vec![0, 2]);
        let rounds = Rounds { warm_up_adaptive: 1, warm_up: 1, measured: 3 };
        let mut lost = Lost::default();
        let mut of = |name| {
            let entries = [subject::entry(name, "reads nothing", idle), subject::ALL[2]];
            interleave(
                &pairs,
                &entries,
                &load,
                rounds,
                &mut Budget::of_rounds(2),
                &mut lost,
                |_| {},
            )
        };
        let outcomes = of("libuv").unwrap();
        assert_eq!(outcomes.len(), 1);
        assert_eq!(outcomes[0].entry.name, "raw-epoll-lt");
        assert!(outcomes[0].figures(Sample::Round).rounds >= 1);
        let error = of("epoll-lt").unwrap_err().to_string();
        assert!(error.contains("2 bytes written, 0 read"), "{error}");
        assert!(lost.has("libuv") && !lost.has("epoll-lt"));
    }

    #[test]
    fn an_interrupted_wait_is_no_failure() {
        struct Interrupted(u32);
        impl Subject for Interrupted {
            fn turn(&mut self, _: &[u32], _: &mut ReadLog) -> Result<()> {
                self.0 += 1;
                let code = if self.0 < 3 { libc::EINTR } else { libc::EBADF };
                Err(Error::system("waiting", std::io::Error::from_raw_os_error(code)))
            }
        }
        let mut subject = Interrupted(0);
        let error = whole_round(&mut subject, &[0], &mut ReadLog::new(1)).unwrap_err().to_string();
        assert!(subject.0 == 3 && error.contains("Bad file descriptor"), "{error}");
    }
}
