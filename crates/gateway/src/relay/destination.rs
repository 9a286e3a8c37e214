//! Where a relay leads: an address, a name that is looked up again and again, or a group of
//! servers; and the choice among several by the server name that clients ask for.
//!
//! The addresses of a name are part of the relay's settings, and new addresses are new settings. So
//! a connection to a name costs what a connection to an address does, except for one a second: that
//! one looks the name up first, on a thread of the runtime's, and meanwhile the others use the
//! addresses that are known. Addresses that were found last are used on where the look-up fails. A
//! connection that fails makes the next one look the name up.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use superpoll_http::upstream::Group;
use superpoll_rt::time;

use crate::config::Address;

/// How long the addresses of a name are used without another look-up.
const FRESH: Duration = Duration::from_secs(1);

/// The other end of relayed connections.
#[derive(Clone, Debug)]
pub(crate) enum Destination {
    /// One address.
    Address(Address),
    /// One of the servers of a group.
    Group(Arc<Group>),
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Destination::Address(address) => address.fmt(f),
            Destination::Group(group) => write!(f, "the upstream {}", group.name()),
        }
    }
}

/// The addresses of a destination, if a pair can connect to them by itself.
#[derive(Clone, Debug)]
pub(super) enum Target {
    /// Of a name, the addresses that were found last.
    Tcp(Vec<SocketAddr>),
    /// A Unix socket, a group, or nothing: pairs begin with an introduction.
    Other,
}

/// The name of a destination, and the age of its addresses.
#[derive(Debug)]
pub(super) struct NameLookup {
    pub host: String,
    pub port: u16,
    began: Instant,
    /// The time until which the addresses are used, in ms since the name was known; 0 if they are
    /// not.
    fresh_until: AtomicU64,
    /// A connection looks the name up.
    is_running: AtomicBool,
}

impl NameLookup {
    fn new(host: &str, port: u16) -> NameLookup {
        NameLookup {
            host: host.to_owned(),
            port,
            began: time::now(),
            fresh_until: AtomicU64::new(0),
            is_running: AtomicBool::new(false),
        }
    }

    /// Returns the same name, whose addresses were found just now.
    pub(super) fn renewed(&self) -> NameLookup {
        let renewed = NameLookup::new(&self.host, self.port);
        renewed.note();
        renewed
    }

    fn now(&self) -> u64 {
        u64::try_from((time::now() - self.began).as_millis()).unwrap_or(u64::MAX)
    }

    pub(super) fn is_fresh(&self) -> bool {
        let until = self.fresh_until.load(Ordering::Relaxed);
        until > 0 && self.now() < until
    }

    /// Notes that the addresses may be used for a while.
    pub(super) fn note(&self) {
        let fresh = u64::try_from(FRESH.as_millis()).unwrap_or(u64::MAX);
        self.fresh_until.store(self.now().saturating_add(fresh), Ordering::Relaxed);
    }

    /// Makes the next connection look the name up.
    pub(super) fn forget(&self) {
        self.fresh_until.store(0, Ordering::Relaxed);
    }

    /// Returns whether the caller is to look the name up: no other connection does.
    pub(super) fn begin(&self) -> bool {
        !self.is_running.swap(true, Ordering::Relaxed)
    }

    pub(super) fn end(&self) {
        self.is_running.store(false, Ordering::Relaxed);
    }
}

/// Returns the known addresses of a destination, and its name if the name has to be looked up.
pub(super) fn resolve(to: Option<&Destination>) -> io::Result<(Target, Option<NameLookup>)> {
    let address = match to {
        None | Some(Destination::Group(_)) => return Ok((Target::Other, None)),
        Some(Destination::Address(address)) => address,
    };
    match address {
        Address::Unix(_) => Ok((Target::Other, None)),
        Address::Tcp { port: 0, .. } => {
            Err(io::Error::new(io::ErrorKind::InvalidInput, "port 0 cannot be connected to"))
        }
        Address::Tcp { host: None, port } => {
            let local = vec![([127, 0, 0, 1], *port).into(), (Ipv6Addr::LOCALHOST, *port).into()];
            Ok((Target::Tcp(local), None))
        }
        Address::Tcp { host: Some(host), port } => match host.parse::<IpAddr>() {
            Ok(address) => Ok((Target::Tcp(vec![(address, *port).into()]), None)),
            Err(_) => Ok((Target::Tcp(Vec::new()), Some(NameLookup::new(host, *port)))),
        },
    }
}

/// The destinations of clients by the server name that they ask for: an exact name takes precedence
/// over wildcards, and a longer wildcard over a shorter one.
#[derive(Default, Debug)]
pub(crate) struct Routes {
    exact: HashMap<String, Destination>,
    /// With the dot at the start, the longest first.
    wildcards: Vec<(String, Destination)>,
}

impl Routes {
    /// Creates the routes, of names in lower case. `*.` at the start stands for one label or more.
    pub(crate) fn new(routes: impl IntoIterator<Item = (String, Destination)>) -> Routes {
        let mut all = Routes::default();
        for (name, to) in routes {
            match name.strip_prefix('*') {
                Some(suffix) => all.wildcards.push((suffix.to_owned(), to)),
                None => drop(all.exact.insert(name, to)),
            }
        }
        all.wildcards.sort_by_key(|(suffix, _)| std::cmp::Reverse(suffix.len()));
        all
    }

    pub(super) fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.wildcards.is_empty()
    }

    /// Returns the destination for a name in lower case.
    pub(super) fn find(&self, name: &str) -> Option<&Destination> {
        let fits = |suffix: &str| name.len() > suffix.len() && name.ends_with(suffix);
        let wildcard = || self.wildcards.iter().find(|(suffix, _)| fits(suffix));
        self.exact.get(name).or_else(|| wildcard().map(|(_, to)| to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_name_decides() {
        let to = |port| Destination::Address(Address::Tcp { host: None, port });
        let routes = Routes::new([
            ("*.example".to_owned(), to(1)),
            ("*.b.example".to_owned(), to(2)),
            ("a.b.example".to_owned(), to(3)),
        ]);
        for (name, expected) in [
            ("x.example", Some(":1")),
            ("b.example", Some(":1")),
            ("x.b.example", Some(":2")),
            ("x.y.b.example", Some(":2")),
            ("a.b.example", Some(":3")),
            ("x.a.b.example", Some(":2")),
            ("example", None),
            (".example", None),
            ("xexample", None),
            ("", None),
        ] {
            let found = routes.find(name).map(Destination::to_string);
            assert_eq!(found.as_deref(), expected, "{name}");
        }
        assert!(Routes::default().is_empty() && Routes::default().find("a").is_none());
    }

    #[test]
    fn names_are_looked_up_by_connections_and_addresses_never() {
        let of = |text: &str| {
            let address = Destination::Address(text.parse().unwrap());
            resolve(Some(&address)).unwrap()
        };
        for (text, count) in [("192.0.2.1:5432", 1), ("[2001:db8::1]:5432", 1), (":5432", 2)] {
            let (target, name) = of(text);
            assert!(matches!(target, Target::Tcp(found) if found.len() == count), "{text}");
            assert!(name.is_none(), "{text}");
        }
        let (target, name) = of("db.example:5432");
        assert!(matches!(target, Target::Tcp(found) if found.is_empty()));
        let name = name.unwrap();
        assert!(!name.is_fresh() && name.begin() && !name.begin());
        name.end();
        assert!(name.begin());
        name.note();
        assert!(name.is_fresh() && name.renewed().is_fresh());
        name.forget();
        assert!(!name.is_fresh());
        let zero = Destination::Address("a:0".parse().unwrap());
        assert!(resolve(Some(&zero)).is_err());
    }
}
