//! The registries, by name.

use super::{epoll_set, ours, ring_poll};
use superpoll::{BackendKind, Mode};

use crate::error::Result;
use crate::options;
use crate::registrations::registry::Registry;

type Start = fn(usize) -> Result<Box<dyn Registry>>;

/// A registry by name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    /// Its name in tables and records.
    pub name: &'static str,
    /// Its description, for lists.
    pub about: &'static str,
    /// Whether it needs io_uring.
    pub rings: bool,
    /// Starts it, for a number of pairs.
    pub start: Start,
}

/// The name of the yardstick.
pub(crate) const YARDSTICK: &str = "raw-epoll";

/// The name of the registry that changes an epoll set through a ring.
pub(crate) const BATCHED: &str = "ring-epoll-ctl";

const fn entry(name: &'static str, about: &'static str, start: Start) -> Entry {
    Entry { name, about, rings: false, start }
}

const fn ring(name: &'static str, about: &'static str, start: Start) -> Entry {
    Entry { rings: true, ..entry(name, about, start) }
}

/// All registries, the yardstick first.
pub(super) const ALL: &[Entry] = &[
    entry(YARDSTICK, "an epoll_ctl call for each change", |total| epoll_set::start(total, false)),
    ring(BATCHED, "an epoll set, changed through a ring in batches", |total| {
        epoll_set::start(total, true)
    }),
    ring("ring-poll", "multishot polls in a ring, cancelled", |total| {
        ring_poll::start(total, false)
    }),
    ring("ring-poll-remove", "multishot polls in a ring, removed", |total| {
        ring_poll::start(total, true)
    }),
    entry("epoll", "our back-end epoll", |total| {
        ours::start(total, BackendKind::Epoll, Mode::Level, false)
    }),
    entry("adaptive", "our back-end adaptive", |total| {
        ours::start(total, BackendKind::Adaptive, Mode::Auto, false)
    }),
    ring("uring", "our back-end uring, edge-triggered", |total| {
        ours::start(total, BackendKind::Uring, Mode::Auto, false)
    }),
    ring("uring-lt", "our back-end uring, level-triggered", |total| {
        ours::start(total, BackendKind::Uring, Mode::Level, false)
    }),
    ring("uring-registrar", "our back-end uring, registrations ended by a Registrar", |total| {
        ours::start(total, BackendKind::Uring, Mode::Auto, true)
    }),
];

/// Returns the requested registries, each once, and the yardstick; and the reasons for leaving out
/// those that this system does not offer.
pub(super) fn chosen(names: Option<&str>) -> Result<(Vec<Entry>, Vec<String>)> {
    let names = format!("{},{}", ALL[0].name, names.unwrap_or("all"));
    let chosen =
        options::named(&names, ALL, |entry| entry.name, |_| true, "nothing that registers")?;
    Ok(without_refused(chosen, BackendKind::Uring.is_available()))
}

fn without_refused(chosen: Vec<Entry>, rings: bool) -> (Vec<Entry>, Vec<String>) {
    options::without_rings(chosen, rings, |entry| entry.name, |entry| entry.rings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_yardstick_always_takes_part_and_each_only_once() {
        let names = |text| -> Vec<&str> {
            chosen(text).unwrap().0.iter().map(|entry| entry.name).collect()
        };
        assert_eq!(names(Some("epoll, raw-epoll,epoll")), ["raw-epoll", "epoll"]);
        let rings = ALL.iter().filter(|entry| entry.rings).count();
        let refused = if BackendKind::Uring.is_available() { 0 } else { rings };
        assert_eq!(names(None).len(), ALL.len() - refused);
        assert_eq!(names(Some("adaptive,all")).len(), ALL.len() - refused);
        let error = chosen(Some("kqueue")).unwrap_err().to_string();
        assert!(error.contains("\"kqueue\"") && error.contains("ring-poll"), "{error}");
    }

    #[test]
    fn rings_are_left_out_with_a_reason_without_io_uring() {
        let (kept, notes) = without_refused(ALL.to_vec(), false);
        assert!(kept.iter().all(|entry| !entry.rings) && kept.len() == 3);
        assert!(
            notes[0].starts_with("ring-epoll-ctl, ring-poll, ring-poll-remove, uring, "),
            "{notes:?}"
        );
        assert!(notes.len() == 1 && notes[0].contains(" left out: "), "{notes:?}");
        assert!(without_refused(ALL.to_vec(), true).1.is_empty());
    }
}
