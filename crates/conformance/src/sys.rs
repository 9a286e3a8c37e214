//! The system calls of the suite, one thin function each, and its only `unsafe` code.
//!
//! The suite does not use the poller's own wrappers: a bug in those must not hide itself.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};

fn check(returned: libc::c_int) -> io::Result<libc::c_int> {
    if returned < 0 { Err(io::Error::last_os_error()) } else { Ok(returned) }
}

fn take(fd: RawFd) -> OwnedFd {
    // SAFETY: only called with a descriptor that the kernel has just made for the caller.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// The first number of those that checks close and use again, one check at a time. select can watch
/// numbers up to 1,023.
pub(crate) const HIGH: RawFd = 1004;

/// Creates a pipe that never blocks, and whose buffer is one page: reading end, writing end.
///
/// # Errors
///
/// The errors of `pipe2(2)` and `fcntl(2)`.
pub fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut fds = [0; 2];
    // SAFETY: the kernel writes two integers, for which there is room.
    check(unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) })?;
    let ends = (take(fds[0]), take(fds[1]));
    // SAFETY: takes integers, touches no memory.
    check(unsafe { libc::fcntl(fds[1], libc::F_SETPIPE_SZ, 4096) })?;
    Ok(ends)
}

/// Creates a pipe that never blocks, and whose reads end where a write did (`O_DIRECT`):
/// reading end, writing end.
///
/// # Errors
///
/// The errors of `pipe2(2)`.
pub fn packet_pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut fds = [0; 2];
    let flags = libc::O_NONBLOCK | libc::O_CLOEXEC | libc::O_DIRECT;
    // SAFETY: the kernel writes two descriptors to the array, which outlives the call.
    check(unsafe { libc::pipe2(fds.as_mut_ptr(), flags) })?;
    Ok((take(fds[0]), take(fds[1])))
}

/// Creates a pair of Unix-domain stream sockets that never block.
///
/// # Errors
///
/// The errors of `socketpair(2)`.
pub fn socket_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut fds = [0; 2];
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: the kernel writes two integers, for which there is room.
    check(unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, fds.as_mut_ptr()) })?;
    Ok((take(fds[0]), take(fds[1])))
}

/// Creates an eventfd with a count of zero that never blocks.
///
/// # Errors
///
/// The errors of `eventfd(2)`.
pub fn eventfd() -> io::Result<OwnedFd> {
    // SAFETY: takes integers, touches no memory.
    check(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) }).map(take)
}

/// Creates a regular file without a name, which vanishes with its last descriptor.
///
/// # Errors
///
/// The errors of `memfd_create(2)`.
pub fn regular_file() -> io::Result<File> {
    // SAFETY: the name is a string with a terminating zero that outlives the call.
    let fd = check(unsafe { libc::memfd_create(c"regular".as_ptr(), libc::MFD_CLOEXEC) })?;
    Ok(File::from(take(fd)))
}

/// Reads at most `count` bytes. Returns the error number if it fails.
pub fn read(fd: RawFd, count: usize) -> Result<usize, i32> {
    let mut buffer = vec![0u8; count];
    // SAFETY: the buffer has room for `count` bytes and outlives the call.
    let got = unsafe { libc::read(fd, buffer.as_mut_ptr().cast(), count) };
    usize::try_from(got).map_err(|_| errno())
}

/// Writes `count` bytes, or fewer. Returns the error number if it fails. Raises no `SIGPIPE` (the
/// Rust runtime ignores it).
pub fn write(fd: RawFd, count: usize) -> Result<usize, i32> {
    // An eventfd adds the number it is given: one, in either byte order far from overflowing.
    let mut buffer = vec![0u8; count];
    if count == 8 {
        buffer.copy_from_slice(&1u64.to_ne_bytes());
    }
    // SAFETY: the buffer holds `count` bytes and outlives the call.
    let put = unsafe { libc::write(fd, buffer.as_ptr().cast(), count) };
    usize::try_from(put).map_err(|_| errno())
}

fn errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// Sends one byte of urgent data (`MSG_OOB`).
///
/// # Errors
///
/// The errors of `send(2)`.
pub fn send_urgent(socket: impl AsFd) -> io::Result<()> {
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the kernel reads one byte, which outlives the call.
    let sent = unsafe { libc::send(fd, b"u".as_ptr().cast(), 1, libc::MSG_OOB) };
    if sent == 1 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Shuts down a direction of a socket (`SHUT_RD`, `SHUT_WR` or `SHUT_RDWR`).
///
/// # Errors
///
/// The errors of `shutdown(2)`.
pub fn shutdown(fd: RawFd, how: libc::c_int) -> io::Result<()> {
    // SAFETY: takes integers, touches no memory.
    check(unsafe { libc::shutdown(fd, how) }).map(drop)
}

/// Makes a UDP socket keep a queue of errors (`IP_RECVERR`). The kernel reports `POLLERR` until
/// [`take_error`] has emptied the queue.
///
/// # Errors
///
/// The errors of `setsockopt(2)`.
pub fn queue_errors(socket: impl AsFd) -> io::Result<()> {
    let (fd, on) = (socket.as_fd().as_raw_fd(), 1 as libc::c_int);
    let (level, name) = (libc::IPPROTO_IP, libc::IP_RECVERR);
    // SAFETY: the kernel reads an integer of the given size, which outlives the call.
    let set =
        unsafe { libc::setsockopt(fd, level, name, (&raw const on).cast(), size_of_val(&on) as _) };
    check(set).map(drop)
}

/// Takes an error out of the queue of a socket (`MSG_ERRQUEUE`). Returns whether there was one.
pub fn take_error(socket: impl AsFd) -> bool {
    let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: without room for a message, an address or control data, the kernel writes nothing.
    let taken = unsafe { libc::recv(fd, std::ptr::null_mut(), 0, flags) };
    taken >= 0
}

/// Creates a TCP socket that never blocks and is not connected: hung up, and writable.
///
/// # Errors
///
/// The errors of `socket(2)`.
pub fn tcp_socket() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: takes integers, touches no memory.
    check(unsafe { libc::socket(libc::AF_INET, kind, 0) }).map(take)
}

/// Begins to connect a TCP socket that never blocks.
///
/// # Errors
///
/// The errors of `connect(2)`, but for `EINPROGRESS`.
pub fn connect(socket: impl AsFd, to: std::net::SocketAddrV4) -> io::Result<()> {
    let address = libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: to.port().to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(to.ip().octets()) },
        sin_zero: [0; 8],
    };
    let (fd, length) = (socket.as_fd().as_raw_fd(), size_of_val(&address) as libc::socklen_t);
    // SAFETY: the kernel reads an address of the given length, which outlives the call.
    let begun = unsafe { libc::connect(fd, (&raw const address).cast(), length) };
    match check(begun) {
        Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
        _ => Ok(()),
    }
}

/// Duplicates a descriptor to the lowest free number that is at least `lowest`.
///
/// Raises the soft limit of descriptors first, which is often 1,024.
///
/// # Errors
///
/// The errors of `setrlimit(2)` and `fcntl(2)`.
pub fn duplicate_from(fd: impl AsFd, lowest: RawFd) -> io::Result<OwnedFd> {
    superpoll::limits::raise_descriptors()?;
    let fd = fd.as_fd().as_raw_fd();
    // SAFETY: takes integers, touches no memory.
    check(unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, lowest) }).map(take)
}

/// Duplicates the descriptor with this number, whatever its owner.
///
/// # Errors
///
/// The errors of `fcntl(2)`.
pub fn duplicate_number(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: takes integers, touches no memory.
    check(unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 3) }).map(take)
}

/// Moves an open file to a number that is free and that the caller has set aside.
///
/// # Errors
///
/// The errors of `dup3(2)`.
pub fn move_to(fd: OwnedFd, number: RawFd) -> io::Result<OwnedFd> {
    if fd.as_raw_fd() == number {
        return Ok(fd);
    }
    // SAFETY: the number is free, so the call replaces no descriptor that is in use.
    check(unsafe { libc::dup3(fd.as_raw_fd(), number, libc::O_CLOEXEC) }).map(take)
}

/// Whether the number is an open descriptor.
pub fn is_open(fd: RawFd) -> bool {
    // SAFETY: takes integers, touches no memory.
    unsafe { libc::fcntl(fd, libc::F_GETFD) >= 0 }
}

/// Closes a descriptor behind its owner's back.
///
/// The owner must be leaked or must have been taken apart with `into_raw_fd`.
pub fn close(fd: RawFd) {
    // SAFETY: takes an integer. The caller sees to it that the number has no owner any more; a
    // violation is caught by the owner's own close in debug builds.
    unsafe { libc::close(fd) };
}

/// Calls `poll(2)`, without blocking if `milliseconds` is zero.
///
/// # Errors
///
/// The errors of `poll(2)`.
pub fn poll(slots: &mut [libc::pollfd], milliseconds: libc::c_int) -> io::Result<usize> {
    // SAFETY: the kernel reads and writes that many slots, which outlive the call.
    let ready =
        unsafe { libc::poll(slots.as_mut_ptr(), slots.len() as libc::nfds_t, milliseconds) };
    check(ready).map(|ready| ready as usize)
}

/// Creates an epoll set.
///
/// # Errors
///
/// The errors of `epoll_create1(2)`.
pub fn epoll_create() -> io::Result<OwnedFd> {
    // SAFETY: takes a flag, touches no memory.
    check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) }).map(take)
}

/// Calls `epoll_ctl(2)`.
///
/// # Errors
///
/// The errors of `epoll_ctl(2)`.
pub fn epoll_control(
    set: impl AsFd,
    operation: libc::c_int,
    fd: RawFd,
    events: u32,
    data: u64,
) -> io::Result<()> {
    let mut event = libc::epoll_event { events, u64: data };
    // SAFETY: the kernel reads one event, which outlives the call.
    check(unsafe { libc::epoll_ctl(set.as_fd().as_raw_fd(), operation, fd, &mut event) }).map(drop)
}

/// Calls `epoll_wait(2)` for at most `limit` events. Returns the data and bits of each.
///
/// # Errors
///
/// The errors of `epoll_wait(2)`.
pub fn epoll_wait(
    set: impl AsFd,
    limit: usize,
    milliseconds: libc::c_int,
) -> io::Result<Vec<(u64, u32)>> {
    let mut buffer = vec![libc::epoll_event { events: 0, u64: 0 }; limit];
    let set = set.as_fd().as_raw_fd();
    // SAFETY: the buffer has room for `limit` events and outlives the call.
    let count =
        unsafe { libc::epoll_wait(set, buffer.as_mut_ptr(), limit as libc::c_int, milliseconds) };
    let count = check(count)? as usize;
    Ok(buffer[..count].iter().map(|event| (event.u64, event.events)).collect())
}

/// A thread as the target of [`interrupt`].
#[derive(Clone, Copy, Debug)]
pub struct Thread(libc::pthread_t);

/// Returns the calling thread.
pub fn this_thread() -> Thread {
    // SAFETY: takes nothing, touches no memory.
    Thread(unsafe { libc::pthread_self() })
}

extern "C" fn ignore(_signal: libc::c_int) {}

/// Installs a handler for `SIGUSR2` that does nothing, without `SA_RESTART`.
///
/// # Errors
///
/// The errors of `sigaction(2)`.
pub fn handle_interrupts() -> io::Result<()> {
    // SAFETY: zeros are a valid sigaction, and the handler is async-signal-safe: it does nothing.
    check(unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = ignore as extern "C" fn(libc::c_int) as libc::sighandler_t;
        libc::sigaction(libc::SIGUSR2, &action, std::ptr::null_mut())
    })
    .map(drop)
}

/// Sends `SIGUSR2` to a thread that has not ended.
pub fn interrupt(thread: Thread) {
    // SAFETY: the caller keeps the thread alive, so that its name is valid.
    unsafe { libc::pthread_kill(thread.0, libc::SIGUSR2) };
}

/// Lowers the soft limit of descriptors; the hard limit stays.
///
/// # Errors
///
/// The errors of `setrlimit(2)`.
pub fn limit_descriptors(soft: u64) -> io::Result<()> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes, then reads, one rlimit, which outlives the calls.
    unsafe {
        check(libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit))?;
        limit.rlim_cur = soft;
        check(libc::setrlimit(libc::RLIMIT_NOFILE, &limit)).map(drop)
    }
}

/// Makes the kernel refuse io_uring with this error to this thread and the threads and processes
/// that it starts, as the seccomp profile of a container does (`seccomp(2)`).
///
/// # Errors
///
/// The errors of `prctl(2)`.
pub fn refuse_io_uring(error: libc::c_int) -> io::Result<()> {
    refuse(libc::SYS_io_uring_setup, 0, error)
}

/// Makes the kernel refuse rings with at least this many entries, as if there were memory only for
/// smaller ones.
///
/// # Errors
///
/// The errors of `prctl(2)`.
pub fn refuse_large_rings(entries: u32, error: libc::c_int) -> io::Result<()> {
    refuse(libc::SYS_io_uring_setup, entries, error)
}

/// Lets this thread, and the threads and processes that it starts, create rings but not use them.
///
/// # Errors
///
/// The errors of `prctl(2)`.
pub fn refuse_use_of_rings(error: libc::c_int) -> io::Result<()> {
    refuse(libc::SYS_io_uring_enter, 0, error)
}

/// Refuses a system call whose first argument is at least `least`.
fn refuse(call: libc::c_long, least: u32, error: libc::c_int) -> io::Result<()> {
    let instruction =
        |code: u32, k: u32, jt: u8, jf: u8| libc::sock_filter { code: code as u16, jt, jf, k };
    let load = |offset: usize| {
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset as u32, 0, 0)
    };
    // Only the lower half of the argument, which holds all of a small number.
    let argument = std::mem::offset_of!(libc::seccomp_data, args)
        + if cfg!(target_endian = "big") { 4 } else { 0 };
    let mut filter = [
        load(std::mem::offset_of!(libc::seccomp_data, nr)),
        instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, call as u32, 0, 3),
        load(argument),
        instruction(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, least, 0, 1),
        instruction(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | error as u32, 0, 0),
        instruction(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0, 0),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: both take integers, and the second reads a program, which outlives the call.
    unsafe {
        check(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))?;
        check(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program))
            .map(drop)
    }
}

/// Leaves this process no memory that it may lock, and takes the privilege to lock more from this
/// thread.
///
/// # Errors
///
/// The errors of `setrlimit(2)`, `capget(2)` and `capset(2)`.
pub fn forbid_locked_memory() -> io::Result<()> {
    #[repr(C)]
    struct Header {
        version: u32,
        thread: libc::c_int,
    }
    #[repr(C)]
    #[derive(Clone, Copy)]
    struct Capabilities {
        effective: u32,
        permitted: u32,
        inheritable: u32,
    }
    /// `_LINUX_CAPABILITY_VERSION_3`, whose sets are of two words.
    const VERSION: u32 = 0x2008_0522;
    const IPC_LOCK: u32 = 1 << 14;
    let limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    let mut header = Header { version: VERSION, thread: 0 };
    let mut sets = [Capabilities { effective: 0, permitted: 0, inheritable: 0 }; 2];
    // SAFETY: the kernel reads a limit, a header and two sets, and writes the sets; all outlive the
    // calls.
    unsafe {
        check(libc::setrlimit(libc::RLIMIT_MEMLOCK, &limit))?;
        check(libc::syscall(libc::SYS_capget, &raw mut header, sets.as_mut_ptr()) as libc::c_int)?;
        sets[0].effective &= !IPC_LOCK;
        sets[0].permitted &= !IPC_LOCK;
        check(libc::syscall(libc::SYS_capset, &raw mut header, sets.as_ptr()) as libc::c_int)
            .map(drop)
    }
}

/// Locks a page of memory, and unlocks it again.
///
/// # Errors
///
/// The errors of `mlock(2)`.
pub fn lock_memory() -> io::Result<()> {
    let page = [0u8; 1];
    // SAFETY: the page exists, and locking it changes nothing in it.
    unsafe {
        check(libc::mlock(page.as_ptr().cast(), 1))?;
        check(libc::munlock(page.as_ptr().cast(), 1)).map(drop)
    }
}

/// Forks; runs `child` there on its copy of `with`, and `parent` here on the original. Returns the
/// child's exit status: zero if `child` returned true.
///
/// For processes that have no other thread, or whose other threads hold no lock (of the allocator,
/// say) that the child needs.
///
/// # Errors
///
/// The errors of `fork(2)` and `waitpid(2)`.
pub fn fork_and_wait<T>(
    with: &mut T,
    child: impl FnOnce(&mut T) -> bool,
    parent: impl FnOnce(&mut T),
) -> io::Result<i32> {
    // SAFETY: the child runs the closure and leaves by _exit, so that no destructor or exit
    // handler of the parent's runs twice.
    let process = check(unsafe { libc::fork() })?;
    if process == 0 {
        let run = std::panic::AssertUnwindSafe(|| child(with));
        let passed = std::panic::catch_unwind(run).unwrap_or(false);
        // SAFETY: ends the process, touches no memory.
        unsafe { libc::_exit(i32::from(!passed)) };
    }
    parent(with);
    let mut status = 0;
    // SAFETY: the kernel writes one integer, which outlives the call.
    check(unsafe { libc::waitpid(process, &mut status, 0) })?;
    Ok(status)
}

/// Whether the descriptor is a regular file.
pub fn is_regular(fd: RawFd) -> bool {
    let mut stat = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the kernel writes one stat structure, for which there is room.
    if unsafe { libc::fstat(fd, stat.as_mut_ptr()) } != 0 {
        return false;
    }
    // SAFETY: fstat succeeded and has filled the structure.
    let mode = unsafe { stat.assume_init() }.st_mode;
    mode & libc::S_IFMT == libc::S_IFREG
}
