//! The resources of a waiting process, and its reports.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::rc::Rc;

use crate::sys::{descriptor, socket};

/// The resources of one waiting process.
#[derive(Debug)]
pub(crate) struct Post {
    /// The number of the process, from zero.
    pub number: usize,
    /// The socket to accept on.
    pub listener: RawFd,
    /// The further descriptors that it waits for: duplicates of the listener, or of a pipe.
    pub besides: Vec<OwnedFd>,
    /// Whether these are duplicates of a pipe.
    pub of_pipe: bool,
}

impl Post {
    /// All descriptors to wait for.
    pub(crate) fn all(&self) -> impl Iterator<Item = RawFd> {
        std::iter::once(self.listener).chain(self.besides.iter().map(AsRawFd::as_raw_fd))
    }

    /// Opens `dups` further descriptors: duplicates of the listener, or of a pipe that stays empty.
    pub(crate) fn take_up(
        number: usize,
        listener: RawFd,
        dups: usize,
        of_pipe: bool,
    ) -> io::Result<Post> {
        let mut besides = Vec::with_capacity(dups);
        let mut origin = listener;
        if of_pipe && dups > 0 {
            let (reader, writer) = descriptor::pipe()?;
            origin = reader.as_raw_fd();
            besides.push(reader);
            // A pipe without writers would be ready, so the writing end stays open as long as the
            // process lives.
            std::mem::forget(writer);
        }
        while besides.len() < dups {
            besides.push(descriptor::duplicate(origin)?);
        }
        Ok(Post { number, listener, besides, of_pipe })
    }
}

/// The reports of a process: when it is set up, and for each connection that it has accepted.
#[derive(Clone)]
pub(crate) struct Report {
    /// The process is about to wait for the first time.
    pub ready: Rc<dyn Fn()>,
    /// The process has accepted a connection.
    pub accepted: Rc<dyn Fn()>,
}

/// Accepts the connection that woke the process, unless another process was faster.
pub(crate) fn accept_one(post: &Post, report: &Report) {
    if socket::accept_and_close(post.listener) {
        (report.accepted)();
    }
}
