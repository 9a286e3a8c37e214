//! Our poller, through its public interface. `flush` tells the kernel of changes; an event loop
//! would leave that to its next wait.

use std::ops::Range;
use std::time::Duration;

use superpoll::{BackendKind, Events, Interest, Key, Mode, Poller, Registrar, Watch};

use crate::channel::Pairs;
use crate::error::{Error, Result};

use crate::registrations::registry::Registry;

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

pub(super) fn start(total: usize, kind: BackendKind, mode: Mode) -> Result<Box<dyn Registry>> {
    Ok(Box::new(Ours::new(total, kind, mode)?))
}

/// Ends registrations through a [`Registrar`], as dropped owners of descriptors do: the poller
/// learns of it when it is told to flush.
pub(super) fn start_registrar(
    total: usize,
    kind: BackendKind,
    mode: Mode,
) -> Result<Box<dyn Registry>> {
    let mut ours = Ours::new(total, kind, mode)?;
    ours.registrar = Some(ours.poller.registrar()?);
    Ok(Box::new(ours))
}

impl Ours {
    fn new(total: usize, kind: BackendKind, mode: Mode) -> Result<Ours> {
        Ok(Ours {
            poller: Poller::builder().backend(kind).build()?,
            events: Events::with_limit(total.max(1)),
            mode,
            registrar: None,
            keys: vec![None; total],
            pairs: vec![0; total],
        })
    }
}

impl Registry for Ours {
    fn register(&mut self, pairs: &Pairs, batch: Range<usize>) -> Result<()> {
        for pair in batch {
            let watch = Watch::new(Interest::PRIORITY).mode(self.mode);
            let key = self.poller.register(&pairs.reader_handles()[pair], watch)?;
            let index = key.index() as usize;
            if index >= self.pairs.len() {
                self.pairs.resize(index + 1, 0);
            }
            self.pairs[index] = pair;
            self.keys[pair] = Some(key);
        }
        self.poller.flush();
        Ok(())
    }

    fn modify(&mut self, _pairs: &Pairs, batch: Range<usize>) -> Result<()> {
        for key in self.keys[batch].iter().flatten() {
            self.poller.modify(*key, Interest::READABLE)?;
        }
        self.poller.flush();
        Ok(())
    }

    fn deregister(&mut self, _pairs: &Pairs, batch: Range<usize>) -> Result<()> {
        for key in &mut self.keys[batch] {
            match (key.take(), &self.registrar) {
                (Some(key), Some(registrar)) => registrar.deregister(key)?,
                (Some(key), None) => self.poller.deregister(key)?,
                (None, _) => {}
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
