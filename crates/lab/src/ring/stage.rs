//! One subject at one point: set up once, then asked for laps again and again.

use std::fs::File;
use std::os::fd::RawFd;
use std::os::unix::fs::FileExt;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use superpoll::BackendKind;

use crate::error::{Error, Result};
use crate::ring::course::Course;
use crate::ring::subject::{Built, Entry};
use crate::sys::process;

/// What some laps took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slice {
    /// Time, in nanoseconds.
    pub ns: u64,
    /// Processor time of all threads of the subject's process.
    pub cpu_ns: u64,
    /// Bytes times pipes.
    pub hops: u64,
    /// Reads that gave something.
    pub reads: u64,
    /// Calls of the read family that the kernel counted, those that found nothing included.
    pub kernel_reads: Option<u64>,
    /// Calls of the write family that the kernel counted.
    pub kernel_writes: Option<u64>,
    /// All other system calls, as the subject counts them.
    pub calls: Option<u64>,
}

impl Slice {
    /// Adds what came after.
    pub fn add(&mut self, other: &Slice) {
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

/// The kernel's count of this process' reads and writes, where it keeps one.
#[derive(Debug)]
struct Kernel(Option<File>);

impl Kernel {
    fn new() -> Kernel {
        Kernel(File::open("/proc/self/io").ok())
    }

    /// Reads and writes so far; looking is itself a read, which the next look counts.
    fn counts(&self) -> Option<(u64, u64)> {
        let mut buffer = [0; 512];
        let length = self.0.as_ref()?.read_at(&mut buffer, 0).ok()?;
        let text = std::str::from_utf8(&buffer[..length]).ok()?;
        let value =
            |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.parse().ok());
        Some((value("syscr: ")?, value("syscw: ")?))
    }
}

/// A subject with its pipes.
pub struct Stage {
    entry: Entry,
    course: Course,
    built: Built,
    kernel: Kernel,
}

impl Stage {
    /// Sets a subject up; our runtime with known ends takes `backend`.
    ///
    /// # Errors
    ///
    /// What the subject says.
    pub fn set_up(entry: Entry, course: Course, backend: BackendKind) -> Result<Stage> {
        let built = entry.build(&course, backend)?;
        Ok(Stage { entry, course, built, kernel: Kernel::new() })
    }

    /// Takes all bytes round so often, and checks that it was done.
    ///
    /// # Errors
    ///
    /// Why the ring broke, or [`Error::Work`].
    pub fn go(&mut self, laps: u64) -> Result<Slice> {
        let trip = self.course.trip(laps);
        let Built { ring, readers, writers } = &mut self.built;
        let readers: &[RawFd] = readers;
        let calls = ring.calls();
        let kernel = self.kernel.counts();
        let cpu = process::processor_time();
        let start = Instant::now();
        self.course.place(writers)?;
        let outcome = ring.go(trip);
        let ns = start.elapsed().as_nanos() as u64;
        let cpu_ns = process::processor_time() - cpu;
        let kernel = self.kernel.counts().zip(kernel);
        // A station may have failed after it had passed the last byte on: it waits for the next.
        let failure = self.course.failure();
        if let Some(cause) = failure.or_else(|| outcome.err().map(|error| error.to_string())) {
            return Err(Error::usage(cause));
        }
        Ok(Slice {
            ns,
            cpu_ns,
            hops: self.course.hops(laps),
            reads: self.course.close(self.entry.name, laps, readers)?,
            kernel_reads: kernel.map(|(after, before)| (after.0 - before.0).saturating_sub(1)),
            kernel_writes: kernel.map(|(after, before)| after.1 - before.1),
            calls: ring.calls().zip(calls).map(|(after, before)| after - before),
        })
    }
}
