//! Our poller, through its public interface. `flush` tells the kernel of changes; an event loop
//! would leave that to its next wait.

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::time::Duration;

use superpoll::{BackendKind, Events, Interest, Key, Mode, Poller, Registrar, Watch};

use crate::channel::Pairs;
use crate::error::{Error, Result};
use crate::registrations::registry::Registry;
use crate::sys::epoll::Change;

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
pub(super) fn start(
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
