//! `epoll(7)`, level-triggered: registered once, woken with all the other waiters or, with
//! `EPOLLEXCLUSIVE`, alone.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use crate::herd::method::post::{Post, Report, accept_one};
use crate::sys::epoll;

pub(super) fn stand(post: Post, report: &Report) -> io::Result<()> {
    stand_with(&post, report, 0)
}

/// Waits with these flags besides the interest.
pub(super) fn stand_with(post: &Post, report: &Report, flags: i32) -> io::Result<()> {
    let set = epoll::create()?;
    for fd in post.all() {
        epoll::add(&set, fd, (libc::EPOLLIN | flags) as u32, 0)?;
    }
    let mut events = [epoll::Raw { events: 0, u64: 0 }; 64];
    (report.ready)();
    loop {
        if epoll::wait(set.as_raw_fd(), &mut events) < 0 {
            return Err(io::Error::last_os_error());
        }
        accept_one(post, report);
    }
}

/// Waits for a descriptor that is never ready.
pub(super) fn wait_in_vain(fd: &OwnedFd, report: &Report) -> io::Result<()> {
    let set = epoll::create()?;
    epoll::add(&set, fd.as_raw_fd(), libc::EPOLLIN as u32, 0)?;
    let mut events = [epoll::Raw { events: 0, u64: 0 }; 1];
    (report.ready)();
    match epoll::wait(set.as_raw_fd(), &mut events) {
        ..0 => Err(io::Error::last_os_error()),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}
