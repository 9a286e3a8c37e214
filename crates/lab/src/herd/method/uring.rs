//! io_uring, in a ring of each process: polls of the listener, woken with all the other waiters or
//! alone, and the ring's own `accept`.
//!
//! A multishot poll keeps its place in the listener's queue, so a kernel that wakes only one waiter
//! wakes the same one again and again. A one-shot poll joins the end of the queue when it is armed
//! again.

use std::io;

use crate::herd::method::post::{Post, Report, accept_one};
pub(super) use crate::sys::uring::listener::Request;
use crate::sys::uring::listener::{Happened, Listening};

pub(super) fn stand(post: &Post, report: &Report, request: Request) -> io::Result<()> {
    let mut listening = Listening::new(request, 1 + post.besides.len())?;
    for fd in post.all() {
        listening.start(fd)?;
    }
    (report.ready)();
    loop {
        listening.wait(|happened| match happened {
            Happened::Ready => accept_one(post, report),
            Happened::Accepted(connection) => {
                drop(connection);
                (report.accepted)();
            }
        })?;
    }
}
