//! The methods of waiting for a connection: the part of one process, one file for each method.
//!
//! Each process waits, accepts once when it is woken, and waits again. The wake-up of a process
//! that finds nothing was useless. Our poller (`poller.rs`) and our runtime (`ours.rs`) run in
//! processes like all the other methods; the runtime also runs as the engines of one process
//! (`engines.rs`). A method that waits, rather than asking the kernel to accept, waits for
//! duplicates of the listener as well, if there are any: an extreme case of a server that listens
//! on many addresses.

use std::io;

use superpoll::BackendKind;
use superpoll_rt::net::Spread;

use crate::by_name::by_name;
use crate::herd::method::post::{Post, Report};
use crate::herd::method::uring::Request;

mod accept;
mod alone;
pub(super) mod engines;
mod epoll;
mod ours;
mod poll;
mod poller;
pub(super) mod post;
mod select;
mod uring;

type Stand = fn(Post, &Report) -> io::Result<()>;

/// A method of waiting, by name.
#[derive(Clone, Copy)]
pub(super) struct Method {
    /// Its name in tables and records.
    pub name: &'static str,
    /// Waits and accepts indefinitely; returns only on an error.
    pub stand: Stand,
    /// Whether the listener blocks.
    pub blocks: bool,
    /// Whether each process has a listener of its own.
    pub own_listener: bool,
    /// The most duplicates that the method can wait for.
    pub most_dups: usize,
    /// Whether the method needs io_uring.
    pub rings: bool,
    /// The engines' method of sharing connections, if the method runs engines of one process
    /// instead of processes.
    pub engines: Option<Spread>,
}

by_name!(Method);

const fn method(name: &'static str, stand: Stand) -> Method {
    let (blocks, own_listener, rings) = (false, false, false);
    Method { name, stand, blocks, own_listener, most_dups: usize::MAX, rings, engines: None }
}

const fn engines(name: &'static str, spread: Spread) -> Method {
    // Engines do not run in separate processes, and have no use for duplicates.
    Method { engines: Some(spread), most_dups: 0, ..method(name, |_, _| Ok(())) }
}

const fn ring(name: &'static str, stand: Stand) -> Method {
    Method { rings: true, ..method(name, stand) }
}

const fn ring_accept(name: &'static str, stand: Stand) -> Method {
    // Only a listener can take a request to accept, so there is no control.
    Method { blocks: true, most_dups: 0, ..ring(name, stand) }
}

/// The name of the control.
pub(super) const ALONE: &str = "epoll-alone";

/// All methods.
pub(super) const ALL: &[Method] = &[
    // `select` cannot watch numbers above 1023. Standard streams take three, the listener one, and
    // the writing end of a pipe one.
    Method { most_dups: 1019, ..method("select", select::stand) },
    method("poll", poll::stand),
    method("epoll", epoll::stand),
    method(ALONE, alone::stand),
    method("epoll-exclusive", |post, report| {
        epoll::stand_with(&post, report, libc::EPOLLEXCLUSIVE)
    }),
    Method { blocks: true, most_dups: 0, ..method("accept", accept::stand) },
    Method { own_listener: true, ..method("reuseport", epoll::stand) },
    ring("uring-poll", |post, report| {
        uring::stand(&post, report, Request::Poll { exclusive: false, stays: true })
    }),
    ring("uring-exclusive", |post, report| {
        uring::stand(&post, report, Request::Poll { exclusive: true, stays: true })
    }),
    ring("uring-exclusive-oneshot", |post, report| {
        uring::stand(&post, report, Request::Poll { exclusive: true, stays: false })
    }),
    ring_accept("uring-accept", |post, report| {
        uring::stand(&post, report, Request::Accept { stays: true })
    }),
    ring_accept("uring-accept-oneshot", |post, report| {
        uring::stand(&post, report, Request::Accept { stays: false })
    }),
    ring("superpoll-uring-exclusive", poller::stand_exclusive),
    method("superpoll-rt-shared", ours::stand),
    method("superpoll-rt-exclusive", ours::stand_exclusive),
    Method { own_listener: true, ..method("superpoll-rt-reuseport", ours::stand) },
    ring("superpoll-rt-uring-exclusive", ours::stand_uring_exclusive),
    engines("engines-shared", Spread::Shared),
    engines("engines-exclusive", Spread::Exclusive),
    engines("engines-reuseport", Spread::ReusePort),
    engines("engines-hand-off", Spread::HandOff),
    Method { rings: true, ..engines("engines-uring-exclusive", Spread::Exclusive) },
];

impl Method {
    /// The back-end of our runtime's engines.
    pub(super) fn backend(&self) -> BackendKind {
        if self.rings { BackendKind::Uring } else { BackendKind::Epoll }
    }
}
