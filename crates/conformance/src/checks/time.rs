//! Timeouts and interruptions.

use std::io::{Write, pipe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use superpoll::{Interest, Mode, Readiness, Watch};

use super::{Outcome, Problem, ensure};
use crate::bench::Bench;
use crate::rig::Rig;
use crate::sys;

/// Numbers of registrations that back-ends treat differently (looking first, or blocking at once).
const SIZES: [usize; 4] = [0, 1, 2, 5];

/// Creates a rig that watches this many idle pipes.
fn idle(bench: &Bench, count: usize) -> Result<(Rig, Vec<impl Sized>), Problem> {
    let mut rig = bench.rig();
    let mut pipes = Vec::new();
    for place in 0..count {
        let (reader, writer) = pipe()?;
        let hint = if place % 2 == 0 { superpoll::Hint::Busy } else { superpoll::Hint::Idle };
        rig.register(&reader, Watch::new(Interest::READABLE).hint(hint))?;
        pipes.push((reader, writer));
    }
    Ok((rig, pipes))
}

pub(super) fn a_timeout_is_never_early(bench: &Bench) -> Outcome {
    for count in SIZES {
        let (mut rig, _pipes) = idle(bench, count)?;
        for nanoseconds in [1, 999, 50_000, 100_000, 999_999, 1_000_001, 1_500_000, 12_345_678] {
            let timeout = Duration::from_nanos(nanoseconds);
            let begin = Instant::now();
            let batch = rig.wait(8, Some(timeout))?;
            let took = begin.elapsed();
            ensure!(batch.is_empty() && !rig.woken(), "nothing happened: {batch:?}");
            ensure!(took >= timeout, "{count} descriptors: {took:?} instead of {timeout:?}");
        }
    }
    Ok(())
}

pub(super) fn short_timeouts_are_not_rounded_up(bench: &Bench) -> Outcome {
    /// On a busy machine the timeout may expire before the poller comes to wait, but not this often
    /// in a row.
    const TRIES: u32 = 100;
    for count in SIZES {
        let (mut rig, _pipes) = idle(bench, count)?;
        for tries in 1.. {
            let before = rig.stats().calls;
            rig.wait(8, Some(Duration::from_micros(100)))?;
            let calls = rig.stats().calls.since(&before);
            // Calls with whole milliseconds only look, without blocking; at most one of each does.
            ensure!(
                calls.poll <= 2 && calls.epoll_wait <= 2,
                "{count} descriptors: {calls} for one short timeout"
            );
            if calls.ppoll + calls.epoll_pwait2 + calls.select + calls.io_uring_enter > 0 {
                break;
            }
            ensure!(
                tries < TRIES,
                "{count} descriptors: 100 us need a call with nanoseconds, not {calls}"
            );
        }
    }
    Ok(())
}

pub(super) fn zero_timeout_does_not_block(bench: &Bench) -> Outcome {
    for count in SIZES {
        let (mut rig, _pipes) = idle(bench, count)?;
        super::now(&mut rig)?;
        let before = rig.stats().calls;
        for _ in 0..10 {
            let batch = rig.wait(8, super::ZERO)?;
            ensure!(batch.is_empty(), "nothing happened: {batch:?}");
        }
        let calls = rig.stats().calls.since(&before);
        // The poller waits for a keeper's answer, before the wait.
        ensure!(
            (calls.ppoll == 0 || bench.capabilities().is_kept) && calls.epoll_pwait2 == 0,
            "{count} descriptors: a look needs no timed call: {calls}"
        );
    }
    Ok(())
}

pub(super) fn an_interruption_is_retried_with_the_deadline_kept(bench: &Bench) -> Outcome {
    sys::handle_interrupts()?;
    for count in SIZES {
        let (mut rig, _pipes) = idle(bench, count)?;
        super::now(&mut rig)?;
        let timeout = Duration::from_millis(25);
        let over = AtomicBool::new(false);
        let waiter = sys::this_thread();
        let mut seen = None;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Acquire) {
                    sys::interrupt(waiter);
                    std::thread::sleep(Duration::from_micros(500));
                }
            });
            let begin = Instant::now();
            let outcome = rig.wait(8, Some(timeout));
            seen = Some((outcome, begin.elapsed()));
            over.store(true, Ordering::Release);
        });
        let Some((outcome, took)) = seen else { return Ok(()) };
        let batch = outcome?;
        ensure!(batch.is_empty(), "{count} descriptors: nothing happened: {batch:?}");
        ensure!(took >= timeout, "{count} descriptors: a signal ended it after {took:?}");
        // Retrying with the whole timeout would never end under this fire.
        ensure!(
            took < timeout + Duration::from_secs(10),
            "{count} descriptors: the deadline was not kept, {took:?}"
        );
    }
    Ok(())
}

pub(super) fn an_event_ends_a_wait_without_timeout(bench: &Bench) -> Outcome {
    for count in SIZES {
        let (mut rig, _pipes) = idle(bench, count)?;
        let (reader, mut writer) = pipe()?;
        let key = rig.register(&reader, Interest::READABLE)?;
        let thread = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(2));
            writer.write_all(b"x").map(|()| writer)
        });
        let batch = rig.wait(8, Some(bench.patience()))?;
        ensure!(
            batch == [(key, Readiness::READABLE)],
            "{count} idle descriptors and one event: {batch:?}"
        );
        let writer = thread.join().map_err(|_| Problem("the thread panicked".into()))??;
        let batch = rig.wait(8, None)?;
        ensure!(batch.len() == 1, "{count} idle descriptors, still readable: {batch:?}");
        drop(writer);
    }
    Ok(())
}

pub(super) fn unwanted_events_do_not_end_a_wait(bench: &Bench) -> Outcome {
    let mut rig = bench.rig();
    let (left, peer) = std::os::unix::net::UnixStream::pair()?;
    let key = rig.register(&left, Interest::READABLE)?;
    super::now(&mut rig)?;
    // The kernel may still watch it (a lazy disable), and report events that are not wanted.
    rig.modify(key, Interest::NONE)?;
    drop(peer);
    let (one_shot, mut writer) = pipe()?;
    rig.register(&one_shot, Watch::new(Interest::READABLE).mode(Mode::OneShot))?;
    writer.write_all(b"x")?;
    let fired = rig.wait(8, super::ZERO)?;
    ensure!(fired.len() == 1, "the one-shot: {fired:?}");
    writer.write_all(b"x")?;
    let timeout = Duration::from_millis(5);
    let begin = Instant::now();
    let batch = rig.wait(8, Some(timeout))?;
    let took = begin.elapsed();
    ensure!(batch.is_empty(), "nothing is armed: {batch:?}");
    ensure!(took >= timeout, "a wait ended with nothing after {took:?} of {timeout:?}");
    Ok(())
}
