//! The rules of connections that applications hold.

use std::ops::Range;

use http::HeaderName;
use toml::Spanned;

use super::Check;
use crate::model::{Grip, Proxy};
use crate::raw;
use crate::resource::Resource;
use crate::rights::KeySource;
use crate::token_key::TokenKey;

impl Check<'_> {
    pub(super) fn grip(&mut self, grip: Spanned<raw::Grip>) -> Option<Grip> {
        let (place, raw::Grip { key, broker }) = (grip.span(), grip.into_inner());
        let Some(key) = key else {
            self.missing(place, "grip without a key, expected key = \"env:NAME\"");
            return None;
        };
        let of_key = key.span();
        let mut key = key.into_inner();
        self.secret(of_key, &mut key);
        if broker.as_ref().is_some_and(|broker| *broker.get_ref()) {
            self.shared_channel(&place);
        }
        let at_broker = broker.as_ref().map_or(place, Spanned::span);
        let grip = Grip { key, broker: broker.is_some_and(Spanned::into_inner) };
        match self.grips.iter().find(|known| known.key == grip.key) {
            Some(known) if known.broker != grip.broker => {
                let what = "other uses of this key say otherwise";
                self.wrong(at_broker, format!("{what}, expected broker to be the same"));
            }
            Some(_) => {}
            None => self.grips.push(grip.clone()),
        }
        Some(grip)
    }

    /// Notes whether the servers of a route may hold connections.
    pub(super) fn may_hold(&mut self, of_upstream: Range<usize>, proxy: &Proxy) {
        let signature = |name: &HeaderName| name.as_str() == "grip-sig";
        if proxy.grip.is_some() {
            if proxy.compress {
                let what =
                    "responses of a route with grip are not compressed, expected no compress";
                self.wrong(of_upstream, what.to_owned());
            }
            self.holding.insert(proxy.upstream.clone());
        } else if !proxy.request_headers.removed.iter().any(signature) {
            self.not_holding.push(Spanned::new(of_upstream, proxy.upstream.clone()));
        }
    }

    /// Warns of routes on which clients can pretend to be this server.
    pub(super) fn routes_without_grip(&mut self) {
        for upstream in std::mem::take(&mut self.not_holding) {
            let name = upstream.get_ref();
            if self.holding.contains(name) {
                let what = format!(
                    "other routes to {name:?} have grip, and this one passes on any signature \
                     that a client sends, expected grip, or request_headers = {{ remove = \
                     [\"grip-sig\", \"connection-id\"] }}"
                );
                self.warn(upstream.span(), what);
            }
        }
    }

    /// Checks a secret, and resolves its path.
    pub(super) fn secret(&mut self, place: Range<usize>, key: &mut KeySource) {
        match key {
            KeySource::Text(text) if !text.starts_with("base64:") => {
                if let Err(what) = TokenKey::secret(text.as_bytes(), false) {
                    self.wrong(place, format!("key is {what}"));
                }
                return;
            }
            KeySource::File(path) => *path = self.resolved(std::mem::take(path)),
            KeySource::Variable(_) | KeySource::Text(_) => {}
        }
        self.needs(place, Resource::Secret(key.clone()));
    }
}
