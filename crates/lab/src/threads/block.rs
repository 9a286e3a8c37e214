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

use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::channel::{Kind, Pairs};
use crate::error::{Doing, Error, Result};
use crate::loops::Ready;
use crate::measure::watch_now_and_then;
use crate::statistics;
use crate::sys::memory::SharedNumbers;
use crate::sys::{descriptor, process};
use crate::threads::subject::{Entry, Family, Input};

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
    /// Threads of the subject.
    pub threads: u64,
}

/// A subject that the system refused to set up.
#[derive(Debug)]
pub(super) struct Refusal {
    /// Threads that it got before the refusal.
    pub had: u64,
    /// The kernel's error.
    pub source: std::io::Error,
}

/// Rounds of a block, at least and at most.
const ROUNDS: (usize, usize) = (12, 4000);

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

/// Sets a subject up and measures it for about `ns` nanoseconds. The inner error says that the
/// system did not allow it that many threads.
pub(super) fn measure(
    entry: Entry,
    point: Point<'_>,
    ns: f64,
) -> Result<std::result::Result<Block, Refusal>> {
    let unwatched = unwatched(point)?;
    let mut trial = match Trial::start(entry, point)? {
        Ok(trial) => trial,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let block = trial.run(ns, unwatched)?;
    drop(trial);
    nothing_is_left(entry, point)?;
    Ok(Ok(block))
}

/// Checks whether a subject can be set up at all; returns the refusal if not.
pub(super) fn probe(entry: Entry, point: Point<'_>) -> Result<Option<Refusal>> {
    Ok(Trial::start(entry, point)?.err())
}

impl<'a> Trial<'a> {
    fn start(entry: Entry, point: Point<'a>) -> Result<std::result::Result<Trial<'a>, Refusal>> {
        let (counters, wait, wake) =
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
                Ok(Err(Refusal { had: trial.counters.threads(), source }))
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

    fn run(&mut self, ns: f64, unwatched: f64) -> Result<Block> {
        let active = self.point.active.len() as f64;
        let warm_up = if self.entry.adapts { WARM_UP.0 } else { WARM_UP.1 };
        for round in 0..warm_up {
            watch_now_and_then(self.entry.name, round);
            self.round(false)?;
        }
        self.round(true)?;
        let sleeps = self.counters.sleeps();
        let cpu = self.processor_time()?;
        let start = process::now();
        let (mut clock, mut write_ns) = (Vec::new(), 0.0);
        let (least, most) = ROUNDS;
        while clock.len() < most && (clock.len() < least || ((process::now() - start) as f64) < ns)
        {
            watch_now_and_then(self.entry.name, clock.len());
            let (round_ns, of_writes) = self.round(false)?;
            clock.push(round_ns);
            write_ns += of_writes;
        }
        let cpu = self.processor_time()? - cpu;
        self.round(true)?;
        process::unwatch();
        let sleeps = self.counters.sleeps() - sleeps;
        let events = active * clock.len() as f64;
        Ok(Block {
            clock_ns: statistics::median(&clock),
            rounds: clock.len(),
            cpu_ns: cpu as f64 / events,
            write_ns: write_ns / events - unwatched,
            // The round that brought the report counts among the rounds with thread switches.
            voluntary: sleeps as f64 / (events + active),
            threads: self.counters.threads(),
        })
    }

    fn processor_time(&self) -> Result<u64> {
        self.child.processor_time().doing("asking for processor time")
    }

    /// Runs a round; returns its time on the clock, and the writer's processor time for its writes,
    /// in nanoseconds.
    fn round(&mut self, report: bool) -> Result<(f64, f64)> {
        self.byte = self.byte.wrapping_add(1);
        let Point { active, pairs, .. } = self.point;
        self.counters.expect(active.len(), report);
        let before = process::thread_time();
        let start = process::now();
        pairs.write(active, self.byte)?;
        let write_ns = (process::thread_time() - before) as f64;
        self.wait()?;
        let clock_ns = self.counters.finished().saturating_sub(start) as f64;
        self.counters.close(self.entry.name, active, self.byte)?;
        if self.point.kind != Kind::Pipe {
            self.hear_answers()?;
        }
        process::sleep(PAUSE.0 + PAUSE.1 * pairs.len() as u64);
        Ok((clock_ns, write_ns))
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
    let ended = (entry.set_up)(input).and_then(|reading| {
        counters.has_threads(reading.threads);
        counters.wake_writer();
        (reading.read_on)()
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
    let readers = point.pairs.readers();
    let mut samples = Vec::new();
    for _ in 0..(UNWATCHED_WRITES / point.active.len().max(1)).max(3) {
        let before = process::thread_time();
        point.pairs.write(point.active, 0)?;
        let took = process::thread_time() - before;
        samples.push(took as f64 / point.active.len() as f64);
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

// The memory that the writer and a subject share: the work that is due, and the proof that it was
// done.
//
// A subject is another process, perhaps with a thousand threads, so its counters lie in shared
// memory. Each pair has a word there, with the number of bytes read and their sum. A common
// counter shows when the last byte of a round was read; the reader of that byte notes the time and
// wakes the writer. This costs an atomic addition for each event and, with threads, a cache line
// that moves between processors, the same for all subjects.

/// Bytes that will have been read in total when the round is over, and whether the last reader
/// reports.
const DUE: usize = 0;
const ASKED: usize = 1;
/// Bytes read so far, on another cache line than the words that are only read.
const READ: usize = 8;
/// The time that the reader of the last byte notes.
const FINISHED: usize = 16;
/// How often the subject's threads went to sleep.
const SLEEPS: usize = 17;
/// Threads that the subject has.
const THREADS: usize = 18;
const FAILURE: usize = 19;
/// Threads that are about to wait for the first time.
const ARRIVED: usize = 20;
/// The words of the pairs.
const FIRST: usize = 24;

/// One byte read, as an addend to a pair's word: a count of one in the upper half, its value in the
/// lower.
const ONE_READ: u64 = 1 << 32;

/// A read has room for more bytes than arrive, so that no reader needs a second call to learn that
/// nothing is left.
pub(super) const ROOM: usize = 16;

/// The difference between the byte that a socket sends back and the byte that came.
pub(super) const ANSWER: u8 = 1;

/// The outcome of a read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    /// The bytes read were noted and, if the writer wants answers, answered.
    Took,
    /// There was nothing.
    Nothing,
    /// The writer is gone.
    Ended,
}

/// The counters of the writer and the subject. Each process has its own copy of this struct and
/// shares its numbers.
#[derive(Clone, Debug)]
pub(super) struct SharedCounters {
    shared: Arc<SharedNumbers>,
    done: RawFd,
    answers: bool,
}

impl SharedCounters {
    /// Creates counters for `pairs` pairs, and the pipe that wakes the writer when a round is done:
    /// the end where the writer waits, and the end that the subject writes to. The writer closes
    /// its copy of the latter, so that the pipe ends when the subject does. With `answers`, each
    /// byte is sent back as well.
    pub(super) fn new(pairs: usize, answers: bool) -> Result<(SharedCounters, OwnedFd, OwnedFd)> {
        let failed = |source| Error::system("creating the counters of a subject", source);
        let (wait, wake) = descriptor::pipe().map_err(failed)?;
        for end in [&wait, &wake] {
            descriptor::set_blocking(end.as_raw_fd(), true).map_err(failed)?;
        }
        let shared = SharedNumbers::new(FIRST + pairs).map_err(failed)?;
        let counters = SharedCounters { shared: Arc::new(shared), done: wake.as_raw_fd(), answers };
        Ok((counters, wait, wake))
    }

    /// Reads the bytes that a pair has.
    #[inline(always)]
    pub(super) fn read(&self, pair: usize, fd: RawFd) -> Outcome {
        let mut buffer = [0; ROOM];
        match usize::try_from(descriptor::read(fd, &mut buffer)) {
            Ok(0) => Outcome::Ended,
            Ok(count) => self.took(pair, &buffer[..count], fd),
            Err(_) => self.nothing(),
        }
    }

    #[cold]
    fn nothing(&self) -> Outcome {
        let error = io::Error::last_os_error();
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::Interrupted => Outcome::Nothing,
            _ => self.broken(&error),
        }
    }

    /// Handles a read that has failed for good: a writer that closes resets its connection, which
    /// is an end like any other.
    pub(super) fn broken(&self, error: &io::Error) -> Outcome {
        if error.kind() != ErrorKind::ConnectionReset {
            self.failed(error);
        }
        Outcome::Ended
    }

    /// Notes bytes that were read from a pair, and answers them on `fd` if the writer wants
    /// answers.
    #[inline(always)]
    pub(super) fn took(&self, pair: usize, bytes: &[u8], fd: RawFd) -> Outcome {
        for &byte in bytes {
            if self.answers && !descriptor::write_byte(fd, byte.wrapping_add(ANSWER)) {
                self.failed(&io::Error::last_os_error());
                return Outcome::Ended;
            }
            self.shared[FIRST + pair].fetch_add(ONE_READ + u64::from(byte), Ordering::Relaxed);
            let read = self.shared[READ].fetch_add(1, Ordering::AcqRel) + 1;
            if read == self.shared[DUE].load(Ordering::Relaxed) {
                self.finish();
            }
        }
        Outcome::Took
    }

    #[cold]
    fn finish(&self) {
        self.shared[FINISHED].store(process::now(), Ordering::Relaxed);
        if self.shared[ASKED].load(Ordering::Relaxed) != 0 {
            self.shared[SLEEPS].store(process::sleeps(), Ordering::Relaxed);
        }
        self.wake_writer();
    }

    /// Wakes the writer.
    pub(super) fn wake_writer(&self) {
        // If the writer is gone, there is no one left to wake.
        let _ = descriptor::write_byte(self.done, b'.');
    }

    /// Notes that a thread of the subject is about to wait for the first time.
    pub(super) fn arrive(&self) {
        self.shared[ARRIVED].fetch_add(1, Ordering::Release);
    }

    /// Threads that have arrived.
    pub(super) fn arrived(&self) -> u64 {
        self.shared[ARRIVED].load(Ordering::Acquire)
    }

    /// Notes how many threads the subject has, or could have at most.
    pub(super) fn has_threads(&self, threads: usize) {
        self.shared[THREADS].store(threads as u64, Ordering::Relaxed);
    }

    /// Notes that the subject cannot go on; wakes the writer. The first cause counts.
    pub(super) fn failed(&self, error: &io::Error) {
        let number = error.raw_os_error().unwrap_or(libc::EIO) as u64;
        let order = Ordering::Relaxed;
        let _ = self.shared[FAILURE].compare_exchange(0, number, order, order);
        self.wake_writer();
    }

    /// Returns why the subject cannot go on, if so.
    pub(super) fn failure(&self) -> Option<io::Error> {
        match self.shared[FAILURE].load(Ordering::Relaxed) {
            0 => None,
            number => Some(io::Error::from_raw_os_error(number as i32)),
        }
    }

    /// Returns the threads that the subject has, as it noted.
    pub(super) fn threads(&self) -> u64 {
        self.shared[THREADS].load(Ordering::Relaxed)
    }

    /// For the writer: `bytes` more bytes make a round, and with `report` the last reader reports
    /// how often its threads went to sleep. The writer calls this before it writes any of them.
    pub(super) fn expect(&self, bytes: usize, report: bool) {
        self.shared[ASKED].store(u64::from(report), Ordering::Relaxed);
        self.shared[DUE].fetch_add(bytes as u64, Ordering::Release);
    }

    /// Returns when the last byte of the round was read, by the monotonic clock.
    pub(super) fn finished(&self) -> u64 {
        self.shared[FINISHED].load(Ordering::Relaxed)
    }

    /// How often the subject's threads went to sleep, as reported last.
    pub(super) fn sleeps(&self) -> u64 {
        self.shared[SLEEPS].load(Ordering::Relaxed)
    }

    /// Ends a round: the byte of each active pair must have been read once, and no other byte.
    pub(super) fn close(&self, subject: &'static str, active: &[u32], byte: u8) -> Result<()> {
        let wrong = |found: String| Err(Error::Work { subject, found });
        let (read, due) = (&self.shared[READ], &self.shared[DUE]);
        let (read, due) = (read.load(Ordering::Acquire), due.load(Ordering::Relaxed));
        if read != due {
            return wrong(format!("{due} bytes were written since the beginning, {read} read"));
        }
        for &pair in active {
            let word = self.shared[FIRST + pair as usize].swap(0, Ordering::Relaxed);
            if word != ONE_READ + u64::from(byte) {
                let (count, sum) = (word / ONE_READ, word % ONE_READ);
                return wrong(format!(
                    "the reader of pair {pair} was read {count} times and gave {sum}, not {byte}"
                ));
            }
        }
        Ok(())
    }
}

impl Ready for SharedCounters {
    #[inline(always)]
    fn ready(&mut self, place: usize, fd: RawFd) -> bool {
        self.read(place, fd) != Outcome::Ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::{Kind, Pairs};

    #[test]
    fn the_last_byte_of_a_round_wakes_the_writer_and_wrong_work_is_found() {
        let pairs = Pairs::open(Kind::Pipe, 3).unwrap();
        let (counters, wait, _wake) = SharedCounters::new(3, false).unwrap();
        descriptor::set_blocking(wait.as_raw_fd(), false).unwrap();
        let write =
            |pair: usize, byte| assert!(descriptor::write_byte(pairs.writers()[pair], byte));
        let read = |pair: usize| counters.read(pair, pairs.readers()[pair]);

        counters.expect(2, false);
        write(0, 7);
        write(2, 7);
        assert_eq!((read(1), read(0)), (Outcome::Nothing, Outcome::Took));
        assert_eq!(descriptor::read_byte(wait.as_raw_fd()), None);
        let error = counters.close("test", &[0, 2], 7).unwrap_err().to_string();
        assert!(error.contains("2 bytes were written since the beginning, 1 read"), "{error}");
        assert_eq!(read(2), Outcome::Took);
        assert_eq!(descriptor::read_byte(wait.as_raw_fd()), Some(b'.'));
        assert!(counters.finished() > 0);
        counters.close("test", &[0, 2], 7).unwrap();

        // A byte that was not written, and a byte read twice in place of another.
        counters.expect(1, true);
        write(1, 8);
        assert_eq!(read(1), Outcome::Took);
        let error = counters.close("test", &[1], 9).unwrap_err().to_string();
        assert!(error.contains("pair 1 was read 1 times and gave 8, not 9"), "{error}");
        counters.expect(2, false);
        write(0, 1);
        write(0, 1);
        assert_eq!(read(0), Outcome::Took);
        let error = counters.close("test", &[0, 1], 1).unwrap_err().to_string();
        assert!(error.contains("pair 0 was read 2 times"), "{error}");
    }

    #[test]
    fn a_socket_answers_and_the_end_of_a_pair_is_no_failure() {
        let pairs = Pairs::open(Kind::Unix, 1).unwrap();
        let (counters, _wait, _wake) = SharedCounters::new(1, true).unwrap();
        let (reader, writer) = (pairs.readers()[0], pairs.writers()[0]);
        counters.expect(1, false);
        assert!(descriptor::write_byte(writer, 255));
        assert_eq!(counters.read(0, reader), Outcome::Took);
        assert_eq!(descriptor::read_byte(writer), Some(255u8.wrapping_add(ANSWER)));
        assert_eq!(counters.read(0, -1), Outcome::Ended);
        assert_eq!(counters.failure().unwrap().raw_os_error(), Some(libc::EBADF));
    }
}
