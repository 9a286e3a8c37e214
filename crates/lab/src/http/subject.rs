//! The servers, by name.

use std::net::TcpListener;

use superpoll::BackendKind;

use crate::error::Result;
use crate::http::{ours, raw_epoll, tokio};
use crate::options;
use crate::server::Control;

/// Serves a listener's connections indefinitely.
pub(crate) type Serve = fn(TcpListener, &mut Control) -> Result<()>;

/// A server by name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// Its name in tables and records.
    pub name: &'static str,
    /// A description for the reader.
    pub about: &'static str,
    /// Whether it can report how often it waited.
    pub counts: bool,
    /// Whether it needs io_uring.
    pub rings: bool,
    /// Its server function.
    pub serve: Serve,
}

const fn ours(name: &'static str, about: &'static str, serve: Serve) -> Entry {
    Entry { name, about, counts: true, rings: false, serve }
}

const fn other(name: &'static str, about: &'static str, serve: Serve) -> Entry {
    Entry { name, about, counts: false, rings: false, serve }
}

/// All servers, the lower bound first.
pub(crate) const ALL: &[Entry] = &[
    other("raw-epoll", "an epoll loop that answers canned bytes", raw_epoll::serve),
    ours("superpoll-rt-poll", "hyper on our runtime, back-end poll", ours::serve_poll),
    ours("superpoll-rt-epoll", "hyper on our runtime, back-end epoll", ours::serve_epoll),
    ours("superpoll-rt-adaptive", "hyper on our runtime, back-end adaptive", ours::serve_adaptive),
    Entry {
        rings: true,
        ..ours("superpoll-rt-uring", "hyper on our runtime, back-end uring", ours::serve_uring)
    },
    other("tokio", "hyper on tokio's current_thread runtime", tokio::serve),
];

/// Returns the requested servers, each once.
pub(crate) fn chosen(names: Option<&str>) -> Result<Vec<Entry>> {
    let names = names.unwrap_or("all");
    let mut chosen = options::named(names, ALL, |entry| entry.name, |_| true, "no HTTP server")?;
    chosen.retain(|entry| !entry.rings || BackendKind::Uring.is_available());
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_chosen_once_and_only_by_its_name() {
        let all = ALL.len() - usize::from(!BackendKind::Uring.is_available());
        assert_eq!(chosen(None).unwrap().len(), all);
        assert_eq!(chosen(Some("tokio,all,tokio")).unwrap().len(), all);
        let two = chosen(Some("tokio, superpoll-rt-poll")).unwrap();
        assert_eq!(two.iter().map(|e| e.name).collect::<Vec<_>>(), ["tokio", "superpoll-rt-poll"]);
        let error = chosen(Some("tokio,nginx")).unwrap_err().to_string();
        assert!(error.contains("\"nginx\"") && error.contains("superpoll-rt-epoll"), "{error}");
    }
}
