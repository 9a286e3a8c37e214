//! The registries, by name.

use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

use superpoll::{BackendKind, Events, Interest, Key, Mode, Poller, Registrar, Watch};

use crate::channel::Pairs;
use crate::error::{Doing, Error, Result};
use crate::server::subject::{self, Entry, Subject};
use crate::sys::epoll::{self, Change};
use crate::sys::uring::changes::Changes;

/// Starts a registry, for a number of pairs.
pub(super) type Start = fn(usize) -> Result<Box<dyn Registry>>;

/// The name of the yardstick.
pub(crate) const YARDSTICK: &str = "raw-epoll";

/// The name of the registry that changes an epoll set through a ring.
pub(crate) const BATCHED: &str = "ring-epoll-ctl";

/// All registries, the yardstick first.
pub(super) const ALL: &[Entry<Start>] = &[
    Entry::new(YARDSTICK, "an epoll_ctl call for each change", |total| start(total, false)),
    ring(BATCHED, "an epoll set, changed through a ring in batches", |total| start(total, true)),
    ring("ring-poll", "multishot polls in a ring, cancelled", |total| {
        start_ring_poll(total, false)
    }),
    ring("ring-poll-remove", "multishot polls in a ring, removed", |total| {
        start_ring_poll(total, true)
    }),
    Entry::new("epoll", "our back-end epoll", |total| {
        start_ours(total, BackendKind::Epoll, Mode::Level, false)
    }),
    Entry::new("adaptive", "our back-end adaptive", |total| {
        start_ours(total, BackendKind::Adaptive, Mode::Auto, false)
    }),
    ring("uring", "our back-end uring, edge-triggered", |total| {
        start_ours(total, BackendKind::Uring, Mode::Auto, false)
    }),
    ring("uring-lt", "our back-end uring, level-triggered", |total| {
        start_ours(total, BackendKind::Uring, Mode::Level, false)
    }),
    ring("uring-registrar", "our back-end uring, registrations ended by a Registrar", |total| {
        start_ours(total, BackendKind::Uring, Mode::Auto, true)
    }),
];

const fn ring(name: &'static str, about: &'static str, start: Start) -> Entry<Start> {
    Entry::new(name, about, start).with_ring()
}

/// Returns the requested registries, each once, and the yardstick; and the reasons for leaving out
/// those that this system does not offer.
pub(super) fn chosen(names: Option<&str>) -> Result<(Vec<Subject<Start>>, Vec<String>)> {
    let names = format!("{YARDSTICK},{}", names.unwrap_or("all"));
    subject::chosen(ALL, Some(&names), "nothing that registers")
}

// The interface of everything that descriptors are registered with.

/// An object that descriptors are registered with.
pub(super) trait Registry {
    /// Changes the registrations of the readers of these pairs, as [`interest`] says; the readers
    /// stay open. The kernel knows of it when this method returns.
    fn change(&mut self, pairs: &Pairs, batch: Range<usize>, change: Change) -> Result<()>;

    /// Adds the pairs that the registry reports now, without waiting. This method also does any
    /// work that the changes have left for the next wait.
    fn look(&mut self, found: &mut Vec<usize>) -> Result<()>;

    /// System calls so far.
    fn calls(&self) -> u64;
}

/// Returns the interest after a change, as events of `epoll`: at first priority data, which never
/// arrives, then readable data.
pub(super) const fn interest(change: Change) -> u32 {
    match change {
        Change::Add => libc::EPOLLPRI as u32,
        Change::Modify => libc::EPOLLIN as u32,
        Change::Delete => 0,
    }
}

// An epoll set as a registry. It learns of changes by `epoll_ctl(2)`, one call for each change of
// each descriptor, or through a ring (`IORING_OP_EPOLL_CTL`), in which changes are queued and made
// in one call for each batch.
//
// Deletions are queued too, so that their price is known. A poller should not queue them: the
// close of a descriptor overtakes a deletion that waits in a queue.

struct EpollSet {
    set: OwnedFd,
    events: Vec<epoll::Raw>,
    /// Where changes are queued; without it, each is a call.
    ring: Option<Changes>,
    /// System calls apart from those of the ring.
    calls: u64,
}

pub(super) fn start(total: usize, by_ring: bool) -> Result<Box<dyn Registry>> {
    let ring = by_ring.then(Changes::new).transpose();
    let ring = ring.doing("setting up an io_uring")?;
    let set = epoll::create().doing("making an epoll set")?;
    let events = vec![epoll::Raw { events: 0, u64: 0 }; total];
    Ok(Box::new(EpollSet { set, events, ring, calls: 0 }))
}

impl Registry for EpollSet {
    fn change(&mut self, pairs: &Pairs, mut batch: Range<usize>, change: Change) -> Result<()> {
        let (set, readers, events) = (self.set.as_raw_fd(), pairs.readers(), interest(change));
        if let Some(ring) = &mut self.ring {
            return batch
                .try_for_each(|pair| ring.of_set(set, change, readers[pair], events, pair as u64))
                .and_then(|()| ring.carry_out())
                .doing("changing an epoll set through an io_uring");
        }
        self.calls += batch.len() as u64;
        batch
            .try_for_each(|pair| epoll::change(set, change, readers[pair], events, pair as u64))
            .doing("changing an epoll set")
    }

    fn look(&mut self, found: &mut Vec<usize>) -> Result<()> {
        self.calls += 1;
        let count =
            epoll::look(self.set.as_raw_fd(), &mut self.events).doing("waiting in epoll")?;
        found.extend(self.events[..count].iter().map(|event| event.u64 as usize));
        Ok(())
    }

    fn calls(&self) -> u64 {
        self.calls + self.ring.as_ref().map_or(0, Changes::calls)
    }
}

// Our poller, through its public interface. `flush` tells the kernel of changes; an event loop
// would leave that to its next wait.

struct Ours {
    poller: Poller,
    events: Events,
    mode: Mode,
    /// Ends registrations in place of the poller, if present.
    registrar: Option<Registrar>,
    keys: Vec<Option<Key>>,
    /// By the index of a key.
    pairs: Vec<usize>,
}

/// With `through_registrar`, registrations end as those of dropped owners of descriptors do,
/// through a [`Registrar`]: the poller learns of it when it is told to flush.
pub(super) fn start_ours(
    total: usize,
    kind: BackendKind,
    mode: Mode,
    through_registrar: bool,
) -> Result<Box<dyn Registry>> {
    let mut poller = Poller::builder().backend(kind).build()?;
    let registrar = through_registrar.then(|| poller.registrar()).transpose()?;
    let events = Events::with_limit(total.max(1));
    let (keys, pairs) = (vec![None; total], vec![0; total]);
    Ok(Box::new(Ours { poller, events, mode, registrar, keys, pairs }))
}

impl Ours {
    fn register(&mut self, pair: usize, reader: &OwnedFd) -> Result<()> {
        let watch = Watch::new(Interest::PRIORITY).mode(self.mode);
        let key = self.poller.register(reader, watch)?;
        let index = key.index() as usize;
        if index >= self.pairs.len() {
            self.pairs.resize(index + 1, 0);
        }
        self.pairs[index] = pair;
        self.keys[pair] = Some(key);
        Ok(())
    }
}

impl Registry for Ours {
    fn change(&mut self, pairs: &Pairs, batch: Range<usize>, change: Change) -> Result<()> {
        for pair in batch {
            match (change, self.keys[pair], &self.registrar) {
                (Change::Add, ..) => self.register(pair, &pairs.reader_handles()[pair])?,
                (Change::Modify, Some(key), _) => self.poller.modify(key, Interest::READABLE)?,
                (Change::Delete, Some(key), Some(registrar)) => registrar.deregister(key)?,
                (Change::Delete, Some(key), None) => self.poller.deregister(key)?,
                (_, None, _) => {}
            }
        }
        self.poller.flush();
        Ok(())
    }

    fn look(&mut self, found: &mut Vec<usize>) -> Result<()> {
        self.poller.wait(&mut self.events, Some(Duration::ZERO))?;
        if let Some((_, error)) = self.events.refusals().first() {
            return Err(Error::usage(error.to_string()));
        }
        found.extend(self.events.iter().map(|event| self.pairs[event.key().index() as usize]));
        Ok(())
    }

    fn calls(&self) -> u64 {
        self.poller.stats().calls.total()
    }
}

// Multishot polls: the ring itself watches. Arming a batch is one call. Cancelling it is one call
// as well: by requests that cancel anything (`IORING_OP_ASYNC_CANCEL`), or by requests that remove
// polls (`IORING_OP_POLL_REMOVE`), which are refused while a poll is about to report. A poll is
// changed by cancelling it and arming it again.

struct RingPoll {
    changes: Changes,
    removes: bool,
    /// How often each pair's poll was armed: a poll that is armed while the previous one is being
    /// cancelled has another number.
    armings: Vec<u32>,
}

pub(super) fn start_ring_poll(total: usize, removes: bool) -> Result<Box<dyn Registry>> {
    let changes = Changes::new().doing("setting up an io_uring")?;
    Ok(Box::new(RingPoll { changes, removes, armings: vec![0; total] }))
}

impl RingPoll {
    fn number(&self, pair: usize) -> u64 {
        u64::from(self.armings[pair] & u32::MAX >> 1) << 32 | pair as u64
    }

    fn change_one(&mut self, pair: usize, fd: RawFd, change: Change) -> std::io::Result<()> {
        if change != Change::Add {
            let number = self.number(pair);
            if self.removes { self.changes.remove(number)? } else { self.changes.cancel(number)? }
        }
        if change != Change::Delete {
            self.armings[pair] = self.armings[pair].wrapping_add(1);
            self.changes.arm(self.number(pair), fd, interest(change))?;
        }
        Ok(())
    }
}

fn failed(source: std::io::Error) -> Error {
    Error::system("changing the polls of an io_uring", source)
}

impl Registry for RingPoll {
    fn change(&mut self, pairs: &Pairs, mut batch: Range<usize>, change: Change) -> Result<()> {
        batch
            .try_for_each(|pair| self.change_one(pair, pairs.readers()[pair], change))
            .and_then(|()| self.changes.carry_out())
            .map_err(failed)
    }

    fn look(&mut self, found: &mut Vec<usize>) -> Result<()> {
        found.extend(self.changes.look().map_err(failed)?.map(|number| number as u32 as usize));
        Ok(())
    }

    fn calls(&self) -> u64 {
        self.changes.calls()
    }
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
        let refused = if BackendKind::Uring.is_available() { 0 } else { 6 };
        assert_eq!(names(None).len(), ALL.len() - refused);
        assert_eq!(names(Some("adaptive,all")).len(), ALL.len() - refused);
        let error = chosen(Some("kqueue")).unwrap_err().to_string();
        assert!(error.contains("\"kqueue\"") && error.contains("ring-poll"), "{error}");
    }
}
