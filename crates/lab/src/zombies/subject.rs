//! The servers, by name.

use std::net::TcpListener;

use superpoll::BackendKind;

use crate::echo::connections::Serve;
use crate::echo::{ours, poller, raw_epoll, raw_uring};
use crate::error::{Error, Result};
use crate::http;
use crate::options;
use crate::server::Control;

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
    Echo(Serve),
    /// It accepts its connections.
    Web(fn(TcpListener, &mut Control) -> Result<()>),
    /// It is the command's own server.
    Gateway(BackendKind),
}

/// A server by name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// Its name in tables and records.
    pub name: &'static str,
    /// Its description, for lists.
    pub about: &'static str,
    /// Whether it can say how often it waited.
    pub counts: bool,
    /// Whether it may refuse more connections than it can watch.
    pub is_limited: bool,
    /// Returns why it cannot run here, if it needs a feature that not every system has.
    refusal: fn() -> Option<String>,
    /// None if it is not built in.
    work: Option<Work>,
}

impl Entry {
    const fn other(name: &'static str, about: &'static str, work: Work) -> Entry {
        let refusal = || None;
        Entry { name, about, counts: false, is_limited: false, refusal, work: Some(work) }
    }

    const fn ours(name: &'static str, about: &'static str, serve: Serve) -> Entry {
        Entry { counts: true, ..Entry::other(name, about, Work::Echo(serve)) }
    }

    const fn gateway(name: &'static str, about: &'static str, backend: BackendKind) -> Entry {
        Entry::other(name, about, Work::Gateway(backend))
    }

    const fn rings(self) -> Entry {
        Entry { refusal: no_ring, ..self }
    }

    /// Returns its work.
    pub(crate) fn work(&self) -> Result<Work> {
        self.work.ok_or_else(|| {
            Error::usage(format!(
                "subject {} is not built in: build with --features {}",
                self.name,
                if self.name == "tokio" { "rivals-rt" } else { "http" }
            ))
        })
    }

    /// Returns the family of its answers.
    pub(crate) fn family(&self) -> Family {
        match self.work {
            Some(Work::Echo(_)) => Family::Echo,
            _ if self.name == "tokio" => Family::Echo,
            _ => Family::Web,
        }
    }

    /// Whether it treats connections differently a while after they fell silent.
    pub(crate) fn parks(&self) -> bool {
        matches!(self.work, Some(Work::Gateway(_)))
    }
}

fn no_ring() -> Option<String> {
    (!BackendKind::Uring.is_available()).then(crate::probe::why_no_uring)
}

const TOKIO: Entry = Entry {
    #[cfg(not(feature = "rivals-rt"))]
    work: None,
    ..Entry::other(
        "tokio",
        "a task for each connection on tokio's current_thread runtime",
        #[cfg(feature = "rivals-rt")]
        Work::Echo(crate::echo::tokio::serve),
        #[cfg(not(feature = "rivals-rt"))]
        Work::Echo(raw_epoll::serve_level),
    )
};

const HYPER: Entry = Entry {
    #[cfg(not(feature = "http"))]
    work: None,
    ..Entry::other(
        "hyper-tokio",
        "hyper on tokio's current_thread runtime",
        #[cfg(feature = "http")]
        Work::Web(http::tokio::serve),
        #[cfg(not(feature = "http"))]
        Work::Web(http::raw_epoll::serve),
    )
};

/// All servers, each family's yardstick first.
pub(crate) const ALL: &[Entry] = &[
    Entry::other(
        "raw-epoll",
        "a C programmer's epoll loop, level-triggered",
        Work::Echo(raw_epoll::serve_level),
    ),
    Entry::other(
        "raw-epoll-et",
        "a C programmer's epoll loop, edge-triggered",
        Work::Echo(raw_epoll::serve_edge),
    ),
    Entry {
        refusal: raw_uring::refusal,
        ..Entry::other(
            "raw-uring",
            "a C programmer's ring: multishot receives",
            Work::Echo(raw_uring::serve),
        )
    },
    Entry {
        is_limited: true,
        ..Entry::ours("superpoll-select", "our poller, back-end select", |connections, control| {
            poller::serve(connections, control, BackendKind::Select)
        })
    },
    Entry::ours("superpoll-poll", "our poller, back-end poll", |connections, control| {
        poller::serve(connections, control, BackendKind::Poll)
    }),
    Entry::ours("superpoll-epoll", "our poller, back-end epoll", |connections, control| {
        poller::serve(connections, control, BackendKind::Epoll)
    }),
    Entry::ours("superpoll-adaptive", "our poller, back-end adaptive", |connections, control| {
        poller::serve(connections, control, BackendKind::Adaptive)
    }),
    Entry::ours("superpoll-uring", "our poller, back-end uring", |connections, control| {
        poller::serve(connections, control, BackendKind::Uring)
    })
    .rings(),
    Entry::ours("superpoll-rt-poll", "our runtime, back-end poll", |connections, control| {
        ours::serve(connections, control, BackendKind::Poll)
    }),
    Entry::ours("superpoll-rt-epoll", "our runtime, back-end epoll", |connections, control| {
        ours::serve(connections, control, BackendKind::Epoll)
    }),
    Entry::ours(
        "superpoll-rt-adaptive",
        "our runtime, back-end adaptive",
        |connections, control| ours::serve(connections, control, BackendKind::Adaptive),
    ),
    Entry::ours("superpoll-rt-uring", "our runtime, back-end uring", |connections, control| {
        ours::serve(connections, control, BackendKind::Uring)
    })
    .rings(),
    TOKIO,
    Entry::other(
        "raw-epoll-http",
        "an epoll loop that answers canned bytes",
        Work::Web(http::raw_epoll::serve),
    ),
    Entry::gateway("gateway-poll", "superpoll serve, back-end poll", BackendKind::Poll),
    Entry::gateway("gateway-epoll", "superpoll serve, back-end epoll", BackendKind::Epoll),
    Entry::gateway("gateway-adaptive", "superpoll serve, back-end adaptive", BackendKind::Adaptive),
    Entry::gateway("gateway-uring", "superpoll serve, back-end uring", BackendKind::Uring).rings(),
    HYPER,
];

/// Returns the requested servers of each family, each once, with its yardstick first; none if no
/// other was requested. Also returns the reasons for leaving out those that this system does not
/// offer.
pub(crate) fn chosen(names: Option<&str>) -> Result<([Vec<Entry>; 2], Vec<String>)> {
    let built_in = |entry: &Entry| entry.work.is_some();
    let names = names.unwrap_or("all");
    let chosen = options::named(names, ALL, |entry| entry.name, built_in, "no server")?;
    let mut notes = Vec::new();
    let mut families = [Family::Echo, Family::Web].map(|family| {
        ALL.iter().find(|entry| entry.family() == family).map(|yardstick| (*yardstick, Vec::new()))
    });
    for entry in chosen {
        entry.work()?;
        if let Some(reason) = (entry.refusal)() {
            notes.push(format!("{} left out: {reason}", entry.name));
            continue;
        }
        for (yardstick, own) in families.iter_mut().flatten() {
            if yardstick.family() == entry.family() {
                own.push(entry);
            }
        }
    }
    let families = families.map(|family| match family {
        Some((yardstick, mut own)) if !own.is_empty() => {
            own.retain(|entry| entry.name != yardstick.name);
            own.insert(0, yardstick);
            own
        }
        _ => Vec::new(),
    });
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

    #[test]
    fn unknown_names_and_missing_features_are_said() {
        let error = chosen(Some("nginx")).unwrap_err().to_string();
        assert!(error.contains("\"nginx\"") && error.contains("gateway-adaptive"), "{error}");
        for (name, feature) in [("tokio", "rivals-rt"), ("hyper-tokio", "http")] {
            if let Err(error) = chosen(Some(name)) {
                assert!(error.to_string().contains(&format!("--features {feature}")), "{error}");
            }
        }
    }
}
