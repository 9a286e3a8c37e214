//! Connecting to Redis, and the checks of whether it can keep logs.

use std::cell::RefCell;
use std::io;
use std::time::Duration;

use futures_rustls::TlsConnector;
use futures_rustls::rustls::pki_types::ServerName;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, RedisConnectionInfo, Value, cmd};
use superpoll_config::{Address, BrokerTarget, BrokerUrl};
use superpoll_http::upstream;
use superpoll_rt::spawn;
use superpoll_rt::tokio::Compat;
use tokio::io::{AsyncRead, AsyncWrite};

use super::{APPEND, ATTEND, Driver, LATE, LOOK, MEMBERS, RedisLog, SETTLE, Scripts, reply};
use crate::broker::log::{Connect, Failure};

/// The oldest version that has all that the scripts use.
const OLDEST: (u32, u32) = (6, 2);

/// How long an address may take to accept a connection.
const DIAL: Duration = Duration::from_secs(2);

/// Connects to the server that a URL names.
pub(crate) struct Connector {
    pub url: BrokerUrl,
    /// With the authorities that vouch for the server, if the connection is encrypted.
    pub tls: Option<TlsConnector>,
    pub replicas: u32,
    /// How long a publication is tried.
    pub publish: Duration,
    /// The beginning of all keys.
    pub prefix: String,
}

/// A connection that is not checked yet.
struct Raw {
    connection: MultiplexedConnection,
    driver: Driver,
}

impl Raw {
    async fn call(&self, words: &[&str]) -> Result<Value, Failure> {
        let mut command = cmd(words[0]);
        words[1..].iter().for_each(|word| {
            command.arg(word);
        });
        let mut connection = self.connection.clone();
        let called = connection.send_packed_command(&command).await;
        called.map_err(|error| Failure::passing(format!("{}: {}", words[0], reply::words(&error))))
    }

    async fn text(&self, words: &[&str]) -> Result<String, Failure> {
        match self.call(words).await? {
            Value::BulkString(text) => Ok(String::from_utf8_lossy(&text).into_owned()),
            Value::SimpleString(text) | Value::VerbatimString { text, .. } => Ok(text),
            Value::ServerError(error) => {
                let (code, details) = (error.code(), error.details().unwrap_or(""));
                let is_lasting = ["NOAUTH", "NOPERM", "WRONGPASS"].contains(&code);
                // A script is long.
                let called = words[..words.len().min(2)].join(" ");
                Err(Failure { what: format!("{called}: {code} {details}"), is_lasting })
            }
            other => Err(Failure::passing(format!("{}: the answer {other:?}", words.join(" ")))),
        }
    }
}

/// Returns the value of a line of `INFO`.
fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

/// Whether a version is too old for the scripts.
fn is_too_old(version: &str) -> bool {
    let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) < OLDEST
}

impl Connector {
    fn failed(address: &Address, error: impl std::fmt::Display) -> Failure {
        Failure::passing(format!("connecting to {address}: {error}"))
    }

    /// Opens a connection and logs in.
    async fn open(&self, address: &Address, info: &RedisConnectionInfo) -> Result<Raw, Failure> {
        let plain = upstream::connect(address, DIAL).await;
        let plain = plain.map_err(|error| Connector::failed(address, error))?;
        let Some(tls) = &self.tls else {
            return Connector::greet(address, info, Compat::new(plain)).await;
        };
        let name = match address {
            Address::Tcp { host: Some(host), .. } => host.clone(),
            _ => "localhost".to_owned(),
        };
        let name = ServerName::try_from(name).map_err(|error| Connector::failed(address, error))?;
        let stream = tls.connect(name, plain).await;
        let stream = stream.map_err(|error| {
            // A certificate that does not fit today will not in a second.
            let is_lasting = error.kind() == io::ErrorKind::InvalidData;
            Failure { is_lasting, ..Connector::failed(address, format!("TLS: {error}")) }
        })?;
        Connector::greet(address, info, Compat::new(stream)).await
    }

    async fn greet(
        address: &Address,
        info: &RedisConnectionInfo,
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    ) -> Result<Raw, Failure> {
        // Its limit needs tokio's timers.
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let opened = MultiplexedConnection::new_with_config(info, stream, config).await;
        let (connection, driver) = opened.map_err(|error| {
            let is_lasting = error.kind() == redis::ErrorKind::AuthenticationFailed;
            let what = match is_lasting {
                true => format!("logging in to {address}: {}", reply::words(&error)),
                false => format!("connecting to {address}: {}", reply::words(&error)),
            };
            Failure { what, is_lasting }
        })?;
        let driver = Driver(RefCell::new(spawn(driver)));
        Ok(Raw { connection, driver })
    }

    /// Asks the sentinels in turn for the address of the master.
    async fn master(&self, sentinels: &[Address], name: &str) -> Result<Address, Failure> {
        let mut last = Failure::passing("no sentinel");
        for sentinel in sentinels {
            let info = RedisConnectionInfo::default();
            let raw = match self.open(sentinel, &info).await {
                Ok(raw) => raw,
                Err(failure) => {
                    last = failure;
                    continue;
                }
            };
            let answer = raw.call(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", name]).await;
            let parts: Vec<String> = match answer {
                Ok(Value::Array(parts)) => parts
                    .into_iter()
                    .filter_map(|part| match part {
                        Value::BulkString(text) => String::from_utf8(text).ok(),
                        _ => None,
                    })
                    .collect(),
                Ok(_) => Vec::new(),
                Err(failure) => {
                    last = failure;
                    continue;
                }
            };
            match &parts[..] {
                [host, port] if port.parse::<u16>().is_ok() => {
                    let port = port.parse().unwrap_or(0);
                    return Ok(Address::Tcp { host: Some(host.clone()), port });
                }
                _ => last = Failure::passing(format!("{sentinel} knows no master {name:?}")),
            }
        }
        Err(last)
    }

    /// Checks that the server can keep logs, and returns the name of the connection and that of the
    /// server's process.
    async fn check(address: &Address, raw: &Raw) -> Result<(i64, String), Failure> {
        let info = raw.text(&["INFO", "server"]).await?;
        let version = field(&info, "redis_version").unwrap_or("unknown");
        if is_too_old(version) {
            let (major, minor) = OLDEST;
            return Err(Failure::lasting(format!(
                "{address} has version {version} of Redis, expected {major}.{minor} or later"
            )));
        }
        if field(&info, "redis_mode") == Some("cluster") {
            return Err(Failure::lasting(format!(
                "{address} is a node of Redis Cluster, where one call cannot read several channels; \
                 expected a server alone, or sentinels"
            )));
        }
        let run = field(&info, "run_id").unwrap_or("").to_owned();
        let info = raw.text(&["INFO", "replication"]).await?;
        if field(&info, "role") != Some("master") {
            return Err(Failure::passing(format!(
                "{address} is a replica, which takes no messages; expected its master"
            )));
        }
        let info = raw.text(&["INFO", "memory"]).await?;
        match field(&info, "maxmemory_policy") {
            None | Some("noeviction") => {}
            Some(policy) => {
                return Err(Failure::lasting(format!(
                    "{address} has maxmemory-policy {policy}, which drops messages without a word; \
                     expected noeviction"
                )));
            }
        }
        match raw.call(&["CLIENT", "ID"]).await? {
            Value::Int(id) => Ok((id, run)),
            other => Err(Failure::passing(format!("CLIENT ID: the answer {other:?}"))),
        }
    }
}

impl Connect for Connector {
    type Log = RedisLog;

    async fn connect(&self) -> Result<RedisLog, Failure> {
        let BrokerUrl { target, user, password, database, .. } = &self.url;
        let address = match target {
            BrokerTarget::Server(address) => address.clone(),
            BrokerTarget::Sentinels(sentinels, name) => self.master(sentinels, name).await?,
        };
        let mut info = RedisConnectionInfo::default().set_db(i64::from(*database));
        if let Some(user) = user {
            info = info.set_username(user);
        }
        if let Some(password) = password {
            info = info.set_password(password);
        }
        let raw = self.open(&address, &info).await?;
        let (name, run) = Connector::check(&address, &raw).await?;
        let append = raw.text(&["SCRIPT", "LOAD", APPEND]).await?;
        let look = raw.text(&["SCRIPT", "LOAD", LOOK]).await?;
        let attend = raw.text(&["SCRIPT", "LOAD", ATTEND]).await?;
        let members = raw.text(&["SCRIPT", "LOAD", MEMBERS]).await?;
        let settle = raw.text(&["SCRIPT", "LOAD", SETTLE]).await?;
        let Raw { connection, driver } = raw;
        let replicas = self.replicas;
        let scripts = Scripts { append, look, attend, members, settle };
        // In one slot of a cluster.
        let key = |name: &str| format!("{}{{servers}}:{name}", self.prefix);
        let keys = (key("run"), key("since"));
        let retried = self.publish + LATE;
        Ok(RedisLog { connection, driver, scripts, name, replicas, retried, run, keys })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_before_the_oldest_are_refused() {
        for (version, expected) in [
            ("5.0.14", true),
            ("6.0.16", true),
            ("6.2.0", false),
            ("7.0.15", false),
            ("10.1", false),
        ] {
            assert_eq!(is_too_old(version), expected, "{version}");
        }
        let info = "# Server\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\n";
        assert_eq!(field(info, "redis_version"), Some("7.0.15"));
        assert_eq!(field(info, "redis"), None);
    }
}
