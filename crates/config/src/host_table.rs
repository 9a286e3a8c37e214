//! The virtual host that answers for a name.
//!
//! A host with the name comes first, then the host with the longest wildcard for it, then the
//! default host. A host that is not served on a request's listener is passed over. The server finds
//! its hosts here, and so does `superpoll explain`.

use std::collections::HashMap;
use std::net::IpAddr;

use crate::address::Address;
use crate::model::Host;

/// Why a host answers for a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HostReason<'a> {
    /// It has the name.
    Name,
    /// It has a wildcard for the name, which ends like this.
    Wildcard(&'a str),
    /// It is the default host.
    Default,
    /// It answers for IP addresses, and for requests that name no host.
    Address,
}

/// Virtual hosts by their names.
#[derive(Debug)]
pub struct HostTable<T> {
    names: HashMap<String, T>,
    /// The part after the `*` of a wildcard, the longest first.
    wildcards: Vec<(String, T)>,
    /// The hosts for all other names: first those of some listeners, and last that of the rest.
    defaults: Vec<(bool, T)>,
    /// For IP addresses and for requests that name no host.
    addresses: Option<T>,
}

impl<T: Clone> HostTable<T> {
    /// Creates a table for so many names.
    #[must_use]
    pub fn with_capacity(names: usize) -> HostTable<T> {
        HostTable {
            // Otherwise it would be copied whenever it is full.
            names: HashMap::with_capacity(names),
            wildcards: Vec::new(),
            defaults: Vec::new(),
            addresses: None,
        }
    }

    /// Adds a host, for which a value stands.
    pub fn add(&mut self, host: &Host, value: &T) {
        for name in &host.names {
            match name.strip_prefix('*') {
                Some(rest) => self.wildcards.push((rest.to_owned(), value.clone())),
                None => drop(self.names.insert(name.clone(), value.clone())),
            }
        }
        if host.default {
            self.defaults.push((host.listeners.is_empty(), value.clone()));
        }
        if host.addresses {
            self.addresses = Some(value.clone());
        }
    }

    /// Puts the hosts into the order in which they are looked for. All are added.
    pub fn finish(&mut self) {
        self.wildcards.sort_by_key(|(rest, _)| std::cmp::Reverse(rest.len()));
        self.defaults.sort_by_key(|(is_of_all, _)| *is_of_all);
    }

    /// Takes the hosts of whole names out.
    pub fn take_named(&mut self) -> Vec<(String, T)> {
        self.names.drain().collect()
    }

    /// Returns the host that answers for a name, which has no port and may end with a dot, and why
    /// it does. A function says whether a host is served.
    #[inline]
    pub fn find(&self, name: &str, is_served: impl Fn(&T) -> bool) -> Option<(&T, HostReason<'_>)> {
        let name = name.trim_end_matches('.');
        let lower;
        let name = if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
            lower = name.to_ascii_lowercase();
            &lower
        } else {
            name
        };
        if let Some(host) = self.names.get(name).filter(|host| is_served(host)) {
            return Some((host, HostReason::Name));
        }
        // A wildcard stands for one label at least.
        let fits = |rest: &str| name.len() > rest.len() && name.ends_with(rest);
        let wildcard = self.wildcards.iter().find(|(rest, host)| fits(rest) && is_served(host));
        if let Some((rest, host)) = wildcard {
            return Some((host, HostReason::Wildcard(rest)));
        }
        if let Some((_, host)) = self.defaults.iter().find(|(_, host)| is_served(host)) {
            return Some((host, HostReason::Default));
        }
        let is_address = || name.is_empty() || name.parse::<IpAddr>().is_ok();
        let host = self.addresses.as_ref().filter(|_| is_address());
        host.filter(|host| is_served(host)).map(|host| (host, HostReason::Address))
    }
}

/// Whether a host with these listeners is served on a listener.
#[inline]
#[must_use]
pub fn is_served_on(listeners: &[Address], on: &Address) -> bool {
    listeners.is_empty() || listeners.contains(on)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_before_wildcards_and_those_before_the_default_host() {
        let host = |names: &[&str], listeners: &[&str]| Host {
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            default: names.is_empty(),
            listeners: listeners.iter().map(|one| one.parse().unwrap()).collect(),
            ..Host::default()
        };
        let hosts = [
            host(&[], &[]),
            host(&[], &[":1"]),
            host(&["*.a.b"], &[]),
            host(&["*.b"], &[]),
            host(&["x.a.b"], &[":2"]),
            Host { addresses: true, ..host(&["c"], &[]) },
        ];
        let mut table = HostTable::with_capacity(6);
        for (index, host) in hosts.iter().enumerate() {
            table.add(host, &index);
        }
        table.finish();
        for (name, on, expected) in [
            ("x.a.b", ":2", (4, HostReason::Name)),
            ("X.A.B.", ":2", (4, HostReason::Name)),
            ("x.a.b", ":1", (2, HostReason::Wildcard(".a.b"))),
            ("a.b", ":1", (3, HostReason::Wildcard(".b"))),
            ("b", ":1", (1, HostReason::Default)),
            ("b", ":2", (0, HostReason::Default)),
            ("", ":1", (1, HostReason::Default)),
        ] {
            let on = on.parse().unwrap();
            let found = table.find(name, |index| is_served_on(&hosts[*index].listeners, &on));
            assert_eq!(found.map(|(index, why)| (*index, why)), Some(expected), "{name} {on}");
        }
        let mut table = HostTable::with_capacity(1);
        table.add(&hosts[5], &());
        for (name, expected) in [
            ("c", Some(HostReason::Name)),
            ("::1", Some(HostReason::Address)),
            ("", Some(HostReason::Address)),
            ("d", None),
        ] {
            assert_eq!(table.find(name, |()| true).map(|(_, why)| why), expected, "{name}");
        }
        assert_eq!(table.take_named(), [("c".to_owned(), ())]);
    }
}
