//! Placement: the set that watches a descriptor must not show, except in the counters.

use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::os::fd::AsRawFd;
use std::time::Duration;

use superpoll::{Hint, Interest, Key, Mode, Readiness, Watch};

use super::{Outcome, Problem, ensure, expect, now};
use crate::bench::Bench;
use crate::rig::Rig;

const IN: Readiness = Readiness::READABLE;
const HINTS: [Hint; 3] = [Hint::None, Hint::Busy, Hint::Idle];

type Piped = (Key, PipeReader, PipeWriter);

fn pipes(rig: &mut Rig, count: usize, watch: Watch) -> Result<Vec<Piped>, Problem> {
    (0..count)
        .map(|_| {
            let (reader, writer) = pipe()?;
            Ok((rig.register(&reader, watch)?, reader, writer))
        })
        .collect()
}

pub(super) fn hints_lose_no_event(bench: &Bench) -> Outcome {
    for hint in HINTS {
        for mode in [Mode::Level, Mode::OneShot, Mode::Auto] {
            let mut rig = bench.rig();
            let watch = Watch::new(Interest::READABLE).mode(mode).hint(hint);
            let mut all = pipes(&mut rig, 5, watch)?;
            for round in 0..40 {
                let place = round * 3 % 5;
                let (key, reader, writer) = &mut all[place];
                writer.write_all(b"x")?;
                expect(&mut rig, &[(*key, IN)], &format!("{hint:?}, {mode:?}, round {round}"))?;
                reader.read_exact(&mut [0])?;
                rig.modify(*key, Interest::READABLE)?;
            }
            expect(&mut rig, &[], "all read")?;
        }
    }
    Ok(())
}

pub(super) fn moves_lose_no_edge(bench: &Bench) -> Outcome {
    // Busy for a while, then idle, then busy: policies move it there and back. The pipe is not read
    // in a busy phase, so a wait can only report the arrival itself.
    let mut rig = bench.rig();
    let watch = Watch::new(Interest::READABLE).mode(Mode::Auto);
    let mut all = pipes(&mut rig, 6, watch)?;
    for phase in 0..6 {
        let busy = phase % all.len();
        for round in 0..60 {
            let (key, _, writer) = &mut all[busy];
            writer.write_all(b"x")?;
            let batch = now(&mut rig)?;
            ensure!(
                batch.contains(&(*key, IN)),
                "phase {phase}, round {round}: the arrival was lost: {batch:?}"
            );
        }
        all[busy].1.read_exact(&mut [0; 60])?;
        // A wait that blocks, in which the loop may go quiet and hand every descriptor over.
        rig.wait(64, Some(Duration::from_micros(300)))?;
    }
    Ok(())
}

pub(super) fn moves_repeat_no_one_shot(bench: &Bench) -> Outcome {
    for hint in HINTS {
        let mut rig = bench.rig();
        let watch = Watch::new(Interest::READABLE).mode(Mode::OneShot).hint(hint);
        let mut all = pipes(&mut rig, 4, watch)?;
        for round in 0..80 {
            let (key, _, writer) = &mut all[round % 2];
            writer.write_all(b"x")?;
            expect(&mut rig, &[(*key, IN)], &format!("{hint:?}, round {round}: armed"))?;
            let batch = rig.wait(64, Some(Duration::from_micros(100)))?;
            ensure!(batch.is_empty(), "{hint:?}, round {round}: disarmed, but {batch:?}");
            rig.modify(*key, Interest::READABLE)?;
            expect(&mut rig, &[(*key, IN)], &format!("{hint:?}, round {round}: armed again"))?;
            rig.modify(*key, Interest::READABLE)?;
            let (_, reader, _) = &mut all[round % 2];
            reader.read_exact(&mut [0])?;
        }
    }
    Ok(())
}

pub(super) fn steady_state_is_one_call_per_wait(bench: &Bench) -> Outcome {
    let caps = bench.capabilities();
    let mut rig = bench.rig();
    let _waker = rig.waker()?;
    let mut all = pipes(&mut rig, 20, Watch::new(Interest::READABLE))?;
    let mut round = |rig: &mut Rig| -> Outcome {
        for (_, _, writer) in &mut all[..3] {
            writer.write_all(b"x")?;
        }
        let batch = now(rig)?;
        ensure!(batch.len() == 3, "three are ready: {batch:?}");
        for (_, reader, _) in &mut all[..3] {
            reader.read_exact(&mut [0])?;
        }
        Ok(())
    };
    // Until the placement has settled.
    for _ in 0..300 {
        round(&mut rig)?;
    }
    let before = rig.stats();
    let rounds = 100;
    for _ in 0..rounds {
        round(&mut rig)?;
    }
    let after = rig.stats();
    let calls = after.calls.since(&before.calls);
    ensure!(after.waits - before.waits == rounds, "one wait per round");
    ensure!(after.events - before.events == 3 * rounds, "three events per round");
    ensure!(
        calls.waits() <= caps.calls_per_wait * rounds,
        "{rounds} rounds took {calls}, at most {} calls each",
        caps.calls_per_wait
    );
    ensure!(calls.total() == calls.waits(), "nothing but waits in the steady state: {calls}");
    Ok(())
}

pub(super) fn a_quiet_loop_waits_in_epoll_only(bench: &Bench) -> Outcome {
    let mut rig = bench.rig();
    let mut all = pipes(&mut rig, 40, Watch::new(Interest::READABLE).hint(Hint::Busy))?;
    for (_, _, writer) in &mut all {
        writer.write_all(b"x")?;
    }
    let batch = now(&mut rig)?;
    ensure!(batch.len() == 40, "all are ready: {}", batch.len());
    for (_, reader, _) in &mut all {
        reader.read_exact(&mut [0])?;
    }
    let handoffs = rig.stats().handoffs;
    for _ in 0..20 {
        let batch = rig.wait(64, Some(Duration::from_millis(1)))?;
        ensure!(batch.is_empty(), "quiet: {batch:?}");
    }
    let stats = rig.stats();
    if stats.handoffs > handoffs && stats.hot.len == 0 && !bench.capabilities().moves_at_random {
        // A wait that is interrupted goes on with another call, which is rare.
        let mut waits = Vec::new();
        for _ in 0..5 {
            let before = rig.stats().calls;
            rig.wait(64, Some(Duration::from_millis(1)))?;
            let calls = rig.stats().calls.since(&before);
            ensure!(
                calls.poll + calls.ppoll == 0 && calls.epoll_ctl() == 0,
                "after a hand-off only epoll waits: {calls}"
            );
            waits.push(calls.waits());
        }
        let single = waits.iter().filter(|&&calls| calls == 1).count();
        ensure!(single >= 4, "after a hand-off a wait is one epoll call: {waits:?}");
    }
    // The moves lose no event.
    for (key, reader, writer) in &mut all {
        writer.write_all(b"x")?;
        let batch = rig.wait(64, Some(bench.patience()))?;
        ensure!(batch == [(*key, IN)], "after the quiet: {batch:?}");
        reader.read_exact(&mut [0])?;
    }
    Ok(())
}

pub(super) fn memory_per_descriptor_is_small(bench: &Bench) -> Outcome {
    let _numbers = super::numbers();
    let mut rig = bench.rig();
    let count = 512;
    let all = pipes(&mut rig, count / 2, Watch::new(Interest::READABLE))?;
    let (reader, _writer) = pipe()?;
    let mut more = Vec::new();
    for _ in 0..count / 2 {
        let twin = reader.try_clone()?;
        rig.register(&twin, Interest::READABLE)?;
        more.push(twin);
    }
    now(&mut rig)?;
    let stats = rig.stats();
    let own = rig.poller().memory().own;
    // The map from descriptor numbers covers foreign numbers: the writers here, and the descriptors
    // of tests that run at the same time. What those close is given out again, so that the last
    // number need not be the highest.
    let numbers = all.iter().map(|(_, reader, _)| reader).chain(&more).map(AsRawFd::as_raw_fd);
    let highest = numbers.max().unwrap_or(0) as usize;
    let strangers = 4 * (highest + highest / 8).saturating_sub(count);
    ensure!(own > 0, "some memory is used");
    // With a keeper the poller also remembers since when each is idle.
    let each = if bench.capabilities().is_kept { 80 } else { 64 };
    ensure!(
        own <= each * count + strangers,
        "{own} bytes for {count} descriptors ({} hot, {} cold), {} each",
        stats.hot.len,
        stats.cold.len,
        own / count
    );
    Ok(())
}

pub(super) fn emptied_interest_is_rearmed(bench: &Bench) -> Outcome {
    for hint in HINTS {
        let mut rig = bench.rig();
        let (reader, mut writer) = pipe()?;
        let key = rig.register(&reader, Watch::new(Interest::NONE).hint(hint))?;
        writer.write_all(b"x")?;
        expect(&mut rig, &[], "registered without interest")?;
        for _ in 0..4 {
            rig.modify(key, Interest::READABLE)?;
            expect(&mut rig, &[(key, IN)], "armed")?;
            rig.modify(key, Interest::NONE)?;
            expect(&mut rig, &[], "disarmed")?;
            rig.wait(8, Some(Duration::from_micros(200)))?;
        }
    }
    Ok(())
}

pub(super) fn a_changed_mode_moves_the_descriptor(bench: &Bench) -> Outcome {
    if !bench.capabilities().edge {
        return Ok(());
    }
    for hint in HINTS {
        let mut rig = bench.rig();
        let (reader, mut writer) = pipe()?;
        let level = Watch::new(Interest::READABLE).hint(hint);
        let key = rig.register(&reader, level)?;
        for round in 0..10 {
            writer.write_all(b"x")?;
            expect(&mut rig, &[(key, IN)], &format!("{hint:?}, level, round {round}"))?;
            expect(&mut rig, &[(key, IN)], &format!("{hint:?}, level again, round {round}"))?;
            rig.modify_watch(key, level.mode(Mode::Edge))?;
            expect(&mut rig, &[(key, IN)], &format!("{hint:?}, edge, round {round}"))?;
            expect(&mut rig, &[], &format!("{hint:?}, edge again, round {round}"))?;
            writer.write_all(b"x")?;
            expect(&mut rig, &[(key, IN)], &format!("{hint:?}, arrival, round {round}"))?;
            rig.modify_watch(key, level)?;
        }
    }
    Ok(())
}
