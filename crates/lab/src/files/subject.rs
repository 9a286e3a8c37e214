//! The servers, by name.

use superpoll::BackendKind;

use crate::error::Result;
use crate::options;
use crate::probe;
use crate::programs;

/// The server behind a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Ours on a back-end.
    Ours(BackendKind),
    /// nginx, with `sendfile` or without.
    Nginx(bool),
    Hyper,
}

/// A server by name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// Its name in tables and records.
    pub name: &'static str,
    /// A description for the reader.
    pub about: &'static str,
    pub kind: Kind,
}

const fn entry(name: &'static str, about: &'static str, kind: Kind) -> Entry {
    Entry { name, about, kind }
}

/// All servers.
pub(crate) const ALL: &[Entry] = &[
    entry("superpoll-poll", "superpoll serve, back-end poll", Kind::Ours(BackendKind::Poll)),
    entry("superpoll-epoll", "superpoll serve, back-end epoll", Kind::Ours(BackendKind::Epoll)),
    entry(
        "superpoll-adaptive",
        "superpoll serve, back-end adaptive",
        Kind::Ours(BackendKind::Adaptive),
    ),
    entry("superpoll-uring", "superpoll serve, back-end uring", Kind::Ours(BackendKind::Uring)),
    entry(
        "nginx",
        "nginx, one process: sendfile, open_file_cache, no access log",
        Kind::Nginx(true),
    ),
    entry(
        "nginx-reads",
        "the same without sendfile: it reads files and writes them",
        Kind::Nginx(false),
    ),
    entry(
        "hyper-tokio",
        "hyper on tokio's current_thread runtime, files held in memory",
        Kind::Hyper,
    ),
];

impl Entry {
    /// Returns why it is not available here, if so.
    fn missing(&self) -> Option<String> {
        match self.kind {
            Kind::Ours(backend) if !backend.is_available() => Some(probe::why_no_uring()),
            Kind::Nginx(_) if programs::find("nginx").is_none() => {
                Some("nginx is not installed".to_owned())
            }
            Kind::Hyper if !cfg!(feature = "http") => {
                Some("it is not built in: build with --features http".to_owned())
            }
            _ => None,
        }
    }
}

/// Returns the requested servers, each once, and a note with the reason for each that is not
/// available here.
pub(crate) fn chosen(names: Option<&str>) -> Result<(Vec<Entry>, Vec<String>)> {
    options::present(names, ALL, |entry| entry.name, Entry::missing, "no file server")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_entries_are_noted_and_refused_by_name() {
        let (kept, notes) = chosen(None).unwrap();
        assert_eq!(kept.len() + notes.len(), ALL.len());
        let (two, _) = chosen(Some("superpoll-poll, superpoll-epoll,superpoll-poll")).unwrap();
        assert_eq!(
            two.iter().map(|e| e.name).collect::<Vec<_>>(),
            ["superpoll-poll", "superpoll-epoll"]
        );
        let error = chosen(Some("apache")).unwrap_err().to_string();
        assert!(error.contains("\"apache\"") && error.contains("hyper-tokio"), "{error}");
        if let Err(error) = chosen(Some("hyper-tokio")) {
            assert!(error.to_string().contains("--features http"), "{error}");
        }
    }
}
