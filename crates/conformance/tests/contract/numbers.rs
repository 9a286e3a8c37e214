//! Numbers of descriptors, which the tests of a process have in common: one check opens so many
//! that those of others get too large for `select`, above all with a keeper in this process, which
//! has a copy of each.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use superpoll_conformance::Bench;

static NUMBERS: RwLock<()> = RwLock::new(());

/// Held while many descriptors are opened.
pub(crate) fn many() -> RwLockWriteGuard<'static, ()> {
    NUMBERS.write().unwrap_or_else(PoisonError::into_inner)
}

/// Held while a back-end is tested; nothing if it does not need small numbers.
pub(crate) fn small(bench: &Bench) -> Option<RwLockReadGuard<'static, ()>> {
    let needed = bench.capabilities().fd_limit.is_some();
    needed.then(|| NUMBERS.read().unwrap_or_else(PoisonError::into_inner))
}
