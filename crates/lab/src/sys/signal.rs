//! Signals that report a ready descriptor: `F_SETSIG`, `sigtimedwait(2)` and `signalfd(2)`.

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Once, OnceLock};

use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal as SystemSignal, sigaction};

// The C library's crate does not have these; they are the same on x86, ARM and RISC-V.
const F_SETSIG: libc::c_int = 10;
const F_GETSIG: libc::c_int = 11;
const F_SETOWN_EX: libc::c_int = 15;
const F_OWNER_TID: libc::c_int = 0;

#[repr(C)]
struct Owner {
    kind: libc::c_int,
    id: libc::pid_t,
}

/// The part of `siginfo_t` that a signal about a descriptor has.
#[repr(C)]
struct About {
    number: libc::c_int,
    error: libc::c_int,
    code: libc::c_int,
    band: libc::c_long,
    fd: libc::c_int,
}

/// A signal that was queued.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Signal {
    /// This descriptor is ready.
    Ready(RawFd),
    /// There was no room for a signal: any descriptor may be ready.
    Overflow,
}

impl Signal {
    fn of(number: libc::c_int, fd: RawFd) -> Signal {
        if number == libc::SIGIO { Signal::Overflow } else { Signal::Ready(fd) }
    }
}

/// Returns the signal that is queued for each event. The real-time signals below it are the C
/// library's.
fn queued() -> libc::c_int {
    libc::SIGRTMIN() + 4
}

/// Calls a function when one of these signals comes for the first time; the second time it ends the
/// process, as it does by default. Waits that the kernel can resume go on.
///
/// The function runs in a signal handler: it may store an atomic number and not much else.
pub(crate) fn note_once(signals: &[SystemSignal], note: fn(libc::c_int)) -> io::Result<()> {
    static NOTE: OnceLock<fn(libc::c_int)> = OnceLock::new();
    extern "C" fn handler(signal: libc::c_int) {
        if let Some(note) = NOTE.get() {
            note(signal);
        }
    }
    NOTE.get_or_init(|| note);
    let flags = SaFlags::SA_RESTART | SaFlags::SA_RESETHAND;
    let action = SigAction::new(SigHandler::Handler(handler), flags, SigSet::empty());
    for &signal in signals {
        // SAFETY: the handler only loads and stores atomic values.
        unsafe { sigaction(signal, &action) }?;
    }
    Ok(())
}

/// The two signals, held back from this thread so that they are fetched and not delivered.
pub(crate) struct BlockedSignals {
    set: libc::sigset_t,
    before: libc::sigset_t,
    /// A mask is a thread's own.
    _here: PhantomData<*const ()>,
}

impl BlockedSignals {
    /// Blocks the signals until this value is dropped.
    pub(crate) fn new() -> io::Result<BlockedSignals> {
        // SAFETY: all zeros is a valid set; the calls write the sets, which outlive them.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            let mut before: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            libc::sigaddset(&raw mut set, queued());
            libc::sigaddset(&raw mut set, libc::SIGIO);
            match libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, &raw mut before) {
                0 => Ok(BlockedSignals { set, before, _here: PhantomData }),
                code => Err(io::Error::from_raw_os_error(code)),
            }
        }
    }

    fn fetch(&self, timeout: *const libc::timespec) -> io::Result<Signal> {
        // SAFETY: all zeros is a valid siginfo_t; the kernel reads the set and the timeout, if
        // there is one, and writes one siginfo_t, which begins as `About` for the signals of the
        // set.
        unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            let number =
                Errno::result(libc::sigtimedwait(&raw const self.set, &raw mut info, timeout))?;
            Ok(Signal::of(number, (*(&raw const info).cast::<About>()).fd))
        }
    }

    /// Waits indefinitely for the next signal.
    #[inline(always)]
    pub(crate) fn wait(&self) -> io::Result<Signal> {
        loop {
            match self.fetch(ptr::null()) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => return other,
            }
        }
    }

    /// Discards all signals that are queued now; returns how many calls that took.
    pub(crate) fn discard(&self) -> u64 {
        let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let mut calls = 1;
        while self.fetch(&raw const now).is_ok() {
            calls += 1;
        }
        calls
    }

    /// Returns a descriptor from which the signals can be read, many at a time; reading waits for
    /// the first.
    pub(crate) fn descriptor(&self) -> io::Result<OwnedFd> {
        descriptor_of(&self.set, libc::SFD_CLOEXEC)
    }
}

/// Returns a descriptor of the signals in a set.
fn descriptor_of(set: &libc::sigset_t, flags: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: the kernel reads one set; the number it returns has no owner yet.
    unsafe {
        let fd = Errno::result(libc::signalfd(-1, set, flags))?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// A real-time signal for one cold set, given back when it is dropped. Two sets in one thread must
/// not fetch each other's signals.
#[derive(Debug)]
pub(crate) struct OwnSignal(libc::c_int);

/// The signals that are taken, a bit for each number.
static TAKEN: AtomicU64 = AtomicU64::new(0);

impl OwnSignal {
    /// Takes a signal.
    pub(crate) fn take() -> io::Result<OwnSignal> {
        let is_free = |number: &libc::c_int| {
            let bit = 1 << (number - 1);
            TAKEN.fetch_or(bit, Ordering::SeqCst) & bit == 0
        };
        let number = OwnSignal::all().find(is_free).ok_or_else(|| {
            let all = OwnSignal::all().count();
            io::Error::other(format!("all {all} real-time signals are taken by other pollers"))
        })?;
        Ok(OwnSignal(number))
    }

    fn all() -> impl Iterator<Item = libc::c_int> {
        queued() + 1..=libc::SIGRTMAX()
    }

    /// Holds all such signals back from this thread, for good. If one reaches another thread
    /// nevertheless, or this one after a change of its mask, nothing happens.
    pub(crate) fn block_here() -> io::Result<()> {
        static HARMLESS: Once = Once::new();
        extern "C" fn handler(_: libc::c_int) {}
        let handler =
            SigAction::new(SigHandler::Handler(handler), SaFlags::SA_RESTART, SigSet::empty());
        // SAFETY: all zeros is a valid set; the handler does nothing; the calls read a set and an
        // action, which outlive them.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            for number in OwnSignal::all().chain([libc::SIGIO]) {
                libc::sigaddset(&raw mut set, number);
            }
            HARMLESS.call_once(|| {
                let action: libc::sigaction = handler.into();
                for number in OwnSignal::all().chain([libc::SIGIO]) {
                    libc::sigaction(number, &raw const action, ptr::null_mut());
                }
            });
            match libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, ptr::null_mut()) {
                0 => Ok(()),
                code => Err(io::Error::from_raw_os_error(code)),
            }
        }
    }

    /// Returns a descriptor from which this signal can be read, and SIGIO. Reading does not block.
    pub(crate) fn descriptor(&self) -> io::Result<OwnedFd> {
        // SAFETY: all zeros is a valid set, to which the calls add.
        let set = unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigaddset(&raw mut set, self.0);
            libc::sigaddset(&raw mut set, libc::SIGIO);
            set
        };
        descriptor_of(&set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
    }

    /// Asks the kernel to queue this signal for this thread whenever a descriptor becomes readable.
    pub(crate) fn ask(&self, fd: RawFd) -> io::Result<()> {
        ask_for(fd, self.0)
    }

    /// Undoes [`ask`](OwnSignal::ask), unless the number means another file by now.
    pub(crate) fn ask_no_more(&self, fd: RawFd) {
        // SAFETY: the call takes integers; a descriptor that is gone is refused.
        if unsafe { libc::fcntl(fd, F_GETSIG) } == self.0 {
            ask_no_more(fd);
        }
    }
}

impl Drop for OwnSignal {
    fn drop(&mut self) {
        TAKEN.fetch_and(!(1 << (self.0 - 1)), Ordering::SeqCst);
    }
}

/// Whether signals were asked for of this open file, under whatever number.
pub(crate) fn is_asked(fd: RawFd) -> io::Result<bool> {
    // SAFETY: the call takes integers.
    let flags = Errno::result(unsafe { libc::fcntl(fd, libc::F_GETFL) })?;
    Ok(flags & libc::O_ASYNC != 0)
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        // Signals that are still queued would be delivered, and the default action is to end the
        // process.
        self.discard();
        // SAFETY: the call reads the mask that this thread had before.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, ptr::null_mut())
        };
    }
}

/// Signals read from a descriptor, many at a time.
pub(crate) struct Batch {
    records: Vec<libc::signalfd_siginfo>,
    count: usize,
}

impl Batch {
    /// Creates room for this many signals.
    pub(crate) fn new(room: usize) -> Batch {
        // SAFETY: all zeros is a valid record.
        let empty: libc::signalfd_siginfo = unsafe { std::mem::zeroed() };
        Batch { records: vec![empty; room.max(1)], count: 0 }
    }

    /// Returns the bytes of heap that it uses.
    pub(crate) fn memory(&self) -> usize {
        self.records.capacity() * size_of::<libc::signalfd_siginfo>()
    }

    /// Whether there was no room for more.
    pub(crate) fn is_full(&self) -> bool {
        self.count == self.records.len()
    }

    /// Waits for signals, indefinitely unless the descriptor does not block, and reads as many as
    /// there is room for.
    #[inline(always)]
    pub(crate) fn wait(&mut self, from: &OwnedFd) -> io::Result<()> {
        let size = size_of::<libc::signalfd_siginfo>();
        loop {
            let room = self.records.len() * size;
            // SAFETY: the kernel writes whole records into the array, at most its length.
            let read =
                unsafe { libc::read(from.as_raw_fd(), self.records.as_mut_ptr().cast(), room) };
            if read >= 0 {
                self.count = read as usize / size;
                return Ok(());
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }

    /// Returns the signals that were read.
    #[inline(always)]
    pub(crate) fn signals(&self) -> impl Iterator<Item = Signal> + '_ {
        let records = &self.records[..self.count];
        records.iter().map(|record| Signal::of(record.ssi_signo as libc::c_int, record.ssi_fd))
    }
}

/// Asks the kernel to send this thread SIGIO whenever a descriptor becomes readable. SIGIO is the
/// kernel's default unless another signal is chosen; it is not queued and does not name the
/// descriptor.
pub(crate) fn ask_plainly(fd: RawFd) -> io::Result<()> {
    ask_for(fd, 0)
}

/// Asks the kernel to queue a signal for this thread whenever a descriptor becomes readable.
pub(crate) fn ask(fd: RawFd) -> io::Result<()> {
    ask_for(fd, queued())
}

fn ask_for(fd: RawFd, signal: libc::c_int) -> io::Result<()> {
    // SAFETY: the kernel reads one owner, which outlives the call; the other calls take integers.
    unsafe {
        let owner = Owner { kind: F_OWNER_TID, id: libc::gettid() };
        Errno::result(libc::fcntl(fd, F_SETOWN_EX, &raw const owner))?;
        Errno::result(libc::fcntl(fd, F_SETSIG, signal))?;
        let flags = Errno::result(libc::fcntl(fd, libc::F_GETFL))?;
        Errno::result(libc::fcntl(fd, libc::F_SETFL, flags | libc::O_ASYNC))?;
    }
    Ok(())
}

/// Undoes [`ask`] and [`ask_plainly`].
pub(crate) fn ask_no_more(fd: RawFd) {
    // SAFETY: the calls take integers; a descriptor that is gone is refused.
    unsafe {
        let flags = libc::fcntl(fd, libc::F_GETFL);
        libc::fcntl(fd, libc::F_SETFL, flags & !libc::O_ASYNC);
        libc::fcntl(fd, F_SETSIG, 0);
        libc::fcntl(fd, libc::F_SETOWN, 0);
    }
}

/// Returns how many signals may be queued for this user.
pub(crate) fn queue_limit() -> u64 {
    getrlimit(Resource::RLIMIT_SIGPENDING).map_or(0, |(limit, _)| limit)
}

/// Changes that limit for this process.
#[cfg(test)]
pub(crate) fn limit_queue(room: u64) {
    let (_, most) = getrlimit(Resource::RLIMIT_SIGPENDING).unwrap();
    nix::sys::resource::setrlimit(Resource::RLIMIT_SIGPENDING, room, most).unwrap();
}
