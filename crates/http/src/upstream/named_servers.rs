//! The servers of a group that are found by one name, and the counts of its look-ups.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use superpoll_config::Upstream;

use crate::log::RateLimited;

/// The time between two reports that a name cannot be looked up.
const FAILURES: Duration = Duration::from_secs(60);

/// The servers that are found by one name.
pub struct NamedServers {
    /// The place among the servers of the configuration.
    pub(super) slot: usize,
    /// The name as the configuration has it.
    pub text: String,
    /// Look-ups, and those of them that have failed.
    pub lookups: AtomicU64,
    pub failures: AtomicU64,
    /// The servers that are known.
    pub servers: AtomicU64,
    pub(super) reports: RateLimited,
}

impl NamedServers {
    /// Returns those of the servers of a configuration that are found by names.
    pub(super) fn all(config: &Upstream) -> Vec<NamedServers> {
        let servers = config.servers.iter().enumerate();
        let named = servers.filter(|(_, server)| server.address.is_looked_up());
        let named = named.map(|(slot, server)| NamedServers {
            slot,
            text: server.address.to_string(),
            lookups: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            servers: AtomicU64::new(0),
            reports: RateLimited::new(FAILURES),
        });
        named.collect()
    }
}
