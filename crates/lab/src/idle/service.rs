//! The servers, each started with the settings of its kind of connection.

use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;

use crate::error::Result;
use crate::http::{self, BODY};
use crate::relay::peers::{self, Task};
use crate::server::crowd::{Crowd, Settings};
use crate::server::fleet::CHANNEL;
use crate::server::subject::{self, Entry, not_installed, rival};
use crate::server::tls::{Certificate, Offer};
use crate::server::wire::{Form, Opening, Subscription, Transport};
use crate::server::{Control, ProcessOptions, Server, caddy, program};

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
            let channel = program::channel(CHANNEL, "poll = \"24h\"");
            let routes = [program::page(folder, BODY)?, channel];
            let listener = program::listener(0, kind.offer().and(Some(certificate)));
            let more = if kind == Kind::Silent { program::PATIENT } else { "" };
            let configuration = program::configuration(&listener, &routes, more);
            let (server, port) =
                program::superpoll_serve(name, process, folder, &configuration, &["--dumpable"])?;
            Ok(of(server, port))
        }
        (Software::Other(serve), _) => {
            let (server, port) = Server::accepting(name, false, process, serve)?;
            Ok(of(server, port))
        }
        (Software::Nginx, kind) => {
            let port = program::free_port()?;
            program::page(folder, BODY)?;
            let (ssl, own) = match kind.offer() {
                Some(_) => (" ssl http2", certificate.directives_of_nginx()),
                None => ("", String::new()),
            };
            let inside = format!(
                "server {{ listen 127.0.0.1:{port}{ssl} backlog=4096; {own} root {}; }}",
                folder.join("root").display()
            );
            let block = program::nginx_http(folder, &inside);
            let server = program::nginx(name, process, folder, port, None, &block)?;
            Ok(of(server, port))
        }
        (Software::Caddy, kind) => {
            let port = program::free_port()?;
            program::page(folder, BODY)?;
            let (encrypts, site) = (kind.offer().and(Some(certificate)), folder.join("root"));
            let server = caddy::start(name, process, folder, port, encrypts, &caddy::files(&site))?;
            Ok(of(server, port))
        }
        (Software::Haproxy, _) => {
            let (behind, to) =
                Server::accepting("raw-epoll", false, process, http::raw_epoll::serve)?;
            let port = program::free_port()?;
            let task = Task::Bytes { splices: false };
            let server = peers::haproxy(name, process, folder, [port, to], task)?;
            Ok(Service { server, port, _behind: Some(behind) })
        }
    }
}

/// Starts clients of a server in a process of their own.
pub(super) fn clients(
    Subject { name, start, .. }: Subject,
    port: u16,
    certificate: &Certificate,
) -> Result<Crowd> {
    let tls = start.kind.offer().map(|offer| certificate.client(offer)).transpose()?;
    Crowd::start(Settings {
        subject: name,
        from: Ipv4Addr::LOCALHOST,
        port,
        opening: start.kind.opening(),
        bytes: 0,
        tls,
    })
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
        /// One request over HTTP/2.
        Http2 = "h2",
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

impl Kind {
    /// Returns the offer of a client's handshake, if the connection is encrypted.
    fn offer(self) -> Option<Offer> {
        match self {
            Kind::Tls => Some(Offer::Http1),
            Kind::Http2 => Some(Offer::Http2),
            _ => None,
        }
    }

    /// Returns the request of a connection.
    pub(crate) fn opening(self) -> Opening {
        let transport = match self {
            Kind::Silent => return Opening::Silent,
            Kind::KeepAlive | Kind::Tls | Kind::Relay => return Opening::Get(BODY),
            Kind::Http2 => return Opening::GetByHttp2(BODY),
            Kind::LongPoll => Transport::LongPoll,
            Kind::WebSocket => Transport::WebSocket,
            Kind::Events => Transport::Events,
        };
        Opening::Subscribe(Subscription { transport, path: CHANNEL, form: Form::Superpoll })
    }
}

/// The software of a server.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Software {
    /// `superpoll serve` and `superpoll proxy`.
    Superpoll,
    /// Another loop or runtime, which gets a listener.
    Other(fn(TcpListener, &mut Control) -> Result<()>),
    /// nginx.
    Nginx,
    /// haproxy.
    Haproxy,
    /// Caddy.
    Caddy,
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
        matches!(self.software, Software::Superpoll) && self.kind != Kind::Relay
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

const fn caddy(name: &'static str, about: &'static str, kind: Kind) -> Entry<Start> {
    entry(name, about, Software::Caddy, kind).unless(caddy::refusal)
}

/// All entries.
pub(crate) const ALL: &[Entry<Start>] = &[
    ours("superpoll-silent", "superpoll serve, nothing was asked", Kind::Silent),
    ours("superpoll-keep-alive", "superpoll serve, after a request", Kind::KeepAlive),
    ours("superpoll-tls", "superpoll serve, after a request by TLS", Kind::Tls),
    ours("superpoll-h2", "superpoll serve, after a request by HTTP/2", Kind::Http2),
    ours("superpoll-long-poll", "superpoll serve, a channel's long-poll", Kind::LongPoll),
    ours("superpoll-websocket", "superpoll serve, a channel's WebSocket", Kind::WebSocket),
    ours("superpoll-events", "superpoll serve, a channel's server-sent events", Kind::Events),
    ours("superpoll-relay", "superpoll proxy, after a request through it", Kind::Relay),
    entry(
        "raw-epoll",
        "an epoll loop, after a request",
        Software::Other(http::raw_epoll::serve),
        Kind::KeepAlive,
    ),
    rival!(
        "http",
        "hyper-silent",
        "hyper on tokio, nothing was asked",
        Start { software: Software::Other(http::tokio::serve), kind: Kind::Silent }
    ),
    rival!(
        "http",
        "hyper-keep-alive",
        "hyper on tokio, after a request",
        Start { software: Software::Other(http::tokio::serve), kind: Kind::KeepAlive }
    ),
    nginx("nginx-silent", "nginx, nothing was asked", Kind::Silent),
    nginx("nginx-keep-alive", "nginx, after a request", Kind::KeepAlive),
    nginx("nginx-tls", "nginx, after a request by TLS", Kind::Tls),
    nginx("nginx-h2", "nginx, after a request by HTTP/2", Kind::Http2),
    caddy("caddy-keep-alive", "Caddy, after a request", Kind::KeepAlive),
    caddy("caddy-h2", "Caddy, after a request by HTTP/2", Kind::Http2),
    entry("haproxy-relay", "haproxy in TCP mode, after a request", Software::Haproxy, Kind::Relay)
        .unless(|| not_installed("haproxy")),
];

/// Returns the requested entries, each once, and the reasons for leaving out those that are not
/// installed here.
pub(crate) fn chosen(names: Option<&str>) -> Result<(Vec<Subject>, Vec<String>)> {
    subject::present(ALL, names, "no kind of connection")
}
