//! The ways of waiting for a connection: one process' part, a file for each.
//!
//! Each waits, accepts once when it is woken, and waits again. A process that finds nothing was woken in
//! vain. Our poller (`poller.rs`) and our runtime (`ours.rs`) stand in processes like all others, the runtime
//! once more as the engines of one process (`engines.rs`). All that wait, rather than have the kernel accept,
//! wait for duplicates of the listener as well, if there are any: a server that listens on many addresses, taken
//! to the extreme.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::rc::Rc;

use superpoll::BackendKind;

use crate::by_name::by_name;
use crate::error::{Error, Result};
use crate::sys::{descriptor, socket};

mod accept;
mod alone;
pub mod engines;
mod epoll;
mod ours;
mod poll;
mod poller;
mod select;
mod uring;

/// What one waiting process has.
#[derive(Debug)]
pub struct Post {
    /// Which process it is, from zero.
    pub number: usize,
    /// The socket to accept on.
    pub listener: RawFd,
    /// What it waits for besides: duplicates of the listener, or of a pipe.
    pub besides: Vec<OwnedFd>,
    /// Whether it is a pipe.
    pub of_pipe: bool,
}

impl Post {
    /// All descriptors to wait for.
    fn all(&self) -> impl Iterator<Item = RawFd> {
        std::iter::once(self.listener).chain(self.besides.iter().map(AsRawFd::as_raw_fd))
    }

    /// Opens so many descriptors besides: duplicates of the listener, or of a pipe that stays empty.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub fn take_up(number: usize, listener: RawFd, dups: usize, of_pipe: bool) -> io::Result<Post> {
        let mut besides = Vec::with_capacity(dups);
        let mut origin = listener;
        if of_pipe && dups > 0 {
            let (reader, writer) = descriptor::pipe()?;
            origin = reader.as_raw_fd();
            besides.push(reader);
            // A pipe without writers would be ready; it stays open as long as the process lives.
            std::mem::forget(writer);
        }
        while besides.len() < dups {
            besides.push(descriptor::duplicate(origin)?);
        }
        Ok(Post { number, listener, besides, of_pipe })
    }
}

/// What a process does when it is set up, and for each connection that it has accepted.
#[derive(Clone)]
pub struct Tell {
    /// It is about to wait for the first time.
    pub ready: Rc<dyn Fn()>,
    /// It has accepted one.
    pub accepted: Rc<dyn Fn()>,
}

type Stand = fn(Post, &Tell) -> io::Result<()>;

/// A way of waiting, by name.
#[derive(Clone, Copy)]
pub struct Way {
    /// Its name in tables and records.
    pub name: &'static str,
    /// Waits and accepts for ever; returns only what went wrong.
    pub stand: Stand,
    /// Whether the listener blocks.
    pub blocks: bool,
    /// Whether each process has a listener of its own.
    pub own_listener: bool,
    /// The most duplicates it can wait for.
    pub most_dups: usize,
    /// Whether it needs io_uring.
    pub rings: bool,
    /// Whether it is engines of one process, not processes.
    pub engines: Option<superpoll_rt::net::Spread>,
}

by_name!(Way);

const fn way(name: &'static str, stand: Stand) -> Way {
    let (blocks, own_listener, rings) = (false, false, false);
    Way { name, stand, blocks, own_listener, most_dups: usize::MAX, rings, engines: None }
}

const fn engines(name: &'static str, spread: superpoll_rt::net::Spread) -> Way {
    // It is not in processes that it stands, and has no use for duplicates.
    Way { engines: Some(spread), most_dups: 0, ..way(name, |_, _| Ok(())) }
}

const fn ring(name: &'static str, stand: Stand) -> Way {
    Way { rings: true, ..way(name, stand) }
}

const fn ring_accept(name: &'static str, stand: Stand) -> Way {
    // What is no listener cannot be asked for a connection, so there is no control.
    Way { blocks: true, most_dups: 0, ..ring(name, stand) }
}

/// The name of the control.
pub const ALONE: &str = "epoll-alone";

/// All ways.
pub const ALL: &[Way] = &[
    // Numbers above 1023 it cannot watch; three are taken by standard streams, one by the listener, and
    // one by the writing end of a pipe.
    Way { most_dups: 1019, ..way("select", select::stand) },
    way("poll", poll::stand),
    way("epoll", epoll::stand),
    way(ALONE, alone::stand),
    way("epoll-exclusive", epoll::stand_exclusive),
    Way { blocks: true, most_dups: 0, ..way("accept", accept::stand) },
    Way { own_listener: true, ..way("reuseport", epoll::stand) },
    ring("uring-poll", uring::stand_poll),
    ring("uring-exclusive", uring::stand_exclusive),
    ring("uring-exclusive-oneshot", uring::stand_exclusive_oneshot),
    ring_accept("uring-accept", uring::stand_accept),
    ring_accept("uring-accept-oneshot", uring::stand_accept_oneshot),
    ring("superpoll-uring-exclusive", poller::stand_exclusive),
    way("superpoll-rt-shared", ours::stand),
    way("superpoll-rt-exclusive", ours::stand_exclusive),
    Way { own_listener: true, ..way("superpoll-rt-reuseport", ours::stand) },
    ring("superpoll-rt-uring-exclusive", ours::stand_uring_exclusive),
    engines("engines-shared", superpoll_rt::net::Spread::Shared),
    engines("engines-exclusive", superpoll_rt::net::Spread::Exclusive),
    engines("engines-reuseport", superpoll_rt::net::Spread::ReusePort),
    engines("engines-hand-off", superpoll_rt::net::Spread::HandOff),
    Way { rings: true, ..engines("engines-uring-exclusive", superpoll_rt::net::Spread::Exclusive) },
];

impl Way {
    /// What our runtime's engines wait with.
    pub fn backend(&self) -> BackendKind {
        if self.rings { BackendKind::Uring } else { BackendKind::Epoll }
    }

    /// The way of this name.
    ///
    /// # Errors
    ///
    /// [`Error::Usage`] if there is none.
    pub fn named(name: &str) -> Result<Way> {
        ALL.iter().find(|way| way.name == name).copied().ok_or_else(|| {
            let names: Vec<_> = ALL.iter().map(|way| way.name).collect();
            Error::usage(format!(
                "no way to wait is called {name:?}: choose among {} or all",
                names.join(", ")
            ))
        })
    }
}

/// Accepts what woke a process, if nobody was faster.
fn accept_one(post: &Post, tell: &Tell) {
    if socket::accept_and_close(post.listener) {
        (tell.accepted)();
    }
}
