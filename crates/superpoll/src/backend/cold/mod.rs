//! The cold set: where the adaptive back-end watches idle descriptors.
//!
//! [`Cold`] is the interface that the adaptive back-end needs, and that others can implement. By
//! default that is the poller's own epoll set (`nested`). The other topologies put a keeper behind
//! it that watches descriptors on which nothing has happened for a while: in a second thread
//! (`thread`), which receives their numbers, or in another process (`process`), which receives the
//! open files. The code that these two share is in `kept`. `eviction` decides when a descriptor
//! leaves, and how much harder that becomes for one that keeps coming back; `states` holds the
//! state with which it leaves; neither makes system calls. The options are in `tuning`.

use std::io;

use crate::backend::{Context, Deadline, Epoll, KeeperClient, Memory, Status, Synced};
use crate::error::Result;
use crate::event::Readiness;
use crate::interest::{Interest, Mode};

#[cfg(feature = "keeper")]
mod eviction;
#[cfg(feature = "keeper")]
mod kept;
mod nested;
#[cfg(feature = "keeper")]
mod process;
#[cfg(feature = "keeper")]
mod states;
#[cfg(feature = "keeper")]
mod thread;
mod tuning;

#[cfg(feature = "keeper")]
pub(crate) use process::process;
#[cfg(feature = "keeper")]
pub(crate) use thread::thread;
pub use tuning::{Profile, Rule, Topology, Tuning};

/// How a cold set shall watch a descriptor.
#[derive(Clone, Copy, Debug)]
pub enum Change {
    /// As its slot says.
    Agree,
    /// Keep it, without reporting it.
    Park,
    /// As given, whatever was known of it.
    Watch(Interest, Mode),
    /// Forget it. It is no failure if the set knows none of this number.
    Forget,
}

/// A cold set: the poller's own epoll set, perhaps with a keeper or another watcher behind it.
///
/// Implement it to watch idle descriptors by other means than epoll ([`Adaptive::over`]). The epoll
/// set stays, for the waker and for descriptors that the watcher cannot have, and the poller waits
/// in it: the watcher's own descriptor is its [link](Epoll::watch_link). A registration that the
/// watcher has is marked with [`Slot::leave`](crate::backend::Slot::leave).
///
/// [`Adaptive::over`]: crate::backend::Adaptive::over
pub trait Cold: Send {
    /// Changes how a descriptor is watched, and notes the applied change in the slot.
    ///
    /// # Errors
    ///
    /// The errors of [`Backend::sync`](crate::backend::Backend::sync).
    fn change(&mut self, cx: &mut Context<'_>, index: u32, change: Change) -> Result<Synced>;

    /// The poller's own epoll set.
    fn set(&self) -> &Epoll;

    /// The same, to wait in it.
    fn set_mut(&mut self) -> &mut Epoll;

    /// How many descriptors it watches.
    #[inline]
    fn watched(&self) -> usize {
        self.set().armed()
    }

    /// Whether the kernel reports all of its descriptors through the epoll set, in turn. If not, a
    /// wait fetches all that is ready and shares the turns itself.
    #[inline]
    fn is_in_turn(&self) -> bool {
        true
    }

    /// Whether it may have something to [report](Cold::report) that its epoll set does not show, so
    /// that a wait must not block.
    #[inline]
    fn must_look(&self) -> bool {
        false
    }

    /// Reports the events of a wait's answer. Calls `on_active` with the table index of each
    /// descriptor whose event is wanted, and its readiness; returns how many there were. `alone`:
    /// nothing is watched elsewhere.
    ///
    /// # Errors
    ///
    /// The error of a system call that waits.
    fn report(
        &mut self,
        cx: &mut Context<'_>,
        alone: bool,
        answer: io::Result<usize>,
        on_active: impl FnMut(&mut Context<'_>, u32, Readiness),
    ) -> io::Result<usize>;

    /// Notes that a wait begins that may block until this deadline. Returns an earlier one if the
    /// set needs that.
    #[inline]
    fn begin(&mut self, cx: &mut Context<'_>, deadline: Deadline) -> Deadline {
        let _ = cx;
        deadline
    }

    /// Notes that a wait has reported its events.
    #[inline]
    fn end(&mut self, cx: &mut Context<'_>) {
        let _ = cx;
    }

    /// Passes the changes on that were left for the next wait.
    ///
    /// # Errors
    ///
    /// The system call's error.
    fn flush(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let _ = cx;
        Ok(())
    }

    /// Continues with the epoll set alone: because another loop is going to wait in it, or because
    /// this process is the child of a fork, and everything else belongs to its parent. In the child
    /// all descriptors are watched again afterwards.
    fn stay_in_set(&mut self, cx: &mut Context<'_>, is_child: bool) {
        if let Some(keeper) = self.keeper().filter(|_| is_child) {
            keeper.detach(cx);
        }
    }

    /// The keeper.
    fn keeper(&mut self) -> Option<&mut dyn KeeperClient> {
        None
    }

    /// Adds the facts about the keeper, or about another watcher, to the status of the back-end.
    fn add_keeper<'a>(&'a self, status: &mut Status<'a>) {
        let _ = status;
    }

    /// The heap that is used besides that of the epoll set.
    fn more_memory(&self) -> Memory {
        Memory::default()
    }
}
