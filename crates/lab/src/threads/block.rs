//! A block: one subject at one point, set up in a process of its own, asked for rounds, and ended.
//!
//! This process is the writer. It keeps to one processor, writes a byte to each active pair and sleeps until the last
//! of them was read; that moment is noted by whoever read it, so that the writer's own waking up is no part of the
//! round. Then it looks at what the desk says, and pauses until the subject has gone back to sleep.
//!
//! On *one* processor the subject shares the writer's and may not preempt it: all bytes of a round are there before the
//! first is looked at, as in a wait of `superpoll-lab atr`, and nothing happens at the same time. On *all* it may run anywhere,
//! as a program would: it begins to read while the writer still writes, and threads share the work.

use std::os::fd::{AsRawFd, OwnedFd};

use crate::channel::{Kind, Pairs};
use crate::environment;
use crate::error::{Error, Result};
use crate::statistics;
use crate::sys::{descriptor, process};
use crate::threads::desk::{ANSWER, Bell, Desk, Set};
use crate::threads::subject::seat::Seat;
use crate::threads::subject::{Entry, Family};

crate::by_name::named! {
    /// Where a subject may run.
    pub enum Where {
        /// On the writer's processor.
        One = "one",
        /// On any.
        All = "all",
    }
}

/// What all subjects of a point have in common.
#[derive(Clone, Copy, Debug)]
pub struct Point<'a> {
    /// What the pairs are.
    pub kind: Kind,
    /// The pairs.
    pub pairs: &'a Pairs,
    /// Which are active in every round.
    pub active: &'a [u32],
    /// Where subjects run.
    pub runs: Where,
    /// The processors of this process, the writer's first.
    pub processors: &'a [usize],
}

/// What a block gave.
#[derive(Clone, Copy, Debug, Default)]
pub struct Block {
    /// From before the first write until the last byte was read, in nanoseconds; the median of the rounds.
    pub clock_ns: f64,
    /// Rounds measured.
    pub rounds: usize,
    /// Processor time of all the subject's threads, in nanoseconds, for an event.
    pub cpu_ns: f64,
    /// What a write takes the writer more than to a descriptor that nobody waits for.
    pub write_ns: f64,
    /// How often a thread went to sleep, for an event.
    pub voluntary: f64,
    /// How often a thread lost its processor to another, for an event.
    pub involuntary: f64,
    /// What the subject says of itself.
    pub set: Set,
    /// By how much the kernel's stacks grew while it was set up, in bytes.
    pub kernel_stacks: f64,
}

/// A subject that the system did not let be set up.
#[derive(Debug)]
pub struct Refusal {
    /// Threads that it could have.
    pub had: u64,
    /// What the kernel said.
    pub source: std::io::Error,
}

/// How long to measure.
#[derive(Clone, Copy, Debug)]
pub struct Length {
    /// Nanoseconds for the measured rounds.
    pub ns: f64,
    /// Rounds at least, and at most.
    pub rounds: (usize, usize),
}

/// Rounds before those that are measured: a poller that adapts has its placement after about forty.
const WARM_UP: (usize, usize) = (96, 8);

/// How long a subject has to go back to sleep, in nanoseconds: the loop that looks at every descriptor once more needs
/// longer the more there are.
const PAUSE: (u64, u64) = (60_000, 120);

/// Writes for which the price of one to a descriptor that nobody waits for is taken from.
const UNWATCHED_WRITES: usize = 400;

/// A subject in its process.
struct Trial<'a> {
    entry: Entry,
    point: Point<'a>,
    desk: Desk,
    wait: OwnedFd,
    child: process::Child,
    byte: u8,
}

/// What a round took.
struct Round {
    clock_ns: f64,
    /// The writer's processor time for its writes.
    write_ns: f64,
}

/// Sets a subject up and measures it; the inner error says that the system did not allow it so many threads.
pub fn measure(
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

/// Whether a subject can be set up at all, and what says no.
pub fn probe(entry: Entry, point: Point<'_>) -> Result<Option<Refusal>> {
    Ok(Trial::start(entry, point)?.err())
}

impl<'a> Trial<'a> {
    fn start(entry: Entry, point: Point<'a>) -> Result<std::result::Result<Trial<'a>, Refusal>> {
        let (desk, Bell { wait, ring }) = Desk::new(point.pairs.len(), point.kind != Kind::Pipe)?;
        process::watch(entry.name);
        let child = process::fork(|| {
            point.pairs.writers().iter().for_each(|&writer| descriptor::close_number(writer));
            descriptor::close_number(wait.as_raw_fd());
            serve(entry, point, &desk);
        })
        .map_err(|e| Error::system("starting a subject's process", e))?;
        drop(ring);
        let trial = Trial { entry, point, desk, wait, child, byte: 0 };
        match trial.wait() {
            Ok(()) => Ok(Ok(trial)),
            // Of the others none is known to be refused for its number.
            Err(Error::System { source, .. })
                if entry.family == Family::Threads && is_a_limit(&source) =>
            {
                process::unwatch();
                Ok(Err(Refusal { had: trial.desk.about().threads, source }))
            }
            Err(error) => Err(error),
        }
    }

    /// Sleeps until the subject rings.
    fn wait(&self) -> Result<()> {
        let rung = descriptor::read(self.wait.as_raw_fd(), &mut [0]);
        if let Some(failure) = self.desk.failure() {
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
            self.watch_now_and_then(round);
            self.round(false)?;
        }
        self.round(true)?;
        let switches = self.desk.switches();
        let cpu = self.processor_time()?;
        let start = process::now();
        let (mut clock, mut write_ns) = (Vec::new(), 0.0);
        let (least, most) = length.rounds;
        while clock.len() < most
            && (clock.len() < least || ((process::now() - start) as f64) < length.ns)
        {
            self.watch_now_and_then(clock.len());
            let round = self.round(false)?;
            clock.push(round.clock_ns);
            write_ns += round.write_ns;
        }
        let cpu = self.processor_time()? - cpu;
        self.round(true)?;
        process::unwatch();
        let after = self.desk.switches();
        let events = active * clock.len() as f64;
        // The round that brought the report is among those in which threads were switched.
        let switched = |after: u64, before: u64| (after - before) as f64 / (events + active);
        Ok(Block {
            clock_ns: statistics::median(&clock),
            rounds: clock.len(),
            cpu_ns: cpu as f64 / events,
            write_ns: write_ns / events - unwatched,
            voluntary: switched(after.0, switches.0),
            involuntary: switched(after.1, switches.1),
            set: self.desk.about(),
            kernel_stacks: 0.0,
        })
    }

    fn watch_now_and_then(&self, round: usize) {
        if round.is_multiple_of(64) {
            process::watch(self.entry.name);
        }
    }

    fn processor_time(&self) -> Result<u64> {
        self.child.processor_time().map_err(|e| Error::system("asking for processor time", e))
    }

    fn round(&mut self, report: bool) -> Result<Round> {
        self.byte = self.byte.wrapping_add(1);
        let (active, writers) = (self.point.active, self.point.pairs.writers());
        self.desk.expect(active.len(), report);
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
        let clock_ns = self.desk.finished().saturating_sub(start) as f64;
        self.desk.close(self.entry.name, active, self.byte)?;
        if self.point.kind != Kind::Pipe {
            self.hear_answers()?;
        }
        process::sleep(PAUSE.0 + PAUSE.1 * writers.len() as u64);
        Ok(Round { clock_ns, write_ns })
    }

    /// Reads what sockets send back.
    fn hear_answers(&self) -> Result<()> {
        let due = self.byte.wrapping_add(ANSWER);
        for &pair in self.point.active {
            // The network may be late.
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
fn serve(entry: Entry, point: Point<'_>, desk: &Desk) {
    let moved = match point.runs {
        Where::One => process::preempt_nobody(),
        Where::All => process::pin(point.processors),
    };
    if let Err(error) = moved {
        return desk.failed(&error);
    }
    let seat = Seat {
        kind: point.kind,
        readers: point.pairs.readers(),
        handles: point.pairs.reader_handles(),
        desk,
        processors: point.processors.len(),
    };
    let touched = environment::memory_touched().unwrap_or(0);
    let start = process::now();
    let ended = (entry.set_up)(seat).and_then(|reading| {
        desk.set(Set {
            ns: process::now() - start,
            threads: reading.threads() as u64,
            memory: environment::memory_touched().unwrap_or(0).saturating_sub(touched),
        });
        reading.read_on()
    });
    if let Err(error) = ended {
        match error {
            Error::System { source, .. } => desk.failed(&source),
            other => desk.failed(&std::io::Error::other(other.to_string())),
        }
    }
}

/// Whether this is what the kernel says when there are enough threads, or too little memory for one more.
fn is_a_limit(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::ENOMEM))
}

/// What a write takes, in nanoseconds of this thread's processor time, while nobody waits for it.
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
            return Err(Error::last("writing to what nobody reads"));
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
    let sockets = point.kind != Kind::Pipe;
    let ends = [(point.pairs.readers(), true), (point.pairs.writers(), sockets)];
    for (ends, _) in ends.into_iter().filter(|(_, looks)| *looks) {
        for (pair, &fd) in ends.iter().enumerate() {
            let left = descriptor::readable_bytes(fd)
                .map_err(|e| Error::system(format!("looking into pair {pair}"), e))?;
            if left != 0 {
                let found = format!("{left} bytes were left in pair {pair}");
                return Err(Error::Work { subject: entry.name, found });
            }
        }
    }
    Ok(())
}
