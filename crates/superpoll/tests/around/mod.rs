//! The poll back-end with code of a test around its calls.

use std::io;
use std::os::fd::{BorrowedFd, RawFd};

use superpoll::backend::{Backend, Context, Deadline, Lengths, Memory, Poll, Synced};
use superpoll::{Result, Watch};

/// The test's code in place of the poll back-end, which it can call to do its part.
pub trait Around: Send {
    /// The name of the back-end.
    const NAME: &'static str;

    fn sync(&mut self, poll: &mut Poll, cx: &mut Context<'_>, index: u32) -> Result<Synced> {
        poll.sync(cx, index)
    }

    fn wait(
        &mut self,
        poll: &mut Poll,
        cx: &mut Context<'_>,
        deadline: Deadline,
    ) -> io::Result<()> {
        poll.wait(cx, deadline)
    }
}

/// Such a back-end.
pub struct Surrounded<A> {
    poll: Poll,
    around: A,
}

impl<A: Around> Surrounded<A> {
    pub fn new(around: A) -> Surrounded<A> {
        Surrounded { poll: Poll::new(), around }
    }
}

impl<A: Around> Backend for Surrounded<A> {
    fn name(&self) -> &'static str {
        A::NAME
    }
    fn admit(&self, fd: RawFd, watch: Watch) -> Result<()> {
        self.poll.admit(fd, watch)
    }
    fn sync(&mut self, cx: &mut Context<'_>, index: u32) -> Result<Synced> {
        self.around.sync(&mut self.poll, cx, index)
    }
    fn wait(&mut self, cx: &mut Context<'_>, deadline: Deadline) -> io::Result<()> {
        self.around.wait(&mut self.poll, cx, deadline)
    }
    fn attach_waker(&mut self, cx: &mut Context<'_>, fd: BorrowedFd<'_>) -> Result<()> {
        self.poll.attach_waker(cx, fd)
    }
    fn after_fork(&mut self, cx: &mut Context<'_>) -> Result<()> {
        self.poll.after_fork(cx)
    }
    fn nest(&mut self, cx: &mut Context<'_>) -> Result<BorrowedFd<'_>> {
        self.poll.nest(cx)
    }
    fn lengths(&self) -> Lengths {
        self.poll.lengths()
    }
    fn memory(&self) -> Memory {
        self.poll.memory()
    }
}
