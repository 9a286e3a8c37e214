//! The rights of clients to use a channel, as the configuration has them, and the mistakes in that
//! part.

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::de::{Deserialize, Deserializer};

use super::channel::Channel;
use super::check::Check;
use super::model::Listener;
use super::scalar;
use crate::address::Address;
use crate::bounded_file;
use crate::token::{LARGEST_FILE, Verifier};

/// The clients that may publish to a channel, or subscribe to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Right {
    /// All clients.
    Anyone,
    /// Programs on this machine that connect without a proxy.
    Local,
    /// No client.
    Nobody,
    /// Clients with a JSON Web Token that names the channel.
    Token,
    /// Clients that a server of an upstream allows.
    Authorize,
}

/// The place of a secret or of a public key.
#[derive(Clone, PartialEq, Eq)]
pub enum KeySource {
    /// The key itself.
    Text(String),
    /// A file.
    File(PathBuf),
    /// A variable of the environment.
    Variable(String),
}

/// The tokens that a channel accepts.
#[derive(Clone, PartialEq, Eq, Debug, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TokenRule {
    /// The key that they are signed with: a secret for HS256, or a public key as PEM. Either this or
    /// `jwks` is given.
    pub key: Option<KeySource>,
    /// A file with a set of keys (JWKS); the `kid` of a token selects a key.
    pub jwks: Option<PathBuf>,
    /// The audience that tokens have to name. Default: tokens must not name any.
    pub audience: Option<String>,
    /// The cookie that tokens are taken from, in addition to `Authorization` and `?token=`.
    /// Default: none.
    pub cookie: Option<String>,
    /// By how much the clocks of signers may differ, in whole seconds. Default: 5 s.
    #[serde(deserialize_with = "scalar::duration")]
    pub leeway: Duration,
}

impl Default for TokenRule {
    fn default() -> TokenRule {
        let leeway = Duration::from_secs(5);
        TokenRule { key: None, jwks: None, audience: None, cookie: None, leeway }
    }
}

/// The servers that decide about the clients of a channel.
#[derive(Clone, PartialEq, Eq, Debug, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AuthorizeRule {
    /// The name of one of the upstreams in the configuration.
    pub upstream: String,
    /// The path that is requested by GET; 2xx allows. Default: `/`.
    pub path: String,
    /// How long the answer may take. Default: 5 s.
    #[serde(deserialize_with = "scalar::duration")]
    pub timeout: Duration,
}

impl Default for AuthorizeRule {
    fn default() -> AuthorizeRule {
        let (path, timeout) = ("/".to_owned(), Duration::from_secs(5));
        AuthorizeRule { upstream: String::new(), path, timeout }
    }
}

impl<'de> Deserialize<'de> for KeySource {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<KeySource, D::Error> {
        let text = String::deserialize(deserializer)?;
        Ok(match (text.strip_prefix("file:"), text.strip_prefix("env:")) {
            (Some(path), _) => KeySource::File(path.into()),
            (_, Some(name)) => KeySource::Variable(name.to_owned()),
            _ => KeySource::Text(text),
        })
    }
}

impl fmt::Debug for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeySource::Text(_) => f.write_str("Text(..)"),
            KeySource::File(path) => f.debug_tuple("File").field(path).finish(),
            KeySource::Variable(name) => f.debug_tuple("Variable").field(name).finish(),
        }
    }
}

/// Reads a right that is given.
pub(super) fn some_right<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Right>, D::Error> {
    Right::deserialize(deserializer).map(Some)
}

/// Reads a table that clones of the configuration share.
pub(super) fn shared<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<Arc<T>>, D::Error> {
    T::deserialize(deserializer).map(|table| Some(Arc::new(table)))
}

impl KeySource {
    /// Returns the key, and the words for its place.
    fn read(&self) -> Result<(Vec<u8>, String), String> {
        let (mut key, place) = match self {
            KeySource::Text(text) => return Ok((text.clone().into_bytes(), "key".to_owned())),
            KeySource::File(path) => {
                let place = format!("the key in {}", path.display());
                let key = bounded_file::read(path, LARGEST_FILE)
                    .map_err(|error| format!("cannot read {place}: {error}"))?;
                (key, place)
            }
            KeySource::Variable(name) => {
                let key = std::env::var_os(name).ok_or_else(|| {
                    format!("the variable {name} is not set in the environment, expected a key")
                })?;
                (key.into_encoded_bytes(), format!("the variable {name}"))
            }
        };
        // The line end that editors and shells leave belongs to no secret.
        while key.last().is_some_and(|byte| matches!(byte, b'\n' | b'\r')) {
            key.pop();
        }
        Ok((key, place))
    }
}

impl TokenRule {
    /// Reads the keys.
    pub(crate) fn verifier(&self) -> Result<Verifier, String> {
        let (audience, leeway) = (self.audience.as_deref(), self.leeway);
        if let Some(path) = &self.jwks {
            let place = format!("the set of keys {}", path.display());
            let set = bounded_file::read(path, LARGEST_FILE)
                .map_err(|error| format!("cannot read {place}: {error}"))?;
            let read = Verifier::with_set(&set, audience, leeway);
            return read.map_err(|what| format!("{place} is {what}"));
        }
        let key = self.key.as_ref().ok_or("tokens without a key")?;
        let (key, place) = key.read()?;
        let read = Verifier::with_key(&key, audience, leeway);
        read.map_err(|what| format!("{place} is {what}"))
    }
}

/// Whether a name is a token of HTTP, as names of cookies are (RFC 6265, section 4.1.1).
pub(super) fn is_cookie_name(name: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_graphic() && !b"()<>@,;:\\\"/[]?={}".contains(&byte);
    !name.is_empty() && name.bytes().all(is_part)
}

impl Check<'_> {
    /// Checks the rights of the channel at a path.
    pub(super) fn rights(&mut self, place: &Range<usize>, path: &str, channel: &mut Channel) {
        let uses = |right| channel.publish == Some(right) || channel.subscribe == right;
        let (takes_tokens, asks) = (uses(Right::Token), uses(Right::Authorize));
        match channel.token.clone() {
            // A token says which private updates of a hub are for its holder, too.
            Some(token) if takes_tokens || channel.mercure.is_some() => {
                let token = self.token(place, channel, (*token).clone());
                channel.token = Some(Arc::new(token));
            }
            Some(_) => {
                let what = "nobody needs a token here, expected publish or subscribe = \"token\"";
                self.wrong(self.within(place, &["token"]), what);
            }
            None if takes_tokens => {
                let what = "\"token\" without a key, expected token = { key = KEY }";
                let key = if channel.subscribe == Right::Token { "subscribe" } else { "publish" };
                self.missing(self.within(place, &[key]), what);
            }
            None => {}
        }
        match channel.authorize.clone() {
            Some(rule) if asks => {
                let place = self.within(place, &["authorize"]);
                if rule.upstream.is_empty() {
                    let what = "no upstream to ask, expected upstream = NAME";
                    self.missing(place.clone(), what);
                } else {
                    let of_name = self.within(&place, &["upstream"]);
                    self.known_upstream(of_name, &rule.upstream);
                }
                self.path(self.within(&place, &["path"]), &rule.path);
            }
            Some(_) => {
                let what =
                    "no client is asked about, expected publish or subscribe = \"authorize\"";
                self.wrong(self.within(place, &["authorize"]), what);
            }
            None if asks => {
                let what = "\"authorize\" without a server to ask";
                let key =
                    if channel.subscribe == Right::Authorize { "subscribe" } else { "publish" };
                let place = self.within(place, &[key]);
                let expected = "expected authorize = { upstream = NAME, path = PATH }";
                self.missing(place, format!("{what}, {expected}"));
            }
            None => {}
        }
        if channel.publish.is_none() {
            self.warn_unless_private(place.clone(), path);
        }
    }

    fn token(
        &mut self,
        place: &Range<usize>,
        channel: &Channel,
        mut token: TokenRule,
    ) -> TokenRule {
        let whole = self.within(place, &["token"]);
        let cookie_place = self.within(&whole, &["cookie"]);
        match &token.cookie {
            Some(name) if !is_cookie_name(name) => {
                let what = format!("{name:?} is no name of a cookie");
                self.wrong(cookie_place, format!("{what}, expected one as \"session\""));
            }
            Some(_) if channel.origins.allow_all() => {
                let what = "browsers send a cookie for the pages of every site, and origins lets \
                            all of them in, expected origins by name";
                self.wrong(cookie_place, what);
            }
            _ => {}
        }
        if token.audience.as_ref().is_some_and(String::is_empty) {
            let what = "the audience is empty, expected a name as \"chat\"";
            self.wrong(self.within(&whole, &["audience"]), what);
        }
        if let Some(KeySource::File(path)) = &mut token.key {
            *path = self.resolved(std::mem::take(path));
        }
        token.jwks = token.jwks.map(|path| self.resolved(path));
        let key = match (&token.key, &token.jwks) {
            (Some(_), Some(_)) => {
                let what = "a set of keys in addition to a key, expected key or jwks, not both";
                self.wrong(self.within(&whole, &["jwks"]), what);
                return token;
            }
            (None, None) => {
                self.missing(whole, "tokens without a key, expected key = KEY or jwks = FILE");
                return token;
            }
            (Some(_), None) => self.within(&whole, &["key"]),
            (None, Some(_)) => self.within(&whole, &["jwks"]),
        };
        if (self.looks_at_files() || matches!(token.key, Some(KeySource::Text(_))))
            && let Err(what) = token.verifier()
        {
            self.wrong(key, what.replace(['\n', '\r'], " "));
        }
        token
    }

    /// Warns of a channel that is closed to publishers, as it has no right for them.
    fn warn_unless_private(&mut self, place: Range<usize>, path: &str) {
        let Some(open) = self.open_listener() else { return };
        let what = format!("nobody may publish to {path} on {open}");
        let expected = "expected publish = \"token\", \"authorize\", \"local\" or \"anyone\"";
        self.warn(place, format!("{what} until the channel says who, {expected}"));
    }
}

/// Whether only programs on this machine reach a listener, and no proxy is known to be before it: a
/// Unix socket, too, mostly has a proxy before it.
pub(crate) fn is_private(address: &Address, proxy_protocol: bool) -> bool {
    !proxy_protocol && address.is_loopback()
}

impl Listener {
    /// As [`is_private`].
    pub(super) fn is_private(&self) -> bool {
        is_private(&self.address, self.proxy_protocol)
    }
}
