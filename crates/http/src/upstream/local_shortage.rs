//! Lacks of this machine that keep it from connecting to a server. They say nothing about the
//! server: no count of its failures changes, and the client gets 503.
//!
//! | error | lack | other servers |
//! |---|---|---|
//! | `EMFILE`, `ENFILE` | descriptors | fail alike |
//! | `ENOMEM`, `ENOBUFS` | memory | fail alike |
//! | `ENOSPC` | watches of epoll | fail alike |
//! | `EADDRNOTAVAIL` | local ports for this destination | may be reached |
//!
//! A server cannot feign them: none of these errors follows from a packet.

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use socket2::{Domain, Socket, Type};

/// A shortage on this machine, by the servers that it concerns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LocalShortage {
    /// No server can be connected to.
    Everywhere,
    /// One server cannot be connected to, as no local port is left for it.
    Ports,
}

impl LocalShortage {
    /// Returns the shortage behind an error, if there is one.
    pub fn from_error(error: &(dyn Error + 'static)) -> Option<LocalShortage> {
        match number(error)? {
            libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::ENOBUFS | libc::ENOSPC => {
                Some(LocalShortage::Everywhere)
            }
            libc::EADDRNOTAVAIL => Some(LocalShortage::Ports),
            _ => None,
        }
    }
}

/// Returns the way out of a shortage whose message does not name it.
pub fn way_out(error: &(dyn Error + 'static)) -> &'static str {
    match number(error) {
        Some(libc::EADDRNOTAVAIL) => {
            " (no local port is left for this server: widen net.ipv4.ip_local_port_range)"
        }
        Some(libc::ENOSPC) => {
            " (the watches of epoll are used up: raise fs.epoll.max_user_watches)"
        }
        _ => "",
    }
}

/// Returns the kernel's number of an error. It may be in a source: an error of the runtime that
/// names the limit of descriptors has no number itself.
fn number(error: &(dyn Error + 'static)) -> Option<i32> {
    if let Some(error) = error.downcast_ref::<io::Error>() {
        return error.raw_os_error().or_else(|| number(error.get_ref()?));
    }
    let own = error.downcast_ref::<superpoll::Error>().and_then(superpoll::Error::raw_os_error);
    own.or_else(|| number(error.source()?))
}

/// Tells the two causes of `EADDRNOTAVAIL` apart: either no local port is left, or this machine has
/// no address from which it reaches the server, as without IPv6. The second one lasts, and counts
/// against the server as a refusal does: it becomes an error without a number.
pub(super) fn classify_connect_error(error: io::Error, to: SocketAddr) -> io::Error {
    if error.raw_os_error() != Some(libc::EADDRNOTAVAIL) || has_own_address(to) {
        return error;
    }
    io::Error::new(error.kind(), "this machine has no address that reaches the server")
}

/// Whether this machine has an address for connections to another one. Connecting a socket of UDP
/// chooses it, sends nothing, and takes no port of TCP.
fn has_own_address(to: SocketAddr) -> bool {
    let Ok(socket) = Socket::new(Domain::for_address(to), Type::DGRAM, None) else { return true };
    let number = socket.connect(&to.into()).err().and_then(|error| error.raw_os_error());
    !matches!(number, Some(libc::EADDRNOTAVAIL | libc::ENETUNREACH | libc::EHOSTUNREACH))
}

/// Returns the error of a look-up of this machine's own name, or the shortage of descriptors that
/// is behind it: the resolver needs some, and does not tell.
pub(super) fn behind_lookup(error: io::Error) -> io::Error {
    Socket::new(Domain::IPV4, Type::STREAM, None).err().unwrap_or(error)
}

// The shortage of local ports for a server, once a connection has met it.
//
// Ports come back as connections end, up to a minute after. Until then each attempt would search
// all ports for one that is free, for every request. So while the shortage is known, one attempt
// at a time finds out whether it has ended, and the others fail at once, without a system call.

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
    use std::fs::File;
    use std::time::Duration;

    use superpoll_rt::Runtime;
    use superpoll_test_support::Alone;

    use super::super::dial::{connect, connect_any};
    use super::super::fault::FailedAttempt;
    use super::super::fault::Fault;
    use super::super::group::tests::{choose, group};
    use super::super::health::CheckError;
    use super::*;

    fn of(number: i32) -> Option<LocalShortage> {
        LocalShortage::from_error(&io::Error::from_raw_os_error(number))
    }

    #[test]
    fn lacks_of_this_machine_are_told_from_faults_of_a_server() {
        for number in [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::ENOBUFS, libc::ENOSPC] {
            assert_eq!(of(number), Some(LocalShortage::Everywhere), "{number}");
        }
        assert_eq!(of(libc::EADDRNOTAVAIL), Some(LocalShortage::Ports));
        let faults = [libc::ECONNREFUSED, libc::ECONNRESET, libc::ETIMEDOUT, libc::EHOSTUNREACH];
        for number in faults.into_iter().chain([libc::ENETUNREACH, libc::EAGAIN, libc::EACCES]) {
            assert_eq!(of(number), None, "{number}");
        }
        // An error of ours that a server without addresses has.
        assert_eq!(
            LocalShortage::from_error(&io::Error::from(io::ErrorKind::AddrNotAvailable)),
            None
        );
        // Errors that name the way out have the number inside, however deep.
        let source = || io::Error::from_raw_os_error(libc::ENFILE);
        let limit =
            superpoll::Error::DescriptorLimit { doing: "", soft: 1, hard: 2, source: source() };
        let wrapped = io::Error::other(limit);
        assert_eq!(LocalShortage::from_error(&wrapped), Some(LocalShortage::Everywhere));
        assert_eq!(
            LocalShortage::from_error(&io::Error::other(wrapped)),
            Some(LocalShortage::Everywhere)
        );
        let watches = io::Error::other(superpoll::Error::WatchLimit { fd: 3 });
        assert_eq!(LocalShortage::from_error(&watches), Some(LocalShortage::Everywhere));
    }

    #[test]
    fn the_words_name_the_lack_and_the_client_gets_503() {
        for (number, words) in [
            (libc::EADDRNOTAVAIL, "net.ipv4.ip_local_port_range"),
            (libc::ENOSPC, "fs.epoll.max_user_watches"),
            (libc::EMFILE, "open files"),
        ] {
            let failed = FailedAttempt::unsent(io::Error::from_raw_os_error(number));
            assert_eq!(failed.status(), 503);
            assert_eq!(failed.fault.kind().1, "own-lack");
            assert!(failed.may_go_on);
            let text = failed.fault.to_string();
            assert!(text.starts_with("connecting: ") && text.contains(words), "{text}");
        }
        let refused = FailedAttempt::unsent(io::ErrorKind::ConnectionRefused.into());
        assert!(refused.may_go_on && refused.status() == 502);
    }

    #[test]
    fn only_a_lack_of_ports_keeps_its_number() {
        let to = "127.0.0.1:1".parse().unwrap();
        let lacks = |number| {
            classify_connect_error(io::Error::from_raw_os_error(number), to).raw_os_error()
        };
        assert_eq!(lacks(libc::EADDRNOTAVAIL), Some(libc::EADDRNOTAVAIL));
        assert_eq!(lacks(libc::ECONNREFUSED), Some(libc::ECONNREFUSED));
    }

    #[test]
    fn a_lack_changes_no_count_of_a_server() {
        for text in ["", "health = { rise = 2, fall = 2 }", "eject = { errors = 1 }"] {
            let group = group(text);
            let list = group.members();
            let lack = || Fault::Connect(io::Error::from_raw_os_error(libc::EMFILE));
            for server in list.iter() {
                for _ in 0..10 {
                    group.attempt_failed(server, &lack());
                    group.check_ended(server, Err(CheckError::from(lack())));
                }
                assert!(group.is_up(server), "{text}");
                assert_eq!(server.failures.load(std::sync::atomic::Ordering::Relaxed), 0);
                assert_eq!(server.unchecked.load(std::sync::atomic::Ordering::Relaxed), 10);
            }
            assert!(choose(&group, &mut [0; 2], &[]).is_some());
        }
    }

    #[test]
    fn a_lack_does_not_interrupt_checks_in_a_row() {
        let group = group("health = { rise = 2, fall = 2 }");
        let server = &group.members()[0];
        let lack =
            || Err(CheckError::from(Fault::Connect(io::Error::from_raw_os_error(libc::EMFILE))));
        let refused =
            || Err(CheckError::from(Fault::Connect(io::ErrorKind::ConnectionRefused.into())));
        group.check_ended(server, refused());
        group.check_ended(server, lack());
        group.check_ended(server, refused());
        assert!(!group.is_up(server));
        group.check_ended(server, Ok(()));
        group.check_ended(server, lack());
        group.check_ended(server, Ok(()));
        assert!(group.is_up(server));
    }

    /// Runs again, in a process of its own whose limit is low.
    #[test]
    fn a_process_without_descriptors_knows_its_lack() {
        Alone::default().under("ulimit -n 64").run(|| {
            let limit = Duration::from_secs(30);
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let to = listener.local_addr().unwrap();
            let runtime = Runtime::new().unwrap();
            let mut files = Vec::new();
            while let Ok(file) = File::open("/dev/null") {
                files.push(file);
            }
            let error =
                runtime.block_on(async move { connect_any(vec![to], limit).await.map(drop) });
            let error = error.unwrap_err();
            // The reason for which the number is looked for.
            assert_eq!(error.raw_os_error(), None);
            assert_eq!(LocalShortage::from_error(&error), Some(LocalShortage::Everywhere));
            assert!(Fault::Connect(error).to_string().contains("ulimit -n"));
            for address in ["unix:/tmp/none".to_owned(), format!("localhost:{}", to.port())] {
                let address = address.parse().unwrap();
                let connected = async move { connect(&address, limit).await.map(drop) };
                let error = runtime.block_on(connected).unwrap_err();
                assert_eq!(
                    LocalShortage::from_error(&error),
                    Some(LocalShortage::Everywhere),
                    "{error}"
                );
            }
            drop(files);
            runtime.block_on(async move { connect_any(vec![to], limit).await.map(drop) }).unwrap();
        });
    }
}

#[cfg(test)]
mod port_shortage_tests {
    use std::io;
    use std::net::TcpListener;
    use std::time::{Duration, Instant};

    use superpoll_rt::Runtime;
    use superpoll_test_support::Alone;

    use super::super::dial::dial;
    use super::super::group::Group;
    use super::super::group::tests::group_of;
    use super::super::local_shortage::LocalShortage;
    use super::*;
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
        outcome
            .as_ref()
            .is_err_and(|error| LocalShortage::from_error(error) == Some(LocalShortage::Ports))
    }

    /// Runs again, in a process of its own.
    #[test]
    fn a_shortage_of_ports_is_known_until_there_are_some() {
        Alone::default().under(FOUR_PORTS).run(|| {
            if std::env::var_os("FOUR_PORTS").is_none() {
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
        });
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
