//! System calls that `std` does not offer.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// Reads and writes of it do not block.
pub(crate) fn unblock(fd: impl AsFd) {
    // SAFETY: the flags of an open descriptor are set.
    let set = unsafe { libc::fcntl(fd.as_fd().as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
    assert_eq!(set, 0, "{}", io::Error::last_os_error());
}

/// The number of bytes to read.
pub(crate) fn waiting(fd: impl AsFd) -> i32 {
    let mut count = 0;
    // SAFETY: the kernel writes one integer, which outlives the call.
    let asked = unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), libc::FIONREAD, &raw mut count) };
    assert_eq!(asked, 0, "{}", io::Error::last_os_error());
    count
}

/// Whether something is readable, or its peer is gone, within ten seconds.
pub(crate) fn becomes_readable(fd: impl AsFd) -> bool {
    let fd = fd.as_fd().as_raw_fd();
    let mut slot = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: the kernel reads and writes one structure, which outlives the call.
    unsafe { libc::poll(&raw mut slot, 1, 10_000) == 1 }
}

/// A connection ends with a reset when it is closed.
pub(crate) fn reset_at_close(fd: impl AsFd) {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    // SAFETY: the kernel reads one linger structure, which outlives the call.
    let set = unsafe {
        libc::setsockopt(
            fd.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            (&raw const linger).cast(),
            size_of::<libc::linger>() as libc::socklen_t,
        )
    };
    assert_eq!(set, 0, "{}", io::Error::last_os_error());
}

/// A descriptor by its number, which dropping it does not close.
pub(crate) struct Numbered(pub RawFd);

impl Numbered {
    /// A duplicate with the first free number from this one on, which nothing else in this process
    /// gets meanwhile.
    pub(crate) fn duplicate(fd: impl AsFd, from: RawFd) -> Numbered {
        // SAFETY: duplicates an open descriptor.
        let number = unsafe { libc::fcntl(fd.as_fd().as_raw_fd(), libc::F_DUPFD_CLOEXEC, from) };
        assert!(number >= from, "{}", io::Error::last_os_error());
        Numbered(number)
    }
}

impl AsFd for Numbered {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the test knows when the number is open; the kernel refuses a number that is not.
        unsafe { BorrowedFd::borrow_raw(self.0) }
    }
}

/// Closes a duplicate.
pub(crate) fn close(number: RawFd) {
    // SAFETY: the duplicate is the test's own.
    assert_eq!(unsafe { libc::close(number) }, 0);
}

/// Two ends of a connection that keeps records apart.
pub(crate) fn records() -> (OwnedFd, OwnedFd) {
    let mut ends = [-1; 2];
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: the kernel writes two numbers, which outlive the call.
    assert_eq!(unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) }, 0);
    // SAFETY: no other code knows of them.
    let [one, other] = ends.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
    (one, other)
}

/// Sends one record.
pub(crate) fn send_record(fd: &OwnedFd, record: &[u8]) {
    // SAFETY: the kernel reads the record, which outlives the call.
    let sent = unsafe { libc::send(fd.as_raw_fd(), record.as_ptr().cast(), record.len(), 0) };
    assert_eq!(sent, record.len() as isize);
}

/// Sends an urgent byte.
pub(crate) fn send_urgent(fd: &OwnedFd) {
    let byte = [b'!'];
    // SAFETY: the kernel reads one byte, which outlives the call.
    let sent = unsafe { libc::send(fd.as_raw_fd(), byte.as_ptr().cast(), 1, libc::MSG_OOB) };
    assert_eq!(sent, 1, "{}", io::Error::last_os_error());
}

/// Sends bytes with a descriptor.
pub(crate) fn send_with_descriptor(fd: &OwnedFd, bytes: &[u8]) {
    let mut control = [0_u64; 8];
    // SAFETY: zeros are a message without anything; the control data has room for a header and one
    // descriptor, is aligned, and the kernel reads all of it before the call returns.
    let sent = unsafe {
        let mut part =
            libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        let mut message: libc::msghdr = std::mem::zeroed();
        (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = libc::CMSG_SPACE(size_of::<RawFd>() as u32) as _;
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(size_of::<RawFd>() as u32) as _;
        libc::CMSG_DATA(header).cast::<RawFd>().write_unaligned(fd.as_raw_fd());
        libc::sendmsg(fd.as_raw_fd(), &raw const message, 0)
    };
    assert_eq!(sent, bytes.len() as isize, "{}", io::Error::last_os_error());
}

/// A pipe in packet mode: each read ends where a write did.
pub(crate) fn packets() -> (OwnedFd, OwnedFd) {
    let mut ends = [-1; 2];
    let flags = libc::O_DIRECT | libc::O_NONBLOCK | libc::O_CLOEXEC;
    // SAFETY: the kernel writes two numbers, which outlive the call.
    assert_eq!(unsafe { libc::pipe2(ends.as_mut_ptr(), flags) }, 0);
    // SAFETY: no other code knows of them.
    let [reader, writer] = ends.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
    (reader, writer)
}

/// A forked child's answer to a question: whether it says yes. It must not allocate before it knows
/// that it may.
pub(crate) fn child_says_yes(question: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child makes system calls and exits at once.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "{}", io::Error::last_os_error());
    if child == 0 {
        let yes = question();
        // SAFETY: ends the process without anything else.
        unsafe { libc::_exit(if yes { 7 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: the kernel writes one number, which outlives the call.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7
}
