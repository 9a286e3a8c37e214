//! The descriptors that a process keeps in reserve for its listeners.
//!
//! There is one for each listener that sheds load, and all listeners share them. A listener that
//! meets the limit closes one, accepts a connection into the room that this makes, closes the
//! connection, and opens the reserve again. Meanwhile another thread may take the room: for a file,
//! or for a connection that is to be served. Then one is missing. If each listener had its own, the
//! one that lost it could tell no client any more, while others that could are not woken for its
//! clients. As they are shared, it takes the next one. Listeners shed one at a time, so that none
//! takes another's room.
//!
//! As long as one is missing, a connection that is accepted is served only if there is room to
//! restore the reserve first; else it is closed, and the reserve takes its place. So what is
//! lost to connections comes back, and a process at its limit continues to tell its clients.
//!
//! A reserve is a counter (`eventfd(2)`), which takes no path: a process that has changed its root
//! or is confined since can open it again. The lock is held for a few calls that do not wait, if
//! listeners do not block and have no `SO_LINGER`.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::sys::signal::counter;

static RESERVES: Mutex<Reserves> = Mutex::new(Reserves { open: Vec::new(), wanted: 0 });

/// How many are missing: a copy, to be read for each connection.
static MISSING: AtomicUsize = AtomicUsize::new(0);

struct Reserves {
    open: Vec<OwnedFd>,
    wanted: usize,
}

impl Reserves {
    fn lock() -> MutexGuard<'static, Reserves> {
        RESERVES.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens those that are missing, as far as there is room; returns whether there is too little.
    fn fill(&mut self) -> bool {
        let mut is_short = false;
        while self.open.len() < self.wanted {
            match counter() {
                Ok(reserve) => self.open.push(reserve),
                Err(error) => {
                    is_short = is_limit(&error);
                    break;
                }
            }
        }
        self.note();
        is_short
    }

    fn note(&self) {
        MISSING.store(self.wanted - self.open.len(), Ordering::Relaxed);
    }
}

/// Whether the process or the system is out of descriptors.
pub(super) fn is_limit(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

/// One listener's part of the reserves.
pub(super) struct Reserve(());

impl Reserve {
    pub(super) fn new() -> io::Result<Reserve> {
        let reserve = counter()?;
        let mut reserves = Reserves::lock();
        reserves.wanted += 1;
        reserves.open.push(reserve);
        reserves.note();
        Ok(Reserve(()))
    }

    /// Returns a connection if it can be served without a shortage of reserves, and else closes it.
    pub(super) fn admit<C>(&self, connection: C) -> Option<C> {
        match MISSING.load(Ordering::Relaxed) {
            0 => Some(connection),
            _ => self.restore(connection),
        }
    }

    #[cold]
    fn restore<C>(&self, connection: C) -> Option<C> {
        let mut reserves = Reserves::lock();
        if !reserves.fill() {
            return Some(connection);
        }
        drop(connection);
        reserves.fill();
        None
    }

    /// Accepts a connection into the room of a reserve, and closes it.
    ///
    /// # Errors
    ///
    /// Those of `accept`; `EMFILE` or `ENFILE` if there is neither a reserve nor room.
    #[cold]
    pub(super) fn shed<C>(&self, accept: impl FnOnce() -> io::Result<C>) -> io::Result<()> {
        let mut reserves = Reserves::lock();
        match reserves.open.pop() {
            Some(reserve) => drop(reserve),
            None => drop(counter()?),
        }
        let accepted = accept().map(drop);
        reserves.fill();
        accepted
    }
}

impl Drop for Reserve {
    fn drop(&mut self) {
        let mut reserves = Reserves::lock();
        reserves.wanted -= 1;
        let wanted = reserves.wanted;
        reserves.open.truncate(wanted);
        reserves.note();
    }
}
