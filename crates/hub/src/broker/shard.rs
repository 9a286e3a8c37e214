//! The logs that one connection reads.
//!
//! A read that waits does so for the logs that there were when it began. When a log is added, the
//! read is interrupted by another connection. An interruption that comes before the read has begun
//! at the broker does nothing, so it is repeated until the reader has noticed
//! ([`Shard::is_behind`]).

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Poll, Waker};

use super::log::{Entry, LogOptions, LogPosition, Looked};

/// The most logs of a connection before there is another connection.
pub(super) const LOGS: usize = 64;

/// A reader of one log.
pub(crate) trait Follower: Send + Sync {
    fn key(&self) -> &Arc<str>;

    fn options(&self) -> LogOptions;

    /// Returns the last entry that it has; `None` if it reads no more.
    fn place(&self) -> Option<LogPosition>;

    /// Ready when it can take entries.
    fn room(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;

    /// Takes the entries after its place, in order.
    fn apply_entries(&self, entries: Vec<Entry>);

    /// Learns the state of the log.
    fn note(&self, looked: &Looked);

    /// Learns that the log cannot be read.
    fn refuse(&self, what: &str);
}

#[derive(Default)]
struct ShardState {
    followers: Vec<Weak<dyn Follower>>,
    /// Grows with each follower.
    generation: u64,
    /// The generation of the read that waits, and the name of its connection.
    reading: Option<(u64, i64)>,
    waker: Option<Waker>,
    is_closed: bool,
}

/// The logs of a connection.
#[derive(Default)]
pub(super) struct Shard {
    state: Mutex<ShardState>,
    /// The connection is there, and all logs were looked at.
    is_up: AtomicBool,
}

impl Shard {
    fn state(&self) -> MutexGuard<'_, ShardState> {
        // No code that can panic runs under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns how many logs there are.
    pub(super) fn len(&self) -> usize {
        let mut state = self.state();
        state.followers.retain(|follower| follower.strong_count() > 0);
        state.followers.len()
    }

    /// Adds a log. Returns whether a read is under way that lacks it.
    pub(super) fn add(&self, follower: Weak<dyn Follower>) -> bool {
        let mut state = self.state();
        state.followers.push(follower);
        state.generation += 1;
        let (is_reading, waker) = (state.reading.is_some(), state.waker.take());
        drop(state);
        waker.into_iter().for_each(Waker::wake);
        is_reading
    }

    /// Returns a number that grows with each follower.
    pub(super) fn generation(&self) -> u64 {
        self.state().generation
    }

    /// Returns the followers that still read, and their generation.
    pub(super) fn followers(&self) -> (u64, Vec<Arc<dyn Follower>>) {
        let mut state = self.state();
        state.followers.retain(|follower| follower.strong_count() > 0);
        (state.generation, state.followers.iter().filter_map(Weak::upgrade).collect())
    }

    /// Ready when there is a follower after this generation, or when the shard is closed.
    pub(super) async fn grown(&self, generation: u64) {
        poll_fn(|cx| {
            let mut state = self.state();
            if state.generation > generation || state.is_closed {
                return Poll::Ready(());
            }
            state.waker = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Notes that a read of the logs of a generation begins, on the connection of a name. `false`
    /// if a log was added meanwhile: nothing would interrupt the read for it.
    pub(super) fn begin_read(&self, generation: u64, name: i64) -> bool {
        let mut state = self.state();
        let is_complete = state.generation == generation;
        state.reading = is_complete.then_some((generation, name));
        is_complete
    }

    /// Notes that no read is under way.
    pub(super) fn end_read(&self) {
        self.state().reading = None;
    }

    /// Returns the name of the connection whose read lacks a log, if there is one.
    pub(super) fn is_behind(&self) -> Option<i64> {
        let state = self.state();
        state.reading.filter(|(of, _)| *of < state.generation).map(|(_, name)| name)
    }

    pub(super) fn is_up(&self) -> bool {
        self.is_up.load(Ordering::Relaxed)
    }

    pub(super) fn set_up(&self, is_up: bool) {
        self.is_up.store(is_up, Ordering::Relaxed);
    }

    pub(super) fn close(&self) {
        let mut state = self.state();
        state.is_closed = true;
        let waker = state.waker.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state().is_closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nothing(Arc<str>);

    impl Follower for Nothing {
        fn key(&self) -> &Arc<str> {
            &self.0
        }

        fn options(&self) -> LogOptions {
            LogOptions { key: self.0.clone(), history: 1, idle: None }
        }

        fn place(&self) -> Option<LogPosition> {
            None
        }

        fn room(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
            Box::pin(async {})
        }

        fn apply_entries(&self, _: Vec<Entry>) {}

        fn note(&self, _: &Looked) {}

        fn refuse(&self, _: &str) {}
    }

    /// Whenever a log is added, its first entries are not waited for: either the read does not
    /// begin without it, or it is interrupted.
    #[test]
    fn a_log_that_is_added_before_or_during_a_read_is_read() {
        let (shard, follower) = (Shard::default(), Arc::new(Nothing("a".into())));
        let add = || {
            let follower: Weak<Nothing> = Arc::downgrade(&follower);
            shard.add(follower)
        };
        let (generation, _) = shard.followers();
        assert!(!add());
        assert!(!shard.begin_read(generation, 7), "the log came before the read");
        assert_eq!(shard.is_behind(), None);
        let (generation, followers) = shard.followers();
        assert_eq!(followers.len(), 1);
        assert!(shard.begin_read(generation, 7));
        assert_eq!(shard.is_behind(), None);
        assert!(add(), "the read has to be interrupted");
        assert_eq!(shard.is_behind(), Some(7));
        shard.end_read();
        assert_eq!(shard.is_behind(), None);
    }
}
