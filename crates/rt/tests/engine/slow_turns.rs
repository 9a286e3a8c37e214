//! The slowest turns of an engine's loop, and their work.

use std::num::NonZeroUsize;
use std::thread;
use std::time::Duration;

use superpoll_rt::time::sleep;
use superpoll_rt::{BackendKind, Handle, Runtime, Stats, spawn};

const LONG: Duration = Duration::from_millis(40);

/// Keeps its engine from asking about anything for a while, in a turn of its own, after `tasks`
/// tasks of that turn.
async fn hog(tasks: usize) {
    sleep(Duration::from_millis(1)).await;
    for _ in 0..tasks {
        spawn(async {}).detach();
    }
    spawn(async { thread::sleep(LONG) }).await.unwrap();
    // The wait for this ends the turn.
    sleep(Duration::from_millis(1)).await;
}

#[test]
fn a_slow_turn_is_measured_precisely_while_it_is_watched() {
    for kind in BackendKind::available() {
        eprintln!("back-end {kind}");
        let runtime = Runtime::builder().backend(kind).build().unwrap();
        let (coarse, watched) = runtime.block_on(async {
            hog(5).await;
            let coarse = Stats::current().unwrap();
            let watch = Handle::current().unwrap().watch_turns();
            sleep(Duration::from_millis(1)).await;
            hog(20).await;
            let watched = Stats::current().unwrap();
            drop(watch);
            (coarse, watched)
        });
        let found = coarse.slowest.iter().find(|turn| turn.tasks >= 6);
        let slow = found.unwrap_or_else(|| panic!("{:?}", coarse.slowest));
        // The coarse clock may be behind at both ends, by more than a step if a tick comes late.
        assert!(slow.step > Duration::ZERO && slow.took > Duration::ZERO, "{slow:?}");
        assert!(coarse.longest_turn >= slow.took, "{coarse:?}");
        let found = watched.slowest_lately.iter().find(|turn| turn.tasks >= 21);
        let slow = found.unwrap_or_else(|| panic!("{:?}", watched.slowest_lately));
        assert!(slow.step == Duration::ZERO && slow.took >= LONG && slow.ago >= LONG, "{slow:?}");
        assert!(watched.slowest.len() > 1 && watched.slowest.is_sorted_by(|a, b| a.took >= b.took));
        assert!(watched.timers_ended > coarse.timers_ended);
    }
}

#[test]
fn each_engine_of_a_runtime_is_watched_only_while_the_watch_lives() {
    let runtime = Runtime::builder().workers(NonZeroUsize::new(2).unwrap()).build().unwrap();
    let handle = runtime.handle();
    let turn = |handle: &Handle| {
        let handle = handle.clone();
        async move {
            for engine in 0..2 {
                handle.spawn_on(engine, hog(2)).unwrap().await.unwrap();
            }
        }
    };
    let watches = [handle.watch_turns(), handle.watch_turns()];
    let [first, second] = watches;
    drop(first);
    runtime.block_on(turn(&handle));
    for stats in runtime.stats() {
        // Another turn may have taken longer, if the thread did not run for a while.
        let mut turns = stats.slowest.iter().filter(|turn| turn.tasks >= 3);
        let is_measured = turns.any(|turn| turn.step == Duration::ZERO && turn.took >= LONG);
        assert!(is_measured, "{stats:?}");
    }
    drop(second);
    runtime.block_on(turn(&handle));
    for stats in runtime.stats() {
        assert!(stats.slowest.iter().any(|turn| turn.step > Duration::ZERO), "{stats:?}");
    }
}
