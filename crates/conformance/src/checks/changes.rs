//! The cost of changes, counted in system calls, never in time.

use std::io::{Read, Write, pipe};
use std::os::unix::net::UnixStream;

use superpoll::diagnostics::Calls;
use superpoll::{Interest, Mode, Readiness, Watch};

use super::{Outcome, ensure, expect};
use crate::bench::Bench;
use crate::rig::Rig;

const IN: Readiness = Readiness::READABLE;
const OUT: Readiness = Readiness::WRITABLE;

/// Returns the calls that one wait without timeout makes when nothing has changed.
fn calls_of_a_wait(rig: &mut Rig) -> Result<Calls, super::Problem> {
    let before = rig.stats().calls;
    super::now(rig)?;
    Ok(rig.stats().calls.since(&before))
}

pub(super) fn a_change_undone_costs_nothing(bench: &Bench) -> Outcome {
    let mut rig = bench.rig();
    let (left, mut right) = UnixStream::pair()?;
    let key = rig.register(&left, Interest::READABLE)?;
    expect(&mut rig, &[], "nothing written")?;
    let before = rig.stats();
    for _ in 0..10 {
        rig.modify(key, Interest::READABLE | Interest::WRITABLE)?;
        rig.modify(key, Interest::NONE)?;
        rig.modify(key, Interest::READABLE)?;
    }
    ensure!(rig.stats().calls == before.calls, "a change makes no call before the wait");
    let calls = calls_of_a_wait(&mut rig)?;
    ensure!(
        bench.capabilities().moves_at_random || calls.epoll_ctl() == 0,
        "changes that were undone cost: {calls}"
    );
    ensure!(rig.stats().changes_saved > before.changes_saved, "and are counted as saved");
    right.write_all(b"x")?;
    expect(&mut rig, &[(key, IN)], "as if nothing had been changed")
}

pub(super) fn an_unchanged_interest_costs_nothing(bench: &Bench) -> Outcome {
    let mut rig = bench.rig();
    let (left, mut right) = UnixStream::pair()?;
    let key = rig.register(&left, Interest::READABLE)?;
    expect(&mut rig, &[], "nothing written")?;
    let before = rig.stats();
    rig.modify(key, Interest::READABLE)?;
    rig.modify_watch(key, Interest::READABLE)?;
    ensure!(rig.stats().calls == before.calls, "no call before the wait");
    let calls = calls_of_a_wait(&mut rig)?;
    ensure!(
        bench.capabilities().moves_at_random || calls.epoll_ctl() == 0,
        "an unchanged interest costs: {calls}"
    );
    ensure!(rig.stats().changes_saved >= before.changes_saved + 2, "and is counted as saved");
    right.write_all(b"x")?;
    expect(&mut rig, &[(key, IN)], "unchanged")
}

pub(super) fn remove_and_add_is_one_change(bench: &Bench) -> Outcome {
    let mut rig = bench.rig();
    let (left, mut right) = UnixStream::pair()?;
    let old = rig.register(&left, Interest::READABLE)?;
    expect(&mut rig, &[], "nothing written")?;
    rig.deregister(old)?;
    let key = rig.register(&left, Interest::READABLE | Interest::WRITABLE)?;
    let calls = calls_of_a_wait(&mut rig)?;
    ensure!(
        calls.epoll_ctl_mod == 1 && calls.epoll_ctl() == 1,
        "remove and add is one modify, not {calls}"
    );
    right.write_all(b"x")?;
    expect(&mut rig, &[(key, IN | OUT)], "under the new key")
}

pub(super) fn register_and_deregister_costs_nothing(bench: &Bench) -> Outcome {
    let mut rig = bench.rig();
    let (reader, mut writer) = pipe()?;
    writer.write_all(b"x")?;
    expect(&mut rig, &[], "empty")?;
    let before = rig.stats().calls;
    for _ in 0..10 {
        let key = rig.register(&reader, Interest::READABLE)?;
        rig.deregister(key)?;
    }
    let calls = rig.stats().calls.since(&before);
    ensure!(calls.total() == 0, "ten registrations that never met a wait cost {calls}");
    let calls = calls_of_a_wait(&mut rig)?;
    ensure!(calls.epoll_ctl() == 0, "nor does the wait after them: {calls}");
    expect(&mut rig, &[], "nothing is registered")
}

pub(super) fn drop_costs_no_call(bench: &Bench) -> Outcome {
    let mut rig = bench.rig();
    let (reader, _writer) = pipe()?;
    let owned = rig.own(reader, Interest::READABLE)?;
    expect(&mut rig, &[], "nothing written")?;
    rig.close(owned);
    let calls = calls_of_a_wait(&mut rig)?;
    ensure!(calls.epoll_ctl() == 0, "epoll forgets a closed file by itself: {calls}");
    ensure!(rig.poller().is_empty(), "it is gone");
    Ok(())
}

pub(super) fn many_changes_are_one(bench: &Bench) -> Outcome {
    let mut rig = bench.rig();
    let (left, _right) = UnixStream::pair()?;
    let key = rig.register(&left, Interest::READABLE)?;
    let calls = calls_of_a_wait(&mut rig)?;
    ensure!(calls.epoll_ctl_add == 1 && calls.epoll_ctl() == 1, "one addition, not {calls}");
    rig.modify(key, Interest::NONE)?;
    rig.modify(key, Interest::WRITABLE)?;
    rig.modify(key, Interest::READABLE | Interest::WRITABLE)?;
    let calls = calls_of_a_wait(&mut rig)?;
    ensure!(calls.epoll_ctl_mod == 1 && calls.epoll_ctl() == 1, "one modify, not {calls}");
    rig.modify(key, Interest::READABLE)?;
    rig.deregister(key)?;
    let calls = calls_of_a_wait(&mut rig)?;
    ensure!(calls.epoll_ctl_del == 1 && calls.epoll_ctl() == 1, "one removal, not {calls}");
    let calls = calls_of_a_wait(&mut rig)?;
    ensure!(calls.epoll_ctl() == 0, "and nothing after it: {calls}");
    Ok(())
}

pub(super) fn disabling_is_lazy(bench: &Bench) -> Outcome {
    let mut rig = bench.rig();
    let (mut reader, mut writer) = pipe()?;
    let key = rig.register(&reader, Interest::READABLE)?;
    expect(&mut rig, &[], "nothing written")?;
    // A reader that pauses and resumes before anything arrives.
    let before = rig.stats().calls;
    for _ in 0..10 {
        rig.modify(key, Interest::NONE)?;
        expect(&mut rig, &[], "paused")?;
        rig.modify(key, Interest::READABLE)?;
        expect(&mut rig, &[], "resumed")?;
    }
    let calls = rig.stats().calls.since(&before);
    ensure!(calls.epoll_ctl() == 0, "pauses in which nothing arrived cost {calls}");
    // A pause during which bytes do arrive: one call to stop, one to go on.
    rig.modify(key, Interest::NONE)?;
    writer.write_all(b"x")?;
    let before = rig.stats().calls;
    for _ in 0..5 {
        expect(&mut rig, &[], "an arrival in a pause")?;
    }
    let calls = rig.stats().calls.since(&before);
    ensure!(calls.epoll_ctl() <= 1, "the change is applied once: {calls}");
    rig.modify(key, Interest::READABLE)?;
    expect(&mut rig, &[(key, IN)], "resumed with a byte there")?;
    reader.read_exact(&mut [0])?;
    expect(&mut rig, &[], "read")
}

pub(super) fn a_lazily_disabled_direction_is_not_delivered(bench: &Bench) -> Outcome {
    let mut rig = bench.rig();
    let (left, mut right) = UnixStream::pair()?;
    let both = Interest::READABLE | Interest::READ_CLOSED;
    let key = rig.register(&left, both)?;
    expect(&mut rig, &[], "nothing written")?;
    rig.modify(key, Interest::READABLE)?;
    right.write_all(b"x")?;
    right.shutdown(std::net::Shutdown::Write)?;
    for _ in 0..3 {
        expect(&mut rig, &[(key, IN)], "only wanted readiness")?;
    }
    rig.modify(key, Interest::NONE)?;
    for _ in 0..3 {
        expect(&mut rig, &[], "nothing is wanted")?;
    }
    rig.modify(key, both)?;
    expect(&mut rig, &[(key, IN | Readiness::READ_CLOSED)], "wanted again")
}

pub(super) fn exclusive_is_replaced_not_modified(bench: &Bench) -> Outcome {
    let mut rig = bench.rig();
    let (left, mut right) = UnixStream::pair()?;
    let exclusive = Watch::new(Interest::READABLE).mode(Mode::Exclusive);
    let key = rig.register(&left, exclusive)?;
    right.write_all(b"x")?;
    expect(&mut rig, &[(key, IN)], "exclusive")?;
    rig.modify(key, Interest::READABLE | Interest::WRITABLE)?;
    expect(&mut rig, &[(key, IN | OUT)], "widened")?;
    ensure!(rig.refusals().is_empty(), "no EINVAL: {:?}", rig.refusals());
    rig.modify(key, Interest::NONE)?;
    expect(&mut rig, &[], "disarmed")?;
    rig.modify(key, Interest::READABLE)?;
    expect(&mut rig, &[(key, IN)], "armed again")?;
    rig.modify_watch(key, Watch::new(Interest::READABLE))?;
    expect(&mut rig, &[(key, IN)], "no longer exclusive")?;
    rig.modify_watch(key, exclusive)?;
    expect(&mut rig, &[(key, IN)], "exclusive once more")?;
    ensure!(rig.refusals().is_empty(), "no EINVAL: {:?}", rig.refusals());
    // Removed and added again in one batch.
    rig.deregister(key)?;
    let key = rig.register(&left, exclusive)?;
    expect(&mut rig, &[(key, IN)], "a new registration")?;
    ensure!(rig.refusals().is_empty(), "no EINVAL: {:?}", rig.refusals());
    Ok(())
}

pub(super) fn changes_cause_no_wake_up_traffic(bench: &Bench) -> Outcome {
    let mut rig = bench.rig();
    let _waker = rig.waker()?;
    let _registrar = rig.registrar()?;
    let (left, mut right) = UnixStream::pair()?;
    let (reader, _writer) = pipe()?;
    expect(&mut rig, &[], "empty")?;
    let before = rig.stats().calls;
    let key = rig.register(&left, Interest::READABLE)?;
    right.write_all(b"x")?;
    for _ in 0..20 {
        let other = rig.register(&reader, Interest::READABLE)?;
        rig.modify(key, Interest::READABLE | Interest::WRITABLE)?;
        expect(&mut rig, &[(key, IN | OUT)], "both")?;
        rig.modify(key, Interest::READABLE)?;
        rig.deregister(other)?;
        expect(&mut rig, &[(key, IN)], "one")?;
    }
    let owned = rig.own(reader, Interest::READABLE)?;
    expect(&mut rig, &[(key, IN)], "owned another")?;
    rig.close(owned);
    expect(&mut rig, &[(key, IN)], "closed it")?;
    let calls = rig.stats().calls.since(&before);
    ensure!(
        calls.waker_write == 0 && calls.waker_read == 0 && calls.eventfd == 0,
        "changes on the poller's own thread woke it: {calls}"
    );
    Ok(())
}
