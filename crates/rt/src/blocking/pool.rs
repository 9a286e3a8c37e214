//! The pool of threads for calls that block: one queue, which all threads take from.
//!
//! A thread is added when a call is queued, and again whenever a thread takes a call, as long as
//! more than five calls wait for each idle thread and there are fewer threads than the limit. So
//! short calls share few threads, and no call waits behind a long one while a thread may be added.
//! Idle threads end after a while, but one: it costs next to nothing as it waits without a timeout,
//! and with it the pool continues, if slowly, where the system refuses further threads. Then calls
//! wait for the threads there are. Only if there is none does a call end with an error.
//!
//! Invariants, with the lock held: `idle <= threads`; no call is in the queue if `threads` is 0.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use async_task::Runnable;

use super::hold::ClockHold;

/// A call in the queue.
pub(super) struct Call {
    pub run: Runnable,
    /// Dropped once the call has run and the task that waits for it is woken.
    pub hold: Option<ClockHold>,
}

/// The most threads, unless the variable says otherwise.
const THREADS: usize = 500;

/// The variable with another limit.
const VARIABLE: &str = "BLOCKING_MAX_THREADS";

/// The least and the greatest limit.
const LIMITS: (usize, usize) = (1, 10_000);

/// The calls for each idle thread that are no reason for another thread.
const CALLS: usize = 5;

/// An idle thread ends after this time.
const PATIENCE: Duration = Duration::from_millis(500);

/// The pool of this process.
static POOL: Pool = Pool {
    state: Mutex::new(State {
        calls: VecDeque::new(),
        threads: 0,
        idle: 0,
        limit: None,
        started: 0,
    }),
    work: Condvar::new(),
};

struct Pool {
    state: Mutex<State>,
    /// Wakes idle threads.
    work: Condvar,
}

struct State {
    calls: VecDeque<Call>,
    threads: usize,
    /// The threads that wait, and those that have not begun.
    idle: usize,
    /// The most threads; `None` until the variable is read.
    limit: Option<usize>,
    /// The threads that were ever started, for their names.
    started: usize,
}

/// Queues a call.
///
/// # Errors
///
/// There is no thread, and the system's error for starting one. The call has been dropped.
pub(super) fn submit(call: Call) -> io::Result<()> {
    POOL.submit(call)
}

impl Pool {
    fn submit(&'static self, call: Call) -> io::Result<()> {
        let mut state = self.lock();
        state.calls.push_back(call);
        let grown = self.grow(&mut state);
        if state.threads == 0 {
            let call = state.calls.pop_back();
            // Outside of the lock, as this drops what the call has captured.
            drop(state);
            drop(call);
            return grown;
        }
        self.work.notify_one();
        Ok(())
    }

    /// Adds threads as the queue needs.
    fn grow(&'static self, state: &mut State) -> io::Result<()> {
        let limit = *state.limit.get_or_insert_with(limit);
        while state.calls.len() > state.idle * CALLS && state.threads < limit {
            let name = format!("blocking-{}", state.started + 1);
            thread::Builder::new().name(name).spawn(|| self.serve())?;
            state.started += 1;
            state.threads += 1;
            state.idle += 1;
            // They come sooner than the new one.
            self.work.notify_all();
        }
        Ok(())
    }

    /// Runs calls on this thread until there are enough threads without it.
    fn serve(&'static self) {
        let mut state = self.lock();
        loop {
            state.idle -= 1;
            while let Some(call) = state.calls.pop_front() {
                // If it fails, the calls that remain wait for this thread and others.
                let _ = self.grow(&mut state);
                drop(state);
                // Calls catch their panics; dropping a result that nobody awaits may panic as well.
                let _ = catch_unwind(AssertUnwindSafe(|| call.run.run()));
                drop(call.hold);
                state = self.lock();
            }
            state.idle += 1;
            let is_last = state.threads == 1;
            let is_over;
            (state, is_over) = self.wait(state, is_last);
            if is_over && state.calls.is_empty() && state.threads > 1 {
                state.idle -= 1;
                state.threads -= 1;
                return;
            }
        }
    }

    /// Waits for a call. Returns whether the time of an idle thread is over.
    fn wait<'a>(
        &self,
        state: MutexGuard<'a, State>,
        is_last: bool,
    ) -> (MutexGuard<'a, State>, bool) {
        if is_last {
            return (self.work.wait(state).unwrap_or_else(PoisonError::into_inner), false);
        }
        let waited = self.work.wait_timeout(state, PATIENCE);
        let (state, outcome) = waited.unwrap_or_else(PoisonError::into_inner);
        (state, outcome.timed_out())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the limit that the environment sets.
fn limit() -> usize {
    let (least, most) = LIMITS;
    let set = std::env::var(VARIABLE).ok().and_then(|text| text.parse::<usize>().ok());
    set.map_or(THREADS, |limit| limit.clamp(least, most))
}
