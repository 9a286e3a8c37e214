//! A table of clients and of how much of a rate each of them has used, for the messages, requests
//! or failed logins of one client.
//!
//! The table has one moment for each client: the end of the time that its events so far take at the
//! rate, one after another. An event is admitted if that moment is no further ahead than a burst
//! allows. A client whose moment has passed is like a client that has never come, and so it is
//! forgotten with the next sweep: the table has as many clients as have come within the last burst,
//! give or take a factor of two.
//!
//! The table has a bound, `MOST_CLIENTS`. Clients that come while it is full share the allowance
//! of one client. So a flood from many addresses neither grows the table nor escapes the limit, and
//! the clients in the table are not affected by it. A sweep looks at the whole table, and there are
//! at most four in a second.
//!
//! All engines share the table. Without a rate it is empty, and an event costs one look at a
//! number.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use superpoll_config::Rate;
use superpoll_rt::time;

/// The most clients that are known at a time. They take about 4 MiB.
const MOST_CLIENTS: usize = 1 << 16;

/// The number of clients from which on the table is swept.
const LEAST_SWEPT: usize = 64;

/// The least time between two sweeps.
const SWEEP_PERIOD: u64 = 250_000_000;

/// Returns the nanoseconds since the first call of the process.
fn now() -> u64 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    nanoseconds(time::now().saturating_duration_since(*START))
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// The clients that have arrived lately, by a key, and the rate at which they may come.
pub struct RateTable<K> {
    /// The nanoseconds between two events at the rate; zero: there is no limit.
    interval: AtomicU64,
    clients: Mutex<Clients<K>>,
}

/// The moments until which the events of each client take.
struct Clients<K> {
    rate: Option<Rate>,
    known: HashMap<K, u64>,
    /// The moment of all clients for which there is no room.
    others: u64,
    most: usize,
    /// The number of clients, and the time, from which on the table is swept.
    swept_from: usize,
    next_sweep: u64,
}

impl<K: Copy + Eq + Hash> RateTable<K> {
    /// Creates a table.
    #[inline]
    pub fn new(rate: Option<Rate>) -> RateTable<K> {
        RateTable::with_room(rate, MOST_CLIENTS)
    }

    fn with_room(rate: Option<Rate>, most: usize) -> RateTable<K> {
        let clients = Clients {
            rate: None,
            known: HashMap::new(),
            others: 0,
            most,
            swept_from: LEAST_SWEPT.min(most),
            next_sweep: 0,
        };
        let table = RateTable { interval: AtomicU64::new(0), clients: Mutex::new(clients) };
        table.change(rate);
        table
    }

    fn clients(&self) -> MutexGuard<'_, Clients<K>> {
        // No code that can panic runs under the lock.
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the rate from now on. Clients begin again if it is another one.
    pub fn change(&self, rate: Option<Rate>) {
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

    /// Counts an event of a client in, if there may be one now.
    ///
    /// # Errors
    ///
    /// There may not; the time after which there may.
    pub fn admit(&self, client: K) -> Result<(), TooFast> {
        if self.interval.load(Ordering::Relaxed) == 0 {
            return Ok(());
        }
        self.admit_at(client, now())
    }

    fn admit_at(&self, client: K, now: u64) -> Result<(), TooFast> {
        let mut clients = self.clients();
        let Some(rate) = clients.rate else { return Ok(()) };
        let until = clients.until(client, now);
        let begins = (*until).max(now);
        check(rate, begins - now)?;
        *until = begins.saturating_add(nanoseconds(rate.interval()));
        Ok(())
    }

    /// Whether an event of a client would be counted in now.
    ///
    /// # Errors
    ///
    /// As for [`admit`](RateTable::admit).
    pub(crate) fn look(&self, client: K) -> Result<(), TooFast> {
        if self.interval.load(Ordering::Relaxed) == 0 {
            return Ok(());
        }
        let (clients, now) = (self.clients(), now());
        let Some(rate) = clients.rate else { return Ok(()) };
        let is_full = clients.known.len() >= clients.most;
        let others = if is_full { clients.others } else { 0 };
        let until = clients.known.get(&client).copied().unwrap_or(others);
        check(rate, until.max(now) - now)
    }

    /// Takes back an event that was counted in and does not count after all.
    pub(crate) fn give_back(&self, client: K) {
        let mut clients = self.clients();
        let Some(rate) = clients.rate else { return };
        let interval = nanoseconds(rate.interval());
        let Clients { known, others, most, .. } = &mut *clients;
        let is_full = known.len() >= *most;
        match known.get_mut(&client) {
            Some(until) => *until = until.saturating_sub(interval),
            None if is_full => *others = others.saturating_sub(interval),
            // It was forgotten, as it may come again.
            None => {}
        }
    }
}

/// Checks that a client may come at a rate while its events so far take this much more time.
fn check(rate: Rate, taken: u64) -> Result<(), TooFast> {
    let ahead = nanoseconds(rate.interval()).saturating_mul(u64::from(rate.burst() - 1));
    match taken.checked_sub(ahead) {
        None | Some(0) => Ok(()),
        Some(wait) => Err(TooFast { wait: Duration::from_nanos(wait), rate }),
    }
}

impl<K: Copy + Eq + Hash> Clients<K> {
    /// Returns the moment of a client.
    fn until(&mut self, client: K, now: u64) -> &mut u64 {
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

    /// Forgets clients that may do as much as those that have never come.
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

/// A client comes faster than it may.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooFast {
    /// The time after which it may come again.
    pub wait: Duration,
    /// The rate that is exceeded.
    pub rate: Rate,
}

impl TooFast {
    /// Returns the whole seconds after which the client may try again, at least one.
    #[inline]
    pub fn seconds(self) -> u64 {
        self.wait.as_secs() + u64::from(self.wait.subsec_nanos() > 0)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use proptest::prelude::*;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn rate(text: &str) -> Option<Rate> {
        Some(Rate::parse(text).unwrap())
    }

    fn address(number: u32) -> Option<IpAddr> {
        Some(Ipv4Addr::from(number).into())
    }

    #[test]
    fn a_burst_of_a_second_and_then_the_rate() {
        let limits = RateTable::new(rate("4/s"));
        let client = address(1);
        let start = 5 * SECOND;
        for _ in 0..4 {
            limits.admit_at(client, start).unwrap();
        }
        let refused = limits.admit_at(client, start).unwrap_err();
        assert_eq!((refused.wait, refused.seconds()), (Duration::from_millis(250), 1));
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

        let limits = RateTable::new(rate("1/m"));
        limits.admit_at(client, start).unwrap();
        let refused = limits.admit_at(client, start + SECOND / 2).unwrap_err();
        assert_eq!(refused.seconds(), 60);
        limits.admit_at(client, start + 60 * SECOND).unwrap();
    }

    #[test]
    fn an_event_that_is_given_back_does_not_count() {
        let table = RateTable::with_room(rate("2/s"), 2);
        for client in 0..9 {
            let client = address(client);
            for _ in 0..5 {
                table.admit_at(client, SECOND).unwrap();
                table.give_back(client);
            }
        }
        assert_eq!(table.clients().known.len(), 2);
        for (client, left) in [(2, 2), (3, 2), (0, 2), (1, 0)] {
            let admitted = (0..5).filter(|_| table.admit_at(address(client), SECOND).is_ok());
            assert_eq!(admitted.count(), left, "{client}");
        }
    }

    #[test]
    fn a_look_counts_nothing() {
        let table = RateTable::with_room(rate("2/m burst 2"), 1);
        for _ in 0..5 {
            table.look(1).unwrap();
        }
        table.admit(1).unwrap();
        table.look(1).unwrap();
        table.admit(1).unwrap();
        assert!(table.look(1).unwrap_err().wait > Duration::from_secs(1));
        // The table is full, and further clients are one.
        table.look(2).unwrap();
        table.admit(2).unwrap();
        table.admit(3).unwrap();
        table.look(4).unwrap_err();
        RateTable::<u8>::new(None).look(1).unwrap();
    }

    #[test]
    fn a_burst_may_be_longer_or_shorter_than_a_second() {
        for (text, burst) in [("4/s burst 9", 9), ("4/s burst 1", 1), ("1/m burst 3", 3)] {
            let table = RateTable::new(rate(text));
            let admitted = (0..20).filter(|_| table.admit_at(0, SECOND).is_ok()).count();
            assert_eq!(admitted, burst, "{text}");
        }
    }

    #[test]
    fn a_changed_rate_counts_at_once_and_the_same_rate_changes_nothing() {
        let limits = RateTable::new(None);
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
        let limits = RateTable::with_room(rate("2/s"), most);
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
            let limits = RateTable::with_room(rate, 1000);
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
