//! Descriptors that no connection gets: those for files, for upstream servers and for the server's
//! own use.
//!
//! Without a reserve a flood of connections takes every descriptor there is. Then no file can be
//! opened and no upstream server reached for the clients that are connected. So `connections` has
//! an upper bound that follows from the process's limit of descriptors (`RLIMIT_NOFILE`), whatever
//! the configuration says.

use superpoll_config::Config;

/// The server's own descriptors: listeners, pollers, logs.
const OWN: u64 = 32;

/// The most that is kept for files.
const FILES: u64 = 1024;

/// Returns how many descriptors of this many are reserved.
///
/// A connection that is relayed has two. A connection of HTTP has an upstream connection only while
/// it has a request there; those that are kept after it have a limit of their own.
pub(crate) fn reserved(config: &Config, limit: u64) -> u64 {
    let share = if config.listeners.iter().any(|listener| listener.relay.is_some()) {
        limit / 2
    } else if config.upstreams.is_empty() {
        (limit / 32).min(FILES)
    } else {
        limit / 4
    };
    (OWN + share).min(limit / 2)
}

/// Returns the most connections at a time with this many descriptors.
pub fn connections(config: &Config, limit: u64) -> u32 {
    let room = limit.saturating_sub(reserved(config, limit)).max(1);
    let room = u32::try_from(room).unwrap_or(u32::MAX);
    config.limits.connections.map_or(room, |asked| asked.get().min(room))
}

/// Returns the most idle connections to upstream servers at a time with this many descriptors: half
/// of those that are reserved next to upstreams, so that they leave as many for requests.
pub fn idle_upstream_connections(limit: u64) -> usize {
    usize::try_from(limit / 8).unwrap_or(usize::MAX).max(1)
}

/// Returns the reason for which the configuration's number of connections is too large, if it is.
pub fn excess(config: &Config, limit: u64) -> Option<String> {
    let asked = config.limits.connections?.get();
    let room = connections(config, limit);
    (asked > room).then(|| {
        let reserved = reserved(config, limit);
        format!(
            "limits.connections is {asked}, but there can be {room}: the process may have {limit} descriptors \
             (ulimit -n), of which {reserved} are kept for files, upstream servers and the server itself; raise that \
             limit, or allow fewer connections"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(more: &str) -> Config {
        let text = format!("[[listeners]]\naddress = \"127.0.0.1:0\"\n{more}");
        Config::parse("test.toml", &text).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn some_are_kept_of_however_many_there_are() {
        let files = config("[[hosts]]\n[[hosts.routes]]\nfiles.root = \"/tmp\"\n");
        let upstream = "[upstreams.app]\nservers = [{ address = \"127.0.0.1:1\" }]\n";
        let proxy =
            config(&format!("[[hosts]]\n[[hosts.routes]]\nproxy.upstream = \"app\"\n{upstream}"));
        let relay = config("relay = { to = \"127.0.0.1:1\" }\n");
        for (limit, of_files, of_proxy, of_relay) in
            [(20_000, 19_343, 14_968, 10_000), (1024, 960, 736, 512), (10, 5, 5, 5), (0, 1, 1, 1)]
        {
            let found = [&files, &proxy, &relay].map(|config| connections(config, limit));
            assert_eq!(found, [of_files, of_proxy, of_relay], "of {limit}");
            assert_eq!(excess(&files, limit), None);
        }
    }

    #[test]
    fn kept_connections_to_servers_leave_half_of_the_reserve() {
        let proxy = config(
            "[[hosts]]\n[[hosts.routes]]\nproxy.upstream = \"app\"\n[upstreams.app]\n\
             servers = [{ address = \"127.0.0.1:1\" }]\n",
        );
        for (limit, idle) in [(1_048_576, 131_072), (20_000, 2500), (1024, 128), (10, 1), (0, 1)] {
            assert_eq!(idle_upstream_connections(limit), idle, "of {limit}");
            let reserved = usize::try_from(reserved(&proxy, limit)).unwrap();
            assert!(2 * idle <= reserved.max(2), "of {limit}: {idle} of {reserved}");
        }
    }

    #[test]
    fn a_limit_above_the_descriptors_is_reported() {
        let config = config(
            "[limits]\nconnections = 1000\n[[hosts]]\n[[hosts.routes]]\nfiles.root = \"/tmp\"\n",
        );
        assert_eq!((connections(&config, 20_000), excess(&config, 20_000)), (1000, None));
        assert_eq!(connections(&config, 1024), 960);
        let text = excess(&config, 1024).unwrap();
        assert!(text.starts_with("limits.connections is 1000, but there can be 960: "), "{text}");
    }
}
