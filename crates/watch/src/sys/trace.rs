//! `ptrace(2)` of threads that were seized, and what goes with it.
//!
//! A thread is traced by the thread that has seized it, so all of this is called from one thread.
//! When that thread ends, however it ends, the kernel lets the traced ones continue.

use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{FromRawFd, IntoRawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr;

/// What a thread has stopped at, or how it has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stop {
    /// The entry or the exit of a system call.
    Call,
    /// A signal is about to be delivered.
    Signal(i32),
    /// It is stopped with its process, by a signal for that.
    Group,
    /// It is new, or was interrupted.
    Event,
    /// It is about to run another program. It had this number before, and has that of its process
    /// now.
    Exec(u32),
    /// It has ended.
    Ended,
}

/// The entry or the exit of a system call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Call {
    Entry {
        number: u64,
        arguments: [u64; 6],
        /// Whether its number is one of this processor, and not of 32-bit programs.
        is_native: bool,
    },
    Exit {
        result: i64,
    },
}

const OPTIONS: libc::c_int = libc::PTRACE_O_TRACESYSGOOD
    | libc::PTRACE_O_TRACEFORK
    | libc::PTRACE_O_TRACEVFORK
    | libc::PTRACE_O_TRACECLONE
    | libc::PTRACE_O_TRACEEXEC;

/// Makes a request about a thread. No request that is used writes to memory of this process but
/// `GET_SYSCALL_INFO` and `GETEVENTMSG`.
fn request(request: libc::c_uint, thread: u32, address: usize, data: usize) -> io::Result<i64> {
    // SAFETY: the kernel checks the thread; the requests here take numbers, apart from those that
    // write, whose callers give the address of their own memory.
    let result = unsafe { libc::ptrace(request as _, thread as libc::pid_t, address, data) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Begins to trace a thread, and those that it starts. It continues until it is interrupted.
pub(crate) fn seize(thread: u32) -> io::Result<()> {
    request(libc::PTRACE_SEIZE, thread, 0, OPTIONS as usize).map(drop)
}

/// Asks a thread to stop.
pub(crate) fn interrupt(thread: u32) -> io::Result<()> {
    request(libc::PTRACE_INTERRUPT, thread, 0, 0).map(drop)
}

/// Lets a stopped thread continue to its next stop, with a signal or 0.
pub(crate) fn resume(thread: u32, signal: i32) -> io::Result<()> {
    request(libc::PTRACE_SYSCALL, thread, 0, signal as usize).map(drop)
}

/// Leaves a thread stopped with its process, until that continues.
pub(crate) fn leave_stopped(thread: u32) -> io::Result<()> {
    request(libc::PTRACE_LISTEN, thread, 0, 0).map(drop)
}

/// The number that a thread had before it began to run another program.
fn former(thread: u32) -> io::Result<u32> {
    let mut number: libc::c_ulong = 0;
    let address = (&raw mut number).expose_provenance();
    request(libc::PTRACE_GETEVENTMSG, thread, 0, address)?;
    Ok(number as u32)
}

/// The answer of the kernel about a call (`PTRACE_GET_SYSCALL_INFO`, Linux 5.3).
#[repr(C)]
#[derive(Default)]
struct Info {
    operation: u8,
    _pad: [u8; 3],
    architecture: u32,
    _places: [u64; 2],
    /// At the entry the number and the arguments, at the exit the result.
    words: [u64; 8],
}

/// Returns the call that a thread has stopped at.
pub(crate) fn call(thread: u32) -> io::Result<Call> {
    const GET_INFO: libc::c_uint = 0x420e;
    const X86_64: u32 = 0xc000_003e;
    const AARCH64: u32 = 0xc000_00b7;
    let mut info = Info::default();
    request(GET_INFO, thread, size_of::<Info>(), (&raw mut info).expose_provenance())?;
    match info.operation {
        1 => Ok(Call::Entry {
            number: info.words[0],
            arguments: std::array::from_fn(|at| info.words[1 + at]),
            is_native: matches!(info.architecture, X86_64 | AARCH64),
        }),
        2 => Ok(Call::Exit { result: info.words[0] as i64 }),
        _ => Err(io::Error::other("the thread has not stopped at a call")),
    }
}

/// Waits until a thread that this one traces stops or ends, and returns its number.
///
/// # Errors
///
/// `EINTR` after [`kick`], `ECHILD` if no thread is traced.
pub(crate) fn wait() -> io::Result<u32> {
    let options = libc::WEXITED | libc::WSTOPPED | libc::WNOWAIT | libc::__WALL | libc::__WNOTHREAD;
    // SAFETY: the kernel writes to the structure, which is plain memory.
    let (result, found) = unsafe {
        let mut found: libc::siginfo_t = std::mem::zeroed();
        let result = libc::waitid(libc::P_ALL, 0, &raw mut found, options);
        (result, found.si_pid())
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(found as u32) }
}

/// Whether a process has ended, and its status was not taken.
pub(crate) fn has_ended(process: u32) -> bool {
    let options = libc::WEXITED | libc::WNOWAIT | libc::WNOHANG | libc::__WALL;
    // SAFETY: as above.
    unsafe {
        let mut found: libc::siginfo_t = std::mem::zeroed();
        let result = libc::waitid(libc::P_PID, process, &raw mut found, options);
        // The stops of those that are traced are told, too.
        result == 0
            && found.si_pid() != 0
            && matches!(found.si_code, libc::CLD_EXITED | libc::CLD_KILLED | libc::CLD_DUMPED)
    }
}

/// Takes what a thread has stopped at, or how it has ended; waits for it if necessary.
///
/// # Errors
///
/// As above.
pub(crate) fn take(thread: u32) -> io::Result<Stop> {
    let mut status = 0;
    // SAFETY: the kernel writes the status.
    let taken = unsafe {
        let options = libc::__WALL | libc::__WNOTHREAD;
        libc::waitpid(thread as libc::pid_t, &raw mut status, options)
    };
    if taken < 0 {
        return Err(io::Error::last_os_error());
    }
    let (signal, event) = (status >> 8 & 0xff, status >> 16);
    Ok(if !libc::WIFSTOPPED(status) {
        Stop::Ended
    } else if signal == libc::SIGTRAP | 0x80 {
        Stop::Call
    } else if event == libc::PTRACE_EVENT_STOP && signal != libc::SIGTRAP {
        Stop::Group
    } else if event == libc::PTRACE_EVENT_EXEC {
        Stop::Exec(former(thread)?)
    } else if event != 0 {
        Stop::Event
    } else {
        Stop::Signal(signal)
    })
}

/// Copies memory of a process, and returns how many bytes could be read.
pub(crate) fn read_memory(process: u32, address: u64, bytes: &mut [u8]) -> usize {
    let local = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let remote = libc::iovec {
        iov_base: ptr::without_provenance_mut(address as usize),
        iov_len: bytes.len(),
    };
    // SAFETY: the kernel writes to the bytes, and checks the address in the other process.
    let read = unsafe {
        libc::process_vm_readv(process as libc::pid_t, &raw const local, 1, &raw const remote, 1, 0)
    };
    usize::try_from(read).unwrap_or(0)
}

/// The number of this thread.
pub(crate) fn this_thread() -> u32 {
    // SAFETY: the call has no arguments and no effect.
    unsafe { libc::gettid() as u32 }
}

/// Makes [`kick`] interrupt calls instead of nothing: the signal is ignored by default.
pub(crate) fn allow_kicks() {
    extern "C" fn nothing(_: libc::c_int) {}
    let handler: extern "C" fn(libc::c_int) = nothing;
    // SAFETY: the structure is plain memory; the handler does nothing.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        libc::sigaction(libc::SIGURG, &raw const action, ptr::null_mut());
    }
}

/// Interrupts the call in which a thread of this process waits, if it waits now.
pub(crate) fn kick(thread: u32) {
    // SAFETY: the signal has a handler that does nothing; a thread that has ended gets none.
    unsafe {
        libc::syscall(libc::SYS_tgkill, libc::getpid(), thread as libc::pid_t, libc::SIGURG);
    }
}

/// Makes a command tell its number, and wait for an answer, before it becomes another program.
pub(crate) fn hold(command: &mut Command, mut tell: PipeWriter, mut answer: PipeReader) {
    // SAFETY: between fork and exec there are only calls of prctl, getpid, write and read.
    unsafe {
        command.pre_exec(move || {
            // This process has the other end of its pipe, too, so that its parent's end does not
            // end the wait.
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            tell.write_all(&std::process::id().to_ne_bytes())?;
            let mut is_traced = [0];
            answer.read_exact(&mut is_traced)?;
            libc::prctl(libc::PR_SET_PDEATHSIG, 0);
            if is_traced == [0] { Err(io::Error::from_raw_os_error(libc::EPERM)) } else { Ok(()) }
        });
    }
}

/// Starts a process that does nothing but to ask for its parent's number, until it is killed or the
/// thread that calls this ends; the first time once `start` can be read.
pub(crate) fn start_caller(start: PipeReader) -> io::Result<u32> {
    let descriptor = start.into_raw_fd();
    // SAFETY: the child only makes system calls, and never returns.
    let process = unsafe {
        match libc::fork() {
            0 => {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                let mut byte = 0_u8;
                libc::read(descriptor, (&raw mut byte).cast(), 1);
                loop {
                    libc::getppid();
                }
            }
            process => process,
        }
    };
    // SAFETY: the descriptor was taken from its owner above.
    drop(unsafe { PipeReader::from_raw_fd(descriptor) });
    if process < 0 { Err(io::Error::last_os_error()) } else { Ok(process as u32) }
}

/// Kills a process that was started here.
pub(crate) fn kill(process: u32) {
    // SAFETY: the process is a child that was not waited for.
    unsafe { libc::kill(process as libc::pid_t, libc::SIGKILL) };
}
