//! `select(2)`: it joins all wait queues before it sleeps, and leaves them when it is woken.

use std::io;

use crate::herd::method::post::{Post, Report, accept_one};
use crate::sys::poll::Set;

pub(super) fn stand(post: Post, report: &Report) -> io::Result<()> {
    let mut set = Set::new();
    if !post.all().all(|fd| set.add(fd)) {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    (report.ready)();
    loop {
        if set.wait() < 0 {
            return Err(io::Error::last_os_error());
        }
        accept_one(&post, report);
    }
}
