//! Waits for states.

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
