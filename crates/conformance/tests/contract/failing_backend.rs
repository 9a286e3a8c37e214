//! A back-end whose wait fails after it has found events: they are not lost with the failure.

use std::io::{self, Write, pipe};
use std::os::fd::RawFd;
use std::time::Duration;

use superpoll::backend::{Backend, Context, Deadline, Lifecycle, Memory, Poll, Status, Synced};
use superpoll::{Error, Events, Interest, Poller, Result, Watch};

/// `poll`, except that each wait ends with an error.
struct Failing(Poll);

impl Backend for Failing {
    fn status(&self) -> Status<'_> {
        let mut status = self.0.status();
        status.name = "failing";
        status
    }
    fn admit(&self, fd: RawFd, watch: Watch) -> Result<()> {
        self.0.admit(fd, watch)
    }
    fn sync(&mut self, cx: &mut Context<'_>, index: u32) -> Result<Synced> {
        self.0.sync(cx, index)
    }
    fn finish_wait(
        &mut self,
        cx: &mut Context<'_>,
        deadline: Deadline,
        answer: Option<io::Result<usize>>,
    ) -> io::Result<()> {
        self.0.finish_wait(cx, deadline, answer)?;
        Err(io::Error::from_raw_os_error(libc::EIO))
    }
    fn lifecycle(&mut self) -> &mut dyn Lifecycle {
        &mut self.0
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
