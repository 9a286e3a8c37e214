//! The descriptor limits of this process.

use std::io;

/// Soft and hard `RLIMIT_NOFILE`; zeros if the kernel does not say.
pub fn nofile() -> (u64, u64) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes one rlimit structure, which outlives the call.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
    (limit.rlim_cur, limit.rlim_max)
}

/// Raises the soft limit of this process to its hard limit and returns the new soft limit.
///
/// # Errors
///
/// The error of `setrlimit(2)`; the limit is unchanged then.
pub fn raise_descriptors() -> io::Result<u64> {
    let (soft, hard) = nofile();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_is_raised_to_the_hard_one() {
        let (soft, hard) = nofile();
        let text = std::fs::read_to_string("/proc/self/limits").unwrap();
        let line = text.lines().find(|line| line.starts_with("Max open files")).unwrap();
        let words: Vec<_> = line.split_whitespace().collect();
        assert_eq!((words[3], words[4]), (&*soft.to_string(), &*hard.to_string()));
        // Lower by little, so that other tests do not notice.
        let limit = libc::rlimit { rlim_cur: hard - 1, rlim_max: hard };
        // SAFETY: the kernel reads one rlimit structure, which outlives the call.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
        for _ in 0..2 {
            assert_eq!(raise_descriptors().unwrap(), hard);
            assert_eq!(nofile(), (hard, hard));
        }
    }
}
