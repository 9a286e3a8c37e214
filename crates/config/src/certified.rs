//! The names that the certificates of a listener are for.

use std::borrow::Cow;
use std::net::IpAddr;

use super::acme::{Acme, LETS_ENCRYPT, is_local};
use super::model::{Host, Listener};
use crate::address::Address;

impl Listener {
    /// Returns the hosts whose names the certificates of the listener are for: those of the
    /// configuration or, of a relay, one with the names of its clients' requests.
    #[must_use]
    pub fn certified<'a>(&self, hosts: &'a [Host]) -> Cow<'a, [Host]> {
        let Some(relay) = &self.relay else { return Cow::Borrowed(hosts) };
        let routed = relay.routes.iter().flat_map(|route| &route.server_names);
        Cow::Owned(vec![Host {
            names: relay.names.iter().chain(routed).cloned().collect(),
            ..Host::default()
        }])
    }
}

/// A name that an authority cannot certify.
#[derive(Clone, PartialEq, Eq, thiserror::Error, Debug)]
#[error(
    "{name:?} gets no certificate from the authority: {reason}, expected a listener with \
     certificate = FILE or tls = \"internal\" for it"
)]
pub struct UncertifiedName {
    /// The name.
    pub name: String,
    /// The reason.
    pub reason: UncertifiedReason,
}

/// The reason for which an authority cannot certify a name.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error, Debug)]
pub enum UncertifiedReason {
    /// It is a wildcard.
    #[error("the authority verifies wildcards in the DNS only")]
    Wildcard,
    /// It is an address.
    #[error("it is an address")]
    Address,
    /// It is a name of this machine alone, and the authority is a public one.
    #[error("no public authority certifies names of one machine")]
    Local,
}

/// No host has a name that the authority can certify.
#[derive(Clone, PartialEq, Eq, thiserror::Error, Debug)]
#[error(
    "{}acme needs names of hosts, expected names = [\"example.org\"]",
    .uncertified.as_ref().map_or_else(String::new, |name| format!("{name}; "))
)]
pub struct NoNamesError {
    /// The first of the names that it cannot certify.
    pub uncertified: Option<UncertifiedName>,
}

impl Acme {
    /// Returns the names that certificates are wanted for, those of the hosts on a listener, and
    /// the names that the authority cannot certify.
    ///
    /// # Errors
    ///
    /// If no name is left.
    pub fn names(
        &self,
        hosts: &[Host],
        listener: &Address,
    ) -> Result<(Vec<String>, Vec<UncertifiedName>), NoNamesError> {
        let (mut names, mut uncertified) = (Vec::new(), Vec::new());
        let is_here = |host: &&Host| host.listeners.is_empty() || host.listeners.contains(listener);
        for name in hosts.iter().filter(is_here).flat_map(|host| &host.names) {
            let reason = if name.starts_with('*') {
                UncertifiedReason::Wildcard
            } else if name.parse::<IpAddr>().is_ok() {
                UncertifiedReason::Address
            } else if self.directory == LETS_ENCRYPT && is_local(name) {
                UncertifiedReason::Local
            } else {
                if !names.contains(name) {
                    names.push(name.clone());
                }
                continue;
            };
            uncertified.push(UncertifiedName { name: name.clone(), reason });
        }
        if names.is_empty() {
            return Err(NoNamesError { uncertified: uncertified.into_iter().next() });
        }
        Ok((names, uncertified))
    }
}
