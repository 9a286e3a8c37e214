//! The process: preemptions, pinning, a child, and a watch over rounds that never end.

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{ChildStderr, ChildStdout, Command};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::time::Duration;

use nix::errno::Errno;
use nix::sched::{CloneFlags, CpuSet, sched_getaffinity, sched_setaffinity, unshare};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::resource::{RLIM_INFINITY, Resource, UsageWho, getrlimit, getrusage};
use nix::sys::signal::{SigHandler, Signal, kill, signal};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use nix::sys::time::TimeSpec;
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::time::{ClockId, clock_getcpuclockid};
use nix::unistd::{ForkResult, Pid, alarm, geteuid, getpid, getppid};

/// This thread, for calls that take a thread's number.
const HERE: Pid = Pid::from_raw(0);

fn nanoseconds(time: TimeSpec) -> u64 {
    time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64
}

/// Reads a clock that every system has.
fn clock(id: ClockId) -> u64 {
    id.now().map_or(0, nanoseconds)
}

/// Returns how often the kernel has taken the processor away from this thread.
pub(crate) fn preemptions() -> i64 {
    getrusage(UsageWho::RUSAGE_THREAD).map_or(0, |usage| usage.involuntary_context_switches())
}

/// Returns the monotonic clock in nanoseconds, comparable between processes.
pub(crate) fn now() -> u64 {
    clock(ClockId::CLOCK_MONOTONIC)
}

/// Returns the processors this thread may run on.
pub(crate) fn processors() -> Vec<usize> {
    let set = sched_getaffinity(HERE).unwrap_or_default();
    (0..CpuSet::count()).filter(|&cpu| set.is_set(cpu) == Ok(true)).collect()
}

/// Lets this thread run on these processors only.
pub(crate) fn pin(cpus: &[usize]) -> io::Result<()> {
    let mut set = CpuSet::new();
    for &cpu in cpus.iter().filter(|&&cpu| cpu < CpuSet::count()) {
        set.set(cpu)?;
    }
    Ok(sched_setaffinity(HERE, &set)?)
}

/// Lets a process run only where another may.
pub(crate) fn follow(pid: i32, other: i32) -> io::Result<()> {
    let set = sched_getaffinity(Pid::from_raw(other))?;
    Ok(sched_setaffinity(Pid::from_raw(pid), &set)?)
}

/// A child process that ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Child {
    pid: Pid,
}

/// Forks a child that runs `work` and then ends: with 0, or with 101 if `work` panicked.
///
/// The child does not outlive its parent: the kernel kills it with the parent. Call this while the
/// process has one thread; if it may have more, `work` must not allocate or lock.
pub(crate) fn fork(work: impl FnOnce()) -> io::Result<Child> {
    let parent = getpid();
    // SAFETY: the child calls `work` and `_exit` and nothing else, a panic included; with one
    // thread in the parent no lock is held in it.
    match unsafe { nix::unistd::fork() }? {
        ForkResult::Parent { child } => Ok(Child { pid: child }),
        ForkResult::Child => {
            let _ = set_pdeathsig(Signal::SIGKILL);
            // A parent that has ended before the call above is not there to take its child along.
            let code = if getppid() != parent {
                1
            } else {
                let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
                if ended.is_ok() { 0 } else { 101 }
            };
            // SAFETY: the call takes an integer.
            unsafe { libc::_exit(code) }
        }
    }
}

/// Asks the kernel to kill a program that is about to be started when the thread that starts it
/// ends.
pub(crate) fn end_with_this(command: &mut Command) {
    // SAFETY: between fork and exec one system call is made, which takes integers.
    unsafe { command.pre_exec(|| Ok(set_pdeathsig(Signal::SIGKILL)?)) };
}

/// Starts a program, whose outputs are returned if they are piped. It does not outlive this
/// process.
pub(crate) fn spawn(
    command: &mut Command,
) -> io::Result<(Child, Option<ChildStdout>, Option<ChildStderr>)> {
    end_with_this(command);
    let mut child = command.spawn()?;
    let pid = i32::try_from(child.id()).map_err(io::Error::other)?;
    Ok((Child { pid: Pid::from_raw(pid) }, child.stdout.take(), child.stderr.take()))
}

impl Child {
    /// Its number.
    pub(crate) fn pid(&self) -> i32 {
        self.pid.as_raw()
    }

    /// Returns the processor time that all its threads have used, in nanoseconds.
    pub(crate) fn processor_time(&self) -> io::Result<u64> {
        processor_time_of(self.pid())
    }

    /// Returns whether it has ended by itself.
    pub(crate) fn has_ended(&self) -> bool {
        // The child stays to be waited for.
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        waitid(Id::Pid(self.pid), flags).is_ok_and(|status| status != WaitStatus::StillAlive)
    }

    /// Ends the process, without waiting for its end.
    pub(crate) fn kill(&self) {
        // It has not been waited for, so the number cannot mean another process.
        let _ = kill(self.pid, Signal::SIGKILL);
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill();
        let _ = waitpid(self.pid, None);
    }
}

/// Returns the processor time that all threads of this process have used, in nanoseconds.
pub(crate) fn processor_time() -> u64 {
    clock(ClockId::CLOCK_PROCESS_CPUTIME_ID)
}

/// Returns the processor time that all threads of another process have used, in nanoseconds.
pub(crate) fn processor_time_of(pid: i32) -> io::Result<u64> {
    Ok(nanoseconds(clock_getcpuclockid(Pid::from_raw(pid))?.now()?))
}

/// Returns the processor time that this thread has used, in nanoseconds.
pub(crate) fn thread_time() -> u64 {
    clock(ClockId::CLOCK_THREAD_CPUTIME_ID)
}

/// Returns how often the threads of this process have given up their processor voluntarily.
pub(crate) fn sleeps() -> u64 {
    let usage = getrusage(UsageWho::RUSAGE_SELF);
    usage.map_or(0, |usage| usage.voluntary_context_switches() as u64)
}

/// Prevents this thread, and the threads that it starts, from preempting another task when they
/// wake up: they wait until the running task gives up the processor, or has used up its share.
pub(crate) fn lower_preemption() -> io::Result<()> {
    // SAFETY: all zeros is a valid parameter (this policy knows no priority); the kernel reads it.
    let returned = unsafe {
        let parameter: libc::sched_param = std::mem::zeroed();
        libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const parameter)
    };
    Ok(Errno::result(returned).map(drop)?)
}

/// Returns how many processes and threads the user of this process may have (`ulimit -u`), if that
/// is limited.
pub(crate) fn tasks_allowed() -> Option<u64> {
    let (limit, _) = getrlimit(Resource::RLIMIT_NPROC).ok()?;
    (limit != RLIM_INFINITY).then_some(limit)
}

/// Returns the user of this process.
pub(crate) fn user() -> u32 {
    geteuid().as_raw()
}

/// Makes writes to a pipe without readers fail instead of ending the process.
pub(crate) fn survive_broken_pipes() {
    // SAFETY: ignores one signal; no handler of ours is involved.
    let _ = unsafe { signal(Signal::SIGPIPE, SigHandler::SigIgn) };
}

/// Sleeps for a number of nanoseconds.
pub(crate) fn sleep(nanoseconds: u64) {
    std::thread::sleep(Duration::from_nanos(nanoseconds));
}

static NAME: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());
static LENGTH: AtomicUsize = AtomicUsize::new(0);

extern "C" fn too_late(_signal: libc::c_int) {
    let parts: [&[u8]; 3] = [
        b"superpoll-lab: subject ",
        // SAFETY: pointer and length are those of one `&'static str` each, stored by `watch`; a
        // signal between the two stores would see two names of the lengths 1 to 20, mixed, which
        // `watch` rules out by calling off the alarm before it stores them.
        unsafe {
            std::slice::from_raw_parts(NAME.load(Ordering::Relaxed), LENGTH.load(Ordering::Relaxed))
        },
        b" did not report a ready descriptor within 30 s: it lost a wake-up, or this process was stopped\n",
    ];
    for part in parts {
        // SAFETY: write and _exit may be called in a signal handler; the kernel reads the slice.
        unsafe { libc::write(2, part.as_ptr().cast(), part.len()) };
    }
    // SAFETY: as above.
    unsafe { libc::_exit(70) }
}

/// Ends the process with one line that names the subject unless [`unwatch`] or another `watch`
/// follows within 30 s. A signal does this instead of a thread, because a second thread would make
/// every descriptor lookup of the process more expensive.
pub(crate) fn watch(subject: &'static str) {
    unwatch();
    NAME.store(subject.as_ptr().cast_mut(), Ordering::Relaxed);
    LENGTH.store(subject.len(), Ordering::Relaxed);
    // SAFETY: the handler is async-signal-safe and lives as long as the process.
    let _ = unsafe { signal(Signal::SIGALRM, SigHandler::Handler(too_late)) };
    alarm::set(30);
}

/// Cancels the alarm of [`watch`].
pub(crate) fn unwatch() {
    alarm::cancel();
}

// The C library that this process runs with.

/// Its name and version; empty where it does not tell.
#[cfg(target_env = "gnu")]
pub(crate) fn libc_version() -> String {
    // SAFETY: the call takes nothing and returns a string that ends with a zero and lasts as long
    // as the process.
    let version = unsafe { std::ffi::CStr::from_ptr(libc::gnu_get_libc_version()) };
    format!("glibc {}", version.to_string_lossy())
}

/// Its name and version; empty where it does not tell.
#[cfg(not(target_env = "gnu"))]
pub fn libc_version() -> String {
    String::new()
}

#[cfg(all(test, target_env = "gnu"))]
mod tests {
    use super::*;

    #[test]
    fn it_tells() {
        let version = libc_version();
        assert!(version.starts_with("glibc 2."), "{version}");
    }
}

// A network namespace for a thread of ours.

/// Moves this thread, and the threads and processes that it starts from now on, to a new network
/// that has nothing but a loopback interface (`unshare(2)`, `CLONE_NEWNET`). Needs `CAP_SYS_ADMIN`.
pub(crate) fn enter_new() -> io::Result<()> {
    unshare(CloneFlags::CLONE_NEWNET)?;
    let socket = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
    // SAFETY: all zeros is a valid value of this structure of numbers.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = *from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: the kernel reads one such structure, which outlives the call.
    Errno::result(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as _, &request) })?;
    Ok(())
}
