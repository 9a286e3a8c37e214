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

impl Acme {
    /// Returns the names that certificates are wanted for: those of the hosts on a listener. The
    /// second list says of the other names why the authority cannot certify them.
    ///
    /// # Errors
    ///
    /// If no name is left.
    pub fn names(
        &self,
        hosts: &[Host],
        listener: &Address,
    ) -> Result<(Vec<String>, Vec<String>), String> {
        let (mut names, mut left_out) = (Vec::new(), Vec::new());
        let is_here = |host: &&Host| host.listeners.is_empty() || host.listeners.contains(listener);
        for name in hosts.iter().filter(is_here).flat_map(|host| &host.names) {
            let reason = if name.starts_with('*') {
                "the authority verifies wildcards in the DNS only"
            } else if name.parse::<IpAddr>().is_ok() {
                "it is an address"
            } else if self.directory == LETS_ENCRYPT && is_local(name) {
                "no public authority certifies names of one machine"
            } else {
                if !names.contains(name) {
                    names.push(name.clone());
                }
                continue;
            };
            left_out.push(format!(
                "{name:?} gets no certificate from the authority: {reason}, expected a listener \
                 with certificate = FILE or tls = \"internal\" for it"
            ));
        }
        if names.is_empty() {
            let first = left_out.first().map_or(String::new(), |first| format!("{first}; "));
            let expected = "acme needs names of hosts, expected names = [\"example.org\"]";
            return Err(format!("{first}{expected}"));
        }
        Ok((names, left_out))
    }
}
