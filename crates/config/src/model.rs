//! The configuration after it has been read and checked.

use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use serde::de::{Deserialize, Deserializer, Error};
use superpoll::BackendKind;
use superpoll::backend::{Profile, Tuning};

use super::broker::Broker;
use super::channel::Channel;
use super::dns::{Dns, ServerAddress};
use super::ejection::Ejection;
use super::encryption::{CertificateFiles, Https, Tls};
use super::engine::Engine;
use super::logs::{AccessLog, Log, Metrics};
use super::relay::Relay;
use super::rights::KeySource;
use super::rules::{
    self, Access, BasicAuth, ClientRange, ErrorPages, HeaderChanges, RequestRate, Rules,
};
use super::scalar;
use super::sticky::Sticky;
use super::tracing::Tracing;
use super::workers::{self, Workers};
use crate::address::Address;
use crate::host_table::HostTable;
use crate::matcher::Matcher;
use crate::route_table::{RouteTable, TableRoute};
use crate::scalar::ProxyVersion;
use crate::table::table;

/// A valid configuration of the gateway.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Config {
    /// How the process is run.
    pub server: Process,
    /// How its engines watch connections.
    pub engine: Engine,
    /// The addresses that clients connect to; at least one.
    pub listeners: Vec<Listener>,
    /// Virtual hosts, for HTTP listeners.
    pub hosts: Vec<Host>,
    /// The groups of servers that routes and listeners forward to, by name. Default: none.
    pub upstreams: BTreeMap<String, Upstream>,
    /// Timeouts.
    pub timeouts: Timeouts,
    /// Limits on the requests and connections of clients.
    pub limits: Limits,
    /// The log of events in the server. Default: on standard error.
    pub log: Log,
    /// The log of requests. Default: none.
    pub access_log: Option<AccessLog>,
    /// The counters, in the format of Prometheus. Default: not served.
    pub metrics: Option<Metrics>,
    /// How requests can be followed from server to server. Default: they cannot.
    pub tracing: Tracing,
    /// The admin listener. Default: none.
    pub admin: Option<Admin>,
    /// The keeper, which watches idle connections in the server's place. Default: the server
    /// itself watches them.
    pub keeper: Option<Keeper>,
    /// The engine that keeps the messages of channels for several servers. Default: none, each
    /// server has its own.
    pub broker: Option<Broker>,
    /// Settings that are valid and probably not meant, as `FILE:LINE:COLUMN: what is expected`.
    pub warnings: Vec<String>,
}

impl Config {
    /// Returns the host that answers for a name, which may have a port: the host with that name,
    /// else the host with the longest wildcard for it, else the default host.
    #[must_use]
    pub fn host(&self, name: &str) -> Option<&Host> {
        let name = match name.rfind(':') {
            Some(colon) if !name[colon..].contains(']') => &name[..colon],
            _ => name,
        };
        let name = name.trim_start_matches('[').trim_end_matches([']', '.']);
        self.host_table().find(name, |_| true).map(|(host, _)| *host)
    }

    /// Returns the table of all hosts.
    #[must_use]
    pub fn host_table(&self) -> HostTable<&Host> {
        let mut table = HostTable::with_capacity(self.hosts.len());
        self.hosts.iter().for_each(|host| table.add(host, &host));
        table.finish();
        table
    }
}

/// The admin listener. Its address is that of the listener in the configuration's list that
/// [`is_admin`](super::Listener::is_admin).
#[derive(Clone, PartialEq, Debug)]
pub struct Admin {
    /// The names that requests may have as their host, in lower case, in addition to `localhost`
    /// and IP addresses. Default: none.
    pub hosts: Vec<String>,
    /// The clients and users that are served. Default: all that reach the listener.
    pub rules: Rules,
}

/// The keeper, which watches idle connections in the server's place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Keeper {
    /// Where the keeper runs.
    pub kind: KeeperKind,
    /// When connections are left to the keeper: `chat`, early, since most connections are idle;
    /// or `media`, late. Default: `chat`.
    pub profile: Profile,
    /// Whether encrypted connections go on with the next server as well. Their keys are then in
    /// the memory of the keeper process, too. Default: false.
    pub tls: bool,
}

/// Where a keeper runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum KeeperKind {
    /// In a thread for each engine.
    Thread,
    /// In a process of its own (`superpoll keep`), which has the connections as well. They outlive
    /// the server, however it ends, and the next server goes on with them.
    Process {
        /// The path where the process listens.
        socket: PathBuf,
    },
}

impl Keeper {
    /// Returns the tuning of the profile: when connections leave the engine.
    #[must_use]
    pub fn tuning(&self) -> Tuning {
        let only_with_state = matches!(self.kind, KeeperKind::Process { .. });
        Tuning { only_with_state, ..self.profile.into() }
    }
}

table! {
    /// How the process is run.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct Process {
        /// The number of engines that share the connections, each on a thread of its own. Default:
        /// one for each processor.
        pub workers: Workers = Workers::Auto,
        /// The number of processes that are this one server, each with its own workers; at most
        /// 1024. Only the command `superpoll serve` looks at it. Default: 1.
        pub processes: NonZeroUsize as "workers::processes" = NonZeroUsize::MIN,
        /// The back-end that watches the connections: `select`, `poll`, `epoll`, `adaptive`,
        /// `uring` or `auto`. Default: the value of `SUPERPOLL_BACKEND`, else `adaptive`.
        pub backend: Option<BackendKind> as "scalar::some_backend" = None,
        /// Whether the live page is at `/_superpoll/`. Default: only for programs on this machine
        /// that connect without a proxy.
        pub page: Option<bool> = None,
        /// The socket with the statistics, for programs of the same user. Default: in a folder of
        /// the user's.
        pub stats: SocketPath = SocketPath::Default,
        /// The proxies in front, by their addresses. For a request of one of them, the client is
        /// the last address in `X-Forwarded-For` or `Forwarded` that is none of them. Default:
        /// none, the client is the peer of the connection.
        pub trusted_proxies: Vec<ClientRange> as "rules::trusted_proxies" = Vec::new(),
    }
}

/// The place of a process's statistics socket.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum SocketPath {
    /// In a folder of the user's, by the number of the process.
    #[default]
    Default,
    /// Nowhere.
    Off,
    /// At a path.
    At(PathBuf),
}

impl FromStr for SocketPath {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<SocketPath, &'static str> {
        match text {
            "" => Err("the path of the statistics socket is empty, expected a path or \"off\""),
            "off" => Ok(SocketPath::Off),
            path => Ok(SocketPath::At(path.into())),
        }
    }
}

impl<'de> Deserialize<'de> for SocketPath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<SocketPath, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

/// An address that the gateway listens on.
#[derive(Clone, PartialEq, Debug)]
pub struct Listener {
    /// The address to listen on.
    pub address: Address,
    /// Encryption, with the certificates of the server. Default: connections are not encrypted.
    pub tls: Option<Tls>,
    /// Whether each connection begins with a header of the PROXY protocol that names its client.
    /// Default: no.
    pub proxy_protocol: bool,
    /// The relay that forwards bytes unchanged. Default: the listener speaks HTTP and serves the
    /// hosts.
    pub relay: Option<Relay>,
    /// The permissions of a Unix socket, written in octal as "0660". Default: as the umask leaves
    /// them.
    pub mode: Option<u32>,
    /// Whether it is the admin listener, which serves no host. Default: no.
    pub is_admin: bool,
}

impl Listener {
    /// Returns a listener that speaks HTTP without encryption.
    #[must_use]
    pub fn plain(address: Address) -> Listener {
        Listener {
            address,
            tls: None,
            proxy_protocol: false,
            relay: None,
            mode: None,
            is_admin: false,
        }
    }

    /// Returns the address that the listener has, with the port that the kernel has chosen, as
    /// users write it.
    #[must_use]
    pub fn front(&self, address: &Address) -> String {
        match (&self.relay, address, &self.tls) {
            (Some(relay), ..) => format!("{address}, relayed to {relay}"),
            (None, Address::Unix(_), _) if self.is_admin => {
                format!("HTTP on {address}, for administration")
            }
            (None, _, None) if self.is_admin => format!("http://{address}/, for administration"),
            (None, Address::Unix(_), _) => format!("HTTP on {address}"),
            (None, _, None) => format!("http://{address}/"),
            (None, _, Some(_)) => format!("https://{address}/"),
        }
    }
}

/// A virtual host: the routes that are served under some names.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Host {
    /// The names in lower case; `*.` at the start stands for one label or more.
    pub names: Vec<String>,
    /// Whether the host answers for the names that no other host of the same listener has. On its
    /// own listeners it comes before a default host of all listeners. Default: only if it has no
    /// names.
    pub default: bool,
    /// Whether the host answers for IP addresses that no other host has, and for requests that name
    /// no host, which no site can make a browser send. The built-in configurations set it; a file
    /// cannot. Default: no.
    pub addresses: bool,
    /// The listeners on which the host is served, by their addresses. Default: none, which stands
    /// for all listeners.
    pub listeners: Vec<Address>,
    /// The treatment of requests that are not encrypted, and the rule for browsers. Default: both
    /// kinds of requests are served alike.
    pub https: Option<Https>,
    /// The fields of all responses that are set, added and removed.
    pub headers: HeaderChanges,
    /// The pages for errors. Default: an error is a line of text.
    pub errors: ErrorPages,
    /// The clients that are served, by all routes. Default: all.
    pub access: Access,
    /// The most requests of one client to all routes together. Default: no limit.
    pub rate: Option<RequestRate>,
    /// The users of routes that have none of their own, and of paths without a route. Default: no
    /// password is asked for.
    pub basic_auth: Option<Arc<BasicAuth>>,
    /// The routes, by path.
    pub routes: Vec<Route>,
}

impl Host {
    /// Returns the route that a path is at or below, of those without matchers.
    #[must_use]
    pub fn route(&self, path: &str) -> Option<&Route> {
        self.route_table().find(path).map(|route| route.handler)
    }

    /// Returns the table of all routes.
    #[must_use]
    pub fn route_table(&self) -> RouteTable<&Route> {
        let routes = self.routes.iter().map(|route| {
            let matcher = route.matcher.clone().map(Box::new);
            TableRoute { path: route.path.clone(), matcher, handler: route }
        });
        RouteTable::new(routes.collect())
    }
}

/// The action for one path.
#[derive(Clone, PartialEq, Debug)]
pub struct Route {
    /// The path; it stands for itself and for all below it. Default: `/`.
    pub path: String,
    /// The requests for such a path that the route is for. Default: all.
    pub matcher: Option<Matcher>,
    /// The action.
    pub action: Action,
    /// The rules in addition to it.
    pub rules: Rules,
}

/// The action of a route.
#[derive(Clone, PartialEq, Debug)]
pub enum Action {
    /// Serves the files of a folder.
    Files(Files),
    /// Serves the built-in demonstration.
    Demo,
    /// Sends the client elsewhere.
    Redirect(Redirect),
    /// Gives the same answer to all requests.
    Respond(Respond),
    /// Hands messages from publishers to subscribers.
    Channel(Channel),
    /// Forwards requests to the servers of an upstream.
    Proxy(Proxy),
    /// Runs scripts on the servers of an upstream.
    FastCgi(Box<FastCgi>),
    /// Serves the files of a folder, and leaves requests for which there is no file to another
    /// action.
    FilesFirst(Files, Box<Action>),
    /// Takes the items that applications publish to the connections that they hold.
    Grip(Grip),
}

impl Config {
    /// Returns the keys by which applications hold connections, each once.
    #[must_use]
    pub fn grips(&self) -> Vec<&Grip> {
        let routes = self.hosts.iter().flat_map(|host| &host.routes);
        let mut grips: Vec<&Grip> = Vec::new();
        for grip in routes.filter_map(|route| route.action.grip()) {
            if !grips.iter().any(|known| known.key == grip.key) {
                grips.push(grip);
            }
        }
        grips
    }
}

impl Action {
    /// Returns how an application holds connections by it, or publishes to those.
    pub fn grip(&self) -> Option<&Grip> {
        match self {
            Action::Grip(grip) => Some(grip),
            Action::Proxy(proxy) => proxy.grip.as_ref(),
            Action::FastCgi(fastcgi) => fastcgi.proxy.grip.as_ref(),
            Action::FilesFirst(_, rest) => rest.grip(),
            _ => None,
        }
    }

    /// Returns the folders that are opened for it, in their order.
    pub fn folders(&self) -> impl Iterator<Item = &PathBuf> {
        let (files, rest) = match self {
            Action::Files(files) => (Some(files), None),
            Action::FilesFirst(files, rest) => (Some(files), Some(&**rest)),
            other => (None, Some(other)),
        };
        let (scripts, proxy) = match rest {
            Some(Action::FastCgi(fastcgi)) => (fastcgi.root.as_ref(), Some(&fastcgi.proxy)),
            Some(Action::Proxy(proxy)) => (None, Some(proxy)),
            _ => (None, None),
        };
        let sent = proxy.into_iter().flat_map(|proxy| proxy.send_files.values());
        files.map(|files| &files.root).into_iter().chain(scripts).chain(sent)
    }
}

/// The action that gets the requests for which there is no file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Otherwise {
    /// That of `proxy`.
    Proxy,
    /// That of `fastcgi`.
    FastCgi,
}

table! {
    /// A folder whose files are served.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct Files {
        /// The folder.
        pub root: PathBuf = PathBuf::new(),
        /// The files that stand for a folder, the best first. Default: `index.html`.
        pub index: Vec<String> = vec!["index.html".to_owned()],
        /// The path of the file that is sent for a path without a file, as `/index.html`. Default:
        /// none, such a path is answered by 404.
        pub fallback: Option<String> = None,
        /// The action of the same route that gets the requests for which there is no file. Default:
        /// none, they are answered by 404.
        pub otherwise: Option<Otherwise> = None,
        /// Whether a folder without such a file is listed. Default: no.
        pub listing: bool = false,
        /// Whether `FILE.br`, `FILE.zst` and `FILE.gz` are sent in place of `FILE` to clients that
        /// accept them. Default: yes.
        pub precompressed: bool = true,
        /// Whether files and folders are served whose name begins with a dot. Default: no, except
        /// `.well-known`.
        pub hidden: bool = false,
        /// How long clients may keep a file without asking again. Default: the server does not say.
        pub max_age: Option<Duration> as "scalar::some_duration" = None,
        /// Whether text, scripts and the like are compressed, once, where there is no compressed
        /// file. Default: yes.
        pub compress: bool = true,
        /// How hard gzip tries, 1 to 9. Default: 6.
        pub gzip_level: u32 = 6,
        /// How hard Brotli tries, 0 to 11. Default: 5.
        pub brotli_level: u32 = 5,
        /// How hard Zstandard tries, 1 to 19. Default: 6.
        pub zstd_level: u32 = 6,
        /// The memory for files, as they are and compressed, that each worker keeps; 0 keeps
        /// nothing and compresses nothing. Default: 64 MiB.
        pub cache_bytes: u64 as "scalar::size" = 64 << 20,
        /// Accepted with a warning, and without an effect.
        pub lane: Option<bool> = None,
        /// The name of the character encoding in the `Content-Type` of text, or `off` for none.
        /// Default: `utf-8`.
        pub charset: String = "utf-8".to_owned(),
        /// The media types of files by the extensions of their names, in lower case and without the
        /// dot. Default: the usual ones.
        pub types: BTreeMap<String, String> = BTreeMap::new(),
    }
}

/// The destination of a redirect.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Redirect {
    /// A URL, or a path on the same host. `{host}`, `{path}` and `{query}` stand for these parts of
    /// the request.
    pub to: String,
    /// 301, 302, 303, 307 or 308. Default: 308.
    pub status: u16,
}

impl Proxy {
    /// Returns the way to an upstream with the defaults of all keys.
    #[must_use]
    pub fn to(upstream: impl Into<String>) -> Proxy {
        Proxy {
            upstream: upstream.into(),
            strip_path: false,
            retries: 1,
            host: None,
            trust_forwarded: false,
            abort_on_close: true,
            request_headers: HeaderChanges::default(),
            replace_errors: false,
            compress: false,
            rewrite_location: BTreeMap::new(),
            rewrite_cookie_path: BTreeMap::new(),
            rewrite_cookie_domain: BTreeMap::new(),
            send_files: BTreeMap::new(),
            grip: None,
        }
    }
}

/// How an application holds connections, by GRIP.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Grip {
    /// The secret that the application and the gateway sign with. Routes with the same secret share
    /// their channels.
    pub key: KeySource,
    /// Whether the items that are published are those of the broker, which other servers have as
    /// well. Default: no.
    pub broker: bool,
}

impl Grip {
    /// Returns the options of the log of items. It keeps 1,000 items, of 1 MB and 64 MiB in all at
    /// most.
    #[must_use]
    pub fn log(&self) -> Channel {
        Channel {
            history: 1000,
            message_bytes: 1_000_000,
            max_bytes: 64 << 20,
            broker: self.broker,
            grip: true,
            ..Channel::default()
        }
    }
}

/// An answer that is the same for all requests.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Respond {
    /// The status, 200 to 599. [`SILENT`](Respond::SILENT) sends nothing. Default: 200.
    pub status: u16,
    /// The body. Default: the number and the name of the status.
    pub body: Option<String>,
    /// The fields. Default: `Content-Type: text/plain; charset=utf-8`.
    pub headers: Vec<(HeaderName, HeaderValue)>,
}

impl Respond {
    /// The status that is logged where nothing is sent, as in nginx: the connection of HTTP/1 is
    /// closed, and the stream of HTTP/2 is reset.
    pub const SILENT: u16 = 444;

    /// Whether nothing is sent.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        self.status == Respond::SILENT
    }

    /// Whether a response of the status has a body (RFC 9110, sections 15.3.5, 15.3.6 and 15.4.5).
    #[must_use]
    pub fn has_body(&self) -> bool {
        !matches!(self.status, 204 | 205 | 304) && !self.is_silent()
    }
}

/// How requests are forwarded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Proxy {
    /// The name of one of the upstreams in the configuration.
    pub upstream: String,
    /// Whether the route's path is taken off before a request is forwarded. Default: no.
    pub strip_path: bool,
    /// How often a request that may be repeated is tried on another server. Default: 1.
    pub retries: u32,
    /// The host that requests are forwarded with. Default: the host that the client asked for.
    pub host: Option<String>,
    /// Whether fields of a request about earlier proxies (`X-Forwarded-For` and its like) are
    /// believed and added to. Default: no, they are replaced.
    pub trust_forwarded: bool,
    /// Whether a request is given up when its client ends its side of the connection. A client that
    /// has gone looks like this; so does a client that ends its side after its request and reads
    /// on. Default: yes.
    pub abort_on_close: bool,
    /// The fields of requests that are set, added and removed on the way to a server.
    pub request_headers: HeaderChanges,
    /// Whether the pages for errors also take the place of errors of the servers. Default: no.
    pub replace_errors: bool,
    /// Whether responses are compressed that are text of some sort, for clients that accept it.
    /// Default: no.
    pub compress: bool,
    /// The beginnings of `Location` and `Content-Location` that are replaced. Default: none.
    pub rewrite_location: BTreeMap<String, String>,
    /// The beginnings of the paths of cookies that are replaced. Default: none.
    pub rewrite_cookie_path: BTreeMap<String, String>,
    /// The domains of cookies that are replaced, in lower case. Default: none.
    pub rewrite_cookie_domain: BTreeMap<String, String>,
    /// The folders of which servers may ask this one to send files (`X-Accel-Redirect`,
    /// `X-Sendfile`), by the paths that stand for them. Default: none.
    pub send_files: BTreeMap<String, PathBuf>,
    /// How the servers hold connections. Default: they cannot.
    pub grip: Option<Grip>,
}

/// How scripts are run by FastCGI.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FastCgi {
    /// How requests are forwarded. No path is taken off.
    pub proxy: Proxy,
    /// The folder of the scripts. Default: none, the servers have one program for all paths.
    pub root: Option<PathBuf>,
    /// The same folder as the servers see it. Default: the same path.
    pub server_root: Option<PathBuf>,
    /// The script for a folder, and for all paths that are none of a script. Default: `index.php`.
    pub index: String,
    /// The end of the names of scripts. Default: `.php`.
    pub split: String,
    /// Further parameters. Default: none.
    pub params: BTreeMap<String, String>,
    /// Whether long bodies of requests are read to their end before a server gets them. Bodies
    /// without a length always are. Default: no.
    pub spool: bool,
}

/// How a server is chosen.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Balance {
    /// One after another, by weight. The default.
    #[default]
    RoundRobin,
    /// The server with the fewest connections for its weight.
    LeastConnections,
    /// The same server for the same client address as long as that server is up.
    Hash,
}

/// A group of equivalent servers.
#[derive(Clone, PartialEq, Debug)]
pub struct Upstream {
    /// The servers; at least one.
    pub servers: Vec<Server>,
    /// How a server is chosen. Default: `round-robin`.
    pub balance: Balance,
    /// Health checks. Default: the servers are not checked.
    pub health: Option<Health>,
    /// The version of the PROXY protocol whose header names the client. Default: none, no header is
    /// sent.
    pub proxy_protocol: Option<ProxyVersion>,
    /// How many idle connections are kept to each server, as far as the process's descriptors
    /// allow. Each engine may keep an eighth of them although others have all. Default: 1024. Of
    /// servers of FastCGI, whose processes have one connection each, it is the number of
    /// connections above which none is kept for more than 2 ms: default 4.
    pub keep_alive: usize,
    /// The longest time for which an idle connection is kept. Default: 50 s, 200 ms for FastCGI,
    /// and less where a server closes them earlier.
    pub idle: Duration,
    /// The age from which a connection gets no further request. Default: none, 200 ms for FastCGI.
    pub lifetime: Option<Duration>,
    /// Whether the servers speak FastCGI: routes forward to them so.
    pub fastcgi: bool,
    /// Whether HTTP/2 is spoken: at once without TLS, and with TLS where the server agrees to it.
    /// Default: no.
    pub h2: bool,
    /// How connections are encrypted. Default: they are not.
    pub tls: Option<UpstreamTls>,
    /// How names of servers are looked up.
    pub dns: Dns,
    /// When a server that answers with errors is left out. Default: never.
    pub eject: Option<Ejection>,
    /// The cookie by which clients come back to their servers. Default: none.
    pub sticky: Option<Sticky>,
    /// How long the weight of a server grows once the server is up again, or new. Default: its
    /// weight is whole at once.
    pub slow_start: Option<Duration>,
}

/// The identity that servers have to prove.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UpstreamTls {
    /// A PEM file with the certificates of the authorities that issue the servers' certificates.
    pub ca: PathBuf,
    /// The name in the servers' certificates. Default: the host of the server's address.
    pub server_name: Option<String>,
    /// The certificate that servers are shown, and its key. Default: none.
    pub identity: Option<CertificateFiles>,
    /// The protocols that relays offer the servers (ALPN). Default: none. Requests of HTTP offer
    /// those of HTTP.
    pub alpn: Vec<String>,
}

/// A server of an upstream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Server {
    /// The address of the server, or the name of a service.
    pub address: ServerAddress,
    /// The server's share, as a multiple of the share of a server of weight 1. Default: 1.
    pub weight: NonZeroU32,
    /// Whether it gets requests only while none of the others is up. Default: no.
    pub backup: bool,
}

/// How a server is checked.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HealthKind {
    /// By a request of HTTP. The default.
    #[default]
    Http,
    /// By a connection, with TLS if the servers have it, that is closed at once.
    Connect,
}

table! {
    /// The health checks of the servers.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct Health {
        /// How a server is checked. Default: by a request of HTTP.
        pub kind: HealthKind = HealthKind::Http,
        /// The path that is requested by GET; 2xx and 3xx are good. Default: `/`.
        pub path: String = "/".to_owned(),
        /// The time between two checks. Default: 5 s.
        pub interval: Duration as "scalar::duration" = Duration::from_secs(5),
        /// How long an answer may take. Default: 2 s.
        pub timeout: Duration as "scalar::duration" = Duration::from_secs(2),
        /// How many good answers in a row make a server healthy. Default: 2.
        pub rise: NonZeroU32 = NonZeroU32::MIN.saturating_add(1),
        /// How many bad answers in a row, or failures of forwarded requests, take a server down.
        /// Default: 3.
        pub fall: NonZeroU32 = NonZeroU32::MIN.saturating_add(2),
    }
}

table! {
    /// The timeouts of the gateway.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Timeouts {
        /// For the whole head of a request. Default: 10 s.
        pub header: Duration as "scalar::duration" = Duration::from_secs(10),
        /// For more of a body, read or written. Default: 30 s.
        pub body: Duration as "scalar::duration" = Duration::from_secs(30),
        /// For the next request on a connection. Default: 75 s.
        pub idle: Duration as "scalar::duration" = Duration::from_secs(75),
        /// Until a quiet connection is parked, which frees everything but its descriptor. Default:
        /// 1 s.
        pub park: Duration as "scalar::duration" = Duration::from_secs(1),
        /// For a connection to a server, or to the other end of a relay. Default: 5 s.
        pub connect: Duration as "scalar::duration" = Duration::from_secs(5),
        /// For the head of a server's response, from the end of the request. Default: 60 s.
        pub response: Duration as "scalar::duration" = Duration::from_secs(60),
        /// For a byte in either direction of a connection that has left HTTP for another protocol,
        /// as WebSocket. Default: 1 h.
        pub tunnel: Duration as "scalar::duration" = Duration::from_secs(60 * 60),
        /// For the requests under way when the gateway is told to end. Default: 30 s.
        pub drain: Duration as "scalar::duration" = Duration::from_secs(30),
    }
}

table! {
    /// Limits on the requests and connections of clients.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Limits {
        /// The largest head of a request. Default: 16 KiB.
        pub header_bytes: u64 as "scalar::size" = 16 << 10,
        /// The largest body of a request. Default: 16 MiB.
        pub body_bytes: u64 as "scalar::size" = 16 << 20,
        /// The most bytes of all bodies together that are kept in files before a server gets them.
        /// Default: 4 GiB.
        pub spool_bytes: u64 as "scalar::size" = 4 << 30,
        /// The most connections at a time. Default: the number that the process's descriptors
        /// allow, less those that are kept for files and upstream servers.
        pub connections: Option<NonZeroU32> = None,
        /// The most connections of one client address at a time. Default: no limit.
        pub connections_per_client: Option<NonZeroU32> = None,
        /// The most requests of one connection, which is then closed. Default: no limit.
        pub requests_per_connection: Option<NonZeroU32> = None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_as_they_are_written() {
        assert_eq!("off".parse(), Ok(SocketPath::Off));
        assert_eq!("./off".parse(), Ok(SocketPath::At("./off".into())));
        assert!("".parse::<SocketPath>().is_err());
        assert_eq!("a/b".parse(), Ok(SocketPath::At("a/b".into())));
    }
}
