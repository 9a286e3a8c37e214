//! A network namespace for a thread of ours.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

fn check(returned: libc::c_int) -> io::Result<libc::c_int> {
    if returned < 0 { Err(io::Error::last_os_error()) } else { Ok(returned) }
}

/// Moves this thread, and the threads and processes that it starts from now on, to a new network
/// that has nothing but a loopback interface (`unshare(2)`, `CLONE_NEWNET`). Needs `CAP_SYS_ADMIN`.
pub(crate) fn enter_new() -> io::Result<()> {
    // SAFETY: it concerns this thread's view of the network only; sockets that are open stay where
    // they are.
    check(unsafe { libc::unshare(libc::CLONE_NEWNET) })?;
    // SAFETY: the call takes numbers, and the descriptor that it returns has no owner yet.
    let socket = unsafe {
        let made = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        OwnedFd::from_raw_fd(check(made)?)
    };
    // SAFETY: all zeros is a valid value of this structure of numbers.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = *from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: the kernel reads one such structure, which outlives the call.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as _, &request) }).map(drop)
}
