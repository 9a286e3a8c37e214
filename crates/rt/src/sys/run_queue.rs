//! The tasks that are due, in order.
//!
//! With hundreds of tasks, the next task's future has left the processor's caches since it last
//! ran, and a task begins by waiting for it. So the future is prefetched while the task before it
//! runs. For that the queue holds each task as the pointer that `async-task` makes of a
//! [`Runnable`]: to the one allocation that has its state and its future.

use std::collections::VecDeque;
use std::ptr::NonNull;

use async_task::Runnable;

/// How much of a task is prefetched, in lines of 64 bytes: its state, and where most futures begin.
const LINES: usize = 4;

/// Tasks in the order in which they became due.
#[derive(Default)]
pub(crate) struct RunQueue(VecDeque<NonNull<()>>);

impl RunQueue {
    #[inline]
    pub(crate) fn push(&mut self, runnable: Runnable) {
        self.0.push_back(runnable.into_raw());
    }

    /// Takes the first task, and makes the processor prefetch the next.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Runnable> {
        let first = self.0.pop_front()?;
        if let Some(next) = self.0.front() {
            prefetch(next.as_ptr().cast());
        }
        // SAFETY: it comes from `into_raw`, and is in the queue no more, so no other code makes a
        // task of it.
        Some(unsafe { Runnable::from_raw(first) })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the number of tasks that there is room for.
    pub(crate) fn capacity(&self) -> usize {
        self.0.capacity()
    }

    /// Gives back the memory that is not needed.
    pub(crate) fn shrink(&mut self) {
        self.0.shrink_to_fit();
    }
}

impl Drop for RunQueue {
    fn drop(&mut self) {
        while let Some(runnable) = self.pop() {
            drop(runnable);
        }
    }
}

/// Announces that memory from here on will be needed soon. That reads nothing, and is allowed for
/// any address.
#[inline(always)]
fn prefetch(from: *const u8) {
    #[cfg(target_arch = "x86_64")]
    for line in 0..LINES {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: every x86-64 has the instruction, and it faults for no address (Intel SDM,
        // PREFETCHh).
        unsafe { _mm_prefetch::<_MM_HINT_T0>(from.wrapping_add(64 * line).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (from, LINES);
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;

    #[test]
    fn tasks_run_in_order_and_those_that_are_left_are_dropped() {
        let ran = Rc::new(RefCell::new(Vec::new()));
        let mut queue = RunQueue::default();
        for n in 0..3 {
            let ran = ran.clone();
            let future = async move { ran.borrow_mut().push(n) };
            let (runnable, task) = async_task::spawn_local(future, drop::<Runnable>);
            task.detach();
            queue.push(runnable);
        }
        for _ in 0..2 {
            queue.pop().unwrap().run();
        }
        assert_eq!(*ran.borrow(), [0, 1]);
        assert!(!queue.is_empty());
        drop(queue);
        assert_eq!((ran.borrow().len(), Rc::strong_count(&ran)), (2, 1));
    }
}
