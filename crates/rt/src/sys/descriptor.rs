//! Flags of descriptors, and closing them.

use std::io;
use std::mem;
#[cfg(feature = "tokio-context")]
use std::os::fd::FromRawFd;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
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

/// Returns for each stream socket whether the next byte is an urgent one (`SIOCATMARK`), by a single
/// call unless some of them have bytes. A number that is not open, or means another file by now, may
/// count as such a socket.
pub(crate) fn are_at_mark(fds: &[RawFd]) -> Vec<bool> {
    const SIOCATMARK: libc::c_ulong = 0x8905;
    let events = libc::POLLIN | libc::POLLPRI;
    let mut slots: Vec<libc::pollfd> =
        fds.iter().map(|&fd| libc::pollfd { fd, events, revents: 0 }).collect();
    // SAFETY: the kernel reads and writes this many entries, which outlive the call.
    let found = unsafe { libc::poll(slots.as_mut_ptr(), slots.len() as libc::nfds_t, 0) };
    let is_at_mark = |slot: &libc::pollfd| {
        // If the call has failed, each socket has to be asked.
        if found >= 0 && slot.revents & events == 0 {
            return false;
        }
        let mut is_there: libc::c_int = 0;
        // SAFETY: the kernel writes one integer, which outlives the call; a descriptor without marks
        // is refused.
        unsafe { libc::ioctl(slot.fd, SIOCATMARK as _, &raw mut is_there) };
        is_there != 0
    };
    slots.iter().map(is_at_mark).collect()
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
    use std::io::{PipeReader, PipeWriter, Read, Write, pipe};

    #[test]
    fn only_sockets_that_stand_before_an_urgent_byte_are_at_a_mark() {
        let pair = || {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            client.set_nodelay(true).unwrap();
            (listener.accept().unwrap().0, client)
        };
        let (mut reader, mut writer) = pair();
        let (idle, _peer) = pair();
        let (full, mut other) = pair();
        other.write_all(b"abc").unwrap();
        writer.write_all(b"abc").unwrap();
        socket2::SockRef::from(&writer).send_out_of_band(b"!").unwrap();
        writer.write_all(b"def").unwrap();
        let fds = [idle.as_raw_fd(), reader.as_raw_fd(), -1, full.as_raw_fd()];
        assert_eq!(are_at_mark(&fds), [false; 4]);
        let mut room = [0; 10];
        assert_eq!(reader.read(&mut room).unwrap(), 3, "the read ends at the byte");
        assert_eq!(are_at_mark(&fds), [false, true, false, false]);
        assert_eq!(reader.read(&mut room).unwrap(), 3);
        assert_eq!(are_at_mark(&fds), [false; 4]);
        assert!(are_at_mark(&[]).is_empty());
    }

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
