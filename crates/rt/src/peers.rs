//! Two ends that know of each other: an operation at one end tells the other without asking the
//! kernel.
//!
//! A task that writes into a pipe whose reader waits in the same engine knows that the reader can
//! go on. A task that reads from a full pipe knows the same of the writer. So the task at the other
//! end is woken at once and tries its operation, without a wait in between. That is a guess, which
//! costs one refused call when it is wrong (another process or thread holds a duplicate and was
//! faster). The poller watches both ends all the same, so nothing depends on the guess. A task that
//! was woken in this way waits for its turn behind all other tasks: the loop still asks the poller
//! after as many tasks as in any other turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use superpoll::Key;

use crate::engine;
use crate::sources::Direction;
use crate::stats::count;

/// The registration of an end. Another thread may read it while the end moves there: then the guess
/// is wrong, or is not made.
#[derive(Debug, Default)]
struct Place {
    engine: AtomicU32,
    key: AtomicU64,
}

/// One of two ends.
#[derive(Debug)]
pub(crate) struct End {
    places: Arc<[Place; 2]>,
    own: usize,
}

/// Makes a pair of ends that know of each other.
pub(crate) fn pair() -> (End, End) {
    let places: Arc<[Place; 2]> = Arc::default();
    (End { places: places.clone(), own: 0 }, End { places, own: 1 })
}

impl End {
    /// Notes that this end waits in an engine, under this key.
    pub fn registered(&self, engine: u32, key: Key) {
        let place = &self.places[self.own];
        place.key.store(key.to_bits(), Ordering::Relaxed);
        place.engine.store(engine, Ordering::Release);
    }

    /// Notes that an operation in this direction was done here, which lets the other end go on in
    /// the opposite direction.
    #[inline]
    pub fn tell_other(&self, done: Direction) {
        let place = &self.places[1 - self.own];
        let home = place.engine.load(Ordering::Acquire);
        if home == 0 {
            return;
        }
        let towards = match done {
            Direction::Write => Direction::Read,
            Direction::Read => Direction::Write,
            Direction::Priority => return,
        };
        engine::with(|engine| {
            if engine.remote.id != home {
                return;
            }
            let key = Key::from_bits(place.key.load(Ordering::Relaxed));
            let woken = engine.source(key, |source| source.hand_over(towards)).flatten();
            if let Some(woken) = woken {
                count(&engine.counters.handed_over);
                woken.wake();
            }
        });
    }
}
