//! io_uring, in a ring of each process: polls of the listener, woken with all the other waiters or
//! alone, and the ring's own `accept`.
//!
//! A multishot poll keeps its place in the listener's queue, so a kernel that wakes only one waiter
//! wakes the same one again and again. A one-shot poll joins the end of the queue when it is armed
//! again.

use std::io;

use crate::herd::method::post::{Post, Report, accept_one};
use crate::sys::uring::listener::{Happened, Listening, Request};

pub(super) fn stand_poll(post: Post, report: &Report) -> io::Result<()> {
    serve(&post, report, Request::Poll { exclusive: false, stays: true })
}

pub(super) fn stand_exclusive(post: Post, report: &Report) -> io::Result<()> {
    serve(&post, report, Request::Poll { exclusive: true, stays: true })
}

pub(super) fn stand_exclusive_oneshot(post: Post, report: &Report) -> io::Result<()> {
    serve(&post, report, Request::Poll { exclusive: true, stays: false })
}

pub(super) fn stand_accept(post: Post, report: &Report) -> io::Result<()> {
    serve(&post, report, Request::Accept { stays: true })
}

pub(super) fn stand_accept_oneshot(post: Post, report: &Report) -> io::Result<()> {
    serve(&post, report, Request::Accept { stays: false })
}

fn serve(post: &Post, report: &Report, request: Request) -> io::Result<()> {
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
