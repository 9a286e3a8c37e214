//! Attaches the programs, and reads their counters.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::btf::Types;
use crate::counters::{self, BITMAP, Counts, GLOBALS, Global, Key, Kind, WORDS, Word};
use crate::error::Error;
use crate::machine;
use crate::process;
use crate::program::record::{self, RecordMaps};
use crate::program::{self, Build, COUNTS, IS_FOLLOWED, Maps, SCRATCH, THREAD, Watched};
use crate::sys::ring::RingBuffer;
use crate::sys::{self, MapKind, SHAREABLE, SharedWords};
use crate::trace::{self, Tally, Tracer};

/// Which processes are watched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Subject {
    /// A process, and those that it starts from now on.
    Process(u32),
    /// The processes that this process starts until [`Watch::end_of_children`].
    Children,
    /// All but this one.
    All,
}

/// Watched processes, and threads that wait, at most.
const PROCESSES: u32 = 16_384;
const THREADS: u32 = 16_384;

/// Bytes of the ring of a recording.
const RING: u32 = 8 << 20;

/// The records of a watch, in memory of 8 MiB that is shared with the kernel.
#[derive(Debug)]
pub struct Records {
    pub(crate) ring: RingBuffer,
    globals: SharedWords,
    /// The process that was there before.
    pub(crate) process: Option<u32>,
}

impl Records {
    /// Waits, and changes of sets, that are missing as the ring was full.
    pub(crate) fn lost(&self) -> (u64, u64) {
        let of = |word| self.globals.words()[word as usize].load(Ordering::Relaxed);
        (of(Global::LostWaits), of(Global::LostChanges))
    }
}

/// Programs that are attached until this is dropped. The kernel does so, too, when this process
/// ends, however it ends.
#[derive(Debug)]
pub struct Watch {
    /// The watched processes; `None` if they are traced.
    processes: Option<OwnedFd>,
    counters: SharedWords,
    bitmaps: SharedWords,
    globals: SharedWords,
    globals_map: Option<OwnedFd>,
    tracer: Option<Tracer>,
    /// The descriptors that keep the programs attached.
    _links: Vec<OwnedFd>,
    slots: usize,
    started: Instant,
    call_before: Duration,
    call_after: Duration,
}

impl Watch {
    /// Attaches the programs. Counting begins before this returns.
    ///
    /// # Errors
    ///
    /// The process cannot be watched, or BPF is not permitted or not there.
    pub fn attach(subject: Subject) -> Result<Watch, Error> {
        Watch::new(subject, None)
    }

    /// Attaches programs that record each wait, too. See [`Recorder`](crate::Recorder).
    ///
    /// # Errors
    ///
    /// As above.
    pub fn attach_to_record(subject: Subject) -> Result<(Watch, Records), Error> {
        let ring = RingBuffer::new(RING).map_err(Error::bpf("making a ring for BPF"))?;
        let watch = Watch::new(subject, Some(&ring))?;
        let map = watch.globals_map.as_ref().expect("it was attached with BPF");
        let globals =
            SharedWords::of(map.as_fd(), GLOBALS).map_err(Error::bpf("sharing a map of BPF"))?;
        let process = match subject {
            Subject::Process(process) => Some(process),
            Subject::Children | Subject::All => None,
        };
        Ok((watch, Records { ring, globals, process }))
    }

    /// Counts without BPF, by `ptrace(2)`: a process, or a program that [`start`](Watch::start)
    /// starts. It slows the calls of these, and of nobody else. A wait in which a thread of the
    /// process sleeps fails with `EINTR` at the start.
    ///
    /// # Errors
    ///
    /// The process cannot be watched, [`Subject::All`] among others.
    pub fn trace(subject: Subject) -> Result<Watch, Error> {
        let machine = machine::HERE.ok_or(Error::Machine(std::env::consts::ARCH))?;
        let failed = |what| move |source| Error::NoTrace { what, source };
        let slots = 256;
        let memory =
            |words| SharedWords::pair(words).map_err(failed("making memory for the counters"));
        let (counters, to_count) = memory(slots * WORDS)?;
        let (bitmaps, to_note) = memory(slots * BITMAP)?;
        let (globals, of_all) = memory(GLOBALS)?;
        let tally = Tally::new(to_count, to_note, of_all, machine);
        let call_before = sys::shortest_call();
        let call_after = trace::measure().map_err(failed("tracing a process of its own"))?;
        let started = Instant::now();
        let tracer = match subject {
            Subject::Process(process) => {
                process::check(process)?;
                Tracer::of(process, tally).map_err(|source| match source.raw_os_error() {
                    Some(libc::ESRCH) => Error::NoProcess(process),
                    _ => Error::NotTraced { process, tracer: process::tracer(process), source },
                })?
            }
            Subject::Children => Tracer::of_a_program(tally),
            Subject::All => {
                let source = io::Error::from(io::ErrorKind::Unsupported);
                return Err(Error::NoTrace { what: "tracing all processes", source });
            }
        };
        Ok(Watch {
            processes: None,
            counters,
            bitmaps,
            globals,
            globals_map: None,
            tracer: Some(tracer),
            _links: Vec::new(),
            slots,
            started,
            call_before,
            call_after,
        })
    }

    /// Starts a program, which is watched from its start, and those that it starts. To be called
    /// once, of a watch of [`Subject::Children`].
    ///
    /// # Errors
    ///
    /// It cannot be started.
    pub fn start(&mut self, command: &mut Command) -> io::Result<Child> {
        match &mut self.tracer {
            Some(tracer) => tracer.start(command),
            None => {
                let started = command.spawn();
                self.end_of_children();
                started
            }
        }
    }

    /// Ends to count. What was counted remains. Until then, no one waits for a traced child.
    pub fn end(&mut self) {
        self._links.clear();
        if let Some(tracer) = &mut self.tracer {
            tracer.end();
        }
    }

    /// Whether the program is traced, instead of watched by BPF.
    pub fn is_traced(&self) -> bool {
        self.tracer.is_some()
    }

    fn new(subject: Subject, ring: Option<&RingBuffer>) -> Result<Watch, Error> {
        let machine = machine::HERE.ok_or(Error::Machine(std::env::consts::ARCH))?;
        if let Subject::Process(process) = subject {
            process::check(process)?;
        }
        if !process::has_machine_numbers() {
            return Err(Error::Namespace);
        }
        let all = subject == Subject::All;
        let slots: u32 = if all { 4096 } else { 256 };
        let map = |kind, key, value, entries, flags| {
            sys::map(kind, key, value, entries, flags).map_err(Error::bpf("making a map for BPF"))
        };
        let (words, bitmap) = (8 * WORDS as u32, 8 * BITMAP as u32);
        let processes = map(MapKind::Hash, 4, 8, PROCESSES, 0)?;
        let threads = map(MapKind::ForgetfulHash, 8, THREAD, THREADS, 0)?;
        let keys = map(MapKind::Hash, 8, 4, slots, 0)?;
        let counters = map(MapKind::Array, 4, words, slots, SHAREABLE)?;
        let bitmaps = map(MapKind::Array, 4, bitmap, slots, SHAREABLE)?;
        let scratch = map(MapKind::PerProcessorArray, 4, SCRATCH, 1, 0)?;
        let globals = map(MapKind::Array, 4, 8 * GLOBALS as u32, 1, SHAREABLE)?;
        let maps = Maps {
            processes: processes.as_raw_fd(),
            threads: threads.as_raw_fd(),
            slots: keys.as_raw_fd(),
            counters: counters.as_raw_fd(),
            bitmaps: bitmaps.as_raw_fd(),
            scratch: scratch.as_raw_fd(),
            globals: globals.as_raw_fd(),
        };
        let room = ring.map(|_| map(MapKind::PerProcessorArray, 4, record::ROOM, 1, 0));
        let room = room.transpose()?;
        let record = ring
            .zip(room.as_ref())
            .map(|(ring, room)| RecordMaps { ring: ring.descriptor(), room: room.as_raw_fd() });
        let build = Build { machine, maps, slots, all, record };
        let shared = |map: &OwnedFd, words: usize| {
            SharedWords::of(map.as_fd(), words).map_err(Error::bpf("sharing a map of BPF"))
        };
        let slots = slots as usize;
        let mut watch = Watch {
            counters: shared(&counters, slots * WORDS)?,
            bitmaps: shared(&bitmaps, slots * BITMAP)?,
            globals: shared(&globals, GLOBALS)?,
            globals_map: Some(globals),
            processes: Some(processes),
            tracer: None,
            _links: Vec::new(),
            slots,
            started: Instant::now(),
            call_before: Duration::ZERO,
            call_after: Duration::ZERO,
        };
        watch.note(subject)?;
        watch.link(build)?;
        Ok(watch)
    }

    /// Loads and attaches the programs.
    fn link(&mut self, build: Build<'_>) -> Result<(), Error> {
        let described = "reading the types of the kernel";
        let types = Types::read().map_err(Error::bpf(described))?;
        let load = |tracepoint: &str, code: Vec<u64>| {
            let number = types.tracepoint(tracepoint).map_err(Error::bpf(described))?;
            sys::load(&code, number).map_err(Error::bpf("loading a BPF program"))
        };
        let tgid_at = types.offset("task_struct", "tgid").map_err(Error::bpf(described))?;
        let fork = load("sched_process_fork", program::fork(build, tgid_at))?;
        let enter = load("sys_enter", program::enter(build))?;
        let exit = load("sys_exit", program::exit(build))?;
        self.call_before = sys::shortest_call();
        self.started = Instant::now();
        for program in [fork, enter, exit] {
            let link = sys::attach(program.as_fd())
                .map_err(Error::bpf("attaching a BPF program to a tracepoint"))?;
            self._links.push(link);
        }
        self.call_after = sys::shortest_call();
        Ok(())
    }

    /// Notes whose calls count from the start.
    fn note(&self, subject: Subject) -> Result<(), Error> {
        let globals = self.globals.words();
        let own = std::process::id();
        let (process, flags) = match subject {
            Subject::Process(process) => (process, COUNTS | IS_FOLLOWED),
            Subject::Children => (own, IS_FOLLOWED),
            // It is known, and does not count.
            Subject::All => (own, 0),
        };
        let slot = globals[Global::Next as usize].fetch_add(1, Ordering::Relaxed);
        if flags & COUNTS != 0 {
            let key = Key { process, kind: Kind::Process, id: 0 };
            self.slot(slot as usize)[Word::Key as usize].store(key.word(), Ordering::Relaxed);
        }
        let processes = self.processes.as_ref().expect("it is attached with BPF");
        sys::insert(processes.as_fd(), &process, &Watched { slot: slot as u32, flags })
            .map_err(Error::bpf("noting a process for BPF"))
    }

    /// Stops to watch further processes that this one starts. Those of before are watched, and so
    /// are the processes that they start.
    pub fn end_of_children(&self) {
        // It fails only if it was called before.
        let _ = self
            .processes
            .as_ref()
            .map(|processes| sys::remove(processes.as_fd(), &std::process::id()));
    }

    fn slot(&self, slot: usize) -> &[AtomicU64] {
        &self.counters.words()[slot * WORDS..][..WORDS]
    }

    /// The slots that have a key.
    fn keys(&self) -> impl Iterator<Item = (usize, Key)> {
        let next = self.globals.words()[Global::Next as usize].load(Ordering::Relaxed);
        (0..self.slots.min(next as usize)).filter_map(|slot| {
            let word = self.slot(slot)[Word::Key as usize].load(Ordering::Relaxed);
            if word == 0 { None } else { Some((slot, Key::from_word(word)?)) }
        })
    }

    /// Returns all counts since the start.
    pub fn counts(&self) -> BTreeMap<Key, Counts> {
        let mut all: BTreeMap<Key, Counts> = BTreeMap::new();
        for (slot, key) in self.keys() {
            all.entry(key).or_default().add(&Counts::read(self.slot(slot)));
        }
        all
    }

    /// Returns how many different values of `epoll_event.data` waits have returned since the last
    /// call of this, by epoll set: of each wait the first 64 events are looked at. Within 1 %, and
    /// exactly for a few.
    pub fn take_distinct(&self) -> BTreeMap<Key, f64> {
        let mut all = BTreeMap::new();
        for (slot, key) in self.keys().filter(|(_, key)| key.kind == Kind::Epoll) {
            let bitmap = &self.bitmaps.words()[slot * BITMAP..][..BITMAP];
            *all.entry(key).or_default() += counters::take_distinct(bitmap);
        }
        all
    }

    /// When counting began.
    pub fn started(&self) -> Instant {
        self.started
    }

    /// By how much a system call of any process takes longer while this is attached, measured with
    /// the shortest calls of this process before and after.
    pub fn overhead(&self) -> Duration {
        self.call_after.saturating_sub(self.call_before)
    }

    /// Calls that were not counted since there were too many processes, sets and kinds of arrays.
    pub fn overflow(&self) -> u64 {
        self.globals.words()[Global::Overflow as usize].load(Ordering::Relaxed)
    }

    /// Calls of 32-bit programs, which are not counted.
    pub fn compat_calls(&self) -> u64 {
        self.globals.words()[Global::Compat as usize].load(Ordering::Relaxed)
    }
}
