//! The part of the configuration about messages that several servers share.

use std::path::PathBuf;
use std::time::Duration;

use toml::Spanned;

use super::scalar;
use crate::broker_url::BrokerUrl;
use crate::table::table;

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

table! {
    /// The same as it is written.
    pub(super) struct RawBroker {
        pub(super) url: Option<Spanned<String>> = None,
        pub(super) ca: Option<Spanned<PathBuf>> = None,
        pub(super) prefix: Spanned<String> = Spanned::new(0..0, "superpoll:".to_owned()),
        pub(super) replicas: u32 = 0,
        pub(super) publish: Option<Duration> as "scalar::some_duration" = None,
    }
}
