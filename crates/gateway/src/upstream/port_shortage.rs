//! The shortage of local ports for a server, once a connection has met it.
//!
//! Ports come back as connections end, up to a minute after. Until then each attempt would search
//! all ports for one that is free, for every request. So while the shortage is known, one attempt
//! at a time finds out whether it has ended, and the others fail at once, without a system call.

use std::sync::atomic::{AtomicU64, Ordering};

/// The time between two attempts that find out whether there are ports again, in milliseconds.
const PROBE_INTERVAL: u64 = 100;

/// Whether there is no local port for a server, for all engines. Times are those of a
/// [`Clock`](super::server::Clock).
#[derive(Debug, Default)]
pub(super) struct PortShortage {
    /// The time of the next attempt; 0 if no shortage is known.
    until: AtomicU64,
}

impl PortShortage {
    /// Whether a connection may be attempted now.
    pub(super) fn admits(&self, now: u64) -> bool {
        let until = self.until.load(Ordering::Relaxed);
        if until == 0 {
            return true;
        }
        // Of several that come now, one is admitted.
        let claim = |next| {
            let order = Ordering::Relaxed;
            self.until.compare_exchange(until, next, order, order).is_ok()
        };
        now >= until && claim(now + PROBE_INTERVAL)
    }

    /// Notes whether an attempt has found a port.
    pub(super) fn attempted(&self, has_port: bool, now: u64) {
        match has_port {
            true if self.until.load(Ordering::Relaxed) == 0 => {}
            true => self.until.store(0, Ordering::Relaxed),
            false => self.until.store(now + PROBE_INTERVAL, Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::net::TcpListener;
    use std::time::{Duration, Instant};

    use superpoll_rt::Runtime;

    use super::super::dial::dial;
    use super::super::group::Group;
    use super::super::group::tests::group_of;
    use super::super::own_lack::OwnLack;
    use super::*;
    use crate::child_process::is_alone;
    use crate::transport::Upstream;

    const LIMIT: Duration = Duration::from_secs(30);

    /// Moves the test into a network of its own, with four local ports.
    const FOUR_PORTS: &str = r#"
        if [ -n "$FOUR_PORTS" ]; then :
        elif unshare --net --map-root-user ip link set lo up; then
            export FOUR_PORTS=1
            exec unshare --net --map-root-user sh -c '
                ip link set lo up && echo 20000 20003 > /proc/sys/net/ipv4/ip_local_port_range && exec "$0" "$@"' "$0" "$@"
        else echo 'skipped: no network with few ports can be made here (unshare --net --map-root-user)' >&2
        fi"#;

    fn connect(runtime: &Runtime, group: &std::sync::Arc<Group>) -> io::Result<Upstream> {
        let group = group.clone();
        runtime.block_on(async move {
            dial(&group, &group.members()[0], None, LIMIT).await.map(|dialled| dialled.stream)
        })
    }

    fn is_short(outcome: &io::Result<Upstream>) -> bool {
        outcome.as_ref().is_err_and(|error| OwnLack::of(error) == Some(OwnLack::Ports))
    }

    /// Runs again, in a process of its own.
    #[test]
    fn a_shortage_of_ports_is_known_until_there_are_some() {
        let name =
            "upstream::port_shortage::tests::a_shortage_of_ports_is_known_until_there_are_some";
        if !is_alone(FOUR_PORTS, name) || std::env::var_os("FOUR_PORTS").is_none() {
            return;
        }
        let runtime = Runtime::new().unwrap();
        let listener = TcpListener::bind("127.0.0.1:1").unwrap();
        let group = group_of(1, "");
        let server = &group.members()[0];
        let is_known = || server.port_shortage.until.load(Ordering::Relaxed) != 0;
        let mut streams: Vec<Upstream> = Vec::new();
        let full = loop {
            match connect(&runtime, &group) {
                Ok(stream) => streams.push(stream),
                failed => break failed,
            }
            assert!(streams.len() <= 4 && !is_known());
        };
        assert!(is_short(&full) && is_known(), "{:?}", full.err());
        // As it lasts, every connection fails alike, attempted or not.
        for _ in 0..1000 {
            assert!(is_short(&connect(&runtime, &group)) && is_known());
        }
        // No attempt is made before it is time, whether there are ports or not.
        server.port_shortage.until.store(u64::MAX / 2, Ordering::Relaxed);
        // This end closes last, so that its ports are free at once.
        for _ in 0..streams.len() {
            drop(listener.accept().unwrap());
        }
        drop(streams);
        for _ in 0..100 {
            assert!(is_short(&connect(&runtime, &group)));
        }
        listener.set_nonblocking(true).unwrap();
        assert!(listener.accept().is_err());
        // When it is time, the first attempt ends the shortage.
        server.port_shortage.until.store(1, Ordering::Relaxed);
        let end = Instant::now() + LIMIT;
        while let Err(error) = connect(&runtime, &group) {
            assert!(Instant::now() < end, "{error}");
        }
        assert!(!is_known());
        connect(&runtime, &group).unwrap();
    }

    #[test]
    fn a_known_shortage_costs_one_attempt_in_a_while() {
        let shortage = PortShortage::default();
        assert!(shortage.admits(0) && shortage.admits(0));
        shortage.attempted(true, 0);
        assert!(shortage.admits(5));
        shortage.attempted(false, 1000);
        let admitted = |from: u64, to: u64| (from..to).filter(|&now| shortage.admits(now)).count();
        assert_eq!(admitted(1000, 1100), 0);
        // Whatever becomes of an attempt that is admitted, the next one comes later.
        assert_eq!(admitted(1100, 2100), 10);
        shortage.attempted(false, 2100);
        assert_eq!(admitted(2100, 2200), 0);
        assert!(shortage.admits(2200));
        shortage.attempted(true, 2201);
        assert_eq!(admitted(2201, 2301), 100);
    }
}
