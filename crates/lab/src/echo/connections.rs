//! An echo server's connections, and the type of its entry point.

use std::os::fd::OwnedFd;

use crate::channel::Kind;
use crate::error::Result;
use crate::server::Control;

/// The most events that each server takes from a wait.
pub(crate) const EVENTS: usize = 1024;

/// The connections that a server serves.
#[derive(Debug)]
pub(crate) struct Connections {
    /// TCP or Unix-domain sockets.
    pub kind: Kind,
    /// Its ends.
    pub sockets: Vec<OwnedFd>,
    /// The size of a buffer: larger than a request.
    pub room: usize,
}

/// Serves until its connections are closed, or until the parent no longer asks for its counters.
pub(crate) type Serve = fn(Connections, &mut Control) -> Result<()>;
