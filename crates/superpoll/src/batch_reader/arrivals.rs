//! The results of a batch reader: bytes, ends, failures, and room to write.

use std::io;

use crate::error::Error;
use crate::key::Key;

/// The result for one descriptor.
#[derive(Debug)]
#[non_exhaustive]
pub enum Outcome {
    /// These bytes, in order after those that came before.
    Bytes(Vec<u8>),
    /// The other side has closed its direction, and everything was delivered. Nothing more is read.
    End,
    /// Reading failed, for good. Nothing more is read.
    Failed(io::Error),
    /// The descriptor can be written to again, as was [asked
    /// for](crate::batch::BatchReader::notify_writable).
    Writable,
}

/// One descriptor's share of a wait.
#[derive(Debug)]
pub struct Arrival {
    pub(super) key: Key,
    pub(super) outcome: Outcome,
}

impl Arrival {
    /// The key of the descriptor's registration.
    pub const fn key(&self) -> Key {
        self.key
    }

    /// The result.
    pub const fn outcome(&self) -> &Outcome {
        &self.outcome
    }

    /// The bytes, if the result is bytes.
    pub fn bytes(&self) -> Option<&[u8]> {
        match &self.outcome {
            Outcome::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }
}

/// The buffer that a wait fills. The memory of bytes belongs to the reader's pool and goes back to
/// it with the next wait, unless it is [taken](Arrivals::take).
#[derive(Debug)]
pub struct Arrivals {
    pub(super) list: Vec<Arrival>,
    pub(super) refusals: Vec<(Key, Error)>,
    pub(super) limit: usize,
    pub(super) woken: bool,
}

impl Arrivals {
    /// For at most `limit` arrivals a wait. A limit of zero is accepted here and refused by the
    /// wait, with [`Error::ZeroLimit`].
    pub fn with_limit(limit: usize) -> Arrivals {
        Arrivals { list: Vec::new(), refusals: Vec::new(), limit, woken: false }
    }

    /// The most arrivals one wait delivers.
    pub const fn limit(&self) -> usize {
        self.limit
    }

    /// How many the last wait delivered.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether the last wait delivered none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The arrivals of the last wait.
    pub fn iter(&self) -> std::slice::Iter<'_, Arrival> {
        self.list.iter()
    }

    /// Takes the arrivals of the last wait, memory and all.
    pub fn take(&mut self) -> std::vec::Drain<'_, Arrival> {
        self.list.drain(..)
    }

    /// Whether the last wait returned because a [`Waker`](crate::Waker) was used.
    pub const fn woken(&self) -> bool {
        self.woken
    }

    /// Descriptors that the kernel would not watch when the last wait asked it to, each with its
    /// reason. They are not read, and still the reader's:
    /// [`deregister`](crate::batch::BatchReader::deregister) gives them back.
    pub fn refusals(&self) -> &[(Key, Error)] {
        &self.refusals
    }
}

impl<'a> IntoIterator for &'a Arrivals {
    type Item = &'a Arrival;
    type IntoIter = std::slice::Iter<'a, Arrival>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
