//! Superpoll through its public interface, with each back-end, mode and policy.
//!
//! The user's side is the usual one: a slab addressed by [`Key::index`](superpoll::Key::index).

use std::os::fd::{OwnedFd, RawFd};

use superpoll::backend::policy::{Fixed, PolicyKind, Set, Thresholds};
use superpoll::batch::{Arrivals, BatchReader, Outcome};
use superpoll::{BackendKind, Builder, Events, Interest, Mode, Poller, Watch};

use crate::channel::Pairs;
use crate::error::{Error, Result};
use crate::loops::{Loop, Ready};
use crate::subject::work::{ReadLog, Subject};

/// A slab entry: the program's data for a registration.
#[derive(Clone, Copy)]
struct Connection {
    fd: RawFd,
    pair: u32,
}

/// A poller and the program's side of it.
pub(crate) struct Ours {
    poller: Poller,
    events: Events,
    connections: Vec<Connection>,
    /// Each reported descriptor is armed again.
    rearms: bool,
}

impl Ours {
    /// Registers all readers with a new poller.
    pub(crate) fn over(pairs: &Pairs, mut poller: Poller, mode: Mode) -> Result<Ours> {
        let nobody = Connection { fd: -1, pair: 0 };
        let mut connections = vec![nobody; pairs.len()];
        for (pair, reader) in pairs.reader_handles().iter().enumerate() {
            let key = poller.register(reader, Watch::new(Interest::READABLE).mode(mode))?;
            let place = key.index() as usize;
            if place >= connections.len() {
                connections.resize(place + 1, nobody);
            }
            connections[place] = Connection { fd: pairs.readers()[pair], pair: pair as u32 };
        }
        poller.flush();
        let events = Events::with_limit(pairs.len());
        Ok(Ours { poller, events, connections, rearms: mode == Mode::OneShot })
    }
}

pub(super) fn build(pairs: &Pairs, builder: Builder, mode: Mode) -> Result<Box<dyn Subject + '_>> {
    let mut poller = builder.build()?;
    poller.stay_on_thread();
    Ok(Box::new(Ours::over(pairs, poller, mode)?))
}

pub(super) fn build_adaptive_threshold(pairs: &Pairs) -> Result<Box<dyn Subject + '_>> {
    build_at(pairs, Thresholds::default())
}

pub(super) fn build_idle_server(pairs: &Pairs) -> Result<Box<dyn Subject + '_>> {
    build_at(pairs, Thresholds::IDLE_SERVER)
}

pub(super) fn build_media_server(pairs: &Pairs) -> Result<Box<dyn Subject + '_>> {
    build_at(pairs, Thresholds::MEDIA_SERVER)
}

fn build_at(pairs: &Pairs, thresholds: Thresholds) -> Result<Box<dyn Subject + '_>> {
    build(pairs, Poller::builder().policy_kind(PolicyKind::Ratio(thresholds)), Mode::Auto)
}

pub(super) fn build_adaptive_fixed_hot(pairs: &Pairs) -> Result<Box<dyn Subject + '_>> {
    build(pairs, Poller::builder().policy(Fixed::new(Set::Hot)), Mode::Auto)
}

impl<T: Ready> Loop<T> for Ours {
    #[inline(always)]
    fn turn(&mut self, receiver: &mut T) -> Result<bool> {
        self.poller.wait(&mut self.events, None)?;
        for event in &self.events {
            let connection = self.connections[event.key().index() as usize];
            if !receiver.ready(connection.pair as usize, connection.fd) {
                return Ok(false);
            }
            if self.rearms {
                self.poller.modify(event.key(), Interest::READABLE)?;
            }
        }
        match self.events.refusals().first() {
            Some((_, error)) => Err(Error::usage(error.to_string())),
            None => Ok(true),
        }
    }
}

impl Subject for Ours {
    #[inline(always)]
    fn turn(&mut self, _active: &[u32], log: &mut ReadLog) -> Result<()> {
        Loop::turn(self, log).map(drop)
    }

    fn counters(&self) -> Option<superpoll::diagnostics::Stats> {
        Some(self.poller.stats())
    }

    fn memory(&self) -> Option<usize> {
        Some(self.poller.memory().own)
    }
}

// Superpoll's batch reader, which returns events together with their bytes.
//
// The bytes are looked at in place; the reads are the reader's own, as the floor's are. Its memory
// is not compared: its table holds the descriptors and replaces the table that users of a poller
// keep in addition.

struct Batch<'a> {
    reader: BatchReader<&'a OwnedFd>,
    arrivals: Arrivals,
    /// By index of the key.
    pairs: Vec<u32>,
}

pub(super) fn build_batch<'a>(
    pairs: &'a Pairs,
    kind: BackendKind,
    speculates: bool,
) -> Result<Box<dyn Subject + 'a>> {
    let mut reader = BatchReader::with_backend(kind)?;
    if !speculates {
        reader = reader.without_speculation();
    }
    reader.stay_on_thread();
    let mut numbers = vec![0; pairs.len()];
    for (pair, handle) in (0..).zip(pairs.reader_handles()) {
        let key = reader.register(handle).map_err(|refused| refused.error)?;
        let place = key.index() as usize;
        if place >= numbers.len() {
            numbers.resize(place + 1, 0);
        }
        numbers[place] = pair;
    }
    reader.flush();
    let arrivals = Arrivals::with_limit(pairs.len());
    Ok(Box::new(Batch { reader, arrivals, pairs: numbers }))
}

impl Subject for Batch<'_> {
    #[inline(always)]
    fn turn(&mut self, _active: &[u32], log: &mut ReadLog) -> Result<()> {
        self.reader.wait(&mut self.arrivals, None)?;
        for arrival in &self.arrivals {
            let pair = self.pairs[arrival.key().index() as usize];
            match arrival.outcome() {
                Outcome::Bytes(bytes) => log.note(pair as usize, bytes),
                other => return Err(Error::usage(format!("pair {pair}: {other:?}"))),
            }
        }
        if let Some((_, error)) = self.arrivals.refusals().first() {
            return Err(Error::usage(error.to_string()));
        }
        Ok(())
    }

    fn counters(&self) -> Option<superpoll::diagnostics::Stats> {
        Some(self.reader.stats())
    }
}
