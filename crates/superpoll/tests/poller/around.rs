//! The poll back-end with code of a test around its calls.

use std::io;
use std::os::fd::RawFd;

use superpoll::backend::{Backend, Context, Deadline, Lifecycle, Memory, Poll, Status, Synced};
use superpoll::{Result, Watch};

/// The test's code in place of the poll back-end, which it can call to do its part.
pub(crate) trait Around: Send {
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
        poll.finish_wait(cx, deadline, None)
    }
}

/// Such a back-end.
pub(crate) struct Surrounded<A> {
    poll: Poll,
    around: A,
}

impl<A: Around> Surrounded<A> {
    pub(crate) fn new(around: A) -> Surrounded<A> {
        Surrounded { poll: Poll::new(), around }
    }
}

impl<A: Around> Backend for Surrounded<A> {
    fn status(&self) -> Status<'_> {
        let mut status = self.poll.status();
        status.name = A::NAME;
        status
    }
    fn admit(&self, fd: RawFd, watch: Watch) -> Result<()> {
        self.poll.admit(fd, watch)
    }
    fn sync(&mut self, cx: &mut Context<'_>, index: u32) -> Result<Synced> {
        self.around.sync(&mut self.poll, cx, index)
    }
    fn finish_wait(
        &mut self,
        cx: &mut Context<'_>,
        deadline: Deadline,
        _answer: Option<io::Result<usize>>,
    ) -> io::Result<()> {
        self.around.wait(&mut self.poll, cx, deadline)
    }
    fn lifecycle(&mut self) -> &mut dyn Lifecycle {
        &mut self.poll
    }
    fn memory(&self) -> Memory {
        self.poll.memory()
    }
}
