//! io_uring as a poller: descriptors are watched by polls in the ring. A wait submits all changes
//! and fetches all events with one call, or with none if events are there already.
//!
//! An edge-triggered registration is a poll that stays ([`Mode::Edge`], [`Mode::Auto`]); the kernel
//! completes it again with each arrival, and several times in a wait if there are several, which
//! come out as one event. A level-triggered one is a poll for one report, armed again by the next
//! wait, when the kernel looks at the descriptor again.
//!
//! A completion describes the readiness of the moment in which it happened. Bytes that were there
//! before a wait began may have been read since, and an arrival reports itself alone. So where it
//! is not certain that a descriptor is ready, and for which direction, one `poll` asks for all such
//! descriptors. Arrivals while the wait blocks need no second look, and [`Mode::Auto`] takes a
//! completion from before the wait as an arrival, which it is.
//!
//! Each poll is armed under a number of its own, the *arming*. A completion of an earlier arming of
//! the same descriptor, which was under way when that arming was removed, is recognised and
//! dropped. The slot keeps that number as its place, and the last wait that reported it in its
//! account. A poll that should have stayed but ended, because the kernel found no place for a
//! completion, is armed again, and that looks at the state; nothing is lost, but an edge may be
//! reported twice.
//!
//! The numbers of armings show in which order polls were armed, too. A name has room for 31 bits of
//! them, which a busy poller uses up within the hour. When they begin again, each registration
//! whose poll is armed is marked as armed in an earlier round (`begin_round`), which makes the
//! order as good as that of a counter of 64 bits and takes one bit for a registration.
//!
//! A poll holds the open file. A descriptor that is closed while it is watched stays open for its
//! peer until the poll is removed, so a removal is not left for the next wait
//! ([`Status::holds_files`]).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::OnceLock;

use crate::backend::{
    Abilities, Backend, BackendKind, BatchReads, BatchedRead, Context, Deadline, Entry, Lengths,
    Lifecycle, Memory, Status, Synced, WaitCall, no_keeper,
};
use crate::error::{Error, Result};
use crate::interest::{Mode, Watch};
use crate::key::Key;
use crate::sys::poll::Slot;
use crate::sys::uring::{Completion, REMOVAL, Ring, apart, has_min_wait};

mod arming;
mod batch;
mod outer;
mod polls;
mod reads;

use arming::unless_it_passes;
use batch::BATCH;
pub(crate) use batch::Batch;
use outer::Outer;
use polls::Found;

/// The index under which the waker is armed.
const WAKER: u32 = Key::RESERVED;

/// Armings begin again here: with [`REMOVAL`] in it, this number would be the name of a
/// [read](BATCH).
const ARMINGS: u32 = REMOVAL - 1;
const _: () = assert!(ARMINGS | REMOVAL == BATCH);

/// A wait stops fetching when it has this many completions more than there are polls.
const ENOUGH: usize = 256;

/// So many completions end a wait that gathers.
const GATHERED: u32 = 64;

/// The `uring` back-end.
#[derive(Debug)]
pub struct Uring {
    ring: Ring,
    armings: u32,
    waits: u32,
    /// Indices whose poll has ended and must be armed again, or that the ring has not taken yet.
    again: Vec<u32>,
    /// Names of polls to remove whose removal the ring has not taken yet.
    leaving: Vec<u64>,
    /// Whether the waker's poll has ended and the ring has not taken another one yet.
    is_waker_due: bool,
    armed: usize,
    waker: Option<RawFd>,
    /// Reports of armings up to this one may be of a state that is over.
    doubted: Option<u32>,
    outer: Option<Outer>,
    /// The completions of this wait, some of them perhaps twice, and the `poll` that checks the
    /// uncertain ones.
    found: Vec<Found>,
    repeated: bool,
    probe: Vec<Slot>,
    batch: Batch,
    /// Whether removals were submitted and nothing has checked yet that none was refused.
    is_removing: bool,
    /// Reads that ended outside of a wait, which the next wait delivers.
    early: Vec<BatchedRead>,
    /// Whether the caller has promised that the poller stays on its thread.
    stays: bool,
}

fn name(index: u32, arming: u32) -> u64 {
    u64::from(index) << 32 | u64::from(arming)
}

/// In an account's events: the peer has closed one direction, which ends each poll for one report
/// at once, asked for or not.
const HALF_CLOSED: u16 = 1;

/// Whether a poll in this mode continues after it has reported.
fn stays(mode: Mode) -> bool {
    matches!(mode, Mode::Edge | Mode::Auto)
}

impl Uring {
    /// A new ring.
    ///
    /// # Errors
    ///
    /// [`Error::DescriptorLimit`], or [`Error::BackendUnavailable`] with the kernel's error:
    /// `ENOSYS` if it has no io_uring, `EPERM` if it is switched off (`kernel.io_uring_disabled`,
    /// or the seccomp profile of a container), `ENOMEM` if the memory for the rings may not be
    /// locked (`ulimit -l`).
    pub fn new() -> Result<Uring> {
        let ring = Ring::new(&mut crate::stats::Calls::default()).map_err(Error::no_io_uring)?;
        Ok(Uring {
            ring,
            armings: 0,
            waits: 0,
            again: Vec::new(),
            leaving: Vec::new(),
            is_waker_due: false,
            armed: 0,
            waker: None,
            doubted: None,
            outer: None,
            found: Vec::new(),
            repeated: false,
            probe: Vec::new(),
            batch: Batch::default(),
            is_removing: false,
            early: Vec::new(),
            stays: false,
        })
    }

    /// Whether there are events to report, and nothing to submit or to ask first.
    fn knows_all(&mut self) -> bool {
        self.ring.has_completions() && !self.ring.has_changes() && !self.ring.has_more()
    }

    /// Notes from which arming on the polls belong to this wait, so that their reports are true
    /// now; this must happen before anything is armed again. If there is no completion yet, each
    /// later one is reported as it happens.
    fn begin(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if self.ring.is_elsewhere() || self.ring.has_lost() {
            self.move_here(cx)?;
        }
        let nothing = !self.ring.has_completions() && !self.ring.has_more();
        self.doubted = if nothing { None } else { Some(self.armings) };
        self.catch_up_with_ring(cx)?;
        cx.events.reads.append(&mut self.early);
        if self.batch.has_unsubmitted() { self.begin_batch(cx) } else { Ok(()) }
    }

    /// Makes the next call carry out the reads. If there are more than the ring takes at a time,
    /// they are done and fetched first, while the memory is still in the caches.
    fn begin_batch(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let done = &mut cx.events.reads;
        self.batch.keep_files(&mut cx.stats.calls, &mut self.ring);
        self.batch.carry_out_few(&mut cx.stats.calls, |read| done.push(read));
        while self.batch.has_unsubmitted() && !self.batch.submit_queued(&mut self.ring)? {
            let submitted = self.ring.submit(&mut cx.stats.calls);
            let fetched = self.fetch(cx, false);
            self.repeated |= !self.found.is_empty();
            if submitted.is_err() {
                return unless_it_passes(submitted);
            }
            if !fetched && self.ring.has_changes() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Notes the completions that have arrived, `early` if outside of a wait. Returns whether there
    /// was anything.
    #[inline]
    fn fetch(&mut self, cx: &mut Context<'_>, early: bool) -> bool {
        let mut some = [Completion::NONE; 8];
        let mut fetched = false;
        loop {
            let count = self.ring.fetch_some(&mut some);
            for &completion in &some[..count] {
                self.collect(cx, completion, early);
            }
            fetched |= count > 0;
            if count < some.len() {
                return fetched;
            }
        }
    }

    /// Fetches completions outside of a wait, and leaves their delivery to it.
    fn fetch_early(&mut self, cx: &mut Context<'_>) {
        self.fetch(cx, true);
        self.keep_found();
    }

    /// Makes another ring, which belongs to this thread, watch everything. An edge may be reported
    /// a second time.
    #[cold]
    fn move_here(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if self.ring.is_elsewhere() {
            // The poller does not stay on its thread, whatever was promised.
            self.stays = false;
        }
        self.start_anew(cx)?;
        self.is_waker_due = self.waker.is_some();
        for index in cx.table.indices() {
            let slot = cx.table.slot(index);
            if slot.is_live() && slot.applied().is_some_and(|(interest, _)| !interest.is_empty()) {
                self.again.push(index);
            }
        }
        self.catch_up_with_ring(cx)
    }

    /// A new ring, in which nothing is armed.
    fn start_anew(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let mut ring = Ring::new(&mut cx.stats.calls)?;
        if self.stays {
            ring.stay(&mut cx.stats.calls);
        }
        // This is the last step that can fail: if it does, the old ring continues watching, and the
        // poller tries again.
        if let Some(outer) = &mut self.outer {
            outer.listen_anew(&mut cx.stats.calls, &mut ring)?;
        }
        // A read that is repeated after `ECANCELED` was not made; for lost completions that is not
        // known.
        let reason = if self.ring.has_lost() { libc::EBADR } else { libc::ECANCELED };
        self.ring = ring;
        self.batch.abort_all(reason, |read| self.early.push(read));
        for index in cx.table.indices() {
            if cx.table.slot(index).fd() >= 0 {
                cx.table.slot_mut(index).set_place(None);
            }
        }
        self.again.clear();
        self.leaving.clear();
        self.is_waker_due = false;
        self.found.clear();
        self.armed = 0;
        Ok(())
    }

    /// Notes the changes that are wanted, for [`move_here`](Uring::move_here) to arm: on this
    /// thread nothing can be submitted. If the poller goes back before it waits here, the same ring
    /// receives them.
    #[cold]
    fn note_elsewhere(&mut self, cx: &mut Context<'_>, index: u32) -> Synced {
        let place = cx.table.slot(index).place();
        let had = place.is_some();
        if let Some(arming) = place {
            self.leaving.push(name(index, arming as u32));
            self.ended(cx, index);
        }
        let slot = cx.table.slot_mut(index);
        let watch = slot.watch();
        slot.set_applied(slot.is_live().then_some((watch.interest, watch.mode)));
        slot.account_mut().events = 0;
        let is_wanted = slot.is_live() && !watch.interest.is_empty();
        if is_wanted {
            self.again.push(index);
        }
        if had || is_wanted { Synced::Applied } else { Synced::Unchanged }
    }

    /// The call of a wait.
    fn wait_call<'a>(
        &'a mut self,
        cx: &mut Context<'_>,
        deadline: Deadline,
    ) -> io::Result<WaitCall<'a>> {
        let known = !self.found.is_empty() || !cx.events.reads.is_empty();
        let idle = !self.ring.has_completions() && !known;
        let blocks = deadline != Deadline::Now && idle && !self.is_behind() && cx.may_block();
        let left = if blocks { deadline.left() } else { Deadline::Now.left() };
        let min_wait = if blocks { cx.min_wait() } else { 0 };
        let completions = if min_wait > 0 { GATHERED } else { 1 };
        self.ring.wait_call(&mut cx.stats.calls, completions, min_wait, left)
    }

    /// Reports all there is.
    fn report(&mut self, cx: &mut Context<'_>, answer: io::Result<usize>) -> io::Result<()> {
        let mut answer = answer;
        self.waits = self.waits.wrapping_add(1);
        if let Some(outer) = &self.outer {
            // Before the rest is fetched, because later completions make the counter readable
            // again.
            outer.quiet(&mut cx.stats.calls);
            cx.waker_fired();
            answer = self.ring.wait_call(&mut cx.stats.calls, 0, 0, Deadline::Now.left())?.issue();
        }
        // This many completions, in the order in which they came, include each descriptor that was
        // ready when the wait ended, and more.
        let enough = self.found.len() + self.armed + ENOUGH;
        let mut first = true;
        loop {
            let number = answer.as_ref().err().and_then(io::Error::raw_os_error);
            match number {
                // The time is over; or the completions that are there must be fetched before more
                // can be submitted.
                None | Some(libc::ETIME | libc::EBUSY | libc::EAGAIN | libc::ENOMEM) => {}
                // The next wait begins with another ring.
                Some(libc::EBADR) => self.ring.lose(),
                Some(_) if self.ring.has_completions() => {}
                Some(_) => {
                    self.keep_found();
                    return answer.map(drop);
                }
            }
            let fetched = self.fetch(cx, false) || first;
            // The ring's flag for more completions may be out of date, so it counts only as long as
            // there were some.
            if !fetched || (!self.ring.has_more() && !self.ring.has_changes()) {
                break;
            }
            if self.found.len() > enough {
                // Something arrives as fast as it is fetched. The rest is left to the next wait.
                self.outer.as_ref().map_or(Ok(()), Outer::announce)?;
                break;
            }
            first = false;
            answer = self.ring.wait_call(&mut cx.stats.calls, 0, 0, Deadline::Now.left())?.issue();
        }
        if !self.found.is_empty() {
            cx.stats.cold.active += self.deliver(cx)? as u64;
        }
        if self.outer.is_some() {
            self.flush(cx)?;
        }
        Ok(())
    }

    /// Notes one completion.
    #[inline]
    fn collect(&mut self, cx: &mut Context<'_>, completion: Completion, early: bool) {
        let (index, arming) = ((completion.data >> 32) as u32, completion.data as u32);
        if arming != BATCH {
            return self.collect_poll(cx, completion, index, arming);
        }
        let done = if early { &mut self.early } else { &mut cx.events.reads };
        self.batch.complete(&mut cx.stats.calls, completion, |read| done.push(read));
    }
}

/// As the table of back-ends has it.
pub(super) const ENTRY: Entry = Entry {
    kind: BackendKind::Uring,
    name: "uring",
    abilities: Abilities {
        registers_with_epoll: false,
        calls_per_wait: 2,
        holds_files: true,
        reports_arrivals: true,
        is_everywhere: false,
        ..Abilities::EPOLL
    },
    is_available: || {
        static AVAILABLE: OnceLock<bool> = OnceLock::new();
        let try_it = || !matches!(Uring::new(), Err(Error::BackendUnavailable { .. }));
        *AVAILABLE.get_or_init(|| apart(try_it))
    },
    make: |_, topology| match topology.is_nested() {
        true => Ok(Box::new(Uring::new()?)),
        false => Err(no_keeper("uring")),
    },
};

impl Backend for Uring {
    fn status(&self) -> Status<'_> {
        let lengths = Lengths { cold: self.armed, ..Lengths::default() };
        Status { holds_files: true, ..Status::new("uring", lengths) }
    }

    fn gathers(&self) -> bool {
        has_min_wait()
    }

    fn memory(&self) -> Memory {
        let own = self.again.capacity() * size_of::<u32>()
            + self.leaving.capacity() * size_of::<u64>()
            + self.found.capacity() * size_of::<Found>()
            + self.batch.memory()
            + self.early.capacity() * size_of::<BatchedRead>();
        Memory { own, mirrors: self.probe.capacity() * size_of::<Slot>() }
    }

    fn admit(&self, _fd: RawFd, _watch: Watch) -> Result<()> {
        Ok(())
    }

    fn sync(&mut self, cx: &mut Context<'_>, index: u32) -> Result<Synced> {
        if self.ring.is_elsewhere() {
            return Ok(self.note_elsewhere(cx, index));
        }
        let slot = cx.table.slot(index);
        let watch = slot.watch();
        if !slot.is_live() {
            self.batch.forget_file(&mut cx.stats.calls, &mut self.ring, index);
            let changed = self.disarm(cx, index);
            cx.table.slot_mut(index).set_applied(None);
            return Ok(if changed { Synced::Applied } else { Synced::Unchanged });
        }
        let wanted = (watch.interest, watch.mode);
        if slot.applied() == Some(wanted) && !slot.inherits_old_key() {
            return Ok(Synced::Unchanged);
        }
        let had = self.disarm(cx, index);
        let slot = cx.table.slot_mut(index);
        slot.set_applied(Some(wanted));
        slot.account_mut().events = 0;
        if watch.interest.is_empty() {
            return Ok(if had { Synced::Applied } else { Synced::Unchanged });
        }
        if self.arm(cx, index, wanted).is_err() {
            // The ring has that error, and not the descriptor. If the error does not pass, the wait
            // reports it.
            self.again.push(index);
        }
        Ok(Synced::Applied)
    }

    fn prepare_wait<'a>(
        &'a mut self,
        cx: &mut Context<'_>,
        deadline: Deadline,
    ) -> Option<WaitCall<'a>> {
        self.begin(cx).ok()?;
        if self.knows_all() {
            return None;
        }
        self.wait_call(cx, deadline).ok()
    }

    fn finish_wait(
        &mut self,
        cx: &mut Context<'_>,
        deadline: Deadline,
        answer: Option<io::Result<usize>>,
    ) -> io::Result<()> {
        let answer = match answer {
            Some(answer) => answer,
            None => {
                self.begin(cx)?;
                if self.knows_all() { Ok(0) } else { self.wait_call(cx, deadline)?.issue() }
            }
        };
        cx.stats.cold.watched += self.armed as u64;
        self.report(cx, answer)
    }

    fn lifecycle(&mut self) -> &mut dyn Lifecycle {
        self
    }

    fn batch_reads(&mut self) -> Option<&mut dyn BatchReads> {
        Some(self)
    }
}

impl Lifecycle for Uring {
    fn attach_waker(&mut self, cx: &mut Context<'_>, fd: BorrowedFd<'_>) -> Result<()> {
        let fd = fd.as_raw_fd();
        self.waker = Some(fd);
        if let Some(outer) = &self.outer {
            outer
                .watch(&mut cx.stats.calls, fd)
                .map_err(|source| Error::system("watching the waker", Some(fd), source))?;
        }
        if self.ring.is_elsewhere() {
            return Ok(());
        }
        // The next wait tries again, and reports an error that does not pass.
        let _ = self.arm_waker(cx);
        Ok(())
    }

    fn after_fork(&mut self, cx: &mut Context<'_>) -> Result<()> {
        let failed = |source| Error::system("making an io_uring anew", None, source);
        let outer = self.outer.take();
        self.start_anew(cx).map_err(failed)?;
        self.waker = None;
        if let Some(outer) = outer {
            let renewed = outer.renewed(&mut cx.stats.calls, &mut self.ring).map_err(failed)?;
            self.outer = Some(renewed);
        }
        Ok(())
    }

    fn nest(&mut self, cx: &mut Context<'_>) -> Result<BorrowedFd<'_>> {
        self.nest_ring(cx)
    }

    fn flush(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if self.ring.is_elsewhere() {
            self.move_here(cx)?;
        }
        self.submit_removals(cx)?;
        if let Some(outer) = &self.outer {
            if !self.early.is_empty() || self.batch.has_unsubmitted() {
                outer.announce()?;
            }
            self.catch_up_with_ring(cx)?;
        }
        self.ring.submit(&mut cx.stats.calls)?;
        if std::mem::take(&mut self.is_removing)
            && self.outer.is_none()
            && self.ring.has_completions()
        {
            // A removal may have been refused, and the next wait would be too late to learn that:
            // the ring would hold the file open.
            self.fetch_early(cx);
            self.ring.submit(&mut cx.stats.calls)?;
        }
        Ok(())
    }

    fn stay_on_thread(&mut self, cx: &mut Context<'_>) {
        if !self.ring.is_elsewhere() {
            self.stays = true;
            self.ring.stay(&mut cx.stats.calls);
        }
    }

    fn shrink_to_fit(&mut self, _cx: &mut Context<'_>) {
        self.again.shrink_to_fit();
        self.found.shrink_to_fit();
        self.early.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests;
