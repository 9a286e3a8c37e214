//! What an echo server is given, and how it is called.

use std::os::fd::OwnedFd;

use crate::channel::Kind;
use crate::error::Result;
use crate::server::Control;

/// How many events each server takes from a wait at most.
pub const EVENTS: usize = 1024;

/// What a server serves.
#[derive(Debug)]
pub struct Connections {
    /// TCP or Unix-domain sockets.
    pub kind: Kind,
    /// Its ends.
    pub sockets: Vec<OwnedFd>,
    /// The size of a buffer: more than a request has.
    pub room: usize,
}

/// Serves until its connections are closed, or until nobody asks for its counters any more.
pub type Serve = fn(Connections, &mut Control) -> Result<()>;
