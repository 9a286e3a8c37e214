use super::*;
use superpoll::{Events, Poller};

fn waker() -> Option<Waker> {
    Some(Waker::noop().clone())
}

/// A source that waits to be read, as a first wait makes it.
fn source(mode: Mode) -> Source {
    let mut poller = Poller::new().unwrap();
    let (reader, _writer) = std::io::pipe().unwrap();
    let watch = Watch::new(Direction::Read.interest() & allowed(mode)).mode(mode);
    let key = poller.register(&reader, watch).unwrap();
    let mut sources = Sources::default();
    assert!(sources.add(key, 7, watch, ALL_READY & !Direction::Read.bit()).is_none());
    assert_eq!(sources.len(), 1);
    *sources.remove(key).unwrap()
}

const READ: Direction = Direction::Read;
const WRITE: Direction = Direction::Write;

#[test]
fn a_report_makes_ready_and_wakes_the_waiter() {
    let mut source = source(Mode::Auto);
    assert_eq!(source.try_now(READ), None);
    assert_eq!(
        source.add_waiter(READ, Interest::NONE, UNNAMED, &mut waker()),
        None,
        "it is watched already"
    );
    let wider = Interest::READABLE | Interest::READ_CLOSED | Interest::WRITABLE;
    assert_eq!(source.add_waiter(WRITE, Interest::NONE, UNNAMED, &mut waker()), Some(wider));
    let effects = source.report(Readiness::READABLE);
    assert!(effects.wakers.first.is_some() && effects.wakers.more.is_empty());
    assert!(source.waiters[READ as usize].is_none() && source.waiters[WRITE as usize].is_some());
    assert_eq!(effects.narrowed, None);
    assert_eq!(source.try_now(READ), Some(1));
    source.clear(READ, 1);
    assert_eq!(source.try_now(READ), None);
}

#[test]
fn a_clear_that_is_older_than_the_last_report_has_no_effect() {
    let mut source = source(Mode::Auto);
    source.report(Readiness::READABLE);
    let tick = source.try_now(READ).unwrap();
    source.report(Readiness::READABLE);
    source.clear(READ, tick);
    source.mark_drained(READ, tick);
    let now = source.try_now(READ).unwrap();
    assert_ne!(now, tick);
    source.mark_drained(READ, now);
    assert_eq!(source.try_now(READ), None);
}

#[test]
fn the_end_outlasts_a_short_count_but_not_a_refused_operation() {
    for (readiness, directions) in [
        (Readiness::READ_CLOSED, vec![READ]),
        (Readiness::HANG_UP, vec![READ, WRITE]),
        (Readiness::ERROR, vec![READ, WRITE]),
    ] {
        let mut source = source(Mode::Auto);
        source.report(readiness);
        for direction in directions {
            let tick = source.try_now(direction).unwrap();
            source.mark_drained(direction, tick);
            assert_eq!(source.try_now(direction), Some(tick), "{readiness:?}");
            source.clear(direction, tick);
            assert_eq!(source.try_now(direction), None, "{readiness:?}");
        }
    }
}

/// Reports, and how many operations succeed after each before one would block.
#[test]
fn an_error_that_comes_again_is_named_if_no_operation_makes_use_of_it() {
    let (error, hang_up) = (Readiness::ERROR, Readiness::HANG_UP);
    for (reports, spins) in [
        (&[(error, 0), (error, 0)][..], true),
        (&[(error, 1), (error, 0), (hang_up, 0)], true),
        (&[(error, 0), (error, 1), (error, 0)], false),
        (&[(error, 1), (error, 1), (error, 2)], false),
        (&[(error, 0), (Readiness::READABLE, 0), (error, 0)], false),
        (&[(Readiness::READABLE, 0), (Readiness::READABLE, 0)], false),
        (&[(Readiness::READ_CLOSED, 0), (Readiness::READ_CLOSED, 0)], false),
    ] {
        let mut source = source(Mode::Auto);
        let mut named = None;
        for &(readiness, successes) in reports {
            source.report(readiness);
            for _ in 0..successes {
                source.try_now(READ).unwrap();
            }
            let tick = source.try_now(READ).unwrap();
            named = source.clear(READ, tick);
        }
        assert_eq!(named.is_some(), spins, "{reports:?}");
    }
}

#[test]
fn all_is_there_once_a_clean_end_was_reported_and_nothing_urgent() {
    let end = Readiness::READABLE | Readiness::READ_CLOSED;
    let mut plain = source(Mode::Auto);
    plain.report(end);
    assert!(!plain.has_eof(), "urgent bytes were not watched");
    let asking = || {
        let mut source = source(Mode::Auto);
        assert!(
            source
                .add_interest(Interest::PRIORITY)
                .contains(Interest::PRIORITY | Interest::READABLE)
        );
        source
    };
    for (readiness, has_eof) in [
        (Readiness::READABLE, false),
        (end, true),
        (end | Readiness::WRITABLE, true),
        (end | Readiness::PRIORITY, false),
        (end | Readiness::ERROR, false),
        (end | Readiness::HANG_UP, false),
    ] {
        let mut source = asking();
        source.report(readiness);
        assert_eq!(source.has_eof(), has_eof, "{readiness:?}");
    }
    let mut source = asking();
    source.report(end);
    source.mark_drained(READ, 1);
    assert!(source.has_eof(), "an end stays");
    source.clear(READ, 1);
    assert!(!source.has_eof(), "it was none");
    // An urgent condition that no task waits for is not watched indefinitely, and from then on
    // nothing is sure.
    let mut source = asking();
    source.add_waiter(READ, Interest::NONE, UNNAMED, &mut waker());
    source.report(Readiness::PRIORITY);
    let narrowed = source.report(Readiness::PRIORITY).narrowed;
    assert_eq!(narrowed, Some(Interest::READABLE | Interest::READ_CLOSED));
    source.report(end);
    assert!(!source.has_eof());
}

#[test]
fn a_direction_is_dropped_after_two_reports_without_a_waiter() {
    let mut source = source(Mode::Auto);
    source.add_waiter(READ, Interest::NONE, UNNAMED, &mut waker());
    let read = Interest::READABLE | Interest::READ_CLOSED;
    source.add_waiter(WRITE, Interest::NONE, UNNAMED, &mut waker());
    source.report(Readiness::WRITABLE);
    assert_eq!(source.report(Readiness::WRITABLE).narrowed, Some(read));
    assert_eq!(
        source.add_waiter(WRITE, Interest::NONE, UNNAMED, &mut waker()),
        Some(read | Interest::WRITABLE)
    );
    // Tried in between: a task takes care of it.
    source.report(Readiness::READABLE);
    source.try_now(READ);
    assert_eq!(source.report(Readiness::READABLE).narrowed, None);
    assert_eq!(source.report(Readiness::READABLE).narrowed, Some(Interest::WRITABLE));
    source.report(Readiness::HANG_UP);
    assert_eq!(source.report(Readiness::HANG_UP).narrowed, Some(Interest::NONE));
}

#[test]
fn an_exclusive_registration_asks_for_nothing_the_kernel_refuses() {
    let mut source = source(Mode::Exclusive);
    assert_eq!(source.add_waiter(READ, Interest::NONE, UNNAMED, &mut waker()), None);
    let both = Interest::READABLE | Interest::WRITABLE;
    assert_eq!(source.add_waiter(WRITE, Interest::NONE, UNNAMED, &mut waker()), Some(both));
    source.report(Readiness::READABLE);
    assert_eq!(source.report(Readiness::READABLE).narrowed, Some(Interest::WRITABLE));
}

#[test]
fn a_refusal_is_returned_once_and_wakes_all() {
    let mut source = source(Mode::Auto);
    source.add_waiter(READ, Interest::NONE, UNNAMED, &mut waker());
    source.add_waiter(WRITE, Interest::NONE, UNNAMED, &mut waker());
    let wakers = source.refuse(io::ErrorKind::StorageFull.into());
    assert_eq!((wakers.first.is_some(), wakers.more.len()), (true, 1));
    assert!(source.try_now(READ).is_some() && source.try_now(WRITE).is_some());
    assert_eq!(source.take_refusal().unwrap().kind(), io::ErrorKind::StorageFull);
    assert!(source.take_refusal().is_none());
}

#[test]
fn assumed_readiness_wakes_a_waiter_or_is_remembered() {
    let mut source = source(Mode::Auto);
    assert!(source.assume_ready(READ).is_none());
    let tick = source.try_now(READ).unwrap();
    source.clear(READ, tick);
    source.add_waiter(READ, Interest::NONE, UNNAMED, &mut waker());
    assert!(source.assume_ready(READ).unwrap().first.is_some());
    assert!(source.assume_ready(READ).is_none(), "no waiter is left");
}

#[test]
fn a_cancelled_wait_leaves_other_waits_alone() {
    for (gone, left) in [(1, 2), (2, 1)] {
        let mut source = source(Mode::Auto);
        // Two waits of one task, and twice a task that polls by hand.
        for name in [1, 2, UNNAMED] {
            source.add_waiter(READ, Interest::NONE, name, &mut waker());
            source.add_waiter(READ, Interest::NONE, name, &mut waker());
        }
        source.add_waiter(WRITE, Interest::NONE, gone, &mut waker());
        assert_eq!(source.more.len(), 2);
        assert!(source.cancel_wait(READ, gone).is_some());
        assert!(source.cancel_wait(READ, gone).is_none());
        let mut names: Vec<_> = source.more.iter().map(|(_, waiter)| waiter.name).collect();
        names.extend(source.waiters[READ as usize].as_ref().map(|waiter| waiter.name));
        names.sort_unstable();
        assert_eq!(names, [UNNAMED, left]);
        let wakers = source.report(Readiness::READABLE).wakers;
        assert_eq!((wakers.first.is_some(), wakers.more.len()), (true, 1));
        assert!(source.waiters[WRITE as usize].is_some());
        assert!(source.cancel_wait(WRITE, gone).is_some());
        assert!(source.waiters[WRITE as usize].is_none());
    }
}

#[test]
fn a_key_of_another_generation_finds_nothing() {
    let mut poller = Poller::new().unwrap();
    let (reader, _writer) = std::io::pipe().unwrap();
    let mut sources = Sources::default();
    let old = poller.register(&reader, Interest::READABLE).unwrap();
    assert!(sources.add(old, 1, Watch::new(Interest::READABLE), 0).is_none());
    assert!(sources.remove(old).is_some() && sources.remove(old).is_none());
    poller.deregister(old).unwrap();
    let mut events = Events::with_limit(1);
    poller.wait(&mut events, Some(std::time::Duration::ZERO)).unwrap();
    let new = poller.register(&reader, Interest::READABLE).unwrap();
    assert!(new != old && new.index() == old.index());
    assert!(sources.add(new, 1, Watch::new(Interest::READABLE), 0).is_none());
    assert!(sources.get(old).is_none() && sources.remove(old).is_none());
    assert!(sources.get(new).is_some() && sources.len() == 1);
    assert_eq!(sources.take_all().iter().flatten().count(), 1);
    assert_eq!(sources.len(), 0);
}
