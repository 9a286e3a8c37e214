//! `eventfd`: the descriptor behind the waker.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::stats::Calls;

/// A kernel counter that is readable while it is not zero.
#[derive(Debug)]
pub(crate) struct EventFd(OwnedFd);

impl EventFd {
    pub(crate) fn new(calls: &mut Calls) -> io::Result<EventFd> {
        calls.eventfd += 1;
        // SAFETY: takes integers, touches no memory.
        let fd = super::check(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
        // SAFETY: the kernel just made this descriptor for us; no other code has it.
        Ok(EventFd(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Makes the counter readable.
    pub(crate) fn write(&self) -> io::Result<()> {
        let one = 1u64;
        // SAFETY: the kernel reads eight bytes, which outlive the call.
        let written = unsafe { libc::write(self.0.as_raw_fd(), (&raw const one).cast(), 8) };
        if written == 8 {
            return Ok(());
        }
        match io::Error::last_os_error() {
            // The counter is full, so it is readable.
            error if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            error => Err(error),
        }
    }

    /// Makes the counter unreadable.
    pub(crate) fn drain(&self, calls: &mut Calls) {
        calls.waker_read += 1;
        let mut count = 0u64;
        // SAFETY: the kernel writes eight bytes, for which there is room. Failure means that it
        // was unreadable already.
        unsafe { libc::read(self.0.as_raw_fd(), (&raw mut count).cast(), 8) };
    }

    /// Puts a new counter under the same descriptor number, for a child process: the parent keeps
    /// the old one.
    pub(crate) fn renew(&self, calls: &mut Calls) -> io::Result<()> {
        let new = EventFd::new(calls)?;
        replace(self.0.as_fd(), new.0)
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Makes the number of `old` mean the open file of `new` (`dup3`).
pub(crate) fn replace(old: BorrowedFd<'_>, new: OwnedFd) -> io::Result<()> {
    // SAFETY: both are open descriptors; `old` keeps its owner, and only means another open file
    // from now on.
    super::check(unsafe { libc::dup3(new.as_raw_fd(), old.as_raw_fd(), libc::O_CLOEXEC) })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Write;

    #[test]
    fn a_full_counter_counts_as_written_and_any_other_failure_is_reported() {
        let mut calls = Calls::default();
        let eventfd = EventFd::new(&mut calls).unwrap();
        let mut file = File::from(eventfd.as_fd().try_clone_to_owned().unwrap());
        file.write_all(&(u64::MAX - 1).to_ne_bytes()).unwrap();
        assert!(eventfd.write().is_ok());
        eventfd.drain(&mut calls);
        eventfd.drain(&mut calls);
        assert_eq!((calls.eventfd, calls.waker_read, calls.total()), (1, 2, 3));
        // The reading end of a pipe cannot be written to.
        let (reader, _writer) = io::pipe().unwrap();
        let error = EventFd(reader.into()).write().unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EBADF));
    }
}
