//! The most messages that one client may publish (`publish_rate`), for all channels of a route.
//!
//! A client is an IP address, or a network of IPv6 (`connection_limits`). Those without an address
//! are one. The bounds are those of the table ([`RateTable`]).

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use superpoll_config::Rate;
use superpoll_http::connection_limits;
use superpoll_http::rate_table::{RateTable, TooFast};

/// The clients of a route that have published lately, and the rate at which they may publish.
pub(super) struct PublishLimits {
    table: RateTable<Option<IpAddr>>,
    /// The messages that were refused.
    refused: AtomicU64,
}

impl PublishLimits {
    /// Creates the table of a route.
    pub(super) fn new(rate: Option<Rate>) -> PublishLimits {
        PublishLimits { table: RateTable::new(rate), refused: AtomicU64::new(0) }
    }

    /// Changes the rate from now on. Clients begin again if it is another one.
    pub(super) fn change(&self, rate: Option<Rate>) {
        self.table.change(rate);
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
    pub(super) fn admit(&self, client: Option<IpAddr>) -> Result<(), TooFast> {
        self.table.admit(client.map(connection_limits::client))
    }

    /// Counts a message that was refused.
    pub(super) fn count_refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }
}

/// Returns the reason for a client that publishes faster than it may.
pub(super) fn reason(too_fast: TooFast) -> String {
    let seconds = too_fast.seconds();
    let after = if seconds == 1 { "a second".to_owned() } else { format!("{seconds} seconds") };
    let rate = too_fast.rate.in_words("message");
    format!(
        "a client may publish {rate} here; this message was not published, try again in {after}"
    )
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    #[test]
    fn a_network_of_ipv6_is_one_client() {
        let limits = PublishLimits::new(Rate::parse("1/m"));
        let client = |text: &str| Some(text.parse::<Ipv6Addr>().unwrap().into());
        limits.admit(client("2001:db8::1")).unwrap();
        let refused = limits.admit(client("2001:db8::f:0:0:2")).unwrap_err();
        let words = "a client may publish 1 message a minute here";
        assert!(reason(refused).starts_with(words), "{}", reason(refused));
        limits.admit(client("2001:db8:0:1::1")).unwrap();
        limits.admit(client("::ffff:192.0.2.1")).unwrap();
        limits.admit(Some(Ipv4Addr::new(192, 0, 2, 1).into())).unwrap_err();
    }
}
