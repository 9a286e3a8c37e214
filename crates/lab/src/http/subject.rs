//! The servers, by name.

use std::net::TcpListener;

use superpoll::BackendKind;

use crate::error::Result;
use crate::http::{ours, raw_epoll, tokio};
use crate::server::Control;
use crate::server::subject::Entry;

use Software::{Other, Ours};

/// The software of a server.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Software {
    /// Our runtime.
    Ours(BackendKind),
    /// Another loop or runtime.
    Other(fn(TcpListener, &mut Control) -> Result<()>),
}

impl Software {
    /// Serves a listener's connections indefinitely.
    pub(crate) fn serve(self, listener: TcpListener, control: &mut Control) -> Result<()> {
        match self {
            Ours(backend) => ours::serve(listener, control, backend),
            Other(serve) => serve(listener, control),
        }
    }
}

const fn ours(name: &'static str, about: &'static str, backend: BackendKind) -> Entry<Software> {
    Entry::new(name, about, Ours(backend))
}

/// All servers, the lower bound first.
pub(crate) const ALL: &[Entry<Software>] = &[
    Entry::new("raw-epoll", "an epoll loop that answers canned bytes", Other(raw_epoll::serve)),
    ours("superpoll-rt-poll", "hyper on our runtime, back-end poll", BackendKind::Poll),
    ours("superpoll-rt-epoll", "hyper on our runtime, back-end epoll", BackendKind::Epoll),
    ours("superpoll-rt-adaptive", "hyper on our runtime, back-end adaptive", BackendKind::Adaptive),
    ours("superpoll-rt-uring", "hyper on our runtime, back-end uring", BackendKind::Uring)
        .with_ring(),
    Entry::new("tokio", "hyper on tokio's current_thread runtime", Other(tokio::serve)),
];
