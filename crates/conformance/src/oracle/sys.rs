//! The system calls of the stories, one thin function each.

use std::io;
use std::mem;
use std::net::SocketAddrV4;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

fn check(returned: libc::c_int) -> io::Result<libc::c_int> {
    if returned < 0 { Err(io::Error::last_os_error()) } else { Ok(returned) }
}

fn take(fd: libc::c_int) -> OwnedFd {
    // SAFETY: only called with a descriptor that the kernel has just made for the caller.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// Writes once. Returns the number of bytes written, zero on failure.
pub(super) fn write(fd: &OwnedFd, bytes: &[u8]) -> usize {
    // SAFETY: the kernel reads this many bytes, which outlive the call.
    let put = unsafe { libc::write(fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len()) };
    usize::try_from(put).unwrap_or(0)
}

/// Reads once, at most `most` bytes. Returns the number of bytes read, zero on failure.
pub(super) fn read(fd: &OwnedFd, most: usize) -> usize {
    crate::sys::read(fd.as_raw_fd(), most).unwrap_or(0)
}

/// Reads until nothing comes.
pub(super) fn drain(fd: &OwnedFd) {
    while read(fd, 65536) > 0 {}
}

/// Writes until nothing is taken.
pub(super) fn fill(fd: &OwnedFd, piece: usize) {
    let bytes = vec![0; piece];
    while write(fd, &bytes) > 0 {}
}

/// Takes the byte of urgent data.
pub(super) fn receive_urgent(fd: &OwnedFd) {
    let mut byte = 0u8;
    // SAFETY: the kernel writes at most one byte, for which there is room.
    unsafe { libc::recv(fd.as_raw_fd(), (&raw mut byte).cast(), 1, libc::MSG_OOB) };
}

/// Takes the entries of the error queue (`MSG_ERRQUEUE`).
pub(super) fn receive_errors(fd: &OwnedFd) {
    let (mut bytes, mut control) = ([0u8; 64], [0u64; 64]);
    let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: zeros are a valid header; the kernel writes to the parts, for which there is as much
    // room as it says.
    unsafe {
        let mut message: libc::msghdr = mem::zeroed();
        (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = mem::size_of_val(&control) as _;
        let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
        libc::recvmsg(fd.as_raw_fd(), &raw mut message, flags);
    }
}

/// Takes the pending error (`SO_ERROR`).
pub(super) fn take_error(fd: &OwnedFd) {
    let (mut error, mut length) = (0i32, mem::size_of::<i32>() as libc::socklen_t);
    // SAFETY: the kernel writes one integer, for which there is room.
    unsafe {
        let at = (&raw mut error).cast();
        libc::getsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_ERROR, at, &raw mut length);
    }
}

/// Sets an option of a socket.
pub(super) fn set_option<T: Copy>(
    fd: &OwnedFd,
    level: i32,
    option: i32,
    value: T,
) -> io::Result<()> {
    let length = mem::size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel reads as many bytes as the value has, which outlives the call.
    let set = unsafe {
        libc::setsockopt(fd.as_raw_fd(), level, option, (&raw const value).cast(), length)
    };
    check(set).map(drop)
}

/// Makes a close reset the connection.
pub(super) fn reset_on_close(fd: &OwnedFd) -> io::Result<()> {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    set_option(fd, libc::SOL_SOCKET, libc::SO_LINGER, linger)
}

/// Creates a TCP socket that is not connected and never blocks.
pub(super) fn tcp_socket() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: takes integers, touches no memory.
    check(unsafe { libc::socket(libc::AF_INET, kind, 0) }).map(take)
}

/// Begins to connect, or finds out that it cannot.
pub(super) fn connect(fd: &OwnedFd, to: SocketAddrV4) {
    // SAFETY: zeros are a valid address, and the kernel reads one, which outlives the call.
    unsafe {
        let mut address: libc::sockaddr_in = mem::zeroed();
        address.sin_family = libc::AF_INET as libc::sa_family_t;
        address.sin_port = to.port().to_be();
        address.sin_addr.s_addr = u32::from(*to.ip()).to_be();
        let length = mem::size_of::<libc::sockaddr_in>() as libc::socklen_t;
        libc::connect(fd.as_raw_fd(), (&raw const address).cast(), length);
    }
}

/// Makes a FIFO.
pub(super) fn make_fifo(path: &Path) -> io::Result<()> {
    let path = std::ffi::CString::new(path.as_os_str().as_encoded_bytes())?;
    // SAFETY: the path is a string with a terminating zero that outlives the call.
    check(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }).map(drop)
}

/// Creates a timer that is not armed.
pub(super) fn timer() -> io::Result<OwnedFd> {
    let flags = libc::TFD_NONBLOCK | libc::TFD_CLOEXEC;
    // SAFETY: takes integers, touches no memory.
    check(unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, flags) }).map(take)
}

/// Makes a timer fire after this many nanoseconds, or not at all if that is zero.
pub(super) fn set_timer(fd: &OwnedFd, nanoseconds: i64) -> io::Result<()> {
    // SAFETY: zeros are a valid time, and the kernel reads one, which outlives the call.
    check(unsafe {
        let mut time: libc::itimerspec = mem::zeroed();
        time.it_value.tv_nsec = nanoseconds;
        libc::timerfd_settime(fd.as_raw_fd(), 0, &raw const time, std::ptr::null_mut())
    })
    .map(drop)
}

/// Blocks `SIGUSR1` for this thread, and returns a descriptor that reports the signal instead.
pub(super) fn signals() -> io::Result<OwnedFd> {
    // SAFETY: zeros are a valid set, which outlives the calls.
    check(unsafe {
        let mut set: libc::sigset_t = mem::zeroed();
        libc::sigaddset(&raw mut set, libc::SIGUSR1);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
        libc::signalfd(-1, &raw const set, libc::SFD_NONBLOCK | libc::SFD_CLOEXEC)
    })
    .map(take)
}

/// Sends `SIGUSR1` to this thread, which must have blocked it.
pub(super) fn raise() {
    // SAFETY: takes an integer, touches no memory.
    unsafe { libc::raise(libc::SIGUSR1) };
}

/// Returns a descriptor that reports files that appear and vanish in a folder.
pub(super) fn watch_folder(path: &Path) -> io::Result<OwnedFd> {
    let path = std::ffi::CString::new(path.as_os_str().as_encoded_bytes())?;
    // SAFETY: takes an integer, touches no memory.
    let fd =
        check(unsafe { libc::inotify_init1(libc::IN_NONBLOCK | libc::IN_CLOEXEC) }).map(take)?;
    let events = libc::IN_CREATE | libc::IN_DELETE;
    // SAFETY: the path is a string with a terminating zero that outlives the call.
    check(unsafe { libc::inotify_add_watch(fd.as_raw_fd(), path.as_ptr(), events) })?;
    Ok(fd)
}

/// Returns a descriptor that reports the end of a process.
pub(super) fn process(id: u32) -> io::Result<OwnedFd> {
    // SAFETY: takes integers, touches no memory.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, id as libc::pid_t, 0) };
    check(fd as libc::c_int).map(take)
}

/// Creates a terminal: the master's end and the slave's, which never block.
pub(super) fn terminal() -> io::Result<(OwnedFd, OwnedFd)> {
    let (mut master, mut slave) = (0, 0);
    let none = std::ptr::null_mut();
    // SAFETY: the kernel writes two integers, for which there is room; name and settings are null.
    check(unsafe {
        libc::openpty(&raw mut master, &raw mut slave, none, none.cast(), none.cast())
    })?;
    let ends = (take(master), take(slave));
    for end in [&ends.0, &ends.1] {
        // SAFETY: takes integers, touches no memory.
        unsafe {
            let flags = libc::fcntl(end.as_raw_fd(), libc::F_GETFL);
            check(libc::fcntl(end.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK))?;
            check(libc::fcntl(end.as_raw_fd(), libc::F_SETFD, libc::FD_CLOEXEC))?;
        }
    }
    Ok(ends)
}
