//! Superpoll through its public interface, with each back-end, mode and policy.
//!
//! The user's side is the usual one: a slab addressed by [`Key::index`](superpoll::Key::index).

use std::os::fd::RawFd;

use superpoll::backend::policy::{Fixed, RatioPolicy, Set};
use superpoll::{Builder, Events, Interest, Mode, Poller, Watch};

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
    build(pairs, Poller::builder().policy(RatioPolicy::default()), Mode::Auto)
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
