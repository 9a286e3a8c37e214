//! Forking, and running out of descriptors.

use std::fs::File;
use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::time::Duration;

use superpoll::{BackendKind, Error, Interest, Mode, Poller, Readiness, Watch};
use superpoll_conformance::{Bench, Fault, Rig, bench, sys};
use superpoll_test_support::alone;

use crate::Result;

const IN: Readiness = Readiness::READABLE;
const ZERO: Option<Duration> = Some(Duration::ZERO);
const PATIENCE: Option<Duration> = Some(Duration::from_secs(20));

/// Uses up all descriptors but `spare`, and returns them, so that dropping them frees the numbers.
fn exhaust(spare: usize) -> Result<Vec<File>> {
    let mut hoard = Vec::new();
    let failed = loop {
        match File::open("/dev/null") {
            Ok(file) => hoard.push(file),
            Err(error) => break error,
        }
    };
    if failed.raw_os_error() != Some(libc::EMFILE) {
        return Err(failed.into());
    }
    hoard.truncate(hoard.len() - spare);
    Ok(hoard)
}

fn is_limit<T>(outcome: &superpoll::Result<T>) -> bool {
    match outcome {
        Err(error @ Error::DescriptorLimit { soft: 300, .. }) => {
            let said = error.to_string();
            said.contains("300") && said.contains("ulimit -n") && !said.contains('\n')
        }
        _ => false,
    }
}

#[test]
fn building_a_poller_without_descriptors() {
    alone(|| -> Result {
        sys::limit_descriptors(300)?;
        let hoard = exhaust(0)?;
        for kind in BackendKind::available() {
            let outcome = Poller::builder().backend(kind).build();
            let needs_one = !matches!(kind, BackendKind::Select | BackendKind::Poll);
            match outcome {
                Ok(_) if !needs_one => {}
                outcome if needs_one && is_limit(&outcome) => {}
                outcome => return Err(format!("{kind}: {outcome:?}").into()),
            }
        }
        drop(hoard);
        for kind in BackendKind::available() {
            Poller::builder().backend(kind).build()?;
        }
        Ok(())
    });
}

#[test]
fn a_refused_io_uring_is_reported_and_other_back_ends_work() {
    alone(|| -> Result {
        sys::refuse_io_uring(libc::EPERM)?;
        let refused = Poller::builder().backend(BackendKind::Uring).build();
        match refused {
            Err(error @ Error::BackendUnavailable { backend: "uring", .. }) => {
                let said = error.to_string();
                if !said.contains("uring") || !said.contains("choose another") {
                    return Err(said.into());
                }
            }
            other => return Err(format!("{other:?}").into()),
        }
        if BackendKind::Uring.is_available() || BackendKind::available().len() != 4 {
            return Err("io_uring is refused and said to be available".into());
        }
        let mut rig = Rig::new(Poller::new()?, Fault::None);
        let (reader, mut writer) = pipe()?;
        let key = rig.register(&reader, Interest::READABLE)?;
        writer.write_all(b"x")?;
        if rig.wait(8, PATIENCE)? != [(key, IN)] {
            return Err("adaptive does not work".into());
        }
        Ok(())
    });
}

#[test]
fn a_ring_in_a_forked_child_names_the_remedy_and_works_after_it() {
    alone(|| -> Result {
        if !BackendKind::Uring.is_available() {
            eprintln!("skipped: uring is not available here");
            return Ok(());
        }
        let mut poller = Poller::builder().backend(BackendKind::Uring).build()?;
        let (reader, mut writer) = pipe()?;
        let key = poller.register(&reader, Interest::READABLE)?;
        let mut events = superpoll::Events::with_limit(4);
        poller.wait(&mut events, ZERO)?;
        writer.write_all(b"x")?;
        let child = |poller: &mut Poller| {
            let mut events = superpoll::Events::with_limit(4);
            let refused = poller.wait(&mut events, ZERO);
            let told = refused.is_err_and(|error| error.to_string().contains("after_fork"));
            let found = |poller: &mut Poller, events: &mut superpoll::Events| {
                poller.wait(events, ZERO).is_ok() && events.iter().any(|event| event.key() == key)
            };
            told && poller.after_fork().is_ok() && found(poller, &mut events)
        };
        let mut mine = false;
        let status = sys::fork_and_wait(&mut poller, child, |poller| {
            let mut events = superpoll::Events::with_limit(4);
            let waited = poller.wait(&mut events, PATIENCE);
            mine = waited.is_ok() && events.iter().any(|event| event.key() == key);
        })?;
        if !mine || status != 0 {
            return Err(format!("parent {mine}, child {status}").into());
        }
        Ok(())
    });
}

#[test]
fn running_out_of_descriptors_loses_nothing() {
    alone(|| -> Result {
        sys::limit_descriptors(300)?;
        for bench in bench::all() {
            without_descriptors(&bench).map_err(|error| format!("{}: {error}", bench.name()))?;
        }
        Ok(())
    });
}

fn without_descriptors(bench: &Bench) -> Result {
    let mut rig = bench.rig();
    let (reader, mut writer) = pipe()?;
    let (doomed, mut doomed_writer) = pipe()?;
    let kept_open = doomed.try_clone()?;
    let key = rig.register(&reader, Interest::READABLE)?;
    let owned = rig.own(doomed, Interest::READABLE)?;
    rig.wait(8, ZERO)?;
    let hoard = exhaust(0)?;
    if !is_limit(&rig.waker()) || !is_limit(&rig.registrar()) {
        return Err(format!("a waker without a descriptor: {:?}", rig.waker()).into());
    }
    if bench.capabilities().nest && rig.nest().is_ok() {
        return Err("nested without a descriptor".into());
    }
    writer.write_all(b"x")?;
    let batch = rig.wait(8, PATIENCE)?;
    if batch != [(key, IN)] {
        return Err(format!("the registration is unaffected, not {batch:?}").into());
    }
    // A rebuild is due, but cannot happen.
    rig.close(owned);
    let (spare, spared) = (hoard.len(), exhaust(0)?);
    // A keeper that receives files has them in this very process, and closes those that became
    // ready.
    let most = if bench.capabilities().is_kept { 3 } else { 1 };
    assert!(spare > 0 && spared.len() <= most, "{}: {}", bench.name(), spared.len());
    doomed_writer.write_all(b"x")?;
    for _ in 0..8 {
        let batch = rig.wait(8, ZERO)?;
        if batch != [(key, IN)] {
            return Err(format!("without a descriptor to rebuild: {batch:?}").into());
        }
    }
    drop((hoard, spared));
    let before = rig.stats();
    for _ in 0..8 {
        let batch = rig.wait(8, ZERO)?;
        if batch != [(key, IN)] {
            return Err(format!("with descriptors again: {batch:?}").into());
        }
    }
    if rig.stats().stale - before.stale > 1 {
        return Err("the stale registration still rings".into());
    }
    let waker = rig.waker()?;
    waker.wake()?;
    rig.wait(8, PATIENCE)?;
    if !rig.woken() {
        return Err("a waker made afterwards works".into());
    }
    drop(kept_open);
    Ok(())
}

#[test]
fn a_forked_child_has_a_poller_of_its_own() {
    alone(|| -> Result {
        for bench in bench::all() {
            forked(&bench).map_err(|error| format!("{}: {error}", bench.name()))?;
        }
        Ok(())
    });
}

#[test]
fn a_child_that_drops_its_poller_takes_no_keeper_with_it() {
    alone(|| -> Result {
        for bench in [bench::with_keeper(false), bench::with_keeper(true)] {
            let mut rig = Some(bench.rig());
            let (reader, mut writer) = pipe()?;
            let poller = rig.as_mut().ok_or("it is there")?;
            let key = poller.register(&reader, Interest::READABLE)?;
            poller.wait(8, ZERO)?;
            if poller.stats().away.len != 1 {
                return Err("it does not leave".into());
            }
            let mut parents = Ok(Vec::new());
            let child = |rig: &mut Option<Rig>| {
                drop(rig.take());
                true
            };
            let status = sys::fork_and_wait(&mut rig, child, |_| {})?;
            writer.write_all(b"x")?;
            if let Some(rig) = &mut rig {
                parents = rig.wait(8, PATIENCE);
                if rig.stats().keeper_lost != 0 {
                    return Err("the parent has lost its keeper".into());
                }
            }
            if status != 0 || parents? != [(key, IN)] {
                return Err(format!("{}: the child ended with {status}", bench.name()).into());
            }
        }
        Ok(())
    });
}

/// A poller with registrations in all modes, and the ends to drive them.
struct Family {
    rig: Rig,
    waker: superpoll::Waker,
    level: (superpoll::Key, PipeReader, PipeWriter),
    once: (superpoll::Key, PipeReader, PipeWriter),
    auto: (superpoll::Key, PipeReader, PipeWriter),
}

impl Family {
    fn new(bench: &Bench) -> Result<Family> {
        let mut rig = bench.rig();
        let waker = rig.waker()?;
        let mut register = |mode| -> Result<_> {
            let (reader, writer) = pipe()?;
            let key = rig.register(&reader, Watch::new(Interest::READABLE).mode(mode))?;
            Ok((key, reader, writer))
        };
        let level = register(Mode::Level)?;
        let once = register(Mode::OneShot)?;
        let auto = register(Mode::Auto)?;
        rig.wait(8, ZERO)?;
        Ok(Family { rig, waker, level, once, auto })
    }

    fn expect(&mut self, expected: &[superpoll::Key], when: &str) -> Result {
        let mut found: Vec<_> = self.rig.wait(8, ZERO)?.iter().map(|event| event.0).collect();
        found.sort();
        let mut expected = expected.to_vec();
        expected.sort();
        if found == expected {
            return Ok(());
        }
        Err(format!("{when}: expected {expected:?}, got {found:?}").into())
    }
}

fn forked(bench: &Bench) -> Result {
    let mut family = Family::new(bench)?;
    let (mut child_says, mut to_parent) = pipe()?;
    let (mut parent_says, mut to_child) = pipe()?;
    let mut parents = Ok(());
    // The child works on its copy, the parent on the original.
    let status = sys::fork_and_wait(
        &mut family,
        |family| {
            let outcome = child(family, &mut to_parent, &mut parent_says);
            if let Err(error) = &outcome {
                eprintln!("child: {error}");
            }
            outcome.is_ok()
        },
        |family| parents = parent_side(family, &mut child_says, &mut to_child),
    )?;
    parents?;
    if status != 0 {
        return Err(format!("the child failed with status {status}").into());
    }
    Ok(())
}

fn child(family: &mut Family, to_parent: &mut PipeWriter, parent_says: &mut PipeReader) -> Result {
    family.rig.poller().after_fork()?;
    family.expect(&[], "in the child, at first")?;
    family.level.2.write_all(b"x")?;
    family.expect(&[family.level.0], "in the child, after a write")?;
    // The changes of the child concern only the child.
    family.rig.deregister(family.level.0)?;
    family.rig.modify(family.once.0, Interest::NONE)?;
    family.expect(&[], "in the child, deregistered")?;
    for _ in 0..3 {
        family.waker.wake()?;
    }
    family.rig.wait(8, PATIENCE)?;
    if !family.rig.woken() {
        return Err("a waker of the child wakes the child".into());
    }
    to_parent.write_all(b"1")?;
    // The parent has changed its own in the meantime.
    parent_says.read_exact(&mut [0])?;
    family.expect(&[family.auto.0], "in the child, after the parent's write")?;
    Ok(())
}

fn parent_side(
    family: &mut Family,
    child_says: &mut PipeReader,
    to_child: &mut PipeWriter,
) -> Result {
    child_says.read_exact(&mut [0])?;
    let level = family.level.0;
    family.expect(&[level], "in the parent, after the child deregistered its own")?;
    if family.rig.woken() {
        return Err("a wake in the child wakes the parent".into());
    }
    family.once.2.write_all(b"x")?;
    let once = family.once.0;
    family.expect(&[level, once], "in the parent, still armed")?;
    family.level.1.read_exact(&mut [0])?;
    family.rig.deregister(level)?;
    family.auto.2.write_all(b"x")?;
    let auto = family.auto.0;
    family.expect(&[auto], "in the parent, an arrival")?;
    family.rig.deregister(auto)?;
    family.expect(&[], "in the parent, deregistered")?;
    to_child.write_all(b"1")?;
    Ok(())
}
