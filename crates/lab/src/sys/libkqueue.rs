//! libkqueue, which offers the BSDs' `kqueue` on top of epoll, loaded while the program runs.
//!
//! Few systems have a package of it, so the laboratory does not link it: the library is looked for
//! when it is first needed, as any program's libraries are (`LD_LIBRARY_PATH` included).
//!
//! While a process has a queue, the library has a thread that cleans up after queues that were
//! closed. With a second thread each look-up of a descriptor costs more (`second_thread.rs`). That
//! cost belongs to this rival and to no other subject, so a queue that is dropped waits until the
//! thread has ended. The thread is known by its name, which threads get from the thread that starts
//! them.

use std::ffi::{CStr, c_int, c_short, c_uint, c_ushort, c_void};
use std::fs;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::prctl;

/// The name that the dynamic loader looks for.
const FILE: &CStr = c"libkqueue.so.0";

/// How to get it: Debian has it in its experimental release alone.
const REMEDY: &str = "install libkqueue (Ubuntu 24.04 and Debian's experimental: libkqueue0t64; \
                      Fedora, Arch: libkqueue), or unpack it into a folder of LD_LIBRARY_PATH";

const EVFILT_READ: c_short = -1;
const EV_ADD: c_ushort = 0x0001;
const EV_ERROR: c_ushort = 0x4000;

/// The name of the library's thread.
const THREAD: &CStr = c"libkqueue";

/// The time that the library's thread may take to end: it frees each registration of the queue.
const PATIENCE: Duration = Duration::from_secs(5);

/// The queues of this process.
static QUEUES: AtomicUsize = AtomicUsize::new(0);

/// Held during each call of `kqueue`. The first one begins a thread under a lock, and waits for it
/// with the lock given up for a moment. A call of another thread that takes the lock then would
/// wait for the first one to end, which waits for the lock.
static CALLING: Mutex<()> = Mutex::new(());

#[repr(C)]
#[derive(Clone, Copy)]
struct Kevent {
    ident: usize,
    filter: c_short,
    flags: c_ushort,
    fflags: c_uint,
    data: isize,
    udata: *mut c_void,
}

type KqueueCall = unsafe extern "C" fn() -> c_int;
type KeventCall = unsafe extern "C" fn(
    c_int,
    *const Kevent,
    c_int,
    *mut Kevent,
    c_int,
    *const libc::timespec,
) -> c_int;

/// Its two functions.
#[derive(Clone, Copy)]
struct Library {
    kqueue: KqueueCall,
    kevent: KeventCall,
}

/// Returns the library, which stays loaded, or why it is not here.
fn library() -> Result<Library, &'static str> {
    static LIBRARY: OnceLock<Result<Library, String>> = OnceLock::new();
    let loaded = LIBRARY.get_or_init(|| load(FILE));
    loaded.as_ref().copied().map_err(String::as_str)
}

fn load(file: &CStr) -> Result<Library, String> {
    // SAFETY: the name ends with a zero. The constructors of the library run, as they would if it
    // were linked.
    let handle = unsafe { libc::dlopen(file.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if handle.is_null() {
        return Err(complaint());
    }
    let find = |name: &CStr| {
        // SAFETY: the handle is that of a library that is never unloaded; the name ends with a
        // zero.
        let address = unsafe { libc::dlsym(handle, name.as_ptr()) };
        if address.is_null() { Err(complaint()) } else { Ok(address) }
    };
    let (kqueue, kevent) = (find(c"kqueue")?, find(c"kevent")?);
    // SAFETY: the addresses are those of functions with these signatures, by the library's header.
    unsafe {
        Ok(Library {
            kqueue: std::mem::transmute::<*mut c_void, KqueueCall>(kqueue),
            kevent: std::mem::transmute::<*mut c_void, KeventCall>(kevent),
        })
    }
}

/// The loader's message about the last failure of this thread.
fn complaint() -> String {
    // SAFETY: the message, if there is one, ends with a zero and stays until this thread calls the
    // loader again, which it does not do before the message is copied.
    unsafe {
        let message = libc::dlerror();
        match message.is_null() {
            true => "it cannot be loaded".to_owned(),
            false => CStr::from_ptr(message).to_string_lossy().into_owned(),
        }
    }
}

/// Returns why the library is not here and how to get it, or `None` if it is.
pub(crate) fn missing() -> Option<String> {
    library().err().map(|why| format!("{why}; {REMEDY}"))
}

/// A queue that reports readable descriptors, level-triggered: its cheapest mode here.
pub(crate) struct Queue {
    library: Library,
    /// `None` only while it is dropped.
    fd: Option<OwnedFd>,
    raw: RawFd,
    events: Vec<Kevent>,
}

impl Queue {
    /// Watches all readers, which must outlive it, each under its place.
    pub(crate) fn new(readers: &[RawFd]) -> io::Result<Queue> {
        let library = library().map_err(io::Error::other)?;
        let none = Kevent {
            ident: 0,
            filter: EVFILT_READ,
            flags: EV_ADD,
            fflags: 0,
            data: 0,
            udata: ptr::null_mut(),
        };
        QUEUES.fetch_add(1, Ordering::SeqCst);
        let calling = CALLING.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the call takes nothing.
        let created = named_as_library(|| Errno::result(unsafe { (library.kqueue)() }));
        drop(calling);
        let raw = created.inspect_err(|_| {
            QUEUES.fetch_sub(1, Ordering::SeqCst);
        })?;
        // SAFETY: the library has made the descriptor for its caller, who closes it.
        let fd = Some(unsafe { OwnedFd::from_raw_fd(raw) });
        let queue = Queue { library, fd, raw, events: vec![none; readers.len().max(1)] };
        for (place, &reader) in readers.iter().enumerate() {
            let change = Kevent {
                ident: reader as usize,
                udata: ptr::without_provenance_mut(place),
                ..none
            };
            // SAFETY: the library reads one change, and writes no event.
            let added = unsafe {
                (library.kevent)(raw, &raw const change, 1, ptr::null_mut(), 0, ptr::null())
            };
            Errno::result(added)?;
        }
        Ok(queue)
    }

    /// Waits, and returns the places of the ready readers.
    #[inline(always)]
    pub(crate) fn wait(&mut self) -> io::Result<impl Iterator<Item = usize>> {
        let room = self.events.len() as c_int;
        let (no_change, indefinitely) = (ptr::null(), ptr::null());
        // SAFETY: the library reads no change and no timeout, and writes at most as many events as
        // the vector has.
        let count = unsafe {
            let events = self.events.as_mut_ptr();
            (self.library.kevent)(self.raw, no_change, 0, events, room, indefinitely)
        };
        let events = &self.events[..Errno::result(count)? as usize];
        if let Some(failed) = events.iter().find(|event| event.flags & EV_ERROR != 0) {
            return Err(io::Error::from_raw_os_error(failed.data as i32));
        }
        Ok(events.iter().map(|event| event.udata.addr()))
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.fd = None;
        if QUEUES.fetch_sub(1, Ordering::SeqCst) > 1 {
            return;
        }
        let until = Instant::now() + PATIENCE;
        while QUEUES.load(Ordering::SeqCst) == 0 && has_thread() && Instant::now() < until {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

/// Gives this thread the name of the library's thread during a call.
fn named_as_library<T>(call: impl FnOnce() -> T) -> T {
    let own = prctl::get_name();
    // Without the names a dropped queue does not wait, which distorts and does not fail.
    let _ = prctl::set_name(THREAD);
    let returned = call();
    let _ = own.and_then(|own| prctl::set_name(&own));
    returned
}

/// Whether the library's thread is there.
fn has_thread() -> bool {
    let Ok(threads) = fs::read_dir("/proc/self/task") else { return false };
    let name = |thread: fs::DirEntry| fs::read(thread.path().join("comm")).unwrap_or_default();
    threads.flatten().any(|thread| name(thread).trim_ascii_end() == THREAD.to_bytes())
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn the_thread_of_the_library_ends_with_the_last_queue() {
        if let Some(reason) = missing() {
            println!("skipped: {reason}");
            return;
        }
        let (reader, _writer) = io::pipe().unwrap();
        for _ in 0..20 {
            let queue = Queue::new(&[reader.as_raw_fd()]).unwrap();
            assert!(has_thread());
            drop(queue);
            // Other tests of this process may have queues, and may end them between the two looks.
            let end = Instant::now() + Duration::from_secs(30);
            while has_thread() && QUEUES.load(Ordering::SeqCst) == 0 {
                assert!(Instant::now() < end, "the thread is there without a queue");
                std::thread::yield_now();
            }
        }
    }

    #[test]
    fn a_library_that_is_not_here_is_named() {
        let error = load(c"libkqueue-that-is-not-here.so.0").err().unwrap();
        assert!(error.contains("libkqueue-that-is-not-here.so.0"), "{error}");
        // A library that is here, but is another one.
        let error = load(c"libc.so.6").err().unwrap();
        assert!(error.contains("kqueue"), "{error}");
    }
}
