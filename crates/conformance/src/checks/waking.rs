//! Wakers and registrars: other threads.

use std::collections::HashSet;
use std::io::{Write, pipe};
use std::os::fd::OwnedFd;
use std::time::Duration;

use superpoll::{Error, Interest, Mode, Readiness, Watch};

use super::{Outcome, Problem, ensure, expect};
use crate::bench::Bench;

const IN: Readiness = Readiness::READABLE;

fn joined<T>(thread: std::thread::JoinHandle<T>) -> Result<T, Problem> {
    thread.join().map_err(|_| Problem("the thread panicked".into()))
}

pub(super) fn a_wake_before_a_wait_counts(bench: &Bench) -> Outcome {
    let mut rig = bench.rig();
    let (reader, _writer) = pipe()?;
    rig.register(&reader, Interest::READABLE)?;
    let waker = rig.waker()?;
    for wakes in 1..4 {
        for _ in 0..wakes {
            waker.wake()?;
        }
        let batch = rig.wait(8, Some(bench.patience()))?;
        ensure!(batch.is_empty(), "a wake is no event: {batch:?}");
        ensure!(rig.woken(), "{wakes} wakes before a wait");
    }
    Ok(())
}

pub(super) fn a_wake_ends_a_wait(bench: &Bench) -> Outcome {
    for registered in [0, 1, 4] {
        let mut rig = bench.rig();
        let mut pipes = Vec::new();
        for _ in 0..registered {
            let (reader, writer) = pipe()?;
            rig.register(&reader, Interest::READABLE)?;
            pipes.push((reader, writer));
        }
        let waker = rig.waker()?;
        for _ in 0..5 {
            let waker = waker.clone();
            let thread = std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(1));
                waker.wake()
            });
            let batch = rig.wait(8, Some(bench.patience()))?;
            joined(thread)??;
            ensure!(batch.is_empty(), "a wake is no event: {batch:?}");
            ensure!(rig.woken(), "a wake during a wait, {registered} registered");
        }
    }
    Ok(())
}

pub(super) fn wakes_are_coalesced(bench: &Bench) -> Outcome {
    let mut rig = bench.rig();
    let waker = rig.waker()?;
    let before = rig.stats().calls.waker_write;
    let rounds = 5;
    for _ in 0..rounds {
        let waker = waker.clone();
        let thread = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(1));
            (0..100).try_for_each(|_| waker.wake())
        });
        rig.wait(8, Some(bench.patience()))?;
        joined(thread)??;
        ensure!(rig.woken(), "a hundred wakes during a wait");
        // A wake that came after the wait returned counts for the next one.
        rig.wait(8, super::ZERO)?;
    }
    let writes = rig.stats().calls.waker_write - before;
    // At most one for each time it slept; a wait with a zero timeout does not sleep.
    ensure!(writes <= rounds, "{writes} writes for {rounds} sleeps");
    Ok(())
}

pub(super) fn wakes_of_the_awake_cost_nothing(bench: &Bench) -> Outcome {
    let mut rig = bench.rig();
    let waker = rig.waker()?;
    expect(&mut rig, &[], "idle")?;
    let before = rig.stats().calls;
    for _ in 0..100 {
        waker.wake()?;
    }
    let calls = rig.stats().calls.since(&before);
    ensure!(calls.total() == 0, "wakes of a poller that is awake: {calls}");
    rig.wait(8, Some(bench.patience()))?;
    ensure!(rig.woken(), "and they count");
    let calls = rig.stats().calls.since(&before);
    ensure!(calls.waker_write == 0 && calls.waker_read == 0, "without traffic: {calls}");
    Ok(())
}

pub(super) fn wakes_from_many_threads_are_not_lost(bench: &Bench) -> Outcome {
    let mut rig = bench.rig();
    let waker = rig.waker()?;
    let (reader, mut writer) = pipe()?;
    rig.register(&reader, Watch::new(Interest::READABLE).mode(Mode::OneShot))?;
    writer.write_all(b"x")?;
    super::now(&mut rig)?;
    let threads = 4;
    let each = 200;
    // Each thread wakes, then waits until the poller has answered: a lost wake stops the ring.
    let (send, answers) = std::sync::mpsc::channel();
    let handles: Vec<_> = (0..threads)
        .map(|_| {
            let (waker, send) = (waker.clone(), send.clone());
            std::thread::spawn(move || -> superpoll::Result<()> {
                for _ in 0..each {
                    let (reply, answered) = std::sync::mpsc::channel();
                    let _ = send.send(reply);
                    waker.wake()?;
                    let _ = answered.recv();
                }
                Ok(())
            })
        })
        .collect();
    drop(send);
    let mut lost = None;
    let mut answered = 0;
    while answered < threads * each {
        rig.wait(8, Some(bench.patience()))?;
        if !rig.woken() {
            lost = Some(answered);
            break;
        }
        while let Ok(reply) = answers.try_recv() {
            let _: Result<(), _> = reply.send(());
            answered += 1;
        }
    }
    drop(answers);
    for handle in handles {
        joined(handle)??;
    }
    ensure!(lost.is_none(), "a wake was lost after {lost:?} answers");
    Ok(())
}

pub(super) fn a_wake_comes_with_events(bench: &Bench) -> Outcome {
    let mut rig = bench.rig();
    let waker = rig.waker()?;
    let (reader, mut writer) = pipe()?;
    let key = rig.register(&reader, Interest::READABLE)?;
    writer.write_all(b"x")?;
    waker.wake()?;
    let mut woken = 0;
    for _ in 0..3 {
        expect(&mut rig, &[(key, IN)], "events are not held back by a wake")?;
        woken += usize::from(rig.woken());
    }
    ensure!(woken == 1, "one wake, reported {woken} times in 3 waits");
    Ok(())
}

pub(super) fn a_wake_does_not_repeat(bench: &Bench) -> Outcome {
    let mut rig = bench.rig();
    let waker = rig.waker()?;
    for _ in 0..5 {
        let other = waker.clone();
        let thread = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(1));
            other.wake()
        });
        rig.wait(8, Some(bench.patience()))?;
        joined(thread)??;
        ensure!(rig.woken(), "woken");
        let timeout = Duration::from_millis(2);
        let begin = std::time::Instant::now();
        rig.wait(8, Some(timeout))?;
        ensure!(!rig.woken(), "the same wake, twice");
        ensure!(begin.elapsed() >= timeout, "a wake that was delivered ends the next wait");
    }
    Ok(())
}

pub(super) fn registrar_registers_while_the_poller_sleeps(bench: &Bench) -> Outcome {
    let mut rig = bench.rig();
    let registrar = rig.registrar()?;
    let (reader, mut writer) = pipe()?;
    writer.write_all(b"x")?;
    let thread = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(2));
        registrar.own(OwnedFd::from(reader), Interest::READABLE).map(|owned| (owned, registrar))
    });
    let batch = rig.wait(8, Some(bench.patience()))?;
    ensure!(!rig.woken(), "a command is not a wake");
    let (owned, registrar) = joined(thread)??;
    ensure!(batch == [(owned.key(), IN)], "registered while it slept: {batch:?}");
    registrar.modify(owned.key(), Interest::NONE)?;
    expect(&mut rig, &[], "disarmed by the registrar")?;
    registrar.modify(owned.key(), Interest::READABLE)?;
    expect(&mut rig, &[(owned.key(), IN)], "armed by the registrar")?;
    registrar.modify_watch(owned.key(), Watch::new(Interest::READABLE).mode(Mode::OneShot))?;
    expect(&mut rig, &[(owned.key(), IN)], "one-shot")?;
    expect(&mut rig, &[], "one-shot, fired")?;
    registrar.deregister(owned.key())?;
    expect(&mut rig, &[], "deregistered")?;
    ensure!(rig.poller().is_empty(), "deregistered");
    registrar.wake()?;
    rig.wait(8, Some(bench.patience()))?;
    ensure!(rig.woken(), "a registrar wakes, too");
    Ok(())
}

pub(super) fn registrar_works_from_many_threads(bench: &Bench) -> Outcome {
    let mut rig = bench.rig();
    let registrar = rig.registrar()?;
    let threads = 3;
    let each = 40;
    let handles: Vec<_> = (0..threads)
        .map(|_| {
            let registrar = registrar.clone();
            std::thread::spawn(move || -> Result<_, Problem> {
                let mut kept = Vec::new();
                for round in 0..each {
                    let (reader, mut writer) = pipe()?;
                    writer.write_all(b"x")?;
                    let owned = registrar.own(
                        OwnedFd::from(reader),
                        Watch::new(Interest::READABLE).mode(Mode::OneShot),
                    )?;
                    match round % 4 {
                        0 => kept.push((owned, writer)),
                        1 => registrar.deregister(owned.key())?,
                        _ => drop(owned),
                    }
                }
                Ok(kept)
            })
        })
        .collect();
    let mut seen = HashSet::new();
    let mut events = Vec::new();
    let expected = threads * each / 4;
    let mut kept = Vec::new();
    for handle in handles {
        // The poller executes the commands of the threads while they work.
        while !handle.is_finished() {
            events.extend(rig.wait(4, Some(Duration::from_millis(1)))?);
        }
        kept.extend(joined(handle)??);
    }
    for _ in 0..2 * expected {
        events.extend(rig.wait(4, super::ZERO)?);
        ensure!(rig.refusals().is_empty(), "no refusal: {:?}", rig.refusals());
    }
    for &(key, readiness) in &events {
        ensure!(readiness.contains(IN), "{key:?}: {readiness:?}");
        ensure!(seen.insert(key), "{key:?} is one-shot and was reported twice");
    }
    for (owned, _writer) in &kept {
        ensure!(seen.contains(&owned.key()), "{:?} was never reported", owned.key());
    }
    ensure!(
        rig.poller().len() == kept.len(),
        "{} registrations are left of {}",
        rig.poller().len(),
        kept.len()
    );
    Ok(())
}

pub(super) fn registrar_refusals_reach_the_wait(bench: &Bench) -> Outcome {
    let mut rig = bench.rig();
    let registrar = rig.registrar()?;
    let (reader, mut writer) = pipe()?;
    let key = rig.register(&reader, Interest::READABLE)?;
    writer.write_all(b"x")?;
    let second = registrar.register(&reader, Interest::READABLE)?;
    ensure!(second != key, "keys are given out once");
    expect(&mut rig, &[(key, IN)], "the first registration")?;
    ensure!(
        matches!(rig.refusals(), [(refused, Error::AlreadyRegistered { key: named, .. })]
            if *refused == second && *named == key),
        "a duplicate through the registrar: {:?}",
        rig.refusals()
    );
    let stale = registrar.deregister(second);
    ensure!(stale.is_ok(), "a command for a refused key is ignored");
    expect(&mut rig, &[(key, IN)], "the first registration")?;
    // A refusal ends a wait that has nothing else to report.
    rig.deregister(key)?;
    let key = rig.register(&writer, Interest::READABLE)?;
    registrar.register(&writer, Interest::READABLE)?;
    let batch = rig.wait(8, Some(bench.patience()))?;
    ensure!(batch.is_empty() && rig.refusals().len() == 1, "{:?}", rig.refusals());
    rig.deregister(key)?;
    // A slot whose registration was refused is used for the next one.
    let third = registrar.register(&reader, Interest::READABLE)?;
    ensure!(third != second, "a refused key is not given out again");
    expect(&mut rig, &[(third, IN)], "a registration after a refusal")
}

pub(super) fn registrar_keys_and_own_keys_differ(bench: &Bench) -> Outcome {
    let mut rig = bench.rig();
    let registrar = rig.registrar()?;
    let mut seen = HashSet::new();
    let mut pipes = Vec::new();
    for round in 0..60 {
        let (reader, mut writer) = pipe()?;
        writer.write_all(b"x")?;
        let key = if round % 2 == 0 {
            rig.register(&reader, Interest::READABLE)?
        } else {
            registrar.register(&reader, Interest::READABLE)?
        };
        ensure!(seen.insert(key), "{key:?} was given out before");
        pipes.push((key, reader, writer));
        if round % 5 == 0 {
            super::now(&mut rig)?;
        }
        if round % 3 == 0 {
            let (key, reader, _writer) = pipes.swap_remove(round % pipes.len());
            if round % 2 == 0 {
                registrar.deregister(key)?;
            } else {
                super::now(&mut rig)?;
                rig.poller().deregister(key)?;
            }
            super::now(&mut rig)?;
            drop(reader);
        }
    }
    let mut expected: Vec<_> = pipes.iter().map(|pair| (pair.0, IN)).collect();
    expected.sort_by_key(|event| event.0);
    let found = super::now(&mut rig)?;
    ensure!(found == expected, "expected {expected:?}, got {found:?}");
    Ok(())
}
