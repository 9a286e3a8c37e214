//! Questions about a descriptor.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

use crate::stats::Calls;
use crate::sys::epoll;
use crate::sys::poll::{self, Slot};

/// Kinds of descriptors that cost differently to watch.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
#[repr(u8)]
pub enum Kind {
    /// Not known yet.
    #[default]
    Unknown,
    /// Pipes and FIFOs; also taken for eventfds, timers and other small kernel objects.
    Pipe,
    /// Unix-domain sockets.
    Unix,
    /// TCP and all other sockets.
    Tcp,
}

impl Kind {
    /// The kinds that are measured.
    pub const MEASURED: [Kind; 3] = [Kind::Pipe, Kind::Unix, Kind::Tcp];

    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Unknown => "unknown",
            Kind::Pipe => "pipe",
            Kind::Unix => "unix",
            Kind::Tcp => "tcp",
        }
    }
}

/// Whether the number is an open descriptor (`fcntl(F_GETFD)`).
pub(crate) fn is_open(calls: &mut Calls, fd: RawFd) -> bool {
    calls.fcntl += 1;
    // SAFETY: F_GETFD takes no argument and touches no memory.
    unsafe { libc::fcntl(fd, libc::F_GETFD) >= 0 }
}

/// A descriptor that is registered and still means the file that was registered: the caller has
/// asked epoll, or the registration keeps it open. For one call, right away.
pub(crate) fn registered<'a>(fd: RawFd) -> BorrowedFd<'a> {
    // SAFETY: registered numbers are not negative. The result is handed to one call, right
    // after the caller has seen that the number means its file. If another thread closes it in
    // between, the call refuses it (`EBADF`).
    unsafe { BorrowedFd::borrow_raw(fd) }
}

/// Whether the descriptor can be waited for: files, directories, block devices and devices as
/// `/dev/null` are always ready. Not every file is: those of `/proc` and `/sys` that report a
/// change can be waited for. So for a descriptor that is neither a socket nor a pipe the kernel is
/// asked, in the only way there is: epoll refuses descriptors that are always ready (`EPERM`).
pub(crate) fn can_wait(calls: &mut Calls, fd: RawFd) -> bool {
    let Some(mode) = mode(calls, fd).map(|mode| mode & libc::S_IFMT) else { return true };
    if matches!(mode, libc::S_IFSOCK | libc::S_IFIFO) {
        return true;
    }
    match epoll::create(calls) {
        Ok(set) => {
            let added = epoll::control(calls, set.as_fd(), epoll::Operation::Add, fd, 0, 0);
            !added.is_err_and(|error| error.raw_os_error() == Some(libc::EPERM))
        }
        // Without a descriptor for the question, the type must do.
        Err(_) => !matches!(mode, libc::S_IFREG | libc::S_IFDIR | libc::S_IFBLK),
    }
}

/// Whether a wait for the descriptor finds the same in every thread and process. It does for
/// sockets and pipes, for event counters and timers. A signalfd reports the signals of the task
/// that waits, an epoll set may contain one, and kinds that are not named here have not been
/// examined. For a closed descriptor there is no answer, and none is needed.
pub(crate) fn waits_alike_everywhere(calls: &mut Calls, fd: RawFd) -> bool {
    match mode(calls, fd).map(|mode| mode & libc::S_IFMT) {
        None | Some(libc::S_IFSOCK | libc::S_IFIFO) => true,
        // A file without a type: the kernel's name for it shows its kind.
        Some(0) => {
            calls.fstat += 1;
            let name = std::fs::read_link(format!("/proc/self/fd/{fd}")).unwrap_or_default();
            let known = ["anon_inode:[eventfd]", "anon_inode:[timerfd]"];
            known.into_iter().any(|known| name.as_os_str() == known)
        }
        Some(_) => false,
    }
}

/// The type and permissions of the open file (`fstat(2)`).
fn mode(calls: &mut Calls, fd: RawFd) -> Option<libc::mode_t> {
    calls.fstat += 1;
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the kernel writes one stat structure, for which there is room.
    if unsafe { libc::fstat(fd, stat.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: fstat succeeded and has filled the structure.
    Some(unsafe { stat.assume_init() }.st_mode)
}

/// The kind of the descriptor, among those that are priced apart.
pub(crate) fn kind(calls: &mut Calls, fd: RawFd) -> Kind {
    if mode(calls, fd).is_none_or(|mode| mode & libc::S_IFMT != libc::S_IFSOCK) {
        return Kind::Pipe;
    }
    calls.getsockopt += 1;
    match socket_option(fd, libc::SO_DOMAIN) {
        Ok(libc::AF_UNIX) => Kind::Unix,
        _ => Kind::Tcp,
    }
}

/// The status flags of the open file (`F_GETFL`).
pub(crate) fn flags(fd: BorrowedFd<'_>) -> io::Result<libc::c_int> {
    // SAFETY: F_GETFL takes no argument and touches no memory.
    super::check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) })
}

/// An integer option of a socket (`SOL_SOCKET`).
pub(crate) fn socket_option(fd: RawFd, option: libc::c_int) -> io::Result<libc::c_int> {
    let mut value: libc::c_int = 0;
    let mut length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to `value`, which is that long.
    super::check(unsafe {
        libc::getsockopt(fd, libc::SOL_SOCKET, option, (&raw mut value).cast(), &mut length)
    })?;
    Ok(value)
}

/// Whether a connection that keeps records apart has ended, after a read of nothing: an empty
/// record reads the same.
pub(crate) fn has_ended(fd: BorrowedFd<'_>) -> bool {
    let left = unread(fd);
    let fd = fd.as_raw_fd();
    let mut slot = [Slot { fd, events: libc::POLLRDHUP, revents: 0 }];
    let _ = poll::wait(&mut Calls::default(), &mut slot, Some(Duration::ZERO));
    left <= 0 && slot[0].revents != 0
}

/// How many bytes there are to read (`FIONREAD`); for TCP, up to the next urgent one. Zero where
/// the kernel cannot count them.
pub(crate) fn unread(fd: BorrowedFd<'_>) -> libc::c_int {
    let mut left: libc::c_int = 0;
    // SAFETY: the kernel writes one integer, which outlives the call; where it cannot count, it
    // leaves it.
    unsafe { libc::ioctl(fd.as_raw_fd(), libc::FIONREAD, &raw mut left) };
    left
}

/// Makes reads and writes fail rather than wait.
pub(crate) fn set_nonblocking(fd: BorrowedFd<'_>) -> io::Result<()> {
    let flags = flags(fd)?;
    let fd = fd.as_raw_fd();
    // SAFETY: F_SETFL takes an integer and touches no memory.
    super::check(unsafe { libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK) }).map(drop)
}

/// Makes the close of a TCP socket reset the connection, which leaves nothing waiting in the
/// kernel.
pub(crate) fn reset_on_close(fd: BorrowedFd<'_>) -> io::Result<()> {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    // SAFETY: the kernel reads one linger structure, which outlives the call.
    super::check(unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            (&raw const linger).cast(),
            size_of::<libc::linger>() as libc::socklen_t,
        )
    })
    .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
    use std::os::unix::net::{UnixDatagram, UnixStream};

    #[test]
    fn each_descriptor_is_of_a_kind_and_questions_are_counted() {
        let (reader, _writer) = io::pipe().unwrap();
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let (unix, _peer) = UnixStream::pair().unwrap();
        let datagram = UnixDatagram::unbound().unwrap();
        let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        // A number that no test here comes near.
        let closed = 1_000_000;
        for (fd, expected, asked) in [
            (reader.as_raw_fd(), Kind::Pipe, 0),
            (file.as_raw_fd(), Kind::Pipe, 0),
            (unix.as_raw_fd(), Kind::Unix, 1),
            (datagram.as_raw_fd(), Kind::Unix, 1),
            (tcp.as_raw_fd(), Kind::Tcp, 1),
            (udp.as_raw_fd(), Kind::Tcp, 1),
            (closed, Kind::Pipe, 0),
        ] {
            let mut calls = Calls::default();
            assert_eq!(kind(&mut calls, fd), expected, "{fd}");
            assert_eq!((calls.fstat, calls.getsockopt, calls.total()), (1, asked, 1 + asked));
            assert_eq!(is_open(&mut calls, fd), fd != closed, "{fd}");
            assert_eq!((calls.fcntl, calls.total()), (1, 2 + asked));
        }
    }

    #[test]
    fn a_close_resets_the_connection_on_request() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        for resets in [false, true] {
            let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (server, _) = listener.accept().unwrap();
            if resets {
                reset_on_close(server.as_fd()).unwrap();
            }
            drop(server);
            let outcome = client.read(&mut [0]).map_err(|error| error.kind());
            let reset = Err(io::ErrorKind::ConnectionReset);
            assert_eq!(outcome, if resets { reset } else { Ok(0) });
        }
        let (reader, _writer) = io::pipe().unwrap();
        assert!(reset_on_close(reader.as_fd()).is_err(), "it is no socket");
    }
}
