//! The modes: which events come, and how often.

use std::fs::File;
use std::io::{Read, Write, pipe};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

use superpoll::{Interest, Mode, Readiness, Watch};

use super::{Outcome, ensure, expect, now};
use crate::bench::Bench;
use crate::sys;

const IN: Readiness = Readiness::READABLE;
const OUT: Readiness = Readiness::WRITABLE;

fn watch(mode: Mode) -> Watch {
    Watch::new(Interest::READABLE).mode(mode)
}

pub(super) fn level_is_reported_until_read(bench: &Bench) -> Outcome {
    let mut rig = bench.rig();
    let (mut reader, mut writer) = pipe()?;
    let key = rig.register(&reader, Interest::READABLE)?;
    expect(&mut rig, &[], "nothing written")?;
    writer.write_all(b"ab")?;
    for _ in 0..3 {
        expect(&mut rig, &[(key, IN)], "two bytes unread")?;
    }
    reader.read_exact(&mut [0])?;
    expect(&mut rig, &[(key, IN)], "one byte unread")?;
    reader.read_exact(&mut [0])?;
    expect(&mut rig, &[], "all read")
}

pub(super) fn level_reports_directions_asked_for(bench: &Bench) -> Outcome {
    let mut rig = bench.rig();
    let (left, mut right) = UnixStream::pair()?;
    let key = rig.register(&left, Interest::READABLE | Interest::WRITABLE)?;
    expect(&mut rig, &[(key, OUT)], "writable only")?;
    right.write_all(b"x")?;
    expect(&mut rig, &[(key, IN | OUT)], "both directions ready and wanted")?;
    rig.modify(key, Interest::READABLE)?;
    expect(&mut rig, &[(key, IN)], "readable wanted")?;
    rig.modify(key, Interest::WRITABLE)?;
    expect(&mut rig, &[(key, OUT)], "writable wanted")?;
    rig.modify(key, Interest::NONE)?;
    expect(&mut rig, &[], "nothing wanted")
}

pub(super) fn edge_is_reported_once_for_each_arrival(bench: &Bench) -> Outcome {
    let mut rig = bench.rig();
    let (mut reader, mut writer) = pipe()?;
    let key = rig.register(&reader, watch(Mode::Edge))?;
    for _ in 0..4 {
        expect(&mut rig, &[], "before an arrival")?;
        writer.write_all(b"x")?;
        expect(&mut rig, &[(key, IN)], "after an arrival")?;
        expect(&mut rig, &[], "the same arrival")?;
        reader.read_exact(&mut [0])?;
    }
    Ok(())
}

pub(super) fn edge_counts_an_arrival_while_still_readable(bench: &Bench) -> Outcome {
    let mut rig = bench.rig();
    let (reader, mut writer) = pipe()?;
    let key = rig.register(&reader, watch(Mode::Edge))?;
    for _ in 0..4 {
        writer.write_all(b"x")?;
        expect(&mut rig, &[(key, IN)], "an arrival with earlier bytes unread")?;
        expect(&mut rig, &[], "the same arrival")?;
    }
    Ok(())
}

pub(super) fn edge_reports_existing_readiness_when_added(bench: &Bench) -> Outcome {
    let mut rig = bench.rig();
    let (reader, mut writer) = pipe()?;
    writer.write_all(b"x")?;
    let key = rig.register(&reader, watch(Mode::Edge))?;
    expect(&mut rig, &[(key, IN)], "readable when registered")?;
    expect(&mut rig, &[], "reported already")
}

pub(super) fn edge_reports_existing_readiness_when_modified(bench: &Bench) -> Outcome {
    let mut rig = bench.rig();
    let (left, mut right) = UnixStream::pair()?;
    let key = rig.register(&left, watch(Mode::Edge))?;
    right.write_all(b"x")?;
    expect(&mut rig, &[(key, IN)], "an arrival")?;
    rig.modify(key, Interest::READABLE | Interest::WRITABLE)?;
    expect(&mut rig, &[(key, IN | OUT)], "ready when the interest widened")?;
    expect(&mut rig, &[], "reported already")?;
    rig.modify(key, Interest::READABLE)?;
    expect(&mut rig, &[(key, IN)], "ready when the interest narrowed")
}

pub(super) fn one_shot_is_reported_once_until_modified(bench: &Bench) -> Outcome {
    let mut rig = bench.rig();
    let (reader, mut writer) = pipe()?;
    let key = rig.register(&reader, watch(Mode::OneShot))?;
    expect(&mut rig, &[], "nothing written")?;
    for _ in 0..3 {
        writer.write_all(b"x")?;
        expect(&mut rig, &[(key, IN)], "armed")?;
        expect(&mut rig, &[], "disarmed")?;
        writer.write_all(b"x")?;
        expect(&mut rig, &[], "an arrival while disarmed")?;
        rig.modify(key, Interest::READABLE)?;
        expect(&mut rig, &[(key, IN)], "armed again while readable")?;
        rig.modify(key, Interest::READABLE)?;
    }
    Ok(())
}

pub(super) fn one_shot_may_be_modified_before_it_fires(bench: &Bench) -> Outcome {
    let mut rig = bench.rig();
    let (left, mut right) = UnixStream::pair()?;
    let key = rig.register(&left, watch(Mode::OneShot))?;
    expect(&mut rig, &[], "nothing written")?;
    rig.modify(key, Interest::WRITABLE)?;
    right.write_all(b"x")?;
    expect(&mut rig, &[(key, OUT)], "writable wanted instead")?;
    expect(&mut rig, &[], "disarmed")?;
    rig.modify(key, Interest::READABLE | Interest::WRITABLE)?;
    expect(&mut rig, &[(key, IN | OUT)], "both wanted")?;
    expect(&mut rig, &[], "disarmed once more")
}

pub(super) fn exclusive_is_level(bench: &Bench) -> Outcome {
    let mut rig = bench.rig();
    let (mut reader, mut writer) = pipe()?;
    let key = rig.register(&reader, watch(Mode::Exclusive))?;
    writer.write_all(b"x")?;
    for _ in 0..3 {
        expect(&mut rig, &[(key, IN)], "unread")?;
    }
    reader.read_exact(&mut [0])?;
    expect(&mut rig, &[], "read")
}

pub(super) fn auto_reports_every_arrival(bench: &Bench) -> Outcome {
    let mut rig = bench.rig();
    let (mut reader, mut writer) = pipe()?;
    let key = rig.register(&reader, watch(Mode::Auto))?;
    for unread in 0..8 {
        writer.write_all(b"x")?;
        expect(&mut rig, &[(key, IN)], &format!("an arrival behind {unread} unread bytes"))?;
        let again = now(&mut rig)?;
        ensure!(
            again.is_empty() || again == [(key, IN)],
            "a repeat is allowed, {again:?} is something else"
        );
    }
    reader.read_exact(&mut [0; 8])?;
    expect(&mut rig, &[], "drained")?;
    writer.write_all(b"x")?;
    expect(&mut rig, &[(key, IN)], "an arrival after draining")
}

pub(super) fn modes_can_be_changed(bench: &Bench) -> Outcome {
    let caps = bench.capabilities();
    let mut modes = vec![Mode::Level, Mode::OneShot, Mode::Auto];
    modes.extend(caps.edge.then_some(Mode::Edge));
    modes.extend(caps.exclusive.then_some(Mode::Exclusive));
    for &from in &modes {
        for &to in modes.iter().filter(|&&to| to != from) {
            let mut rig = bench.rig();
            let (reader, mut writer) = pipe()?;
            let key = rig.register(&reader, watch(from))?;
            expect(&mut rig, &[], "nothing written")?;
            writer.write_all(b"x")?;
            expect(&mut rig, &[(key, IN)], &format!("{from:?}"))?;
            rig.modify_watch(key, watch(to))?;
            expect(&mut rig, &[(key, IN)], &format!("changed from {from:?} to {to:?}"))?;
            let again = now(&mut rig)?;
            let repeats = matches!(to, Mode::Level | Mode::Exclusive);
            ensure!(
                to == Mode::Auto || again.is_empty() != repeats,
                "{to:?}, changed from {from:?}, repeats {again:?}"
            );
        }
    }
    Ok(())
}

pub(super) fn a_wait_replaces_the_events(bench: &Bench) -> Outcome {
    let mut rig = bench.rig();
    let (mut reader, mut writer) = pipe()?;
    let key = rig.register(&reader, Interest::READABLE)?;
    writer.write_all(b"x")?;
    // With append semantics a full buffer would leave no room (EINVAL) from the second wait on.
    for _ in 0..4 {
        let batch = rig.wait(1, super::ZERO)?;
        ensure!(batch == [(key, IN)], "a full buffer is replaced, not appended to: {batch:?}");
    }
    reader.read_exact(&mut [0])?;
    expect(&mut rig, &[], "read")
}

pub(super) fn regular_files_are_always_ready(bench: &Bench) -> Outcome {
    let mut rig = bench.rig();
    let file = sys::regular_file()?;
    let (reader, mut writer) = pipe()?;
    let file_key = rig.register(&file, Interest::READABLE | Interest::WRITABLE)?;
    let key = rig.register(&reader, Interest::READABLE)?;
    for _ in 0..3 {
        expect(&mut rig, &[(file_key, IN | OUT)], "a file is ready")?;
        let batch = rig.wait(8, None)?;
        ensure!(batch == [(file_key, IN | OUT)], "a wait does not block: {batch:?}");
    }
    writer.write_all(b"x")?;
    expect(&mut rig, &[(file_key, IN | OUT), (key, IN)], "a file does not hide other descriptors")?;
    rig.modify(file_key, Interest::WRITABLE)?;
    expect(&mut rig, &[(file_key, OUT), (key, IN)], "one direction")?;
    rig.modify(file_key, Interest::NONE)?;
    expect(&mut rig, &[(key, IN)], "disarmed")?;
    rig.modify(file_key, Interest::READABLE)?;
    expect(&mut rig, &[(file_key, IN), (key, IN)], "armed again")?;
    rig.deregister(file_key)?;
    expect(&mut rig, &[(key, IN)], "deregistered")
}

pub(super) fn regular_files_obey_their_mode(bench: &Bench) -> Outcome {
    obeys_its_mode(bench, &sys::regular_file()?)
}

pub(super) fn devices_that_cannot_be_waited_for_are_as_files(bench: &Bench) -> Outcome {
    let device = File::open("/dev/null")?;
    obeys_its_mode(bench, &device)?;
    let (reader, mut writer) = pipe()?;
    let mut alone = vec![];
    if bench.capabilities().read_closed_alone {
        alone.extend([Interest::PRIORITY, Interest::READ_CLOSED]);
    }
    // This back-end has nothing to report of that, and that is no reason to refuse it.
    for interest in alone {
        let mut rig = bench.rig();
        let key = rig.register(&device, interest)?;
        let other = rig.register(&reader, Interest::READABLE)?;
        expect(&mut rig, &[], &format!("{interest:?} of a device"))?;
        rig.modify(key, Interest::READABLE)?;
        expect(&mut rig, &[(key, IN)], "a device is readable")?;
        rig.modify(key, interest)?;
        writer.write_all(b"x")?;
        let batch = rig.wait(8, None)?;
        ensure!(batch == [(other, IN)], "a device hides other descriptors: {batch:?}");
        sys::read(reader.as_raw_fd(), 8).map_err(std::io::Error::from_raw_os_error)?;
    }
    Ok(())
}

/// Checks that an always-ready file is reported in each wait, once for each change, or once for
/// each arming.
fn obeys_its_mode(bench: &Bench, file: &File) -> Outcome {
    let caps = bench.capabilities();
    let mut modes = vec![Mode::Level, Mode::OneShot, Mode::Auto];
    modes.extend(caps.edge.then_some(Mode::Edge));
    modes.extend(caps.exclusive.then_some(Mode::Exclusive));
    for mode in modes {
        let mut rig = bench.rig();
        let key = rig.register(file, watch(mode))?;
        expect(&mut rig, &[(key, IN)], &format!("a file, {mode:?}"))?;
        for _ in 0..3 {
            let again = now(&mut rig)?;
            let right = match mode {
                // A poll array watches every registration as a level.
                Mode::Auto if !caps.reports_arrivals => again.is_empty() || again == [(key, IN)],
                Mode::Level | Mode::Exclusive => again == [(key, IN)],
                _ => again.is_empty(),
            };
            ensure!(right, "a file, {mode:?}, one more wait: {again:?}");
        }
        rig.modify(key, Interest::WRITABLE)?;
        expect(&mut rig, &[(key, OUT)], &format!("a file, {mode:?}, modified"))?;
        rig.deregister(key)?;
        expect(&mut rig, &[], "deregistered")?;
    }
    Ok(())
}

pub(super) fn marked_readiness_is_delivered(bench: &Bench) -> Outcome {
    let mut rig = bench.rig();
    let (left, _right) = UnixStream::pair()?;
    let (other, mut writer) = pipe()?;
    let key = rig.register(&left, Interest::READABLE)?;
    let other_key = rig.register(&other, Interest::READABLE)?;
    expect(&mut rig, &[], "nothing to report")?;
    writer.write_all(b"x")?;
    rig.mark_ready(key, IN)?;
    expect(&mut rig, &[(key, IN), (other_key, IN)], "marked, together with the kernel's event")?;
    expect(&mut rig, &[(other_key, IN)], "delivered once")?;
    rig.mark_ready(key, OUT)?;
    expect(&mut rig, &[(other_key, IN)], "marked, but not wanted")?;
    rig.mark_ready(key, IN)?;
    let batch = rig.wait(8, Some(bench.patience()))?;
    ensure!(
        batch.contains(&(key, IN)),
        "a wait with a timeout delivers marked readiness: {batch:?}"
    );
    rig.mark_ready(key, IN)?;
    rig.deregister(key)?;
    expect(&mut rig, &[(other_key, IN)], "marked, then deregistered")?;
    let outcome = rig.poller().mark_ready(key, IN);
    ensure!(
        matches!(outcome, Err(superpoll::Error::StaleKey { .. })),
        "marking a stale key: {outcome:?}"
    );
    Ok(())
}
