//! Superpoll, with any back-end, in the world of the random sequences.

use std::collections::{BTreeMap, HashMap};
use std::os::fd::OwnedFd;
use std::time::Duration;

use superpoll::{Key, Owned, Readiness, Watch};

use super::real::Engine;
use super::{Ready, Tag};
use crate::bench::Bench;
use crate::rig::Rig;

/// A rig as an engine.
pub struct RigEngine {
    name: String,
    // Owners are dropped before the poller, as in most programs.
    owned: BTreeMap<Tag, Owned<OwnedFd>>,
    tags: HashMap<Key, Tag>,
    rig: Rig,
    rebuilds: u64,
    /// Makes the kernel learn of each close at once.
    flushes: bool,
}

impl std::fmt::Debug for RigEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RigEngine").field("rig", &self.rig).finish_non_exhaustive()
    }
}

impl RigEngine {
    /// Creates a poller of the bench.
    pub fn new(bench: &Bench) -> RigEngine {
        RigEngine {
            name: bench.name().to_owned(),
            owned: BTreeMap::new(),
            tags: HashMap::new(),
            rig: bench.rig(),
            rebuilds: 0,
            flushes: bench.capabilities().holds_files,
        }
    }

    fn flush(&mut self) {
        if self.flushes {
            self.rig.poller().flush();
        }
    }

    fn key(&self, tag: Tag) -> Result<Key, String> {
        Ok(self.owned.get(&tag).ok_or("not registered")?.key())
    }
}

impl Engine for RigEngine {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn register(&mut self, tag: Tag, fd: OwnedFd, watch: Watch) -> Result<(), (OwnedFd, String)> {
        match self.rig.own(fd, watch) {
            Ok(owned) => {
                if let Some(before) = self.tags.insert(owned.key(), tag) {
                    let reason = format!("{:?} named {before} before", owned.key());
                    return Err((self.rig.disown(owned), reason));
                }
                self.owned.insert(tag, owned);
                Ok(())
            }
            Err(rejected) => Err((rejected.io, rejected.error.to_string())),
        }
    }

    fn modify(&mut self, tag: Tag, watch: Watch) -> Result<(), String> {
        let key = self.key(tag)?;
        self.rig.modify_watch(key, watch).map_err(|error| error.to_string())
    }

    fn deregister(&mut self, tag: Tag) -> Result<OwnedFd, String> {
        let owned = self.owned.remove(&tag).ok_or("not registered")?;
        let fd = self.rig.disown(owned);
        self.flush();
        Ok(fd)
    }

    fn close(&mut self, tag: Tag) -> Result<(), String> {
        let owned = self.owned.remove(&tag).ok_or("not registered")?;
        self.rig.close(owned);
        self.flush();
        Ok(())
    }

    fn wait(&mut self, limit: usize, nap: bool) -> Result<Ready, String> {
        let timeout = if nap { Duration::from_micros(30) } else { Duration::ZERO };
        let batch = self.rig.wait(limit, Some(timeout)).map_err(|error| error.to_string())?;
        if let Some((key, error)) = self.rig.refusals().first() {
            return Err(format!("{key:?} was refused: {error}"));
        }
        batch
            .into_iter()
            .map(|(key, readiness)| {
                let tag = self.tags.get(&key).ok_or(format!("{key:?} was never registered"))?;
                Ok((*tag, readiness))
            })
            .collect()
    }

    fn tell(&mut self, tag: Tag, readiness: Readiness) -> Result<(), String> {
        let key = self.key(tag)?;
        self.rig.mark_ready(key, readiness).map_err(|error| error.to_string())
    }

    fn wake(&mut self) -> Result<(), String> {
        // The first waker makes the poller wakeable, in the midst of a sequence.
        let waker = self.rig.waker().map_err(|error| error.to_string())?;
        waker.wake().map_err(|error| error.to_string())
    }

    fn woken(&self) -> Option<bool> {
        Some(self.rig.woken())
    }

    fn may_repeat_edges(&mut self) -> bool {
        let rebuilds = self.rig.stats().rebuilds;
        std::mem::replace(&mut self.rebuilds, rebuilds) != rebuilds
    }
}
