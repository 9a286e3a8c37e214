//! The part of the configuration about logs and counters.

use std::path::PathBuf;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

use crate::log_field::Field;
use crate::syslog::Syslog;
use crate::table::table;

superpoll::named! {
    /// How much an event matters.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Level {
        /// All is well.
        Info = "info",
        /// A change by an operator or another process.
        Notice = "notice",
        /// An error that the server deals with.
        Warning = "warning",
        /// An error that makes the server do less than it was asked to.
        Error = "error",
    }
}

/// The format of a line in the server's own log.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MessageFormat {
    /// Text, which on standard error leaves out the time and messages that all is well. The
    /// default.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

table! {
    /// The log of events in the server.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct Log {
        /// A file, or `stderr`. Default: `stderr`.
        pub path: PathBuf = "stderr".into(),
        /// The syslog server that gets the lines in place of `path`. Default: none.
        pub syslog: Option<Syslog> = None,
        /// The format of a line. Default: `text`.
        pub format: MessageFormat = MessageFormat::Text,
        /// The level from which on events are logged. Default: `info`, and `notice` for text on
        /// standard error.
        pub level: Option<Level> as "some_level" = None,
    }
}

fn some_level<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Level>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let level = Level::ALL.into_iter().find(|level| level.name() == text);
    level.map(Some).ok_or_else(|| {
        let known = Level::ALL.map(|level| format!("{:?}", level.name())).join(", ");
        D::Error::custom(format!("{text:?} is no level, expected one of {known}"))
    })
}

/// The format of a line in the access log.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogFormat {
    /// The Combined Log Format that analysers of logs read. The default.
    #[default]
    Combined,
    /// One JSON object a line.
    Json,
}

/// The log of requests, and of relayed connections.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AccessLog {
    /// A file, or `stderr`. Default: `stderr`.
    pub path: PathBuf,
    /// The syslog server that gets the lines in place of `path`. Default: none.
    pub syslog: Option<Syslog>,
    /// The format of a line. Default: `combined`.
    pub format: LogFormat,
    /// The fields of a line in JSON, in their order. Default: [`Field::usual`].
    pub fields: Vec<Field>,
}

impl Default for AccessLog {
    fn default() -> AccessLog {
        let fields = Field::usual();
        AccessLog { path: "stderr".into(), syslog: None, format: LogFormat::Combined, fields }
    }
}

table! {
    /// The counters, in the format of Prometheus.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct Metrics {
        /// The path, the same on each host. Default: `/metrics`.
        pub path: String = "/metrics".to_owned(),
        /// Whether all clients may read the counters. Default: no, only programs on this machine.
        pub public: bool = false,
        /// The path that tells load balancers whether the server is ready: 200, or 503 while it is
        /// about to end, while the broker is away, or before its channels are read. The same on
        /// each host, for all clients. Default: none.
        pub ready: Option<String> = None,
    }
}

impl Metrics {
    /// Whether a path is one of these.
    #[inline]
    #[must_use]
    pub fn has(&self, path: &str) -> bool {
        self.path == path || self.ready.as_deref() == Some(path)
    }
}
