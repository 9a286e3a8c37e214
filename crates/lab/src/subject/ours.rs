//! Superpoll through its public interface, with each back-end, mode and policy.
//!
//! The user's side is the usual one: a slab addressed by [`Key::index`](superpoll::Key::index).

use std::os::fd::RawFd;

use superpoll::backend::policy::{Fixed, RatioPolicy, Set};
use superpoll::{BackendKind, Builder, Events, Interest, Mode, Poller, Watch};

use crate::channel::Pairs;
use crate::error::{Error, Result};
use crate::subject::work::{ReadLog, Subject};

/// A slab entry: the program's data for a registration.
#[derive(Clone, Copy)]
struct Connection {
    fd: RawFd,
    pair: u32,
}

struct Ours {
    poller: Poller,
    events: Events,
    connections: Vec<Connection>,
    /// Each reported descriptor is armed again.
    rearms: bool,
}

fn build(pairs: &Pairs, builder: Builder, mode: Mode) -> Result<Box<dyn Subject + '_>> {
    let mut poller = builder.build()?;
    poller.stay_on_thread();
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
    Ok(Box::new(Ours { poller, events, connections, rearms: mode == Mode::OneShot }))
}

fn kind(pairs: &Pairs, kind: BackendKind, mode: Mode) -> Result<Box<dyn Subject + '_>> {
    build(pairs, Poller::builder().backend(kind), mode)
}

pub(super) fn build_select(pairs: &Pairs) -> Result<Box<dyn Subject + '_>> {
    kind(pairs, BackendKind::Select, Mode::Level)
}

pub(super) fn build_poll(pairs: &Pairs) -> Result<Box<dyn Subject + '_>> {
    kind(pairs, BackendKind::Poll, Mode::Level)
}

pub(super) fn build_epoll_level(pairs: &Pairs) -> Result<Box<dyn Subject + '_>> {
    kind(pairs, BackendKind::Epoll, Mode::Level)
}

pub(super) fn build_epoll_edge(pairs: &Pairs) -> Result<Box<dyn Subject + '_>> {
    kind(pairs, BackendKind::Epoll, Mode::Edge)
}

pub(super) fn build_epoll_oneshot(pairs: &Pairs) -> Result<Box<dyn Subject + '_>> {
    kind(pairs, BackendKind::Epoll, Mode::OneShot)
}

pub(super) fn build_uring(pairs: &Pairs) -> Result<Box<dyn Subject + '_>> {
    kind(pairs, BackendKind::Uring, Mode::Auto)
}

pub(super) fn build_adaptive(pairs: &Pairs) -> Result<Box<dyn Subject + '_>> {
    kind(pairs, BackendKind::Adaptive, Mode::Auto)
}

pub(super) fn build_auto(pairs: &Pairs) -> Result<Box<dyn Subject + '_>> {
    kind(pairs, BackendKind::Auto, Mode::Auto)
}

pub(super) fn build_adaptive_level(pairs: &Pairs) -> Result<Box<dyn Subject + '_>> {
    kind(pairs, BackendKind::Adaptive, Mode::Level)
}

pub(super) fn build_adaptive_threshold(pairs: &Pairs) -> Result<Box<dyn Subject + '_>> {
    build(pairs, Poller::builder().policy(RatioPolicy::default()), Mode::Auto)
}

pub(super) fn build_adaptive_fixed_hot(pairs: &Pairs) -> Result<Box<dyn Subject + '_>> {
    build(pairs, Poller::builder().policy(Fixed::new(Set::Hot)), Mode::Auto)
}

impl Subject for Ours {
    fn round(&mut self, active: &[u32], log: &mut ReadLog) -> Result<()> {
        while log.bytes() < active.len() {
            self.poller.wait(&mut self.events, None)?;
            for event in &self.events {
                let connection = self.connections[event.key().index() as usize];
                log.read(connection.pair as usize, connection.fd);
                if self.rearms {
                    self.poller.modify(event.key(), Interest::READABLE)?;
                }
            }
            if let Some((_, error)) = self.events.refusals().first() {
                return Err(Error::usage(error.to_string()));
            }
        }
        Ok(())
    }

    fn counters(&self) -> Option<superpoll::diagnostics::Stats> {
        Some(self.poller.stats())
    }

    fn memory(&self) -> Option<usize> {
        Some(self.poller.memory().own)
    }
}
