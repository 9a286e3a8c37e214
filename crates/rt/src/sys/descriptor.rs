//! Flags of descriptors, and closing them.

use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
#[cfg(feature = "tokio-context")]
use std::os::fd::{FromRawFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// Set when the kernel does not have `close_range(2)` (before Linux 5.9), or a filter of system
/// calls forbids it.
static NO_RANGES: AtomicBool = AtomicBool::new(false);

/// Closes two descriptors. Returns whether one call was enough, which it is if their numbers are
/// neighbours.
pub(crate) fn close_both(one: OwnedFd, other: OwnedFd) -> bool {
    let (one_fd, other_fd) = (one.as_raw_fd(), other.as_raw_fd());
    if one_fd.abs_diff(other_fd) != 1 || NO_RANGES.load(Ordering::Relaxed) {
        return false;
    }
    let (first, last) =
        (one_fd.min(other_fd) as libc::c_uint, one_fd.max(other_fd) as libc::c_uint);
    let flags: libc::c_uint = 0;
    // SAFETY: the range is these two, which are owned here and not used by any code after a
    // success.
    if unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) } == 0 {
        mem::forget((one, other));
        return true;
    }
    // The kernel checks the arguments before it closes anything: both are open still.
    NO_RANGES.store(true, Ordering::Relaxed);
    false
}

/// Duplicates a descriptor of another library, by its number.
#[cfg(feature = "tokio-context")]
pub(crate) fn duplicate(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: the call takes integers; a number that is not open is refused.
    let duplicate = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 0) };
    if duplicate < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made it, and no other code has its number.
    Ok(unsafe { OwnedFd::from_raw_fd(duplicate) })
}

/// Sets `O_NONBLOCK` on the open file, unless it is set.
pub(crate) fn set_nonblocking(fd: impl AsFd) -> io::Result<()> {
    let fd = fd.as_fd().as_raw_fd();
    // SAFETY: the caller keeps the descriptor open for the length of the call, and F_GETFL takes no
    // argument.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    if flags < 0 {
        return Err(io::Error::last_os_error());
    }
    if flags & libc::O_NONBLOCK != 0 {
        return Ok(());
    }
    // SAFETY: as above; F_SETFL takes an int.
    if unsafe { libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{PipeReader, PipeWriter, Read, pipe};

    fn is_over(mut reader: PipeReader) -> bool {
        matches!(reader.read(&mut [0]), Ok(0))
    }

    fn close(one: PipeWriter, other: PipeWriter) -> bool {
        close_both(one.into(), other.into())
    }

    #[test]
    fn two_are_closed_and_nothing_between_or_beside_them() {
        // Whichever numbers other tests leave: far from each other, and neighbours with luck.
        let ends: Vec<(PipeReader, PipeWriter)> = (0..20).map(|_| pipe().unwrap()).collect();
        let (mut readers, mut writers): (Vec<_>, Vec<_>) = ends.into_iter().unzip();
        let (last, first) = (writers.pop().unwrap(), writers.remove(0));
        assert!(!close(last, first), "they are no neighbours");
        assert!(is_over(readers.pop().unwrap()) && is_over(readers.remove(0)));
        // The ends of a pipe usually are neighbours. An end that this leaves open would not be seen
        // to end below.
        let (reader, writer) = pipe().unwrap();
        let (reader, writer) = (OwnedFd::from(reader), OwnedFd::from(writer));
        let inside = reader.try_clone().map(|kept| (kept, reader.as_raw_fd(), writer.as_raw_fd()));
        let (kept, a, b) = inside.unwrap();
        let at_once = close_both(writer, reader);
        assert!(!at_once || a.abs_diff(b) == 1);
        assert!(is_over(PipeReader::from(kept)));
        for reader in &readers {
            set_nonblocking(reader).unwrap();
        }
        for mut reader in readers {
            let error = reader.read(&mut [0]).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "it was closed, too");
        }
    }
}
