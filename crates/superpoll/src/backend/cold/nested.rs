//! The poller's own epoll set, nested in the poll array: the default. Nothing leaves it.

use std::io;
use std::os::fd::BorrowedFd;

use super::Cold;
use crate::backend::{Backend, Context, Deadline, Epoll, Memory, Question, Synced};
use crate::error::Result;
use crate::interest::{Interest, Mode};

impl Cold for Epoll {
    fn park(&mut self, cx: &mut Context<'_>, index: u32) -> Result<Synced> {
        Epoll::park(self, cx, index)
    }

    fn tell(
        &mut self,
        cx: &mut Context<'_>,
        index: u32,
        watch: (Interest, Mode),
    ) -> Result<Synced> {
        Epoll::tell(self, cx, index, watch)
    }

    fn forget(&mut self, cx: &mut Context<'_>, index: u32) {
        Epoll::forget(self, cx, index);
    }

    fn sync(&mut self, cx: &mut Context<'_>, index: u32) -> Result<Synced> {
        Backend::sync(self, cx, index)
    }

    #[inline]
    fn question<'a>(
        &'a mut self,
        cx: &mut Context<'_>,
        deadline: Deadline,
        alone: bool,
    ) -> Question<'a> {
        Epoll::question(self, cx, deadline, alone)
    }

    #[inline(always)]
    fn report(
        &mut self,
        cx: &mut Context<'_>,
        alone: bool,
        answer: io::Result<usize>,
        on_active: impl FnMut(&mut Context<'_>, u32),
    ) -> io::Result<usize> {
        Epoll::report(self, cx, alone, answer, on_active)
    }

    #[inline]
    fn armed(&self) -> usize {
        Epoll::armed(self)
    }

    #[inline]
    fn is_idle(&self) -> bool {
        Epoll::is_idle(self)
    }

    #[inline]
    fn as_fd(&self) -> BorrowedFd<'_> {
        Epoll::as_fd(self)
    }

    fn attach_waker(&mut self, cx: &mut Context<'_>, fd: BorrowedFd<'_>) -> Result<()> {
        Backend::attach_waker(self, cx, fd)
    }

    fn after_fork(&mut self, cx: &mut Context<'_>) -> Result<()> {
        Backend::after_fork(self, cx)
    }

    fn nest(&mut self, cx: &mut Context<'_>) -> Result<BorrowedFd<'_>> {
        Backend::nest(self, cx)
    }

    fn memory(&self) -> Memory {
        Backend::memory(self)
    }
}
