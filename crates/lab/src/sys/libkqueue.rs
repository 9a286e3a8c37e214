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
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
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
const EVFILT_WRITE: c_short = -2;
const EV_ADD: c_ushort = 0x0001;
const EV_DELETE: c_ushort = 0x0002;
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

// SAFETY: the address is a number of the caller's, which nothing looks behind.
unsafe impl Send for Kevent {}

/// Nothing to watch, to be filled in.
const NONE: Kevent = Kevent {
    ident: 0,
    filter: EVFILT_READ,
    flags: EV_ADD,
    fflags: 0,
    data: 0,
    udata: ptr::null_mut(),
};

/// The readiness that a queue watches for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Filter {
    /// Readable.
    Read = EVFILT_READ as isize,
    /// Writable.
    Write = EVFILT_WRITE as isize,
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
    /// The library's epoll set, if it was looked for.
    set: Option<RawFd>,
    events: Vec<Kevent>,
}

impl Queue {
    /// Watches all readers, which must outlive it, each under its place.
    pub(crate) fn new(readers: &[RawFd]) -> io::Result<Queue> {
        let mut queue = Queue::with_room(readers.len())?;
        for (place, &reader) in readers.iter().enumerate() {
            queue.add(reader, Filter::Read, place)?;
        }
        Ok(queue)
    }

    /// Watches nothing yet, and reports at most so many descriptors at a time.
    pub(crate) fn with_room(room: usize) -> io::Result<Queue> {
        let library = library().map_err(io::Error::other)?;
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
        Ok(Queue { library, fd, raw, set: None, events: vec![NONE; room.max(1)] })
    }

    /// Watches a descriptor, which reports carry this number for.
    pub(crate) fn add(&mut self, fd: RawFd, filter: Filter, data: usize) -> io::Result<()> {
        let udata = ptr::without_provenance_mut(data);
        self.change(Kevent { ident: fd as usize, filter: filter as c_short, udata, ..NONE })
    }

    /// Ends that. The descriptor must still be the file that was added under its number: the
    /// library goes on using its note of another one.
    pub(crate) fn delete(&mut self, fd: RawFd, filter: Filter) -> io::Result<()> {
        let (ident, filter) = (fd as usize, filter as c_short);
        self.change(Kevent { ident, filter, flags: EV_DELETE, ..NONE })
    }

    fn change(&mut self, change: Kevent) -> io::Result<()> {
        // SAFETY: the library reads one change, and writes no event.
        let changed = unsafe {
            (self.library.kevent)(self.raw, &raw const change, 1, ptr::null_mut(), 0, ptr::null())
        };
        Errno::result(changed)?;
        Ok(())
    }

    /// Finds the library's epoll set. The descriptor of a queue is the end of a pipe that another
    /// poller cannot wait for, so the set is looked for: it is the one that watches a pipe that
    /// nothing else knows.
    pub(crate) fn find_set(&mut self) -> io::Result<()> {
        let (reader, _writer) = io::pipe()?;
        let probe = reader.as_raw_fd();
        self.add(probe, Filter::Read, 0)?;
        let found = sets().find(|&set| watches(set, probe));
        self.delete(probe, Filter::Read)?;
        let failed = || io::Error::other("the library has no epoll set in /proc/self/fd");
        self.set = Some(found.ok_or_else(failed)?);
        Ok(())
    }

    /// Returns the library's epoll set, which is readable when there is something to fetch.
    ///
    /// # Panics
    ///
    /// It was not [found](Queue::find_set).
    pub(crate) fn set(&self) -> BorrowedFd<'_> {
        let set = self.set.expect("the set was found");
        // SAFETY: the library keeps its set open for as long as the queue is.
        unsafe { BorrowedFd::borrow_raw(set) }
    }

    /// Returns the bytes of heap that it uses, without the library's.
    pub(crate) fn memory(&self) -> usize {
        self.events.capacity() * size_of::<Kevent>()
    }

    /// Returns the numbers with which the descriptors were added that are ready now, as far as
    /// there is room.
    pub(crate) fn fetch(&mut self) -> io::Result<impl Iterator<Item = usize>> {
        let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        Ok(self.get_events(&raw const now)?.iter().map(|event| event.udata.addr()))
    }

    /// Leaves the queue to the parent of this process. The library has closed its descriptors in
    /// the child.
    pub(crate) fn abandon(mut self) {
        std::mem::forget(self.fd.take());
        QUEUES.fetch_add(1, Ordering::SeqCst);
    }

    #[inline(always)]
    fn get_events(&mut self, timeout: *const libc::timespec) -> io::Result<&[Kevent]> {
        let room = self.events.len() as c_int;
        // SAFETY: the library reads no change and a timeout, if there is one, and writes at most as
        // many events as the vector has.
        let count = unsafe {
            let events = self.events.as_mut_ptr();
            (self.library.kevent)(self.raw, ptr::null(), 0, events, room, timeout)
        };
        Ok(&self.events[..Errno::result(count)? as usize])
    }

    /// Waits, and returns the places of the ready readers.
    #[inline(always)]
    pub(crate) fn wait(&mut self) -> io::Result<impl Iterator<Item = usize>> {
        let events = self.get_events(ptr::null())?;
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

/// The epoll sets of this process.
fn sets() -> impl Iterator<Item = RawFd> {
    let is_set = |entry: &fs::DirEntry| {
        fs::read_link(entry.path())
            .is_ok_and(|target| target.as_os_str() == "anon_inode:[eventpoll]")
    };
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    let entries = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    entries.filter(is_set).filter_map(number)
}

/// Whether an epoll set watches a descriptor.
fn watches(set: RawFd, fd: RawFd) -> bool {
    let watched = fs::read_to_string(format!("/proc/self/fdinfo/{set}")).unwrap_or_default();
    let number = |line: &str| line.strip_prefix("tfd:")?.split_whitespace().next()?.parse().ok();
    watched.lines().filter_map(number).any(|number: RawFd| number == fd)
}

/// Whether the library's thread is there.
fn has_thread() -> bool {
    let Ok(threads) = fs::read_dir("/proc/self/task") else { return false };
    let name = |thread: fs::DirEntry| fs::read(thread.path().join("comm")).unwrap_or_default();
    threads.flatten().any(|thread| name(thread).trim_ascii_end() == THREAD.to_bytes())
}

#[cfg(test)]
mod tests {
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
