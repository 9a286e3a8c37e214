//! The servers, by name.

use superpoll::BackendKind::{self, Adaptive, Epoll, Poll, Uring};

use crate::server::subject::{Entry, not_installed, rival};

use Software::Ours;

/// The software of a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Software {
    /// Ours on a back-end.
    Ours(BackendKind),
    /// nginx, with `sendfile` or without.
    Nginx(bool),
    /// hyper on tokio.
    #[cfg(feature = "http")]
    Hyper,
}

/// All servers.
pub(crate) const ALL: &[Entry<Software>] = &[
    Entry::new("superpoll-poll", "superpoll serve, back-end poll", Ours(Poll)),
    Entry::new("superpoll-epoll", "superpoll serve, back-end epoll", Ours(Epoll)),
    Entry::new("superpoll-adaptive", "superpoll serve, back-end adaptive", Ours(Adaptive)),
    Entry::new("superpoll-uring", "superpoll serve, back-end uring", Ours(Uring)).with_ring(),
    Entry::new(
        "nginx",
        "nginx, one process: sendfile, open_file_cache, no access log",
        Software::Nginx(true),
    )
    .unless(|| not_installed("nginx")),
    Entry::new(
        "nginx-reads",
        "the same without sendfile: it reads files and writes them",
        Software::Nginx(false),
    )
    .unless(|| not_installed("nginx")),
    rival!(
        "http",
        "hyper-tokio",
        "hyper on tokio's current_thread runtime, files held in memory",
        Software::Hyper
    ),
];
