//! The relays, by name. Under the HTTP loads, each is the corresponding HTTP proxy: for ours, that
//! of `superpoll serve`; for haproxy and nginx, the same program.

use superpoll::BackendKind;

use crate::error::Result;
use crate::options;
use crate::relay::{load, peers};

/// The program behind a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Ours on a back-end, speculating or not.
    Ours(BackendKind, bool),
    Haproxy,
    Nginx,
}

/// A relay by name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// Its name in tables and records.
    pub name: &'static str,
    /// Its description, for lists.
    pub about: &'static str,
    pub kind: Kind,
}

const fn entry(name: &'static str, about: &'static str, kind: Kind) -> Entry {
    Entry { name, about, kind }
}

/// All relays; a relay that does not speculate comes after the one that does.
pub(crate) const ALL: &[Entry] = &[
    entry(
        "superpoll-poll",
        "superpoll proxy, or superpoll serve for HTTP, back-end poll",
        Kind::Ours(BackendKind::Poll, true),
    ),
    entry("superpoll-epoll", "the same, back-end epoll", Kind::Ours(BackendKind::Epoll, true)),
    entry(
        "superpoll-epoll-waits",
        "back-end epoll without speculation: each direction is watched before it is tried",
        Kind::Ours(BackendKind::Epoll, false),
    ),
    entry(
        "superpoll-adaptive",
        "the same, back-end adaptive",
        Kind::Ours(BackendKind::Adaptive, true),
    ),
    entry(
        "superpoll-adaptive-waits",
        "back-end adaptive without speculation",
        Kind::Ours(BackendKind::Adaptive, false),
    ),
    entry("superpoll-uring", "the same, back-end uring", Kind::Ours(BackendKind::Uring, true)),
    entry(
        "haproxy",
        "haproxy, mode tcp or http, one thread; in bulk with forced splice",
        Kind::Haproxy,
    ),
    entry("nginx", "nginx, module stream or proxy_pass for HTTP, one process", Kind::Nginx),
];

impl Entry {
    /// Returns the feature that it lacks for a load, if any.
    pub(crate) fn lacks(&self, load: load::Kind) -> Option<&'static str> {
        let streams = self.kind == Kind::Nginx && !load.is_http();
        (streams && peers::nginx_stream().is_none())
            .then_some("has no module stream (libnginx-mod-stream)")
    }
}

/// Returns the name of the same relay without speculation.
pub(crate) fn without_speculation(name: &str) -> String {
    format!("{name}-waits")
}

/// Returns the requested relays, each once, and notes on those that were requested by name but left
/// out.
pub(crate) fn chosen(names: Option<&str>) -> Result<(Vec<Entry>, Vec<String>)> {
    let names = names.unwrap_or("all");
    let mut chosen = options::named(names, ALL, |entry| entry.name, |_| true, "no relay")?;
    let mut notes = Vec::new();
    chosen.retain(|entry| {
        let missing = match entry.kind {
            Kind::Ours(backend, _) if !backend.is_available() => Some("needs io_uring"),
            Kind::Haproxy if peers::haproxy().is_none() => Some("is not installed"),
            Kind::Nginx if peers::nginx().is_none() => Some("is not installed"),
            _ => None,
        };
        notes.extend(missing.map(|why| format!("{} {why}: left out", entry.name)));
        missing.is_none()
    });
    Ok((chosen, notes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_chosen_once_and_each_without_speculation_has_a_partner() {
        let (all, notes) = chosen(Some("all,superpoll-poll")).unwrap();
        assert_eq!(all.len() + notes.len(), ALL.len());
        for entry in ALL {
            if let Kind::Ours(backend, false) = entry.kind {
                let partner = ALL.iter().find(|other| other.kind == Kind::Ours(backend, true));
                assert_eq!(without_speculation(partner.unwrap().name), entry.name);
            }
        }
        let ours = &ALL[0];
        assert!(load::Kind::ALL.iter().all(|&kind| ours.lacks(kind).is_none()));
        let error = chosen(Some("squid")).unwrap_err().to_string();
        assert!(error.contains("\"squid\"") && error.contains("haproxy"), "{error}");
    }
}
