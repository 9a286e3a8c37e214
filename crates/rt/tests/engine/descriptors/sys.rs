//! Descriptors whose numbers are closed without the knowledge of their owner.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// A descriptor's number, in the hands of code that does not own the descriptor.
pub(crate) struct Number(pub RawFd);

impl AsFd for Number {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: it may be closed, which is the case that is tested: the kernel refuses it
        // then. No memory depends on it.
        unsafe { BorrowedFd::borrow_raw(self.0) }
    }
}

/// Duplicates a descriptor to a number that no other test gets: other tests get the lowest.
pub(crate) fn duplicate(fd: impl AsFd, least: RawFd) -> OwnedFd {
    // SAFETY: F_DUPFD_CLOEXEC takes a number and makes a descriptor that no other code has.
    unsafe {
        let fd = libc::fcntl(fd.as_fd().as_raw_fd(), libc::F_DUPFD_CLOEXEC, least);
        assert!(fd >= least);
        OwnedFd::from_raw_fd(fd)
    }
}

/// Closes a descriptor without the knowledge of the code that has its number.
pub(crate) fn close(number: RawFd) {
    // SAFETY: its owner has given it up.
    drop(unsafe { OwnedFd::from_raw_fd(number) });
}

/// Sets an option of a socket that is an integer.
pub(crate) fn set_option(socket: impl AsFd, level: i32, name: i32, value: i32) {
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the kernel reads an integer of the given size, which outlives the call.
    let set = unsafe {
        libc::setsockopt(fd, level, name, (&raw const value).cast(), size_of_val(&value) as _)
    };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
}

/// Sends one byte of a stream, or a datagram to the socket's peer, without a copy
/// (`MSG_ZEROCOPY`).
pub(crate) fn send_without_copy(socket: impl AsFd) {
    static BYTE: u8 = b'x';
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the kernel reads a byte that is never freed.
    let sent = unsafe { libc::send(fd, (&raw const BYTE).cast(), 1, libc::MSG_ZEROCOPY) };
    assert_eq!(sent, 1, "{}", std::io::Error::last_os_error());
}

/// Takes an entry out of the queue of errors of a socket.
pub(crate) fn take_error(socket: impl AsFd) -> std::io::Result<()> {
    let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
    // SAFETY: without room for a message, an address or control data, the kernel writes nothing.
    let taken = unsafe { libc::recv(socket.as_fd().as_raw_fd(), std::ptr::null_mut(), 0, flags) };
    if taken < 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
}

/// Creates a TCP socket that is not connected.
pub(crate) fn tcp_socket() -> OwnedFd {
    // SAFETY: socket takes integers and makes a descriptor that no other code has.
    unsafe {
        let fd = libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0);
        assert!(fd >= 0, "{}", std::io::Error::last_os_error());
        OwnedFd::from_raw_fd(fd)
    }
}
