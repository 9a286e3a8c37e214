//! Cookies by which clients come back to the same server.

use std::time::Duration;

use serde::Deserialize;

use super::scalar;

/// The cookie by which a client comes back to the server that has answered it before.
#[derive(Clone, PartialEq, Eq)]
pub struct Sticky {
    /// The name of the cookie.
    pub cookie: String,
    /// The secret from which the values of cookies are derived: at least 32 bytes, the same for all
    /// gateways that share clients.
    pub secret: String,
    /// To which requests of other sites browsers add the cookie. Default: `lax`.
    pub same_site: SameSite,
    /// The paths that the cookie is for. Default: `/`.
    pub path: String,
    /// How long browsers keep the cookie. Default: until the browser is closed.
    pub max_age: Option<Duration>,
}

// The secret is left out.
superpoll::debug_fields!(Sticky, it =>
    cookie: it.cookie, same_site: it.same_site, path: it.path, max_age: it.max_age);

/// To which requests of other sites browsers add a cookie (`SameSite`).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SameSite {
    /// To links only. The default.
    #[default]
    Lax,
    /// To none.
    Strict,
    /// To all. Browsers take such a cookie over encrypted connections only.
    None,
}

/// The cookie as it is written.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawSticky {
    pub(super) cookie: Option<String>,
    pub(super) secret: Option<String>,
    pub(super) same_site: SameSite,
    pub(super) path: Option<String>,
    #[serde(deserialize_with = "scalar::some_duration")]
    pub(super) max_age: Option<Duration>,
}
