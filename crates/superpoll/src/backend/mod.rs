//! The interface that all back-ends share: the trait that they implement and the context that the
//! poller hands them.
//!
//! A back-end knows how to watch descriptors and nothing else. Keys, coalescing, fairness, one-shot
//! disarming, timeouts across interruptions and the waker's protocol belong to the poller. A
//! back-end receives a [`Context`] with the table of registrations and reports each ready
//! descriptor through [`Context::report`], which drops stale and unwanted reports and stops at the
//! limit. That is why a back-end fits into a screen or two, and why all of them behave alike.
//!
//! The order of calls is fixed. Before each wait the poller asks for [`Backend::sync`] once for
//! each slot that changed, ended registrations first, so that a removal is never overtaken. Then it
//! calls [`Backend::finish_wait`] with the rest of the timeout, again and again, until something
//! was delivered or the time is up.

use crate::costs::Costs;
use crate::error::{Error, Result};

pub(crate) mod adaptive;
mod array;
mod aside;
pub(crate) mod choice;
pub(crate) mod cold;
mod context;
mod delivery;
pub(crate) mod epoll;
mod interface;
pub(crate) mod poll;
mod scan_clock;
pub(crate) mod select;
#[cfg(test)]
mod tests;
#[cfg(feature = "uring")]
pub(crate) mod uring;

pub use adaptive::Adaptive;
use choice::Choice;
pub use cold::{Change, Cold, Profile, Rule, Topology, Tuning};
pub use context::{Context, Deadline, Report};
pub(crate) use delivery::Delivery;
pub use epoll::Epoll;
pub use interface::{
    Backend, BatchReads, BatchedRead, KeeperClient, KeeperStatus, Lengths, Lifecycle, Memory,
    Placement, ReadCall, Status, Synced,
};
pub use poll::Poll;
pub use select::Select;
#[cfg(feature = "uring")]
pub use uring::Uring;

pub use crate::sys::wait_call::WaitCall;
pub use crate::table::{Slot, Table};

/// Rules for where the [`Adaptive`] back-end watches a descriptor.
pub mod policy {
    pub use crate::policy::*;
}

/// A back-end of the table.
pub(crate) struct Entry {
    kind: BackendKind,
    name: &'static str,
    abilities: Abilities,
    is_available: fn() -> bool,
    /// Makes one, for these costs of watching and this place for idle descriptors.
    make: fn(Option<Costs>, Topology) -> Result<Box<dyn Backend>>,
}

#[cfg(feature = "uring")]
const URING: Entry = uring::ENTRY;
/// Built without the feature `uring`.
#[cfg(not(feature = "uring"))]
const URING: Entry = Entry {
    kind: BackendKind::Uring,
    name: "uring",
    abilities: Abilities { is_everywhere: false, ..Abilities::EPOLL },
    is_available: || false,
    make: |_, _| Err(Error::without_uring()),
};

/// The back-ends that come with the crate, in the order of [`BackendKind`]. Names, availability,
/// hints in errors, and the checks of the conformance suite follow from it.
const BACKENDS: [Entry; 5] = [select::ENTRY, poll::ENTRY, epoll::ENTRY, adaptive::ENTRY, URING];

const _: () = {
    let mut place = 0;
    while place < BACKENDS.len() {
        assert!(BACKENDS[place].kind as usize == place, "each entry is in its place");
        place += 1;
    }
};

/// The back-ends that come with the crate, by name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum BackendKind {
    /// `select(2)`: descriptors below 1024.
    Select,
    /// `poll(2)`: cheapest where most descriptors are active.
    Poll,
    /// `epoll(7)`: cheapest where few are active.
    Epoll,
    /// Busy descriptors in a poll array, idle ones in epoll (the default).
    #[default]
    Adaptive,
    /// io_uring (Linux 5.19), where it is allowed: changes and waits are one call. While a thread
    /// has such a poller, and a moment after its end, a blocking call with a limit of time
    /// (`SO_RCVTIMEO`) in that thread can fail with `EINTR` as after a signal, and is then
    /// repeated.
    Uring,
    /// `Uring` where io_uring is allowed and cheaper, by the measured costs of this machine; else
    /// `Adaptive`. It stands for one of the two ([`resolve`](BackendKind::resolve)), and is the
    /// same for the life of a process.
    Auto,
}

/// The environment variable that chooses a back-end where the program did not.
pub const BACKEND_VARIABLE: &str = "SUPERPOLL_BACKEND";

impl BackendKind {
    /// All back-ends that watch descriptors, so not [`Auto`](BackendKind::Auto), which stands for
    /// one of them.
    pub const ALL: [BackendKind; BACKENDS.len()] = {
        let mut all = [BackendKind::Auto; BACKENDS.len()];
        let mut place = 0;
        while place < all.len() {
            all[place] = BACKENDS[place].kind;
            place += 1;
        }
        all
    };

    /// The entry of the table; for [`Auto`](BackendKind::Auto), that of the back-end which it
    /// stands for unless measurements say otherwise.
    const fn entry(self) -> &'static Entry {
        const TABLE: &[Entry] = &BACKENDS;
        match self {
            BackendKind::Auto => &TABLE[BackendKind::Adaptive as usize],
            kind => &TABLE[kind as usize],
        }
    }

    /// The back-ends that this system offers: all but `uring` where the kernel has no io_uring or
    /// refuses it.
    pub fn available() -> Vec<BackendKind> {
        BackendKind::ALL.into_iter().filter(|&kind| kind.is_available()).collect()
    }

    /// Whether this system offers it. For io_uring the answer is found once per process.
    pub fn is_available(self) -> bool {
        (self.entry().is_available)()
    }

    /// Its abilities, as far as back-ends differ; for [`Auto`](BackendKind::Auto), those that it
    /// has in any case.
    pub const fn abilities(self) -> Abilities {
        self.entry().abilities
    }

    /// Returns the back-end that this kind stands for: itself, unless it is
    /// [`Auto`](BackendKind::Auto). For `Auto`, the first call of a process measures for a few
    /// milliseconds; [`Choice`] has the results.
    pub fn resolve(self) -> BackendKind {
        if self == BackendKind::Auto { Choice::here().kind } else { self }
    }

    /// Returns the kind that [`BACKEND_VARIABLE`] names, or the default.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownBackend`] if the variable names none.
    pub fn from_environment() -> Result<BackendKind> {
        match std::env::var_os(BACKEND_VARIABLE) {
            Some(name) if !name.is_empty() => name.to_string_lossy().parse(),
            _ => Ok(BackendKind::default()),
        }
    }

    /// Makes a back-end of this kind. If io_uring has been refused since
    /// [`Auto`](BackendKind::Auto) was resolved, that stands for `adaptive`.
    pub(crate) fn make(self, costs: Option<Costs>, topology: Topology) -> Result<Box<dyn Backend>> {
        if self != BackendKind::Auto || !topology.is_nested() {
            return (self.entry().make)(costs, topology);
        }
        match (self.resolve().entry().make)(costs, topology) {
            Err(Error::BackendUnavailable { .. }) => {
                (BackendKind::Adaptive.entry().make)(costs, Topology::Nested)
            }
            made => made,
        }
    }

    /// Its name, as users write it.
    pub const fn name(self) -> &'static str {
        match self {
            BackendKind::Auto => "auto",
            kind => kind.entry().name,
        }
    }

    fn named() -> impl Iterator<Item = BackendKind> {
        BackendKind::ALL.into_iter().chain([BackendKind::Auto])
    }

    /// All names, separated by commas.
    pub fn names() -> String {
        BackendKind::named().map(BackendKind::name).collect::<Vec<_>>().join(", ")
    }
}

/// The abilities in which back-ends differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Abilities {
    /// It offers [`Mode::Edge`](crate::Mode::Edge).
    pub edge: bool,
    /// It offers [`Mode::Exclusive`](crate::Mode::Exclusive).
    pub exclusive: bool,
    /// It can be nested in another event loop.
    pub nest: bool,
    /// It watches read-closed and priority without readable, and sees a hang-up of a descriptor
    /// whose readability is not wanted.
    pub read_closed_alone: bool,
    /// The first descriptor number that is too large for it.
    pub fd_limit: Option<i32>,
    /// The most wait calls (`poll`, `epoll_wait` and so on) in one wait that finds something.
    pub calls_per_wait: u64,
    /// It registers new descriptors with epoll in the next wait.
    pub registers_with_epoll: bool,
    /// A watched file stays open until the next wait or flush after its owner has closed it.
    pub holds_files: bool,
    /// With [`Mode::Auto`](crate::Mode::Auto) it reports an arrival since the last wait even if
    /// nothing is left of it.
    pub reports_arrivals: bool,
    /// Every kernel that the crate runs on has it.
    pub is_everywhere: bool,
}

impl Abilities {
    /// The abilities of a back-end on `epoll`.
    const EPOLL: Abilities = Abilities {
        edge: true,
        exclusive: true,
        nest: true,
        read_closed_alone: true,
        fd_limit: None,
        calls_per_wait: 1,
        registers_with_epoll: true,
        holds_files: false,
        reports_arrivals: false,
        is_everywhere: true,
    };

    /// The abilities of a back-end on `poll`.
    const POLL: Abilities = Abilities {
        edge: false,
        exclusive: false,
        nest: false,
        registers_with_epoll: false,
        ..Abilities::EPOLL
    };
}

/// The names of the back-ends that have an ability on every system: "poll, epoll or adaptive".
fn those(have: impl Fn(&Abilities) -> bool) -> String {
    let all = BACKENDS.iter().filter(|entry| entry.abilities.is_everywhere);
    let names: Vec<&str> =
        all.filter(|entry| have(&entry.abilities)).map(|entry| entry.name).collect();
    match names.split_last() {
        Some((last, [])) => (*last).to_owned(),
        Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
        None => "another one".to_owned(),
    }
}

/// The error of a back-end that cannot have a keeper.
fn no_keeper(backend: &'static str) -> Error {
    let (what, instead) = ("a keeper", "choose the back-end adaptive, or the nested topology");
    Error::Unsupported { backend, what, instead }
}

/// A back-end that works without a keeper, or an error if one was asked for.
pub(crate) fn without_keeper(
    backend: impl Backend + 'static,
    topology: &Topology,
) -> Result<Box<dyn Backend>> {
    if topology.is_nested() { Ok(Box::new(backend)) } else { Err(no_keeper(backend.status().name)) }
}

impl std::str::FromStr for BackendKind {
    type Err = Error;
    fn from_str(name: &str) -> Result<BackendKind> {
        BackendKind::named().find(|kind| kind.name() == name).ok_or_else(|| Error::UnknownBackend {
            name: name.to_owned(),
            known: BackendKind::names(),
        })
    }
}

impl std::fmt::Display for BackendKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
