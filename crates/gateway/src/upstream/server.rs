//! A server of a group, and its state: whether it gets requests, and how many.
//!
//! ```text
//!            checks fail, or requests (active checks)
//!        ┌──────────────────────────────────────────▶ down ───────┐ checks succeed
//!        │   requests fail (no active checks)                     │
//!   up ──┼──────────────────────────────────────────▶ paused ─────┤ 10 s have passed, or it answers
//!   ▲    │                                                        │
//!   │    └─ its name has lost the address ──▶ gone                │
//!   └─────────────────────────────────────────────────────────────┘
//! ```
//!
//! A server may be paused and down at once; it is up when none of the reasons holds.
//! [`GroupServer::share`] is the one place that says whether a server is up and with which weight:
//! all ways of balancing ask it. A time that has passed ends a pause without any further event, so
//! no timer is needed, and a server that is up costs two loads and no look at the clock.
//!
//! A server that is gone is in no list any more. Requests on their way to it end as they would
//! have, and its connections are closed instead of kept.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::balance;
use super::fault::KINDS;
use crate::address::Address;
use crate::log::RateLimited;
use crate::telemetry::durations::Histogram;

/// The time between two reports of one kind of failure of one server.
const FAILURES: Duration = Duration::from_secs(10);

/// The time between two reports that a server is down, or up again.
const CHANGES: Duration = Duration::from_secs(1);

/// The clock of a group, in milliseconds since the group began.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock(Instant);

impl Clock {
    pub(super) fn start() -> Clock {
        Clock(Instant::now())
    }

    /// Returns the time; at least 1, as 0 stands for no time.
    pub(super) fn now(self) -> u64 {
        u64::try_from(self.0.elapsed().as_millis()).unwrap_or(u64::MAX).max(1)
    }
}

/// The parts of a server that are configured, or found by its name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Found {
    pub address: Address,
    /// The address with the name that has led to it.
    pub origin: Option<Address>,
    pub weight: u32,
    /// Servers with the lowest level that are up get all requests.
    pub level: u32,
}

/// A server of a group.
pub struct GroupServer {
    /// The server's address.
    pub address: Address,
    /// The address with a name in place of the IP address, if the server was found by that name.
    pub origin: Option<Address>,
    /// Requests that were forwarded to the server, those that failed included.
    pub requests: AtomicU64,
    /// Requests that failed on it.
    pub failures: AtomicU64,
    /// Requests that failed on it and were sent to another server.
    pub retries: AtomicU64,
    /// Connections to it that were opened for requests.
    pub dials: AtomicU64,
    /// Connections to it that are kept for further requests.
    pub idle: AtomicU64,
    /// The times from a request to the head of its response, connecting included.
    pub(crate) durations: Histogram,
    /// Requests under way on it.
    pub active: AtomicU64,
    /// A number that no other server of the process has.
    pub(super) id: u64,
    /// A key that is the same for the same address in all processes.
    pub(super) key: u64,
    weight: AtomicU32,
    level: AtomicU32,
    is_gone: AtomicBool,
    /// Set by active checks, and by failures if there are such checks.
    pub(super) down: AtomicBool,
    /// Requests that failed since the last answer.
    pub(super) failures_in_row: AtomicU32,
    pub(super) good_checks: AtomicU32,
    pub(super) bad_checks: AtomicU32,
    /// The time until which the server is left out after failures; 0 if it is not.
    pub(super) paused_until: AtomicU64,
    /// Limits the reports of each kind of failure.
    pub(super) faults: [RateLimited; KINDS],
    pub(super) changes: RateLimited,
}

impl GroupServer {
    pub(super) fn new(found: &Found) -> GroupServer {
        static LAST: AtomicU64 = AtomicU64::new(0);
        GroupServer {
            address: found.address.clone(),
            origin: found.origin.clone(),
            requests: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            retries: AtomicU64::new(0),
            dials: AtomicU64::new(0),
            idle: AtomicU64::new(0),
            durations: Histogram::default(),
            active: AtomicU64::new(0),
            id: LAST.fetch_add(1, Ordering::Relaxed),
            key: balance::hash(found.address.to_string().as_bytes()),
            weight: AtomicU32::new(found.weight),
            level: AtomicU32::new(found.level),
            is_gone: AtomicBool::new(false),
            down: AtomicBool::new(false),
            failures_in_row: AtomicU32::new(0),
            good_checks: AtomicU32::new(0),
            bad_checks: AtomicU32::new(0),
            paused_until: AtomicU64::new(0),
            faults: [const { RateLimited::new(FAILURES) }; KINDS],
            changes: RateLimited::new(CHANGES),
        }
    }

    /// Returns the address with the name that servers, and their certificates, are told.
    pub(super) fn named_address(&self) -> &Address {
        self.origin.as_ref().unwrap_or(&self.address)
    }

    /// Returns the server's full share of the group's requests, as a multiple of weight 1.
    #[must_use]
    pub fn weight(&self) -> u32 {
        self.weight.load(Ordering::Relaxed)
    }

    pub(super) fn level(&self) -> u32 {
        self.level.load(Ordering::Relaxed)
    }

    /// Whether this is the server that was found, whatever its weight.
    pub(super) fn is(&self, found: &Found) -> bool {
        self.address == found.address && self.origin == found.origin
    }

    /// Takes on another weight and level.
    pub(super) fn weigh(&self, found: &Found) {
        self.weight.store(found.weight, Ordering::Relaxed);
        self.level.store(found.level, Ordering::Relaxed);
    }

    /// Marks a server that is no longer one of its group's.
    pub(super) fn leave(&self) {
        self.is_gone.store(true, Ordering::Relaxed);
    }

    /// Whether the server is no longer one of its group's.
    pub(super) fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Relaxed)
    }

    /// Whether there is a reason not to forward to the server that is believed even if no other
    /// server is left.
    pub(super) fn is_down(&self) -> bool {
        self.down.load(Ordering::Relaxed)
    }

    /// Returns the time until which the server is left out for a while; 0 if it is not.
    pub(super) fn left_out_until(&self) -> u64 {
        self.paused_until.load(Ordering::Relaxed)
    }

    /// Returns the weight with which the server gets requests now, or `None` if it gets none.
    pub(super) fn share(&self, clock: Clock) -> Option<u32> {
        let until = self.left_out_until();
        let is_up = !self.is_down() && (until == 0 || until <= clock.now());
        is_up.then(|| self.weight())
    }
}
