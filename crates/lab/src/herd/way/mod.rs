//! The ways of waiting for a connection: one process' part, a file for each.
//!
//! Each waits, accepts once when it is woken, and waits again. A process that finds nothing was woken in
//! vain. Our poller (`poller.rs`) and our runtime (`ours.rs`) stand in processes like all others, the runtime
//! once more as the engines of one process (`engines.rs`). All that wait, rather than have the kernel accept,
//! wait for duplicates of the listener as well, if there are any: a server that listens on many addresses, taken
//! to the extreme.

use std::io;

use superpoll::BackendKind;

use crate::by_name::by_name;
use crate::herd::way::post::{Post, Tell};

mod accept;
mod alone;
pub mod engines;
mod epoll;
mod ours;
mod poll;
mod poller;
pub mod post;
mod select;
mod uring;

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
}
