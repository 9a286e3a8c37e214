//! System calls that no crate in use has in this form, and the only `unsafe` code of the command.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// Makes a write to a closed standard output end the process quietly, as with other commands.
/// Rust's start-up code makes such a write fail instead.
pub fn end_on_closed_output() {
    // SAFETY: restores the default action of one signal; no handler of ours is involved.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}

/// Ignores the terminal's stop signals (Ctrl-Z): a traced program would stop with this process.
pub(crate) fn ignore_stops() {
    for signal in [libc::SIGTSTP, libc::SIGTTOU] {
        // SAFETY: sets the action of one signal; no handler of ours is involved.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

/// Blocks or unblocks the signals that a server takes (SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2)
/// in this thread and in the program that replaces this one (`pthread_sigmask(3)`). Returns whether
/// that succeeded; if not, such a signal ends the process, as by default, until the server takes
/// signals.
pub fn block_signals(is_blocked: bool) -> bool {
    let how = if is_blocked { libc::SIG_BLOCK } else { libc::SIG_UNBLOCK };
    // SAFETY: the set is plain memory, is initialized by sigemptyset before it is used, and
    // outlives the calls.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        let user = [libc::SIGUSR1, libc::SIGUSR2];
        for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP].into_iter().chain(user) {
            libc::sigaddset(&raw mut set, signal);
        }
        libc::pthread_sigmask(how, &raw const set, std::ptr::null_mut()) == 0
    }
}

/// Tries `epoll_pwait2`, the wait with a nanosecond timeout, on an epoll set.
pub(crate) fn try_pwait2(set: &OwnedFd) -> io::Result<()> {
    let mut event = libc::epoll_event { events: 0, u64: 0 };
    let zero = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes at most one event and reads one timespec, which outlive the call;
    // the null signal mask means none.
    let returned = unsafe {
        libc::syscall(
            libc::SYS_epoll_pwait2,
            set.as_raw_fd(),
            &raw mut event,
            1,
            &raw const zero,
            std::ptr::null::<libc::sigset_t>(),
            0,
        )
    };
    if returned >= 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
