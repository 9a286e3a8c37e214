//! What all pairs of a relay have in common: its options, its counters, and whom to tell of failures.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::flow::Moved;
use super::gate::Place;
use crate::Address;

/// How a relay treats its connections.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long an upstream may take to accept a connection, for each of its addresses.
    pub connect_timeout: Duration,
    /// After how long without a byte in either direction a pair is closed; `None`: never.
    pub idle_timeout: Option<Duration>,
    /// How many pairs there may be at a time. Further clients wait in the kernel's queue. `None`: as many as there
    /// are descriptors for.
    pub max_connections: Option<usize>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            connect_timeout: Duration::from_secs(5),
            idle_timeout: None,
            max_connections: None,
        }
    }
}

/// What went wrong while a relay runs. It goes on all the same.
#[derive(Debug)]
#[non_exhaustive]
pub enum Failure {
    /// The upstream could not be reached; the client was closed.
    Connect {
        /// The upstream.
        to: Address,
        /// What the last attempt said.
        error: io::Error,
    },
    /// A listener has failed for good.
    Accept {
        /// Where it listened.
        on: String,
        /// What the kernel said.
        error: io::Error,
    },
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Connect { to, error } => write!(f, "connecting to {to}: {error}"),
            Failure::Accept { on, error } => write!(f, "accepting on {on}: {error}"),
        }
    }
}

impl std::error::Error for Failure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Failure::Connect { error, .. } | Failure::Accept { error, .. } => Some(error),
        }
    }
}

/// What a relay has done so far.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct Counters {
    /// Clients accepted.
    pub accepted: u64,
    /// Pairs that there are now.
    pub active: u64,
    /// Bytes from clients, as written to upstreams.
    pub bytes_up: u64,
    /// Bytes from upstreams, as written to clients.
    pub bytes_down: u64,
    /// Of both, those that were spliced.
    pub bytes_spliced: u64,
    /// Clients closed because the upstream could not be reached.
    pub connect_failures: u64,
    /// Pairs of which one side broke, and the other was reset.
    pub broken: u64,
    /// Pairs closed because they were idle for too long.
    pub timed_out: u64,
    /// Clients closed for lack of descriptors.
    pub shed: u64,
}

/// The same, while they change.
#[derive(Debug, Default)]
pub(super) struct Totals {
    pub accepted: AtomicU64,
    pub active: AtomicU64,
    pub bytes_up: AtomicU64,
    pub bytes_down: AtomicU64,
    pub bytes_spliced: AtomicU64,
    pub connect_failures: AtomicU64,
    pub broken: AtomicU64,
    pub timed_out: AtomicU64,
    pub shed: AtomicU64,
}

impl Totals {
    /// Adds what a pair has moved.
    pub fn moved(&self, up: &Moved, down: &Moved) {
        for (total, moved) in [
            (&self.bytes_up, up.written),
            (&self.bytes_down, down.written),
            (&self.bytes_spliced, up.spliced + down.spliced),
        ] {
            if moved > 0 {
                total.fetch_add(moved, Ordering::Relaxed);
            }
        }
    }

    pub fn read(&self) -> Counters {
        let of = |total: &AtomicU64| total.load(Ordering::Relaxed);
        Counters {
            accepted: of(&self.accepted),
            active: of(&self.active),
            bytes_up: of(&self.bytes_up),
            bytes_down: of(&self.bytes_down),
            bytes_spliced: of(&self.bytes_spliced),
            connect_failures: of(&self.connect_failures),
            broken: of(&self.broken),
            timed_out: of(&self.timed_out),
            shed: of(&self.shed),
        }
    }
}

/// What pairs share.
pub(super) struct Shared {
    pub options: Options,
    pub to: Address,
    pub totals: Totals,
    pub report: Box<dyn Fn(&Failure) + Send + Sync>,
}

impl Shared {
    /// Tells of an upstream that could not be reached.
    pub fn not_connected(&self, error: io::Error) {
        self.totals.connect_failures.fetch_add(1, Ordering::Relaxed);
        (self.report)(&Failure::Connect { to: self.to.clone(), error });
    }
}

/// One of the pairs that there are now.
pub(super) struct Member {
    pub shared: Arc<Shared>,
    _place: Place,
}

impl Member {
    pub fn new(shared: Arc<Shared>, place: Place) -> Member {
        shared.totals.active.fetch_add(1, Ordering::Relaxed);
        Member { shared, _place: place }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.shared.totals.active.fetch_sub(1, Ordering::Relaxed);
    }
}
