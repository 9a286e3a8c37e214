//! The rules of certificates that the server gets by itself.

use std::ops::Range;

use toml::Spanned;

use super::Check;
use crate::acme::{Acme, Automatic, ChallengeKind, Internal};
use crate::model::{Host, Listener};
use crate::raw;
use crate::resource::Resource;

impl Check<'_> {
    /// Takes the settings of automatic certificates out of a table.
    pub(super) fn automatic(
        &mut self,
        place: &Range<usize>,
        raw: &mut raw::TlsTable,
    ) -> Option<Automatic> {
        let storage = raw.storage.take().map(|path| self.resolved(path.into_inner()));
        let Some(email) = raw.acme.take() else {
            for key in ["directory", "directory_ca", "challenge", "account"] {
                let found = self.within(place, &[key]);
                if found != *place {
                    let what =
                        format!("{key} is for certificates by ACME, expected acme = \"MAIL\"");
                    self.wrong(found, what);
                }
            }
            if !raw.internal && storage.is_some() {
                let what = "storage without certificates to store, expected acme = \"MAIL\"";
                self.wrong(self.within(place, &["storage"]), what);
            }
            if raw.internal && has_files(raw) {
                let what = "certificates from files and the server's own, expected either";
                self.wrong(place.clone(), what);
            }
            return raw.internal.then_some(Automatic::Internal(Internal { storage }));
        };
        if raw.internal || has_files(raw) {
            let what = "certificates by ACME and others, expected one source for a listener";
            self.wrong(email.span(), what);
        }
        if !email.get_ref().is_empty() && !is_address(email.get_ref()) {
            let what = format!("{:?} is no address of mail", email.get_ref());
            self.wrong(email.span(), format!("{what}, expected one as \"mail@example.org\""));
        }
        self.acme.push(email.span());
        let mut acme = Acme { email: email.into_inner(), storage, ..Acme::default() };
        if let Some(directory) = raw.directory.take() {
            let is_url = directory.get_ref().parse::<http::Uri>().is_ok_and(|url| {
                url.scheme_str() == Some("https") && url.host().is_some_and(|host| !host.is_empty())
            });
            if !is_url {
                let what = format!("{:?} is no directory of ACME", directory.get_ref());
                self.wrong(directory.span(), format!("{what}, expected an https: URL"));
            }
            acme.directory = directory.into_inner();
        }
        if let Some(ca) = raw.directory_ca.take() {
            let (place, path) = (ca.span(), self.resolved(ca.into_inner()));
            self.needs(place, Resource::Authorities(path.clone()));
            acme.directory_ca = Some(path);
        }
        acme.challenge = raw.challenge.take().map_or_else(Default::default, Spanned::into_inner);
        if let Some(account) = raw.account.take() {
            let (place, mut account) = (account.span(), account.into_inner());
            if account.id.is_empty() || account.key.as_os_str().is_empty() {
                self.missing(place, "the account is not complete, expected id = TEXT, key = FILE");
            }
            account.key = self.resolved(account.key);
            acme.account = Some(account);
        }
        Some(Automatic::Acme(acme))
    }

    /// Checks that the hosts have names that certificates can have.
    pub(super) fn automatic_names(&mut self, listeners: &[Listener], hosts: &[Host]) {
        let all: Vec<(&Acme, &Listener)> = listeners
            .iter()
            .filter_map(|one| match one.tls.as_ref()?.automatic.as_ref()? {
                Automatic::Acme(acme) => Some((acme, one)),
                Automatic::Internal(_) => None,
            })
            .collect();
        for (place, (acme, listener)) in std::mem::take(&mut self.acme).into_iter().zip(all) {
            match acme.names(&listener.certified(hosts), &listener.address) {
                Ok((_, uncertified)) => {
                    for name in uncertified {
                        self.warn(place.clone(), name.to_string());
                    }
                }
                Err(error) => self.missing(place.clone(), error.to_string()),
            }
            let agrees_to_none = listener.tls.as_ref().is_some_and(|tls| tls.alpn.is_empty());
            let is_relay = listener.relay.is_some();
            if is_relay && agrees_to_none && acme.challenge == ChallengeKind::TlsAlpn01 {
                let what = "a relay without alpn cannot answer tls-alpn-01";
                self.wrong(place, format!("{what}, expected challenge = \"http-01\" or alpn"));
            }
        }
    }
}

fn has_files(raw: &raw::TlsTable) -> bool {
    raw.certificate.is_some() || raw.key.is_some() || !raw.certificates.is_empty()
}

/// Whether a text may be an address of mail: exactly the check that keeps mistakes such as a name
/// out, as only the authority can know more.
fn is_address(text: &str) -> bool {
    let parts = text.split_once('@');
    let is_whole = parts.is_some_and(|(user, host)| !user.is_empty() && host.contains('.'));
    is_whole && text.bytes().all(|byte| byte.is_ascii_graphic() && !b",<>?&#".contains(&byte))
}
