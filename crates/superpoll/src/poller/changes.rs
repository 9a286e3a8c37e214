//! Changes on their way to the kernel: commands of other threads, and slots that changed.
//!
//! Nothing here fails. A change that the kernel or the back-end refuses becomes a refusal, which
//! the next wait reports, and everything else continues.

use std::os::fd::RawFd;

use crate::backend::Synced;
use crate::error::Error;
use crate::interest::Watch;
use crate::key::Key;
use crate::poller::Poller;
use crate::shared::Command;

impl Poller {
    /// Carries out the commands of other threads and dropped owners.
    #[inline]
    pub(super) fn take_commands(&mut self) {
        if self.shared.has_commands() {
            self.carry_out_commands();
        }
    }

    #[cold]
    fn carry_out_commands(&mut self) {
        let mut commands = std::mem::take(&mut self.commands);
        let shared = self.shared.clone();
        shared.take(&mut commands, self.table.take_foreign());
        for command in commands.drain(..) {
            match command {
                Command::Register { key, fd, watch } => self.insert_foreign(key, fd, watch),
                Command::Modify { key, interest } => {
                    // A stale key is the race that every command loses against a removal.
                    let _ = self.modify(key, interest);
                }
                Command::ModifyWatch { key, watch } => match self.modify_watch(key, watch) {
                    Ok(()) | Err(Error::StaleKey { .. }) => {}
                    Err(error) => {
                        let _ = self.end(key, false);
                        self.refuse(key, error);
                    }
                },
                Command::Deregister { key } => {
                    let _ = self.end(key, false);
                }
                Command::Closed { key } => {
                    let _ = self.end(key, true);
                }
            }
        }
        self.commands = commands;
    }

    /// Frees memory that was needed while there were more registrations. A poller does so by itself
    /// when at least three quarters of its slots have been vacant for some hundreds of waits with
    /// changes, and when it is [flushed](Poller::flush). This call is for a poller that waits
    /// without changes, and takes as long as looking at each slot once. Keys stay as they are, and
    /// those of ended registrations stale: the memory behind the last slot in use is freed.
    pub fn shrink_to_fit(&mut self) {
        self.table.shorten();
        let (backend, mut cx) = self.split();
        backend.lifecycle().shrink_to_fit(&mut cx);
        self.commands.shrink_to_fit();
        self.marked_ready.shrink_to_fit();
        self.refusals.shrink_to_fit();
    }

    fn insert_foreign(&mut self, key: Key, fd: RawFd, watch: Watch) {
        let refusal = match self.table.find(fd) {
            Some(key) => Some(Error::AlreadyRegistered { fd, key }),
            None => self.admit(fd, watch).err(),
        };
        match refusal {
            None => {
                self.table.insert(fd, watch, Some(key));
            }
            Some(error) => {
                self.table.give_back(key);
                self.refuse(key, error);
            }
        }
    }

    pub(super) fn refuse(&mut self, key: Key, error: Error) {
        self.stats.refused += 1;
        self.refusals.push((key, error));
    }

    /// In a nested poller the outer loop waits, so changes cannot wait for our next wait.
    #[inline]
    pub(super) fn changed(&mut self) {
        if self.nested {
            self.flush_kernel();
            self.sync_nested_wakeup();
        }
    }

    /// A registration has ended; the caller may close its descriptor next.
    pub(super) fn ended(&mut self) {
        if self.holds_files {
            self.flush_kernel();
        }
        self.changed();
    }

    /// Applies all changes to the kernel now instead of with the next wait, those of other threads
    /// and of dropped owners included. It moves the cost. `uring` holds watched descriptors open:
    /// the peer of a descriptor that its owner has closed learns of the close with the next wait,
    /// or with this call.
    ///
    /// If few of the poller's slots are in use it [shrinks](Poller::shrink_to_fit) as well, and
    /// again when half of those have ended: a flush after each change need not look at all slots.
    ///
    /// With a keeper it also asks which of its descriptors are ready, and waits for the answer,
    /// for at most a second: a wait that follows sees every descriptor that was ready before.
    pub fn flush(&mut self) {
        self.flush_kernel();
        let (backend, mut cx) = self.split();
        if let Some(keeper) = backend.keeper() {
            keeper.catch_up(&mut cx);
        }
        if self.table.is_spare_anew() {
            self.shrink_to_fit();
        }
        self.sync_nested_wakeup();
    }

    /// Applies all changes to the kernel now.
    pub(super) fn flush_kernel(&mut self) {
        self.take_commands();
        self.apply_changes();
        let (backend, mut cx) = self.split();
        // A step that fails now is tried again with the next wait, which reports the failure.
        let _ = backend.lifecycle().flush(&mut cx);
        if let Some(keeper) = backend.keeper() {
            keeper.flush_recalls(&mut cx);
        }
    }

    /// Passes all changes to the back-end.
    #[inline]
    pub(super) fn apply_changes(&mut self) {
        if self.table.has_changes() {
            self.apply_each_change();
        }
    }

    fn apply_each_change(&mut self) {
        let changed = self.table.take_changed();
        // Ended registrations first: a removal is never overtaken by an addition of the same
        // number.
        for live in [false, true] {
            for &index in &changed {
                let slot = self.table.slot(index);
                if slot.is_live() == live && slot.fd() >= 0 {
                    self.sync(index);
                }
            }
        }
        self.table.recycle_changed(changed);
        if self.table.is_spare_for_long() {
            self.shrink_to_fit();
        }
    }

    /// Makes the back-end forget its notes about a registration that is over.
    #[inline]
    pub(super) fn withdraw(&mut self, index: u32) {
        if self.has_more {
            self.withdraw_more(index);
        }
    }

    fn withdraw_more(&mut self, index: u32) {
        let (backend, mut cx) = self.split();
        if let Some(reads) = backend.batch_reads() {
            reads.disengage(&mut cx, index);
        }
        if let Some(keeper) = backend.keeper() {
            keeper.forget_state(index);
        }
    }

    /// Makes sure that nothing more is read from the file that a registration's descriptor means.
    pub(crate) fn disengage(&mut self, index: u32) {
        let (backend, mut cx) = self.split();
        if let Some(reads) = backend.batch_reads() {
            reads.disengage(&mut cx, index);
        }
    }

    /// Makes the back-end agree with a slot; refuses the registration if it cannot.
    pub(super) fn sync(&mut self, index: u32) {
        if self.table.slot(index).is_always_ready() {
            self.table.slot_mut(index).set_queued(false);
            return;
        }
        let (backend, mut cx) = self.split();
        let outcome = backend.sync(&mut cx, index);
        cx.table.slot_mut(index).set_forced(false);
        match outcome {
            // The kernel has looked and will report the present readiness: an event that was found
            // before is void.
            Ok(Synced::Applied) => self.table.slot_mut(index).set_queued(false),
            Ok(Synced::Unchanged) => self.stats.changes_saved += 1,
            Ok(Synced::AlwaysReady) => self.table.add_always_ready(index),
            Err(error) if self.table.slot(index).is_live() => {
                let key = self.table.key(index);
                // As with any other end; otherwise its reads would be submitted under a number that
                // is free.
                self.withdraw(index);
                self.table.end(index, false);
                self.let_go(index);
                self.refuse(key, error);
                // The kernel's remaining knowledge of it goes as well; it has nothing left to
                // refuse.
                let (backend, mut cx) = self.split();
                let _ = backend.sync(&mut cx, index);
                self.table.slot_mut(index).set_applied(None);
            }
            // A removal that fails finds nothing to remove.
            Err(_) => self.table.slot_mut(index).set_applied(None),
        }
        let slot = self.table.slot(index);
        let is_known = slot.applied().is_some() || slot.place().is_some() || slot.is_away();
        if !slot.is_live() && slot.fd() >= 0 && !is_known {
            self.table.release(index);
        }
    }
}
