//! Events in a keeper's life that are worth reporting.

use std::fmt;
use std::io;

use crate::link::Peer;

/// An event in a keeper's life that is worth reporting.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum KeeperEvent {
    /// A link was refused.
    Refused {
        /// The process at the other end, if known.
        peer: Option<Peer>,
        /// The reason.
        why: String,
    },
    /// A server has introduced itself.
    Connected {
        /// The server.
        peer: Peer,
    },
    /// A server has ended without notice.
    Lost {
        /// The server.
        peer: Peer,
        /// The number of descriptors that it left and that no server has now.
        orphans: usize,
    },
    /// A server was told to yield to another.
    Yields {
        /// The server that yields.
        peer: Peer,
        /// Its successor.
        to: Peer,
    },
    /// The descriptors and records that other servers left were handed over.
    HandedOver {
        /// The server that received them.
        peer: Peer,
        /// The number of descriptors.
        descriptors: usize,
        /// The number of records.
        records: usize,
    },
    /// No server came for these orphans in time.
    Dropped {
        /// The number of orphans.
        orphans: usize,
    },
    /// Descriptors could not be received or watched, and stay with their loop.
    Returned {
        /// The number of descriptors.
        descriptors: usize,
        /// The error number of the first failure.
        error: i32,
    },
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} of user {}", self.process, self.user)
    }
}

impl fmt::Display for KeeperEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeeperEvent::Refused { peer: Some(peer), why } => write!(f, "refused {peer}: {why}"),
            KeeperEvent::Refused { peer: None, why } => write!(f, "refused a connection: {why}"),
            KeeperEvent::Connected { peer } => write!(f, "works for {peer}"),
            KeeperEvent::Lost { peer, orphans } => {
                write!(f, "{peer} has ended without a word; {orphans} connections wait for another")
            }
            KeeperEvent::Yields { peer, to } => write!(f, "{peer} is to yield to {to}"),
            KeeperEvent::HandedOver { peer, descriptors, records } => {
                write!(f, "handed {descriptors} connections and {records} records over to {peer}")
            }
            KeeperEvent::Dropped { orphans } => {
                write!(f, "no server has come in time: closed {orphans} connections")
            }
            KeeperEvent::Returned { descriptors, error } => {
                let error = io::Error::from_raw_os_error(*error);
                write!(
                    f,
                    "could not take {descriptors} connections, which stay where they are: {error}"
                )
            }
        }
    }
}
