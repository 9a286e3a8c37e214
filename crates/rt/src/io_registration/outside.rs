//! Waits of a descriptor on a thread without an engine; [`outside`](crate::outside) carries them
//! out.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::task::{Context, Poll};

use superpoll::Key;

use super::{EngineKey, IoRegistration, OUTSIDE};
use crate::outside::{self, Outside};
use crate::sources::Direction;

impl IoRegistration {
    /// Makes a caller wait for a direction.
    #[cold]
    pub(super) fn wait_outside(
        &self,
        cx: &mut Context<'_>,
        fd: BorrowedFd<'_>,
        direction: Direction,
    ) -> io::Result<()> {
        // First, with nothing borrowed or locked: cloning is foreign code.
        let waker = cx.waker().clone();
        let thread = outside::thread()?;
        let name = self.waiter.get();
        if let Some(key) = self.key_outside(&thread) {
            match thread.wait(key, direction, name, waker.clone()) {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(refusal) => {
                    self.deregister();
                    return Err(refusal);
                }
            }
        }
        // An engine's registration ends.
        self.deregister();
        let key = thread.register(fd, direction, name, waker)?;
        *self.engine_key.borrow_mut() = Some(EngineKey { remote: thread.remote.clone(), key });
        self.set_flag(OUTSIDE);
        Ok(())
    }

    /// Waits until a direction is thought to be ready.
    #[cold]
    pub(super) fn poll_ready_outside(
        &self,
        cx: &mut Context<'_>,
        fd: BorrowedFd<'_>,
        direction: Direction,
    ) -> Poll<io::Result<u32>> {
        let is_drained = self.drained.get() & direction.bit() != 0;
        if !is_drained || self.take_ready_outside(direction) {
            self.drained.set(self.drained.get() & !direction.bit());
            return Poll::Ready(Ok(0));
        }
        match self.wait_outside(cx, fd, direction) {
            Ok(()) => Poll::Pending,
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    /// Notes that an operation would have blocked.
    #[cold]
    pub(super) fn clear_outside(&self, direction: Direction) {
        self.drained.set(self.drained.get() | direction.bit());
    }

    fn take_ready_outside(&self, direction: Direction) -> bool {
        self.with_key_outside(|thread, key| thread.take_ready(key, direction)).unwrap_or(false)
    }

    /// Calls a function with the key under which the descriptor is waited for outside, if it is.
    #[inline]
    pub(super) fn with_key_outside<R>(&self, f: impl FnOnce(&Outside, Key) -> R) -> Option<R> {
        if self.flags.get() & OUTSIDE == 0 {
            return None;
        }
        let thread = outside::started()?;
        let key = self.key_outside(&thread)?;
        Some(f(&thread, key))
    }

    fn key_outside(&self, thread: &Arc<Outside>) -> Option<Key> {
        let engine_key = self.engine_key.borrow();
        let here = engine_key.as_ref().filter(|here| here.remote.id == thread.remote.id);
        here.map(|here| here.key)
    }
}
