//! The functions, which are of the C library's kind and so are `unsafe`.

use std::ffi::{CStr, c_int, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{
    epoll_event, fd_set, iovec, msghdr, nfds_t, pollfd, sigset_t, size_t, sockaddr, socklen_t,
    ssize_t, timespec, timeval,
};
use superpoll_watch::preload::{Call, Inside, LAYOUT_MARK, Outcome};

/// By this the command knows that it has the library of its own version.
#[used]
#[unsafe(no_mangle)]
static SUPERPOLL_WATCH_LAYOUT: [u8; 24] = LAYOUT_MARK;

/// Is set before `main`, and read ever after.
static INSIDE: OnceLock<Inside> = OnceLock::new();

/// Runs once the library is loaded, before `main`.
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = {
    extern "C" fn forked() {
        if let Some(inside) = INSIDE.get() {
            inside.note_process();
        }
    }
    extern "C" fn start() {
        // SAFETY: the address is that of this thread's own.
        let errno = unsafe { libc::__errno_location() };
        // SAFETY: as above.
        let before = unsafe { *errno };
        // Looking up takes a lock, which a handler of a signal must not.
        find_all();
        if let Some(inside) = Inside::open() {
            let _ = INSIDE.set(inside);
            // SAFETY: the function stores a number, and lasts as long as the library.
            unsafe { libc::pthread_atfork(None, None, Some(forked)) };
        }
        // A program may expect 0 at its start.
        // SAFETY: as above.
        unsafe { *errno = before };
    }
    start
};

/// The next function of a name: the C library's, or that of another preloaded library.
struct Next {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Next {
    const fn new(name: &'static CStr) -> Next {
        Next { name, address: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// Its address, null if there is none. It is looked up here if another library calls it before
    /// this one is started.
    fn find(&self) -> *mut c_void {
        let known = self.address.load(Ordering::Relaxed);
        if !known.is_null() {
            return known;
        }
        // SAFETY: the name is a string, and the call has no other condition.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        self.address.store(found, Ordering::Relaxed);
        found
    }
}

/// A call that has begun, and that counts.
struct Begun {
    inside: &'static Inside,
    timeout: i64,
    at: i64,
}

impl Begun {
    /// `None` if nothing is counted. The clock is not read for a call that cannot sleep.
    fn new(timeout: i64) -> Option<Begun> {
        let inside = INSIDE.get().filter(|inside| inside.is_wanted())?;
        let at = if timeout == 0 { 0 } else { Inside::now() };
        Some(Begun { inside, timeout, at })
    }

    /// Counts the call, and preserves `errno`.
    fn end(self, call: Call, arguments: [u64; 3], result: i64, data: impl Iterator<Item = u64>) {
        // SAFETY: the address is that of this thread's own.
        let errno = unsafe { libc::__errno_location() };
        // SAFETY: as above.
        let before = unsafe { *errno };
        let [first, second, third] = arguments;
        let outcome = Outcome {
            call,
            arguments: [first, second, third, 0, 0, 0],
            timeout: self.timeout,
            took: if self.timeout == 0 { 0 } else { Inside::now() - self.at },
            result: if result < 0 { -i64::from(before) } else { result },
        };
        self.inside.count(&outcome, data);
        // SAFETY: as above.
        unsafe { *errno = before };
    }
}

/// A timeout in milliseconds, as nanoseconds.
fn millis(timeout: c_int) -> i64 {
    if timeout < 0 { -1 } else { i64::from(timeout) * 1_000_000 }
}

fn nanos(seconds: i64, rest: i64) -> i64 {
    seconds.saturating_mul(1_000_000_000).saturating_add(rest)
}

/// A timeout at an address, null for none.
///
/// # Safety
///
/// The address is null, or that of a time.
unsafe fn time(timeout: *const timespec) -> i64 {
    // SAFETY: by the condition above.
    unsafe { timeout.as_ref() }.map_or(-1, |time| nanos(time.tv_sec, time.tv_nsec))
}

/// The same of `select`, which changes it.
///
/// # Safety
///
/// As above.
unsafe fn short_time(timeout: *mut timeval) -> i64 {
    // SAFETY: by the condition above.
    unsafe { timeout.as_ref() }
        .map_or(-1, |time| nanos(time.tv_sec, time.tv_usec.saturating_mul(1000)))
}

/// The data of the events that a wait has returned.
///
/// # Safety
///
/// The wait has returned so many events at this address.
unsafe fn data<'a>(events: *mut epoll_event, result: c_int) -> impl Iterator<Item = u64> + 'a {
    // SAFETY: by the condition above.
    let event = move |at| unsafe { (&raw const (*events.add(at)).u64).read_unaligned() };
    (0..usize::try_from(result).unwrap_or(0)).map(event)
}

macro_rules! functions {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty {
        $call:ident, [$($counted:expr),*] $(, timeout $timeout:expr)? $(, events $events:ident)?
    })*) => {
        mod next {
            $(#[allow(non_upper_case_globals)]
            pub(super) static $name: super::Next =
                super::Next::new(match ::std::ffi::CStr::from_bytes_with_nul(
                    concat!(stringify!($name), "\0").as_bytes(),
                ) {
                    Ok(name) => name,
                    Err(_) => panic!("a name has no zero"),
                });)*
        }

        fn find_all() {
            $(next::$name.find();)*
        }

        $(
            /// Calls the next function of this name, and counts its result.
            ///
            /// # Safety
            ///
            /// That of the function.
            #[unsafe(no_mangle)]
            pub(crate) unsafe extern "C-unwind" fn $name($($argument: $type),*) -> $result {
                let address = next::$name.find();
                if address.is_null() {
                    // SAFETY: the address is that of this thread's own.
                    unsafe { *libc::__errno_location() = libc::ENOSYS };
                    return -1;
                }
                // SAFETY: the function of this name has this type, and null was ruled out.
                let next = unsafe {
                    std::mem::transmute::<
                        *mut c_void,
                        unsafe extern "C-unwind" fn($($type),*) -> $result,
                    >(address)
                };
                // Those in milliseconds are safe to read.
                #[allow(unused_unsafe)]
                // SAFETY: the caller answers for the address of the timeout.
                let timeout = [0 $(, unsafe { $timeout })?];
                let begun = Begun::new(timeout[timeout.len() - 1]);
                // SAFETY: the caller has kept to what the function asks for.
                let result = unsafe { next($($argument),*) };
                if let Some(begun) = begun {
                    let (call, counted) = (Call::$call, [$($counted as u64),*]);
                    functions!(count begun, call, counted, result $(, $events)?);
                }
                result
            }
        )*
    };
    (count $begun:ident, $call:ident, $counted:ident, $result:ident) => {
        $begun.end($call, $counted, $result as i64, std::iter::empty())
    };
    (count $begun:ident, $call:ident, $counted:ident, $result:ident, $events:ident) => {{
        // SAFETY: the call has just returned these events.
        let data = unsafe { data($events, $result) };
        $begun.end($call, $counted, $result as i64, data)
    }};
}

functions! {
    epoll_wait(set: c_int, events: *mut epoll_event, room: c_int, timeout: c_int) -> c_int {
        EpollWait, [set, 0, room], timeout millis(timeout), events events
    }
    epoll_pwait(
        set: c_int, events: *mut epoll_event, room: c_int, timeout: c_int, mask: *const sigset_t
    ) -> c_int {
        EpollWait, [set, 0, room], timeout millis(timeout), events events
    }
    epoll_pwait2(
        set: c_int, events: *mut epoll_event, room: c_int, timeout: *const timespec,
        mask: *const sigset_t
    ) -> c_int {
        EpollWait2, [set, 0, room], timeout time(timeout), events events
    }
    poll(array: *mut pollfd, length: nfds_t, timeout: c_int) -> c_int {
        Poll, [0, length, 0], timeout millis(timeout)
    }
    __poll_chk(array: *mut pollfd, length: nfds_t, timeout: c_int, size: size_t) -> c_int {
        Poll, [0, length, 0], timeout millis(timeout)
    }
    ppoll(
        array: *mut pollfd, length: nfds_t, timeout: *const timespec, mask: *const sigset_t
    ) -> c_int {
        Ppoll, [0, length, 0], timeout time(timeout)
    }
    __ppoll_chk(
        array: *mut pollfd, length: nfds_t, timeout: *const timespec, mask: *const sigset_t,
        size: size_t
    ) -> c_int {
        Ppoll, [0, length, 0], timeout time(timeout)
    }
    select(
        length: c_int, readable: *mut fd_set, writable: *mut fd_set, exceptional: *mut fd_set,
        timeout: *mut timeval
    ) -> c_int {
        Select, [length, 0, 0], timeout short_time(timeout)
    }
    pselect(
        length: c_int, readable: *mut fd_set, writable: *mut fd_set, exceptional: *mut fd_set,
        timeout: *const timespec, mask: *const sigset_t
    ) -> c_int {
        Pselect, [length, 0, 0], timeout time(timeout)
    }
    epoll_ctl(set: c_int, operation: c_int, descriptor: c_int, event: *mut epoll_event) -> c_int {
        Control, [set, operation, 0]
    }
    read(descriptor: c_int, buffer: *mut c_void, length: size_t) -> ssize_t {
        Read, [0, 0, 0]
    }
    __read_chk(descriptor: c_int, buffer: *mut c_void, length: size_t, size: size_t) -> ssize_t {
        Read, [0, 0, 0]
    }
    readv(descriptor: c_int, parts: *const iovec, count: c_int) -> ssize_t {
        Read, [0, 0, 0]
    }
    recv(socket: c_int, buffer: *mut c_void, length: size_t, flags: c_int) -> ssize_t {
        Read, [0, 0, 0]
    }
    __recv_chk(
        socket: c_int, buffer: *mut c_void, length: size_t, size: size_t, flags: c_int
    ) -> ssize_t {
        Read, [0, 0, 0]
    }
    recvfrom(
        socket: c_int, buffer: *mut c_void, length: size_t, flags: c_int, from: *mut sockaddr,
        from_length: *mut socklen_t
    ) -> ssize_t {
        Read, [0, 0, 0]
    }
    __recvfrom_chk(
        socket: c_int, buffer: *mut c_void, length: size_t, size: size_t, flags: c_int,
        from: *mut sockaddr, from_length: *mut socklen_t
    ) -> ssize_t {
        Read, [0, 0, 0]
    }
    recvmsg(socket: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
        Read, [0, 0, 0]
    }
    accept(socket: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int {
        Accept, [0, 0, 0]
    }
    accept4(
        socket: c_int, address: *mut sockaddr, length: *mut socklen_t, flags: c_int
    ) -> c_int {
        Accept, [0, 0, 0]
    }
}
