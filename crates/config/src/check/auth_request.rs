//! The rules of servers that are asked whether requests may pass.

use std::time::Duration;

use http::HeaderName;
use http::header::{AUTHORIZATION, COOKIE};
use toml::Spanned;

use super::Check;
use crate::raw;
use crate::rules::AuthRequest;

/// How long an answer may take, if the configuration does not say.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The longest time for which an answer is known: a user may have been refused meanwhile.
const LONGEST_CACHE: Duration = Duration::from_secs(3600);

impl Check<'_> {
    pub(super) fn auth_request(&mut self, auth: Spanned<raw::AuthRequest>) -> Option<AuthRequest> {
        let (place, auth) = (auth.span(), auth.into_inner());
        let Some(upstream) = auth.upstream else {
            self.missing(place, "auth_request without an upstream, expected upstream = NAME");
            return None;
        };
        self.known_upstream(upstream.span(), upstream.get_ref());
        let path = auth.path.map_or_else(
            || "/".to_owned(),
            |path| {
                self.path(path.span(), path.get_ref());
                path.into_inner()
            },
        );
        let mut names = |all: Vec<Spanned<String>>| -> Vec<HeaderName> {
            let name = |name: Spanned<String>| self.common_field_name(name.span(), name.get_ref());
            all.into_iter().filter_map(name).collect()
        };
        let copy = names(auth.copy);
        let by_place = auth.cache_by.as_ref().map(Spanned::span);
        let cache_by = auth.cache_by.map(|by| names(by.into_inner()));
        if let (Some(by), None) = (by_place, &auth.cache) {
            let what = "answers are known for no time";
            self.wrong(by, format!("{what}, expected cache = DURATION next to cache_by"));
        }
        let cache = auth.cache.map(|cache| {
            if *cache.get_ref() > LONGEST_CACHE {
                let what = "a client that is refused meanwhile would pass for so long";
                self.wrong(cache.span(), format!("{what}, expected at most 1h"));
            }
            cache.into_inner()
        });
        Some(AuthRequest {
            upstream: upstream.into_inner(),
            path,
            timeout: auth.timeout.unwrap_or(TIMEOUT),
            copy,
            cache,
            cache_by: cache_by.unwrap_or_else(|| vec![COOKIE, AUTHORIZATION]),
        })
    }
}
