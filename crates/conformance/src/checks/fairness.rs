//! Waits that the limit cuts off.

use std::collections::{HashMap, HashSet};
use std::io::{PipeReader, PipeWriter, Read, Write, pipe};

use superpoll::{Hint, Interest, Key, Mode, Watch};

use super::{Outcome, Problem, ensure};
use crate::bench::Bench;
use crate::rig::Rig;
use crate::sys;

struct Ready {
    key: Key,
    reader: PipeReader,
    writer: PipeWriter,
}

/// Creates this many readable pipes, with hints in turn.
fn ready(rig: &mut Rig, count: usize, mode: Mode) -> Result<Vec<Ready>, Problem> {
    let hints = [Hint::Busy, Hint::Idle, Hint::None];
    (0..count)
        .map(|place| {
            let (reader, mut writer) = pipe()?;
            writer.write_all(b"x")?;
            let watch = Watch::new(Interest::READABLE).mode(mode).hint(hints[place % 3]);
            let key = rig.register(&reader, watch)?;
            Ok(Ready { key, reader, writer })
        })
        .collect()
}

/// Waits with a limit as often as a share of `count` needs; each key must have come by then.
fn first_share(rig: &mut Rig, count: usize, limit: usize) -> Outcome {
    let mut seen = HashSet::new();
    for wait in 0..count.div_ceil(limit) {
        let batch = rig.wait(limit, super::ZERO)?;
        let expected = limit.min(count - seen.len());
        ensure!(batch.len() <= limit, "wait {wait}: {} events, limit {limit}", batch.len());
        ensure!(batch.len() >= expected, "wait {wait}: {} events, {expected} due", batch.len());
        seen.extend(batch.iter().map(|event| event.0));
    }
    ensure!(seen.len() == count, "{} of {count} came within their share", seen.len());
    Ok(())
}

/// Goes on waiting; each of `count` keys must come within its share of *any* run of waits.
fn every_share(rig: &mut Rig, count: usize, limit: usize, waits: usize) -> Outcome {
    let share = count.div_ceil(limit);
    let mut last: HashMap<Key, usize> = HashMap::new();
    for wait in 1..=waits {
        for (key, _) in rig.wait(limit, super::ZERO)? {
            let gap = wait - last.insert(key, wait).unwrap_or(0);
            ensure!(gap > 0, "{key:?} came twice in wait {wait}");
            ensure!(gap <= share, "{key:?} waited {gap} waits, its share is {share}");
        }
    }
    ensure!(last.len() == count, "{} of {count} came in {waits} waits", last.len());
    for (key, wait) in last {
        ensure!(waits - wait < share, "{key:?} did not come again after wait {wait} of {waits}");
    }
    Ok(())
}

/// Checks one situation: the number of pipes, the number of files, and the limit.
fn mixed(
    bench: &Bench,
    cases: &[(usize, usize, usize)],
    judge: fn(&mut Rig, usize, usize) -> Outcome,
) -> Outcome {
    for &(pipes, files, limit) in cases {
        let mut rig = bench.rig();
        let _pipes = ready(&mut rig, pipes, Mode::Level)?;
        let mut kept = Vec::new();
        for _ in 0..files {
            let file = sys::regular_file()?;
            rig.register(&file, Interest::READABLE)?;
            kept.push(file);
        }
        judge(&mut rig, pipes + files, limit).map_err(|problem| {
            Problem(format!("{pipes} pipes, {files} files, limit {limit}: {problem}"))
        })?;
    }
    Ok(())
}

const PIPES: [(usize, usize, usize); 7] =
    [(2, 0, 1), (5, 0, 2), (7, 0, 3), (10, 0, 10), (10, 0, 9), (33, 0, 4), (12, 0, 1)];
const MIXED: [(usize, usize, usize); 4] = [(6, 2, 3), (9, 4, 2), (3, 3, 1), (4, 1, 4)];

pub(super) fn each_is_reported_within_its_share_of_waits(bench: &Bench) -> Outcome {
    mixed(bench, &PIPES, first_share)
}

pub(super) fn shares_hold_in_any_run_of_waits(bench: &Bench) -> Outcome {
    mixed(bench, &PIPES, |rig, count, limit| {
        every_share(rig, count, limit, 6 * count.div_ceil(limit))
    })
}

pub(super) fn fairness_covers_hot_cold_and_files(bench: &Bench) -> Outcome {
    mixed(bench, &MIXED, first_share)
}

pub(super) fn shares_hold_with_hot_cold_and_files(bench: &Bench) -> Outcome {
    mixed(bench, &MIXED, |rig, count, limit| {
        every_share(rig, count, limit, 8 * count.div_ceil(limit))
    })
}

/// Expects each key exactly once over its share of waits.
fn each_once(rig: &mut Rig, pipes: &[Ready], limit: usize) -> Outcome {
    let mut seen: HashMap<Key, usize> = HashMap::new();
    for _ in 0..pipes.len().div_ceil(limit) {
        let batch = rig.wait(limit, super::ZERO)?;
        ensure!(batch.len() <= limit, "{} events, limit {limit}", batch.len());
        for (key, _) in batch {
            *seen.entry(key).or_default() += 1;
        }
    }
    for pipe in pipes {
        let times = seen.get(&pipe.key).copied().unwrap_or(0);
        ensure!(times == 1, "{:?} came {times} times", pipe.key);
    }
    let batch = rig.wait(limit, super::ZERO)?;
    ensure!(batch.is_empty(), "reported already: {batch:?}");
    Ok(())
}

pub(super) fn edges_survive_the_limit(bench: &Bench) -> Outcome {
    for (count, limit) in [(5, 1), (7, 2), (8, 3)] {
        let mut rig = bench.rig();
        let mut pipes = ready(&mut rig, count, Mode::Edge)?;
        for _ in 0..3 {
            each_once(&mut rig, &pipes, limit)?;
            for pipe in &mut pipes {
                pipe.writer.write_all(b"x")?;
            }
        }
    }
    Ok(())
}

pub(super) fn one_shots_survive_the_limit(bench: &Bench) -> Outcome {
    for (count, limit) in [(5, 1), (7, 2), (8, 3)] {
        let mut rig = bench.rig();
        let pipes = ready(&mut rig, count, Mode::OneShot)?;
        for _ in 0..4 {
            each_once(&mut rig, &pipes, limit)?;
            for pipe in &pipes {
                rig.modify(pipe.key, Interest::READABLE)?;
            }
        }
        // Mixed with registrations that stay ready.
        let others = ready(&mut rig, count, Mode::Level)?;
        let mut seen: HashMap<Key, usize> = HashMap::new();
        for _ in 0..(2 * count).div_ceil(limit) {
            for (key, _) in rig.wait(limit, super::ZERO)? {
                *seen.entry(key).or_default() += 1;
            }
        }
        for pipe in &pipes {
            let times = seen.get(&pipe.key).copied().unwrap_or(0);
            ensure!(times == 1, "one-shot {:?} came {times} times among other events", pipe.key);
        }
        for other in &others {
            ensure!(seen.contains_key(&other.key), "{:?} did not come", other.key);
        }
    }
    Ok(())
}

pub(super) fn the_limit_is_kept(bench: &Bench) -> Outcome {
    let mut rig = bench.rig();
    let _pipes = ready(&mut rig, 9, Mode::Level)?;
    for limit in [1, 2, 3, 8, 9, 10, 64] {
        for _ in 0..3 {
            let batch = rig.wait(limit, super::ZERO)?;
            ensure!(batch.len() == limit.min(9), "{} events, limit {limit}", batch.len());
            let mut keys: Vec<_> = batch.iter().map(|event| event.0).collect();
            keys.sort();
            keys.dedup();
            ensure!(keys.len() == batch.len(), "the same twice in one wait: {batch:?}");
        }
    }
    Ok(())
}

pub(super) fn limits_may_change_between_waits(bench: &Bench) -> Outcome {
    let mut rig = bench.rig();
    let mut pipes = ready(&mut rig, 8, Mode::Level)?;
    for limits in [[3, 64, 1], [1, 1, 64], [7, 2, 8], [64, 3, 3]] {
        for limit in limits {
            let batch = rig.wait(limit, super::ZERO)?;
            ensure!(batch.len() == limit.min(8), "{} events, limit {limit}", batch.len());
        }
    }
    // An event that was cut off does not come if its data was read in the meantime.
    rig.wait(2, super::ZERO)?;
    for pipe in &mut pipes[1..] {
        pipe.reader.read_exact(&mut [0])?;
    }
    for _ in 0..3 {
        let batch = rig.wait(64, super::ZERO)?;
        ensure!(
            batch.len() == 1 && batch[0].0 == pipes[0].key,
            "only one is still readable: {batch:?}"
        );
    }
    Ok(())
}
