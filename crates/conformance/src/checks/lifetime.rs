//! Ends of registrations: deregistering, closing, reused numbers, duplicates, owners.

use std::collections::HashSet;
use std::io::{Write, pipe};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use superpoll::{Interest, Mode, Readiness, Watch};

use super::{Outcome, ensure, expect};
use crate::bench::Bench;
use crate::sys;

const IN: Readiness = Readiness::READABLE;
const OUT: Readiness = Readiness::WRITABLE;

/// Returns the modes that repeat ready registrations, and those that do not, as far as the back-end
/// has them.
fn modes(bench: &Bench) -> Vec<Mode> {
    let mut modes = vec![Mode::Level, Mode::OneShot, Mode::Auto];
    modes.extend(bench.capabilities().edge.then_some(Mode::Edge));
    modes
}

pub(super) fn no_event_after_deregister(bench: &Bench) -> Outcome {
    for mode in modes(bench) {
        let mut rig = bench.rig();
        let (reader, mut writer) = pipe()?;
        let key = rig.register(&reader, Watch::new(Interest::READABLE).mode(mode))?;
        writer.write_all(b"x")?;
        expect(&mut rig, &[(key, IN)], "registered")?;
        rig.deregister(key)?;
        expect(&mut rig, &[], "deregistered")?;
        writer.write_all(b"x")?;
        expect(&mut rig, &[], "an arrival after deregistering")?;
        ensure!(rig.poller().is_empty(), "{mode:?}: nothing is registered");
    }
    Ok(())
}

pub(super) fn no_event_after_deregister_within_a_batch(bench: &Bench) -> Outcome {
    // All are ready; a wait reports one. Its event handler removes all the rest.
    for count in [2, 3, 8] {
        let mut rig = bench.rig();
        let mut pairs = Vec::new();
        for _ in 0..count {
            let (reader, mut writer) = pipe()?;
            writer.write_all(b"x")?;
            let key = rig.register(&reader, Interest::READABLE)?;
            pairs.push((key, reader, writer));
        }
        let first = rig.wait(1, super::ZERO)?;
        ensure!(first.len() == 1, "one of {count}: {first:?}");
        for (key, ..) in pairs.iter().filter(|pair| pair.0 != first[0].0) {
            rig.deregister(*key)?;
        }
        for _ in 0..count {
            expect(&mut rig, &first, "only the one that is left")?;
        }
    }
    Ok(())
}

pub(super) fn no_event_after_drop(bench: &Bench) -> Outcome {
    let _numbers = super::numbers();
    for mode in modes(bench) {
        let mut rig = bench.rig();
        let (reader, mut writer) = pipe()?;
        let (other, mut other_writer) = pipe()?;
        let owned = rig.own(reader, Watch::new(Interest::READABLE).mode(mode))?;
        let other_key = rig.register(&other, Interest::READABLE)?;
        writer.write_all(b"x")?;
        expect(&mut rig, &[(owned.key(), IN)], "owned")?;
        rig.close(owned);
        other_writer.write_all(b"x")?;
        expect(&mut rig, &[(other_key, IN)], "dropped")?;
        ensure!(rig.refusals().is_empty(), "{mode:?}: no refusal: {:?}", rig.refusals());
        ensure!(rig.poller().len() == 1, "{mode:?}: one is left, not {}", rig.poller().len());
    }
    Ok(())
}

pub(super) fn a_reused_number_is_a_stranger(bench: &Bench) -> Outcome {
    let _numbers = super::numbers();
    for mode in modes(bench) {
        let mut rig = bench.rig();
        let (old, mut old_writer) = pipe()?;
        let old = sys::duplicate_from(&old, sys::HIGH)?;
        let number = old.as_raw_fd();
        let watch = Watch::new(Interest::READABLE).mode(mode);
        let old_key = rig.register(&old, watch)?;
        old_writer.write_all(b"x")?;
        expect(&mut rig, &[(old_key, IN)], "the old file")?;
        rig.deregister(old_key)?;
        drop(old);
        let (new, mut new_writer) = sys::pipe().map(|(r, w)| (r, std::fs::File::from(w)))?;
        let new = sys::move_to(new, number)?;
        let new_key = rig.register(&new, watch)?;
        ensure!(new_key != old_key, "the new registration has a new key");
        expect(&mut rig, &[], "the new file is not readable")?;
        new_writer.write_all(b"x")?;
        expect(&mut rig, &[(new_key, IN)], "the new file")?;
    }
    Ok(())
}

pub(super) fn a_reused_number_after_drop_is_a_stranger(bench: &Bench) -> Outcome {
    let _numbers = super::numbers();
    for mode in modes(bench) {
        let mut rig = bench.rig();
        let (old, mut old_writer) = pipe()?;
        let old = sys::duplicate_from(&old, sys::HIGH)?;
        let number = old.as_raw_fd();
        let watch = Watch::new(Interest::READABLE).mode(mode);
        let old = rig.own(old, watch)?;
        old_writer.write_all(b"x")?;
        expect(&mut rig, &[(old.key(), IN)], "the old file")?;
        rig.close(old);
        let (new, mut new_writer) = sys::pipe().map(|(r, w)| (r, std::fs::File::from(w)))?;
        let new = sys::move_to(new, number)?;
        expect(&mut rig, &[], "the new file is not registered")?;
        let new = rig.own(new, watch)?;
        let key = new.key();
        expect(&mut rig, &[], "the new file is not readable")?;
        new_writer.write_all(b"x")?;
        expect(&mut rig, &[(key, IN)], "the new file")?;
        // Closed and replaced without a wait in between.
        rig.close(new);
        let (third, third_writer) = sys::pipe()?;
        let third = rig.own(sys::move_to(third, number)?, watch)?;
        expect(&mut rig, &[], "the third file is not readable")?;
        drop(third_writer);
        expect(&mut rig, &[(third.key(), Readiness::HANG_UP)], "the third file")?;
        ensure!(rig.refusals().is_empty(), "no refusal: {:?}", rig.refusals());
    }
    Ok(())
}

pub(super) fn a_removal_is_not_overtaken(bench: &Bench) -> Outcome {
    for mode in modes(bench) {
        let mut rig = bench.rig();
        let (reader, mut writer) = pipe()?;
        let watch = Watch::new(Interest::READABLE).mode(mode);
        let first = rig.register(&reader, watch)?;
        expect(&mut rig, &[], "nothing written")?;
        // Removed and added any number of times between two waits: the last one counts.
        let mut last = first;
        for _ in 0..3 {
            rig.deregister(last)?;
            last = rig.register(&reader, watch)?;
        }
        writer.write_all(b"x")?;
        expect(&mut rig, &[(last, IN)], "added last")?;
        let again = rig.register(&reader, watch);
        ensure!(again.is_err(), "{mode:?}: it is registered");
        rig.deregister(last)?;
        let new = rig.register(&reader, watch)?;
        rig.deregister(new)?;
        for _ in 0..2 {
            expect(&mut rig, &[], "removed last")?;
        }
        let key = rig.register(&reader, watch)?;
        expect(&mut rig, &[(key, IN)], "added once more")?;
        ensure!(rig.refusals().is_empty(), "no refusal: {:?}", rig.refusals());
    }
    Ok(())
}

pub(super) fn disowned_descriptor_stays_open(bench: &Bench) -> Outcome {
    let mut rig = bench.rig();
    let (reader, mut writer) = pipe()?;
    let owned = rig.own(reader, Interest::READABLE)?;
    writer.write_all(b"x")?;
    expect(&mut rig, &[(owned.key(), IN)], "owned")?;
    let reader = rig.disown(owned);
    expect(&mut rig, &[], "disowned")?;
    let key = rig.register(&reader, Interest::READABLE)?;
    expect(&mut rig, &[(key, IN)], "still open")
}

pub(super) fn a_duplicate_keeps_no_registration_alive(bench: &Bench) -> Outcome {
    for mode in modes(bench) {
        let mut rig = bench.rig();
        let (reader, mut writer) = pipe()?;
        let (other, mut other_writer) = pipe()?;
        let kept_open = reader.try_clone()?;
        let owned = rig.own(reader, Watch::new(Interest::READABLE).mode(mode))?;
        let other_key = rig.register(&other, Interest::READABLE)?;
        writer.write_all(b"x")?;
        expect(&mut rig, &[(owned.key(), IN)], "owned")?;
        rig.close(owned);
        writer.write_all(b"x")?;
        // The file is open through the duplicate, readable, and still in the kernel's epoll set
        // under a number that no longer names it.
        let before = rig.stats();
        for _ in 0..8 {
            expect(&mut rig, &[], "closed, with a duplicate open")?;
        }
        let batch = rig.wait(8, Some(Duration::from_millis(10)))?;
        ensure!(batch.is_empty(), "{mode:?}: closed: {batch:?}");
        let stats = rig.stats();
        ensure!(
            stats.stale - before.stale <= 1 && stats.rebuilds - before.rebuilds <= 1,
            "{mode:?}: it spins: {} stale events, {} rebuilds",
            stats.stale - before.stale,
            stats.rebuilds - before.rebuilds
        );
        let again = rig.register(&kept_open, Interest::READABLE)?;
        expect(&mut rig, &[(again, IN)], "the duplicate, registered")?;
        other_writer.write_all(b"x")?;
        expect(&mut rig, &[(other_key, IN), (again, IN)], "all other registrations")?;
    }
    Ok(())
}

pub(super) fn an_idle_duplicate_is_forgotten_when_it_fires(bench: &Bench) -> Outcome {
    let mut rig = bench.rig();
    let (reader, mut writer) = pipe()?;
    let (other, mut other_writer) = pipe()?;
    let waker = rig.waker()?;
    let kept_open = reader.try_clone()?;
    let owned = rig.own(reader, Interest::READABLE)?;
    let mode = if bench.capabilities().edge { Mode::Edge } else { Mode::Auto };
    let other_key = rig.register(&other, Watch::new(Interest::READABLE).mode(mode))?;
    expect(&mut rig, &[], "nothing written")?;
    rig.close(owned);
    expect(&mut rig, &[], "closed")?;
    writer.write_all(b"x")?;
    // An arrival for another registration in the same batch as the stale event must survive a
    // rebuild.
    other_writer.write_all(b"x")?;
    expect(&mut rig, &[(other_key, IN)], "the other one, in the same batch")?;
    // So must the wakers.
    waker.wake()?;
    let _ = rig.wait(8, Some(bench.patience()))?;
    ensure!(rig.woken(), "the waker works after a rebuild");
    other_writer.write_all(b"x")?;
    let batch = rig.wait(8, Some(bench.patience()))?;
    ensure!(batch == [(other_key, IN)], "an arrival after a rebuild: {batch:?}");
    drop(kept_open);
    Ok(())
}

pub(super) fn two_duplicates_are_two_registrations(bench: &Bench) -> Outcome {
    let mut rig = bench.rig();
    let (stream, mut peer) = UnixStream::pair()?;
    let twin = stream.try_clone()?;
    let reading = rig.register(&stream, Interest::READABLE)?;
    let writing = rig.register(&twin, Interest::WRITABLE)?;
    expect(&mut rig, &[(writing, OUT)], "only writable")?;
    peer.write_all(b"x")?;
    for _ in 0..4 {
        expect(&mut rig, &[(reading, IN), (writing, OUT)], "reader and writer of one socket")?;
    }
    rig.deregister(writing)?;
    expect(&mut rig, &[(reading, IN)], "the writer left")?;
    let writing = rig.register(&twin, Interest::WRITABLE)?;
    rig.deregister(reading)?;
    expect(&mut rig, &[(writing, OUT)], "the reader left")
}

pub(super) fn owner_dropped_on_another_thread(bench: &Bench) -> Outcome {
    let mut rig = bench.rig();
    let waker = rig.waker()?;
    let mut owners = Vec::new();
    let mut writers = Vec::new();
    for _ in 0..16 {
        let (reader, writer) = pipe()?;
        owners.push(rig.own(OwnedFd::from(reader), Interest::READABLE)?);
        writers.push(writer);
    }
    expect(&mut rig, &[], "idle")?;
    let dropper = std::thread::spawn(move || {
        for owner in owners {
            drop(owner);
        }
        // No thread reads any more: writing fails, or the poller still holds the descriptor that it
        // sleeps on.
        drop(writers);
        waker.wake()
    });
    let mut events = Vec::new();
    while !rig.woken() {
        events.extend(rig.wait(8, Some(bench.patience()))?);
        if events.len() > 64 {
            break;
        }
    }
    let joined = dropper.join().map_err(|_| super::Problem("the thread panicked".into()))?;
    joined?;
    ensure!(events.is_empty(), "no event of a dropped owner: {events:?}");
    expect(&mut rig, &[], "all gone")?;
    ensure!(rig.poller().is_empty(), "none is left, not {}", rig.poller().len());
    Ok(())
}

pub(super) fn keys_do_not_repeat(bench: &Bench) -> Outcome {
    let mut rig = bench.rig();
    let (reader, _writer) = pipe()?;
    let mut seen = HashSet::new();
    for round in 0..200 {
        let key = rig.register(&reader, Interest::READABLE)?;
        ensure!(seen.insert(key), "{key:?} was used before");
        ensure!(key.index() < 2, "an index is reused: {key:?}");
        if round % 3 == 0 {
            expect(&mut rig, &[], "nothing written")?;
        }
        rig.deregister(key)?;
    }
    Ok(())
}
