//! A clock that tests can pause, move and let continue.

use std::time::{Duration, Instant};

use crate::current_engine;
use crate::engine::{self, Engine};
use crate::task::next_turn;

/// Returns the time by the clock of this thread's engine: the system's time, unless the clock was
/// [paused](pause). Where no runtime runs, it is the system's time.
#[inline]
pub fn now() -> Instant {
    current_engine::now()
}

/// Pauses the clock of this runtime, which has one engine: [`now`] stays the same, and all timers
/// of this crate follow it. It is meant for tests. From now on timers are exact to the nanosecond.
///
/// A paused clock moves in two ways. [`advance`] moves it. And if no task is due, no event has
/// arrived and no call of [`blocking::unblock`](crate::blocking::unblock) that began on this thread
/// is under way, the engine moves it to the next timer. So a test takes no longer than its tasks
/// need, whatever they wait for, and a busy machine changes no result.
///
/// The engine cannot know of anything that happens outside of it: another thread, another process
/// or a server that will answer in a moment. Where a task waits for such an event with a time
/// limit, the limit is reached at once. Let the test be that other side, or [`resume`] the clock
/// first.
///
/// A test whose clients are other threads lets time pass where it wants to: a task calls `pause`,
/// awaits a [`sleep`](super::sleep) and calls [`resume`]. Each timer that is due within that time
/// fires at its time. Nothing else is skipped, and before and after it the clock runs as the
/// system's does.
///
/// Only the timers of this crate follow the clock. `Instant::now` and timers of other libraries do
/// not, and neither does a timer that is created or awaited on a thread without this runtime.
///
/// # Panics
///
/// If no runtime runs on this thread, if the runtime has several engines, or if its clock is
/// paused.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use superpoll_rt::time;
///
/// let runtime = superpoll_rt::Runtime::builder().start_paused(true).build()?;
/// runtime.block_on(async {
///     let start = time::now();
///     time::sleep(Duration::from_secs(3600)).await;
///     assert_eq!(time::now() - start, Duration::from_secs(3600));
/// });
/// # Ok::<(), superpoll_rt::Error>(())
/// ```
#[track_caller]
pub fn pause() {
    with_engine("time::pause", |engine| {
        let engines = engine.remote.runtime().map_or(1, |engines| engines.0.len());
        assert!(
            engines == 1,
            "time::pause: the runtime has {engines} engines; a paused clock is that of one engine, \
             so leave out Builder::workers in this test"
        );
        assert!(!engine.clock.is_paused(), "time::pause: the clock is paused already");
        engine.pause_clock();
    });
}

/// Lets a paused clock run on, from the time that it shows.
///
/// # Panics
///
/// If no runtime runs on this thread, or if its clock is not paused.
#[track_caller]
pub fn resume() {
    with_engine("time::resume", |engine| {
        assert!(engine.clock.is_paused(), "time::resume: the clock is not paused");
        engine.clock.resume();
    });
}

/// Moves a paused clock ahead, fires the timers that are due then, and lets the tasks run that wait
/// for them. All of them see the new time: to let each task run at the time of its timer,
/// [`sleep`](super::sleep) instead.
///
/// Cancel safety: the clock moves when the future is polled for the first time; after that,
/// dropping it undoes nothing.
///
/// # Panics
///
/// If no runtime runs on this thread, if its clock is not paused, or if the system's clock cannot
/// count that far.
pub async fn advance(duration: Duration) {
    with_engine("time::advance", |engine| {
        assert!(engine.clock.is_paused(), "time::advance: the clock is not paused; pause it first");
        engine.clock.advance(duration);
    });
    // Timers fire at the end of this turn, and their tasks run in the next one.
    next_turn().await;
    next_turn().await;
}

#[track_caller]
fn with_engine(what: &str, f: impl FnOnce(&Engine)) {
    if engine::with(f).is_none() {
        panic!("{what}: no runtime runs on this thread; call it inside Runtime::block_on");
    }
}
