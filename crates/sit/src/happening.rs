//! What is worth to be told of a babysitter's life.

use std::fmt;
use std::io;

use crate::line::Peer;

/// What is worth to be told of a babysitter's life.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Happening {
    /// A line was refused.
    Refused {
        /// Whose.
        peer: Option<Peer>,
        /// Why.
        why: String,
    },
    /// A server has introduced itself.
    Came {
        /// Which.
        peer: Peer,
    },
    /// A server has ended without a word.
    Lost {
        /// Which.
        peer: Peer,
        /// Descriptors that it has left, and that nobody has now.
        orphans: usize,
    },
    /// A server was told to yield to another.
    Yields {
        /// Which.
        peer: Peer,
        /// To whom.
        to: Peer,
    },
    /// What others have left was handed over.
    HandedOver {
        /// To whom.
        peer: Peer,
        /// How many descriptors.
        descriptors: usize,
        /// How many records.
        records: usize,
    },
    /// Nobody has come for these in time.
    Dropped {
        /// How many.
        orphans: usize,
    },
    /// Descriptors could not be received or watched, and stay with their loop.
    Returned {
        /// How many.
        descriptors: usize,
        /// Why.
        error: i32,
    },
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} of user {}", self.process, self.user)
    }
}

impl fmt::Display for Happening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Happening::Refused { peer: Some(peer), why } => write!(f, "refused {peer}: {why}"),
            Happening::Refused { peer: None, why } => write!(f, "refused a connection: {why}"),
            Happening::Came { peer } => write!(f, "works for {peer}"),
            Happening::Lost { peer, orphans } => {
                write!(f, "{peer} has ended without a word; {orphans} connections wait for another")
            }
            Happening::Yields { peer, to } => write!(f, "{peer} is to yield to {to}"),
            Happening::HandedOver { peer, descriptors, records } => {
                write!(f, "handed {descriptors} connections and {records} records over to {peer}")
            }
            Happening::Dropped { orphans } => {
                write!(f, "nobody has come in time: closed {orphans} connections")
            }
            Happening::Returned { descriptors, error } => {
                let error = io::Error::from_raw_os_error(*error);
                write!(
                    f,
                    "could not take {descriptors} connections, which stay where they are: {error}"
                )
            }
        }
    }
}
