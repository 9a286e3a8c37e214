//! The part of the configuration about messages that several servers share.

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use toml::Spanned;

use super::scalar;
use crate::broker_url::BrokerUrl;

/// The engine that keeps the messages of channels for several servers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Broker {
    /// Where Redis or Valkey is.
    pub url: BrokerUrl,
    /// A PEM file with the certificates of the authorities that issue the broker's certificate;
    /// needed with `rediss`.
    pub ca: Option<PathBuf>,
    /// The beginning of all names in the database. Servers with the same prefix have the same
    /// messages. Default: `superpoll:`.
    pub prefix: String,
    /// How many replicas have to have a message before its publisher is told that it is published.
    /// Default: 0.
    pub replicas: u32,
    /// How long a publication is tried before its publisher is told that it may have failed; at
    /// most a minute. Default: 5 s.
    pub publish: Duration,
}

/// The same as it is written.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawBroker {
    pub(super) url: Option<Spanned<String>>,
    pub(super) ca: Option<Spanned<PathBuf>>,
    pub(super) prefix: Spanned<String>,
    pub(super) replicas: u32,
    #[serde(deserialize_with = "scalar::some_duration")]
    pub(super) publish: Option<Duration>,
}

impl Default for RawBroker {
    fn default() -> RawBroker {
        let prefix = Spanned::new(0..0, "superpoll:".to_owned());
        RawBroker { url: None, ca: None, prefix, replicas: 0, publish: None }
    }
}
