//! Who registers, by name.

use std::ops::Range;

use superpoll::{BackendKind, Mode};

use crate::channel::Pairs;
use crate::error::Result;
use crate::options;

use super::{ours, raw_epoll, ring_epoll, ring_poll};

/// Something that descriptors are registered with.
pub trait Registry {
    /// Registers the readers of these pairs, to be told of priority data, which never comes. The kernel knows it
    /// when this returns, as with all that follows.
    ///
    /// # Errors
    ///
    /// What the kernel or the poller says.
    fn register(&mut self, pairs: &Pairs, batch: Range<usize>) -> Result<()>;

    /// Has it tell when there is something to read instead.
    ///
    /// # Errors
    ///
    /// What the kernel or the poller says.
    fn modify(&mut self, pairs: &Pairs, batch: Range<usize>) -> Result<()>;

    /// Ends these registrations; the readers stay open.
    ///
    /// # Errors
    ///
    /// What the kernel or the poller says.
    fn deregister(&mut self, pairs: &Pairs, batch: Range<usize>) -> Result<()>;

    /// Adds the pairs that it reports now, without waiting. Whatever the changes have left to be done by the
    /// next wait is done by this.
    ///
    /// # Errors
    ///
    /// What the kernel or the poller says.
    fn look(&mut self, found: &mut Vec<usize>) -> Result<()>;

    /// System calls so far.
    fn calls(&self) -> u64;
}

type Start = fn(usize) -> Result<Box<dyn Registry>>;

/// A registry by name.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Its name in tables and records.
    pub name: &'static str,
    /// What it is.
    pub about: &'static str,
    /// Whether it needs io_uring.
    pub rings: bool,
    start: Start,
}

/// The name of the yardstick.
pub const YARDSTICK: &str = "raw-epoll";

/// The name of changes of an epoll set that go through a ring.
pub const BATCHED: &str = "ring-epoll-ctl";

const fn entry(name: &'static str, about: &'static str, start: Start) -> Entry {
    Entry { name, about, rings: false, start }
}

const fn ring(name: &'static str, about: &'static str, start: Start) -> Entry {
    Entry { rings: true, ..entry(name, about, start) }
}

/// All of them, the yardstick first.
pub const ALL: &[Entry] = &[
    entry(YARDSTICK, "an epoll_ctl call for each change", raw_epoll::start),
    ring(BATCHED, "an epoll set, changed through a ring in batches", ring_epoll::start),
    ring("ring-poll", "multishot polls in a ring, cancelled", |total| {
        ring_poll::start(total, false)
    }),
    ring("ring-poll-remove", "multishot polls in a ring, removed", |total| {
        ring_poll::start(total, true)
    }),
    entry("epoll", "our back-end epoll", |total| {
        ours::start(total, BackendKind::Epoll, Mode::Level)
    }),
    entry("adaptive", "our back-end adaptive", |total| {
        ours::start(total, BackendKind::Adaptive, Mode::Auto)
    }),
    ring("uring", "our back-end uring, edge-triggered", |total| {
        ours::start(total, BackendKind::Uring, Mode::Auto)
    }),
    ring("uring-lt", "our back-end uring, level-triggered", |total| {
        ours::start(total, BackendKind::Uring, Mode::Level)
    }),
    ring("uring-registrar", "our back-end uring, registrations ended by a Registrar", |total| {
        ours::start_registrar(total, BackendKind::Uring, Mode::Auto)
    }),
];

impl Entry {
    /// Starts it, for so many pairs.
    ///
    /// # Errors
    ///
    /// What the kernel or the poller says.
    pub fn start(&self, total: usize) -> Result<Box<dyn Registry>> {
        (self.start)(total)
    }
}

/// Those that were asked for, each once, and the yardstick; and why those are left out that this system
/// does not offer.
///
/// # Errors
///
/// [`Error::Usage`](crate::Error::Usage) if a name is unknown.
pub fn chosen(names: Option<&str>) -> Result<(Vec<Entry>, Vec<String>)> {
    let names = format!("{},{}", ALL[0].name, names.unwrap_or("all"));
    let chosen =
        options::named(&names, ALL, |entry| entry.name, |_| true, "nothing that registers")?;
    Ok(without_refused(chosen, BackendKind::Uring.is_available()))
}

fn without_refused(chosen: Vec<Entry>, rings: bool) -> (Vec<Entry>, Vec<String>) {
    let (kept, out): (Vec<Entry>, Vec<Entry>) =
        chosen.into_iter().partition(|entry| rings || !entry.rings);
    let names: Vec<&str> = out.iter().map(|entry| entry.name).collect();
    let note = || format!("{} left out: {}", names.join(", "), crate::probe::why_no_uring());
    (kept, (!names.is_empty()).then(note).into_iter().collect())
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
    fn what_needs_a_ring_is_left_out_with_a_reason_where_there_is_none() {
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
