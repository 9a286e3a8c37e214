//! A blocking `accept(2)`: since before `epoll` existed, the kernel has woken one waiter at a time.

use std::io;

use crate::herd::method::post::{Post, Report};
use crate::sys::socket;

pub(super) fn stand(post: Post, report: &Report) -> io::Result<()> {
    (report.ready)();
    loop {
        if !socket::accept_and_close(post.listener) {
            return Err(io::Error::last_os_error());
        }
        (report.accepted)();
    }
}
