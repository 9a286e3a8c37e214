//! Timers that are set and then cancelled before they end, like those of timeouts.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use superpoll_rt::time::sleep;

use crate::error::Result;
use crate::gate::paths::work::{Work, on, runtime, said, wrong};
use crate::random::Random;

/// Timers that are set at any time.
const TIMERS: usize = 100;

/// The timers would end after an hour or two; the value is in microseconds. Compared with that, the
/// time that passes while they are set does not matter, although the wheel's slots depend on it.
const SOONEST: u64 = 3_600_000_000;
const LATEST: u64 = 7_200_000_000;

pub(super) fn set_up() -> Result<Box<dyn Work>> {
    let (mut set, mut random) = (VecDeque::new(), Random::new(1));
    on(runtime()?, move |runtime, count| {
        let work = poll_fn(|cx| {
            for _ in 0..count {
                let after = Duration::from_micros(random.between(SOONEST, LATEST));
                let mut timer = Box::pin(sleep(after));
                if timer.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(false);
                }
                set.push_back(timer);
                if set.len() > TIMERS {
                    set.pop_front();
                }
            }
            Poll::Ready(true)
        });
        let all_waited = runtime.try_block_on(work).map_err(said)?;
        let held = runtime.stats().iter().map(|engine| engine.timers).sum::<usize>();
        match all_waited && held == set.len() {
            true => Ok(()),
            false => wrong("timer", format!("{held} timers are set instead of {}", set.len())),
        }
    })
}
