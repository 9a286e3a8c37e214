//! The process: preemptions, pinning, a child, and a watch over rounds that never end.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{ChildStderr, ChildStdout, Command};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// Returns how often the kernel has taken the processor away from this thread.
pub(crate) fn preemptions() -> i64 {
    // SAFETY: all zeros is a valid rusage; the kernel overwrites it, and it outlives the call.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
        usage.ru_nivcsw
    }
}

/// Returns the monotonic clock in nanoseconds, comparable between processes.
pub(crate) fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec, which outlives the call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Returns the processors this thread may run on.
pub(crate) fn processors() -> Vec<usize> {
    // SAFETY: all zeros is the empty set; the kernel writes at most the size of the set.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set);
        (0..libc::CPU_SETSIZE as usize).filter(|&cpu| libc::CPU_ISSET(cpu, &set)).collect()
    }
}

/// Lets this thread run on these processors only.
pub(crate) fn pin(cpus: &[usize]) -> io::Result<()> {
    // SAFETY: all zeros is the empty set; CPU_SET checks its index against the set's size.
    let returned = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        for &cpu in cpus.iter().filter(|&&cpu| cpu < libc::CPU_SETSIZE as usize) {
            libc::CPU_SET(cpu, &mut set);
        }
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set)
    };
    if returned == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Lets a process run only where another may.
pub(crate) fn follow(pid: i32, other: i32) -> io::Result<()> {
    // SAFETY: all zeros is the empty set; the kernel writes and reads at most the size of the set,
    // which outlives both calls.
    let returned = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        match libc::sched_getaffinity(other, size_of::<libc::cpu_set_t>(), &raw mut set) {
            0 => libc::sched_setaffinity(pid, size_of::<libc::cpu_set_t>(), &raw const set),
            failed => failed,
        }
    };
    if returned == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// A child process that ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Child {
    pid: libc::pid_t,
}

/// Forks a child that runs `work` and then ends: with 0, or with 101 if `work` panicked.
///
/// The child does not outlive its parent: the kernel kills it with the parent. Call this while the
/// process has one thread; if it may have more, `work` must not allocate or lock.
pub(crate) fn fork(work: impl FnOnce()) -> io::Result<Child> {
    // SAFETY: the child calls `work` and `_exit` and nothing else, a panic included; with one
    // thread in the parent no lock is held in it. The calls take integers.
    unsafe {
        let parent = libc::getpid();
        match libc::fork() {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                // A parent that has ended before the call above is not there to take its child
                // along.
                if libc::getppid() != parent {
                    libc::_exit(1);
                }
                let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
                libc::_exit(if ended.is_ok() { 0 } else { 101 })
            }
            pid => Ok(Child { pid }),
        }
    }
}

/// Asks the kernel to kill a program that is about to be started when the thread that starts it
/// ends.
pub(crate) fn end_with_this(command: &mut Command) {
    // SAFETY: between fork and exec one system call is made, which takes integers.
    unsafe {
        command.pre_exec(|| {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            Ok(())
        })
    };
}

/// Starts a program, whose outputs are returned if they are piped. It does not outlive this
/// process.
pub(crate) fn spawn(
    command: &mut Command,
) -> io::Result<(Child, Option<ChildStdout>, Option<ChildStderr>)> {
    end_with_this(command);
    let mut child = command.spawn()?;
    let pid = libc::pid_t::try_from(child.id()).map_err(io::Error::other)?;
    Ok((Child { pid }, child.stdout.take(), child.stderr.take()))
}

impl Child {
    /// Its number.
    pub(crate) fn pid(&self) -> i32 {
        self.pid
    }

    /// Returns the processor time that all its threads have used, in nanoseconds.
    pub(crate) fn processor_time(&self) -> io::Result<u64> {
        processor_time_of(self.pid)
    }

    /// Returns whether it has ended by itself.
    pub(crate) fn has_ended(&self) -> bool {
        // SAFETY: all zeros is a valid siginfo_t; the kernel writes it, and it outlives the call.
        // The child stays to be waited for.
        unsafe {
            let mut about: libc::siginfo_t = std::mem::zeroed();
            let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
            let pid = self.pid as libc::id_t;
            libc::waitid(libc::P_PID, pid, &raw mut about, flags) == 0 && about.si_pid() != 0
        }
    }

    /// Ends the process, without waiting for its end.
    pub(crate) fn kill(&self) {
        // SAFETY: the pid is that of our own child, which has not been waited for, so the number
        // cannot mean another process.
        unsafe { libc::kill(self.pid, libc::SIGKILL) };
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill();
        // SAFETY: as in `kill`; the status is not asked for.
        unsafe { libc::waitpid(self.pid, std::ptr::null_mut(), 0) };
    }
}

/// Returns the processor time that all threads of this process have used, in nanoseconds.
pub(crate) fn processor_time() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec, which outlives the call.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Returns the processor time that all threads of another process have used, in nanoseconds.
pub(crate) fn processor_time_of(pid: i32) -> io::Result<u64> {
    let mut clock: libc::clockid_t = 0;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one number and one timespec, which outlive the calls.
    unsafe {
        match libc::clock_getcpuclockid(pid, &raw mut clock) {
            0 => {}
            code => return Err(io::Error::from_raw_os_error(code)),
        }
        if libc::clock_gettime(clock, &raw mut time) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// Returns the processor time that this thread has used, in nanoseconds.
pub(crate) fn thread_time() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec, which outlives the call.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Returns how often the threads of this process have given up their processor voluntarily, and how
/// often it was taken away.
pub(crate) fn switches() -> (u64, u64) {
    // SAFETY: all zeros is a valid rusage; the kernel overwrites it, and it outlives the call.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        (usage.ru_nvcsw as u64, usage.ru_nivcsw as u64)
    }
}

/// Prevents this thread, and the threads that it starts, from preempting another task when they
/// wake up: they wait until the running task gives up the processor, or has used up its share.
pub(crate) fn lower_preemption() -> io::Result<()> {
    // SAFETY: all zeros is a valid parameter (this policy knows no priority); the kernel reads it.
    let returned = unsafe {
        let parameter: libc::sched_param = std::mem::zeroed();
        libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const parameter)
    };
    if returned == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Returns how many processes and threads the user of this process may have (`ulimit -u`), if that
/// is limited.
pub(crate) fn tasks_allowed() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the kernel writes one rlimit structure, which outlives the call.
    unsafe { libc::getrlimit(libc::RLIMIT_NPROC, &raw mut limit) };
    (limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

/// Returns the user of this process.
pub(crate) fn user() -> u32 {
    // SAFETY: the call takes nothing and returns a number.
    unsafe { libc::geteuid() }
}

/// Makes writes to a pipe without readers fail instead of ending the process.
pub(crate) fn survive_broken_pipes() {
    // SAFETY: ignores one signal; no handler of ours is involved.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
}

/// Sleeps for a number of nanoseconds, on the stack alone.
pub(crate) fn sleep(nanoseconds: u64) {
    let time = libc::timespec {
        tv_sec: (nanoseconds / 1_000_000_000) as libc::time_t,
        tv_nsec: (nanoseconds % 1_000_000_000) as libc::c_long,
    };
    // SAFETY: the kernel reads one timespec; it writes no rest where the pointer is null.
    unsafe { libc::nanosleep(&raw const time, std::ptr::null_mut()) };
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
    unsafe {
        libc::signal(libc::SIGALRM, too_late as extern "C" fn(libc::c_int) as libc::sighandler_t);
        libc::alarm(30);
    }
}

/// Cancels the alarm of [`watch`].
pub(crate) fn unwatch() {
    // SAFETY: the call takes and returns an integer.
    unsafe { libc::alarm(0) };
}
