//! `bpf(2)` and memory that is shared with the kernel: the only `unsafe` code of this crate.
//!
//! The C library has no wrapper for `bpf(2)`. Its attributes are a union; each call here has a
//! structure for the part that it uses, and the kernel takes the missing rest as zeros.

pub(crate) mod ring;
pub(crate) mod trace;

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

const MAP_CREATE: libc::c_int = 0;
const MAP_UPDATE: libc::c_int = 2;
const MAP_DELETE: libc::c_int = 3;
const PROGRAM_LOAD: libc::c_int = 5;
const RAW_TRACEPOINT_OPEN: libc::c_int = 17;

/// The kind of a program for a tracepoint whose arguments have types, and where it is attached.
const TRACING: u32 = 26;
const TYPED_RAW_TRACEPOINT: u32 = 23;

/// How many bytes the verifier may write about a program that it refuses.
const LOG: usize = 1 << 20;

/// The kinds of maps that are used here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MapKind {
    Hash = 1,
    Array = 2,
    PerProcessorArray = 6,
    /// A hash that forgets the entries that were not used for longest.
    ForgetfulHash = 9,
    /// Values without keys, the oldest first.
    Queue = 22,
    /// Records for this process.
    Ring = 27,
}

/// Makes an array shareable with `mmap(2)`.
pub(crate) const SHAREABLE: u32 = 1 << 10;

#[repr(C)]
struct MapCreate {
    kind: u32,
    key_size: u32,
    value_size: u32,
    entries: u32,
    flags: u32,
}

#[repr(C)]
struct MapElement {
    map: u32,
    _pad: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
struct ProgramLoad {
    kind: u32,
    count: u32,
    code: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    attach_type: u32,
    btf: u32,
    function_size: u32,
    functions: u64,
    function_count: u32,
    line_size: u32,
    lines: u64,
    line_count: u32,
    attach_to: u32,
}

#[repr(C)]
struct RawTracepointOpen {
    name: u64,
    program: u32,
    _pad: u32,
}

/// Calls `bpf(2)`. Every pointer in the attributes must be valid for what the command does with it.
unsafe fn bpf<T>(command: libc::c_int, attributes: &T) -> io::Result<i32> {
    // SAFETY: the attributes are plain memory of the given size, which the kernel reads; the caller
    // answers for the pointers in them.
    let result = unsafe {
        libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attributes), size_of::<T>())
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as i32) }
}

fn owned(descriptor: i32) -> OwnedFd {
    // SAFETY: the kernel has just returned this descriptor, and nothing else has it.
    unsafe { OwnedFd::from_raw_fd(descriptor) }
}

/// Makes a map.
pub(crate) fn map(
    kind: MapKind,
    key_size: u32,
    value_size: u32,
    entries: u32,
    flags: u32,
) -> io::Result<OwnedFd> {
    let attributes = MapCreate { kind: kind as u32, key_size, value_size, entries, flags };
    // SAFETY: there is no pointer in the attributes.
    unsafe { bpf(MAP_CREATE, &attributes) }.map(owned)
}

/// Sets the value of a key. The lengths must be those that the map was made with.
pub(crate) fn insert<K: Copy, V: Copy>(map: BorrowedFd<'_>, key: &K, value: &V) -> io::Result<()> {
    let attributes = MapElement {
        map: map.as_raw_fd() as u32,
        _pad: 0,
        key: std::ptr::from_ref(key).addr() as u64,
        value: std::ptr::from_ref(value).addr() as u64,
        flags: 0,
    };
    // SAFETY: the kernel reads the key and the value, which outlive the call and have the lengths
    // of the map, as this module's callers are those that have made it.
    unsafe { bpf(MAP_UPDATE, &attributes) }.map(drop)
}

/// Adds a value to a queue. Its length must be that which the queue was made with.
pub(crate) fn push<V: Copy>(queue: BorrowedFd<'_>, value: &V) -> io::Result<()> {
    let attributes = MapElement {
        map: queue.as_raw_fd() as u32,
        _pad: 0,
        key: 0,
        value: std::ptr::from_ref(value).addr() as u64,
        flags: 0,
    };
    // SAFETY: as above; no key is read.
    unsafe { bpf(MAP_UPDATE, &attributes) }.map(drop)
}

/// Removes a key.
pub(crate) fn remove<K: Copy>(map: BorrowedFd<'_>, key: &K) -> io::Result<()> {
    let attributes = MapElement {
        map: map.as_raw_fd() as u32,
        _pad: 0,
        key: std::ptr::from_ref(key).addr() as u64,
        value: 0,
        flags: 0,
    };
    // SAFETY: as above; no value is read.
    unsafe { bpf(MAP_DELETE, &attributes) }.map(drop)
}

/// Loads a program for a tracepoint, which is given by the number of its type in the kernel's
/// description of types.
///
/// # Errors
///
/// The kernel's, and for a program that the verifier refuses the last lines of its reasons.
pub(crate) fn load(code: &[u64], tracepoint: u32) -> io::Result<OwnedFd> {
    // Functions that read memory are for programs under a licence that goes with the kernel's.
    const LICENSE: &CStr = c"Dual MIT/GPL";
    let mut attributes = ProgramLoad {
        kind: TRACING,
        count: code.len() as u32,
        code: code.as_ptr().addr() as u64,
        license: LICENSE.as_ptr().addr() as u64,
        log_level: 0,
        log_size: 0,
        log: 0,
        kernel_version: 0,
        flags: 0,
        name: [0; 16],
        interface: 0,
        attach_type: TYPED_RAW_TRACEPOINT,
        btf: 0,
        function_size: 0,
        functions: 0,
        function_count: 0,
        line_size: 0,
        lines: 0,
        line_count: 0,
        attach_to: tracepoint,
    };
    // SAFETY: the kernel reads the code and the licence, which outlive the call.
    let error = match unsafe { bpf(PROGRAM_LOAD, &attributes) } {
        Ok(descriptor) => return Ok(owned(descriptor)),
        Err(error) => error,
    };
    if !matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EACCES | libc::E2BIG)) {
        return Err(error);
    }
    let mut log = vec![0_u8; LOG];
    attributes.log_level = 1;
    attributes.log_size = LOG as u32;
    attributes.log = log.as_mut_ptr().expose_provenance() as u64;
    // SAFETY: as above, and the kernel writes at most that many bytes to the log.
    match unsafe { bpf(PROGRAM_LOAD, &attributes) } {
        Ok(descriptor) => Ok(owned(descriptor)),
        Err(_) => {
            let end = log.iter().position(|byte| *byte == 0).unwrap_or(LOG);
            let text = String::from_utf8_lossy(&log[..end]);
            let lines: Vec<&str> = text.lines().rev().take(12).collect();
            let lines: Vec<&str> = lines.into_iter().rev().collect();
            Err(io::Error::new(error.kind(), format!("{error}: {}", lines.join("; "))))
        }
    }
}

/// Attaches a program to its tracepoint until the returned descriptor is closed.
pub(crate) fn attach(program: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let attributes = RawTracepointOpen { name: 0, program: program.as_raw_fd() as u32, _pad: 0 };
    // SAFETY: there is no pointer in the attributes: the program has its tracepoint.
    unsafe { bpf(RAW_TRACEPOINT_OPEN, &attributes) }.map(owned)
}

/// The memory of a shareable array: words that this process and programs of the kernel change at
/// the same time.
#[derive(Debug)]
pub(crate) struct SharedWords {
    start: NonNull<AtomicU64>,
    words: usize,
}

// SAFETY: the memory is of atomics alone, is the same from every thread, and goes when this is
// dropped.
unsafe impl Send for SharedWords {}
// SAFETY: as above.
unsafe impl Sync for SharedWords {}

impl SharedWords {
    /// Shares an array of that many words.
    pub(crate) fn of(map: BorrowedFd<'_>, words: usize) -> io::Result<SharedWords> {
        SharedWords::part(map, 0, words)
    }

    /// Shares that many words from one of them on, which must begin a page.
    pub(crate) fn part(map: BorrowedFd<'_>, first: usize, words: usize) -> io::Result<SharedWords> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, whose place the kernel chooses.
        let start = unsafe {
            let descriptor = map.as_raw_fd();
            let null = std::ptr::null_mut();
            let offset = (first * 8) as libc::off_t;
            libc::mmap(null, words * 8, protection, libc::MAP_SHARED, descriptor, offset)
        };
        SharedWords::mapped(start, words)
    }

    /// Makes words of this process' own, which are 0 in a process that it forks.
    pub(crate) fn zeroed_by_fork(words: usize) -> io::Result<SharedWords> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping, whose place the kernel chooses.
        let start =
            unsafe { libc::mmap(std::ptr::null_mut(), words * 8, protection, flags, -1, 0) };
        let mapped = SharedWords::mapped(start, words)?;
        // SAFETY: the advice is about the mapping above alone.
        let advised = unsafe { libc::madvise(start, words * 8, libc::MADV_WIPEONFORK) };
        if advised < 0 { Err(io::Error::last_os_error()) } else { Ok(mapped) }
    }

    fn mapped(start: *mut libc::c_void, words: usize) -> io::Result<SharedWords> {
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).expect("the kernel maps nothing at 0");
        Ok(SharedWords { start, words })
    }

    /// Makes memory of that many words that are 0, and shares it twice.
    pub(crate) fn pair(words: usize) -> io::Result<(SharedWords, SharedWords)> {
        let memory = memory(c"counters", words)?;
        Ok((SharedWords::of(memory.as_fd(), words)?, SharedWords::of(memory.as_fd(), words)?))
    }

    /// The words.
    pub(crate) fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping has that many words until this is dropped, and only atomics touch it.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.words) }
    }
}

impl Drop for SharedWords {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and no reference into it outlives the value.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.words * 8) };
    }
}

/// Makes memory of that many words, all 0, as a file without a place. Its seals forbid to shorten
/// it: that would kill each process with a mapping of it.
pub(crate) fn memory(name: &CStr, words: usize) -> io::Result<File> {
    // SAFETY: the name is a string; the kernel returns a new descriptor.
    let memory =
        unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
    if memory < 0 {
        return Err(io::Error::last_os_error());
    }
    let memory = File::from(owned(memory));
    memory.set_len(8 * words as u64)?;
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: the call takes numbers.
    let sealed = unsafe { libc::fcntl(memory.as_raw_fd(), libc::F_ADD_SEALS, seals) };
    if sealed < 0 { Err(io::Error::last_os_error()) } else { Ok(memory) }
}

/// Returns the time of the clock that programs of the kernel read, in nanoseconds.
pub(crate) fn monotonic_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes the time, and knows this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Returns how long a system call that does next to nothing takes: the shortest of many short
/// series of `getppid(2)`, as any disturbance makes a series longer.
pub(crate) fn shortest_call() -> Duration {
    const SERIES: u32 = 1000;
    const CALLS: u32 = 20;
    let series = || {
        let begun = Instant::now();
        for _ in 0..CALLS {
            // SAFETY: the call has no arguments and no effect.
            unsafe { libc::getppid() };
        }
        begun.elapsed()
    };
    (0..SERIES).map(|_| series()).min().unwrap_or_default() / CALLS
}
