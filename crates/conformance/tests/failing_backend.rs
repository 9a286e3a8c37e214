//! A back-end whose wait fails after it has found events: they are not lost with the failure.

use std::io::{self, Write, pipe};
use std::os::fd::{BorrowedFd, RawFd};
use std::time::Duration;

use superpoll::backend::{Backend, Context, Deadline, Lengths, Memory, Poll, Synced};
use superpoll::{Error, Events, Interest, Poller, Result, Watch};

/// `poll`, except that each wait ends with an error.
struct Failing(Poll);

impl Backend for Failing {
    fn name(&self) -> &'static str {
        "failing"
    }
    fn admit(&self, fd: RawFd, watch: Watch) -> Result<()> {
        self.0.admit(fd, watch)
    }
    fn sync(&mut self, cx: &mut Context<'_>, index: u32) -> Result<Synced> {
        self.0.sync(cx, index)
    }
    fn wait(&mut self, cx: &mut Context<'_>, deadline: Deadline) -> io::Result<()> {
        self.0.wait(cx, deadline)?;
        Err(io::Error::from_raw_os_error(libc::EIO))
    }
    fn attach_waker(&mut self, cx: &mut Context<'_>, fd: BorrowedFd<'_>) -> Result<()> {
        self.0.attach_waker(cx, fd)
    }
    fn after_fork(&mut self, cx: &mut Context<'_>) -> Result<()> {
        self.0.after_fork(cx)
    }
    fn nest(&mut self, cx: &mut Context<'_>) -> Result<BorrowedFd<'_>> {
        self.0.nest(cx)
    }
    fn lengths(&self) -> Lengths {
        self.0.lengths()
    }
    fn memory(&self) -> Memory {
        self.0.memory()
    }
}

#[test]
fn events_found_before_a_failure_are_delivered() {
    let mut poller = Poller::builder().custom(Failing(Poll::new())).build().unwrap();
    let (reader, mut writer) = pipe().unwrap();
    let key = poller.register(&reader, Interest::READABLE).unwrap();
    let mut events = Events::with_limit(4);
    let failed = poller.wait(&mut events, Some(Duration::ZERO));
    assert!(matches!(failed, Err(Error::System { .. })), "nothing was found: {failed:?}");
    assert!(events.is_empty());
    writer.write_all(b"x").unwrap();
    assert_eq!(poller.wait(&mut events, Some(Duration::ZERO)).unwrap(), 1);
    assert!(events.find(key).is_some_and(|event| event.is_readable()));
}
