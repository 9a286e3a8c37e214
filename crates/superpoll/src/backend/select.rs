//! `select(2)`: for comparison, and for systems that still have it.
//!
//! Three bit sets of 1024 descriptors cannot express the readiness that the contract requires: a
//! hang-up looks like data, an error like both directions, and a closed peer like nothing in
//! particular. So `select` only says *which* descriptors have an event, and a `poll` over those
//! finds the event. It also cannot see a hang-up of a descriptor whose readability is not wanted;
//! the registrations for which that would matter are refused.
//!
//! A descriptor whose error or hang-up lasts is set [aside].
//!
//! [aside]: crate::backend::aside

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::LazyLock;

use crate::backend::aside::Aside;
use crate::backend::poll::{cannot_nest, refuse_epoll_modes};
use crate::backend::{
    Abilities, Backend, BackendKind, Context, Deadline, Entry, Lengths, Lifecycle, Memory, Report,
    Status, Synced, those, without_keeper,
};
use crate::error::{Error, Result};
use crate::event::Readiness;
use crate::interest::{Interest, Watch};
use crate::sys::poll::{self, Slot};
use crate::sys::select::{self, SET_SIZE, Set};

/// The `select` back-end.
pub struct Select {
    readable: Set,
    writable: Set,
    exceptional: Set,
    /// One more than the highest descriptor watched.
    end: RawFd,
    /// Descriptors that are registered and not set aside.
    len: usize,
    aside: Aside,
    found: Vec<Slot>,
    /// Table indices of descriptors with an error or a hang-up that lasts.
    troubled: Vec<u32>,
}

crate::debug_fields!(Select, it => len: it.len);

/// As the table of back-ends has it.
pub(super) const ENTRY: Entry = Entry {
    kind: BackendKind::Select,
    name: "select",
    abilities: Abilities {
        read_closed_alone: false,
        fd_limit: Some(SET_SIZE),
        calls_per_wait: 2,
        ..Abilities::POLL
    },
    is_available: || true,
    make: |_, topology| without_keeper(Select::new(), &topology),
};

/// The error for a descriptor that does not fit into a set.
fn too_large(fd: RawFd) -> Error {
    static INSTEAD: LazyLock<String> =
        LazyLock::new(|| those(|abilities| abilities.fd_limit.is_none()));
    Error::DescriptorTooLarge { fd, limit: SET_SIZE, backend: "select", instead: &INSTEAD }
}

impl Default for Select {
    fn default() -> Select {
        Select::new()
    }
}

impl Select {
    /// Empty sets.
    pub fn new() -> Select {
        Select {
            readable: Set::new(),
            writable: Set::new(),
            exceptional: Set::new(),
            end: 0,
            len: 0,
            aside: Aside::new(SET_SIZE),
            found: Vec::new(),
            troubled: Vec::new(),
        }
    }

    /// Makes the sets agree with the slot of a registration.
    fn enter(&mut self, cx: &mut Context<'_>, index: u32) {
        let slot = cx.table.slot_mut(index);
        let (fd, interest) = (slot.fd(), slot.interest());
        self.len += usize::from(slot.place().is_none());
        slot.set_place(Some(fd as usize));
        self.put(fd, interest);
    }

    /// Takes a descriptor out of the sets, if it is in.
    fn leave(&mut self, cx: &mut Context<'_>, index: u32) {
        let slot = cx.table.slot_mut(index);
        let fd = slot.fd();
        self.len -= usize::from(slot.place().is_some());
        slot.set_place(None);
        self.put(fd, Interest::NONE);
    }

    /// Reports the descriptors that are set aside, if the set or the waker is ready, and sets those
    /// aside whose error or hang-up lasts.
    #[cold]
    #[inline(never)]
    fn look_aside(&mut self, cx: &mut Context<'_>, own_is_ready: bool) -> io::Result<()> {
        if own_is_ready {
            for index in self.aside.report(cx)? {
                self.enter(cx, index);
            }
        }
        while let Some(index) = self.troubled.pop() {
            if self.aside.put(cx, index) {
                self.leave(cx, index);
            }
        }
        Ok(())
    }

    #[cold]
    #[inline(never)]
    fn note_trouble(&mut self, cx: &mut Context<'_>, index: u32) {
        if cx.table.slot_mut(index).note_trouble() {
            self.troubled.push(index);
        }
    }

    fn put(&mut self, fd: RawFd, interest: Interest) {
        self.readable.put(fd, interest.contains(Interest::READABLE));
        self.writable.put(fd, interest.contains(Interest::WRITABLE));
        self.exceptional.put(fd, interest.contains(Interest::PRIORITY));
        if interest.is_empty() {
            while self.end > 0 && !self.is_watched(self.end - 1) {
                self.end -= 1;
            }
        } else {
            self.end = self.end.max(fd + 1);
        }
    }

    fn is_watched(&self, fd: RawFd) -> bool {
        self.readable.has(fd) || self.writable.has(fd) || self.exceptional.has(fd)
    }

    /// Asks `poll` for the readiness of the descriptors for which `which` holds.
    fn look_closer(
        &mut self,
        cx: &mut Context<'_>,
        which: impl Fn(RawFd) -> bool,
    ) -> io::Result<()> {
        self.found.clear();
        // After a wait that failed, those of another one would be left.
        self.troubled.clear();
        for fd in (0..self.end).filter(|&fd| which(fd)) {
            // The back-end's own is not in the table.
            if let Some(key) = cx.table.find(fd) {
                let events = cx.table.slot(key.index()).interest().poll_bits();
                self.found.push(Slot { fd, events, revents: 0 });
            }
        }
        if self.found.is_empty() {
            return Ok(());
        }
        poll::wait(&mut cx.stats.calls, &mut self.found, Deadline::Now.left())?;
        for place in 0..self.found.len() {
            let Slot { fd, revents, .. } = self.found[place];
            let Some(key) = cx.table.find(fd) else { continue };
            if revents & libc::POLLNVAL != 0 {
                cx.stats.invalid += 1;
                cx.invalid(key);
                self.put(fd, Interest::NONE);
            } else if revents != 0 {
                let found = Readiness::from_poll_bits(revents);
                if found.is_trouble() {
                    self.note_trouble(cx, key.index());
                }
                let report = cx.report(key, found);
                self.put(fd, cx.table.slot(key.index()).interest());
                cx.stats.hot.active += u64::from(report != Report::Unwanted);
            }
        }
        Ok(())
    }

    /// Leaves the descriptors that are ready in `sets`. Returns whether there are any.
    fn call(
        &self,
        cx: &mut Context<'_>,
        deadline: Deadline,
        sets: &mut [Set; 3],
    ) -> io::Result<bool> {
        *sets = [self.readable, self.writable, self.exceptional];
        let mut end = self.end;
        if let Some(own) = self.aside.own() {
            sets[0].put(own, true);
            end = end.max(own + 1);
        }
        cx.stats.slots_scanned += self.len as u64;
        let [readable, writable, exceptional] = sets;
        let ready = select::wait(
            &mut cx.stats.calls,
            end,
            readable,
            writable,
            exceptional,
            deadline.left(),
        )?;
        Ok(ready > 0)
    }
}

impl Backend for Select {
    fn status(&self) -> Status<'_> {
        Status::new("select", Lengths { hot: self.len, cold: self.aside.len(), away: 0 })
    }

    fn memory(&self) -> Memory {
        let aside = self.aside.memory();
        Memory {
            own: self.troubled.capacity() * size_of::<u32>() + aside.own,
            mirrors: self.found.capacity() * size_of::<Slot>() + aside.mirrors,
        }
    }

    fn admit(&self, fd: RawFd, watch: Watch) -> Result<()> {
        if fd >= SET_SIZE {
            return Err(too_large(fd));
        }
        let needs_readable = Interest::PRIORITY | Interest::READ_CLOSED;
        if watch.interest.intersects(needs_readable) && !watch.interest.contains(Interest::READABLE)
        {
            static INSTEAD: LazyLock<String> = LazyLock::new(|| {
                let others = those(|abilities| abilities.read_closed_alone);
                format!("add Interest::READABLE, or use {others}")
            });
            return Err(Error::Unsupported {
                backend: "select",
                what: "priority or read-closed interest without readable interest",
                instead: &INSTEAD,
            });
        }
        refuse_epoll_modes("select", watch.mode)
    }

    fn sync(&mut self, cx: &mut Context<'_>, index: u32) -> Result<Synced> {
        if self.aside.sync(cx, index) {
            return Ok(Synced::Applied);
        }
        if cx.table.slot(index).is_live() {
            self.enter(cx, index);
        } else {
            self.leave(cx, index);
        }
        Ok(Synced::Unchanged)
    }

    fn finish_wait(
        &mut self,
        cx: &mut Context<'_>,
        deadline: Deadline,
        _answer: Option<io::Result<usize>>,
    ) -> io::Result<()> {
        let mut sets = [Set::new(); 3];
        let found = self.call(cx, Deadline::Now, &mut sets).and_then(|found| {
            if !found && deadline != Deadline::Now && cx.may_block() {
                self.call(cx, deadline, &mut sets)
            } else {
                Ok(found)
            }
        });
        cx.stats.hot.watched += self.len as u64;
        match found {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            // One of them is closed; select does not say which.
            Err(error) if error.raw_os_error() == Some(libc::EBADF) => {
                let watched = [self.readable, self.writable, self.exceptional];
                return self.look_closer(cx, |fd| watched.iter().any(|set| set.has(fd)));
            }
            Err(error) => return Err(error),
        }
        self.look_closer(cx, |fd| sets.iter().any(|set| set.has(fd)))?;
        let own_is_ready = self.aside.own().is_some_and(|own| sets[0].has(own));
        if own_is_ready || !self.troubled.is_empty() {
            return self.look_aside(cx, own_is_ready);
        }
        Ok(())
    }

    fn lifecycle(&mut self) -> &mut dyn Lifecycle {
        self
    }
}

impl Lifecycle for Select {
    fn attach_waker(&mut self, cx: &mut Context<'_>, fd: BorrowedFd<'_>) -> Result<()> {
        let fd = fd.as_raw_fd();
        if fd >= SET_SIZE {
            return Err(too_large(fd));
        }
        self.aside.attach_waker(cx, fd)
    }

    fn after_fork(&mut self, _cx: &mut Context<'_>) -> Result<()> {
        self.aside.after_fork();
        Ok(())
    }

    fn nest(&mut self, _cx: &mut Context<'_>) -> Result<BorrowedFd<'_>> {
        Err(cannot_nest("select"))
    }
}

#[cfg(test)]
mod tests;
