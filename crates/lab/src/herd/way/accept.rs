//! A blocking `accept(2)`: since before `epoll` existed, the kernel has woken one waiter at a time.

use std::io;

use crate::herd::way::post::{Post, Tell};
use crate::sys::socket;

pub(super) fn stand(post: Post, tell: &Tell) -> io::Result<()> {
    (tell.ready)();
    loop {
        if !socket::accept_and_close(post.listener) {
            return Err(io::Error::last_os_error());
        }
        (tell.accepted)();
    }
}
