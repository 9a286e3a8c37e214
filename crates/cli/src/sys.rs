//! System calls that no crate in use has in this form, and the only `unsafe` code of the command.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// Makes a write to a closed standard output end the process quietly, as with other commands. Rust's start-up code
/// makes such a write fail instead.
pub fn end_on_closed_output() {
    // SAFETY: restores the default action of one signal; no handler of ours is involved.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}

/// Tries `epoll_pwait2`, the wait with a nanosecond timeout, on an epoll set.
pub(crate) fn try_pwait2(set: &OwnedFd) -> io::Result<()> {
    let mut event = libc::epoll_event { events: 0, u64: 0 };
    let zero = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes at most one event and reads one timespec, which outlive the call; the null signal mask
    // means none.
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
