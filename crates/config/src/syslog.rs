//! Syslog as the place of a log: the server, the facility and the tag, as nginx and HAProxy have
//! them. Severities need no key: an event has that of its level, a request has `info`.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::de::{Deserializer, Error};
use serde::{Deserialize, Serialize};

use crate::address::Address;
use crate::logs::{AccessLog, Log};
use crate::table::table;

/// The longest tag, which is the `APP-NAME` of RFC 5424.
const LONGEST_TAG: usize = 48;

superpoll::named! {
    /// The part of a system that a message is from, by which syslog servers sort messages.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    #[expect(missing_docs, reason = "syslog(3) has the meaning of each")]
    pub enum Facility {
        User = "user",
        Mail = "mail",
        Daemon = "daemon",
        Auth = "auth",
        News = "news",
        AuthPriv = "authpriv",
        Local0 = "local0",
        Local1 = "local1",
        Local2 = "local2",
        Local3 = "local3",
        Local4 = "local4",
        Local5 = "local5",
        Local6 = "local6",
        Local7 = "local7",
    }
}

impl Facility {
    /// Returns the number of the facility (RFC 5424, section 6.2.1).
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Facility::User => 1,
            Facility::Mail => 2,
            Facility::Daemon => 3,
            Facility::Auth => 4,
            Facility::News => 7,
            Facility::AuthPriv => 10,
            Facility::Local0 => 16,
            Facility::Local1 => 17,
            Facility::Local2 => 18,
            Facility::Local3 => 19,
            Facility::Local4 => 20,
            Facility::Local5 => 21,
            Facility::Local6 => 22,
            Facility::Local7 => 23,
        }
    }
}

/// The address of a syslog server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SyslogServer {
    /// A datagram socket of the Unix domain on this machine.
    Unix(PathBuf),
    /// A port of UDP, at a name or an IP address without brackets.
    Udp(String, u16),
    /// A port of TCP, at a name or an IP address without brackets.
    Tcp(String, u16),
}

impl fmt::Display for SyslogServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (protocol, host, port) = match self {
            SyslogServer::Unix(path) => return write!(f, "unix:{}", path.display()),
            SyslogServer::Udp(host, port) => ("udp", host, port),
            SyslogServer::Tcp(host, port) => ("tcp", host, port),
        };
        let address = Address::Tcp { host: Some(host.clone()), port: *port };
        write!(f, "{protocol}:{address}")
    }
}

impl SyslogServer {
    /// Reads an address; an error is the reason in words.
    fn parse(text: &str) -> Result<SyslogServer, String> {
        let expected = "expected \"unix:PATH\", \"udp:HOST:PORT\" or \"tcp:HOST:PORT\"";
        let wrong = |reason: &str| format!("{text:?} is no syslog server{reason}, {expected}");
        let address = |text: &str| text.parse::<Address>().map_err(|error| format!(": {error}"));
        let network = |rest: &str| match address(rest) {
            Ok(Address::Tcp { host: Some(host), port }) if port != 0 => Ok((host, port)),
            Ok(_) => Err(wrong(": the host or the port is missing")),
            Err(reason) => Err(wrong(&reason)),
        };
        if let Some(rest) = text.strip_prefix("udp:") {
            network(rest).map(|(host, port)| SyslogServer::Udp(host, port))
        } else if let Some(rest) = text.strip_prefix("tcp:") {
            network(rest).map(|(host, port)| SyslogServer::Tcp(host, port))
        } else {
            match address(text) {
                Ok(Address::Unix(path)) => Ok(SyslogServer::Unix(path)),
                Ok(Address::Tcp { .. }) => Err(wrong("")),
                Err(reason) => Err(wrong(&reason)),
            }
        }
    }
}

table! {
    /// Syslog as the place of a log.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct Syslog {
        /// The server. Default: `unix:/dev/log`, the syslog daemon of this machine.
        pub server: SyslogServer as "server" = SyslogServer::Unix("/dev/log".into()),
        /// The facility of all messages. Default: `local7`, as in nginx.
        pub facility: Facility = Facility::Local7,
        /// The name of the program in all messages. Default: `superpoll`.
        pub tag: String as "tag" = "superpoll".to_owned(),
    }
}

fn server<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SyslogServer, D::Error> {
    let text = String::deserialize(deserializer)?;
    SyslogServer::parse(&text).map_err(D::Error::custom)
}

/// Reads a tag. Other characters would end it before its end for some server.
fn tag<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let text = String::deserialize(deserializer)?;
    let is_good = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if (1..=LONGEST_TAG).contains(&text.len()) && text.bytes().all(is_good) {
        return Ok(text);
    }
    Err(D::Error::custom(format!(
        "{text:?} is no tag, expected 1 to {LONGEST_TAG} ASCII letters, digits, \"-\", \"_\" and \".\""
    )))
}

/// The place that the lines of a log go to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LogPlace {
    /// Standard error.
    Stderr,
    /// A file, to which lines are appended.
    File(PathBuf),
    /// A syslog server.
    Syslog(Syslog),
}

impl LogPlace {
    fn new(path: &Path, syslog: Option<&Syslog>) -> LogPlace {
        match syslog {
            Some(syslog) => LogPlace::Syslog(syslog.clone()),
            None if path == Path::new("stderr") => LogPlace::Stderr,
            None => LogPlace::File(path.to_path_buf()),
        }
    }
}

impl fmt::Display for LogPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LogPlace::Stderr => f.write_str("stderr"),
            LogPlace::File(path) => path.display().fmt(f),
            LogPlace::Syslog(syslog) => write!(f, "syslog:{}", syslog.server),
        }
    }
}

impl Log {
    /// Returns the place that its lines go to.
    #[must_use]
    pub fn place(&self) -> LogPlace {
        LogPlace::new(&self.path, self.syslog.as_ref())
    }
}

impl AccessLog {
    /// Returns the place that its lines go to.
    #[must_use]
    pub fn place(&self) -> LogPlace {
        LogPlace::new(&self.path, self.syslog.as_ref())
    }
}
