//! A block: one subject at one point. It is set up in a process of its own, runs rounds, and ends.
//!
//! The parent process is the writer. It keeps to one processor, writes a byte to each active pair
//! and sleeps until the last of these bytes has been read. The reader of the last byte notes the
//! time, so that the writer's own wake-up is not part of the round. Then the writer checks the
//! notes in the shared counters and pauses until the subject has gone back to sleep.
//!
//! On *one* processor the subject shares the writer's processor and may not preempt it: all bytes
//! of a round are there before the subject reads the first, as in a wait of `superpoll-lab atr`,
//! and nothing happens at the same time. On *all* processors the subject may run anywhere, as a
//! program would: it begins to read while the writer still writes, and threads share the work.

use std::os::fd::{AsRawFd, OwnedFd};

use crate::channel::{Kind, Pairs};
use crate::environment;
use crate::error::{Doing, Error, Result};
use crate::measure::watch_now_and_then;
use crate::statistics;
use crate::sys::{descriptor, process};
use crate::threads::counters::{ANSWER, SetUpReport, SharedCounters, WakePipe};
use crate::threads::subject::input::Input;
use crate::threads::subject::{Entry, Family};

crate::by_name::named! {
    /// Where a subject may run.
    pub(super) enum Where {
        /// On the writer's processor.
        One = "one",
        /// On any processor.
        All = "all",
    }
}

/// The settings that all subjects of a point have in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct Point<'a> {
    /// Kind of the pairs.
    pub kind: Kind,
    /// The pairs.
    pub pairs: &'a Pairs,
    /// The pairs that are active in every round.
    pub active: &'a [u32],
    /// Where subjects run.
    pub runs: Where,
    /// The processors of this process, the writer's first.
    pub processors: &'a [usize],
}

/// The results of a block.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Block {
    /// From before the first write until the last byte was read, in nanoseconds; the median of the
    /// rounds.
    pub clock_ns: f64,
    /// Rounds measured.
    pub rounds: usize,
    /// Processor time of all the subject's threads, in nanoseconds, for an event.
    pub cpu_ns: f64,
    /// The extra cost of a write, compared with a write to a descriptor that no thread waits for.
    pub write_ns: f64,
    /// How often a thread went to sleep, per event.
    pub voluntary: f64,
    /// How often a thread lost its processor to another thread, per event.
    pub involuntary: f64,
    /// The subject's own report of its set-up.
    pub set: SetUpReport,
    /// By how many bytes the kernel's stacks grew during the set-up.
    pub kernel_stacks: f64,
}

/// A subject that the system refused to set up.
#[derive(Debug)]
pub(super) struct Refusal {
    /// Threads that it got before the refusal.
    pub had: u64,
    /// The kernel's error.
    pub source: std::io::Error,
}

/// How long to measure.
#[derive(Clone, Copy, Debug)]
pub(super) struct Length {
    /// Nanoseconds for the measured rounds.
    pub ns: f64,
    /// Rounds at least, and at most.
    pub rounds: (usize, usize),
}

/// Rounds before the measured ones: an adaptive poller has settled its placement after about forty.
const WARM_UP: (usize, usize) = (96, 8);

/// How long a subject may take to go back to sleep, in nanoseconds. A loop that checks every
/// descriptor once more takes longer with more descriptors.
const PAUSE: (u64, u64) = (60_000, 120);

/// Writes to a descriptor that no thread waits for, from which the base price of a write is taken.
const UNWATCHED_WRITES: usize = 400;

/// A subject in its process.
struct Trial<'a> {
    entry: Entry,
    point: Point<'a>,
    counters: SharedCounters,
    wait: OwnedFd,
    child: process::Child,
    byte: u8,
}

/// The measurements of a round.
struct Round {
    clock_ns: f64,
    /// The writer's processor time for its writes.
    write_ns: f64,
}

/// Sets a subject up and measures it. The inner error says that the system did not allow it that
/// many threads.
pub(super) fn measure(
    entry: Entry,
    point: Point<'_>,
    length: Length,
) -> Result<std::result::Result<Block, Refusal>> {
    let unwatched = unwatched(point)?;
    let stacks = environment::kernel_stacks().unwrap_or(0) as f64;
    let mut trial = match Trial::start(entry, point)? {
        Ok(trial) => trial,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let kernel_stacks = environment::kernel_stacks().unwrap_or(0) as f64 - stacks;
    let block = trial.run(length, unwatched)?;
    drop(trial);
    nothing_is_left(entry, point)?;
    Ok(Ok(Block { kernel_stacks, ..block }))
}

/// Checks whether a subject can be set up at all; returns the refusal if not.
pub(super) fn probe(entry: Entry, point: Point<'_>) -> Result<Option<Refusal>> {
    Ok(Trial::start(entry, point)?.err())
}

impl<'a> Trial<'a> {
    fn start(entry: Entry, point: Point<'a>) -> Result<std::result::Result<Trial<'a>, Refusal>> {
        let (counters, WakePipe { wait, wake }) =
            SharedCounters::new(point.pairs.len(), point.kind != Kind::Pipe)?;
        process::watch(entry.name);
        let child = process::fork(|| {
            point.pairs.writers().iter().for_each(|&writer| descriptor::close_number(writer));
            descriptor::close_number(wait.as_raw_fd());
            serve(entry, point, &counters);
        })
        .doing("starting a subject's process")?;
        drop(wake);
        let trial = Trial { entry, point, counters, wait, child, byte: 0 };
        match trial.wait() {
            Ok(()) => Ok(Ok(trial)),
            // No other subject is known to be refused for its size.
            Err(Error::System { source, .. })
                if entry.family == Family::Threads && is_a_limit(&source) =>
            {
                process::unwatch();
                Ok(Err(Refusal { had: trial.counters.report().threads, source }))
            }
            Err(error) => Err(error),
        }
    }

    /// Sleeps until the subject rings.
    fn wait(&self) -> Result<()> {
        let rung = descriptor::read(self.wait.as_raw_fd(), &mut [0]);
        if let Some(failure) = self.counters.failure() {
            return Err(Error::system(format!("running subject {}", self.entry.name), failure));
        }
        if rung == 1 {
            return Ok(());
        }
        Err(Error::Work { subject: self.entry.name, found: "its process has ended".to_owned() })
    }

    fn run(&mut self, length: Length, unwatched: f64) -> Result<Block> {
        let active = self.point.active.len() as f64;
        let warm_up = if self.entry.adapts { WARM_UP.0 } else { WARM_UP.1 };
        for round in 0..warm_up {
            watch_now_and_then(self.entry.name, round);
            self.round(false)?;
        }
        self.round(true)?;
        let switches = self.counters.switches();
        let cpu = self.processor_time()?;
        let start = process::now();
        let (mut clock, mut write_ns) = (Vec::new(), 0.0);
        let (least, most) = length.rounds;
        while clock.len() < most
            && (clock.len() < least || ((process::now() - start) as f64) < length.ns)
        {
            watch_now_and_then(self.entry.name, clock.len());
            let round = self.round(false)?;
            clock.push(round.clock_ns);
            write_ns += round.write_ns;
        }
        let cpu = self.processor_time()? - cpu;
        self.round(true)?;
        process::unwatch();
        let after = self.counters.switches();
        let events = active * clock.len() as f64;
        // The round that brought the report counts among the rounds with thread switches.
        let switched = |after: u64, before: u64| (after - before) as f64 / (events + active);
        Ok(Block {
            clock_ns: statistics::median(&clock),
            rounds: clock.len(),
            cpu_ns: cpu as f64 / events,
            write_ns: write_ns / events - unwatched,
            voluntary: switched(after.0, switches.0),
            involuntary: switched(after.1, switches.1),
            set: self.counters.report(),
            kernel_stacks: 0.0,
        })
    }

    fn processor_time(&self) -> Result<u64> {
        self.child.processor_time().doing("asking for processor time")
    }

    fn round(&mut self, report: bool) -> Result<Round> {
        self.byte = self.byte.wrapping_add(1);
        let (active, writers) = (self.point.active, self.point.pairs.writers());
        self.counters.expect(active.len(), report);
        let mut written = 0;
        let before = process::thread_time();
        let start = process::now();
        for &pair in active {
            written += usize::from(descriptor::write_byte(writers[pair as usize], self.byte));
        }
        let write_ns = (process::thread_time() - before) as f64;
        if written != active.len() {
            return Err(Error::last(format!("writing to {} of {}", written + 1, active.len())));
        }
        self.wait()?;
        let clock_ns = self.counters.finished().saturating_sub(start) as f64;
        self.counters.close(self.entry.name, active, self.byte)?;
        if self.point.kind != Kind::Pipe {
            self.hear_answers()?;
        }
        process::sleep(PAUSE.0 + PAUSE.1 * writers.len() as u64);
        Ok(Round { clock_ns, write_ns })
    }

    /// Reads the bytes that sockets send back.
    fn hear_answers(&self) -> Result<()> {
        let due = self.byte.wrapping_add(ANSWER);
        for &pair in self.point.active {
            // The answer may be late on the network.
            let answer = loop {
                match descriptor::read_byte(self.point.pairs.writers()[pair as usize]) {
                    Some(answer) => break answer,
                    None => std::hint::spin_loop(),
                }
            };
            if answer != due {
                let found = format!("pair {pair} answered {answer}, not {due}");
                return Err(Error::Work { subject: self.entry.name, found });
            }
        }
        Ok(())
    }
}

/// The child's part.
fn serve(entry: Entry, point: Point<'_>, counters: &SharedCounters) {
    let moved = match point.runs {
        Where::One => process::lower_preemption(),
        Where::All => process::pin(point.processors),
    };
    if let Err(error) = moved {
        return counters.failed(&error);
    }
    let input = Input {
        kind: point.kind,
        pairs: point.pairs,
        counters,
        processors: point.processors.len(),
    };
    let touched = environment::memory_touched().unwrap_or(0);
    let start = process::now();
    let ended = (entry.set_up)(input).and_then(|reading| {
        counters.set_up(SetUpReport {
            ns: process::now() - start,
            threads: reading.threads() as u64,
            memory: environment::memory_touched().unwrap_or(0).saturating_sub(touched),
        });
        reading.read_on()
    });
    if let Err(error) = ended {
        match error {
            Error::System { source, .. } => counters.failed(&source),
            other => counters.failed(&std::io::Error::other(other.to_string())),
        }
    }
}

/// Whether the kernel returns this error when there are too many threads, or too little memory for
/// one more.
fn is_a_limit(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::ENOMEM))
}

/// Measures a write, in nanoseconds of this thread's processor time, while no thread waits for the
/// byte.
fn unwatched(point: Point<'_>) -> Result<f64> {
    let (readers, writers) = (point.pairs.readers(), point.pairs.writers());
    let mut samples = Vec::new();
    for _ in 0..(UNWATCHED_WRITES / point.active.len().max(1)).max(3) {
        let mut written = 0;
        let before = process::thread_time();
        for &pair in point.active {
            written += usize::from(descriptor::write_byte(writers[pair as usize], 0));
        }
        let took = process::thread_time() - before;
        if written != point.active.len() {
            return Err(Error::last("writing to a full pair"));
        }
        samples.push(took as f64 / written as f64);
        for &pair in point.active {
            while descriptor::read_byte(readers[pair as usize]).is_none() {
                std::hint::spin_loop();
            }
        }
        point.pairs.answer(point.active)?;
    }
    Ok(statistics::median(&samples))
}

/// After a subject has ended no byte may be left, in either direction.
fn nothing_is_left(entry: Entry, point: Point<'_>) -> Result<()> {
    let writers = (point.kind != Kind::Pipe).then(|| point.pairs.writers());
    for ends in std::iter::once(point.pairs.readers()).chain(writers) {
        for (pair, &fd) in ends.iter().enumerate() {
            let left =
                descriptor::readable_bytes(fd).doing(format_args!("looking into pair {pair}"))?;
            if left != 0 {
                let found = format!("{left} bytes were left in pair {pair}");
                return Err(Error::Work { subject: entry.name, found });
            }
        }
    }
    Ok(())
}
