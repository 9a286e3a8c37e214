//! Bad input: a typed error that names the cause, and nothing registered is lost.

use std::io::{Write, pipe};
use std::os::fd::{AsRawFd, IntoRawFd};

use superpoll::{Error, Interest, Mode, Readiness, Watch};

use super::{Outcome, ensure, expect};
use crate::bench::Bench;
use crate::sys;

const IN: Readiness = Readiness::READABLE;

/// Checks that a refusal is one line that contains these words.
fn says(error: &Error, words: &[&str]) -> Outcome {
    let line = error.to_string();
    ensure!(!line.contains('\n'), "one line, not {line:?}");
    for word in words {
        ensure!(line.contains(word), "the message should name {word:?}: {line:?}");
    }
    Ok(())
}

pub(super) fn zero_limit_is_refused(bench: &Bench) -> Outcome {
    let mut rig = bench.rig();
    let (reader, mut writer) = pipe()?;
    let key = rig.register(&reader, Watch::new(Interest::READABLE).mode(Mode::OneShot))?;
    writer.write_all(b"x")?;
    let outcome = rig.wait(0, super::ZERO);
    ensure!(matches!(outcome, Err(Error::ZeroLimit)), "a limit of zero: {outcome:?}");
    expect(&mut rig, &[(key, IN)], "nothing is lost by it")
}

pub(super) fn negative_descriptor_is_refused(bench: &Bench) -> Outcome {
    let mut rig = bench.rig();
    for fd in [-1, -7, i32::MIN] {
        let outcome = rig.register_raw(fd, Interest::READABLE);
        ensure!(
            matches!(outcome, Err(Error::BadDescriptor { fd: named }) if named == fd),
            "descriptor {fd}: {outcome:?}"
        );
    }
    ensure!(rig.poller().is_empty(), "nothing is registered");
    if sys::is_open(0) {
        // Zero is a number like any other; the kernel does not learn of it.
        let key = rig.register_raw(0, Interest::READABLE)?;
        rig.deregister(key)?;
    }
    expect(&mut rig, &[], "nothing is registered")
}

pub(super) fn closed_descriptor_is_refused(bench: &Bench) -> Outcome {
    let _numbers = super::numbers();
    let mut rig = bench.rig();
    // Far above the numbers that other threads of the process open meanwhile.
    let (reader, _writer) = pipe()?;
    let fd = sys::duplicate_from(&reader, sys::HIGH)?.as_raw_fd();
    let outcome = rig.register_raw(fd, Interest::READABLE);
    match outcome {
        Err(error @ Error::BadDescriptor { .. }) => says(&error, &[&fd.to_string(), "not open"]),
        outcome => Err(super::Problem(format!("closed descriptor {fd}: {outcome:?}"))),
    }
}

pub(super) fn closed_before_the_wait_is_refused_there(bench: &Bench) -> Outcome {
    let _numbers = super::numbers();
    let mut rig = bench.rig();
    let (reader, mut writer) = pipe()?;
    let (doomed, _doomed_writer) = pipe()?;
    let doomed = sys::duplicate_from(&doomed, sys::HIGH)?;
    let kept = rig.register(&reader, Interest::READABLE)?;
    let key = rig.register(&doomed, Interest::READABLE)?;
    let fd = doomed.as_raw_fd();
    sys::close(doomed.into_raw_fd());
    writer.write_all(b"x")?;
    let mut batch = Vec::new();
    for _ in 0..4 {
        batch = rig.wait(8, super::ZERO)?;
        if !rig.refusals().is_empty() {
            break;
        }
    }
    let refused = matches!(rig.refusals(), [(refused, Error::BadDescriptor { fd: named })]
        if *refused == key && *named == fd);
    ensure!(refused, "expected a refusal of {key:?}, got {:?}", rig.refusals());
    ensure!(batch.iter().all(|event| event.0 == kept), "no event of it: {batch:?}");
    expect(&mut rig, &[(kept, IN)], "other registrations are unaffected")?;
    ensure!(rig.refusals().is_empty(), "refused once: {:?}", rig.refusals());
    let stale = rig.deregister(key);
    ensure!(matches!(stale, Err(Error::StaleKey { .. })), "its registration ended: {stale:?}");
    ensure!(rig.poller().len() == 1, "one is left, not {}", rig.poller().len());
    Ok(())
}

pub(super) fn closing_a_watched_descriptor_harms_no_other(bench: &Bench) -> Outcome {
    let _numbers = super::numbers();
    let mut rig = bench.rig();
    let (reader, mut writer) = pipe()?;
    let (doomed, _doomed_writer) = pipe()?;
    let doomed = sys::duplicate_from(&doomed, sys::HIGH)?;
    let kept = rig.register(&reader, Interest::READABLE)?;
    let key = rig.register(&doomed, Interest::READABLE)?;
    expect(&mut rig, &[], "both open")?;
    sys::close(doomed.into_raw_fd());
    writer.write_all(b"x")?;
    for _ in 0..4 {
        let batch = rig.wait(8, super::ZERO)?;
        ensure!(batch.iter().all(|event| event.0 == kept), "no event of the closed: {batch:?}");
    }
    expect(&mut rig, &[(kept, IN)], "other registrations are unaffected")?;
    // If the kernel forgot the file silently, the registration is still there to end.
    match rig.deregister(key) {
        Ok(()) | Err(Error::StaleKey { .. }) => {}
        outcome => return Err(super::Problem(format!("deregistering it: {outcome:?}"))),
    }
    expect(&mut rig, &[(kept, IN)], "deregistered")
}

pub(super) fn duplicate_registration_is_refused(bench: &Bench) -> Outcome {
    let mut rig = bench.rig();
    let (reader, mut writer) = pipe()?;
    let key = rig.register(&reader, Interest::READABLE)?;
    for flushed in [false, true] {
        match rig.register(&reader, Interest::WRITABLE) {
            Err(error @ Error::AlreadyRegistered { .. }) => {
                says(&error, &[&reader.as_raw_fd().to_string(), "already registered"])?;
                ensure!(
                    matches!(error, Error::AlreadyRegistered { key: named, .. } if named == key),
                    "it names the registration there is"
                );
            }
            outcome => {
                return Err(super::Problem(format!("second, flushed {flushed}: {outcome:?}")));
            }
        }
        writer.write_all(b"x")?;
        expect(&mut rig, &[(key, IN)], "the first registration is unaffected")?;
    }
    Ok(())
}

pub(super) fn stale_key_is_refused(bench: &Bench) -> Outcome {
    let mut rig = bench.rig();
    let (reader, mut writer) = pipe()?;
    let key = rig.register(&reader, Interest::READABLE)?;
    rig.deregister(key)?;
    for again in [false, true] {
        let stale = |outcome: superpoll::Result<()>| matches!(outcome, Err(Error::StaleKey { key: named }) if named == key);
        ensure!(stale(rig.modify(key, Interest::WRITABLE)), "modify, registered again: {again}");
        ensure!(
            stale(rig.modify_watch(key, Watch::new(Interest::NONE))),
            "modify_watch, registered again: {again}"
        );
        ensure!(stale(rig.deregister(key)), "deregister, registered again: {again}");
        if !again {
            let fresh = rig.register(&reader, Interest::READABLE)?;
            ensure!(fresh != key, "a key is not used twice");
        }
    }
    writer.write_all(b"x")?;
    let batch = super::now(&mut rig)?;
    ensure!(batch.len() == 1 && batch[0].0 != key, "the new registration is intact: {batch:?}");
    Ok(())
}

pub(super) fn absent_key_removes_nothing(bench: &Bench) -> Outcome {
    let mut rig = bench.rig();
    let mut other = bench.rig();
    let (first, mut first_writer) = pipe()?;
    let (second, mut second_writer) = pipe()?;
    let first_key = rig.register(&first, Interest::READABLE)?;
    let second_key = rig.register(&second, Interest::READABLE)?;
    expect(&mut rig, &[], "nothing written")?;
    let mut strangers = Vec::new();
    for _ in 0..5 {
        let (reader, _writer) = pipe()?;
        strangers.push((other.register(&reader, Interest::READABLE)?, reader));
    }
    let absent = strangers[4].0;
    let outcome = rig.deregister(absent);
    ensure!(matches!(outcome, Err(Error::StaleKey { .. })), "an absent key: {outcome:?}");
    first_writer.write_all(b"x")?;
    second_writer.write_all(b"x")?;
    expect(&mut rig, &[(first_key, IN), (second_key, IN)], "both are still registered")
}

pub(super) fn large_descriptor_is_refused_by_name(bench: &Bench) -> Outcome {
    let mut rig = bench.rig();
    let (reader, mut writer) = pipe()?;
    let (small, _small_writer) = pipe()?;
    rig.register(&small, Interest::READABLE)?;
    let large = sys::duplicate_from(&reader, 1024)?;
    let outcome = rig.register(&large, Interest::READABLE);
    writer.write_all(b"x")?;
    match (bench.capabilities().fd_limit, outcome) {
        (None, outcome) => {
            let key = outcome?;
            expect(&mut rig, &[(key, IN)], "a large number")
        }
        (Some(limit), Err(error @ Error::DescriptorTooLarge { .. })) => {
            says(
                &error,
                &[
                    &large.as_raw_fd().to_string(),
                    &(limit - 1).to_string(),
                    "poll",
                    "epoll",
                    "adaptive",
                ],
            )?;
            let key = rig.register(&reader, Interest::READABLE)?;
            expect(&mut rig, &[(key, IN)], "nothing is lost by it")
        }
        (Some(_), outcome) => Err(super::Problem(format!("a large number: {outcome:?}"))),
    }
}

pub(super) fn unsupported_modes_are_refused_by_name(bench: &Bench) -> Outcome {
    let caps = bench.capabilities();
    let mut rig = bench.rig();
    let name = rig.poller().backend();
    let (reader, _writer) = pipe()?;
    for (mode, offered) in [(Mode::Edge, caps.edge), (Mode::Exclusive, caps.exclusive)] {
        match (offered, rig.register(&reader, Watch::new(Interest::READABLE).mode(mode))) {
            (true, outcome) => rig.deregister(outcome?)?,
            (false, Err(error @ Error::Unsupported { .. })) => says(&error, &[name, "epoll"])?,
            (false, outcome) => return Err(super::Problem(format!("{mode:?}: {outcome:?}"))),
        }
    }
    ensure!(rig.poller().is_empty(), "a refused descriptor is not registered");
    Ok(())
}

pub(super) fn exclusive_with_read_closed_is_refused(bench: &Bench) -> Outcome {
    let mut rig = bench.rig();
    let (reader, _writer) = pipe()?;
    for interest in [Interest::READ_CLOSED, Interest::PRIORITY] {
        let watch = Watch::new(interest | Interest::READABLE).mode(Mode::Exclusive);
        let outcome = rig.register(&reader, watch);
        ensure!(matches!(outcome, Err(Error::Unsupported { .. })), "{interest:?}: {outcome:?}");
    }
    if bench.capabilities().exclusive {
        let key = rig.register(&reader, Watch::new(Interest::READABLE).mode(Mode::Exclusive))?;
        let outcome = rig.modify(key, Interest::READABLE | Interest::READ_CLOSED);
        ensure!(matches!(outcome, Err(Error::Unsupported { .. })), "by modify: {outcome:?}");
    }
    Ok(())
}

pub(super) fn a_refused_change_changes_nothing(bench: &Bench) -> Outcome {
    let mut rig = bench.rig();
    let (reader, mut writer) = pipe()?;
    let key = rig.register(&reader, Interest::READABLE)?;
    let outcome = rig.modify_watch(key, Watch::new(Interest::WRITABLE).mode(Mode::Edge));
    ensure!(matches!(outcome, Err(Error::Unsupported { .. })), "edge by a change: {outcome:?}");
    writer.write_all(b"x")?;
    expect(&mut rig, &[(key, IN)], "as before")
}
