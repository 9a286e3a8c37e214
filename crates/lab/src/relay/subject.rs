//! The relays, by name. Under the HTTP loads, each is the corresponding HTTP proxy: for ours, that
//! of `superpoll serve`; for haproxy and nginx, the same program.

use superpoll::BackendKind::{self, Adaptive, Epoll, Poll, Uring};

use crate::relay::{load, peers};
use crate::server::subject::{Entry, not_installed};

use Software::Ours;

/// The software of a relay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Software {
    /// Ours on a back-end, speculating or not.
    Ours(BackendKind, bool),
    /// haproxy.
    Haproxy,
    /// nginx.
    Nginx,
}

/// All relays; a relay that does not speculate comes after the one that does.
pub(crate) const ALL: &[Entry<Software>] = &[
    Entry::new(
        "superpoll-poll",
        "superpoll proxy, or superpoll serve for HTTP, back-end poll",
        Ours(Poll, true),
    ),
    Entry::new("superpoll-epoll", "the same, back-end epoll", Ours(Epoll, true)),
    Entry::new(
        "superpoll-epoll-waits",
        "back-end epoll without speculation: each direction is watched before it is tried",
        Ours(Epoll, false),
    ),
    Entry::new("superpoll-adaptive", "the same, back-end adaptive", Ours(Adaptive, true)),
    Entry::new(
        "superpoll-adaptive-waits",
        "back-end adaptive without speculation",
        Ours(Adaptive, false),
    ),
    Entry::new("superpoll-uring", "the same, back-end uring", Ours(Uring, true)).with_ring(),
    Entry::new(
        "haproxy",
        "haproxy, mode tcp or http, one thread; in bulk with forced splice",
        Software::Haproxy,
    )
    .unless(|| not_installed("haproxy")),
    Entry::new(
        "nginx",
        "nginx, module stream or proxy_pass for HTTP, one process",
        Software::Nginx,
    )
    .unless(|| not_installed("nginx")),
];

impl Software {
    /// Returns the feature that it lacks for a load, if any.
    pub(crate) fn lacks(self, load: load::Kind) -> Option<&'static str> {
        let streams = self == Software::Nginx && !load.is_http();
        (streams && peers::nginx_stream().is_none())
            .then_some("has no module stream (libnginx-mod-stream)")
    }
}

/// Returns the name of the same relay without speculation.
pub(crate) fn without_speculation(name: &str) -> String {
    format!("{name}-waits")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::subject::chosen;

    #[test]
    fn each_without_speculation_has_a_partner_and_ours_lack_nothing() {
        let all = chosen(ALL, None, "no relay").unwrap().0;
        for one in &all {
            if let Ours(backend, false) = one.start {
                let partner = all.iter().find(|other| other.start == Ours(backend, true));
                assert_eq!(without_speculation(partner.unwrap().name), one.name);
            }
        }
        let ours = all[0].start;
        assert!(load::Kind::ALL.iter().all(|&kind| ours.lacks(kind).is_none()));
    }
}
