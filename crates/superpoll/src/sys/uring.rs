//! An io_uring that watches descriptors: `io_uring_setup`, `io_uring_enter`, `io_uring_register`.
//!
//! The library maps the rings and knows their layout. The calls of each wait are made here, with
//! the same wrappers as all other system calls (`call.rs`). A ring is used by one thread at a time,
//! which the kernel holds us to (`IORING_SETUP_SINGLE_ISSUER`, Linux 6.0): completions are then
//! worked off when that thread asks (`IORING_SETUP_DEFER_TASKRUN`, 6.1) instead of interrupting it.
//! Older kernels get the next best (`IORING_SETUP_COOP_TASKRUN`, 5.19), and those before 5.19 no
//! ring at all: without one of the two it is slower than epoll. It starts disabled and belongs to
//! the thread that uses it first. On another thread the poller must replace it.
//!
//! A thread can register a ring under a name of its own (`IORING_REGISTER_RING_FDS`), which saves
//! some 25 ns of each call. Such a name is a reference to the ring that only this thread can give
//! back: a ring that is dropped elsewhere would stay, with all files that it polls, until the
//! thread ends; and in another thread the same name is another ring's. So a ring has a name only if
//! its owner [says](Ring::stay) that it stays where it is.
//!
//! A ring's memory is not copied to a child process. Each ring notes how often the process had been
//! forked when the ring was made, and refuses to be used after another fork.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use io_uring::{IoUring, cqueue, opcode, squeue, types};

use crate::stats::Calls;
use crate::sys::forks;
use crate::sys::wait_call::WaitCall;

mod files;
pub(crate) mod loan;
mod trial;

use files::Files;
pub(crate) use trial::{apart, has_min_wait};

/// The most changes that one call submits, and the most completions that may wait before the kernel
/// begins to keep them elsewhere. A smaller ring needs more calls, so the next size is for
/// processes that may not have the memory for the one before.
const SIZES: [(u32, u32); 3] = [(256, 4096), (64, 512), (8, 32)];

/// `IORING_ENTER_*` and `IORING_REGISTER_*` of `linux/io_uring.h`.
pub(super) const ENTER_GETEVENTS: u32 = 1 << 0;
pub(super) const ENTER_EXT_ARG: u32 = 1 << 3;
const ENTER_REGISTERED_RING: u32 = 1 << 4;
const ENTER_NO_IOWAIT: u32 = 1 << 7;
const REGISTER_RING_FDS: libc::c_uint = 20;
const UNREGISTER_RING_FDS: libc::c_uint = 21;

/// The name under which the kernel answers a cancellation; no code waits for that answer.
const IGNORED: u64 = u64::MAX;

/// Set in the name of a poll whose removal came too late.
pub(crate) const REMOVAL: u32 = 1 << 31;

thread_local! {
    /// A number that no other thread of this process has or had.
    static THREAD: u64 = {
        static THREADS: AtomicU64 = AtomicU64::new(1);
        THREADS.fetch_add(1, Ordering::Relaxed)
    };
}

/// `struct io_uring_rsrc_update`: a name, or a place for one, and the ring's descriptor.
#[repr(C)]
struct NameUpdate {
    offset: u32,
    reserved: u32,
    data: u64,
}

/// The flag by which a thread that sleeps in a ring is not taken for one that waits for a disk
/// (`IORING_ENTER_NO_IOWAIT`, Linux 6.15), if the kernel knows it: that changes how its processor
/// sleeps, and `top` shows a server that has nothing to do as busy with input. Finds out once, with
/// a ring of this thread.
fn sleep_flag(fd: RawFd) -> u32 {
    static FLAG: OnceLock<u32> = OnceLock::new();
    *FLAG.get_or_init(|| {
        let (flag, nothing) = (ENTER_NO_IOWAIT as libc::c_uint, 0 as libc::c_uint);
        let no_signals = std::ptr::null::<libc::sigset_t>();
        let enter = libc::SYS_io_uring_enter;
        // SAFETY: the call submits and waits for nothing, and refers to no memory.
        let entered =
            unsafe { libc::syscall(enter, fd, nothing, nothing, flag, no_signals, 0_usize) };
        if entered == 0 { ENTER_NO_IOWAIT } else { 0 }
    })
}

/// Gives this thread a name for a ring, or takes one back. Returns whether the kernel did so.
fn update_name(fd: RawFd, what: libc::c_uint, update: &mut NameUpdate) -> bool {
    let update: *mut NameUpdate = update;
    // SAFETY: the kernel reads and writes one entry, which outlives the call.
    unsafe { libc::syscall(libc::SYS_io_uring_register, fd, what, update, 1 as libc::c_uint) == 1 }
}

/// The readiness of a descriptor, or the reason why it is not watched any more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Completion {
    /// The name with which it was armed.
    pub data: u64,
    /// The kernel's answer: for a poll the readiness, as in `poll(2)`; an error's number, negated.
    pub answer: i32,
    /// Whether it is still armed.
    pub armed: bool,
    /// Whether the socket had more when it was received from.
    pub more: bool,
}

impl Completion {
    /// Fills an array before completions are fetched into it.
    pub(crate) const NONE: Completion =
        Completion { data: 0, answer: 0, armed: false, more: false };

    #[inline]
    fn of(entry: &cqueue::Entry) -> Completion {
        let flags = entry.flags();
        Completion {
            data: entry.user_data(),
            answer: entry.result(),
            armed: cqueue::more(flags),
            more: cqueue::sock_nonempty(flags),
        }
    }
}

/// The ring.
pub(crate) struct Ring {
    ring: IoUring,
    /// The thread that has used the ring first, if only one may use it; zero before the first use.
    owner: Option<u64>,
    /// The descriptor or index by which the kernel finds the ring, and the flag that tells the
    /// kernel which of the two it is.
    name: (RawFd, u32),
    /// A flag for calls that sleep, or none.
    sleep_flag: u32,
    /// Whether the ring gets a name in the thread that uses it first.
    stays: bool,
    forks: u32,
    files: Files,
    /// Whether removals that succeed need no answer (Linux 5.17).
    quiet_removals: bool,
    /// Whether the kernel has dropped completions because it had no memory for them.
    has_lost: bool,
    /// Whether nothing more may be submitted.
    is_barred: bool,
    /// The number of entries that were ever queued, wrapping.
    pushed: u32,
    /// For tests: the error of this many of the next calls that only submit changes.
    #[cfg(test)]
    pub failing: (i32, u32),
}

crate::debug_fields!(Ring, it => fd: it.ring.as_raw_fd());

impl Ring {
    /// A ring that belongs to no thread yet.
    pub(crate) fn new(calls: &mut Calls) -> io::Result<Ring> {
        let forks = forks::count();
        trial::pass()?;
        let no_memory = |error: &io::Error| error.raw_os_error() == Some(libc::ENOMEM);
        let mut made = Ring::of_size(calls, SIZES[0]);
        for size in &SIZES[1..] {
            if made.as_ref().is_err_and(no_memory) {
                made = Ring::of_size(calls, *size);
            }
        }
        let (ring, owner) = made?;
        let parameters = ring.params();
        if !parameters.is_feature_ext_arg() || !parameters.is_feature_nodrop() {
            return Err(too_old(io::ErrorKind::Unsupported.into()));
        }
        let quiet_removals = parameters.is_feature_skip_cqe_on_success();
        let name = (ring.as_raw_fd(), 0);
        Ok(Ring {
            ring,
            owner,
            name,
            sleep_flag: 0,
            stays: false,
            forks,
            files: Files::default(),
            quiet_removals,
            has_lost: false,
            is_barred: false,
            pushed: 0,
            #[cfg(test)]
            failing: (0, 0),
        })
    }

    /// A ring for this many changes and completions, with its owner.
    fn of_size(
        calls: &mut Calls,
        (changes, completions): (u32, u32),
    ) -> io::Result<(IoUring, Option<u64>)> {
        let mut builder = IoUring::builder();
        builder.setup_clamp().setup_cqsize(completions).setup_submit_all().setup_taskrun_flag();
        let mut deferring = builder.clone();
        deferring.setup_single_issuer().setup_defer_taskrun().setup_r_disabled();
        calls.io_uring_setup += 1;
        match deferring.build(changes) {
            Ok(ring) => Ok((ring, Some(0))),
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                calls.io_uring_setup += 1;
                let ring = builder.setup_coop_taskrun().build(changes).map_err(too_old)?;
                Ok((ring, None))
            }
            Err(error) => Err(error),
        }
    }

    /// Watches a descriptor: reports arrivals until it is removed, or a state once.
    pub(crate) fn arm(
        &mut self,
        calls: &mut Calls,
        fd: RawFd,
        events: u32,
        again: bool,
        data: u64,
    ) -> io::Result<()> {
        let entry = opcode::PollAdd::new(types::Fd(fd), events).multi(again).build();
        // SAFETY: a poll refers to no memory.
        unsafe { self.push(calls, &entry.user_data(data)) }
    }

    /// Stops watching it, unless it is about to be completed: then the kernel refuses the removal
    /// with `EALREADY`, under the same name with [`REMOVAL`] in it. Readiness that was found before
    /// may still be reported.
    pub(crate) fn remove(&mut self, calls: &mut Calls, data: u64) -> io::Result<()> {
        let entry = opcode::PollRemove::new(data).build();
        let entry = entry.flags(self.quiet()).user_data(data | u64::from(REMOVAL));
        // SAFETY: a removal refers to no memory.
        unsafe { self.push(calls, &entry) }
    }

    /// Stops watching it whatever it is about to do, at twice the price.
    pub(crate) fn cancel(&mut self, calls: &mut Calls, data: u64) -> io::Result<()> {
        let entry = opcode::AsyncCancel::new(data).build().flags(self.quiet()).user_data(IGNORED);
        // SAFETY: a removal refers to no memory.
        unsafe { self.push(calls, &entry) }
    }

    /// The flag that suppresses the answer to a removal that succeeds.
    fn quiet(&self) -> squeue::Flags {
        if self.quiet_removals { squeue::Flags::SKIP_SUCCESS } else { squeue::Flags::empty() }
    }

    /// Queues an entry for the next call. The error is `EBUSY` if completions must be fetched
    /// first.
    ///
    /// # Safety
    ///
    /// The memory that the entry refers to must be there for the kernel alone until its completion
    /// was fetched.
    pub(super) unsafe fn push(
        &mut self,
        calls: &mut Calls,
        entry: &squeue::Entry,
    ) -> io::Result<()> {
        self.check_forks()?;
        // SAFETY: as the caller promises.
        match unsafe { self.ring.submission().push(entry) } {
            Ok(()) => {
                self.pushed = self.pushed.wrapping_add(1);
                Ok(())
            }
            // SAFETY: as the caller promises.
            Err(_) => unsafe { self.submit_and_push(calls, entry) },
        }
    }

    /// Queues an entry for which there is no room yet.
    ///
    /// # Safety
    ///
    /// As [`push`](Ring::push).
    #[cold]
    unsafe fn submit_and_push(
        &mut self,
        calls: &mut Calls,
        entry: &squeue::Entry,
    ) -> io::Result<()> {
        self.submit(calls)?;
        // SAFETY: as the caller promises.
        unsafe { self.ring.submission().push(entry) }
            .map_err(|_| io::Error::from_raw_os_error(libc::EBUSY))?;
        self.pushed = self.pushed.wrapping_add(1);
        Ok(())
    }

    /// Returns the number of the entry that was queued last, for
    /// [`has_taken`](Ring::has_taken).
    pub(crate) fn last_pushed(&self) -> u32 {
        self.pushed
    }

    /// Returns whether the kernel has taken the entry with this number, and with it the file that
    /// the entry names by a descriptor's number.
    pub(crate) fn has_taken(&mut self, number: u32) -> bool {
        let queued = self.ring.submission().len() as u32;
        // Fewer entries are queued than there are numbers.
        self.pushed.wrapping_sub(number) >= queued
    }

    /// Lets the kernel take nothing more that is queued: a descriptor's number in the queue may
    /// name another file from now on. As with dropped completions, another ring must watch.
    #[cold]
    pub(crate) fn bar(&mut self) {
        self.is_barred = true;
        self.has_lost = true;
    }

    /// Whether the ring belongs to another thread than this one.
    #[inline]
    pub(crate) fn is_elsewhere(&self) -> bool {
        matches!(self.owner, Some(owner) if owner != 0 && owner != THREAD.with(|&thread| thread))
    }

    fn check_forks(&self) -> io::Result<()> {
        if self.forks == forks::so_far() {
            return Ok(());
        }
        Err(forks::error())
    }

    /// Whether the ring belongs to a parent process.
    pub(crate) fn is_forked(&self) -> bool {
        self.forks != forks::so_far()
    }

    /// Whether changes wait to be submitted.
    pub(crate) fn has_changes(&mut self) -> bool {
        !self.ring.submission().is_empty()
    }

    /// Submits all changes and makes the kernel carry them out. An error does not undo the changes
    /// that the kernel has made.
    pub(crate) fn submit(&mut self, calls: &mut Calls) -> io::Result<()> {
        if self.is_elsewhere() {
            // As the kernel answers for a ring without a name; under its name it might know another
            // ring.
            return Err(io::Error::from_raw_os_error(libc::EEXIST));
        }
        let mut progress = true;
        while self.has_changes() || (progress && self.has_more()) {
            let before = self.ring.completion().len();
            match self.submit_changes(calls) {
                Ok(0) if self.has_changes() => {
                    return Err(io::Error::other("the kernel takes no changes"));
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Completions must be fetched first.
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => return Ok(()),
                Err(error) => {
                    self.has_lost |= error.raw_os_error() == Some(libc::EBADR);
                    return Err(error);
                }
            }
            progress = self.ring.completion().len() != before;
        }
        Ok(())
    }

    /// The call that submits changes and waits for nothing.
    fn submit_changes(&mut self, calls: &mut Calls) -> io::Result<usize> {
        #[cfg(test)]
        if self.failing.1 > 0 {
            self.failing.1 -= 1;
            return Err(io::Error::from_raw_os_error(self.failing.0));
        }
        self.wait_call(calls, 0, 0, Some(Duration::ZERO))?.issue()
    }

    /// Notes that the kernel dropped completions (`EBADR`). The kernel reports that once, without
    /// naming the polls and operations, and this ring will never report their completions.
    #[cold]
    pub(crate) fn lose(&mut self) {
        self.has_lost = true;
    }

    /// Whether completions were dropped, so that another ring must watch from now on.
    #[inline]
    pub(crate) fn has_lost(&self) -> bool {
        self.has_lost
    }

    /// The call that submits all changes and waits until there are this many completions, or the
    /// time is over (`None`: no limit). After `min_wait` microseconds one completion is enough
    /// (zero: it does not change anything), see [`has_min_wait`].
    pub(crate) fn wait_call(
        &mut self,
        calls: &mut Calls,
        completions: u32,
        min_wait: u32,
        timeout: Option<Duration>,
    ) -> io::Result<WaitCall<'_>> {
        self.check_forks()?;
        if self.owner == Some(0) {
            self.enable(calls)?;
        }
        if self.is_barred {
            return Err(io::Error::from_raw_os_error(libc::EBADR));
        }
        let changes = self.ring.submission().len() as u32;
        let (name, registered) = self.name;
        let completions = if timeout == Some(Duration::ZERO) { 0 } else { completions };
        let flags = ENTER_GETEVENTS | registered | self.sleep_flag;
        let entries = (changes, completions);
        Ok(WaitCall::ring(calls, name, &mut self.ring, entries, flags, (min_wait, timeout)))
    }

    /// The ring becomes this thread's.
    #[cold]
    fn enable(&mut self, calls: &mut Calls) -> io::Result<()> {
        calls.io_uring_register += 1;
        self.ring.submitter().register_enable_rings()?;
        self.owner = Some(THREAD.with(|&thread| thread));
        self.sleep_flag = sleep_flag(self.ring.as_raw_fd());
        if self.stays {
            self.take_name(calls);
        }
        Ok(())
    }

    /// Notes that from now on the ring is used, and dropped, on this thread alone, which makes its
    /// calls cheaper. On another thread it is replaced like any other ring, but the files that it
    /// watched stay open until this thread ends.
    pub(crate) fn stay(&mut self, calls: &mut Calls) {
        self.stays = true;
        let is_enabled = !matches!(self.owner, None | Some(0));
        if is_enabled && self.name.1 == 0 && !self.is_elsewhere() && !self.is_forked() {
            self.take_name(calls);
        }
    }

    fn take_name(&mut self, calls: &mut Calls) {
        calls.io_uring_register += 1;
        let fd = self.ring.as_raw_fd();
        let mut update = NameUpdate { offset: u32::MAX, reserved: 0, data: fd as u64 };
        // Without a name (before Linux 5.18, or with sixteen of them) the descriptor is as good.
        if update_name(fd, REGISTER_RING_FDS, &mut update) {
            self.name = (update.offset as RawFd, ENTER_REGISTERED_RING);
        }
    }

    /// Makes the kernel write to a counter whenever there is something to fetch.
    pub(crate) fn announce_to(
        &mut self,
        calls: &mut Calls,
        counter: BorrowedFd<'_>,
    ) -> io::Result<()> {
        calls.io_uring_register += 1;
        self.ring.submitter().register_eventfd(counter.as_raw_fd())
    }

    /// Looks a descriptor's file up once and for all. Returns the file's index, if there is room,
    /// by which entries may name it until it is [forgotten](Ring::forget_file).
    pub(crate) fn keep_file(&mut self, calls: &mut Calls, fd: RawFd) -> Option<u32> {
        let usable = self.check_forks().is_ok() && self.owner != Some(0) && !self.is_elsewhere();
        if usable { self.files.keep(calls, &self.ring, fd) } else { None }
    }

    /// Lets go of a file.
    pub(crate) fn forget_file(&mut self, calls: &mut Calls, place: u32) {
        if self.check_forks().is_ok() {
            self.files.forget(calls, &self.ring, place);
        }
    }

    /// Returns the next completion.
    pub(crate) fn fetch(&mut self) -> Option<Completion> {
        loop {
            let entry = self.ring.completion().next()?;
            if entry.user_data() != IGNORED {
                return Some(Completion::of(&entry));
            }
        }
    }

    /// Fetches as many completions as there is room for. Returns how many there are.
    pub(crate) fn fetch_some(&mut self, room: &mut [Completion]) -> usize {
        let mut queue = self.ring.completion();
        let mut count = 0;
        while let Some(place) = room.get_mut(count) {
            let Some(entry) = queue.next() else { break };
            *place = Completion::of(&entry);
            count += usize::from(place.data != IGNORED);
        }
        count
    }

    /// Whether something can be fetched without a call.
    pub(crate) fn has_completions(&mut self) -> bool {
        !self.ring.completion().is_empty()
    }

    /// Whether a call would most likely bring more completions. The kernel sets the flag after it
    /// has queued the work, and may be so late that the work is done by then. Nothing clears the
    /// flag in that case.
    pub(crate) fn has_more(&mut self) -> bool {
        let submission = self.ring.submission();
        submission.taskrun() || submission.cq_overflow()
    }

    /// The ring's descriptor: readable when there are completions.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring keeps its descriptor open as long as it lives.
        unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // A child process has no names of its parent's, and leaves it its files.
        if self.check_forks().is_err() {
            return;
        }
        self.files.forget_all(&self.ring);
        if self.name.1 == 0 || self.is_elsewhere() {
            return;
        }
        let offset = self.name.0 as u32;
        let mut update = NameUpdate { offset, reserved: 0, data: 0 };
        update_name(self.ring.as_raw_fd(), UNREGISTER_RING_FDS, &mut update);
    }
}

fn too_old(error: io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(libc::EINVAL) | None => io::Error::new(
            io::ErrorKind::Unsupported,
            "it takes Linux 5.19, from which on a ring does not interrupt its thread",
        ),
        _ => error,
    }
}
