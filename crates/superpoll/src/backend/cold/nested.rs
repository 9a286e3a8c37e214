//! The poller's own epoll set, nested in the poll array: the default. Nothing leaves it.

use std::io;

use super::{Change, Cold};
use crate::backend::{Backend, Context, Epoll, Synced};
use crate::error::Result;
use crate::event::Readiness;

impl Cold for Epoll {
    #[inline]
    fn change(&mut self, cx: &mut Context<'_>, index: u32, change: Change) -> Result<Synced> {
        match change {
            Change::Agree => self.sync(cx, index),
            Change::Park => self.park(cx, index),
            Change::Watch(interest, mode) => self.apply(cx, index, (interest, mode)),
            Change::Forget => {
                self.forget(cx, index);
                Ok(Synced::Applied)
            }
        }
    }

    #[inline]
    fn set(&self) -> &Epoll {
        self
    }

    #[inline]
    fn set_mut(&mut self) -> &mut Epoll {
        self
    }

    #[inline(always)]
    fn report(
        &mut self,
        cx: &mut Context<'_>,
        alone: bool,
        answer: io::Result<usize>,
        on_active: impl FnMut(&mut Context<'_>, u32, Readiness),
    ) -> io::Result<usize> {
        Epoll::report(self, cx, alone, answer, on_active)
    }
}
