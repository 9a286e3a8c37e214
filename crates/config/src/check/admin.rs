//! The rules of the admin listener.

use toml::Spanned;

use super::{Check, host_name};
use crate::address::Address;
use crate::model::{Admin, Listener};
use crate::overlap::overlap;
use crate::raw;
use crate::rules::Rules;

impl Check<'_> {
    /// Checks the admin listener, and adds it to the listeners.
    pub(super) fn admin(
        &mut self,
        raw: Option<Spanned<raw::Admin>>,
        listeners: &mut Vec<Listener>,
    ) -> Option<Admin> {
        let raw = raw?;
        let place = raw.span();
        let raw::Admin { address, mode, hosts, allow, deny, basic_auth } = raw.into_inner();
        let mut names = Vec::new();
        for name in hosts {
            let place = name.span();
            let name = name.into_inner().trim_end_matches('.').to_ascii_lowercase();
            match host_name(&name) {
                // A wildcard may stand for a name that is made to resolve to this machine.
                _ if name.contains('*') => {
                    let what = format!("{name:?} stands for many names");
                    self.wrong(place, format!("{what}, expected each name of the admin listener"));
                }
                Err(what) => self.wrong(place, format!("{name:?} is no host name: {what}")),
                Ok(()) => names.push(name),
            }
        }
        let is_limited = allow.is_some();
        // The listeners of hosts say nothing about this one.
        self.unencrypted = None;
        let has_passwords = basic_auth.as_ref().map(Spanned::span);
        let rules = Rules {
            access: self.access(allow, deny),
            basic_auth: basic_auth
                .and_then(|users| self.basic_auth(users.span(), users.into_inner())),
            ..Rules::default()
        };
        let Some(address) = address else {
            let what = "the admin listener has no address";
            self.missing(
                place,
                format!("{what}, expected address = \"127.0.0.1:9090\" or \"unix:PATH\""),
            );
            return None;
        };
        let address_place = address.span();
        let address = self.address(address_place.clone(), address.into_inner());
        if let Some(other) = listeners.iter().find(|other| overlap(&other.address, &address)) {
            let what = format!("{address} is taken by the listener {}", other.address);
            self.wrong(address_place.clone(), format!("{what}, expected an address of its own"));
        }
        let listener = Listener { is_admin: true, ..Listener::plain(address) };
        let is_unix = matches!(listener.address, Address::Unix(_));
        if !is_unix && !listener.is_private() && !is_limited {
            let address = &listener.address;
            let what = format!(
                "other machines may reach {address}, and each client there controls the server"
            );
            let expected =
                "expected a loopback address, \"unix:PATH\", or allow = [NETWORKS] next to it";
            self.wrong(address_place, format!("{what}, {expected}"));
        }
        if let Some(place) = has_passwords.filter(|_| !is_unix && !listener.is_private()) {
            let what = format!("passwords are sent in plain text to {}", listener.address);
            let expected = "expected a loopback address, which other machines reach by ssh -L";
            self.warn(place, format!("{what}, {expected}"));
        }
        if let (Some(mode), Address::Tcp { .. }) = (&mode, &listener.address) {
            let what = "a TCP port has no permissions, expected mode only with unix:PATH";
            self.wrong(mode.span(), what);
        }
        let mode = mode.map(|mode| mode.into_inner().0);
        listeners.push(Listener { mode, ..listener });
        Some(Admin { hosts: names, rules })
    }
}
