//! A server of a group, and its state: whether it gets requests, and how many.
//!
//! ```text
//!           checks fail, or requests (active checks)
//!        ┌─────────────────────────────────────────▶ down ────────┐ checks succeed
//!        │  requests fail (no active checks)                      │
//!   up ──┼─────────────────────────────────────────▶ paused ──────┤ 10 s have passed, or it answers
//!   ▲    │  too many errors (`ejection`)                          │
//!   │    ├─────────────────────────────────────────▶ ejected ─────┤ its time has passed
//!   │    │                                                        ▼
//!   │    └─ its name has lost the address ──▶ gone          slow start ◀── new address of a name
//!   └──────────────────────────────────────────────────────────┘
//! ```
//!
//! A server may be down, paused and ejected at once; it is up when none of the reasons holds. In a
//! slow start (`slow_start`) it is up, with a weight that grows from a tenth to the whole. Servers
//! of the configuration begin without one.
//!
//! [`GroupServer::share`] is the one place that says whether a server is up and with which weight:
//! all ways of balancing ask it. A time that has passed ends a pause without any further event, so
//! no timer is needed, and a server that is up costs three loads and no look at the clock.
//!
//! A server that is gone is in no list any more. Requests on their way to it end as they would
//! have, and its connections are closed instead of kept.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use superpoll_config::Address;
use superpoll_rt::time;

use super::balance;
use super::error_record::ErrorRecord;
use super::fault::KINDS;
use super::local_shortage::PortShortage;
use super::operator_setting::OperatorSetting;
use super::sticky::Sticky;
use crate::admin::ServerState;
use crate::log::RateLimited;
use crate::telemetry::durations::Histogram;
use crate::telemetry::traffic::ServerCondition;

/// The time between two reports of one kind of failure of one server.
const FAILURES: Duration = Duration::from_secs(10);

/// The time between two reports that a server is down, or up again.
const CHANGES: Duration = Duration::from_secs(1);

/// The weight of a server of weight 1 in a group with slow starts, and the least part of it.
const SCALE: u64 = 100;
const LEAST: u64 = 10;

/// The clock of a group, in milliseconds since the group began.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock(Instant);

impl Clock {
    pub(super) fn start() -> Clock {
        Clock(time::now())
    }

    /// Returns the time; at least 1, as 0 stands for no time.
    pub(super) fn now(self) -> u64 {
        u64::try_from((time::now() - self.0).as_millis()).unwrap_or(u64::MAX).max(1)
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

/// The rules of a group for each of its servers.
#[derive(Default)]
pub(super) struct ServerRules {
    /// The duration of a slow start in ms; 0 if there is none.
    pub slow_start: u64,
    pub sticky: Option<Sticky>,
}

/// A server of a group.
pub struct GroupServer {
    /// The server's address.
    pub address: Address,
    /// The same as an address of TCP, if it is one and no name of this machine.
    pub socket_address: Option<SocketAddr>,
    /// The address with a name in place of the IP address, if the server was found by that name.
    pub origin: Option<Address>,
    /// The address as text, for lines of the access log.
    pub label: Arc<str>,
    /// Requests that were forwarded to the server, those that failed included.
    pub requests: AtomicU64,
    /// Requests that failed on it.
    pub failures: AtomicU64,
    /// Requests that failed on it and were sent to another server.
    pub retries: AtomicU64,
    /// Checks of it that a shortage of descriptors, ports or memory of this machine has prevented.
    pub unchecked: AtomicU64,
    /// Whether no local port is left for connections to it.
    pub(super) port_shortage: PortShortage,
    /// Connections to it that were opened for requests.
    pub dials: AtomicU64,
    /// Connections to it that are kept for further requests.
    pub idle: AtomicU64,
    /// The times from a request to the head of its response, connecting included.
    pub durations: Histogram,
    /// Requests under way on it.
    pub active: AtomicU64,
    /// A number that no other server of the process has.
    pub id: u64,
    /// A key that is the same for the same address in all processes.
    pub(super) key: u64,
    /// The place of the server of the configuration that this one is, or was found for.
    slot: AtomicUsize,
    weight: AtomicU32,
    level: AtomicU32,
    /// The setting of an operator.
    pub(super) operator: OperatorSetting,
    is_gone: AtomicBool,
    /// Set by active checks, and by failures if there are such checks.
    pub(super) down: AtomicBool,
    /// Requests that failed since the last answer.
    pub(super) failures_in_row: AtomicU32,
    pub(super) good_checks: AtomicU32,
    pub(super) bad_checks: AtomicU32,
    /// The time until which the server is left out after failures; 0 if it is not.
    pub(super) paused_until: AtomicU64,
    /// Answers and failures; counted where the group ejects servers.
    pub(super) outcomes: AtomicU64,
    pub(super) errors: Mutex<ErrorRecord>,
    /// The time until which the server is left out after errors; 0 if it was not.
    pub(super) ejected_until: AtomicU64,
    /// How often the server was ejected.
    pub ejections: AtomicU64,
    /// The time since which the server is up again; 0 if it has always been.
    pub(super) up_since: AtomicU64,
    /// The duration of a slow start in ms; 0 if there is none.
    slow_start: u64,
    /// The value of the cookie of its clients, if the group has one.
    pub(super) token: Option<String>,
    /// Limits the reports of each kind of failure.
    pub(super) faults: [RateLimited; KINDS],
    pub(super) changes: RateLimited,
}

impl GroupServer {
    /// Creates a server that is up: since a time, or (0) for as long as the group.
    pub(super) fn new(
        found: &Found,
        slot: usize,
        rules: &ServerRules,
        up_since: u64,
    ) -> GroupServer {
        static LAST: AtomicU64 = AtomicU64::new(0);
        GroupServer {
            socket_address: match &found.address {
                Address::Tcp { host: Some(host), port } => {
                    host.parse().ok().map(|ip: IpAddr| (ip, *port).into())
                }
                _ => None,
            },
            address: found.address.clone(),
            origin: found.origin.clone(),
            label: found.address.to_string().into(),
            requests: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            retries: AtomicU64::new(0),
            unchecked: AtomicU64::new(0),
            port_shortage: PortShortage::default(),
            dials: AtomicU64::new(0),
            idle: AtomicU64::new(0),
            durations: Histogram::default(),
            active: AtomicU64::new(0),
            id: LAST.fetch_add(1, Ordering::Relaxed),
            key: balance::hash(found.address.to_string().as_bytes()),
            slot: AtomicUsize::new(slot),
            weight: AtomicU32::new(found.weight),
            level: AtomicU32::new(found.level),
            operator: OperatorSetting::default(),
            is_gone: AtomicBool::new(false),
            down: AtomicBool::new(false),
            failures_in_row: AtomicU32::new(0),
            good_checks: AtomicU32::new(0),
            bad_checks: AtomicU32::new(0),
            paused_until: AtomicU64::new(0),
            outcomes: AtomicU64::new(0),
            errors: Mutex::default(),
            ejected_until: AtomicU64::new(0),
            ejections: AtomicU64::new(0),
            up_since: AtomicU64::new(up_since),
            slow_start: rules.slow_start,
            token: rules.sticky.as_ref().map(|sticky| sticky.token(&found.address)),
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
        self.operator.weight(self.configured_weight())
    }

    /// Returns the weight that an operator's is in place of.
    pub(super) fn configured_weight(&self) -> u32 {
        self.weight.load(Ordering::Relaxed)
    }

    pub(super) fn slot(&self) -> usize {
        self.slot.load(Ordering::Relaxed)
    }

    pub(super) fn level(&self) -> u32 {
        self.level.load(Ordering::Relaxed)
    }

    /// Whether this is the server that was found, whatever its weight.
    pub(super) fn is(&self, found: &Found) -> bool {
        self.address == found.address && self.origin == found.origin
    }

    /// Takes on another weight and level.
    pub(super) fn weigh(&self, found: &Found, slot: usize) {
        self.slot.store(slot, Ordering::Relaxed);
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
        self.down.load(Ordering::Relaxed) || !self.operator.takes_requests()
    }

    /// Whether checks, requests and answers give no reason to leave the server out, whatever an
    /// operator has set.
    pub(super) fn is_healthy(&self, now: u64) -> bool {
        !self.down.load(Ordering::Relaxed) && self.left_out_until() <= now
    }

    /// Returns the time until which the server is ejected; 0 if it never was.
    pub(super) fn ejected_until(&self) -> u64 {
        self.ejected_until.load(Ordering::Relaxed)
    }

    /// Returns the time until which the server is left out for a while; 0 if it is not.
    pub(super) fn left_out_until(&self) -> u64 {
        self.paused_until.load(Ordering::Relaxed).max(self.ejected_until())
    }

    /// Returns the weight with which the server gets requests now, or `None` if it gets none. All
    /// servers of a group have weights of the same scale.
    pub(super) fn share(&self, now: impl FnOnce() -> u64) -> Option<u32> {
        if self.is_down() {
            return None;
        }
        let until = self.left_out_until();
        if self.slow_start == 0 {
            return (until == 0 || until <= now()).then(|| self.weight());
        }
        let whole = u64::from(self.weight()) * SCALE;
        let since = until.max(self.up_since.load(Ordering::Relaxed));
        let share = match since {
            0 => whole,
            since => {
                let up_for = now().checked_sub(since)?.min(self.slow_start);
                // Both factors are below 2^40, as configurations limit durations.
                let grown = u128::from(whole) * u128::from(up_for) / u128::from(self.slow_start);
                u64::try_from(grown).unwrap_or(whole).max(whole / SCALE * LEAST)
            }
        };
        Some(u32::try_from(share).unwrap_or(u32::MAX))
    }

    /// Returns the condition of the server, for operators.
    pub(super) fn condition(&self, now: u64) -> ServerCondition {
        let paused_until = self.paused_until.load(Ordering::Relaxed);
        let since = self.left_out_until().max(self.up_since.load(Ordering::Relaxed));
        match self.operator.state() {
            ServerState::Down => ServerCondition::SetDown,
            ServerState::Drain => ServerCondition::Drain,
            ServerState::Up if self.down.load(Ordering::Relaxed) => ServerCondition::Unhealthy,
            ServerState::Up if self.ejected_until() > now => ServerCondition::Ejected,
            ServerState::Up if paused_until > now => ServerCondition::Paused,
            ServerState::Up if since > 0 && now.saturating_sub(since) < self.slow_start => {
                ServerCondition::SlowStart
            }
            ServerState::Up => ServerCondition::Up,
        }
    }

    /// Notes that the server is up again.
    pub(super) fn begin_slowly(&self, clock: Clock) {
        if self.slow_start > 0 {
            self.up_since.store(clock.now(), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::group::tests::group_of;
    use super::*;
    use crate::telemetry::traffic::ServerCondition::{Ejected, Paused, SlowStart, Unhealthy, Up};

    #[test]
    fn the_weight_of_a_server_that_comes_back_grows() {
        let group = group_of(2, "slow_start = \"10s\"");
        let server = &group.members()[0];
        let at = |now: u64| server.share(|| now);
        // A server of the configuration begins with its whole weight.
        assert_eq!((at(1), at(5_000)), (Some(100), Some(100)));
        server.paused_until.store(1_000, Ordering::Relaxed);
        assert_eq!(at(999), None);
        for (now, share) in
            [(1_000, 10), (1_500, 10), (2_000, 10), (3_000, 20), (6_000, 50), (11_000, 100)]
        {
            assert_eq!(at(now), Some(share), "{now}");
        }
        assert_eq!(at(1_000_000), Some(100));
        let conditions = [999, 1_000, 10_999, 11_000].map(|now| server.condition(now));
        assert_eq!(conditions, [Paused, SlowStart, SlowStart, Up]);
        // The last reason that ends decides.
        server.ejected_until.store(2_000, Ordering::Relaxed);
        server.up_since.store(4_000, Ordering::Relaxed);
        assert_eq!((at(1_500), at(9_000), at(14_000)), (None, Some(50), Some(100)));
        assert_eq!(
            [1_999, 2_000, 14_000].map(|now| server.condition(now)),
            [Ejected, SlowStart, Up]
        );
        server.down.store(true, Ordering::Relaxed);
        assert_eq!((at(14_000), server.condition(14_000)), (None, Unhealthy));
    }

    #[test]
    fn a_check_that_succeeds_begins_a_slow_start() {
        let group = group_of(2, "slow_start = \"1h\"\nhealth = { rise = 1, fall = 1 }");
        let server = &group.members()[0];
        let share = || server.share(|| group.clock.now());
        assert_eq!(share(), Some(100));
        group.checked(server, Err("no".to_owned()));
        assert_eq!(share(), None);
        group.checked(server, Ok(()));
        assert_eq!(share(), Some(10));
        group.checked(server, Ok(()));
        assert_eq!(share(), Some(10));
    }

    #[test]
    fn without_slow_start_the_weight_is_whole_at_once() {
        let group = group_of(1, "");
        let server = &group.members()[0];
        server.paused_until.store(1_000, Ordering::Relaxed);
        assert_eq!((server.share(|| 999), server.share(|| 1_000)), (None, Some(1)));
    }
}
