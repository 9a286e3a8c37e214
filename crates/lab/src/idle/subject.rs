//! The servers and the kinds of connections, by name.

use crate::error::Result;
use crate::options;
use crate::programs;

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
    Hyper,
    /// nginx.
    Nginx,
    /// haproxy.
    Haproxy,
}

/// A server with a kind of connections, by name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// Its name in tables and records.
    pub name: &'static str,
    /// Its description, for lists.
    pub about: &'static str,
    /// Its software.
    pub software: Software,
    /// The kind of its connections.
    pub kind: Kind,
}

const fn entry(name: &'static str, about: &'static str, software: Software, kind: Kind) -> Entry {
    Entry { name, about, software, kind }
}

/// All entries.
pub(crate) const ALL: &[Entry] = &[
    entry(
        "superpoll-silent",
        "superpoll serve, nothing was asked",
        Software::Superpoll,
        Kind::Silent,
    ),
    entry(
        "superpoll-keep-alive",
        "superpoll serve, after a request",
        Software::Superpoll,
        Kind::KeepAlive,
    ),
    entry(
        "superpoll-tls",
        "superpoll serve, after a request by TLS",
        Software::Superpoll,
        Kind::Tls,
    ),
    entry(
        "superpoll-long-poll",
        "superpoll serve, a channel's long-poll",
        Software::Superpoll,
        Kind::LongPoll,
    ),
    entry(
        "superpoll-websocket",
        "superpoll serve, a channel's WebSocket",
        Software::Superpoll,
        Kind::WebSocket,
    ),
    entry(
        "superpoll-relay",
        "superpoll proxy, after a request through it",
        Software::Superpoll,
        Kind::Relay,
    ),
    entry("raw-epoll", "an epoll loop, after a request", Software::RawEpoll, Kind::KeepAlive),
    entry("hyper-silent", "hyper on tokio, nothing was asked", Software::Hyper, Kind::Silent),
    entry("hyper-keep-alive", "hyper on tokio, after a request", Software::Hyper, Kind::KeepAlive),
    entry("nginx-silent", "nginx, nothing was asked", Software::Nginx, Kind::Silent),
    entry("nginx-keep-alive", "nginx, after a request", Software::Nginx, Kind::KeepAlive),
    entry("nginx-tls", "nginx, after a request by TLS", Software::Nginx, Kind::Tls),
    entry("haproxy-relay", "haproxy in TCP mode, after a request", Software::Haproxy, Kind::Relay),
];

impl Entry {
    /// Returns the reason if the software is not installed here.
    fn missing(&self) -> Option<&'static str> {
        match self.software {
            Software::Hyper if !cfg!(feature = "http") => {
                Some("it is not built in: build with --features http")
            }
            Software::Nginx if programs::find("nginx").is_none() => Some("nginx is not installed"),
            Software::Haproxy if programs::find("haproxy").is_none() => {
                Some("haproxy is not installed")
            }
            _ => None,
        }
    }

    /// Whether it treats a connection differently some time after the connection fell silent.
    pub(crate) fn parks(&self) -> bool {
        self.software == Software::Superpoll && self.kind != Kind::Relay
    }
}

/// Returns the requested entries, each once, and the reasons for leaving out those that are not
/// installed here.
pub(crate) fn chosen(names: Option<&str>) -> Result<(Vec<Entry>, Vec<String>)> {
    let missing = |entry: &Entry| entry.missing().map(str::to_owned);
    options::present(names, ALL, |entry| entry.name, missing, "no kind of connection")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_entries_are_noted_and_refused_by_name() {
        let (kept, notes) = chosen(None).unwrap();
        assert_eq!(kept.len() + notes.len(), ALL.len());
        let (two, _) = chosen(Some("superpoll-tls, raw-epoll,superpoll-tls")).unwrap();
        assert_eq!(two.iter().map(|e| e.name).collect::<Vec<_>>(), ["superpoll-tls", "raw-epoll"]);
        let error = chosen(Some("apache")).unwrap_err().to_string();
        assert!(error.contains("\"apache\"") && error.contains("superpoll-websocket"), "{error}");
        if let Err(error) = chosen(Some("hyper-silent")) {
            assert!(error.to_string().contains("--features http"), "{error}");
        }
    }
}
