//! Things that watch descriptors, driven by the same operations so that they can be compared.
//!
//! A [`Subject`] lives in a small world of its own: pipes, sockets, eventfds and files under
//! numbers from zero on, which the operations open, write, duplicate, register and close. The
//! [`Model`](model::Model) is a world in pure Rust. Every other subject is a [`Real`](real::Real)
//! world with an [`Engine`](real::Engine) in it: the kernel's own `epoll` and `poll`, Superpoll
//! with each back-end and policy, and other pollers.

use std::collections::{BTreeMap, BTreeSet};

use superpoll::{Readiness, Watch};

pub mod model;
pub mod poller;
pub mod raw_epoll;
pub mod raw_poll;
pub mod real;

/// A descriptor number within a world.
pub type Number = usize;

/// The name of a registration; never used twice in a world.
pub type Tag = u64;

/// A kind of file that a world can open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A pipe with a buffer of one page: two numbers, the reading end first.
    Pipe,
    /// A pair of Unix-domain stream sockets: two numbers.
    Sockets,
    /// An eventfd: one number.
    Eventfd,
    /// A regular file: one number.
    File,
}

impl Kind {
    /// Returns the number of descriptors that it takes.
    pub fn numbers(self) -> usize {
        match self {
            Kind::Pipe | Kind::Sockets => 2,
            Kind::Eventfd | Kind::File => 1,
        }
    }
}

/// The directions to shut down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum How {
    /// `SHUT_RD`.
    Read,
    /// `SHUT_WR`.
    Write,
    /// `SHUT_RDWR`.
    Both,
}

/// An operation with all its operands.
#[derive(Clone, Debug)]
pub enum Op {
    /// Opens a file under these numbers, which are the lowest free ones.
    Open(Kind, Vec<Number>),
    /// Duplicates the first number as the second.
    Duplicate(Number, Number),
    /// Closes a number; a registered one is detached first.
    Close(Number),
    /// Registers a number.
    Register(Number, Tag, Watch),
    /// Changes interest and mode.
    Modify(Number, Watch),
    /// Ends a registration; the number stays open.
    Deregister(Number),
    /// Writes this many bytes at once.
    Write(Number, usize),
    /// Reads this many bytes at once.
    Read(Number, usize),
    /// Writes to a socket until it would block.
    Fill(Number),
    /// Reads until there is nothing left.
    Drain(Number),
    /// Shuts a socket down.
    Shutdown(Number, How),
    /// Tells the watching subject that a registration is ready.
    Tell(Number, Readiness),
    /// Wakes the watching subject.
    Wake,
}

/// The result of an operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// It worked.
    Done,
    /// The number of bytes, or the error number.
    Bytes(Result<usize, i32>),
    /// The operation was refused, with this reason.
    Refused(String),
}

/// The ready registrations that one wait reported.
pub type Ready = Vec<(Tag, Readiness)>;

/// Something that watches descriptors, in a world of its own.
pub trait Subject {
    /// Its name, for failures.
    fn name(&self) -> String;

    /// Carries out an operation.
    fn apply(&mut self, op: &Op) -> Reply;

    /// Waits for at most `limit` events. With `nap`, waits for a moment if nothing is ready.
    ///
    /// # Errors
    ///
    /// The error of the wait, in words.
    fn wait(&mut self, limit: usize, nap: bool) -> Result<Ready, String>;

    /// Whether a change since the last call allows edges to be repeated.
    fn may_repeat_edges(&mut self) -> bool {
        false
    }

    /// Whether it obeys a limit.
    fn has_limit(&self) -> bool {
        true
    }

    /// Whether the last wait was woken; `None` if it cannot be.
    fn woken(&self) -> Option<bool> {
        None
    }
}

/// The events that the next waits must and may report.
#[derive(Clone, Debug, Default)]
pub struct Expectation {
    /// Registrations that must be reported, and whether only once.
    pub must: BTreeMap<Tag, bool>,
    /// The present state of everything that must or may be reported.
    pub state: BTreeMap<Tag, Readiness>,
    /// Registrations that may be reported for an arrival that is gone, or only partly left.
    pub arrivals: BTreeSet<Tag>,
    /// The readiness that the caller told, to be reported once, alone or together with the state.
    pub told: BTreeMap<Tag, Readiness>,
}
