//! The cold set: where the adaptive back-end watches idle descriptors.
//!
//! [`Cold`] is the interface that the adaptive back-end needs. By default that is the poller's own
//! epoll set (`nested`). The other topologies put a babysitter behind it that watches descriptors
//! on which nothing has happened for a while: in a second thread (`thread`), which receives their
//! numbers, or in another process (`process`), which receives the open files. The code that these
//! two share is in `babysat`. `stays` decides when a descriptor leaves, and how much harder that
//! becomes for one that keeps coming back; `states` holds the state with which it leaves; neither
//! makes system calls. The options are in `tuning`.

use std::io;
use std::os::fd::BorrowedFd;

use crate::backend::{Babysitting, Context, Deadline, Memory, Question, Synced};
use crate::error::Result;
use crate::interest::{Interest, Mode};
use crate::key::Key;

mod babysat;
mod nested;
mod process;
mod states;
mod stays;
mod thread;
mod tuning;

pub(crate) use process::process;
pub(crate) use thread::thread;
pub use tuning::{Profile, Rule, Topology, Tuning};

/// A cold set. It notes each applied request in the slot, as the epoll back-end does.
pub trait Cold: Send {
    /// Keeps a descriptor without reporting it.
    fn park(&mut self, cx: &mut Context<'_>, index: u32) -> Result<Synced>;

    /// Watches a descriptor as given, whatever was known of it.
    fn tell(&mut self, cx: &mut Context<'_>, index: u32, watch: (Interest, Mode))
    -> Result<Synced>;

    /// Forgets a descriptor. It is no failure if the set knows none of this number.
    fn forget(&mut self, cx: &mut Context<'_>, index: u32);

    /// As [`Backend::sync`](crate::backend::Backend::sync).
    fn sync(&mut self, cx: &mut Context<'_>, index: u32) -> Result<Synced>;

    /// The call that waits. `alone`: nothing is watched elsewhere.
    fn question<'a>(
        &'a mut self,
        cx: &mut Context<'_>,
        deadline: Deadline,
        alone: bool,
    ) -> Question<'a>;

    /// Reports the events of the call's answer. Calls `on_active` with the table index of each
    /// descriptor whose event is wanted; returns how many there were.
    fn report(
        &mut self,
        cx: &mut Context<'_>,
        alone: bool,
        answer: io::Result<usize>,
        on_active: impl FnMut(&mut Context<'_>, u32),
    ) -> io::Result<usize>;

    /// Descriptors in the poller's own set that may report.
    fn armed(&self) -> usize;

    /// Whether nothing in the poller's own set may stir.
    fn is_idle(&self) -> bool;

    /// A descriptor that is readable when the set has something to report.
    fn as_fd(&self) -> BorrowedFd<'_>;

    /// As [`Backend::attach_waker`](crate::backend::Backend::attach_waker).
    fn attach_waker(&mut self, cx: &mut Context<'_>, fd: BorrowedFd<'_>) -> Result<()>;

    /// As [`Backend::after_fork`](crate::backend::Backend::after_fork).
    fn after_fork(&mut self, cx: &mut Context<'_>) -> Result<()>;

    /// As [`Backend::nest`](crate::backend::Backend::nest).
    fn nest(&mut self, cx: &mut Context<'_>) -> Result<BorrowedFd<'_>>;

    /// The heap that the set uses.
    fn memory(&self) -> Memory;

    /// How many descriptors are with the babysitter.
    fn away(&self) -> usize {
        0
    }

    /// The end of a wait that may block until this deadline, or an earlier one if the set needs it.
    #[inline]
    fn until(&self, deadline: Deadline) -> Deadline {
        deadline
    }

    /// Notes that a wait begins.
    #[inline]
    fn begin(&mut self, cx: &mut Context<'_>) {
        let _ = cx;
    }

    /// Notes that a wait has reported its events.
    #[inline]
    fn rest(&mut self, cx: &mut Context<'_>) {
        let _ = cx;
    }

    /// As [`Backend::holds_files`](crate::backend::Backend::holds_files).
    fn holds_files(&self) -> bool {
        false
    }

    /// As [`Backend::settle`](crate::backend::Backend::settle).
    fn settle(&mut self, cx: &mut Context<'_>) {
        let _ = cx;
    }

    /// As [`Backend::catch_up`](crate::backend::Backend::catch_up).
    fn catch_up(&mut self, cx: &mut Context<'_>) {
        let _ = cx;
    }

    /// As [`Backend::hand_over_all`](crate::backend::Backend::hand_over_all).
    fn hand_over_all(&mut self, cx: &mut Context<'_>) {
        let _ = cx;
    }

    /// As [`Backend::leave_state`](crate::backend::Backend::leave_state).
    fn leave_state(&mut self, key: Key, state: &[u8]) {
        let _ = (key, state);
    }

    /// Drops the state of a registration that has ended.
    fn forget_state(&mut self, index: u32) {
        let _ = index;
    }

    /// As [`Backend::babysitting`](crate::backend::Backend::babysitting).
    fn babysitting(&self) -> Babysitting<'_> {
        Babysitting::None
    }
}
