//! The control: one process waits for connections with `epoll`, and all the remaining processes
//! wait for something else that never comes. A connection finds the same number of sleeping
//! processes as in a herd, and the client has spent the same time checking whether they sleep.

use std::io;

use super::epoll;
use crate::herd::method::post::{Post, Report};
use crate::sys::descriptor;

pub(super) fn stand(post: Post, report: &Report) -> io::Result<()> {
    if post.number == 0 {
        return epoll::stand(post, report);
    }
    drop(post);
    let (reader, _writer) = descriptor::pipe()?;
    epoll::wait_in_vain(&reader, report)
}
