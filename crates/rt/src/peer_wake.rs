//! Waking the other end of a pipe or socket pair without asking the kernel.
//!
//! A task that writes into a pipe whose reader waits in the same engine knows that the reader can
//! continue. A task that reads from a full pipe knows the same of the writer. So the task at the
//! other end is woken at once and tries its operation, without a wait in between. That is a guess,
//! which costs one refused call when it is wrong (another process or thread holds a duplicate and
//! was faster). The poller watches both ends all the same, so nothing depends on the guess. A task
//! that was woken in this way waits for its turn after all other tasks: the loop still asks the
//! poller after as many tasks as in any other turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use superpoll::Key;

use crate::counters::count;
use crate::current_engine::NO_ENGINE;
use crate::engine;
use crate::sources::Direction;

/// Where an end is registered. Another thread may read it while the end moves there: then the guess
/// is wrong, or is not made.
#[derive(Debug, Default)]
struct EndAddress {
    engine: AtomicU32,
    key: AtomicU64,
}

/// One of two ends that wake each other.
#[derive(Debug)]
pub(crate) struct PairedEnd {
    addresses: Arc<[EndAddress; 2]>,
    own: usize,
}

/// Makes two ends that wake each other.
pub(crate) fn pair() -> (PairedEnd, PairedEnd) {
    let addresses: Arc<[EndAddress; 2]> = Arc::default();
    (PairedEnd { addresses: addresses.clone(), own: 0 }, PairedEnd { addresses, own: 1 })
}

impl PairedEnd {
    /// Notes that this end waits in an engine, under this key.
    pub(crate) fn set_address(&self, engine: u32, key: Key) {
        let address = &self.addresses[self.own];
        address.key.store(key.to_bits(), Ordering::Relaxed);
        address.engine.store(engine, Ordering::Release);
    }

    /// Wakes the other end after an operation in this direction, which lets the other end continue
    /// in the opposite direction.
    #[inline]
    pub(crate) fn wake_peer(&self, done: Direction) {
        let address = &self.addresses[1 - self.own];
        let id = address.engine.load(Ordering::Acquire);
        if id == NO_ENGINE {
            return;
        }
        let towards = match done {
            Direction::Write => Direction::Read,
            Direction::Read => Direction::Write,
            Direction::Priority => return,
        };
        engine::with(|engine| {
            if engine.remote.id != id {
                return;
            }
            let key = Key::from_bits(address.key.load(Ordering::Relaxed));
            let wakers = engine.source(key, |source| source.assume_ready(towards)).flatten();
            if let Some(wakers) = wakers {
                count(&engine.counters.peer_wakes);
                wakers.wake();
            }
        });
    }
}
