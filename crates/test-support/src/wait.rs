//! Waits for states.

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

/// How long a test waits for what has to happen: long enough for a machine that pauses for seconds.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Waits on this thread until a condition holds.
///
/// # Panics
///
/// If it does not hold within [`PATIENCE`]; `what` names the condition.
#[track_caller]
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    find(what, || holds().then_some(()));
}

/// Waits on this thread until a search finds something, and returns that.
///
/// # Panics
///
/// If nothing is found within [`PATIENCE`]; `what` names the condition.
#[track_caller]
pub fn find<T>(what: &str, mut search: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = search() {
            return found;
        }
        assert!(Instant::now() < end, "not within {PATIENCE:?}: {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// A thread of this process, for another one that acts when it waits.
#[derive(Clone, Debug)]
pub struct Waiter(PathBuf);

impl Waiter {
    /// Returns the thread that calls this.
    ///
    /// # Panics
    ///
    /// If `/proc` is not there.
    #[must_use]
    pub fn this_thread() -> Waiter {
        Waiter(PathBuf::from("/proc").join(std::fs::read_link("/proc/thread-self").unwrap()))
    }

    /// Waits until the thread sleeps in the kernel, in a wait for events as in one for a lock.
    ///
    /// # Panics
    ///
    /// If it does not within [`PATIENCE`].
    #[track_caller]
    pub fn until_it_sleeps(&self) {
        until("the thread sleeps", || {
            let stat = std::fs::read_to_string(self.0.join("stat")).unwrap();
            stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('S'))
        });
    }
}
