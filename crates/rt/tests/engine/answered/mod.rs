//! The counters of engines that answer late.

use std::time::{Duration, Instant};

use superpoll_rt::{Runtime, Stats};

/// Returns the counters of the engines once `engines` of them have answered: an engine whose thread
/// does not run for a second is left out.
pub(crate) fn stats(runtime: &Runtime, engines: usize) -> Vec<Stats> {
    let start = Instant::now();
    loop {
        let stats = runtime.stats();
        if stats.len() >= engines {
            return stats;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "{engines} engines: {stats:?}");
    }
}
