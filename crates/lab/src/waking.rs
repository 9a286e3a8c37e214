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

use superpoll::BackendKind;

use crate::budget::Budget;
use crate::channel::Pairs;
use crate::error::{Error, Result};
use crate::load::Load;
use crate::measure;
use crate::options;
use crate::subject::{Entry, ReadLog, Subject};
use crate::sys::memory::SharedNumbers;
use crate::sys::{descriptor, process};

/// The quiet before a wake-up, in nanoseconds, and by how much it varies.
pub(crate) const QUIET: (u64, u64) = (5_000_000, 1_000_000);

/// The most looks at a loop that does not fall asleep, and the pause between two looks in
/// nanoseconds.
const LOOKS: (usize, u64) = (10_000, 100_000);

/// One wake-up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WakeUp {
    /// From right before the write until the byte was read, in nanoseconds.
    pub ns: u64,
    /// Whether the loop was seen asleep right before the write.
    pub slept: bool,
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
/// it may be anywhere), and the number of all processors.
pub(crate) fn apart<T>(measure: impl FnOnce(&[usize], usize) -> T) -> T {
    let processors = process::processors();
    let pinned = processors.len() > 1 && process::pin(&processors[..1]).is_ok();
    let measured = measure(if pinned { &processors[1..2] } else { &[] }, processors.len());
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
        let state = File::open("/proc/thread-self/stat")
            .map_err(|e| Error::system("opening /proc/thread-self/stat", e))?;
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

/// Wakes all subjects up in turn, in the rounds of a point, and returns the wake-ups of each.
/// `targets` returns the descriptors of a round's wake-ups, the same for all subjects; `told` is
/// called before each block.
#[allow(clippy::too_many_arguments, reason = "the parts of one measurement")]
pub(crate) fn take_turns(
    pairs: &Pairs,
    writer: &Writer,
    entries: &[Entry],
    load: &Load,
    busy: Busy,
    budget: &mut Budget,
    targets: &mut dyn FnMut(usize) -> Vec<usize>,
    mut told: impl FnMut(&Entry),
) -> Result<Vec<Vec<WakeUp>>> {
    let mut all = vec![Vec::new(); entries.len()];
    while budget.round() {
        let targets = targets(budget.number());
        for place in budget.turns(entries.len()) {
            told(&entries[place]);
            wake_up(pairs, &entries[place], load, busy, writer, &targets, &mut all[place])?;
        }
    }
    Ok(all)
}

fn wake_up(
    pairs: &Pairs,
    entry: &Entry,
    load: &Load,
    busy: Busy,
    writer: &Writer,
    targets: &[usize],
    all: &mut Vec<WakeUp>,
) -> Result<()> {
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
    use crate::channel::Kind;

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
        let all = take_turns(
            &pairs,
            &writer,
            &entries,
            &load,
            busy,
            &mut Budget::of_rounds(2),
            &mut targets,
            |_| {},
        )
        .unwrap();
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
