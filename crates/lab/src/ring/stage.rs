//! One subject at one point: set up once, then run for laps again and again.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::error::{Doing, Error, Result};
use crate::ring::course::Course;
use crate::ring::subject::Subject;
use crate::ring::tasks::Built;
use crate::second_thread::SecondThread;
use crate::server::clients::Clients;
use crate::sys::process;

/// The measurements of some laps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Slice {
    /// Time, in nanoseconds.
    pub ns: u64,
    /// Processor time of all threads of the process in which the subject works.
    pub cpu_ns: u64,
    /// Bytes times pipes.
    pub hops: u64,
    /// Reads that returned something.
    pub reads: u64,
    /// Calls of the read family that the kernel counted, including those that found nothing.
    pub kernel_reads: Option<u64>,
    /// Calls of the write family that the kernel counted.
    pub kernel_writes: Option<u64>,
    /// All remaining system calls, as the subject counts them.
    pub calls: Option<u64>,
}

impl Slice {
    /// Adds the measurements of later laps.
    pub(super) fn add(&mut self, other: &Slice) {
        self.ns += other.ns;
        self.cpu_ns += other.cpu_ns;
        self.hops += other.hops;
        self.reads += other.reads;
        let both = |one: Option<u64>, other: Option<u64>| one.zip(other).map(|(a, b)| a + b);
        self.kernel_reads = both(self.kernel_reads, other.kernel_reads);
        self.kernel_writes = both(self.kernel_writes, other.kernel_writes);
        self.calls = both(self.calls, other.calls);
    }
}

/// How long another process may take to go to sleep after a trip.
const SETTLING_NS: u64 = 2_000_000;

/// The kernel's counts for the process in which a subject works: mostly this process.
#[derive(Debug)]
struct Kernel {
    elsewhere: Option<i32>,
    /// Its reads and writes, where they are counted.
    io: Option<File>,
}

impl Kernel {
    fn new(elsewhere: Option<i32>) -> Kernel {
        let process = elsewhere.map_or_else(|| "self".to_owned(), |pid| pid.to_string());
        Kernel { elsewhere, io: File::open(format!("/proc/{process}/io")).ok() }
    }

    /// The processor time of all its threads so far.
    fn processor_time(&self) -> Result<u64> {
        let Some(pid) = self.elsewhere else { return Ok(process::processor_time()) };
        // For a running process, the kernel returns the time used up to the last clock tick.
        process::sleep(SETTLING_NS);
        process::processor_time_of(pid).doing("reading the processor time of a subject")
    }

    /// Reads and writes so far.
    fn counts(&self) -> Option<(u64, u64)> {
        let mut buffer = [0; 512];
        let length = self.io.as_ref()?.read_at(&mut buffer, 0).ok()?;
        let text = std::str::from_utf8(&buffer[..length]).ok()?;
        let value =
            |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.parse().ok());
        Some((value("syscr: ")?, value("syscw: ")?))
    }

    /// Returns the reads and writes since a previous count. A process that counts itself makes a
    /// read, which its next count includes.
    fn since(&self, before: Option<(u64, u64)>) -> Option<(u64, u64)> {
        let (after, before) = self.counts().zip(before)?;
        let looks = u64::from(self.elsewhere.is_none());
        Some(((after.0 - before.0).saturating_sub(looks), after.1 - before.1))
    }
}

/// A subject with its pipes.
pub(super) struct Stage {
    entry: Subject,
    course: Course,
    built: Built,
    kernel: Kernel,
}

impl Stage {
    /// Sets a subject up.
    pub(super) fn set_up(entry: Subject, course: Course) -> Result<Stage> {
        let built = entry.start.build(&course)?;
        let kernel = Kernel::new(built.ring.elsewhere());
        Ok(Stage { entry, course, built, kernel })
    }

    /// Takes all bytes round `laps` times, and checks the result.
    pub(super) fn go(&mut self, laps: u64) -> Result<Slice> {
        let trip = self.course.trip(laps);
        let Built { ring, readers, writers } = &mut self.built;
        let calls = ring.calls();
        let before = self.kernel.counts();
        let cpu = self.kernel.processor_time()?;
        let start = Instant::now();
        self.course.place(writers)?;
        let outcome = ring.go(trip);
        let ns = start.elapsed().as_nanos() as u64;
        let cpu_ns = self.kernel.processor_time()? - cpu;
        let kernel = self.kernel.since(before);
        let outcome = outcome.and_then(|()| ring.flush_reports());
        if let Some(now) = ring.renewed() {
            (*readers, *writers) = now;
        }
        // A station may have failed after it had passed the last byte on, while it waits for the
        // next.
        let failure = self.course.failure();
        if let Some(cause) = failure.or_else(|| outcome.err().map(|error| error.to_string())) {
            return Err(Error::usage(cause));
        }
        Ok(Slice {
            ns,
            cpu_ns,
            hops: self.course.hops(laps),
            reads: self.course.close(self.entry.name, laps, readers)?,
            kernel_reads: kernel.map(|(reads, _)| reads),
            kernel_writes: kernel.map(|(_, writes)| writes),
            calls: ring.calls().zip(calls).map(|(after, before)| after - before),
        })
    }
}

// A subject in a process of its own.
//
// A runtime that starts threads makes every descriptor lookup of its process more expensive, and a
// thousand pipes for each subject would not fit into one table of descriptors. So each subject
// lives in a child, forked while there is one thread, and takes its turn on command: one line
// orders a number of laps, one line returns the measurements. The parent sleeps meanwhile, as do
// all the other subjects.

/// A subject in a process of its own, which does nothing but run laps.
#[derive(Debug)]
pub(super) struct Remote {
    /// The subject.
    pub entry: Subject,
    process: Clients,
}

impl Remote {
    /// Starts the process, and makes it set the subject up.
    pub(super) fn start(entry: Subject, course: &Course, second_thread: bool) -> Result<Remote> {
        let course = course.clone();
        let (mut second, mut stage) = (None, None);
        let process = Clients::start(entry.name, move |laps: u64| {
            if second_thread && second.is_none() {
                second = Some(SecondThread::start());
            }
            process::watch(entry.name);
            let slice = match &mut stage {
                None => Stage::set_up(entry, course.clone()).map(|new| {
                    stage = Some(new);
                    Slice::default()
                }),
                Some(stage) => stage.go(laps),
            };
            process::unwatch();
            slice
        })?;
        let mut remote = Remote { entry, process };
        remote.go(0)?;
        Ok(remote)
    }

    /// Makes the subject take all bytes round `laps` times.
    pub(super) fn go(&mut self, laps: u64) -> Result<Slice> {
        self.process.ask(&laps)
    }
}
