//! Limits on the number of connections, of all clients and of one client.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The counts of connections that the engines of a server share. Limits may change while they are
/// in use; a connection that has a permit keeps it.
#[derive(Debug, Default)]
pub struct ConnectionLimits {
    in_use: AtomicU32,
    /// Those that have ever been counted.
    begun: AtomicU64,
    /// Zero before there is a limit, and never after.
    most: AtomicU32,
    /// Zero: no limit, and connections are not counted by client.
    most_of_one: AtomicU32,
    clients: Mutex<HashMap<IpAddr, u32>>,
}

/// The reason for which there is no permit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LimitReached {
    /// All clients together have as many connections as they may.
    Total,
    /// This client has as many connections as it may.
    Client,
}

/// A connection's permit, given back on drop.
#[derive(Debug)]
pub struct ConnectionPermit {
    connection_limits: Arc<ConnectionLimits>,
    counted: Option<IpAddr>,
}

/// The unit that counts as one client: an address, or an IPv6 network, since one subscriber of a
/// provider has 2^64 addresses.
pub fn client(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let network = u128::from(address) & !u128::from(u64::MAX);
            Ipv6Addr::from(network).into()
        }
        address => address,
    }
}

impl ConnectionLimits {
    /// Sets the most connections of all clients and of each; `None` is no limit.
    pub fn limit(&self, all: Option<NonZeroU32>, of_one: Option<NonZeroU32>) {
        self.most.store(all.map_or(0, NonZeroU32::get), Ordering::Relaxed);
        self.most_of_one.store(of_one.map_or(0, NonZeroU32::get), Ordering::Relaxed);
    }

    /// Returns how many connections are counted now.
    pub fn in_use(&self) -> u32 {
        self.in_use.load(Ordering::Relaxed)
    }

    /// Returns how many connections are counted now, and how many have ever been.
    pub(crate) fn in_use_and_begun(&self) -> (u32, u64) {
        (self.in_use(), self.begun.load(Ordering::Relaxed))
    }

    /// Returns a permit for a connection of a client, whose address is unknown in the Unix domain.
    pub fn acquire(
        self: &Arc<ConnectionLimits>,
        address: Option<IpAddr>,
    ) -> Result<ConnectionPermit, LimitReached> {
        let most = self.most.load(Ordering::Relaxed);
        let before = self.in_use.fetch_add(1, Ordering::Relaxed);
        // From here on, dropping the permit gives the count back.
        let mut permit = ConnectionPermit { connection_limits: self.clone(), counted: None };
        if most > 0 && before >= most {
            return Err(LimitReached::Total);
        }
        permit.count(address)?;
        self.begun.fetch_add(1, Ordering::Relaxed);
        Ok(permit)
    }
}

impl ConnectionPermit {
    /// Counts the permit as a permit of a client, as soon as the client is known.
    pub fn count(&mut self, address: Option<IpAddr>) -> Result<(), LimitReached> {
        let most = self.connection_limits.most_of_one.load(Ordering::Relaxed);
        let Some(address) = address.map(client).filter(|_| most > 0 && self.counted.is_none())
        else {
            return Ok(());
        };
        // No code that can panic runs under the lock.
        let mut clients =
            self.connection_limits.clients.lock().unwrap_or_else(PoisonError::into_inner);
        let count = clients.entry(address).or_insert(0);
        if *count >= most {
            return Err(LimitReached::Client);
        }
        *count += 1;
        self.counted = Some(address);
        Ok(())
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.connection_limits.in_use.fetch_sub(1, Ordering::Relaxed);
        let Some(address) = self.counted else { return };
        let mut clients =
            self.connection_limits.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = clients.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                clients.remove(&address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_permit_can_be_acquired_again() {
        let connection_limits = Arc::new(ConnectionLimits::default());
        connection_limits.limit(NonZeroU32::new(3), NonZeroU32::new(2));
        let one = Some(IpAddr::from([192, 0, 2, 1]));
        let first = connection_limits.acquire(one).unwrap();
        let _second = connection_limits.acquire(one).unwrap();
        assert_eq!(connection_limits.acquire(one).unwrap_err(), LimitReached::Client);
        let third = connection_limits.acquire(Some(IpAddr::from([192, 0, 2, 2]))).unwrap();
        assert_eq!(connection_limits.acquire(None).unwrap_err(), LimitReached::Total);
        assert_eq!(connection_limits.in_use(), 3);
        drop(first);
        let again = connection_limits.acquire(one).unwrap();
        drop((third, again));
        assert_eq!(connection_limits.in_use(), 1);
        assert_eq!(connection_limits.clients.lock().unwrap().len(), 1);
    }

    #[test]
    fn an_ipv6_network_is_one_client() {
        let connection_limits = Arc::new(ConnectionLimits::default());
        connection_limits.limit(None, NonZeroU32::new(1));
        let _seat = connection_limits.acquire(Some("2001:db8::1".parse().unwrap())).unwrap();
        assert!(connection_limits.acquire(Some("2001:db8::ffff:2".parse().unwrap())).is_err());
        assert!(connection_limits.acquire(Some("2001:db8:0:1::1".parse().unwrap())).is_ok());
        let _mapped = connection_limits.acquire(Some("::ffff:192.0.2.1".parse().unwrap())).unwrap();
        assert!(connection_limits.acquire(Some("192.0.2.1".parse().unwrap())).is_err());
    }
}
