//! Attaches the programs, and reads their counters.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::btf::Types;
use crate::counters::{self, BITMAP, Counts, GLOBALS, Global, Key, Kind, WORDS, Word};
use crate::error::Error;
use crate::machine;
use crate::preload::{self, Preload};
use crate::process;
use crate::program::record::{self, RecordMaps};
use crate::program::{self, Build, COUNTS, IS_FOLLOWED, Maps, SCRATCH, THREAD, Watched};
use crate::recording::End;
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

/// How calls are counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method {
    /// By programs in the kernel.
    Bpf,
    /// By a library that the program has loaded.
    Preload,
    /// By stopping the program at its calls.
    Ptrace,
}

/// Threads that wait, at most.
const THREADS: u32 = 16_384;

/// Processes, sets and kinds of arrays at a time, at most; and with [`Subject::All`].
const SLOTS: u32 = 1024;
const SLOTS_OF_ALL: u32 = 4096;

/// Counts of processes that have ended that are kept, at most. Half of the room is for those that
/// have made a wait.
const KEPT: usize = 4096;

/// Bytes of the ring of a recording.
const RING: u32 = 8 << 20;

/// The records of a watch, in memory of 8 MiB that is shared with the kernel.
#[derive(Debug)]
pub struct Records {
    pub(crate) ring: RingBuffer,
    globals: SharedWords,
    /// The process that was there before.
    pub(crate) process: Option<u32>,
    /// When the watch was attached.
    pub(crate) started: u64,
}

impl Records {
    /// The losses so far.
    pub(crate) fn lost(&self) -> End {
        let of = |word| self.globals.words()[word as usize].load(Ordering::Relaxed);
        End {
            lost_waits: of(Global::LostWaits),
            lost_changes: of(Global::LostChanges),
            uncounted_calls: of(Global::Overflow),
            unfollowed_processes: of(Global::Unfollowed),
            compat_calls: of(Global::Compat),
            ..End::default()
        }
    }
}

/// The maps of BPF that both sides change.
#[derive(Debug)]
struct SharedMaps {
    /// The watched processes.
    processes: OwnedFd,
    /// The slot of each key.
    keys: OwnedFd,
    /// Slots that were given back.
    free: OwnedFd,
    globals: OwnedFd,
}

/// Programs that are attached until this is dropped. The kernel detaches them, and ends to trace,
/// when this process ends, however it ends. A preloaded library continues to count if this process
/// is killed.
#[derive(Debug)]
pub struct Watch {
    /// `None` without BPF.
    maps: Option<SharedMaps>,
    counters: SharedWords,
    bitmaps: SharedWords,
    globals: SharedWords,
    tracer: Option<Tracer>,
    preload: Option<Preload>,
    /// The descriptors that keep the programs attached.
    links: Vec<OwnedFd>,
    slots: usize,
    /// The counts of ended processes, and the number of the others.
    kept: BTreeMap<Key, Counts>,
    forgotten: u64,
    started: Instant,
    call_before: Duration,
    call_after: Duration,
}

/// Processes that have ended: their own slots, and their numbers.
#[derive(Debug, Default)]
pub(crate) struct Ended(BTreeMap<u32, u32>);

impl Ended {
    /// The numbers of the processes.
    pub(crate) fn processes(&self) -> BTreeSet<u32> {
        self.0.values().copied().collect()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.end();
    }
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
        let started = sys::monotonic_ns();
        let maps = watch.maps.as_ref().expect("it was attached with BPF");
        let globals = SharedWords::of(maps.globals.as_fd(), GLOBALS)
            .map_err(Error::bpf("sharing a map of BPF"))?;
        let process = match subject {
            Subject::Process(process) => Some(process),
            Subject::Children | Subject::All => None,
        };
        Ok((watch, Records { ring, globals, process, started }))
    }

    /// Counts without BPF, by `ptrace(2)`: a process, or a program that [`start`](Watch::start)
    /// starts. It slows the calls of these, and of nobody else. A wait in which a thread of the
    /// process sleeps fails with `EINTR` at the start. From now on this process has a handler of
    /// `SIGURG` that does nothing.
    ///
    /// # Errors
    ///
    /// The process cannot be traced. [`Subject::All`] never can.
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
            maps: None,
            counters,
            bitmaps,
            globals,
            tracer: Some(tracer),
            preload: None,
            links: Vec::new(),
            slots,
            kept: BTreeMap::new(),
            forgotten: 0,
            started,
            call_before,
            call_after,
        })
    }

    /// Counts without BPF, by a library that a program loads: one that [`start`](Watch::start)
    /// starts. Calls that do not go through the C library are not seen.
    ///
    /// # Errors
    ///
    /// [`Error::NoPreload`] if there is no such library here, or this program would not load it.
    pub fn preload(program: &OsStr) -> Result<Watch, Error> {
        let (preload, [counters, bitmaps, globals]) =
            Preload::of(program).map_err(Error::NoPreload)?;
        let measured = preload::measure();
        Ok(Watch {
            maps: None,
            counters,
            bitmaps,
            globals,
            tracer: None,
            preload: Some(preload),
            links: Vec::new(),
            slots: Preload::slots(),
            kept: BTreeMap::new(),
            forgotten: 0,
            started: Instant::now(),
            call_before: Duration::ZERO,
            call_after: measured
                .map_err(|error| Error::NoPreload(format!("measuring the counters: {error}")))?,
        })
    }

    /// Starts a program, which is watched from its start, and those that it starts. To be called
    /// once, of a watch of [`Subject::Children`].
    ///
    /// # Errors
    ///
    /// It cannot be started.
    pub fn start(&mut self, command: &mut Command) -> io::Result<Child> {
        match (&mut self.tracer, &self.preload) {
            (Some(tracer), _) => tracer.start(command),
            (None, Some(preload)) => {
                preload.load_into(command);
                command.spawn()
            }
            (None, None) => {
                let started = command.spawn();
                self.end_of_children();
                started
            }
        }
    }

    /// Stops counting; the counts remain. A traced child can be waited for only afterwards.
    pub fn end(&mut self) {
        self.links.clear();
        if let Some(tracer) = &mut self.tracer {
            tracer.end();
        }
        self.globals.words()[Global::Layout as usize].store(0, Ordering::Release);
    }

    /// How calls are counted.
    pub fn method(&self) -> Method {
        match (&self.tracer, &self.preload) {
            (Some(_), _) => Method::Ptrace,
            (None, Some(_)) => Method::Preload,
            (None, None) => Method::Bpf,
        }
    }

    /// How many processes have loaded the library that counts in them.
    pub fn loaded(&self) -> u64 {
        self.globals.words()[Global::Loaded as usize].load(Ordering::Relaxed)
    }

    fn new(subject: Subject, ring: Option<&RingBuffer>) -> Result<Watch, Error> {
        let machine = machine::HERE.ok_or(Error::Machine(std::env::consts::ARCH))?;
        let before = match subject {
            Subject::Process(process) => {
                process::check(process)?;
                process::started(process)
            }
            Subject::Children | Subject::All => None,
        };
        if !process::has_machine_numbers() {
            return Err(Error::Namespace);
        }
        let all = subject == Subject::All;
        let slots = if all { SLOTS_OF_ALL } else { SLOTS };
        let map = |kind, key, value, entries, flags| {
            sys::map(kind, key, value, entries, flags).map_err(Error::bpf("making a map for BPF"))
        };
        let (words, bitmap) = (8 * WORDS as u32, 8 * BITMAP as u32);
        // A process has a slot, so there are no more of them.
        let processes = map(MapKind::Hash, 4, 8, slots, 0)?;
        let threads = map(MapKind::ForgetfulHash, 8, THREAD, THREADS, 0)?;
        let keys = map(MapKind::Hash, 8, 4, slots, 0)?;
        let free = map(MapKind::Queue, 0, 4, slots, 0)?;
        let counters = map(MapKind::Array, 4, words, slots, SHAREABLE)?;
        let bitmaps = map(MapKind::Array, 4, bitmap, slots, SHAREABLE)?;
        let scratch = map(MapKind::PerProcessorArray, 4, SCRATCH, 1, 0)?;
        let globals = map(MapKind::Array, 4, 8 * GLOBALS as u32, 1, SHAREABLE)?;
        let maps = Maps {
            processes: processes.as_raw_fd(),
            threads: threads.as_raw_fd(),
            slots: keys.as_raw_fd(),
            free: free.as_raw_fd(),
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
            maps: Some(SharedMaps { processes, keys, free, globals }),
            tracer: None,
            preload: None,
            links: Vec::new(),
            slots,
            kept: BTreeMap::new(),
            forgotten: 0,
            started: Instant::now(),
            call_before: Duration::ZERO,
            call_after: Duration::ZERO,
        };
        watch.note(subject)?;
        // One that ends before there is a program to tell so may leave its number to another.
        watch.link(build, || match subject {
            Subject::Process(process)
                if before.is_none() || process::started(process) != before =>
            {
                Err(Error::Ended(process))
            }
            _ => Ok(()),
        })?;
        Ok(watch)
    }

    /// Loads and attaches the programs; `check` is called once the end of a process is noticed.
    fn link(
        &mut self,
        build: Build<'_>,
        check: impl FnOnce() -> Result<(), Error>,
    ) -> Result<(), Error> {
        let described = "reading the types of the kernel";
        let types = Types::read().map_err(Error::bpf(described))?;
        let load = |tracepoint: &str, code: Vec<u64>| {
            let number = types.tracepoint(tracepoint).map_err(Error::bpf(described))?;
            sys::load(&code, number).map_err(Error::bpf("loading a BPF program"))
        };
        let fields = types.fields().map_err(Error::bpf(described))?;
        let end = load("sched_process_exit", program::end(build, fields))?;
        let fork = load("sched_process_fork", program::fork(build, fields))?;
        let signal = load("signal_deliver", program::signal(build, fields))?;
        let enter = load("sys_enter", program::enter(build))?;
        let exit = load("sys_exit", program::exit(build))?;
        self.call_before = sys::shortest_call();
        self.started = Instant::now();
        let attach = |program: OwnedFd| {
            sys::attach(program.as_fd())
                .map_err(Error::bpf("attaching a BPF program to a tracepoint"))
        };
        self.links.push(attach(end)?);
        check()?;
        for program in [fork, signal, enter, exit] {
            self.links.push(attach(program)?);
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
            self.slot(slot as usize)[Word::Owner as usize].store(slot, Ordering::Relaxed);
            self.slot(slot as usize)[Word::Key as usize].store(key.word(), Ordering::Relaxed);
        }
        let maps = self.maps.as_ref().expect("it is attached with BPF");
        sys::insert(maps.processes.as_fd(), &process, &Watched { slot: slot as u32, flags })
            .map_err(Error::bpf("noting a process for BPF"))
    }

    /// Stops to watch further processes that this one starts. Those of before are watched, and so
    /// are the processes that they start.
    pub fn end_of_children(&self) {
        let Some(maps) = &self.maps else { return };
        // It fails only if it was called before.
        let _ = sys::remove(maps.processes.as_fd(), &std::process::id());
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

    /// Returns all counts since the start, those of processes that have ended included.
    pub fn counts(&self) -> BTreeMap<Key, Counts> {
        let mut all = self.kept.clone();
        for (slot, key) in self.keys() {
            all.entry(key).or_default().add(&Counts::read(self.slot(slot)));
        }
        all
    }

    /// Returns the processes whose slots were not given back.
    pub(crate) fn processes(&self) -> BTreeSet<u32> {
        self.keys().map(|(_, key)| key.process).collect()
    }

    /// Returns the counts of the epoll sets of a process that has not ended, by descriptor.
    pub(crate) fn epoll_sets(&self, process: u32) -> BTreeMap<u32, Counts> {
        self.keys()
            .filter(|(_, key)| key.process == process && key.kind == Kind::Epoll)
            .map(|(slot, key)| (key.id, Counts::read(self.slot(slot))))
            .collect()
    }

    /// Returns the processes that have ended since their slots were last given back. Nothing is
    /// counted for these any more.
    pub(crate) fn ended(&self) -> Ended {
        let own = self.keys().filter(|(_, key)| key.kind == Kind::Process);
        // What was counted before the mark is seen after it.
        let ended = |slot| self.slot(slot)[Word::Ended as usize].load(Ordering::Acquire) != 0;
        Ended(
            own.filter(|(slot, _)| ended(*slot))
                .map(|(at, key)| (at as u32, key.process))
                .collect(),
        )
    }

    /// Keeps the counts of processes that have ended, and gives back their slots. Returns the
    /// processes whose counts are not kept, as there are too many.
    pub(crate) fn give_back(&mut self, ended: &Ended) -> BTreeSet<u32> {
        let mut owned: BTreeMap<u32, Vec<(usize, Key)>> = BTreeMap::new();
        for (slot, key) in self.keys() {
            let owner = self.slot(slot)[Word::Owner as usize].load(Ordering::Relaxed) as u32;
            if ended.0.get(&owner) == Some(&key.process) {
                owned.entry(owner).or_default().push((slot, key));
            }
        }
        let mut forgotten = BTreeSet::new();
        for (owner, mut slots) in owned {
            // A process that takes its own slot must not find the others by it.
            slots.sort_unstable_by_key(|(slot, _)| *slot == owner as usize);
            let room = if slots.len() > 1 { KEPT } else { KEPT / 2 };
            let is_kept = self.kept.len() + slots.len() <= room;
            if !is_kept {
                self.forgotten += 1;
                forgotten.extend(ended.0.get(&owner));
            }
            for (slot, key) in slots {
                if is_kept {
                    let counts = Counts::read(self.slot(slot));
                    self.kept.entry(key).or_default().add(&counts);
                }
                self.clear(slot, key, owner);
            }
        }
        forgotten
    }

    /// Gives back a slot that nothing changes any more.
    fn clear(&self, slot: usize, key: Key, owner: u32) {
        let Some(maps) = &self.maps else { return };
        let number = slot as u32;
        // A slot that belongs to a process has no key in the map of keys.
        let _ = sys::remove(maps.keys.as_fd(), &Key { process: owner, ..key }.word());
        let bitmap = &self.bitmaps.words()[slot * BITMAP..][..BITMAP];
        bitmap.iter().filter(|word| word.load(Ordering::Relaxed) != 0).for_each(clear_word);
        self.slot(slot).iter().for_each(clear_word);
        // It has room for all slots.
        let _ = sys::push(maps.free.as_fd(), &number);
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
    /// the shortest calls of this process before and after. With [`Method::Ptrace`] it is that of a
    /// call of the program, with [`Method::Preload`] that of a wait of the program.
    pub fn overhead(&self) -> Duration {
        self.call_after.saturating_sub(self.call_before)
    }

    /// Calls that were not counted since there were too many processes, sets and kinds of arrays at
    /// a time. Those of [`unfollowed`](Watch::unfollowed) processes are not among them.
    pub fn overflow(&self) -> u64 {
        self.globals.words()[Global::Overflow as usize].load(Ordering::Relaxed)
    }

    /// Processes that a watched one has started and that are not watched, for the same reason.
    pub fn unfollowed(&self) -> u64 {
        self.globals.words()[Global::Unfollowed as usize].load(Ordering::Relaxed)
    }

    /// How many processes, sets and kinds of arrays can be watched at a time.
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// Processes that have ended and whose counts are gone, as there were too many.
    pub(crate) fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// Waits, reads, accepts and `epoll_ctl` of 32-bit programs, which are not counted.
    pub fn compat_calls(&self) -> u64 {
        self.globals.words()[Global::Compat as usize].load(Ordering::Relaxed)
    }
}

fn clear_word(word: &AtomicU64) {
    word.store(0, Ordering::Relaxed);
}
