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

use socket2::{Domain, Socket, Type};

/// A lack of this machine, by the servers that it concerns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OwnLack {
    /// No server can be connected to.
    Everywhere,
    /// One server cannot be connected to, as no local port is left for it.
    Ports,
}

impl OwnLack {
    /// Returns the lack behind an error, if there is one.
    pub(crate) fn of(error: &(dyn Error + 'static)) -> Option<OwnLack> {
        match number(error)? {
            libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::ENOBUFS | libc::ENOSPC => {
                Some(OwnLack::Everywhere)
            }
            libc::EADDRNOTAVAIL => Some(OwnLack::Ports),
            _ => None,
        }
    }
}

/// Returns the way out of a lack whose message does not name it.
pub(crate) fn way_out(error: &(dyn Error + 'static)) -> &'static str {
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
pub(super) fn sorted(error: io::Error, to: SocketAddr) -> io::Error {
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

/// Returns the error of a look-up of this machine's own name, or the lack of descriptors that is
/// behind it: the resolver needs some, and does not tell.
pub(super) fn behind_lookup(error: io::Error) -> io::Error {
    Socket::new(Domain::IPV4, Type::STREAM, None).err().unwrap_or(error)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::time::Duration;

    use superpoll_rt::Runtime;

    use super::super::dial::{connect, connect_any};
    use super::super::failed_attempt::FailedAttempt;
    use super::super::fault::Fault;
    use super::super::group::tests::{choose, group};
    use super::super::health::CheckError;
    use super::*;
    use crate::child_process::is_alone;

    fn of(number: i32) -> Option<OwnLack> {
        OwnLack::of(&io::Error::from_raw_os_error(number))
    }

    #[test]
    fn lacks_of_this_machine_are_told_from_faults_of_a_server() {
        for number in [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::ENOBUFS, libc::ENOSPC] {
            assert_eq!(of(number), Some(OwnLack::Everywhere), "{number}");
        }
        assert_eq!(of(libc::EADDRNOTAVAIL), Some(OwnLack::Ports));
        let faults = [libc::ECONNREFUSED, libc::ECONNRESET, libc::ETIMEDOUT, libc::EHOSTUNREACH];
        for number in faults.into_iter().chain([libc::ENETUNREACH, libc::EAGAIN, libc::EACCES]) {
            assert_eq!(of(number), None, "{number}");
        }
        // An error of ours that a server without addresses has.
        assert_eq!(OwnLack::of(&io::Error::from(io::ErrorKind::AddrNotAvailable)), None);
        // Errors that name the way out have the number inside, however deep.
        let source = || io::Error::from_raw_os_error(libc::ENFILE);
        let limit =
            superpoll::Error::DescriptorLimit { doing: "", soft: 1, hard: 2, source: source() };
        let wrapped = io::Error::other(limit);
        assert_eq!(OwnLack::of(&wrapped), Some(OwnLack::Everywhere));
        assert_eq!(OwnLack::of(&io::Error::other(wrapped)), Some(OwnLack::Everywhere));
        let watches = io::Error::other(superpoll::Error::WatchLimit { fd: 3 });
        assert_eq!(OwnLack::of(&watches), Some(OwnLack::Everywhere));
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
        let lacks = |number| sorted(io::Error::from_raw_os_error(number), to).raw_os_error();
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
        let name = "upstream::own_lack::tests::a_process_without_descriptors_knows_its_lack";
        if !is_alone("ulimit -n 64", name) {
            return;
        }
        let limit = Duration::from_secs(30);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        let runtime = Runtime::new().unwrap();
        let mut files = Vec::new();
        while let Ok(file) = File::open("/dev/null") {
            files.push(file);
        }
        let error = runtime.block_on(async move { connect_any(vec![to], limit).await.map(drop) });
        let error = error.unwrap_err();
        // The reason for which the number is looked for.
        assert_eq!(error.raw_os_error(), None);
        assert_eq!(OwnLack::of(&error), Some(OwnLack::Everywhere));
        assert!(Fault::Connect(error).to_string().contains("ulimit -n"));
        for address in ["unix:/tmp/none".to_owned(), format!("localhost:{}", to.port())] {
            let address = address.parse().unwrap();
            let connected = async move { connect(&address, limit).await.map(drop) };
            let error = runtime.block_on(connected).unwrap_err();
            assert_eq!(OwnLack::of(&error), Some(OwnLack::Everywhere), "{error}");
        }
        drop(files);
        runtime.block_on(async move { connect_any(vec![to], limit).await.map(drop) }).unwrap();
    }
}
