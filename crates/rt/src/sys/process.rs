//! Processes as descriptors.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// Returns a descriptor that is readable once a process has ended (`pidfd_open(2)`, Linux 5.3),
/// closed on exec.
pub(crate) fn open(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: pidfd_open takes a process number and flags, and touches no memory.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid as libc::pid_t, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made it for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}
