//! `epoll(7)`: the kernel keeps the set, and each event costs the same whatever its size.
//!
//! The kernel gets the key of each descriptor, so an event that arrives for a registration that
//! ended is recognised. There is only one way in which that happens after the changes have been
//! flushed: the descriptor was closed while a duplicate, here or in another process, keeps the open
//! file and so the kernel's registration alive. That registration can no longer be named, so it
//! cannot be removed; a level-triggered one would be reported again with every wait. The set is
//! then built again under the same descriptor number, once. This rebuild is the reason why a close
//! is free in all other cases.
//!
//! A direction that is no longer wanted stays armed where that may save a call: most readers that
//! pause resume before anything arrives. The kernel is told only if an unwanted event does come up.
//! Writability is not treated so, because it would come up at once.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use crate::backend::{
    Abilities, Backend, BackendKind, Context, Deadline, Entry, Lengths, Lifecycle, Memory, Report,
    Status, Synced, WaitCall, without_keeper,
};
use crate::error::{Error, Result};
use crate::event::Readiness;
use crate::interest::{Interest, Mode, Watch};
use crate::key::Key;
use crate::sys::epoll::{self, Operation, Raw};
use crate::sys::eventfd::replace;

/// The key under which the waker is watched.
const WAKER: Key = Key::new(Key::RESERVED, 0);

/// The key under which the link to another watcher is watched.
const LINE: Key = Key::new(Key::RESERVED, 1);

/// Watched, but without a report: only a single report of a hang-up remains possible.
const PARKED: (Interest, Mode) = (Interest::NONE, Mode::Edge);

/// The `epoll` back-end, and the cold set of the adaptive one.
#[derive(Debug)]
pub struct Epoll {
    fd: OwnedFd,
    /// An epoll set with nothing but `fd` in it, for use in another loop: it keeps its identity
    /// when `fd` is built again.
    outer: Option<OwnedFd>,
    waker: Option<RawFd>,
    link: Option<(RawFd, Mode)>,
    link_is_ready: bool,
    buffer: Vec<Raw>,
    /// Descriptors that the kernel watches and that may report.
    armed: usize,
    orphans: bool,
}

fn bits(interest: Interest, mode: Mode) -> u32 {
    let flags = match mode {
        Mode::Level => 0,
        Mode::Edge | Mode::Auto => libc::EPOLLET,
        Mode::OneShot => libc::EPOLLONESHOT,
        Mode::Exclusive => libc::EPOLLEXCLUSIVE,
    };
    interest.poll_bits() as u32 | flags as u32
}

/// How many events a call asks for: more than there can be, unless there is no need to know all.
#[inline]
fn room(cx: &Context<'_>, alone: bool) -> usize {
    // All registrations, a waker and a link, and one more.
    let known = cx.table.len() + 3;
    match cx.room_in_turn() {
        Some(room) if alone => room.min(known),
        _ => known,
    }
}

fn is(error: &io::Error, number: i32) -> bool {
    error.raw_os_error() == Some(number)
}

impl Epoll {
    /// A new epoll set.
    ///
    /// # Errors
    ///
    /// [`Error::DescriptorLimit`], or [`Error::BackendUnavailable`] with the kernel's error.
    pub fn new() -> Result<Epoll> {
        let fd =
            epoll::create(&mut crate::stats::Calls::default()).map_err(
                |source| match Error::system("creating an epoll set", None, source) {
                    Error::System { source, .. } => {
                        Error::BackendUnavailable { backend: "epoll", source }
                    }
                    error => error,
                },
            )?;
        Ok(Epoll {
            fd,
            outer: None,
            waker: None,
            link: None,
            link_is_ready: false,
            buffer: Vec::new(),
            armed: 0,
            orphans: false,
        })
    }

    #[inline]
    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Descriptors that may report, the waker not counted.
    #[inline]
    pub(super) fn armed(&self) -> usize {
        self.armed
    }

    /// Whether anything in the set may report.
    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        self.armed == 0 && self.waker.is_none() && self.link.is_none()
    }

    /// Watches the link to another watcher: a descriptor that is readable when that watcher has
    /// something to report.
    ///
    /// # Errors
    ///
    /// [`Error::System`].
    pub fn watch_link(&mut self, link: BorrowedFd<'_>, mode: Mode) -> Result<()> {
        let link = link.as_raw_fd();
        self.add_link(&mut crate::stats::Calls::default(), link, mode).map_err(|source| {
            Error::system("watching the link to a watcher", Some(link), source)
        })?;
        self.link = Some((link, mode));
        Ok(())
    }

    fn add_link(&self, calls: &mut crate::stats::Calls, fd: RawFd, mode: Mode) -> io::Result<()> {
        let (set, bits) = (self.fd.as_fd(), bits(Interest::READABLE, mode));
        epoll::control(calls, set, Operation::Add, fd, bits, LINE.to_bits())
    }

    /// Stops watching the link, which the caller closes next.
    pub fn forget_link(&mut self, cx: &mut Context<'_>) {
        if let Some((link, _)) = self.link {
            let (calls, set) = (&mut cx.stats.calls, self.fd.as_fd());
            let _ = epoll::control(calls, set, Operation::Delete, link, 0, 0);
        }
        self.drop_link();
    }

    /// The link belongs to another process, as this set does until it is built again.
    pub fn drop_link(&mut self) {
        (self.link, self.link_is_ready) = (None, false);
    }

    /// Whether the link has been reported since the last call.
    #[inline]
    pub fn take_link_event(&mut self) -> bool {
        std::mem::take(&mut self.link_is_ready)
    }

    fn note(&mut self, cx: &mut Context<'_>, index: u32, applied: Option<(Interest, Mode)>) {
        let slot = cx.table.slot_mut(index);
        let armed = |applied: Option<(Interest, Mode)>| {
            usize::from(applied.is_some_and(|(interest, _)| !interest.is_empty()))
        };
        self.armed += armed(applied);
        self.armed -= armed(slot.applied());
        slot.set_applied(applied);
    }

    fn control(
        &self,
        cx: &mut Context<'_>,
        operation: Operation,
        index: u32,
        (interest, mode): (Interest, Mode),
    ) -> io::Result<()> {
        let fd = cx.table.slot(index).fd();
        let data = cx.table.key(index).to_bits();
        let fd_of_set = self.fd.as_fd();
        epoll::control(&mut cx.stats.calls, fd_of_set, operation, fd, bits(interest, mode), data)
    }

    /// Makes the kernel watch a descriptor as given, whatever it watched before.
    pub(super) fn apply(
        &mut self,
        cx: &mut Context<'_>,
        index: u32,
        watch: (Interest, Mode),
    ) -> Result<Synced> {
        let applied = cx.table.slot(index).applied();
        let exclusive =
            |watch: Option<(Interest, Mode)>| matches!(watch, Some((_, Mode::Exclusive)));
        let first = match applied {
            None => Operation::Add,
            // The kernel refuses to modify an exclusive watch, or to make a watch exclusive
            // (EINVAL).
            Some(_) if exclusive(applied) || exclusive(Some(watch)) => {
                self.forget(cx, index);
                Operation::Add
            }
            Some(_) => Operation::Modify,
        };
        let mut outcome = self.control(cx, first, index, watch);
        outcome = match (first, outcome) {
            // Closed in between, and the number means another file now.
            (Operation::Modify, Err(error)) if is(&error, libc::ENOENT) => {
                self.control(cx, Operation::Add, index, watch)
            }
            // A duplicate was moved back to the number it was registered under. Its earlier watch
            // is not known, and an exclusive one cannot be modified.
            (Operation::Add, Err(error)) if is(&error, libc::EEXIST) => {
                let _ = self.control(cx, Operation::Delete, index, watch);
                self.control(cx, Operation::Add, index, watch)
            }
            (_, outcome) => outcome,
        };
        match outcome {
            Ok(()) => {
                self.note(cx, index, Some(watch));
                Ok(Synced::Applied)
            }
            Err(error) => {
                self.note(cx, index, None);
                if is(&error, libc::EPERM) {
                    return Ok(Synced::AlwaysReady);
                }
                let fd = cx.table.slot(index).fd();
                Err(Error::system("watching it with epoll", Some(fd), error))
            }
        }
    }

    /// Makes the kernel keep a descriptor without reporting it: half the price of a removal, and of
    /// the addition that would follow.
    pub(super) fn park(&mut self, cx: &mut Context<'_>, index: u32) -> Result<Synced> {
        match cx.table.slot(index).applied() {
            Some((_, Mode::Exclusive)) => {
                self.forget(cx, index);
                Ok(Synced::Applied)
            }
            // A one-shot registration that has fired is as good as parked.
            Some((Interest::NONE, _)) if !cx.table.slot(index).inherits_old_key() => {
                Ok(Synced::Unchanged)
            }
            _ => self.apply(cx, index, PARKED),
        }
    }

    /// Makes the kernel forget a descriptor. It is no failure if the kernel knows none of this
    /// number.
    pub(super) fn forget(&mut self, cx: &mut Context<'_>, index: u32) {
        if cx.table.slot(index).applied().is_none() {
            return;
        }
        if !cx.table.slot(index).is_closed() {
            let _ = self.control(cx, Operation::Delete, index, PARKED);
        }
        self.note(cx, index, None);
    }

    /// Makes the kernel forget a descriptor that a keeper watches from now on. A
    /// descriptor that the kernel does not know stays as it is.
    pub(super) fn release(&mut self, cx: &mut Context<'_>, index: u32) -> io::Result<()> {
        self.control(cx, Operation::Delete, index, PARKED)?;
        self.note(cx, index, None);
        Ok(())
    }

    /// Whether a number that is in the set still means the file that was added under it. Nothing is
    /// changed: the kernel is asked to apply the same watch again, and refuses that for another
    /// file (`ENOENT`) and for a closed number (`EBADF`).
    pub(super) fn confirms(&self, cx: &mut Context<'_>, index: u32) -> bool {
        let applied = cx.table.slot(index).applied();
        applied.is_some_and(|watch| self.control(cx, Operation::Modify, index, watch).is_ok())
    }

    /// The call that waits. `alone`: nothing is watched elsewhere, so that the kernel, which goes
    /// round its ready list, is as fair as can be by itself.
    #[inline]
    pub(super) fn wait_call<'a>(
        &'a mut self,
        cx: &mut Context<'_>,
        deadline: Deadline,
        alone: bool,
    ) -> WaitCall<'a> {
        let blocks = deadline != Deadline::Now && cx.may_block();
        let left = if blocks { deadline.left() } else { Deadline::Now.left() };
        let room = room(cx, alone);
        epoll::wait_call(&mut cx.stats.calls, self.fd.as_fd(), &mut self.buffer, room, left)
    }

    /// Reports the events of the call's answer. Calls `on_active` with the table index of each
    /// descriptor whose event is wanted, and the readiness that the kernel has reported; returns
    /// how many there were.
    ///
    /// If unwanted events have filled the buffer, asks the kernel again.
    #[inline(always)]
    pub(super) fn report(
        &mut self,
        cx: &mut Context<'_>,
        alone: bool,
        mut answer: io::Result<usize>,
        mut on_active: impl FnMut(&mut Context<'_>, u32, Readiness),
    ) -> io::Result<usize> {
        let mut active = 0;
        loop {
            if epoll::should_retry(&answer) {
                // The poller does, as after every wait that was over too early.
                return Ok(active);
            }
            let count = answer?;
            let asked_for = room(cx, alone);
            let wanted = self.collect(cx, count, &mut on_active);
            active += wanted;
            if count < asked_for || wanted == count {
                if alone {
                    cx.note_kernel_turn();
                }
                return Ok(active);
            }
            // Events that were delivered already may come up again.
            cx.collect_all();
            answer = self.wait_call(cx, Deadline::Now, alone).issue();
        }
    }

    /// Reports the first `count` events of the buffer.
    fn collect(
        &mut self,
        cx: &mut Context<'_>,
        count: usize,
        mut on_active: impl FnMut(&mut Context<'_>, u32, Readiness),
    ) -> usize {
        let mut active = 0;
        let mut room = cx.room_at_once();
        for place in 0..count.min(self.buffer.len()) {
            let raw = self.buffer[place];
            let key = Key::from_bits(raw.u64);
            let found = Readiness::from_poll_bits(raw.events as i16);
            if room > 0 && cx.table.needs_no_check(key) {
                room -= 1;
                active += 1;
                cx.deliver_plain(key, found);
                on_active(cx, key.index(), found);
            } else if self.collect_odd(cx, key, found) {
                room = cx.room_at_once();
                active += 1;
                on_active(cx, key.index(), found);
            }
        }
        if self.orphans {
            self.orphans = self.rebuild(cx).is_err();
        }
        active
    }

    /// Handles an event that differs from the registration's wish; returns whether it is wanted.
    fn collect_odd(&mut self, cx: &mut Context<'_>, key: Key, found: Readiness) -> bool {
        if key.index() == Key::RESERVED {
            self.link_is_ready |= key == LINE;
            return false;
        }
        let Some(slot) = cx.table.get(key) else {
            cx.stats.stale += 1;
            self.orphans = true;
            return false;
        };
        if slot.place().is_some() {
            // Parked: the poll array reports it.
            cx.stats.unwanted += 1;
            return false;
        }
        let unwanted = !found.beyond(slot.interest()).is_empty();
        if matches!(slot.applied(), Some((_, Mode::OneShot))) {
            self.note(cx, key.index(), Some((Interest::NONE, Mode::OneShot)));
        }
        if unwanted {
            // The change is applied at once: otherwise the kernel would continue reporting the
            // descriptor, in the place of wanted events.
            cx.table.slot_mut(key.index()).set_forced(true);
            let applied = self.sync(cx, key.index());
            cx.table.slot_mut(key.index()).set_forced(false);
            if applied.is_err() {
                cx.table.mark(key.index());
            }
        }
        matches!(cx.report(key, found), Report::Taken | Report::Later)
    }

    /// Builds the set again under the same number, without the registrations that no call can name
    /// any more.
    fn rebuild(&mut self, cx: &mut Context<'_>) -> Result<()> {
        let failed = |source| Error::system("building an epoll set anew", None, source);
        let new = epoll::create(&mut cx.stats.calls).map_err(failed)?;
        if let Some(outer) = &self.outer {
            let _ = epoll::control(
                &mut cx.stats.calls,
                outer.as_fd(),
                Operation::Delete,
                self.fd.as_raw_fd(),
                0,
                0,
            );
        }
        replace(self.fd.as_fd(), new).map_err(failed)?;
        cx.stats.rebuilds += 1;
        self.restore(cx)?;
        for index in cx.table.indices() {
            let Some(watch) = cx.table.slot(index).applied() else { continue };
            self.note(cx, index, None);
            if watch.0.is_empty() {
                cx.table.slot_mut(index).account_mut().parked = false;
                cx.table.mark(index);
            } else if cx.table.slot(index).is_live() && self.apply(cx, index, watch).is_err() {
                // The next wait applies the watch again, and refuses the registration if it must.
                cx.table.mark(index);
            }
        }
        Ok(())
    }

    /// Adds the descriptors that are not in the table to a new set.
    fn restore(&mut self, cx: &mut Context<'_>) -> Result<()> {
        let failed = |source| Error::system("building an epoll set anew", None, source);
        if let Some(outer) = &self.outer {
            let (fd, bits) = (self.fd.as_raw_fd(), libc::EPOLLIN as u32);
            epoll::control(&mut cx.stats.calls, outer.as_fd(), Operation::Add, fd, bits, 0)
                .map_err(failed)?;
        }
        if let Some(waker) = self.waker {
            self.add_waker(cx, waker).map_err(failed)?;
        }
        if let Some((link, mode)) = self.link {
            self.add_link(&mut cx.stats.calls, link, mode).map_err(failed)?;
        }
        Ok(())
    }

    /// Watches the waker's descriptor.
    pub(super) fn watch_waker(&mut self, cx: &mut Context<'_>, fd: RawFd) -> Result<()> {
        self.add_waker(cx, fd)
            .map_err(|source| Error::system("watching the waker", Some(fd), source))?;
        self.waker = Some(fd);
        Ok(())
    }

    fn add_waker(&self, cx: &mut Context<'_>, fd: RawFd) -> io::Result<()> {
        let (calls, set) = (&mut cx.stats.calls, self.fd.as_fd());
        // With an edge the counter never needs to be read: each write is an arrival.
        let bits = (libc::EPOLLIN | libc::EPOLLET) as u32;
        epoll::control(calls, set, Operation::Add, fd, bits, WAKER.to_bits())
    }

    /// Whether leaving a wider interest armed may save a call.
    fn may_wait(applied: (Interest, Mode), watch: Watch) -> bool {
        applied.1 == Mode::Level
            && watch.mode == Mode::Level
            && applied.0.contains(watch.interest)
            && !(applied.0 - watch.interest).contains(Interest::WRITABLE)
    }
}

/// As the table of back-ends has it.
pub(super) const ENTRY: Entry = Entry {
    kind: BackendKind::Epoll,
    name: "epoll",
    abilities: Abilities::EPOLL,
    is_available: || true,
    make: |_, topology| without_keeper(Epoll::new()?, &topology),
};

impl Backend for Epoll {
    fn status(&self) -> Status<'_> {
        Status::new("epoll", Lengths { cold: self.armed, ..Lengths::default() })
    }

    fn memory(&self) -> Memory {
        Memory { own: 0, mirrors: self.buffer.capacity() * size_of::<Raw>() }
    }

    fn admit(&self, _fd: RawFd, _watch: Watch) -> Result<()> {
        Ok(())
    }

    fn sync(&mut self, cx: &mut Context<'_>, index: u32) -> Result<Synced> {
        let slot = cx.table.slot(index);
        if !slot.is_live() {
            let applied = slot.applied().is_some() && !slot.is_closed();
            self.forget(cx, index);
            return Ok(if applied { Synced::Applied } else { Synced::Unchanged });
        }
        let watch = slot.watch();
        match slot.applied() {
            None if watch.interest.is_empty() => return Ok(Synced::Unchanged),
            Some(applied) if !slot.inherits_old_key() => {
                let same = applied == (watch.interest, watch.mode);
                if same || (!slot.is_forced() && Epoll::may_wait(applied, watch)) {
                    return Ok(Synced::Unchanged);
                }
            }
            _ => {}
        }
        if watch.interest.is_empty() {
            return self.park(cx, index);
        }
        self.apply(cx, index, (watch.interest, watch.mode))
    }

    fn prepare_wait<'a>(
        &'a mut self,
        cx: &mut Context<'_>,
        deadline: Deadline,
    ) -> Option<WaitCall<'a>> {
        Some(self.wait_call(cx, deadline, true))
    }

    fn finish_wait(
        &mut self,
        cx: &mut Context<'_>,
        deadline: Deadline,
        answer: Option<io::Result<usize>>,
    ) -> io::Result<()> {
        let answer = answer.unwrap_or_else(|| self.wait_call(cx, deadline, true).issue());
        cx.stats.cold.watched += self.armed as u64;
        cx.stats.cold.active += self.report(cx, true, answer, |_, _, _| {})? as u64;
        Ok(())
    }

    fn lifecycle(&mut self) -> &mut dyn Lifecycle {
        self
    }
}

impl Lifecycle for Epoll {
    fn attach_waker(&mut self, cx: &mut Context<'_>, fd: BorrowedFd<'_>) -> Result<()> {
        self.watch_waker(cx, fd.as_raw_fd())
    }

    fn after_fork(&mut self, cx: &mut Context<'_>) -> Result<()> {
        let failed = |source| Error::system("building an epoll set anew", None, source);
        let new = epoll::create(&mut cx.stats.calls).map_err(failed)?;
        replace(self.fd.as_fd(), new).map_err(failed)?;
        self.armed = 0;
        self.waker = None;
        if let Some(outer) = &self.outer {
            let new = epoll::create(&mut cx.stats.calls).map_err(failed)?;
            replace(outer.as_fd(), new).map_err(failed)?;
        }
        self.restore(cx)
    }

    fn nest(&mut self, cx: &mut Context<'_>) -> Result<BorrowedFd<'_>> {
        if self.outer.is_none() {
            let outer = epoll::create(&mut cx.stats.calls)
                .map_err(|source| Error::system("creating an epoll set", None, source))?;
            let (fd, bits) = (self.fd.as_raw_fd(), libc::EPOLLIN as u32);
            epoll::control(&mut cx.stats.calls, outer.as_fd(), Operation::Add, fd, bits, 0)
                .map_err(|source| Error::system("nesting an epoll set", None, source))?;
            self.outer = Some(outer);
        }
        Ok(self.outer.as_ref().map_or(self.fd.as_fd(), AsFd::as_fd))
    }
}

#[cfg(test)]
mod tests;
