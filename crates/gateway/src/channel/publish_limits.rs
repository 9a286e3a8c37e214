//! The most messages that one client may publish (`publish_rate`), for all channels of a route.
//!
//! A client is an IP address, or a network of IPv6 (`connection_limits`). The table has one
//! moment for it: the end of the time that its messages so far take at the rate, one after another. A
//! message is admitted if that moment is no further ahead than a burst allows. A client whose
//! moment has passed is like a client that has never published, and so it is forgotten with the
//! next sweep: the table has as many clients as have published within the last burst, give or take
//! a factor of two.
//!
//! The table has a bound, [`MOST_CLIENTS`]. Clients that come while it is full share the allowance
//! of one client. So a flood from many addresses neither grows the table nor escapes the limit, and
//! the clients in the table are not affected by it. A sweep looks at the whole table, and there are
//! at most four in a second.
//!
//! All engines share the table. Without the option it is empty, and a message costs one look at a
//! number.

use std::collections::HashMap;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::counters;
use super::hub::Hub;
use super::rights::Rights;
use crate::config::PublishRate;
use crate::connection_limits;

/// The most clients that are known at a time. They take about 4 MiB.
const MOST_CLIENTS: usize = 1 << 16;

/// The number of clients from which on the table is swept.
const LEAST_SWEPT: usize = 64;

/// The least time between two sweeps.
const SWEEP_PERIOD: u64 = 250_000_000;

/// Returns the nanoseconds since the first call of the process.
fn now() -> u64 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    nanoseconds(START.elapsed())
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// The clients of a route that have published lately, and the rate at which they may publish.
pub(super) struct PublishLimits {
    /// The nanoseconds between two messages at the rate; zero: there is no limit.
    interval: AtomicU64,
    /// The messages that were refused.
    refused: AtomicU64,
    clients: Mutex<Clients>,
}

/// The moments until which the messages of each client take. Those without an address are one.
struct Clients {
    rate: Option<PublishRate>,
    known: HashMap<Option<IpAddr>, u64>,
    /// The moment of all clients for which there is no room.
    others: u64,
    most: usize,
    /// The number of clients, and the time, from which on the table is swept.
    swept_from: usize,
    next_sweep: u64,
}

impl PublishLimits {
    /// Creates the table of a route.
    pub(super) fn new(rate: Option<PublishRate>) -> PublishLimits {
        PublishLimits::with_room(rate, MOST_CLIENTS)
    }

    fn with_room(rate: Option<PublishRate>, most: usize) -> PublishLimits {
        let clients = Clients {
            rate: None,
            known: HashMap::new(),
            others: 0,
            most,
            swept_from: LEAST_SWEPT.min(most),
            next_sweep: 0,
        };
        let (interval, refused) = (AtomicU64::new(0), AtomicU64::new(0));
        let limits = PublishLimits { interval, refused, clients: Mutex::new(clients) };
        limits.change(rate);
        limits
    }

    fn clients(&self) -> MutexGuard<'_, Clients> {
        // No code that can panic runs under the lock.
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the rate from now on. Clients begin anew if it is another one.
    pub(super) fn change(&self, rate: Option<PublishRate>) {
        let mut clients = self.clients();
        if clients.rate == rate {
            return;
        }
        clients.rate = rate;
        clients.known = HashMap::new();
        clients.others = 0;
        clients.swept_from = LEAST_SWEPT.min(clients.most);
        let interval = rate.map_or(0, |rate| nanoseconds(rate.interval()));
        self.interval.store(interval, Ordering::Relaxed);
    }

    /// Returns how many messages were refused.
    pub(super) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Counts a message of a client in, if it may publish one now.
    ///
    /// # Errors
    ///
    /// It may not; the time after which it may.
    fn admit(&self, client: Option<IpAddr>) -> Result<(), TooFast> {
        if self.interval.load(Ordering::Relaxed) == 0 {
            return Ok(());
        }
        self.admit_at(client, now())
    }

    fn admit_at(&self, client: Option<IpAddr>, now: u64) -> Result<(), TooFast> {
        let mut clients = self.clients();
        let Some(rate) = clients.rate else { return Ok(()) };
        let interval = nanoseconds(rate.interval());
        let ahead = interval.saturating_mul(u64::from(rate.burst() - 1));
        let until = clients.until(client.map(connection_limits::client), now);
        let begins = (*until).max(now);
        if begins - now > ahead {
            let wait = Duration::from_nanos(begins - now - ahead);
            return Err(TooFast { wait, rate });
        }
        *until = begins.saturating_add(interval);
        Ok(())
    }
}

impl Clients {
    /// Returns the moment of a client.
    fn until(&mut self, client: Option<IpAddr>, now: u64) -> &mut u64 {
        if !self.known.contains_key(&client) {
            if self.known.len() >= self.swept_from && now >= self.next_sweep {
                self.sweep(now);
            }
            if self.known.len() >= self.most {
                return &mut self.others;
            }
        }
        self.known.entry(client).or_insert(0)
    }

    /// Forgets clients that may publish as much as those that have never published.
    fn sweep(&mut self, now: u64) {
        self.known.retain(|_, until| *until > now);
        let len = self.known.len();
        if self.known.capacity() > 8 * len.max(LEAST_SWEPT) {
            self.known.shrink_to(2 * len);
        }
        self.swept_from = (2 * len).max(LEAST_SWEPT).min(self.most);
        self.next_sweep = now.saturating_add(SWEEP_PERIOD);
    }
}

/// A client publishes faster than it may.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct TooFast {
    /// The time after which it may publish again.
    pub wait: Duration,
    pub rate: PublishRate,
}

impl TooFast {
    /// Returns the reason for the client.
    pub(super) fn reason(self) -> String {
        let seconds = self.seconds();
        let after = if seconds == 1 { "a second".to_owned() } else { format!("{seconds} seconds") };
        let rate = self.rate;
        format!(
            "a client may publish {rate} here; this message was not published, try again in {after}"
        )
    }

    /// Returns the whole seconds after which the client may try again, at least one.
    pub(super) fn seconds(self) -> u64 {
        self.wait.as_secs() + u64::from(self.wait.subsec_nanos() > 0)
    }
}

/// One client, as a publisher to the channels of a route.
pub(super) struct PublisherLimit {
    pub limits: Arc<PublishLimits>,
    pub rights: Rc<Rights>,
    pub client: Option<IpAddr>,
}

impl PublisherLimit {
    /// Counts a message in, if the client may publish one now.
    ///
    /// # Errors
    ///
    /// It may not, which was reported.
    pub(super) fn admit(&self, name: &str) -> Result<(), TooFast> {
        let admitted = self.limits.admit(self.client);
        if let Err(TooFast { rate, .. }) = admitted {
            self.rights.report_too_fast(name, self.client, rate);
        }
        admitted
    }

    /// Counts a message that was refused. Its channel may not exist.
    pub(super) fn count_refused(&self, hub: Option<&Hub>) {
        self.limits.refused.fetch_add(1, Ordering::Relaxed);
        if let Some(hub) = hub {
            counters::count(&hub.counters().refused, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use proptest::prelude::*;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn rate(text: &str) -> Option<PublishRate> {
        Some(PublishRate::parse(text).unwrap())
    }

    fn address(number: u32) -> Option<IpAddr> {
        Some(Ipv4Addr::from(number).into())
    }

    #[test]
    fn a_burst_of_a_second_and_then_the_rate() {
        let limits = PublishLimits::new(rate("4/s"));
        let client = address(1);
        let start = 5 * SECOND;
        for _ in 0..4 {
            limits.admit_at(client, start).unwrap();
        }
        let refused = limits.admit_at(client, start).unwrap_err();
        assert_eq!((refused.wait, refused.seconds()), (Duration::from_millis(250), 1));
        assert!(refused.reason().contains("4 messages a second"), "{}", refused.reason());
        // A message that was refused costs nothing.
        limits.admit_at(client, start + SECOND / 4 - 1).unwrap_err();
        limits.admit_at(client, start + SECOND / 4).unwrap();
        limits.admit_at(client, start + SECOND / 4).unwrap_err();
        // Others have their own.
        limits.admit_at(address(2), start).unwrap();
        limits.admit_at(None, start).unwrap();
        // Silence earns no more than a burst.
        let later = start + 100 * SECOND;
        let admitted = (0..9).filter(|_| limits.admit_at(client, later).is_ok()).count();
        assert_eq!(admitted, 4);

        let limits = PublishLimits::new(rate("1/m"));
        limits.admit_at(client, start).unwrap();
        let refused = limits.admit_at(client, start + SECOND / 2).unwrap_err();
        assert_eq!(refused.seconds(), 60);
        limits.admit_at(client, start + 60 * SECOND).unwrap();
    }

    #[test]
    fn a_network_of_ipv6_is_one_client() {
        let limits = PublishLimits::new(rate("1/s"));
        let client = |text: &str| Some(text.parse::<Ipv6Addr>().unwrap().into());
        limits.admit_at(client("2001:db8::1"), 0).unwrap();
        limits.admit_at(client("2001:db8::f:0:0:2"), 0).unwrap_err();
        limits.admit_at(client("2001:db8:0:1::1"), 0).unwrap();
        limits.admit_at(client("::ffff:192.0.2.1"), 0).unwrap();
        limits.admit_at(Some(Ipv4Addr::new(192, 0, 2, 1).into()), 0).unwrap_err();
    }

    #[test]
    fn a_changed_rate_counts_at_once_and_the_same_rate_changes_nothing() {
        let limits = PublishLimits::new(None);
        assert!((0..99).all(|_| limits.admit(address(1)).is_ok()));
        assert_eq!(limits.clients().known.len(), 0);
        limits.change(rate("1/m"));
        limits.admit(address(1)).unwrap();
        limits.change(rate("1/m"));
        limits.admit(address(1)).unwrap_err();
        limits.change(rate("2/m"));
        limits.admit(address(1)).unwrap();
        limits.change(None);
        assert_eq!(limits.clients().known.len(), 0);
        limits.admit(address(1)).unwrap();
    }

    #[test]
    fn a_flood_of_clients_neither_grows_the_table_nor_escapes_the_limit() {
        let most = 200;
        let limits = PublishLimits::with_room(rate("2/s"), most);
        let mut admitted = 0;
        for number in 0..10_000 {
            admitted += u64::from(limits.admit_at(address(number), SECOND).is_ok());
        }
        assert_eq!(limits.clients().known.len(), most);
        // One for each in the table, and a burst of two for all others.
        assert_eq!(admitted, most as u64 + 2);
        // A client in the table is not affected.
        limits.admit_at(address(7), SECOND).unwrap();
        limits.admit_at(address(7), SECOND).unwrap_err();
        // When the flood is over there is room again, and the memory is given back.
        for number in 20_000..20_003 {
            limits.admit_at(address(number), 9 * SECOND).unwrap();
            limits.admit_at(address(number), 9 * SECOND).unwrap();
        }
        let clients = limits.clients();
        assert_eq!(clients.known.len(), 3);
        assert!(clients.known.capacity() < most, "{}", clients.known.capacity());
    }

    proptest! {
        /// The model is a bucket of a second's messages for each client, which fills at the rate.
        #[test]
        fn clients_have_a_bucket_each(
            text in prop::sample::select(vec!["1/s", "3/s", "90/m", "240/m", "7/m"]),
            steps in prop::collection::vec((0..9_u32, 0..SECOND), 1..300),
        ) {
            let rate = rate(text);
            let limits = PublishLimits::with_room(rate, 1000);
            let interval = nanoseconds(rate.unwrap().interval());
            let full = interval * u64::from(rate.unwrap().burst());
            let mut buckets = HashMap::new();
            let mut now = 0;
            for (client, step) in steps {
                now += step;
                // Other clients come and go, so that the table is swept.
                for other in 0..30 {
                    let _ = limits.admit_at(address(1000 + other + client * 100), now);
                }
                let (level, at) = buckets.entry(client).or_insert((full, now));
                *level = full.min(*level + (now - *at));
                *at = now;
                let may = *level >= interval;
                if may {
                    *level -= interval;
                }
                match limits.admit_at(address(client), now) {
                    Ok(()) => prop_assert!(may),
                    Err(TooFast { wait, .. }) => {
                        prop_assert!(!may);
                        prop_assert_eq!(nanoseconds(wait), interval - *level);
                    }
                }
            }
        }
    }
}
