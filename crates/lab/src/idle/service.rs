//! The servers, each started with the settings of its kind of connection.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use crate::error::{Doing, Error, Result};
use crate::http::{self, BODY};
use crate::record::write;
use crate::server::subject::{self, Entry, not_installed, rival};
use crate::server::{ProcessOptions, Server, program};

/// A server at work.
#[derive(Debug)]
pub(super) struct Service {
    /// Its process.
    pub server: Server,
    /// Where it listens.
    pub port: u16,
    // The server that a relay leads to.
    _behind: Option<Server>,
}

/// Starts a server. It may put files into the folder.
pub(super) fn start(
    Subject { name, start, .. }: Subject,
    process: ProcessOptions,
    folder: &Path,
    certificate: &Certificate,
) -> Result<Service> {
    let of = |server, port| Service { server, port, _behind: None };
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let root = folder.join("root");
    std::fs::create_dir_all(&root)
        .and_then(|()| std::fs::write(root.join("index.html"), BODY))
        .doing(format_args!("writing into {}", root.display()))?;
    let file = folder.join(format!("{name}.conf"));
    match (start.software, start.kind) {
        (Software::Superpoll, Kind::Relay) => {
            let (behind, to) =
                Server::accepting("raw-epoll", false, process, http::raw_epoll::serve)?;
            let to = format!("127.0.0.1:{to}");
            let arguments = ["proxy", "--workers", "1", "--listen", "127.0.0.1:0", "--to", &to];
            let (server, port) = program::superpoll(name, process, &arguments)?;
            Ok(Service { server, port, _behind: Some(behind) })
        }
        (Software::Superpoll, kind) => {
            let tls = format!(
                "tls = {{ certificate = {:?}, key = {:?} }}\n",
                text(&certificate.certificate),
                text(&certificate.key)
            );
            let configuration = format!(
                "[[listeners]]\naddress = \"127.0.0.1:0\"\n{}[[hosts]]\n[[hosts.routes]]\n\
                 files = {{ root = {:?} }}\n[[hosts.routes]]\npath = \"/channel\"\n\
                 channel = {{ poll = \"24h\" }}\n[timeouts]\nidle = \"24h\"\nheader = \"24h\"\n",
                if kind == Kind::Tls { &tls } else { "" },
                text(&root),
            );
            let (server, port) =
                program::superpoll_serve(name, process, folder, &configuration, &["--dumpable"])?;
            Ok(of(server, port))
        }
        (Software::RawEpoll, _) => {
            let (server, port) = Server::accepting(name, false, process, http::raw_epoll::serve)?;
            Ok(of(server, port))
        }
        #[cfg(feature = "http")]
        (Software::Hyper, _) => {
            let (server, port) = Server::accepting(name, false, process, http::tokio::serve)?;
            Ok(of(server, port))
        }
        (Software::Nginx, kind) => {
            let port = program::free_port()?;
            let (ssl, certificates) = match kind {
                Kind::Tls => (
                    " ssl",
                    format!(
                        "ssl_certificate {:?}; ssl_certificate_key {:?};",
                        text(&certificate.certificate),
                        text(&certificate.key)
                    ),
                ),
                _ => ("", String::new()),
            };
            let inside = format!(
                "server {{ listen 127.0.0.1:{port}{ssl} backlog=4096; {certificates} root {}; }}",
                text(&root)
            );
            let block = program::nginx_http(folder, &inside);
            let server = program::nginx(name, process, folder, port, None, &block)?;
            Ok(of(server, port))
        }
        (Software::Haproxy, _) => {
            let (behind, to) =
                Server::accepting("raw-epoll", false, process, http::raw_epoll::serve)?;
            let port = program::free_port()?;
            write(
                &file,
                &format!(
                    "global\n  nbthread 1\n  maxconn 9000\n\
                 defaults\n  mode tcp\n  timeout connect 5s\n  timeout client 24h\n\
                 \x20 timeout server 24h\nlisten relay\n  bind 127.0.0.1:{port} backlog 4096\n\
                 \x20 server behind 127.0.0.1:{to}\n"
                ),
            )?;
            let arguments = ["-db", "-q", "-f", &text(&file)];
            let server = program::other(name, process, port, "haproxy", &arguments)?;
            Ok(Service { server, port, _behind: Some(behind) })
        }
    }
}

// The servers and the kinds of connections, by name.

crate::by_name::named! {
    /// The work of a connection before it falls silent.
    pub(crate) enum Kind {
        /// Nothing.
        Silent = "silent",
        /// One request over HTTP/1.
        KeepAlive = "keep-alive",
        /// The same, encrypted.
        Tls = "tls",
        /// A request whose answer does not come.
        LongPoll = "long-poll",
        /// The handshake.
        WebSocket = "websocket",
        /// A request for server-sent events.
        Events = "events",
        /// One request through a relay.
        Relay = "relay",
    }
}

/// The software of a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Software {
    /// `superpoll serve` and `superpoll proxy`.
    Superpoll,
    /// A loop as a C programmer would write it.
    RawEpoll,
    /// hyper on tokio.
    #[cfg(feature = "http")]
    Hyper,
    /// nginx.
    Nginx,
    /// haproxy.
    Haproxy,
}

/// The software of a server, and the kind of its connections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start {
    /// Its software.
    pub software: Software,
    /// The kind of its connections.
    pub kind: Kind,
}

impl Start {
    /// Whether it treats a connection differently some time after the connection fell silent.
    pub(crate) fn parks(self) -> bool {
        self.software == Software::Superpoll && self.kind != Kind::Relay
    }
}

/// A server with a kind of connections.
pub(crate) type Subject = subject::Subject<Start>;

const fn entry(
    name: &'static str,
    about: &'static str,
    software: Software,
    kind: Kind,
) -> Entry<Start> {
    Entry::new(name, about, Start { software, kind })
}

const fn ours(name: &'static str, about: &'static str, kind: Kind) -> Entry<Start> {
    entry(name, about, Software::Superpoll, kind)
}

const fn nginx(name: &'static str, about: &'static str, kind: Kind) -> Entry<Start> {
    entry(name, about, Software::Nginx, kind).unless(|| not_installed("nginx"))
}

/// All entries.
pub(crate) const ALL: &[Entry<Start>] = &[
    ours("superpoll-silent", "superpoll serve, nothing was asked", Kind::Silent),
    ours("superpoll-keep-alive", "superpoll serve, after a request", Kind::KeepAlive),
    ours("superpoll-tls", "superpoll serve, after a request by TLS", Kind::Tls),
    ours("superpoll-long-poll", "superpoll serve, a channel's long-poll", Kind::LongPoll),
    ours("superpoll-websocket", "superpoll serve, a channel's WebSocket", Kind::WebSocket),
    ours("superpoll-events", "superpoll serve, a channel's server-sent events", Kind::Events),
    ours("superpoll-relay", "superpoll proxy, after a request through it", Kind::Relay),
    entry("raw-epoll", "an epoll loop, after a request", Software::RawEpoll, Kind::KeepAlive),
    rival!(
        "http",
        "hyper-silent",
        "hyper on tokio, nothing was asked",
        Start { software: Software::Hyper, kind: Kind::Silent }
    ),
    rival!(
        "http",
        "hyper-keep-alive",
        "hyper on tokio, after a request",
        Start { software: Software::Hyper, kind: Kind::KeepAlive }
    ),
    nginx("nginx-silent", "nginx, nothing was asked", Kind::Silent),
    nginx("nginx-keep-alive", "nginx, after a request", Kind::KeepAlive),
    nginx("nginx-tls", "nginx, after a request by TLS", Kind::Tls),
    entry("haproxy-relay", "haproxy in TCP mode, after a request", Software::Haproxy, Kind::Relay)
        .unless(|| not_installed("haproxy")),
];

/// Returns the requested entries, each once, and the reasons for leaving out those that are not
/// installed here.
pub(crate) fn chosen(names: Option<&str>) -> Result<(Vec<Subject>, Vec<String>)> {
    subject::present(ALL, names, "no kind of connection")
}

// A certificate for the servers, and clients that trust it.

/// A certificate in a folder.
#[derive(Clone, Debug)]
pub(super) struct Certificate {
    /// The file of the certificate.
    pub certificate: PathBuf,
    /// The file of its key.
    pub key: PathBuf,
    config: Arc<ClientConfig>,
}

impl Certificate {
    /// Makes a certificate for `localhost` and writes it into a folder.
    pub(super) fn make(folder: &Path) -> Result<Certificate> {
        let failed =
            |error: &dyn std::fmt::Display| Error::usage(format!("making a certificate: {error}"));
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])
            .map_err(|error| failed(&error))?;
        let (certificate, key) = (folder.join("localhost.pem"), folder.join("localhost.key"));
        fs::write(&certificate, made.cert.pem()).map_err(|error| failed(&error))?;
        fs::write(&key, made.signing_key.serialize_pem()).map_err(|error| failed(&error))?;
        let mut roots = RootCertStore::empty();
        roots.add(made.cert.der().clone()).map_err(|error| failed(&error))?;
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| failed(&error))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Certificate { certificate, key, config: Arc::new(config) })
    }

    /// A client's side of an encrypted connection.
    pub(super) fn client(&self) -> Result<ClientConnection> {
        ServerName::try_from("localhost")
            .map_err(|error| Error::usage(format!("naming a server: {error}")))
            .and_then(|name| {
                ClientConnection::new(self.config.clone(), name)
                    .map_err(|error| Error::usage(format!("beginning with TLS: {error}")))
            })
    }
}
