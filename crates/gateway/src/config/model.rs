//! What a configuration says once it has been read and found right.

use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use superpoll::backend::{Profile, Tuning};
use superpoll_rt::BackendKind;

use super::origins::Origins;
use super::scalar;
use crate::Address;
use crate::statistics;

/// A configuration of the gateway without mistakes.
#[derive(Clone, PartialEq, Debug)]
pub struct Config {
    /// How the process is run.
    pub server: Process,
    /// Where clients connect to; at least one.
    pub listeners: Vec<Listener>,
    /// What is served to whom who speaks HTTP.
    pub hosts: Vec<Host>,
    /// The groups of servers that routes and listeners forward to, by name. Default: none.
    pub upstreams: BTreeMap<String, Upstream>,
    /// How long the gateway waits for whom.
    pub timeouts: Timeouts,
    /// How much a client may ask for.
    pub limits: Limits,
    /// Where the server writes down what happens to it. Default: on standard error.
    pub log: Log,
    /// Where requests are written down. Default: nowhere.
    pub access_log: Option<AccessLog>,
    /// Where the counters are told. Default: nowhere.
    pub metrics: Option<Metrics>,
    /// Who watches idle connections. Default: the server itself.
    pub babysitter: Option<Babysitter>,
}

/// Who watches idle connections in the server's place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Babysitter {
    /// Where it is.
    pub sitting: Sitting,
    /// When connections are left to it: `chat`, soon, as most of them are idle; or `media`, late. Default: `chat`.
    pub profile: Profile,
}

/// Where a babysitter is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Sitting {
    /// In a thread for each engine.
    Thread,
    /// In a process of its own (`superpoll sit`), which has the connections as well: they live on when the server has
    /// ended, however it has ended, and the next one goes on with them.
    Process {
        /// Where it listens.
        socket: PathBuf,
    },
}

impl Babysitter {
    /// When connections leave.
    pub(crate) fn tuning(&self) -> Tuning {
        let stated_only = matches!(self.sitting, Sitting::Process { .. });
        Tuning { stated_only, ..self.profile.into() }
    }
}

/// How the process is run.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Process {
    /// How many engines share the connections, each on a thread of its own; at most 1024. Default: 1.
    #[serde(deserialize_with = "scalar::workers")]
    pub workers: NonZeroUsize,
    /// What watches the connections: `select`, `poll`, `epoll`, `adaptive`, `uring` or `auto`. Default: what the
    /// environment's `SUPERPOLL_BACKEND` says, else `adaptive`.
    #[serde(deserialize_with = "scalar::some_backend")]
    pub backend: Option<BackendKind>,
    /// Whether the live page is at `/_superpoll/`. Default: for programs on this machine, without a proxy between.
    pub page: Option<bool>,
    /// Where statistics are told to programs of the same user. Default: in a folder of the user's.
    pub stats: statistics::Place,
}

impl Default for Process {
    fn default() -> Process {
        Process {
            workers: NonZeroUsize::MIN,
            backend: None,
            page: None,
            stats: statistics::Place::Usual,
        }
    }
}

/// An address that the gateway listens on.
#[derive(Clone, PartialEq, Debug)]
pub struct Listener {
    /// Where to listen.
    pub address: Address,
    /// The certificate that is shown. Default: connections are not encrypted.
    pub tls: Option<Tls>,
    /// Whether each connection begins with a header of the PROXY protocol that names its client. Default: no.
    pub proxy_protocol: bool,
    /// Where bytes are relayed to as they are. Default: the listener speaks HTTP and serves the hosts.
    pub relay: Option<Relay>,
    /// The permissions of a Unix socket, written in octal as "0660". Default: those that the umask leaves.
    pub mode: Option<u32>,
}

impl Listener {
    /// One that speaks HTTP as it comes.
    #[must_use]
    pub fn plain(address: Address) -> Listener {
        Listener { address, tls: None, proxy_protocol: false, relay: None, mode: None }
    }
}

/// A certificate and its key, both as PEM files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tls {
    /// The file of the certificate and of those that vouch for it.
    pub certificate: PathBuf,
    /// The file of the private key.
    pub key: PathBuf,
}

/// The other end of a listener that relays TCP.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Relay {
    /// Where connections go.
    pub to: Address,
    /// How long a connection may be without a byte in either direction. Default: for ever.
    pub idle: Option<Duration>,
    /// The version of the PROXY protocol in whose header the other end is told of the client. Default: none, there is
    /// no header.
    pub proxy_protocol: Option<ProxyVersion>,
}

/// A virtual host: what is served under some names.
#[derive(Clone, PartialEq, Debug)]
pub struct Host {
    /// The names in lower case; `*.` at the start stands for one label or more.
    pub names: Vec<String>,
    /// Whether it answers for the names that no host has. Default: only where it has no names.
    pub default: bool,
    /// Whether it answers for IP addresses that no host has, and for requests that name no host, which no site can make
    /// a browser send. So the built-in configurations do; a file cannot say it. Default: no.
    pub addresses: bool,
    /// What is served, by path.
    pub routes: Vec<Route>,
}

/// What is served under one path.
#[derive(Clone, PartialEq, Debug)]
pub struct Route {
    /// The path; it stands for itself and for all below it. Default: `/`.
    pub path: String,
    /// What is served.
    pub action: Action,
}

/// What a route does.
#[derive(Clone, PartialEq, Debug)]
pub enum Action {
    /// Serves the files of a folder.
    Files(Files),
    /// Serves the built-in demonstration.
    Demo,
    /// Sends the client elsewhere.
    Redirect(Redirect),
    /// Hands messages from publishers to subscribers.
    Channel(Channel),
    /// Forwards requests to the servers of an upstream.
    Proxy(Proxy),
}

/// A folder whose files are served.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Files {
    /// The folder.
    pub root: PathBuf,
    /// The files that stand for a folder, the best first. Default: `index.html`.
    pub index: Vec<String>,
    /// Whether a folder without such a file is listed. Default: no.
    pub listing: bool,
    /// Whether `FILE.br` and `FILE.gz` are sent in place of `FILE` to those who take them. Default: yes.
    pub precompressed: bool,
    /// Whether files are served whose name, or whose folder's name, begins with a dot. Default: no, except
    /// `.well-known`.
    pub hidden: bool,
    /// How long clients may keep a file without asking again. Default: nothing is said of it.
    #[serde(deserialize_with = "scalar::some_duration")]
    pub max_age: Option<Duration>,
    /// Whether text, scripts and the like are compressed, once, where there is no compressed file. Default: yes.
    pub compress: bool,
    /// How hard gzip tries, 1 to 9. Default: 6.
    pub gzip_level: u32,
    /// How hard Brotli tries, 0 to 11. Default: 5.
    pub brotli_level: u32,
    /// How much of files, as they are and compressed, each worker keeps in memory; 0 keeps nothing and compresses
    /// nothing. Default: 64 MiB.
    #[serde(deserialize_with = "scalar::size")]
    pub cache_bytes: u64,
}

impl Default for Files {
    fn default() -> Files {
        Files {
            root: PathBuf::new(),
            index: vec!["index.html".to_owned()],
            listing: false,
            precompressed: true,
            hidden: false,
            max_age: None,
            compress: true,
            gzip_level: 6,
            brotli_level: 5,
            cache_bytes: 64 << 20,
        }
    }
}

/// Where a client is sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Redirect {
    /// A URL, or a path on the same host.
    pub to: String,
    /// 301, 302, 303, 307 or 308. Default: 308.
    pub status: u16,
}

/// What a channel does with a subscriber who reads slower than others publish.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Slow {
    /// It is disconnected, and may come back and ask for what it missed.
    Disconnect,
    /// The oldest messages that it has not read are left out.
    DropOldest,
}

/// A channel: messages are published by POST and read by WebSocket, server-sent events or long-poll.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Channel {
    /// How many messages are kept for those who come back. Default: 100.
    pub history: usize,
    /// The largest message. Default: 64 KiB.
    #[serde(deserialize_with = "scalar::size")]
    pub message_bytes: u64,
    /// How much may wait for one subscriber before it counts as slow. Default: 256 KiB.
    #[serde(deserialize_with = "scalar::size")]
    pub backlog_bytes: u64,
    /// How much may be on its way to each worker that has subscribers; beyond that, publishers wait. Default: 1 MiB.
    #[serde(deserialize_with = "scalar::size")]
    pub queue_bytes: u64,
    /// What is done about slow subscribers. Default: `disconnect`.
    pub slow: Slow,
    /// How long a long-poll waits for a message. After half of it, other subscribers are sent a sign of life, and
    /// WebSockets have to answer it. Default: 60 s.
    #[serde(deserialize_with = "scalar::duration")]
    pub poll: Duration,
    /// The sites whose pages may use it, beside those of the host itself. Default: none.
    pub origins: Origins,
}

impl Default for Channel {
    fn default() -> Channel {
        Channel {
            history: 100,
            message_bytes: 64 << 10,
            backlog_bytes: 256 << 10,
            queue_bytes: 1 << 20,
            slow: Slow::Disconnect,
            poll: Duration::from_secs(60),
            origins: Origins::default(),
        }
    }
}

/// How requests are forwarded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Proxy {
    /// The name of an upstream that the configuration has.
    pub upstream: String,
    /// Whether the route's path is taken off before a request is forwarded. Default: no.
    pub strip_path: bool,
    /// How often a request that may be repeated is tried on another server. Default: 1.
    pub retries: u32,
    /// The host that requests are forwarded to the servers with. Default: the one that the client asked for.
    pub host: Option<String>,
    /// Whether what a request says of proxies before this one (`X-Forwarded-For` and its like) is believed and added
    /// to. Default: no, it is replaced.
    pub trust_forwarded: bool,
    /// Whether a request is given up when its client ends its side of the connection, as clients do that are gone, and
    /// also those that end it after their request and read on. Default: yes.
    pub abort_on_close: bool,
}

/// How a server is chosen.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Balance {
    /// One after another, by weight. The default.
    #[default]
    RoundRobin,
    /// The one with the fewest connections for its weight.
    LeastConnections,
    /// The same one for the same client address as long as it is up.
    Hash,
}

/// A group of servers that do the same.
#[derive(Clone, PartialEq, Debug)]
pub struct Upstream {
    /// The servers; at least one.
    pub servers: Vec<Server>,
    /// How one is chosen. Default: `round-robin`.
    pub balance: Balance,
    /// How servers are asked whether they are well. Default: they are not asked.
    pub health: Option<Health>,
    /// The version of the PROXY protocol in whose header connections name the client. Default: none, there is no
    /// header.
    pub proxy_protocol: Option<ProxyVersion>,
    /// How many idle connections are kept to each server, on each engine. Default: 32.
    pub keep_alive: usize,
    /// Whether HTTP/2 is spoken: at once without TLS, and with TLS where the server agrees to it. Default: no.
    pub h2: bool,
    /// How connections are encrypted. Default: they are not.
    pub tls: Option<UpstreamTls>,
}

/// A version of the PROXY protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProxyVersion {
    /// Text.
    V1,
    /// Binary.
    V2,
}

/// Who servers have to show to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UpstreamTls {
    /// A PEM file of the certificates that vouch for servers.
    pub ca: PathBuf,
    /// The name that the certificates of servers have. Default: the host of the server's address.
    pub server_name: Option<String>,
}

/// A server of an upstream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Server {
    /// Where it listens.
    pub address: Address,
    /// How many times as much it gets as one of weight 1. Default: 1.
    pub weight: NonZeroU32,
}

/// How a server is asked whether it is well.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Health {
    /// What is asked for by GET; 2xx and 3xx are good. Default: `/`.
    pub path: String,
    /// The time between two questions. Default: 5 s.
    #[serde(deserialize_with = "scalar::duration")]
    pub interval: Duration,
    /// How long an answer may take. Default: 2 s.
    #[serde(deserialize_with = "scalar::duration")]
    pub timeout: Duration,
    /// How many good answers in a row make it well. Default: 2.
    pub rise: NonZeroU32,
    /// How many bad ones in a row, or failures of forwarded requests, make it down. Default: 3.
    pub fall: NonZeroU32,
}

impl Default for Health {
    fn default() -> Health {
        Health {
            path: "/".to_owned(),
            interval: Duration::from_secs(5),
            timeout: Duration::from_secs(2),
            rise: NonZeroU32::MIN.saturating_add(1),
            fall: NonZeroU32::MIN.saturating_add(2),
        }
    }
}

/// How long the gateway waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Timeouts {
    /// For the whole head of a request. Default: 10 s.
    #[serde(deserialize_with = "scalar::duration")]
    pub header: Duration,
    /// For more of a body, read or written. Default: 30 s.
    #[serde(deserialize_with = "scalar::duration")]
    pub body: Duration,
    /// For the next request on a connection. Default: 75 s.
    #[serde(deserialize_with = "scalar::duration")]
    pub idle: Duration,
    /// Until a quiet connection is parked, which frees all it has but its descriptor. Default: 1 s.
    #[serde(deserialize_with = "scalar::duration")]
    pub park: Duration,
    /// For a connection to a server. Default: 5 s.
    #[serde(deserialize_with = "scalar::duration")]
    pub connect: Duration,
    /// For the head of a server's response, from the end of the request. Default: 60 s.
    #[serde(deserialize_with = "scalar::duration")]
    pub response: Duration,
    /// For a byte in either direction of a connection that has left HTTP for another protocol, as WebSocket. Default:
    /// 1 h.
    #[serde(deserialize_with = "scalar::duration")]
    pub tunnel: Duration,
    /// For what is under way when the gateway is told to end. Default: 30 s.
    #[serde(deserialize_with = "scalar::duration")]
    pub drain: Duration,
}

impl Default for Timeouts {
    fn default() -> Timeouts {
        Timeouts {
            header: Duration::from_secs(10),
            body: Duration::from_secs(30),
            idle: Duration::from_secs(75),
            park: Duration::from_secs(1),
            connect: Duration::from_secs(5),
            response: Duration::from_secs(60),
            tunnel: Duration::from_secs(60 * 60),
            drain: Duration::from_secs(30),
        }
    }
}

/// How much is allowed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// The largest head of a request. Default: 16 KiB.
    #[serde(deserialize_with = "scalar::size")]
    pub header_bytes: u64,
    /// The largest body of a request. Default: 16 MiB.
    #[serde(deserialize_with = "scalar::size")]
    pub body_bytes: u64,
    /// The most connections at a time. Default: as many as there are descriptors for, but for those that are kept for
    /// files and upstream servers.
    pub connections: Option<NonZeroU32>,
    /// The most connections of one client address at a time. Default: no limit.
    pub connections_per_client: Option<NonZeroU32>,
    /// The most requests of one connection, which is then closed. Default: no limit.
    pub requests_per_connection: Option<NonZeroU32>,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            header_bytes: 16 << 10,
            body_bytes: 16 << 20,
            connections: None,
            connections_per_client: None,
            requests_per_connection: None,
        }
    }
}

/// How a line of the server's own log is written.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MessageFormat {
    /// As text; on standard error without the time, and without what says that all is well. The default.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Where the server writes down what happens to it.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    /// A file, or `stderr`. Default: `stderr`.
    pub path: PathBuf,
    /// How a line is written. Default: `text`.
    pub format: MessageFormat,
}

impl Default for Log {
    fn default() -> Log {
        Log { path: "stderr".into(), format: MessageFormat::Text }
    }
}

/// How a line of the access log is written.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogFormat {
    /// The Combined Log Format that analysers of logs read. The default.
    #[default]
    Combined,
    /// One JSON object a line.
    Json,
}

/// Where requests are written down.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AccessLog {
    /// A file, or `stderr`. Default: `stderr`.
    pub path: PathBuf,
    /// How a line is written. Default: `combined`.
    pub format: LogFormat,
}

impl Default for AccessLog {
    fn default() -> AccessLog {
        AccessLog { path: "stderr".into(), format: LogFormat::Combined }
    }
}

/// Where the counters are told, in the format of Prometheus.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Metrics {
    /// The path, the same on each host. Default: `/metrics`.
    pub path: String,
    /// Whether they are told to all clients. Default: no, only to programs on this machine.
    pub public: bool,
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics { path: "/metrics".to_owned(), public: false }
    }
}
