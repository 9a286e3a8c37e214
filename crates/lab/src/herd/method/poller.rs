//! Our poller's back-end `uring`, without the runtime, in each of many processes. The kernel wakes
//! one process at a time, which goes to the end of the queue when its poll is armed again.

use std::io;

use superpoll::{BackendKind, Events, Interest, Mode, Poller, Watch};

use crate::herd::method::post::{Post, Report, accept_one};

pub(super) fn stand_exclusive(post: Post, report: &Report) -> io::Result<()> {
    let mut poller = Poller::builder().backend(BackendKind::Uring).build()?;
    for fd in post.all() {
        poller.register_raw(fd, Watch::new(Interest::READABLE).mode(Mode::Exclusive))?;
    }
    let mut events = Events::with_limit(64);
    (report.ready)();
    loop {
        poller.wait(&mut events, None)?;
        if let Some((_, error)) = events.refusals().first() {
            return Err(io::Error::other(error.to_string()));
        }
        accept_one(&post, report);
    }
}
