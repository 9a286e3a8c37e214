//! The bits by which a sleep and a wake agree, without the descriptor. The file uses nothing of
//! this crate, as `models/` compiles it alone, with loom's atomics.

#[cfg(superpoll_loom)]
use loom::sync::atomic::{AtomicU8, Ordering};
#[cfg(not(superpoll_loom))]
use std::sync::atomic::{AtomicU8, Ordering};

pub(super) const ASLEEP: u8 = 1;
pub(super) const WOKEN: u8 = 2;
pub(super) const KICKED: u8 = 4;

/// The bits, without the descriptor.
#[derive(Debug)]
pub(super) struct State(AtomicU8);

impl State {
    pub(super) fn new() -> State {
        State(AtomicU8::new(0))
    }

    /// Sets a wake bit; true if the caller must write to the eventfd.
    pub(super) fn signal(&self, bit: u8) -> bool {
        self.0.fetch_or(bit, Ordering::AcqRel) == ASLEEP
    }

    /// Announces a sleep; false (and no sleep) if there was a wake already.
    pub(super) fn begin(&self) -> bool {
        self.0.compare_exchange(0, ASLEEP, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Takes all bits.
    pub(super) fn take(&self) -> u8 {
        self.0.swap(0, Ordering::AcqRel)
    }

    pub(super) fn is_signalled(&self) -> bool {
        self.0.load(Ordering::Acquire) & (WOKEN | KICKED) != 0
    }
}

#[cfg(all(test, superpoll_loom))]
mod model {
    use super::*;
    use loom::sync::atomic::AtomicUsize;
    use loom::sync::{Arc, Notify};
    use loom::thread;

    /// Two threads wake once each while the poller sleeps until it has seen both. A `Notify` stands
    /// for the eventfd; a sleep without an end is a deadlock, which loom reports. In every
    /// interleaving there is at most one write for each sleep.
    #[test]
    fn no_wake_is_lost_and_a_sleep_costs_at_most_one_write() {
        loom::model(|| {
            let state = Arc::new(State::new());
            let eventfd = Arc::new(Notify::new());
            let writes = Arc::new(AtomicUsize::new(0));
            let wakers: Vec<_> = [WOKEN, KICKED]
                .into_iter()
                .map(|bit| {
                    let (state, eventfd, writes) = (state.clone(), eventfd.clone(), writes.clone());
                    thread::spawn(move || {
                        if state.signal(bit) {
                            writes.fetch_add(1, Ordering::Relaxed);
                            eventfd.notify();
                        }
                    })
                })
                .collect();
            let (mut seen, mut sleeps) = (0, 0);
            while seen & (WOKEN | KICKED) != WOKEN | KICKED {
                if state.begin() {
                    sleeps += 1;
                    eventfd.wait();
                }
                seen |= state.take();
            }
            for waker in wakers {
                waker.join().unwrap();
            }
            assert!(writes.load(Ordering::Relaxed) <= sleeps);
        });
    }

    /// Data that the waking thread wrote before its wake is visible once the wake was seen.
    #[test]
    fn a_wake_publishes_earlier_writes() {
        loom::model(|| {
            let state = Arc::new(State::new());
            let data = Arc::new(AtomicUsize::new(0));
            let (theirs, written) = (state.clone(), data.clone());
            let waker = thread::spawn(move || {
                written.store(1, Ordering::Relaxed);
                theirs.signal(WOKEN)
            });
            if !state.begin() {
                assert!(state.is_signalled());
                assert_eq!(data.load(Ordering::Relaxed), 1);
            }
            waker.join().unwrap();
        });
    }
}
