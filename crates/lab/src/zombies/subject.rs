//! The servers, by name.

use std::net::TcpListener;

use superpoll::BackendKind::{self, Adaptive, Epoll, Poll, Select, Uring};

use crate::echo::subject::Software::{self, Other, Poller, Runtime};
use crate::echo::{raw_epoll, raw_uring};
use crate::error::Result;
use crate::http;
use crate::server::Control;
use crate::server::subject::{self, Entry, rival};

use Work::{Echo, Gateway, Web};

crate::by_name::named! {
    /// The requests and the answers of a server.
    pub(crate) enum Family {
        /// Messages of 64 bytes that come back.
        Echo = "echo",
        /// Requests over HTTP/1, answered with thirteen bytes.
        Web = "web",
    }
}

/// How a server is started.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Work {
    /// It gets its connections.
    Echo(Software),
    /// It accepts its connections.
    Web(fn(TcpListener, &mut Control) -> Result<()>),
    /// It is the command's own server.
    Gateway(BackendKind),
}

impl Work {
    /// Whether the server can say how often it waited.
    pub(crate) fn counts(self) -> bool {
        matches!(self, Echo(software) if software.counts())
    }

    /// Whether the server may refuse more connections than it can watch.
    pub(crate) fn is_limited(self) -> bool {
        matches!(self, Echo(Poller(Select)))
    }

    /// Whether the server treats connections differently a while after they fell silent.
    pub(crate) fn parks(self) -> bool {
        matches!(self, Gateway(_))
    }

    /// Returns the family of its answers.
    pub(crate) fn family(self) -> Family {
        match self {
            Echo(_) => Family::Echo,
            Web(_) | Gateway(_) => Family::Web,
        }
    }
}

/// A server that takes part.
pub(crate) type Subject = subject::Subject<Work>;

const fn echo(name: &'static str, about: &'static str, software: Software) -> Entry<Work> {
    Entry::new(name, about, Echo(software))
}

const fn gateway(name: &'static str, about: &'static str, backend: BackendKind) -> Entry<Work> {
    Entry::new(name, about, Gateway(backend))
}

/// All servers, each family's yardstick first.
pub(crate) const ALL: &[Entry<Work>] = &[
    echo(
        "raw-epoll",
        "a C programmer's epoll loop, level-triggered",
        Other(raw_epoll::serve_level),
    ),
    echo(
        "raw-epoll-et",
        "a C programmer's epoll loop, edge-triggered",
        Other(raw_epoll::serve_edge),
    ),
    echo("raw-uring", "a C programmer's ring: multishot receives", Other(raw_uring::serve))
        .unless(raw_uring::refusal),
    echo("superpoll-select", "our poller, back-end select", Poller(Select)),
    echo("superpoll-poll", "our poller, back-end poll", Poller(Poll)),
    echo("superpoll-epoll", "our poller, back-end epoll", Poller(Epoll)),
    echo("superpoll-adaptive", "our poller, back-end adaptive", Poller(Adaptive)),
    echo("superpoll-uring", "our poller, back-end uring", Poller(Uring)).with_ring(),
    echo("superpoll-rt-poll", "our runtime, back-end poll", Runtime(Poll)),
    echo("superpoll-rt-epoll", "our runtime, back-end epoll", Runtime(Epoll)),
    echo("superpoll-rt-adaptive", "our runtime, back-end adaptive", Runtime(Adaptive)),
    echo("superpoll-rt-uring", "our runtime, back-end uring", Runtime(Uring)).with_ring(),
    rival!(
        "rivals-rt",
        "tokio",
        "a task for each connection on tokio's current_thread runtime",
        Echo(Other(crate::echo::tokio::serve))
    ),
    Entry::new(
        "raw-epoll-http",
        "an epoll loop that answers canned bytes",
        Web(http::raw_epoll::serve),
    ),
    gateway("gateway-poll", "superpoll serve, back-end poll", Poll),
    gateway("gateway-epoll", "superpoll serve, back-end epoll", Epoll),
    gateway("gateway-adaptive", "superpoll serve, back-end adaptive", Adaptive),
    gateway("gateway-uring", "superpoll serve, back-end uring", Uring).with_ring(),
    rival!(
        "http",
        "hyper-tokio",
        "hyper on tokio's current_thread runtime",
        Web(http::tokio::serve)
    ),
];

/// Returns the requested servers of each family, each once, with its yardstick first; none if no
/// other was requested. Also returns the reasons for leaving out those that this system does not
/// offer.
pub(crate) fn chosen(names: Option<&str>) -> Result<([Vec<Subject>; 2], Vec<String>)> {
    let (chosen, notes) = subject::chosen(ALL, names, "no server")?;
    let mut families = [Vec::new(), Vec::new()];
    for (family, yardstick) in families.iter_mut().zip(["raw-epoll", "raw-epoll-http"]) {
        let yardstick = subject::chosen(ALL, Some(yardstick), "no server")?.0[0];
        let own = chosen.iter().filter(|one| one.start.family() == yardstick.start.family());
        if own.clone().next().is_some() {
            family.push(yardstick);
            family.extend(own.filter(|one| one.name != yardstick.name));
        }
    }
    Ok((families, notes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: Option<&str>) -> [Vec<&'static str>; 2] {
        chosen(text).unwrap().0.map(|family| family.iter().map(|entry| entry.name).collect())
    }

    #[test]
    fn a_family_has_its_yardstick_if_a_member_takes_part() {
        let [echo, web] = names(Some("superpoll-rt-epoll,raw-epoll"));
        assert_eq!((echo, web.len()), (vec!["raw-epoll", "superpoll-rt-epoll"], 0));
        let [echo, web] = names(Some("gateway-epoll"));
        assert_eq!((echo.len(), web), (0, vec!["raw-epoll-http", "gateway-epoll"]));
        let [echo, web] = names(None);
        assert!(echo.len() >= 8 && web.len() >= 4);
    }
}
