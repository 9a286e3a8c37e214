//! The logs that one connection reads.
//!
//! A read that waits does so for the logs that there were when it began. When a log is added, the
//! read is interrupted by another connection. An interruption that comes before the read has begun
//! at the broker does nothing, so it is repeated until the reader has noticed ([`Shard::is_behind`]).

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Poll, Waker};

use super::log::{Entry, LogOptions, Looked, Place};

/// The most logs of a connection before there is another connection.
pub(super) const LOGS: usize = 64;

/// A reader of one log.
pub(crate) trait Follower: Send + Sync {
    fn key(&self) -> &Arc<str>;

    fn options(&self) -> LogOptions;

    /// Returns the last entry that it has; `None` if it reads no more.
    fn place(&self) -> Option<Place>;

    /// Ready when it can take entries.
    fn room(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;

    /// Takes the entries behind its place, in order.
    fn take(&self, entries: Vec<Entry>);

    /// Learns the state of the log.
    fn note(&self, looked: &Looked);

    /// Learns that the log cannot be read.
    fn refuse(&self, what: &str);
}

#[derive(Default)]
struct State {
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
    state: Mutex<State>,
    /// The connection is there, and all logs were looked at.
    is_up: AtomicBool,
}

impl Shard {
    fn state(&self) -> MutexGuard<'_, State> {
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

    /// Ready when there is a follower behind this generation, or when the shard is closed.
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

    /// Notes that a read begins, or that it has ended.
    pub(super) fn reads(&self, reading: Option<(u64, i64)>) {
        self.state().reading = reading;
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
