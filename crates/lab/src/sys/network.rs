//! A network namespace for a thread of ours.

use std::io;
use std::os::fd::AsRawFd;

use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

/// Moves this thread, and the threads and processes that it starts from now on, to a new network
/// that has nothing but a loopback interface (`unshare(2)`, `CLONE_NEWNET`). Needs `CAP_SYS_ADMIN`.
pub(crate) fn enter_new() -> io::Result<()> {
    unshare(CloneFlags::CLONE_NEWNET)?;
    let socket = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
    // SAFETY: all zeros is a valid value of this structure of numbers.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = *from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: the kernel reads one such structure, which outlives the call.
    Errno::result(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as _, &request) })?;
    Ok(())
}
