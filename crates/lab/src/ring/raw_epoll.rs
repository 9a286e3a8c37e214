//! `epoll(7)` as a C programmer would write the ring: one set, level-triggered, each reader
//! registered exactly once.

use std::io;
use std::os::fd::AsRawFd;

use crate::error::{Doing, Result};
use crate::ring::course::{Course, Pipes};
use crate::ring::passing::{Passing, in_turns};
use crate::ring::tasks::Ring;
use crate::sys::epoll;

pub(super) fn build(course: &Course, pipes: Pipes) -> Result<Box<dyn Ring>> {
    let set = epoll::create().doing("creating an epoll set")?;
    for (number, (reader, _)) in pipes.iter().enumerate() {
        epoll::add(&set, reader.as_raw_fd(), libc::EPOLLIN as u32, number as u64)
            .doing(format_args!("watching pipe {number} with epoll"))?;
    }
    let mut events = vec![epoll::Raw { events: 0, u64: 0 }; course.total.min(1024)];
    Ok(in_turns(Passing::new(course, &pipes), pipes, Some(0), move |passing| {
        let ready = epoll::wait(set.as_raw_fd(), &mut events);
        let Ok(ready) = usize::try_from(ready) else {
            return Err(io::Error::last_os_error());
        };
        events[..ready].iter().try_for_each(|event| passing.pass(event.u64 as usize).map(drop))
    }))
}
