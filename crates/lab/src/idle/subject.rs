//! The servers and the kinds of connections, by name.

use crate::error::Result;
use crate::server::subject::{self, Entry, not_installed, rival};

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
