//! The rights of clients to use a channel, as the configuration has them.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::de::{Deserialize, Deserializer};

use super::scalar;
use crate::address::Address;
use crate::table::table;

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

table! {
    /// The tokens that a channel accepts.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct TokenRule {
        /// The key that they are signed with: a secret for HS256, or a public key as PEM. Either
        /// this or `jwks` is given.
        pub key: Option<KeySource> = None,
        /// A file with a set of keys (JWKS); the `kid` of a token selects a key.
        pub jwks: Option<PathBuf> = None,
        /// The audience that tokens have to name. Default: tokens must not name any.
        pub audience: Option<String> = None,
        /// The cookie that tokens are taken from, in addition to `Authorization` and `?token=`.
        /// Default: none.
        pub cookie: Option<String> = None,
        /// By how much the clocks of signers may differ, in whole seconds. Default: 5 s.
        pub leeway: Duration as "scalar::duration" = Duration::from_secs(5),
    }
}

table! {
    /// The servers that decide about the clients of a channel.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct AuthorizeRule {
        /// The name of one of the upstreams in the configuration.
        pub upstream: String = String::new(),
        /// The path that is requested by GET; 2xx allows. Default: `/`.
        pub path: String = "/".to_owned(),
        /// How long the answer may take. Default: 5 s.
        pub timeout: Duration as "scalar::duration" = Duration::from_secs(5),
    }
}

/// What an application may be told of a channel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CallbackEvent {
    /// A user has come.
    Joined,
    /// A user has left.
    Left,
    /// The first user has come.
    Occupied,
    /// The last user has left.
    Empty,
    /// A message was published.
    Published,
}

impl CallbackEvent {
    /// Those that tell of users, which a channel must count.
    pub const OF_USERS: [CallbackEvent; 4] =
        [CallbackEvent::Joined, CallbackEvent::Left, CallbackEvent::Occupied, CallbackEvent::Empty];
}

table! {
    /// The servers that are told what happens in a channel.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct CallbackRule {
        /// The name of one of the upstreams in the configuration.
        pub upstream: String = String::new(),
        /// The path that is requested by POST; 2xx takes the events. Default: `/`.
        pub path: String = "/".to_owned(),
        /// The secret that requests are signed with.
        pub key: Option<KeySource> = None,
        /// What is told. Default: all that tells of users.
        pub events: Vec<CallbackEvent> = CallbackEvent::OF_USERS.to_vec(),
        /// How long the answer may take. Default: 5 s.
        pub timeout: Duration as "scalar::duration" = Duration::from_secs(5),
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

/// Whether a name is a token of HTTP, as names of cookies are (RFC 6265, section 4.1.1).
pub(super) fn is_cookie_name(name: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_graphic() && !b"()<>@,;:\\\"/[]?={}".contains(&byte);
    !name.is_empty() && name.bytes().all(is_part)
}

/// Whether only programs on this machine reach a listener, and no proxy is known to be before it: a
/// Unix socket, too, mostly has a proxy before it.
pub fn is_private(address: &Address, proxy_protocol: bool) -> bool {
    !proxy_protocol && address.is_loopback()
}
