//! `poll(2)`: like `select`, without its limit.

use std::io;

use crate::herd::method::post::{Post, Report, accept_one};
use crate::sys::poll;

pub(super) fn stand(post: Post, report: &Report) -> io::Result<()> {
    let mut set: Vec<libc::pollfd> =
        post.all().map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 }).collect();
    (report.ready)();
    loop {
        if poll::wait(&mut set) < 0 {
            return Err(io::Error::last_os_error());
        }
        accept_one(&post, report);
    }
}
