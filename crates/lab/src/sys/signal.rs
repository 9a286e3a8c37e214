//! Signals that report a ready descriptor: `F_SETSIG`, `sigtimedwait(2)` and `signalfd(2)`.

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::OnceLock;

use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal as SystemSignal, sigaction};

// The C library's crate does not have these; they are the same on x86, ARM and RISC-V.
const F_SETSIG: libc::c_int = 10;
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
        // SAFETY: the kernel reads one set; the number it returns has no owner yet.
        unsafe {
            let fd = Errno::result(libc::signalfd(-1, &raw const self.set, libc::SFD_CLOEXEC))?;
            Ok(OwnedFd::from_raw_fd(fd))
        }
    }
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

    /// Waits indefinitely for signals and reads as many as there is room for.
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
