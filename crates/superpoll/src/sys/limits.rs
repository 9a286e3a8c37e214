//! The descriptor limits of this process.

use std::io;

/// Soft and hard `RLIMIT_NOFILE`; zeros if the kernel does not say.
pub fn descriptors() -> (u64, u64) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes one rlimit structure, which outlives the call.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
    (limit.rlim_cur, limit.rlim_max)
}

/// Raises the soft limit of this process to its hard limit and returns the new soft limit.
///
/// # Errors
///
/// What `setrlimit(2)` says; the limit is unchanged then.
pub fn raise_descriptors() -> io::Result<u64> {
    let (soft, hard) = descriptors();
    if soft == hard {
        return Ok(soft);
    }
    let limit = libc::rlimit { rlim_cur: hard, rlim_max: hard };
    // SAFETY: the kernel reads one rlimit structure, which outlives the call.
    if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(hard)
}
