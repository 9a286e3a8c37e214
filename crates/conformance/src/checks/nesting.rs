//! A poller's descriptor in another event loop: here a raw epoll set.

use std::io::{Read, Write, pipe};
use std::os::fd::{AsRawFd, OwnedFd};

use superpoll::{Error, Hint, Interest, Mode, Readiness, Watch};

use super::{Outcome, Problem, ensure, expect};
use crate::bench::Bench;
use crate::rig::Rig;
use crate::sys;

const IN: Readiness = Readiness::READABLE;

/// Creates a raw epoll set that watches the poller.
fn outer(rig: &mut Rig) -> Result<OwnedFd, Problem> {
    let set = sys::epoll_create()?;
    let fd = rig.nest()?.as_raw_fd();
    sys::epoll_control(&set, libc::EPOLL_CTL_ADD, fd, libc::EPOLLIN as u32, 7)?;
    Ok(set)
}

/// Whether the outer loop would call the poller.
fn calls(set: &OwnedFd, rig: &mut Rig) -> Result<bool, Problem> {
    rig.catch_up();
    Ok(!sys::epoll_wait(set, 4, 0)?.is_empty())
}

/// Makes the outer loop call the poller until the poller's descriptor is no longer ready.
fn settle(set: &OwnedFd, rig: &mut Rig) -> Outcome {
    for _ in 0..8 {
        if !calls(set, rig)? {
            return Ok(());
        }
        super::now(rig)?;
    }
    Err(Problem("the poller stays readable although waits find nothing new".into()))
}

pub(super) fn nested_poller_is_readable_when_ready(bench: &Bench) -> Outcome {
    let mut rig = bench.rig();
    let (mut reader, mut writer) = pipe()?;
    let (hot, mut hot_writer) = pipe()?;
    let key = rig.register(&reader, Interest::READABLE)?;
    let hot_key = rig.register(&hot, Watch::new(Interest::READABLE).hint(Hint::Busy))?;
    expect(&mut rig, &[], "idle")?;
    let set = outer(&mut rig)?;
    settle(&set, &mut rig)?;
    writer.write_all(b"x")?;
    ensure!(calls(&set, &mut rig)?, "readable when a descriptor is ready");
    expect(&mut rig, &[(key, IN)], "and a wait finds it")?;
    ensure!(calls(&set, &mut rig)?, "still readable: level-triggered and unread");
    reader.read_exact(&mut [0])?;
    expect(&mut rig, &[], "read")?;
    settle(&set, &mut rig)?;
    hot_writer.write_all(b"x")?;
    ensure!(calls(&set, &mut rig)?, "also for one that was hot before");
    expect(&mut rig, &[(hot_key, IN)], "and a wait finds it")
}

pub(super) fn nested_poller_shows_later_registrations(bench: &Bench) -> Outcome {
    let mut rig = bench.rig();
    let set = outer(&mut rig)?;
    settle(&set, &mut rig)?;
    let (reader, mut writer) = pipe()?;
    writer.write_all(b"x")?;
    let key = rig.register(&reader, Watch::new(Interest::READABLE).hint(Hint::Busy))?;
    ensure!(calls(&set, &mut rig)?, "a registration is applied at once");
    expect(&mut rig, &[(key, IN)], "registered while nested")?;
    rig.modify(key, Interest::NONE)?;
    settle(&set, &mut rig)?;
    rig.modify(key, Interest::READABLE)?;
    ensure!(calls(&set, &mut rig)?, "a change is applied at once");
    rig.deregister(key)?;
    settle(&set, &mut rig)
}

pub(super) fn nested_poller_shows_wakes(bench: &Bench) -> Outcome {
    let mut rig = bench.rig();
    let waker = rig.waker()?;
    let set = outer(&mut rig)?;
    settle(&set, &mut rig)?;
    for wakes in [1, 3] {
        for _ in 0..wakes {
            waker.wake()?;
        }
        ensure!(calls(&set, &mut rig)?, "a wake reaches the outer loop");
        expect(&mut rig, &[], "a wake is no event")?;
        ensure!(rig.woken(), "the wait says that it was a wake");
        settle(&set, &mut rig)?;
    }
    // A wake while the poller is awake, just before it sleeps again.
    waker.wake()?;
    waker.wake()?;
    super::now(&mut rig)?;
    waker.wake()?;
    ensure!(calls(&set, &mut rig)?, "a wake between two waits");
    Ok(())
}

pub(super) fn nested_poller_shows_marked_readiness(bench: &Bench) -> Outcome {
    let mut rig = bench.rig();
    let (reader, _writer) = pipe()?;
    let key = rig.register(&reader, Interest::READABLE)?;
    let set = outer(&mut rig)?;
    settle(&set, &mut rig)?;
    rig.mark_ready(key, IN)?;
    ensure!(calls(&set, &mut rig)?, "readiness that the caller marked reaches the outer loop");
    expect(&mut rig, &[(key, IN)], "marked ready")?;
    settle(&set, &mut rig)
}

pub(super) fn nested_poller_shows_files(bench: &Bench) -> Outcome {
    let mut rig = bench.rig();
    let set = outer(&mut rig)?;
    settle(&set, &mut rig)?;
    let file = sys::regular_file()?;
    let key = rig.register(&file, Interest::READABLE)?;
    for _ in 0..3 {
        ensure!(calls(&set, &mut rig)?, "a file is always ready");
        expect(&mut rig, &[(key, IN)], "a file")?;
    }
    rig.modify(key, Interest::NONE)?;
    settle(&set, &mut rig)?;
    rig.modify(key, Interest::READABLE)?;
    ensure!(calls(&set, &mut rig)?, "a file, armed again");
    rig.deregister(key)?;
    settle(&set, &mut rig)
}

pub(super) fn nested_poller_shows_a_drop_and_a_rebuild(bench: &Bench) -> Outcome {
    let mut rig = bench.rig();
    let (reader, mut writer) = pipe()?;
    let (other, mut other_writer) = pipe()?;
    let kept_open = reader.try_clone()?;
    let owned = rig.own(reader, Interest::READABLE)?;
    let key = rig.register(&other, Interest::READABLE)?;
    let set = outer(&mut rig)?;
    settle(&set, &mut rig)?;
    rig.close(owned);
    writer.write_all(b"x")?;
    for _ in 0..3 {
        expect(&mut rig, &[], "closed, with a duplicate open")?;
    }
    settle(&set, &mut rig)?;
    other_writer.write_all(b"x")?;
    ensure!(calls(&set, &mut rig)?, "the outer loop still sees the other descriptors");
    expect(&mut rig, &[(key, IN)], "the other one")?;
    drop(kept_open);
    Ok(())
}

/// Three registrations wait for their turn, and the last one is not ready any more when it has it.
pub(super) fn nested_poller_shows_a_one_shot_that_was_passed_over(bench: &Bench) -> Outcome {
    let mut rig = bench.rig();
    let mut pipes = [pipe()?, pipe()?, pipe()?];
    let watch = Watch::new(Interest::READABLE).mode(Mode::OneShot);
    let mut keys = Vec::new();
    for (reader, _) in &pipes {
        keys.push(rig.register(reader, watch)?);
    }
    let set = outer(&mut rig)?;
    settle(&set, &mut rig)?;
    for (_, writer) in &mut pipes {
        writer.write_all(b"x")?;
    }
    let mut left = vec![0, 1, 2];
    for _ in 0..2 {
        ensure!(calls(&set, &mut rig)?, "there is more than was delivered");
        let batch = rig.wait(1, super::ZERO)?;
        ensure!(batch.len() == 1, "one each, not {batch:?}");
        left.retain(|&place| keys[place] != batch[0].0);
    }
    ensure!(left.len() == 1, "each once");
    let (reader, writer) = &mut pipes[left[0]];
    reader.read_exact(&mut [0])?;
    ensure!(rig.wait(1, super::ZERO)?.is_empty(), "it has been read meanwhile");
    settle(&set, &mut rig)?;
    writer.write_all(b"x")?;
    ensure!(calls(&set, &mut rig)?, "it is still armed");
    expect(&mut rig, &[(keys[left[0]], IN)], "and a wait finds it")
}

pub(super) fn nesting_is_refused_without_epoll(bench: &Bench) -> Outcome {
    let mut rig = bench.rig();
    let (reader, mut writer) = pipe()?;
    let key = rig.register(&reader, Interest::READABLE)?;
    match rig.nest() {
        Err(error @ Error::Unsupported { .. }) => {
            ensure!(error.to_string().contains("epoll"), "it names a way out: {error}");
        }
        Err(error) => return Err(Problem(format!("refused with {error}"))),
        Ok(_) => return Err(Problem("there is no epoll set to nest".into())),
    }
    writer.write_all(b"x")?;
    expect(&mut rig, &[(key, IN)], "nothing is lost by it")
}
